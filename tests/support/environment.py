"""A fixture that hides the environment's proxies, credentials and certificates."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep proxy, .netrc and certificates of the machine out."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ("NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)
