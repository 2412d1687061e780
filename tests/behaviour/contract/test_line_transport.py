"""The transport of `samples/line_transport` beyond the contract, because readers copy it."""

from __future__ import annotations

import ast
import inspect
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rtvi_sync
from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    InvalidTransportParamsError,
    RTVIClient,
    RTVIMessage,
    TransportStartError,
)
from samples.line_transport.transport import LIMIT_BYTES, LineTransport
from tests.support.forking import in_child
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD
from tests.support.wire import ContractBot

from .far_ends import LineEnd, lines


@contextmanager
def connected(end: LineEnd, **options: Any) -> Iterator[RTVIClient]:
    client = RTVIClient(transport=end.transport, request_timeout=GUARD, connect_timeout=GUARD, **options)
    client.connect(end.auth_bundle)
    try:
        yield client
    finally:
        client.disconnect()


@pytest.fixture
def end(hanging_port: int) -> Iterator[LineEnd]:
    """Yield the contract's bot at the end of a line."""
    with lines(ContractBot(), hanging_port) as end:
        yield end


def ended_by(client: RTVIClient, act: Callable[[], object]) -> CloseInfo:
    """Return how the session ends when `act()` is called."""
    with client.events("disconnected", timeout=GUARD) as events:
        act()
        info = next(events).data
        assert isinstance(info, CloseInfo)
        return info


def test_a_line_that_is_too_long(end: LineEnd) -> None:
    """The longest line is read; a longer one ends the session, however long it would have been."""
    frame = len(ContractBot.message("server-message", ""))
    with connected(end) as client, client.events("server-message", timeout=GUARD) as events:
        end.send(ContractBot.message("server-message", "x" * (LIMIT_BYTES - frame - 1)))
        assert len(next(events).data) == LIMIT_BYTES - frame - 1
        info = ended_by(client, lambda: end.send_raw(b"x" * LIMIT_BYTES))
    assert info.initiator == "server"
    assert isinstance(info.error, DisconnectedError)
    assert "too long" in str(info.error)


def test_how_it_ended(end: LineEnd) -> None:
    """An orderly end has the initiator "server", an end inside a line "network"."""
    with connected(end) as client:
        assert ended_by(client, end.end).initiator == "server"
    with connected(end) as client:
        assert ended_by(client, end.cut).initiator == "network"


def test_a_bot_that_does_not_read() -> None:
    """Sending never waits: when the system's buffer is full the session ends, and the client says so."""

    def answer_and_hang(peer: Peer) -> None:
        message = json.loads(peer.read_until(b"\n"))
        peer.send(ContractBot.message("bot-ready", {"version": "2.2.0"}, message["id"]).encode() + b"\n")
        peer.hold()

    with Server(answer_and_hang) as server:
        client = RTVIClient(transport=LineTransport(f"tcp://127.0.0.1:{server.port}"), connect_timeout=GUARD)
        client.connect()

        def fill() -> None:
            for _ in range(1000):
                client.send_client_message("x", "x" * 60_000)

        def refused() -> None:
            with pytest.raises(DisconnectedError, match=r"closed|ended"):  # by the line, or by the cause of its end
                fill()

        assert ended_by(client, refused).initiator in ("server", "network")
        client.disconnect()


def test_a_bot_that_speaks_first() -> None:
    """Messages that the bot sends unasked are delivered after `connected`."""

    def greet(peer: Peer) -> None:
        peer.send(ContractBot.message("server-message", "Hello!").encode() + b"\n")
        message = json.loads(peer.read_until(b"\n"))
        peer.send(ContractBot.message("bot-ready", {"version": "2.2.0"}, message["id"]).encode() + b"\n")
        peer.wait_for_end()

    with Server(greet) as server:
        client = RTVIClient(transport=LineTransport(f"tcp://127.0.0.1:{server.port}"), connect_timeout=GUARD)
        with client.events("connected", "server-message", "bot-ready", timeout=GUARD) as events, client:
            assert [next(events).type.value for _ in range(3)] == ["connected", "serverMessage", "botReady"]


@pytest.mark.parametrize("url", ["", "localhost:7070", "tcp://localhost", "tcp://:7070", None])
def test_where_there_can_be_no_bot(url: str | None) -> None:
    """A URL that cannot belong to a bot is refused as such."""
    with pytest.raises(InvalidTransportParamsError, match="tcp://localhost:7070"):
        RTVIClient(transport=LineTransport(url), connect_timeout=GUARD).connect()


def test_where_there_is_no_bot() -> None:
    """The system's word is passed on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = RTVIClient(transport=LineTransport(f"tcp://127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(TransportStartError, match="refused"):
            client.connect()


def test_a_fork(end: LineEnd) -> None:
    """A child connects a transport that was idle at the fork, and harms no session of its parent's."""
    idle = LineTransport()

    def child() -> bool:
        with lines(ContractBot(), 0) as own:
            client = RTVIClient(transport=idle, request_timeout=GUARD, connect_timeout=GUARD)
            client.connect(own.auth_bundle)
            asked = client.send_client_request("echo", 1) == 1
            client.disconnect()
        return asked

    with connected(end) as client:
        assert in_child(child)
        assert client.send_client_request("echo", 2) == 2


def test_it_is_short_and_needs_only_what_is_public() -> None:
    """The line transport has fewer than a hundred lines, and uses public names of the package only."""
    source = Path(inspect.getfile(LineTransport)).read_text(encoding="utf-8")
    used = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom | ast.Import)]
    ours = [node for node in used if "rtvi_sync" in ast.unparse(node)]
    assert [ast.unparse(node).partition(" import ")[0] for node in ours] == ["from rtvi_sync"]
    assert {name.name for name in ours[0].names} <= set(rtvi_sync.__all__)
    assert len(source.splitlines()) < 100


def test_nobody_sends_half_a_message(end: LineEnd) -> None:
    """Messages of several threads and of any size up to the limit do not mix."""
    with connected(end) as client:
        failures: list[BaseException] = []

        def ask(size: int) -> None:
            try:
                for _ in range(10):
                    assert client.send_client_request("echo", "x" * size) == "x" * size
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(size,)) for size in (1, 1000, 20_000, 60_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        assert failures == []
        with pytest.raises(DisconnectedError):
            LineTransport().send_message(RTVIMessage("client-message"))
