"""A connection: messages, signalling, keep-alive and its one end; without a network."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from typing import Any

import pytest

from rtvi_sync.concurrency.future import Future
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.loop_thread import LoopThread, acquire_loop
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.transports.webrtc import connection as module
from rtvi_sync.transports.webrtc.connection import WebRTCConnection
from rtvi_sync.transports.webrtc.peer import PeerStats
from tests.support import limits
from tests.support.slowness import GUARD
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class Wire:
    """A peer that records, and whose counters a test sets."""

    def __init__(self, events):
        self.events = events
        self.sent = []
        self.bytes_waiting = 0
        self.packets = 0
        self.closed_with = None
        self.unsent = 0

    def send_text(self, text):
        self.sent.append(text)

    def measure(self, done):
        done(PeerStats(packets_received=self.packets))

    def close(self, polite):
        self.closed_with = polite
        future: Future[int] = Future()
        future.resolve(self.unsent)
        return future


make_wire: Any = Wire
loop_of: dict[WebRTCConnection, LoopThread] = {}


class Log(list):
    """The reports of a connection, in order."""

    def __init__(self):
        self.tracks = (True, False, False)


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def link(log):
    loop = acquire_loop()
    link = WebRTCConnection(
        loop,
        make_wire,
        on_message=log.append,
        on_audio=lambda *_: log.append("audio"),
        on_video=lambda *_: log.append("video"),
        wants_video=lambda: False,
        tracks_on=lambda: log.tracks,
        on_closed=log.append,
        on_renegotiate=lambda: log.append("renegotiate"),
    )
    loop_of[link] = loop
    yield link
    del loop_of[link]
    link.close(0.0)
    stop_idle_threads()


def on_the_loop(link):
    """Wait until all that was given to the loop is done."""
    done = threading.Event()
    loop_of[link].call(done.set)
    assert done.wait(GUARD)


def statuses(link):
    told = [json.loads(text)["message"] for text in link.peer.sent if "trackStatus" in text]
    return [(message["receiver_index"], message["enabled"]) for message in told]


def test_what_comes_early_is_held(link, log):
    """Messages wait until the client knows that it is connected, and keep their order; signalling is not RTVI."""
    link.opened()
    link.peer.events.on_text('{"n": 1}')
    link.peer.events.on_text('{"type": "signalling", "message": {"type": "unknown"}}')
    link.peer.events.on_text(b'{"n": 2}')
    on_the_loop(link)
    assert log == []
    link.start()
    on_the_loop(link)
    link.peer.events.on_text('{"n": 3}')
    assert log == ['{"n": 1}', b'{"n": 2}', '{"n": 3}']


@pytest.mark.parametrize("held", [True, False], ids=["before the start", "after it"])
@pytest.mark.parametrize("text", ["ä" * 131_072, b"x" * 262_144], ids=["text", "bytes"])
def test_a_message_that_is_too_large(link, log, text, held):
    """A message of 262,144 bytes is taken, as the offer says; a larger one ends the session, with advice."""
    if not held:
        link.start()
        on_the_loop(link)
    link.peer.events.on_text(text)
    assert link.info is None
    link.peer.events.on_text(text + text[:1])
    link.peer.events.on_text(text)
    link.start()
    on_the_loop(link)
    assert log[:-1] == ([] if held else [text])
    assert log[-1].initiator == "network"
    assert re.fullmatch(r".* message of 26214[56] bytes; WebRTC carries at most 262144.* in parts", str(log[-1].error))


@pytest.mark.parametrize("text", ["", "ä" * 1000, b"x" * 1000], ids=["nothing", "text", "bytes"])
def test_too_much_before_the_start(link, log, monkeypatch, text):
    """The memory of held messages is bounded, the overhead of small ones included."""
    limits.patch(monkeypatch, rtc_waiting=100_000)
    for _ in range(100_000 // sys.getsizeof(text)):
        link.peer.events.on_text(text)
    assert log == []
    link.peer.events.on_text(text)
    assert "more messages than are kept" in str(log[0].error)


def test_a_bot_that_asks_for_an_offer(link, log):
    """`renegotiate` is handed on."""
    link.peer.events.on_text('{"type": "signalling", "message": {"type": "renegotiate"}}')
    assert log == ["renegotiate"]


def test_pings_and_tracks(link, log, monkeypatch):
    """The bot is pinged, and told of each track when the connection opens and when one changes by itself."""
    limits.patch(monkeypatch, rtc_ping=0.005)
    before = time.time()
    link.opened()
    until(lambda: len(link.peer.sent) > 8)
    word, _, milliseconds = link.peer.sent[0].partition(" ")
    assert word == "ping:"
    assert -1 < int(milliseconds) / 1000 - before < 60
    assert statuses(link) == [(0, True), (1, False), (2, False)]
    log.tracks = (False, False, True)
    until(lambda: statuses(link)[3:] == [(0, False), (2, True)])


def test_a_message_after_a_stall(link, monkeypatch):
    """A message after a stall follows a ping, however the clock was changed."""
    now = 1000.0
    monkeypatch.setattr(module, "wall_time", lambda: now)
    link.opened()
    on_the_loop(link)
    del link.peer.sent[:]
    for moved, text in ((1.9, "soon"), (3.0, "late"), (0.1, "then"), (-5.0, "before")):
        now += moved
        link.send(text)
    assert link.peer.sent == ["soon", "ping: 1004900", "late", "then", "ping: 1000000", "before"]


def test_many_messages_at_once(link, monkeypatch):
    """A ping goes between them after 32 kB at most: over a slow line they may take longer than 3 s."""
    limits.patch(monkeypatch, rtc_ping=GUARD)
    monkeypatch.setattr(module, "SILENCE_LIMIT", math.inf)
    monkeypatch.setattr(module, "wall_time", lambda: 1000.0)
    link.opened()
    on_the_loop(link)
    del link.peer.sent[:]
    for size in (20_000, 10_000, 10_000, 250_000, 250_000, 1):
        link.send("x" * size)
    sizes = [len(text) for text in link.peer.sent if not text.startswith("ping: ")]
    pings = [number for number, text in enumerate(link.peer.sent) if text.startswith("ping: ")]
    assert sizes == [20_000, 10_000, 10_000, 250_000, 250_000, 1]
    assert pings == [2, 4, 6, 8]


def test_audio_that_was_not_sent(link, caplog):
    """The end of a session logs how much audio was not sent."""
    link.peer.measure = lambda done: done(PeerStats(audio_unsent=1.5))
    link.opened()
    on_the_loop(link)
    link.close(0.0)
    link.close(0.0)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "at least 1.50 s were not sent because this process was too busy" in warning


def test_a_change_is_told_at_once(link, log):
    """A track that the application switches does not wait for the next ping."""
    link.opened()
    on_the_loop(link)
    log.tracks = (True, True, False)
    link.tell_tracks()
    on_the_loop(link)
    assert statuses(link)[3:] == [(1, True)]


def test_a_bot_that_stalls(link, log, monkeypatch):
    """A packet restarts the count of silence, so that a bot that stalls again and again is not lost."""
    limits.patch(monkeypatch, rtc_ping=0.001)
    monkeypatch.setattr(module, "SILENCE_LIMIT", 0.01)
    measured = []

    def measure(done):
        measured.append(True)
        done(PeerStats(packets_received=len(measured) // 9))

    link.peer.measure = measure
    link.opened()
    until(lambda: len(measured) > 60)
    assert log == []


def test_a_dead_bot(link, log, monkeypatch):
    """Without any packet for 10 s, counted by the pings, the connection is lost."""
    limits.patch(monkeypatch, rtc_ping=0.002)
    monkeypatch.setattr(module, "SILENCE_LIMIT", 0.02)
    link.peer.packets = 5
    link.opened()
    until(lambda: log)
    (info,) = log
    assert info.initiator == "network"
    assert "no packet has come" in str(info.error)
    with pytest.raises(DisconnectedError, match="no packet has come"):
        link.send("{}")


def test_ends_of_the_bot(link, log):
    """A bot that closes without a word has broken off the session; it is told once."""
    link.opened()
    link.peer.events.on_closed("it has crashed")
    link.peer.events.on_closed("again")
    assert [(info.initiator, str(info.error)) for info in log] == [("network", "it has crashed")]
    link.close(1.0)
    assert link.peer.closed_with == 0.0  # no bot is there


def test_a_bot_that_said_that_it_leaves(link, log):
    """After `peerLeft` the end is orderly."""
    link.opened()
    link.peer.events.on_text('{"type": "signalling", "message": {"type": "peerLeft"}}')
    link.peer.events.on_closed("the WebRTC connection has failed")
    assert [info.initiator for info in log] == ["server"]


def test_a_bot_that_said_that_it_leaves_and_is_silent(link, log, monkeypatch):
    """The end of a bot that has said so is its own, also if the packets that close the connection were lost."""
    limits.patch(monkeypatch, rtc_ping=0.002)
    monkeypatch.setattr(module, "SILENCE_LIMIT", 0.02)
    link.peer.events.on_text('{"type": "signalling", "message": {"type": "peerLeft"}}')
    link.opened()
    until(lambda: log)
    assert [(info.initiator, info.error) for info in log] == [("server", None)]


def test_our_own_end(link, log):
    """After its own end a connection reports nothing, sends nothing, and counts the unsent messages once."""
    link.opened()
    link.peer.unsent = 7
    assert link.close(2.0) == 7
    assert link.close(2.0) == 0
    assert link.peer.closed_with == 2.0
    link.peer.events.on_text("{}")
    link.peer.events.on_closed("late")
    assert log == []
    with pytest.raises(DisconnectedError):
        link.send("{}")


def test_media_that_comes_late(link, log):
    """Media that a peer delivers after the close does not reach the next session."""
    link.opened()
    for _ in range(2):
        link.peer.events.on_audio(b"", 24000, 1)
        link.peer.events.on_video(None)
        link.close(0.0)
    assert log == ["audio", "video"]


def test_a_peer_that_fails_to_close(link, monkeypatch, caplog):
    """A peer's failure to close is logged; its waiting bytes count as lost, and the loop loses a user."""
    link.peer.bytes_waiting = 5
    monkeypatch.setattr(link.peer, "close", lambda _: rejected(LookupError("a fault")))
    assert link.close(1.0) == 5
    assert "has failed to close" in caplog.text
    assert loop_of[link].users == 0


def rejected(error):
    future: Future[int] = Future()
    future.reject(error)
    return future


def test_a_peer_that_does_not_close(link, monkeypatch):
    """A peer that does not close is left to the loop, and its waiting messages count as lost."""
    limits.patch(monkeypatch, rtc_close=0.01)
    limits.patch(monkeypatch, rtc_impolite_close=0.01)
    link.peer.bytes_waiting = 5
    monkeypatch.setattr(link.peer, "close", lambda _: Future())
    assert link.close(0.01) == 5
    assert loop_of[link].users == 0


def test_a_bot_that_takes_nothing(link, log, monkeypatch):
    """The waiting messages are bounded: beyond the limit the connection ends."""
    limits.patch(monkeypatch, rtc_waiting=100)
    link.opened()
    link.send("{}")
    link.peer.bytes_waiting = 101
    with pytest.raises(DisconnectedError, match="takes no messages"):
        link.send("{}")
    assert len(log) == 1


def test_before_it_is_open(link):
    """Nothing can be sent, and closing waits for nothing."""
    with pytest.raises(DisconnectedError):
        link.send("{}")
    link.tell_tracks()
    link.close(2.0)
    assert link.peer.closed_with == 0.0
