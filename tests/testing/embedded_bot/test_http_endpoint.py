"""The HTTP server of the embedded bot, and TLS on both of its servers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import urllib.error
import urllib.request

import pytest
import trustme
from websockets.sync.client import connect

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

from .bot_client import Client, ask, threads_of_bots


def test_connect_endpoint() -> None:
    """POST /connect returns the WebSocket's address, with any body and query, with and without a trailing slash."""
    with EmbeddedBot() as bot:
        answers = [ask(f"{bot.base_url}/connect", body=body)[:2] for body in (b'{"a": 1}', b"", b"no json")]
        answers += [ask(f"{bot.base_url}{path}")[:2] for path in ("/connect/", "/connect?a=1")]

        assert answers == [(200, {"ws_url": bot.ws_url})] * 5


def test_start_endpoint() -> None:
    """POST /start answers like the development runner: wsUrl, a new session id, and a token that is null."""
    with EmbeddedBot() as bot:
        status, first, _ = ask(f"{bot.base_url}/start", body=b'{"transport": "websocket", "body": {}}')
        second = ask(f"{bot.base_url}/start")[1]

    assert (status, first) == (200, {"wsUrl": bot.ws_url, "sessionId": first["sessionId"], "token": None})
    assert first["sessionId"] != second["sessionId"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/start", b'{"transport": "webrtc"}', 400),
        ("POST", "/start", b"[]", 500),
        ("GET", "/start", None, 405),
        ("GET", "/connect", None, 405),
        ("GET", "/", None, 404),
        ("POST", "/elsewhere", b"{}", 404),
    ],
)
def test_refused_requests(method: str, path: str, body: bytes | None, status: int) -> None:
    """A refused request gets the status and the `detail` of a real server."""
    with EmbeddedBot() as bot:
        answer = ask(bot.base_url + path, method, body)

    assert (answer[0], list(answer[1])) == (status, ["detail"])


def test_pages_of_every_origin_may_ask() -> None:
    """A browser's preflight and its request get the CORS headers, for requests with credentials too."""
    with EmbeddedBot() as bot:
        preflight = ask(
            f"{bot.base_url}/connect",
            "OPTIONS",
            None,
            Origin="https://example.org",
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="content-type, x-key",
        )
        request = ask(f"{bot.base_url}/connect", Origin="https://example.org")

    assert (preflight[0], request[0]) == (200, 200)
    assert "POST" in preflight[2]["access-control-allow-methods"]
    assert preflight[2]["access-control-allow-headers"] == "content-type, x-key"
    for _, _, headers in (preflight, request):
        assert headers["access-control-allow-origin"] == "https://example.org"
        assert headers["access-control-allow-credentials"] == "true"
        assert headers["vary"] == "Origin"


def test_tls() -> None:
    """With a server context both addresses are secure; a client that stalls its handshake blocks no other."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    # The client of websockets reads on one thread while it sends its request on another. If the server's session
    # tickets arrive in that moment, both are in OpenSSL, and the request is never sent (python/cpython#124984).
    server.num_tickets = 0
    with EmbeddedBot(ssl_context=server) as bot, contextlib.ExitStack() as stack:
        ports = [int(url.split(":")[2].split("/")[0]) for url in (bot.base_url, bot.ws_url)]
        for port in ports:
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=client)
        )
        with opener.open(f"{bot.base_url}/connect", data=b"{}", timeout=GUARD) as response:
            address = json.load(response)["ws_url"]
        with connect(address, ssl=client) as connection:
            Client(connection).send("client-ready", {"version": "2.2.0"})
            Client(connection).message("bot-ready")

        assert (bot.base_url[:8], address[:6]) == ("https://", "wss://")
    assert threads_of_bots() == []
