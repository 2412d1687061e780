"""The choice of a TURN server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aioice import stun

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.loop_thread import acquire_loop
from rtvi_sync.transports.webrtc.aiortc_turn import reachable_first
from rtvi_sync.transports.webrtc.peer import ICEServer
from tests.support import limits, part_probes
from tests.support.loopback import black_hole
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.webrtc import FarLoop

pytestmark = pytest.mark.inside

Choose = Callable[[list[ICEServer]], list[ICEServer]]
STUN = ICEServer(urls=("stun:127.0.0.1:9",))


class Turn(asyncio.Protocol):
    """A TURN server, over TCP or UDP: it answers that it needs a password."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(refusal(data))

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._transport.sendto(refusal(data), address)


def refusal(request: bytes) -> bytes:
    asked = stun.parse_message(request)
    assert "USERNAME" not in asked.attributes
    refused = stun.Message(asked.message_method, stun.Class.ERROR, asked.transaction_id)
    refused.attributes["ERROR-CODE"] = 401, "Unauthorized"
    refused.attributes["NONCE"], refused.attributes["REALM"] = b"nonce", "realm"
    return bytes(refused)


@pytest.fixture
def ports(far_loop: FarLoop) -> Iterator[dict[str, int]]:
    """Return the ports of a server by the name of their protocol."""

    async def serve(tcp: socket.socket, udp: socket.socket) -> list[Any]:
        loop = asyncio.get_running_loop()
        over_udp, _ = await loop.create_datagram_endpoint(Turn, sock=udp)
        return [await loop.create_server(Turn, sock=tcp), over_udp]

    async def close() -> None:
        for each in serving:
            each.close()
        await asyncio.sleep(0)

    with contextlib.ExitStack() as stack:
        sockets = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        silent.bind(("127.0.0.1", 0))
        unreached = stack.enter_context(black_hole())
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            refused = nobody.getsockname()[1]
        tcp, udp, nothing = (each.getsockname()[1] for each in (*sockets, silent))
        serving = far_loop.run(serve(*sockets))
        yield {"tcp": tcp, "udp": udp, "silent": nothing, "unreached": unreached, "refused": refused}
        far_loop.run(close())


@pytest.fixture
def choose() -> Iterator[Choose]:
    """Return the choice, made on the package's loop, where nothing may be left of it."""
    loop = acquire_loop()

    def choose(servers: list[ICEServer]) -> list[ICEServer]:
        chosen = loop.run(reachable_first(servers))
        assert chosen.wait(Deadline(GUARD))
        until(lambda: part_probes.left_on_loop(loop)[1] == 0)
        return chosen.result()

    yield choose
    loop.release()
    stop_idle_threads()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (["silent udp", "tcp tcp"], 1),
        (["refused tcp", "udp udp"], 1),
        (["unreached tcp", "refused tcp", "tcp tcp"], 2),
        (["udp udp", "tcp tcp"], 0),
        (["tcp tcp", "udp udp"], 0),
        (["silent udp", "refused tcp"], None),
    ],
)
def test_the_first_that_answers(
    choose: Choose, ports: dict[str, int], given: list[str], chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first TURN server that answers is used, where earlier ones have a head start; STUN servers stay."""
    limits.patch(monkeypatch, turn_head_start=0.3)
    limits.patch(monkeypatch, turn=0.3)
    urls = [f"turn:127.0.0.1:{ports[name]}?transport={how}" for name, how in map(str.split, given)]
    servers = [STUN, *(ICEServer(urls=(url,), username=url, credential="secret") for url in urls)]
    assert choose(servers) == [STUN, *([] if chosen is None else [servers[1 + chosen]])]


def test_a_single_server(choose: Choose) -> None:
    """A single TURN server is not asked whether it answers, because there is no choice."""
    servers = [STUN, ICEServer(urls=("turn:turn.invalid",))]
    assert choose(servers) == servers


def test_what_is_no_url_of_turn(choose: Choose) -> None:
    """A URL that is none of TURN counts as a server that does not answer."""
    servers = [ICEServer(urls=("turn:a?transport=udp?", "turn:"))]
    assert choose(servers) == []
