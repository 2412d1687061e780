"""Cookies that the answer to a start request sets go with the attempt to its host, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rtvi_sync import EvalTransport, ReconnectPolicy, RTVIClient, WebSocketTransport, connect
from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Front, serving, trusting
from tests.support.slowness import GUARD

OPTIONS: dict[str, Any] = {"text_only": True, "connect_timeout": GUARD, "proxy": False}
ANSWER = '{"ws_url": "ws://127.0.0.1:{port}/bots/ws"}'


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot behind the `Front` of a test."""
    with EmbeddedBot() as bot:
        yield bot


def cookies(head: str) -> list[str]:
    """Return the cookies of a request."""
    return [line.partition(":")[2].strip() for line in head.split("\r\n") if line.lower().startswith("cookie:")]


@pytest.mark.parametrize("transport", [WebSocketTransport, EvalTransport])
def test_they_go_with_the_handshake_of_that_attempt(bot: EmbeddedBot, transport: Any) -> None:
    """A load balancer finds the machine of the session by them; the next attempt starts without any."""
    set_by_server = "Set-Cookie: AWSALB=a/b+c==; Path=/; Expires=Fri, 01 Jan 2100 00:00:00 GMT", "Set-Cookie: x=1"
    with Front(bot.ws_url, ANSWER, *set_by_server) as front:
        client = RTVIClient.for_url(f"http://127.0.0.1:{front.port}/start", transport=transport(), **OPTIONS)
        for _ in range(2):
            client.connect()
            client.disconnect()
        bundle = client.start_bot(f"http://127.0.0.1:{front.port}/start")
        client.connect(bundle)
        client.close()
    assert [cookies(head) for head in front.heads] == [[], ["AWSALB=a/b+c==; x=1"]] * 3


@pytest.mark.parametrize(
    "header",
    [
        "a=1; Path=/other",
        "a=1; Secure",
        "a=1; Domain=other.example",
        "a=1; Max-Age=0",
        "a=\xfc",
        "a=" + "1" * 5000,
        "a=1\tb\x01",
        "",
    ],
)
def test_cookies_that_are_for_another_request(bot: EmbeddedBot, header: str) -> None:
    """Path, Domain, Secure and the expiry of cookies are obeyed; malformed cookies do no harm."""
    with Front(bot.ws_url, ANSWER, f"Set-Cookie: {header}", "Set-Cookie: b=2; Path=/bots; Domain=127.0.0.1") as front:
        connect(f"http://127.0.0.1:{front.port}/start", transport="websocket", **OPTIONS).close()
    assert [cookie for head in front.handshakes for each in cookies(head) for cookie in each.split("; ")] in (
        [],
        ["b=2"],
    )


def test_another_host(bot: EmbeddedBot) -> None:
    """Only the host that has set a cookie gets it."""
    with Front(bot.ws_url, ANSWER.replace("127.0.0.1", "localhost"), "Set-Cookie: a=1; Path=/") as front:
        connect(f"http://127.0.0.1:{front.port}/start", transport="websocket", **OPTIONS).close()
    assert [cookies(head) for head in front.heads] == [[], []]


def test_cookies_that_need_tls(bot: EmbeddedBot) -> None:
    """Secure cookies are sent with TLS, and not over a `ws://` that was allowed by name."""
    with Front(bot.ws_url, "", "Set-Cookie: a=1; Path=/; Secure", tls=serving()) as front:
        for scheme in ("wss", "ws"):
            other = Front(bot.ws_url, "{}")
            with other:
                port = front.port if scheme == "wss" else other.port
                front.answer = f'{{"ws_url": "{scheme}://127.0.0.1:{port}/"}}'
                transport = WebSocketTransport(allow_insecure=True)
                url = f"https://127.0.0.1:{front.port}/start"
                connect(url, transport=transport, ssl_context=trusting(), **OPTIONS).close()
                handshakes = (front if scheme == "wss" else other).handshakes
                assert [cookies(head) for head in handshakes] == [["a=1"]] if scheme == "wss" else [[]]


def test_a_cookie_of_the_application_s_own(bot: EmbeddedBot) -> None:
    """An application's cookie in the transport's headers is sent too, and takes precedence over one of that name."""
    with Front(bot.ws_url, ANSWER, "Set-Cookie: a=theirs; Path=/", "Set-Cookie: b=theirs; Path=/") as front:
        transport = WebSocketTransport(headers={"cookie": "c=mine; a=mine"})
        connect(f"http://127.0.0.1:{front.port}/start", transport=transport, **OPTIONS).close()
    assert cookies(front.handshakes[0]) == ["c=mine; a=mine; b=theirs"]


def test_an_http_client_of_the_application_s_own(bot: EmbeddedBot) -> None:
    """The handshake gets the cookies of the answer; the HTTP client's own cookies stay private to it."""
    with (
        Front(bot.ws_url, ANSWER, "Set-Cookie: a=theirs; Path=/") as front,
        httpx.Client(cookies={"own": "mine"}, trust_env=False) as http_client,
    ):
        for _ in range(2):
            url = f"http://127.0.0.1:{front.port}/start"
            connect(url, transport="websocket", http_client=http_client, **OPTIONS).close()
    start, handshake, again, handshake_again = map(cookies, front.heads)
    assert (start, handshake, handshake_again) == (["own=mine"], ["a=theirs"], ["a=theirs"])
    assert sorted(again[0].split("; ")) == ["a=theirs", "own=mine"]


def test_a_session_that_replaces_another(bot: EmbeddedBot) -> None:
    """A reconnect makes a new start request, without the cookies of the one before."""
    with Front(bot.ws_url, ANSWER, "Set-Cookie: a=1; Path=/") as front:
        url = f"http://127.0.0.1:{front.port}/start"
        policy = ReconnectPolicy(initial_delay=0.01)
        with (
            connect(url, transport="websocket", reconnect=policy, **OPTIONS) as client,
            client.events("bot-ready", timeout=GUARD) as events,
        ):
            bot.sessions[0].drop()
            next(events)
    assert [cookies(head) for head in front.heads] == [[], ["a=1"]] * 2
