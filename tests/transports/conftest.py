"""What the tests of transports share."""

from __future__ import annotations

import json

import httpx
import pytest

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.transports.net import Network
from tests.support.chromium import chromium  # noqa: F401 - a fixture
from tests.support.environment import no_environment  # noqa: F401 - a fixture
from tests.support.fake_peer import fake_call  # noqa: F401 - a fixture
from tests.support.httpx_twice import httpx2  # noqa: F401 - a fixture
from tests.support.io_threads import io  # noqa: F401 - a fixture
from tests.support.loopback import trusting
from tests.support.slowness import GUARD
from tests.support.webrtc import far_loop  # noqa: F401 - a fixture
from tests.support.websocket_bots import kind, opened, plain, runtime, server  # noqa: F401 - the same
from tests.support.websocket_client import link  # noqa: F401 - the same

from .abandoned import AbandonedError


@pytest.fixture
def attempt():
    """Return an attempt without limit; `attempt.abort()` abandons it, `attempt.signal` goes to its steps."""
    return AbortController(Deadline(None), AbandonedError)


@pytest.fixture
def abandon(attempt):
    """Return `abandon(thread, reached)`, which aborts the attempt once `reached` is set; the thread raises why."""

    def call(thread, reached):
        assert reached.wait(GUARD)
        attempt.abort()
        with pytest.raises(AbandonedError):
            thread.get()

    return call


@pytest.fixture
def post(attempt, poster):
    """Return the `poster` of the file with defaults: no proxy, no headers, an attempt without limit."""

    def call(url, body=None, *, headers=(), network=None, signal=attempt.signal, client=None):
        network = network or Network(ssl_context=trusting(), proxy=False)
        return poster(
            url, json.dumps(body).encode(), headers=dict(headers), network=network, signal=signal, client=client
        )

    return call


@pytest.fixture(params=["our own client", "the caller's client", "the caller's client of httpx2"])
def any_post(request, post):
    """Return `post` by our own client and by those of the caller's: the rules are the same."""
    if request.param == "our own client":
        yield post
        return
    library = request.getfixturevalue("httpx2") if request.param.endswith("httpx2") else httpx
    with library.Client(verify=trusting(), trust_env=False) as client:
        yield lambda *args, **kwargs: post(*args, client=client, **kwargs)
