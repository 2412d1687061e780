"""`RTVIClient.for_url()`; tests/test_url.py tests the meaning of each form of a URL, in every program."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import (
    InvalidTransportParamsError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIClientParams,
    StartBotError,
    TransportState,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.http_server import Answer, ScriptedServer
from tests.support.loopback import Proxy
from tests.support.slowness import GUARD

QUIET: dict[str, Any] = {"enable_mic": False, "speaker": NullSink(), "connect_timeout": GUARD}
SECRET = "hush-hush"


def memory_client(url: str, **options: Any) -> RTVIClient:
    return RTVIClient.for_url(url, transport=MemoryTransport(), **options)


@pytest.mark.parametrize(
    "url", ["", f"ftp://x/{SECRET}", f"{SECRET}@127.0.0.1:9", f"http:///{SECRET}", f"ws:{SECRET}", f"http://[{SECRET}"]
)
def test_what_is_no_url_of_a_bot_is_refused_at_once(url: str) -> None:
    """The error describes a valid URL, and does not repeat the text, which may contain a key."""
    with pytest.raises(InvalidTransportParamsError, match="not the URL of a bot: it") as caught:
        RTVIClient.for_url(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("localhost:7860", "it has no scheme; put ws:// or wss:// or http:// or https:// before it"),
        ("ftp://localhost:7860", "start with ws:// or wss:// or http:// or https://"),
        ("ws://localhost/ws\n", "space or a line break at one end"),
        ("ws://localhost/ws ", "space or a line break at one end"),
        ("http://xn--.test/start", "host is not valid"),
        (" ws://localhost/ws", "space or a line break at one end"),
        ("ws://local\x00host/ws", "control character"),
        ("ws://localhost:65536/ws", "port is not a number from 1 to 65535"),
        ("ws://localhost:0/ws", "port is not a number from 1 to 65535"),
        ("ws://localhost:ws/ws", "port is not a number from 1 to 65535"),
        ("ws://", "names no host"),
        ("ws:///ws", "names no host"),
        ("ws://local host/ws", "host is not valid"),
        ("ws://[::1/ws", "host is not valid"),
    ],
)
def test_the_error_says_what_is_wrong_with_it(url: str, fault: str) -> None:
    """Whether it is a pasted line break, the port or the host."""
    with pytest.raises(InvalidTransportParamsError, match=fault):
        RTVIClient.for_url(url)


def test_the_url_is_a_string_and_no_handler_competes_with_it() -> None:
    """for_url() refuses a URL that is no string, and a handler for the connect request."""
    with pytest.raises(TypeError, match="url must be a URL"):
        RTVIClient.for_url(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="custom_connect_handler"):
        RTVIClient.for_url("ws://127.0.0.1:1", custom_connect_handler=lambda *_: None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="custom_connect_handler"):
        RTVIClient.for_url("ws://127.0.0.1:1", customConnectHandler=lambda *_: None)  # type: ignore[call-arg]


def test_it_does_not_connect(server: ScriptedServer) -> None:
    """The client is made without a request, and its params tell the server for other requests."""
    params = RTVIClientParams(headers={"X-Key": "1"})
    client = memory_client(f"{server.url}/v1/connect?a=b", params=params)
    assert client.state is TransportState.DISCONNECTED
    assert client.construct_url("action") == f"{server.url}/v1/action/?a=b"
    assert params.base_url is None
    assert server.requests == []


@pytest.mark.parametrize("path", ["", "/start", "/connect"])
def test_credentials_go_to_the_server_of_the_url(path: str, server: ScriptedServer) -> None:
    """`params` need no base_url for that; with one of another origin, the server of the URL gets nothing of them."""
    server.answers.update(dict.fromkeys(["/start", "/connect"], Answer({})))
    params: dict[str, Any] = {"headers": {"X-Key": SECRET}, "request_data": {"user": SECRET}}
    for base_url in (None, "http://127.0.0.1:1"):
        client = memory_client(server.url + path, params={**params, "base_url": base_url})
        client.connect()
        client.close()
    own, other = server.requests
    assert (own.headers["x-key"], own.body["user"]) == (SECRET, SECRET)
    assert "x-key" not in other.headers
    assert "user" not in other.body


def test_a_server_without_an_endpoint_is_told_in_one_error(server: ScriptedServer) -> None:
    """connect() tries both endpoints and raises one error; a refusal other than 404 and 405 ends it at once."""
    client = memory_client(server.url)
    with pytest.raises(StartBotError, match=r"/connect answered 404\. Give the whole URL") as caught:
        client.connect()
    assert caught.value.status == 404
    server.answers["/start"] = Answer({}, 405)
    with pytest.raises(StartBotError, match="404"):
        client.connect()
    server.answers["/start"] = Answer({}, 401)
    with pytest.raises(StartBotError, match="401"):
        client.connect()
    assert [request.path for request in server.requests] == ["/start", "/connect"] * 2 + ["/start"]
    client.close()


@pytest.mark.parametrize("transport", ["websocket", "eval"])
@pytest.mark.parametrize("status", ["404 Not Found", "405 Not Allowed"])
def test_a_proxy_that_refuses_is_no_missing_endpoint(transport: Any, status: str) -> None:
    """A web server in place of the proxy knows no CONNECT: that ends it, and the error names the proxy."""
    with Proxy(refuse=status) as proxy:
        client = RTVIClient.for_url(
            "https://bot.test", transport=transport, proxy=proxy.authority, mic=False, speaker=False
        )
        with pytest.raises(StartBotError, match=f"the proxy .* refused to connect .* {status[:3]}:"):
            client.connect()
        client.close()
    assert len(proxy.heads) == 1


def test_a_missing_endpoint_may_be_the_refusal_of_a_proxy() -> None:
    """Without TLS its answer cannot be told from the server's: the error says so."""
    with Proxy(refuse="404 Not Found") as proxy:
        client = memory_client("http://bot.test", proxy=proxy.authority)
        with pytest.raises(StartBotError, match=r"Give the whole URL .*\. If the proxy .* has refused it") as caught:
            client.connect()
        client.close()
    assert caught.value.status == 404
    assert len(proxy.heads) == 2


def test_a_start_endpoint_is_told_by_bot_started(server: ScriptedServer) -> None:
    """A start endpoint fires `bot_started`, as `start_bot_and_connect()` does; a connect endpoint does not."""
    server.answers.update({"/start": Answer({"n": 1}), "/connect": Answer({"n": 2})})
    heard: list[Any] = []
    for path in ("", "/start", "/connect"):
        client = memory_client(
            server.url + path, callbacks={"on_bot_started": lambda data: heard.append(data.response)}
        )
        client.connect()
        client.close()
    assert heard == [{"n": 1}, {"n": 1}]


def test_a_lost_session_is_replaced_by_way_of_the_url() -> None:
    """With a request of its own."""
    with EmbeddedBot() as bot:
        client = RTVIClient.for_url(bot.base_url, reconnect=ReconnectPolicy(initial_delay=0.01), **QUIET)
        with client:
            with client.events("bot-ready", timeout=GUARD) as ready:
                bot.wait_for_session(GUARD).close(1012)
                next(ready)
            assert [request.endpoint for request in bot.requests] == ["/start", "/start"]


def test_given_parameters_go_before_the_url(server: ScriptedServer) -> None:
    """Parameters of `connect()` win over the URL, as they win over `params.base_url`."""
    client = memory_client(server.url)
    client.connect({"x": 1})
    client.close()
    assert server.requests == []


@pytest.mark.parametrize("path", ["/connect", "/start"])
def test_headers_go_to_the_endpoint(path: str) -> None:
    """The connect and the start endpoint receive them; without them the server refuses."""
    with EmbeddedBot(headers={"X-Key": "abc"}) as bot:
        for headers in ({"X-Key": "abc"}, {}):
            client = RTVIClient.for_url(
                bot.base_url + path, headers=headers, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD
            )
            try:
                if headers:
                    assert client.connect().version
                else:
                    with pytest.raises(StartBotError, match="401"):
                        client.connect()
            finally:
                client.close()


def test_a_token_goes_to_the_websocket() -> None:
    """The token is in the handshake's query."""
    with EmbeddedBot() as bot:
        client = RTVIClient.for_url(
            bot.ws_url, token="abc", enable_mic=False, speaker=NullSink(), connect_timeout=GUARD
        )
        try:
            client.connect()
            assert bot.wait_for_session(GUARD).path.endswith("?token=abc")
        finally:
            client.close()
