"""httpx on sockets of this package: one request, its limits, and its end by the attempt."""

from __future__ import annotations

import httpx
import pytest

from rtvi_sync.transports.http_sockets import AbandonableClient
from rtvi_sync.transports.net import Network
from tests.support.loopback import Peer, Server, serving, trusting
from tests.support.threads import running

pytestmark = pytest.mark.inside


def request(client: AbandonableClient, url: str) -> httpx.Response:
    """Send a request whose answer is read by the test."""
    built = client.build_request("POST", url, content=b"{}", headers=[(b"Host", b"it")], timeout=None, extensions={})
    return client.send(built, stream=True, follow_redirects=False)


def client_of(server: Server, attempt, *, tls: bool = False, max_received: int = 100_000) -> AbandonableClient:
    url = f"http{'s' if tls else ''}://{server.authority}/"
    return AbandonableClient(url, Network(ssl_context=trusting(), proxy=False), attempt.signal, max_received)


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_and_its_answer(attempt, tls):
    """Status, headers and body arrive, with TLS and without."""

    def answer(peer: Peer) -> None:
        assert peer.read_request()[0].startswith("POST /path?a=b HTTP/1.1\r\n")
        peer.answer("201 Created", b"hello", "X-It: yes")

    with Server(answer, tls=serving() if tls else None) as server:
        client = client_of(server, attempt, tls=tls)
        response = request(client, f"http{'s' if tls else ''}://{server.authority}/path?a=b")
        assert (response.status_code, response.headers["x-it"], response.read()) == (201, "yes", b"hello")
        response.close()
        client.close()


def test_all_received_bytes_count(attempt):
    """Interim answers without end exceed the limit, though no body has begun."""

    def flood(peer: Peer) -> None:
        peer.read_request()
        while True:
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with Server(flood) as server:
        client = client_of(server, attempt, max_received=10_000)
        with pytest.raises(httpx.TransportError, match="more than 10000 bytes"):
            request(client, f"http://{server.authority}/")
        client.close()


def test_the_count_begins_again(attempt):
    """A stream of any length is read if the caller renews the budget while it reads."""

    def stream(peer: Peer) -> None:
        peer.read_request()
        peer.answer("200 OK", bytes(2_000_000))

    with Server(stream) as server:
        client = client_of(server, attempt, max_received=200_000)
        received = 0
        response = request(client, f"http://{server.authority}/")
        for chunk in response.iter_raw(1000):
            received += len(chunk)
            client.renew_budget()
        assert received == 2_000_000
        response.close()
        client.close()


def test_a_server_that_speaks_something_else(attempt):
    """The first bytes are enough to tell."""

    def respond(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"SSH-2.0-x\r\n")

    with Server(respond) as server:
        client = client_of(server, attempt)
        with pytest.raises(httpx.TransportError, match="speaks SSH, not HTTP"):
            request(client, f"http://{server.authority}/")
        client.close()


def test_the_attempt_ends_a_wait(attempt):
    """A read that waits for a silent server ends when the attempt is abandoned."""

    def respond(peer: Peer) -> None:
        peer.read_request()
        peer.hold()

    with Server(respond) as server:
        client = client_of(server, attempt)
        with running(lambda: request(client, f"http://{server.authority}/")) as waiting:
            assert waiting.goes_on(0.1)
            attempt.abort()
            assert isinstance(waiting.error(), Exception)
        client.close()
