"""Shared parts of the tests of transports over one WebSocket: a server of bots, and sessions."""

from __future__ import annotations

import contextlib
import threading

import pytest

from rtvi_sync import DisconnectedError, EvalTransport, Transport, WebSocketTransport
from rtvi_sync.concurrency.runtime import acquire_runtime
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.media.media import Media
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.net.dial import Network
from rtvi_sync.protocol.frames import MessageFrame, decode, encode
from rtvi_sync.protocol.states import CloseInfo
from rtvi_sync.transports.base import TransportOptions
from tests.support import limits
from tests.support.loopback import Server, serving, trusting
from tests.support.slowness import GUARD
from tests.support.websocket import BINARY, TEXT, Bot, frame, upgrade

READY = RTVIMessage("client-ready", {"version": "2.2.0"}, "ready")


def text_in(payload: bytes) -> str:
    """Return the text of a protobuf message of the client."""
    sent = decode(payload)
    assert isinstance(sent, MessageFrame)
    return sent.data


class BotServer(Server):
    """Accepts WebSockets and hands each to the test."""

    def __init__(self, **options) -> None:
        super().__init__(self._serve_one, **options)
        self._arrived = threading.Condition()
        self._bots: list[tuple[str, Bot]] = []
        self.after = b""

    def _serve_one(self, peer) -> None:
        head = upgrade(peer, after=self.after)
        bot = Bot(peer.sock)
        with self._arrived:
            self._bots.append((head, bot))
            self._arrived.notify_all()
        self.stopping.wait()

    def bot(self) -> Bot:
        """Return the bot's end of the next connection, once it was told that the client is ready."""
        bot = self.arrival()[1]
        while b'"client-ready"' not in bot.receive()[1]:
            pass  # a transport may have something to say before
        return bot

    def arrival(self) -> tuple[str, Bot]:
        """Return the head of the request and the bot's end, of the next connection."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._bots)
            return self._bots.pop(0)

    @property
    def url(self) -> str:
        return f"ws{'s' if self._tls else ''}://{self.authority}/ws"


class Session:
    """A session's data for its transport, and the transport's reports."""

    def __init__(self, runtime, network=None, **options) -> None:
        self._changed = threading.Condition()
        self.messages: list[object] = []
        self.ends: list[CloseInfo] = []
        self.interruptions = 0
        self.media = Media(**{"mic": SilenceSource(), "speaker": NullSink(), **options})
        self.media.expect(runtime)
        self.options = TransportOptions(
            client_ready=READY,
            on_interruption=self._interrupted,
            on_closed=lambda info: self._note(self.ends, info),
            on_event=lambda *_: None,
            on_messages=self.take,
            network=network or Network(ssl_context=trusting(), proxy=False),
            media=self.media,
            _runtime=runtime,
        )

    def _note(self, where: list, what: object) -> None:
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def take(self, messages) -> None:
        """Keep messages that the transport has delivered."""
        for message in messages:
            self._note(self.messages, message)

    def _interrupted(self) -> None:
        with self._changed:
            self.interruptions += 1
            self._changed.notify_all()

    def begin(self, transport: Transport) -> None:
        transport.initialize(self.options, lambda message: self.take([message]))
        transport.init_devices()

    def wait(self, condition) -> None:
        with self._changed:
            assert self._changed.wait_for(condition)


@pytest.fixture
def runtime():
    """Yield the runtime of the process."""
    runtime = acquire_runtime()
    yield runtime
    runtime.release()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def server(request):
    """Yield a server of WebSockets."""
    with BotServer(tls=serving() if request.param else None) as server:
        yield server


@pytest.fixture
def plain():
    """Yield a server of WebSockets without TLS."""
    with BotServer() as server:
        yield server


@pytest.fixture
def opened(runtime, attempt, monkeypatch):
    """Connect transports, each with a session of its own, and disconnects all after the test."""
    pairs = []

    def connect(transport, bundle=None, session=None):
        session = session or Session(runtime)
        pairs.append((transport, session))
        session.begin(transport)
        transport.connect(bundle, attempt.signal)
        transport.send_ready_message()
        return session

    yield connect
    limits.patch(monkeypatch, polite_close=0.02)  # these bots answer no close frame by themselves
    for transport, session in pairs:
        with contextlib.suppress(DisconnectedError):  # the bot has left before it had read all
            transport.disconnect()
        assert session.media.stop(GUARD) == []


@pytest.fixture(params=[WebSocketTransport, EvalTransport])
def kind(request):
    """Return each class of transport."""
    return request.param


def message_frame(kind, text: str) -> bytes:
    """Return the frame with which a bot has a transport of this class deliver `text`."""
    return frame(TEXT, text.encode()) if kind is EvalTransport else frame(BINARY, encode(MessageFrame(data=text)))


def flush(runtime) -> None:
    """Wait until the I/O thread has done all that was given to it."""
    done = threading.Event()
    runtime.io.call(done.set)
    assert done.wait(GUARD)
