"""What every transport does, whatever carries its messages: ours, and one as a user would write it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import (
    AbortSignal,
    CloseInfo,
    DisconnectedError,
    MemoryTransport,
    MessageTooLargeError,
    RTVIClient,
    RTVIMessage,
    Transport,
    TransportOptions,
    UnsupportedFeatureError,
    WebSocketTransport,
)
from rtvi_sync.concurrency.cancel import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.hub import acquire_hub
from rtvi_sync.media import NullSink, SilenceSource, Tracks
from rtvi_sync.protocol import envelope
from rtvi_sync.testing import EmbeddedBot

LIMIT = 10.0


class AbandonedError(Exception):
    """The attempt of a test was abandoned."""


class LineTransport(Transport):
    """A transport as a user would write it: JSON lines over a socket to a bot on a thread."""

    name = "lines"

    def __init__(self, bots: LineBots, max_message_size: int) -> None:
        self._bots = bots
        self.max_message_size = max_message_size
        self._sock: socket.socket | None = None
        self._reader: threading.Thread | None = None

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        abort.raise_if_aborted()
        sock = self._sock = self._bots.connect()
        self._reader = threading.Thread(target=self._read, args=(sock, self.options, self.on_message))
        self._reader.start()

    def disconnect(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        if self._reader is not None:
            self._reader.join()

    def send_message(self, message: RTVIMessage) -> None:
        line = self.serialize(message).encode() + b"\n"
        sock = self._sock
        try:
            if sock is None:
                raise OSError("not connected")
            sock.sendall(line)
        except OSError as error:
            raise DisconnectedError(f"There is no line: {error}") from error

    def _read(self, sock: socket.socket, options: TransportOptions, on_message: Callable[[Any], None]) -> None:
        with sock, sock.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                if line.endswith(b"\n"):  # else the end cut it
                    on_message(json.loads(line))
        if self._sock is sock:
            self._sock = None
            options.on_closed(CloseInfo(initiator="server"))


class LineBots:
    """The bots that `LineTransport` talks to."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.sock: socket.socket | None = None

    def connect(self) -> socket.socket:
        ours, self.sock = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=(self.sock,))
        self._threads.append(thread)
        thread.start()
        return ours

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                message = envelope.decode(line)
                if message.type == "client-ready":
                    data: Any = {"version": "2.2.0", "about": {"library": "lines"}}
                    answer = RTVIMessage("bot-ready", data, message.id)
                elif message.type == "client-message":
                    answer = RTVIMessage("server-response", message.data, message.id)
                else:
                    continue
                sock.sendall(json.dumps(answer.to_dict()).encode() + b"\n")

    def end(self) -> None:
        assert self.sock is not None
        self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT)


class Case:
    """A transport under the contract, and the bot at its other end."""

    def __init__(self, transport: Transport, bundle: Any, end: Callable[[], None]) -> None:
        self.transport = transport
        self.bundle = bundle
        self.end = end  # the bot ends the connection


def memory_case(max_message_size: int) -> Iterator[Case]:
    transport = MemoryTransport()
    transport.max_message_size = max_message_size
    yield Case(transport, None, transport.end)


def websocket_case(max_message_size: int) -> Iterator[Case]:
    with EmbeddedBot() as bot:

        def end() -> None:
            bot.sessions[-1].close()

        yield Case(WebSocketTransport(max_message_size=max_message_size), {"ws_url": bot.ws_url}, end)


def line_case(max_message_size: int) -> Iterator[Case]:
    bots = LineBots()
    yield Case(LineTransport(bots, max_message_size), None, bots.end)
    bots.close()


CASES = {"memory": memory_case, "websocket": websocket_case, "written by a user": line_case}


class Session:
    """What a client would give to the transport, and what it was told."""

    def __init__(self, hub: Any) -> None:
        self._changed = threading.Condition()
        self._delivering = threading.Lock()
        self.messages: list[RTVIMessage] = []
        self.ends: list[CloseInfo] = []
        self.overlaps = 0
        self.on_message: Callable[[RTVIMessage], None] | None = None
        self.options = TransportOptions(
            client_ready=RTVIMessage("client-ready", {"version": "2.2.0", "about": {"library": "test"}}, "ready"),
            on_interruption=lambda: None,
            on_closed=self._closed,
            on_event=lambda *_: None,
            hub=hub,
            mic=SilenceSource(),
            speaker=NullSink(),
        )

    def receive(self, inbound: Any) -> None:
        if not self._delivering.acquire(blocking=False):
            self.overlaps += 1
            return
        try:
            if not isinstance(inbound, RTVIMessage):
                text = inbound if isinstance(inbound, (str, bytes)) else json.dumps(inbound)
                inbound = envelope.decode(text)
            with self._changed:
                self.messages.append(inbound)
                self._changed.notify_all()
        finally:
            self._delivering.release()
        if self.on_message is not None:
            self.on_message(inbound)

    def _closed(self, info: CloseInfo) -> None:
        with self._changed:
            self.ends.append(info)
            self._changed.notify_all()

    def message(self, id: str) -> RTVIMessage:
        """The message with that id, once it is there."""

        def found() -> list[RTVIMessage]:
            return [message for message in self.messages if message.id == id]

        with self._changed:
            assert self._changed.wait_for(found, LIMIT), f"no answer to {id}"
            (message,) = found()
            return message

    def ended(self) -> CloseInfo:
        """How the connection ended, once it has."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.ends, LIMIT), "the end is not told"
            return self.ends[0]


@pytest.fixture(params=CASES)
def case(request) -> Iterator[Case]:
    """Each transport in its turn."""
    yield from CASES[request.param](10_000)


@pytest.fixture
def begin(case):
    """Begins a session of the transport; all are over after the test."""
    hub = acquire_hub()

    def call(*, connect: bool = True) -> Session:
        session = Session(hub)
        case.transport.initialize(session.options, session.receive)
        case.transport.init_devices()
        if connect:
            case.transport.connect(case.bundle, AbortController(Deadline(LIMIT), AbandonedError).signal)
        return session

    yield call
    case.transport.disconnect()
    hub.release()
    assert hub.join(Deadline(LIMIT)) == []


def ask(transport: Transport, session: Session, id: str, data: Any = None) -> RTVIMessage:
    """Send a client-message; the answer."""
    transport.send_message(RTVIMessage("client-message", {"t": "echo", "d": data}, id))
    return session.message(id)


def test_messages_go_both_ways(case, begin):
    """The ready message is answered, and so is every request, by its id, with its data unchanged."""
    session = begin()
    case.transport.send_ready_message()
    assert session.message("ready").type == "bot-ready"
    for n, data in enumerate([None, 'ü\u2028\n"', [1, {"a": None}], 2**53]):
        answer = ask(case.transport, session, f"id-{n}", data)
        assert answer.type == "server-response"
        assert answer.data.get("d") == data


def test_the_order_is_kept(case, begin):
    """Messages of one thread arrive, and are answered, in the order in which they were sent."""
    session = begin()
    for n in range(100):
        case.transport.send_message(RTVIMessage("client-message", {"t": "echo", "d": n}, f"id-{n}"))
    session.message("id-99")
    assert [message.id for message in session.messages] == [f"id-{n}" for n in range(100)]


def test_many_threads_send(case, begin):
    """Any thread may send; every message arrives whole, and they are delivered one at a time."""
    session = begin()

    def send(sender: int) -> None:
        for n in range(50):
            case.transport.send_message(RTVIMessage("client-message", {"t": "echo", "d": [n] * n}, f"id-{sender}-{n}"))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    for sender in range(4):
        for n in range(50):
            assert session.message(f"id-{sender}-{n}").data.get("d") == [n] * n
    assert session.overlaps == 0


def test_a_message_may_be_answered_where_it_is_delivered(case, begin):
    """Whoever takes a message may send: no lock of the transport is held, and it does not wait for itself."""
    session = begin()

    def answer(message: RTVIMessage) -> None:
        if message.id == "first":
            case.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "second"))

    session.on_message = answer
    ask(case.transport, session, "first")
    session.message("second")


def test_a_too_large_message(case, begin):
    """A message over the limit is refused before anything is sent, and the connection lives."""
    session = begin()
    with pytest.raises(MessageTooLargeError, match="client-message"):
        case.transport.send_message(RTVIMessage("client-message", {"t": "x" * 10_000}, "large"))
    ask(case.transport, session, "small", "x" * 9_000)
    assert [message.id for message in session.messages] == ["small"]


def test_sending_without_a_connection(case, begin):
    """Before connect(), after disconnect() and after the bot's end a message is refused at once."""
    message = RTVIMessage("client-message", {"t": "echo"}, "id")
    begin(connect=False)
    with pytest.raises(DisconnectedError):
        case.transport.send_message(message)
    session = begin()
    case.transport.disconnect()
    with pytest.raises(DisconnectedError):
        case.transport.send_message(message)
    session = begin()
    case.transport.send_ready_message()
    session.message("ready")
    case.end()
    session.ended()
    with pytest.raises(DisconnectedError):
        case.transport.send_message(message)


def test_the_bots_end_is_told_once(case, begin):
    """When the bot ends the connection `on_closed` is called, once, also if disconnect() follows."""
    session = begin()
    case.transport.send_ready_message()
    session.message("ready")
    case.end()
    assert session.ended().initiator in ("server", "network")
    case.transport.disconnect()
    case.transport.disconnect()
    assert len(session.ends) == 1


def test_our_own_end_is_not_told(case, begin):
    """disconnect() does not call `on_closed`: whoever called it knows."""
    session = begin()
    ask(case.transport, session, "id")
    case.transport.disconnect()
    assert session.ends == []


def test_disconnect_at_any_time(case, begin):
    """disconnect() may be called without a connection, and again."""
    begin(connect=False)
    case.transport.disconnect()
    begin()
    case.transport.disconnect()
    case.transport.disconnect()


def test_nothing_comes_after_disconnect(case, begin):
    """When disconnect() has returned, no message is delivered any more."""
    for _ in range(10):
        session = begin()
        for n in range(20):
            case.transport.send_message(RTVIMessage("client-message", {"t": "echo", "d": n}, f"id-{n}"))
        case.transport.disconnect()
        count = len(session.messages)
        assert ask(case.transport, begin(), "next").id == "next"
        case.transport.disconnect()
        assert len(session.messages) == count


@pytest.mark.parametrize("how", ["disconnect", "the bot's end"])
def test_one_session_after_the_other(case, begin, how):
    """After its end, whoever ended it, the transport connects again, and keeps its sessions apart."""
    sessions = []
    for n in range(5):
        session = begin()
        sessions.append(session)
        ask(case.transport, session, f"id-{n}")
        if how != "disconnect":
            case.end()
            session.ended()
        case.transport.disconnect()
    assert [[message.id for message in session.messages] for session in sessions] == [[f"id-{n}"] for n in range(5)]


def test_an_attempt_that_was_abandoned(case, begin):
    """connect() for an attempt that is over raises its reason, and leaves nothing open."""
    begin(connect=False)
    attempt = AbortController(Deadline(LIMIT), AbandonedError)
    attempt.abort()
    with pytest.raises(AbandonedError):
        case.transport.connect(case.bundle, attempt.signal)
    with pytest.raises(DisconnectedError):
        case.transport.send_message(RTVIMessage("client-message"))
    case.transport.disconnect()
    ask(case.transport, begin(), "works")


def test_media_that_a_transport_lacks(case, begin):
    """Asking for a camera where there is none says so; tracks, and turning off, always work."""
    begin()
    transport = case.transport
    assert not transport.supports_video
    with pytest.raises(UnsupportedFeatureError) as caught:
        transport.enable_cam(True)
    assert caught.value.feature == "cam"
    transport.enable_cam(False)
    transport.enable_mic(False)
    assert not transport.is_mic_enabled
    assert not transport.is_cam_enabled
    assert isinstance(transport.tracks(), Tracks)
    transport.start_media()
    transport.interrupt_playback()
    if isinstance(transport, WebSocketTransport):
        transport.enable_mic(True)
        assert transport.is_mic_enabled
    else:
        with pytest.raises(UnsupportedFeatureError) as caught:
            transport.enable_mic(True)
        assert caught.value.feature == "mic"


def test_a_client_works_over_it(case):
    """A whole client over the transport: it connects, asks, is told the end, and connects again."""
    client = RTVIClient(
        transport=case.transport, connect_timeout=LIMIT, request_timeout=LIMIT, mic=SilenceSource(), speaker=NullSink()
    )
    for _ in range(2):
        client.connect(case.bundle if case.bundle is not None else {})
        assert client.send_client_request("echo", {"a": 1}) == {"a": 1}
        client.disconnect()
    client.connect(case.bundle if case.bundle is not None else {})
    with client.events("disconnected", timeout=LIMIT) as events:
        case.end()
        assert next(iter(events)).data.initiator in ("server", "network")
    client.disconnect()
