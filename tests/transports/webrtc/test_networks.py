"""WebRTC in networks of its own: a firewall, a missing protocol or a new address, and the errors that they cause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.coturn import PASSWORD, USER, coturn
from tests.support.networks import FAR_IPV4, FAR_IPV6, Namespace, Program, cable, namespaces, nat
from tests.support.slowness import GUARD, takes
from tests.support.webrtc import BOT_PROGRAM

pytestmark = pytest.mark.matrix

CLIENT = """
import json, sys
from rtvi_sync import ReconnectPolicy, RTVIClient, RTVIError, SmallWebRTCTransport


def say(document):
    print(json.dumps(document), flush=True)

options = json.loads(sys.argv[1])
policy = ReconnectPolicy(initial_delay=0.1) if options.pop("reconnect", False) else None
limits = {"connect_timeout": 60, "request_timeout": 60, "reconnect": policy}
client = RTVIClient(transport=SmallWebRTCTransport(**options), text_only=True, **limits)
try:
    client.connect()
except RTVIError as error:
    say([type(error).__name__, str(error)])
    sys.exit()
say("connected")
for line in sys.stdin:
    word = json.loads(line)
    if word == "wait":
        info = client.wait()
        say([info.initiator, str(info.error)])
    elif word == "again":
        client.wait_for("bot_ready", timeout=60)
        say(client.send_client_request("echo", "hello again"))
    else:
        say(client.send_client_request("echo", word))
client.disconnect()
"""


@pytest.fixture
def network() -> Iterator[tuple[Namespace, Namespace]]:
    """Return the client's namespace and the bot's."""
    with cable() as ends:
        yield ends


class Ends:
    """A bot at one end of a cable, and clients at the other."""

    def __init__(self, near: Namespace, far: Namespace, stack: ExitStack) -> None:
        self.near = near
        self.far = far
        self._stack = stack

    def bot(self, address: str = FAR_IPV4) -> str:
        """Start a bot; return where it takes offers."""
        bot = self._stack.enter_context(self.far.program(BOT_PROGRAM, address))
        return f"{bot.hear()}/api/offer"

    def client(self, url: str, **options: Any) -> AbstractContextManager[Program]:
        """Start a client, which says how its `connect()` ends."""
        return self.near.program(CLIENT, json.dumps({"webrtc_url": url, **options}))


@pytest.fixture
def ends(network: tuple[Namespace, Namespace]) -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(*network, stack)


def block_udp(namespace: Namespace, *but: str, target: str = "DROP") -> None:
    """Let no packet of UDP through, but those for which the words `but` are not true."""
    for command in ("iptables", "ip6tables"):
        for chain in ("INPUT", "OUTPUT"):
            port = [word.replace("PORT", "--sport" if chain == "INPUT" else "--dport") for word in but]
            namespace.do(command, "-A", chain, "-p", "udp", *port, "-j", target)


def test_only_ipv6(ends: Ends) -> None:
    """A session works over IPv6 alone."""
    for end in (ends.near, ends.far):
        end.do("ip", "-4", "address", "flush", "dev", "eth0")
    with ends.client(ends.bot(FAR_IPV6)) as client:
        assert client.hear() == "connected"
        assert client.ask("hello") == "hello"


@pytest.mark.parametrize("ports", [[], ["--random-fully"]], ids=["one port", "a port for each peer"])
def test_behind_a_nat(ports: list[str]) -> None:
    """A client behind a NAT of either kind reaches a bot that is not, without STUN and TURN."""
    with nat() as (near, far, router), ExitStack() as stack:
        router.do("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE", *ports)
        ends = Ends(near, far, stack)
        with ends.client(ends.bot()) as client:
            assert client.hear() == "connected"
            assert client.ask("hello") == "hello"


@pytest.mark.parametrize("target", ["DROP", "REJECT"])
def test_blocked_udp(ends: Ends, target: str) -> None:
    """The error names the cause and the cures; it shows only the offer's address."""
    block_udp(ends.near, target=target)
    with ends.client(ends.bot(), ice_timeout=2.0) as client:
        kind, text = client.hear()
    assert kind == "TransportStartError"
    assert "not open within 2 s (ice_timeout). No network packet came from the bot (our addresses: host; " in text
    assert "A firewall blocks UDP" in text
    assert "?transport=tcp" in text
    assert "or use WebSocket" in text
    assert "10.97" not in text


def test_only_loopback() -> None:
    """A machine with nothing but loopback makes connect() fail at once, and the error says why."""
    with namespaces(1) as (alone,):
        options = {"webrtc_url": "http://127.0.0.1:9/api/offer"}
        with alone.program(CLIENT, json.dumps(options)) as client:
            kind, text = client.hear()
    assert kind == "TransportStartError"
    assert "it has no network but loopback, which WebRTC does not use. Connect it to a network, or use WebS" in text


def test_a_gap(ends: Ends) -> None:
    """A network that is gone for 5 s costs nothing but these."""
    with ends.client(ends.bot()) as client:
        assert client.hear() == "connected"
        assert client.ask("before") == "before"
        ends.near.do("iptables", "-A", "INPUT", "-j", "DROP")
        ends.near.do("iptables", "-A", "OUTPUT", "-j", "DROP")
        time.sleep(5.0)  # the gap itself
        ends.near.do("iptables", "-F")
        assert client.ask("after") == "after"


LOST = {
    "address": [
        ["ip", "address", "del", "10.97.0.1/24", "dev", "eth0"],
        ["ip", "address", "add", "10.97.0.7/24", "dev", "eth0"],
    ],
    "cable": [["ip", "link", "set", "eth0", "down"]],
    "way in": [["iptables", "-A", "INPUT", "-j", "DROP"]],
    "way out": [["iptables", "-A", "OUTPUT", "-j", "DROP"]],
}


@pytest.mark.parametrize("what", LOST)
def test_a_network_that_is_lost(ends: Ends, what: str) -> None:
    """A lost network ends the session within 12 s, because a connection does not move to another address."""
    for end in (ends.near, ends.far):
        end.do("ip", "-6", "address", "flush", "dev", "eth0")
    with ends.client(ends.bot()) as client:
        assert client.hear() == "connected"
        client.tell("wait")
        with takes(12.0):
            for words in LOST[what]:
                ends.near.do(*words)
            initiator, text = client.hear()
    assert initiator == "network"
    assert "no packet has come for 10 s" in text


def test_a_session_at_another_address(ends: Ends) -> None:
    """A client that reconnects has a new session by the new address."""
    with ends.client(ends.bot(), reconnect=True) as client:
        assert client.hear() == "connected"
        client.tell("again")
        for words in LOST["address"]:
            ends.near.do(*words)
        ends.near.do("ip", "-6", "address", "flush", "dev", "eth0")
        assert client.hear() == "hello again"


# -- TURN -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def turn(ends: Ends, tmp_path: Path) -> Iterator[str]:
    """Return the address of coturn, which is at the bot's end."""
    with coturn(ends.far, FAR_IPV4, tmp_path) as address:
        yield address


def server(*urls: str, password: str = PASSWORD) -> list[dict[str, Any]]:
    return [{"urls": [*urls], "username": USER, "credential": password}]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_relay_is_the_only_way(ends: Ends, turn: str, transport: str) -> None:
    """All packets go through a TURN server, over UDP or TCP."""
    block_udp(ends.near, *(["!", "PORT", "3478"] if transport == "udp" else []))
    with ends.client(ends.bot(), ice_servers=server(f"turn:{turn}?transport={transport}")) as client:
        assert client.hear() == "connected"
        assert client.ask("hello") == "hello"


@pytest.mark.parametrize("second", ["turn:{}?transport=tcp", "turns:{}?transport=tcp"])
def test_blocked_udp_with_both_urls_of_a_server(
    ends: Ends, turn: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL for TCP, or TLS, is used, although it is the second one."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    block_udp(ends.near)
    servers = server(f"turn:{turn}?transport=udp", second.format(turn))
    with ends.client(ends.bot(), ice_servers=servers) as client:
        assert client.hear() == "connected"
        assert client.ask("hello") == "hello"


NO_TURN = "No TURN server has given an address: it does not answer, or refuses username and credential."


@pytest.mark.parametrize("trouble", ["password", "port"])
def test_a_turn_server_that_does_not_help(ends: Ends, turn: str, trouble: str) -> None:
    """A wrong password, or no server there: the error says both, because aiortc does not tell them apart."""
    block_udp(ends.near)
    port = 3478 if trouble == "password" else 3479
    servers = server(f"turn:{turn}:{port}?transport=tcp", password="wrong" if trouble == "password" else PASSWORD)
    with ends.client(ends.bot(), ice_servers=servers, ice_timeout=2.0) as client:
        kind, text = client.hear()
    assert kind == "TransportStartError"
    assert NO_TURN in text
    assert not any(secret in text for secret in (PASSWORD, USER, "wrong", "10.97"))


def test_a_stun_server_that_is_gone(ends: Ends) -> None:
    """A STUN server that is gone costs 5 s, but no connection; the error of blocked UDP names it."""
    url = ends.bot()
    servers = [{"urls": f"stun:{FAR_IPV4}:3479"}]
    with takes(GUARD, at_least=5.0), ends.client(url, ice_servers=servers) as client:
        assert client.hear() == "connected"
    block_udp(ends.near)
    with ends.client(url, ice_servers=servers, ice_timeout=2.0) as client:
        _, text = client.hear()
    assert "No STUN server has given an address: it does not answer." in text
