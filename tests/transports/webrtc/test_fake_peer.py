"""The transport over a WebRTC library that only records: the state at the start and after the end of each session."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from rtvi_sync import DisconnectedError, MessageTooLargeError, RTVIMessage, TransportStartError
from rtvi_sync.media import VideoFrame
from tests.support import part_probes
from tests.support.fake_peer import Call, FakePeer
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until

RENEGOTIATE = '{"type": "signalling", "message": {"type": "renegotiate"}}'
AUDIO = bytes(640)  # 20 ms at 16 kHz


def test_each_session_begins_with_its_own_counters(fake_call: Call) -> None:
    """The counters of a session can be read after its end, until the next one starts with zeros."""
    peer = fake_call.connect()
    fake_call.transport.send_audio(AUDIO, 16_000)
    peer.events.on_audio(bytes(960), 24_000, 1)
    peer.bytes_waiting = 7
    assert fake_call.transport.stats().bytes_waiting == 7
    fake_call.transport.disconnect()
    stats = fake_call.transport.stats()
    assert (stats.audio_sent, stats.audio_received, stats.bytes_waiting) == (0.02, 0.02, 0)
    assert stats.bytes_sent is not None
    fake_call.connect()
    stats = fake_call.transport.stats()
    assert (stats.audio_sent, stats.audio_received) == (0.0, 0.0)


def test_a_microphone_of_the_session_before_is_off(fake_call: Call) -> None:
    """Audio counts as the microphone's while it is sent, and not in the session that follows at once."""
    fake_call.connect()
    fake_call.transport.send_audio(AUDIO, 16_000)
    until(fake_call.statuses)
    assert '"receiver_index":0' in fake_call.statuses()[0].replace(" ", "")
    fake_call.transport.disconnect()
    fake_call.connect()
    until(lambda: len(fake_call.statuses()) >= 3)
    assert not [status for status in fake_call.statuses() if "true" in status]


def test_messages_wait_for_the_session_to_begin(fake_call: Call) -> None:
    """Messages of the bot before the client is ready are delivered once it is, in order and without loss."""
    peer = fake_call.connect()
    peer.events.on_text('{"number": 1}')
    peer.events.on_text('{"number": 2}')
    assert fake_call.messages == []
    fake_call.transport.send_ready_message()
    assert fake_call.await_messages(2) == ['{"number": 1}', '{"number": 2}']
    assert any("client-ready" in text for text in peer.texts)


def test_a_bot_takes_messages_of_its_size(fake_call: Call) -> None:
    """A message of exactly the bot's size is sent, and a byte more is refused; the next bot may take more."""
    message = RTVIMessage("note", "x" * 200, "1")
    size = len(fake_call.transport.serialize(message).encode())
    for takes in (size, size - 1, size + 1):
        fake_call.size = takes
        peer = fake_call.connect()
        before = len(peer.texts)
        if takes < size:
            with pytest.raises(MessageTooLargeError, match=f"has {size} bytes; this bot takes {takes}"):
                fake_call.transport.send_message(message)
        else:
            fake_call.transport.send_message(message)
            assert any("note" in text for text in peer.texts[before:])
        fake_call.transport.disconnect()


def test_an_end_is_reported_unless_it_was_asked_for(fake_call: Call) -> None:
    """A connection that breaks is reported once; the end that `disconnect()` has brought about is not."""
    peer = fake_call.connect()
    fake_call.transport.disconnect()
    peer.events.on_closed("it broke")
    assert fake_call.ends == []
    peer = fake_call.connect()
    peer.events.on_closed("it broke")
    peer.events.on_closed("it broke once more")
    assert [str(end.error) for end in fake_call.ends] == ["it broke"]


def test_messages_that_were_not_sent_are_an_error_of_the_end(fake_call: Call) -> None:
    """`disconnect()` is polite and tells how many bytes were lost; of an attempt that was abandoned it tells none."""
    peer = fake_call.connect()
    peer.unsent = 12
    with pytest.raises(DisconnectedError, match="12 bytes"):
        fake_call.transport.disconnect()
    assert peer.closed[0] > 0.0
    controller, connecting = fake_call.attempt()
    connecting.get()
    fake_call.peer.unsent = 12
    controller.abort()
    fake_call.transport.disconnect()
    assert fake_call.peer.closed == [0.0]


def test_an_attempt_that_fails_leaves_no_connection(fake_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer is closed at once if its server refuses the offer, and so is the thread of its loop."""
    del fake_call.server.answers["/api/offer"]
    with pytest.raises(TransportStartError):
        fake_call.connect()
    assert fake_call.peer.closed == [0.0]
    until(lambda: not thread_names())


def test_a_library_that_makes_no_connection_keeps_no_thread(fake_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the peer cannot be made, its loop ends."""

    def fail(*_: object) -> FakePeer:
        raise OSError("no network")

    part_probes.replace_peer(monkeypatch, fail)
    with pytest.raises(OSError, match="no network"):
        fake_call.connect()
    until(lambda: not thread_names())


def test_a_machine_without_an_address_sends_no_offer(fake_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer without candidates would wait for ever."""
    monkeypatch.setattr(FakePeer, "sdp", "v=0\n")
    with pytest.raises(TransportStartError, match="no network but loopback"):
        fake_call.connect()
    assert fake_call.server.requests == []


def test_an_attempt_that_was_abandoned_has_no_connection(fake_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that is abandoned while its connection opens closes that, and nothing can be sent by it."""
    monkeypatch.setattr(FakePeer, "waits", True)
    controller, connecting = fake_call.attempt()
    until(
        lambda: (
            fake_call.peers and fake_call.server.requests and fake_call.transport.waiting_for() == "a network packet"
        )
    )
    controller.abort()
    assert connecting.error() is not None
    assert fake_call.peer.closed == [0.0]
    fake_call.transport.disconnect()
    with pytest.raises(DisconnectedError, match="not open"):
        fake_call.transport.send_message(RTVIMessage("note", 1, "1"))


def test_an_attempt_that_was_abandoned_leaves_the_next_one_alone(fake_call: Call) -> None:
    """An attempt that was abandoned while its connection was made does not take the place of the next one."""
    is_made, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_made.set()
        go_on.wait(GUARD)

    fake_call.on_made = hold
    controller, abandoned = fake_call.attempt()
    assert is_made.wait(GUARD)
    controller.abort()
    fake_call.on_made = bool
    peer = fake_call.connect()
    go_on.set()
    assert abandoned.error() is not None
    fake_call.transport.send_message(RTVIMessage("note", 1, "1"))
    assert '"note"' in peer.texts[-1]


def test_a_picture_is_sent_when_it_is_encoded(fake_call: Call) -> None:
    """`send_video()` returns when the picture is compressed, so that the next one is the newest then."""
    peer = fake_call.connect()
    sending = InThread(
        lambda: fake_call.transport.send_video(VideoFrame(image=bytes(12), width=2, height=2, timestamp=0.0))
    )
    until(lambda: peer.encoded)
    assert not sending.done
    peer.encoded[0].resolve(True)
    sending.get()


def test_one_negotiation_at_a_time(fake_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish of the bot for another offer is followed once, by its connection's name, and so is a later wish."""
    peer = fake_call.connect()
    fake_call.transport.send_ready_message()
    wish = RENEGOTIATE

    def has_asked(count: int) -> bool:
        return len(fake_call.server.requests) == count

    for count in (2, 3):
        peer.opened = type(peer.opened)()  # the negotiation goes on
        peer.events.on_text(wish)
        until(partial(has_asked, count))
        peer.events.on_text(wish)
        peer.opened.resolve(None)
        until(lambda: "rtvi-connect" not in " ".join(thread_names()))
        assert len(fake_call.server.requests) == count
    assert [request.body.get("pc_id") for request in fake_call.server.requests] == [
        None,
        "connection 1",
        "connection 2",
    ]


def test_an_end_during_another_negotiation(fake_call: Call) -> None:
    """`disconnect()` ends a negotiation that is under way, and does not wait for its limit."""
    peer = fake_call.connect()
    fake_call.transport.send_ready_message()
    peer.opened = type(peer.opened)()
    peer.events.on_text(RENEGOTIATE)
    until(lambda: len(fake_call.server.requests) == 2)
    disconnecting = InThread(fake_call.transport.disconnect)
    disconnecting.thread.join(GUARD)
    assert disconnecting.done
    assert not [name for name in thread_names() if "connect" in name]
