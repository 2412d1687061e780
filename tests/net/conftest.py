"""Fixtures of the tests of the network."""

from __future__ import annotations

import json

import httpx
import pytest

from rtvi_sync.net.dial import Network
from tests.support.abandoning import abandon, attempt  # noqa: F401 - fixtures
from tests.support.environment import no_environment  # noqa: F401 - a fixture
from tests.support.httpx_twice import httpx2  # noqa: F401 - a fixture
from tests.support.loopback import trusting


@pytest.fixture
def post(attempt, poster):  # noqa: F811 - the fixture above
    """Return the `poster` of the file with defaults: no proxy, no headers, an attempt without limit."""

    def call(url, body=None, *, headers=(), network=None, signal=attempt.signal, client=None):
        network = network or Network(ssl_context=trusting(), proxy=False)
        return poster(
            url, json.dumps(body).encode(), headers=dict(headers), network=network, signal=signal, client=client
        )

    return call


@pytest.fixture(params=["our own client", "the caller's client", "the caller's client of httpx2"])
def any_post(request, post):
    """Return `post` by the package's own client and by the caller's clients: the rules are the same."""
    if request.param == "our own client":
        yield post
        return
    library = request.getfixturevalue("httpx2") if request.param.endswith("httpx2") else httpx
    with library.Client(verify=trusting(), trust_env=False) as client:
        yield lambda *args, **kwargs: post(*args, client=client, **kwargs)
