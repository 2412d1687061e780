"""Errors of the first minutes: each names its cause and its cure, and leads to its paragraph of the page of errors."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from rtvi_sync import ConnectError, DisconnectedError, RTVIError, connect
from tests.support.attempts import timed_out
from tests.support.selection import some_of
from tests.support.slowness import GUARD

from .conftest import BotServer


def error_of(url: str, **options: Any) -> RTVIError:
    """Return the error of `connect(url)`, which is explained: in Python 3.10, too, it has a note."""
    with pytest.raises((ConnectError, DisconnectedError)) as caught:
        connect(url, **{"text_only": True, "connect_timeout": GUARD, **options})
    assert "See: rtvi-sync explain " in caught.value.__notes__[0], str(caught.value)
    return caught.value


# -- a web server -----------------------------------------------------------------------------------------------------


class _Files(SimpleHTTPRequestHandler):
    """The pages of `python -m http.server`: it takes no POST."""

    def log_message(self, *_: Any) -> None:
        pass


class _Page(_Files):
    """A server that answers whatever it is asked with the page of its application, as those for browsers do."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        page = b"<!doctype html><title>Shop</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


@pytest.fixture
def web_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of Python's own web server, with the handler that is the parameter."""
    with ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("web_server", [_Files], indirect=True)
@pytest.mark.parametrize("path", ["", "/start", "/index.html"])
def test_a_web_server(web_server: str, path: str) -> None:
    """A web server that takes no POST is an error that advises to check the URL."""
    error = error_of(web_server + path)
    assert error.status == 501
    assert re.search(r"answered 501: Unsupported method \('POST'\)\. Check the URL of the", str(error))


@pytest.mark.parametrize("web_server", [_Page], indirect=True)
def test_a_web_page(web_server: str) -> None:
    """The error names the HTML received in place of JSON, and the kind of URL that is needed."""
    text = "did not answer with JSON but with text/html. Check that its URL is the endpoint that starts the bot"
    assert text in str(error_of(web_server))
    assert f"{text} (a Pipecat runner's start endpoint ends in /start)" in str(error_of(f"{web_server}/shop"))


# -- Pipecat's runner -------------------------------------------------------------------------------------------------


def test_an_endpoint_that_the_runner_does_not_have(pipecat_stock: BotServer) -> None:
    """The error of an unknown endpoint names the endpoint of a runner."""
    error = error_of(f"{pipecat_stock.base_url}/connect")
    assert error.status == 404
    assert "Check the URL of the connect endpoint (a Pipecat runner's start endpoint ends in /start)" in str(error)


def test_the_page_of_the_runner_for_browsers(pipecat_stock: BotServer) -> None:
    """The error of the URL in a browser's address line names the URL of the server."""
    error = error_of(f"{pipecat_stock.base_url}/client/")
    assert error.status in (404, 405)
    assert f"Pass the URL of the server, {pipecat_stock.base_url}" in str(error)


def test_another_path_of_the_runner(pipecat_stock: BotServer) -> None:
    """The runner refuses an unknown WebSocket with 403, as it does one without a token: the text has both causes."""
    error = error_of(f"{pipecat_stock.ws_url}/of/no/bot")
    assert error.status == 403
    assert "Check the path of the URL" in str(error)
    assert "the token may be missing, wrong" in str(error)


@pytest.mark.matrix
def test_a_used_token(pipecat_process: Callable[..., BotServer]) -> None:
    """A token is good for one connection; none at all, and a wrong one, are refused alike."""
    bot = pipecat_process("stock", "--ws-auth", "token")
    reply = httpx.post(f"{bot.base_url}/start", json={"transport": "twilio"}, timeout=GUARD, trust_env=False)
    token = reply.json()["token"]
    connect(bot.ws_url, token=token, transport="eval", text_only=True, connect_timeout=GUARD).disconnect()

    for given in (token, "wrong", None):
        error = error_of(bot.ws_url, token=given, transport="eval")
        assert error.status == 403
        assert "or used before (Pipecat's are valid for one connection)" in str(error)
        assert "get a new one from the server" in str(error)
        assert token not in str(error)


@pytest.mark.matrix
def test_an_origin_that_is_not_allowed(pipecat_process: Callable[..., BotServer]) -> None:
    """A runner for certain pages refuses a request that names none of them with 403; a header names one."""
    bot = pipecat_process("stock", "--allowed-origins", "https://example.com")
    assert error_of(bot.ws_url).status == 403

    headers = {"Origin": "https://example.com"}
    connect(bot.ws_url, headers=headers, text_only=True, connect_timeout=GUARD).disconnect()


@pytest.mark.matrix
def test_tls_that_is_advertised_and_not_there(pipecat_process: Callable[..., BotServer]) -> None:
    """The runner's `wss://`, given to `connect()`: the plain address that the text has reaches the bot."""
    bot = pipecat_process("stock", "--host", "127.0.0.1")
    text = str(error_of(bot.ws_url.replace("ws:", "wss:"), transport="eval"))
    assert "Pipecat's runner advertises wss:// whenever its --host is not 'localhost'" in text
    plain = re.findall(r"'(ws://.+?)'", text)

    connect(plain[-1], text_only=True, connect_timeout=GUARD).disconnect()


@pytest.mark.parametrize(
    ("entries", "route", "transport", "missing"),
    some_of(
        [
            ("eval", "/ws-client", "websocket", "websocket"),
            ("websocket", "/ws", "eval", "eval"),
            ("eval", "/ws", "websocket", "websocket"),
        ],
        ("websocket", "/ws", "eval", "eval"),
    ),
    ids=["no websocket entry", "no eval entry", "protobuf for the eval route"],
)
def test_a_bot_that_hangs_up(
    pipecat_process: Callable[..., BotServer], entries: str, route: str, transport: Any, missing: str
) -> None:
    """The bot accepts the WebSocket and then closes or resets it: the text names the entry that it lacks."""
    bot = pipecat_process("stock", "--entries", entries)
    text = str(error_of(bot.base_url.replace("http:", "ws:") + route, transport=transport))
    assert f"A bot of Pipecat's runner needs the entry {missing!r} in its transport_params" in text


@pytest.mark.matrix
@pytest.mark.parametrize("transport", ["websocket", "eval"])
def test_a_bot_without_rtvi(pipecat_process: Callable[..., BotServer], transport: Any) -> None:
    """A bot without RTVI, which answers nothing, is a time-out that names this cause."""
    bot = pipecat_process("stock", "--no-rtvi", "--entries", "eval,websocket")

    def attempt(limit: float) -> None:
        connect(bot.base_url, transport=transport, text_only=True, connect_timeout=limit)

    error = timed_out("bot-ready", attempt, r"A bot without RTVI \(in Pipecat: enable_rtvi=False\) is never ready")
    assert error.__notes__ == ["See: rtvi-sync explain no-rtvi too-slow"]


def test_a_server_for_websockets_only(pipecat_standalone: BotServer) -> None:
    """No error: the standalone server hangs up on a start request, and its WebSocket is used."""
    with connect(pipecat_standalone.ws_url.replace("ws:", "http:"), text_only=True, connect_timeout=GUARD) as client:
        assert client.send_client_request("ping", 1) == {"pong": 1}
