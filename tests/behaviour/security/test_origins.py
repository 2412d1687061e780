"""Credentials go only to the origin that they are for, and cookies only to their own targets."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from rtvi_sync import InvalidTransportParamsError, RTVIClient, RTVIError, StartBotError, WebSocketTransport
from rtvi_sync.media import NullSink
from tests.support.loopback import Proxy, Server
from tests.support.slowness import GUARD
from tests.support.websocket import Acceptor

# A bot that closes at once ends connect(), without a time limit that a busy machine would exceed.
CLOSE = b"\x88\x02\x03\xe8"


class Recorder(Server):
    """An HTTP server that keeps all it is sent, and sets cookies."""

    def __init__(self, status: str = "200 OK", body: bytes = b"{}", *headers: str) -> None:
        def answer(peer: Any) -> None:
            head, content = peer.read_request()
            self.heard += head + content.decode()
            peer.answer(status, body, "Set-Cookie: a=cookie", f"Set-Cookie: b=cookie; Domain={self.host}", *headers)

        super().__init__(answer)
        self.heard = ""

    @property
    def url(self) -> str:
        return f"http://{self.authority}"


def client_of(**options: Any) -> RTVIClient:
    """Return a client without devices, whose transport has its own secrets."""
    transport = WebSocketTransport(headers={"X-Bot": "for-the-bot"})
    options = {"transport": transport, "proxy": False, "connect_timeout": GUARD, **options}
    return RTVIClient(enable_mic=False, speaker=NullSink(), **options)


def params_of(server: Recorder) -> dict[str, Any]:
    """Return parameters with a secret for `server` in each of them."""
    return {
        "base_url": server.url.replace("//", "//ada:for-the-endpoint@"),
        "headers": {"Authorization": "for-the-endpoint", "X-Key": "for-the-endpoint"},
        "request_data": {"key": "for-the-endpoint"},
    }


def attempt(client: RTVIClient, call: Any = None) -> None:
    """Try to connect: the test looks at the servers that heard the secrets."""
    with contextlib.suppress(RTVIError):
        (call or client.connect)()
    client.close()


def test_from_the_endpoint_to_the_bot() -> None:
    """The bot gets only the token and the transport's headers, and the endpoint only its own secrets."""
    with Acceptor("Set-Cookie: a=cookie; Domain=127.0.0.1", after=CLOSE) as bot:
        answer = f'{{"ws_url": "ws://{bot.authority}/", "token": "for-the-bot"}}'
        with Recorder("200 OK", answer.encode()) as endpoint:
            for _ in range(2):
                client = client_of(params=params_of(endpoint))
                attempt(client)
    assert "for-the-endpoint" in endpoint.heard
    assert "for-the-bot" not in endpoint.heard
    assert len(bot.heads) == 2
    for head in bot.heads:
        assert "for-the-endpoint" not in head
        assert "token=for-the-bot" in head
        assert "X-Bot: for-the-bot" in head
        assert "cookie" not in head.lower()
    assert "cookie" not in endpoint.heard.lower()


@pytest.mark.parametrize("how", ["port", "name", "user"])
def test_a_bot_that_is_started_elsewhere(how: str) -> None:
    """`start_bot()` with the URL of another origin sends none of the secrets for `base_url`."""
    with Recorder() as endpoint, Recorder() as other:
        client = client_of(params=params_of(endpoint))
        url = {
            "port": other.url,
            "name": other.url.replace("127.0.0.1", "localhost"),
            # One reader's host must not be another reader's user name.
            "user": other.url.replace("//", f"//{endpoint.authority}@"),
        }[how]
        attempt(client, lambda: client.start_bot(f"{url}/start", headers={"X-Other": "for-the-other"}))
    assert endpoint.connections == 0
    assert "for-the-other" in other.heard
    assert "for-the-endpoint" not in other.heard


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_origin(status: int) -> None:
    """A redirect to another origin is not followed: the other server gets no connection."""
    with Recorder() as other, Recorder(f"{status} There", b"", f"Location: {other.url}/") as endpoint:
        client = client_of(params=params_of(endpoint))
        with pytest.raises(StartBotError, match="not followed"):
            client.connect()
    assert other.connections == 0


def test_a_redirect_of_the_websocket() -> None:
    """A redirect of the WebSocket's handshake is not followed."""
    with Recorder() as other, Recorder("307 There", b"", f"Location: ws://{other.authority}/") as bot:
        client = client_of(transport=WebSocketTransport(f"ws://{bot.authority}/", "for-the-bot"))
        with pytest.raises(RTVIError, match="Redirects are not followed"):
            client.connect()
    assert "for-the-bot" in bot.heard
    assert other.connections == 0


def test_a_redirect_does_not_bring_a_login() -> None:
    """Within the origin, the user and password that are sent are the program's, not those in the redirect."""
    with Recorder("307 Here", b"", "Location: /connect/?again") as endpoint:
        endpoint_url = endpoint.url
        client = client_of(params={"base_url": endpoint_url.replace("//", "//ada:mine@")})
        attempt(client)
        with Recorder("307 Here", b"", f"Location: //eve:theirs@{endpoint.authority}/") as elsewhere:
            attempt(client_of(params={"base_url": elsewhere.url}))
    logins = [line for line in endpoint.heard.split("\r\n") if line.startswith("Authorization")]
    assert len(logins) > 1
    assert set(logins) == {"Authorization: Basic YWRhOm1pbmU="}


def test_the_password_of_a_proxy() -> None:
    """The password of a proxy goes to the proxy only; the proxy gets no token, and the bot nothing of the proxy."""
    with Acceptor(after=CLOSE) as bot, Proxy() as proxy:
        attempt(
            client_of(
                transport=WebSocketTransport(f"ws://{bot.authority}/", "for-the-bot"),
                proxy=f"http://ada:for-the-proxy@{proxy.authority}",
            )
        )
    assert "Proxy-Authorization: Basic " in proxy.heads[0]
    assert "for-the-bot" not in "".join(proxy.heads)
    assert "token=for-the-bot" in bot.heads[0]
    assert "proxy" not in bot.heads[0].lower()


def test_a_login_that_an_endpoint_names() -> None:
    """An endpoint cannot choose a user and password for another host: the bot's address is refused before."""
    with Acceptor(after=CLOSE) as bot:
        with Recorder("200 OK", f'{{"ws_url": "ws://eve:theirs@localhost:{bot.port}/"}}'.encode()) as endpoint:
            client = client_of(params={"base_url": endpoint.url})
            with pytest.raises(InvalidTransportParamsError, match="user and password, which are not sent") as caught:
                client.connect()
            client.close()
        assert "theirs" not in str(caught.value)
        assert bot.connections == 0
        attempt(mine := client_of(), lambda: mine.connect({"ws_url": f"ws://ada:mine@{bot.authority}/"}))
    assert "Authorization: Basic YWRhOm1pbmU=" in bot.heads[0]


BAD_URLS = [
    "http://{}/", "https://{}/", "ftp://{}/", "file:///etc/passwd", "file://{}/", "javascript:alert(1)", "data:,x",
    "ws:{}", "ws:/{}", "//{}/", "{}", "", " ", "ws://", "ws:///path", "ws://{}:0/", "ws://127.0.0.1:65536/",
    "ws://127.0.0.1:-1/", "ws://127.0.0.1:8 0/", "ws://[::1/", "ws://a b/", "ws://%/",
    "ws://\u202e/", "ws://a\x00b/", "ws://{}/\r\nEvil: 1", "ws://{}/\x00", "ws://{}\r\nHost: x/",
    "ws://" + "a" * 100_000, "ws://{}/" + "a" * 100_000, "unix:///var/run/x.sock", "ws+unix://x", "wss\u2024://x/",
    ["ws://127.0.0.1/"], {"ws_url": "ws://127.0.0.1/"}, 5, True,
]  # fmt: skip


def test_addresses_that_are_no_websockets() -> None:
    """For any `ws_url` of an endpoint, the client connects only to ws:// and wss:// of a host; the error is short."""
    with Acceptor() as bot:
        for bad in BAD_URLS:
            url = bad.replace("{}", bot.authority) if isinstance(bad, str) else bad
            client = client_of()
            with pytest.raises(InvalidTransportParamsError) as caught:
                client.connect({"ws_url": url})
            assert len(str(caught.value)) < 500
            assert str(caught.value).isprintable()
        assert bot.connections == 0


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("ws://{}/a\tb", None),
        ("ws://{}\\@evil.invalid/", None),
        ("WS://{}/A b?ü", "/A%20b?%C3%BC&"),
        ("ws://{}/#fragment", "/?"),
        ("ws://user:pw@{}/", "/?"),
        ("ws://{}/%0d%0aEvil:%201", "/%0d%0aEvil:%201?"),
        ("ws://{}/\u2028\u0085x", "/%E2%80%A8%C2%85x?"),
        ("ws://{}/\u2028\u0085", None),
    ],
)
def test_odd_addresses(url: str, path: str | None) -> None:
    """An odd but valid address is used unchanged; others are refused. No address ever adds a line to the request."""
    with Acceptor(after=CLOSE) as bot:
        client = client_of()
        attempt(client, lambda: client.connect({"ws_url": url.format(bot.authority), "token": "t\r\nEvil: 1"}))
    if path is None:
        assert bot.heads == []
        return
    (head,) = bot.heads
    first, *fields = head.split("\r\n")
    assert first == f"GET {path}token=t%0D%0AEvil%3A%201 HTTP/1.1"
    assert f"Host: {bot.authority}" in fields
    assert not any(field.startswith("Evil") for field in fields)
