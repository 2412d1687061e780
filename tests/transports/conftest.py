"""What the tests of transports share."""

from __future__ import annotations

import os

import pytest

from rtvi_sync.concurrency.cancel import AbortController
from rtvi_sync.concurrency.deadline import Deadline

from .test_websocket_connection import io, link  # noqa: F401 - fixtures of several files


class AbandonedError(Exception):
    """The attempt of a test was abandoned."""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """No proxy, .netrc or certificate of the machine takes part."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)


@pytest.fixture
def attempt():
    """An attempt without limit; `attempt.abort()` abandons it, `attempt.signal` goes to its steps."""
    return AbortController(Deadline(None), AbandonedError)
