"""Data received over https is never passed on in plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from rtvi_sync import InvalidTransportParamsError, RTVIClient, StartBotError, WebSocketTransport
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.http_server import Answer, scripted_server
from tests.support.loopback import Server, serving, trusting
from tests.support.slowness import GUARD


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot without TLS."""
    with EmbeddedBot() as bot:
        yield bot


@pytest.fixture
def endpoint(bot: EmbeddedBot) -> Iterator[Server]:
    """Yield an https endpoint that sends clients to that bot, for any path."""

    def answer(peer: Any) -> None:
        peer.read_request()
        peer.answer("200 OK", f'{{"ws_url": "{bot.ws_url}?room=secret", "token": "secret"}}'.encode())

    with Server(answer, tls=serving()) as server:
        yield server


def client_of(transport: WebSocketTransport, base_url: str, **options: Any) -> RTVIClient:
    """Return a client without devices that trusts the tests' authority."""
    return RTVIClient(
        transport=transport,
        params={"base_url": base_url},
        ssl_context=trusting(),
        enable_mic=False,
        speaker=NullSink(),
        connect_timeout=GUARD,
        **options,
    )


REACHES: dict[str, Callable[[RTVIClient, str], Any]] = {
    "connect": lambda client, _: client.connect(),
    "start_bot_and_connect": lambda client, url: client.start_bot_and_connect(f"{url}/start"),
    "start_bot": lambda client, url: client.connect(client.start_bot(f"{url}/start")),
}


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_plain_url_from_an_https_endpoint(bot: EmbeddedBot, endpoint: Server, reach: str, scheme: str) -> None:
    """A plain URL from an https endpoint is refused, even on loopback; the error names the option."""
    url = f"{scheme}://{endpoint.authority}"
    client = client_of(WebSocketTransport(), url)
    with pytest.raises(InvalidTransportParamsError, match="allow_insecure=True") as caught:
        REACHES[reach](client, url)
    assert f'connect("wss://{endpoint.authority}/' in str(caught.value)  # the way in by the server that has TLS
    assert "secret" not in str(caught.value)
    assert client.state.value == "error"
    assert bot.sessions == []


@pytest.mark.parametrize("reach", REACHES)
def test_it_can_be_allowed_by_name(endpoint: Server, reach: str) -> None:
    """`allow_insecure=True` takes it."""
    url = f"https://{endpoint.authority}"
    with client_of(WebSocketTransport(allow_insecure=True), url) as client:
        if reach != "connect":
            client.disconnect()
            REACHES[reach](client, url)
        assert client.connected


def test_with_an_http_client_of_ones_own(endpoint: Server) -> None:
    """The rule is the same."""
    with (
        httpx.Client(verify=trusting(), trust_env=False) as http_client,
        pytest.raises(InvalidTransportParamsError, match="allow_insecure"),
    ):
        client_of(WebSocketTransport(), f"https://{endpoint.authority}", http_client=http_client).connect()


def test_an_address_of_the_transports_own(bot: EmbeddedBot, endpoint: Server) -> None:
    """The token of an https answer does not go to a plain address either that the program gave beforehand."""
    client = client_of(WebSocketTransport(bot.ws_url), f"https://{endpoint.authority}")
    with pytest.raises(InvalidTransportParamsError, match="allow_insecure"):
        client.connect()


def test_what_the_program_gives_itself_is_its_own_affair(bot: EmbeddedBot, endpoint: Server) -> None:
    """Parameters given to `connect()`, those from a handler, and the answer of a plain endpoint are accepted."""
    client = client_of(WebSocketTransport(), f"https://{endpoint.authority}")
    client.connect({"ws_url": bot.ws_url})
    client.disconnect()
    client.connect(dict(client.start_bot(f"https://{endpoint.authority}/start")))
    client.disconnect()
    with client_of(
        WebSocketTransport(), "https://nowhere.test", custom_connect_handler=lambda *_: {"ws_url": bot.ws_url}
    ) as by_handler:
        assert by_handler.connected
    with client_of(WebSocketTransport(), bot.base_url) as plain:
        assert plain.connected


def test_one_session_does_not_decide_for_the_next(bot: EmbeddedBot, endpoint: Server) -> None:
    """A refusal does not decide for the next session: a plain endpoint is accepted, and then refused again."""
    client = client_of(WebSocketTransport(), f"https://{endpoint.authority}")
    for _ in range(2):
        client.params.base_url = f"https://{endpoint.authority}"
        with pytest.raises(InvalidTransportParamsError, match="allow_insecure"):
            client.connect()
        client.params.base_url = bot.base_url
        client.connect()
        client.disconnect()


def test_https_does_not_redirect_to_http() -> None:
    """A redirect from https to http, of the same host, is not followed: it would leave the origin."""
    with scripted_server() as plain:
        plain.answers["/connect/"] = Answer({"ws_url": "ws://127.0.0.1:9"})

        def redirect(peer: Any) -> None:
            peer.read_request()
            peer.answer("307 Temporary Redirect", b"", f"Location: {plain.url}/connect/")

        with Server(redirect, tls=serving()) as server, pytest.raises(StartBotError, match="not followed"):
            client_of(WebSocketTransport(), f"https://{server.authority}").connect()
        assert plain.requests == []
