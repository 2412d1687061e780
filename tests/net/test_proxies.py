"""Proxies: which one is used, and that its errors name it."""

from __future__ import annotations

import contextlib
import select
import threading

import pytest

from rtvi_sync import connect
from rtvi_sync.errors import InvalidTransportParamsError
from rtvi_sync.net.advice import ProxyError
from rtvi_sync.net.dial import Network, dial
from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Proxy, Server, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

from .echoes import ask, echo, websocket_url

pytestmark = pytest.mark.inside


def stream(server: Server, network: Network, attempt, scheme: str = "ws"):
    url = websocket_url(f"{scheme}://{server.authority}/")
    return dial(url, network, attempt.signal)


@pytest.mark.parametrize("tls", [False, True])
def test_a_stream_goes_through_the_proxy(attempt, tls):
    """ws and wss are tunnelled; the proxy learns host and port, and nothing of the content."""
    context = trusting() if tls else None
    with Server(echo, tls=serving() if tls else None) as server, Proxy() as proxy:
        network = Network(ssl_context=context, proxy=f"http://{proxy.authority}")
        assert ask(stream(server, network, attempt, "wss" if tls else "ws")) == b"hello\n"
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT {server.authority} HTTP/1.1\r\nHost: {server.authority}\r\n")
    assert "Proxy-Authorization" not in head


def test_an_ipv6_target_and_a_proxy_without_scheme(attempt):
    """An IPv6 target keeps its brackets; a proxy may be given as host:port."""
    with Server(echo, host="::1") as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=proxy.authority), attempt)) == b"hello\n"
    assert proxy.heads[0].startswith(f"CONNECT [::1]:{server.port} HTTP/1.1\r\n")


def test_the_proxy_gets_its_password(attempt):
    """User and password of the proxy's URL go to the proxy, decoded."""
    with Server(echo) as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=f"http://ada:p%40ss@{proxy.authority}"), attempt)) == b"hello\n"
    assert "Proxy-Authorization: Basic YWRhOnBAc3M=\r\n" in proxy.heads[0]


@pytest.mark.parametrize(
    ("variables", "scheme", "used"),
    [
        ({"HTTP_PROXY": "{}"}, "ws", True),
        ({"http_proxy": "{}"}, "ws", True),
        ({"HTTPS_PROXY": "{}"}, "ws", False),
        ({"HTTPS_PROXY": "{}"}, "wss", True),
        ({"ALL_PROXY": "{}"}, "ws", True),
        ({"all_proxy": "{}"}, "wss", True),
        ({"ALL_PROXY": "{}", "NO_PROXY": "127.0.0.1"}, "ws", False),
        ({"ALL_PROXY": "{}", "NO_PROXY": "other.test, 127.0.0.1"}, "ws", False),
        ({"ALL_PROXY": "{}", "no_proxy": "*"}, "wss", False),
        ({"ALL_PROXY": "{}", "NO_PROXY": "other.test"}, "ws", True),
        ({"HTTP_PROXY": ""}, "ws", False),
    ],
)
def test_the_environment_names_a_proxy(attempt, monkeypatch, variables, scheme, used):
    """The usual variables are read, in either case, when the request is made; NO_PROXY wins."""
    tls = scheme == "wss"
    with Server(echo, tls=serving() if tls else None) as server, Proxy() as proxy:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(f"http://{proxy.authority}"))
        network = Network(ssl_context=trusting() if tls else None)
        assert ask(stream(server, network, attempt, scheme)) == b"hello\n"
    assert bool(proxy.heads) is used


@pytest.mark.parametrize(
    ("no_proxy", "server", "is_exempt"),
    [
        ("*", "bot.test", True),
        (" * ", "127.0.0.1", True),
        ("bot.test", "bot.test", True),
        ("BOT.test", "bot.TEST:7860", True),
        ("bot.test.", "bot.test", True),
        ("bot.test", "bot.test.", True),
        ("bot.test", "a.bot.test", True),
        (".bot.test", "a.bot.test", True),
        (".bot.test", "bot.test", True),
        ("bot.test", "robot.test", False),
        ("a.bot.test", "bot.test", False),
        ("*.test", "bot.test", False),
        ("other.test bot.test", "bot.test", True),
        (",, other.test ,\tbot.test", "bot.test", True),
        (".", "bot.test", False),
        ("", "bot.test", False),
        ("127.0.0.1", "127.0.0.1:7860", True),
        ("0.0.1", "127.0.0.1", False),
        ("localhost,127.0.0.0/8,::1", "127.0.0.1:7860", True),
        ("localhost,127.0.0.0/8,::1", "127.9.8.7", True),
        ("localhost,127.0.0.0/8,::1", "128.0.0.1", False),
        ("localhost,127.0.0.0/8,::1", "localhost:7860", True),
        ("localhost,127.0.0.0/8,::1", "[::1]:7860", True),
        ("localhost,127.0.0.0/8,::1", "[::2]:7860", False),
        ("192.168.7.9/16", "192.168.200.1", True),
        ("192.168.0.0/33", "192.168.0.0", False),
        ("192.168.0.0/x", "192.168.0.0", False),
        ("[::1]", "[::1]", True),
        ("fe80::/10", "[fe80::1%25eth0]", True),
        ("2001:db8::/32", "[2001:db8::7]:443", True),
        ("[2001:db8::]/32", "[2001:db8::7]", True),
        ("2001:db8::/32", "[2001:db9::7]", False),
        ("10.0.0.0/8", "10.test", False),
        ("bot.test:7860", "bot.test:7860", True),
        ("bot.test:7861", "bot.test:7860", False),
        ("127.0.0.1:80", "127.0.0.1", True),
        ("[::1]:7860", "[::1]:7860", True),
        ("[::1]:7861", "[::1]:7860", False),
        ("é,[,]:,/,:, 1/2/3", "bot.test", False),
    ],
)
@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_no_proxy_exempts_servers_as_in_curl(monkeypatch, no_proxy, server, is_exempt, scheme):
    """NO_PROXY has names, which stand for those below them, too, addresses and blocks of addresses."""
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (Network().proxy_for(f"{scheme}://{server}/") is None) is is_exempt


@pytest.mark.parametrize("door", ["base_url", "ws_url"])
def test_a_bot_in_an_exempt_block_is_reached_directly(monkeypatch, door):
    """The SOCKS proxy in a desktop's environment does not affect a bot on this machine."""
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9/")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.0/8,::1")
    with EmbeddedBot() as bot, connect(getattr(bot, door), text_only=True, connect_timeout=GUARD) as client:
        assert client.ask("Hello").bot_text


def test_the_argument_wins_over_the_environment(attempt, monkeypatch):
    """`proxy=False` means none, and a URL means this one."""
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Server(echo) as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=False), attempt)) == b"hello\n"
        assert proxy.heads == []
        assert ask(stream(server, Network(proxy=f"http://{proxy.authority}"), attempt)) == b"hello\n"
        assert len(proxy.heads) == 1


@pytest.mark.parametrize(
    ("proxy", "fault"),
    [
        ("socks5://ada:secret@host:1", "has the scheme 'socks5'"),
        ("https://ada:secret@host", "has the scheme 'https'"),
        ("http://host:x:secret", "not a valid URL"),
        ("secret:s3cr#t@host:1", "not a valid URL"),
        ("secret:secret@host:80x", "not a valid URL"),
        ("secret:a://b@host:1", "not a valid URL"),
        ("secret:2024/secret@host:1", "not a valid URL"),
        ("http://secret:2024?secret@host:1", "not a valid URL"),
        ("http://secret:2024#secret@host:1", "not a valid URL"),
    ],
)
def test_other_kinds_of_proxies_are_refused(proxy, fault):
    """The error of an unusable proxy names the kind, and does not show user and password."""
    with pytest.raises(InvalidTransportParamsError, match="only HTTP proxies") as caught:
        Network(proxy=proxy).proxy_for("ws://host/")
    assert fault in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Network(proxy=proxy))


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", 403, "refused to connect to 127.0.0.1:9 with 403"),
        (b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n", 407, "Put user and password into its URL"),
        (b"HTTP/1.1 204\r\n\r\n", None, "TLS"),
        (b"200 fine\r\n\r\n", None, "does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", None, "answer to CONNECT is not HTTP"),
        (b"\xff\xfe\r\n\r\n", None, "does not speak HTTP"),
        (b"HTTP/1.1 200", None, "answer to CONNECT is not HTTP"),
        (b"HTTP/1.1 403 No\r\nX: " + b"x" * 70000 + b"\r\n\r\n", None, "answer to CONNECT is not HTTP"),
    ],
)
def test_a_proxy_that_refuses_or_talks_nonsense(attempt, answer, status, text):
    """A refusal has its status; nonsense is called so; nothing is read without limit."""

    def proxy(peer):
        peer.read_head()
        peer.send(answer)

    url = websocket_url("wss://127.0.0.1:9/")
    with Server(proxy) as server, pytest.raises(ConnectionError, match=text) as caught:
        dial(url, Network(proxy=f"http://ada:secret@{server.authority}"), attempt.signal)
    assert getattr(caught.value, "status", None) == status
    assert "secret" not in str(caught.value)


def test_interim_answers_of_a_proxy_are_skipped(attempt):
    """A proxy that answers CONNECT with 100 and 103 before 200 has not refused."""

    def proxy(peer):
        peer.read_head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 ")
        peer.send(b"200 Connection established\r\n\r\n")
        echo(peer)

    with Server(proxy) as server:
        opened = dial(websocket_url("ws://127.0.0.1:9/"), Network(proxy=f"http://{server.authority}"), attempt.signal)
        assert ask(opened) == b"hello\n"


def test_interim_answers_without_end_are_refused(attempt):
    """A proxy cannot keep an attempt by interim answers alone."""

    def proxy(peer):
        peer.read_head()
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with Server(proxy) as server, pytest.raises(ConnectionError, match="answer to CONNECT is not HTTP"):
        dial(websocket_url("ws://127.0.0.1:9/"), Network(proxy=f"http://{server.authority}"), attempt.signal)


def test_a_silent_or_dripping_proxy_is_abandoned(attempt):
    """An abort frees a thread that waits for a proxy, even one that sends a byte now and then."""
    asked = threading.Event()

    def drip(peer):
        peer.read_head()
        asked.set()
        while not select.select([peer.sock], [], [], 0.01)[0]:
            peer.send(b"H")

    with Server(drip) as server:
        url = websocket_url("ws://127.0.0.1:9/")
        network = Network(proxy=f"http://{server.authority}")
        with running(lambda: dial(url, network, attempt.signal)) as opening:
            assert asked.wait(GUARD)
            attempt.abort()
            with pytest.raises(OSError):  # noqa: PT011 - which one is up to the moment
                opening.get()


def test_a_proxy_that_is_not_there(attempt):
    """A proxy that refuses the connection is a connection that failed, and the error names the proxy."""
    url = websocket_url("ws://127.0.0.1:9/")
    with pytest.raises(ProxyError, match=r"the proxy 127\.0\.0\.1:9 \(proxy= option\)") as caught:
        dial(url, Network(proxy="127.0.0.1:9"), attempt.signal)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
