"""A WebRTC library that only records: a transport over it needs no network, and the test makes each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from rtvi_sync import CloseInfo, RTVIMessage, SmallWebRTCTransport
from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.media import VideoFrame
from rtvi_sync.transports.base import TransportOptions
from rtvi_sync.transports.webrtc.peer import PeerEvents, PeerStats
from tests.support.http_server import Answer, Request, ScriptedServer, scripted_server
from tests.support.threads import InThread
from tests.support.waiting import until

_SDP = """\
v=0
m=audio 9 UDP/TLS/RTP/SAVPF 96
a=candidate:1 1 udp 1 192.0.2.1 9 typ host
a=fingerprint:sha-256 00
m=application 9 UDP/DTLS/SCTP webrtc-datachannel
a=max-message-size:{size}
"""


def resolved(value: Any) -> Future[Any]:
    """Return a future that has its result."""
    future = Future[Any]()
    future.resolve(value)
    return future


class FakePeer:
    """A connection that records each call; see `Peer`.

    Attributes:
        sdp: the offer.
        texts, pcm: the sent messages and audio.
        opened: resolve it to open the data channel. Without `waits` it is open at once.
        encoded: the futures of the pictures that were sent.
        closed: for how long each `close()` was polite.
        unsent: bytes that were not sent at the end.
    """

    waits = False
    sdp = _SDP.format(size=65536)

    def __init__(self, loop: Any, ice_servers: Any, limits: Any, events: PeerEvents) -> None:
        self.events = events
        self.texts: list[str] = []
        self.pcm = bytearray()
        self.encoded: list[Future[bool]] = []
        self.opened: Future[None] = Future() if self.waits else resolved(None)
        self.closed: list[float] = []
        self.offers = self.unsent = self.bytes_waiting = 0
        self.step = "a network packet"

    def offer(self) -> Future[str]:
        self.offers += 1
        return resolved(self.sdp)

    def accept(self, answer: str, *, short_packets: bool = False) -> Future[None]:
        return self.opened

    def send_text(self, text: str) -> None:
        self.texts.append(text)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        self.pcm += pcm

    def send_video(self, frame: VideoFrame, *, is_screen: bool) -> Future[bool]:
        self.encoded.append(Future())
        return self.encoded[-1]

    def measure(self, done: Callable[[PeerStats], None]) -> None:
        done(PeerStats(packets_received=len(self.texts)))

    def close(self, polite: float) -> Future[int]:
        self.closed.append(polite)
        return resolved(self.unsent)


@attrs.define
class Call:
    """A transport over fake peers, and the server that takes its offers.

    Attributes:
        transport: not connected.
        server: answers offers.
        size: the largest message that the bot takes.
        peers: the peers made so far, in order.
        messages, ends: the transport's reports.
        on_made: called when a peer has been made, on the thread that makes it.
    """

    transport: SmallWebRTCTransport
    server: ScriptedServer
    size: int = 65536
    peers: list[FakePeer] = attrs.field(factory=list)
    messages: list[Any] = attrs.field(factory=list)
    ends: list[CloseInfo] = attrs.field(factory=list)
    on_made: Callable[[], object] = bool

    @property
    def peer(self) -> FakePeer:
        return self.peers[-1]

    def answer(self, request: Request) -> Answer:
        number = len(self.server.requests)
        return Answer({"type": "answer", "sdp": _SDP.format(size=self.size), "pc_id": f"connection {number}"})

    def attempt(self) -> tuple[AbortController, InThread]:
        """Start a session, and let another thread connect it."""
        options = TransportOptions(
            client_ready=RTVIMessage("client-ready", {}, "ready"),
            on_interruption=lambda: None,
            on_closed=self.ends.append,
            on_event=lambda *_: None,
            on_messages=self.messages.extend,
        )
        self.transport.initialize(options, self.messages.append)
        controller = AbortController(Deadline(None), lambda: DisconnectedError("abandoned"))
        return controller, InThread(lambda: self.transport.connect(None, controller.signal))

    def connect(self) -> FakePeer:
        """Connect; return the peer."""
        _, connecting = self.attempt()
        connecting.get()
        return self.peer

    def statuses(self) -> list[str]:
        """Return which tracks the bot was told to be on."""
        return [text for text in self.peer.texts if "trackStatus" in text]

    def await_messages(self, count: int) -> list[Any]:
        until(lambda: len(self.messages) >= count)
        return self.messages


@pytest.fixture
def fake_call(monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Return a transport whose library is `FakePeer`."""
    with scripted_server() as server:
        call = Call(SmallWebRTCTransport(f"{server.url}/api/offer"), server)
        server.answers["/api/offer"] = call.answer

        class Made(FakePeer):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                call.peers.append(self)
                call.on_made()

        monkeypatch.setattr("rtvi_sync.transports.webrtc.aiortc_peer.AiortcPeer", Made)
        yield call
        call.transport.disconnect()
