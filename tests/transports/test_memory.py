"""The transport whose bot is a function."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    MemoryTransport,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    TransportOptions,
    UnsupportedFeatureError,
)
from rtvi_sync.media import BytesSink, BytesSource, VideoFrame
from tests.support.slowness import GUARD


@pytest.fixture
def connect(attempt):
    """Return a function that connects a memory transport, and returns it with its messages and its ends."""

    def call(transport, bundle=None):
        messages: list[Any] = []
        ends: list[CloseInfo] = []
        options = TransportOptions(
            client_ready=RTVIMessage("client-ready", {}, "ready"),
            on_interruption=lambda: None,
            on_closed=ends.append,
            on_event=lambda *_: None,
            on_messages=messages.extend,
        )
        transport.initialize(options, messages.append)
        transport.init_devices()
        transport.connect(bundle, attempt.signal)
        return messages, ends

    return call


def test_the_bot_of_its_own(connect):
    """The default bot is ready, echoes, and leaves on request; the sent messages are kept."""
    transport = MemoryTransport()
    messages, ends = connect(transport, {"any": "bundle"})
    assert transport.auth_bundle == {"any": "bundle"}
    transport.send_ready_message()
    transport.send_message(RTVIMessage("client-message", {"t": "x"}, "1"))
    transport.send_message(RTVIMessage("send-text", {"content": "x"}, "2"))
    assert [(message.type, message.id) for message in messages] == [("bot-ready", "ready"), ("server-response", "1")]
    transport.send_message(RTVIMessage("disconnect-bot", {}, "3"))
    assert ends == [CloseInfo(code=1000, initiator="server")]
    assert [message.id for message in transport.sent] == ["ready", "1", "2", "3"]


def test_a_bot_of_the_callers(connect):
    """The bot may answer with text, documents or messages, or with nothing."""
    answers: list[Any] = ['{"type": "x"}', {"type": "y"}, RTVIMessage("z")]
    transport = MemoryTransport(lambda transport, message: answers if message.id == "1" else None)
    messages, _ = connect(transport)
    transport.send_message(RTVIMessage("client-message", None, "1"))
    transport.send_message(RTVIMessage("client-message", None, "2"))
    assert messages == answers


def test_an_error_of_the_bot_reaches_the_sender(connect):
    """An error of the bot is raised to the sender of the message; the connection lives."""

    def bot(transport, message):
        raise ZeroDivisionError

    transport = MemoryTransport(bot)
    messages, _ = connect(transport)
    with pytest.raises(ZeroDivisionError):
        transport.send_message(RTVIMessage("client-message"))
    transport.receive("still here")
    assert messages == ["still here"]


def test_delivering_is_never_two_threads_at_once(connect):
    """While one message is being taken, another thread's waits in the queue, and is taken by the first thread."""
    transport = MemoryTransport()
    messages, _ = connect(transport)
    begun, go_on = threading.Event(), threading.Event()

    def slow(message):
        messages.append((message, threading.current_thread()))
        if message == "first":
            begun.set()
            assert go_on.wait(GUARD)

    transport.on_message = slow
    first = threading.Thread(target=transport.receive, args=("first",))
    first.start()
    assert begun.wait(GUARD)
    transport.receive("second")
    assert messages == [("first", first)]
    go_on.set()
    first.join(GUARD)
    assert messages == [("first", first), ("second", first)]


def test_a_message_received_inside_another(connect):
    """A message that arrives while one is delivered on the same thread follows it."""
    transport = MemoryTransport()
    messages, _ = connect(transport)

    def take(message):
        if message == "first":
            transport.receive("second")
        messages.append(message)

    transport.on_message = take
    transport.receive("first")
    assert messages == ["first", "second"]


def test_the_end(connect):
    """After the end, told once, nothing is delivered or sent; without a word it is the network's."""
    transport = MemoryTransport()
    messages, ends = connect(transport)
    transport.end()
    transport.end()
    transport.receive("late")
    assert ends == [CloseInfo(initiator="network")]
    assert messages == []
    with pytest.raises(DisconnectedError):
        transport.send_message(RTVIMessage("client-message"))


def test_the_end_while_messages_wait(connect):
    """Messages that wait to be delivered when the connection ends are lost with it, also for the next session."""
    transport = MemoryTransport()
    messages, ends = connect(transport)

    def take(message):
        messages.append(message)
        if message == "first":
            transport.receive("second")
            transport.disconnect()

    transport.on_message = take
    transport.receive("first")
    assert messages == ["first"]
    assert ends == []
    again, _ = connect(transport)
    transport.receive("third")
    assert again == ["third"]


class Film:
    """A source of pictures that has three of them, then waits for the end."""

    def __init__(self) -> None:
        self.images = [image(number) for number in (1, 2, 3)]
        self.over = threading.Event()

    def read(self) -> VideoFrame | None:
        if self.images:
            return self.images.pop(0)
        assert self.over.wait(GUARD)
        return None

    def close(self) -> None:
        """Do nothing: nothing is open."""


def image(number: int) -> VideoFrame:
    """Return an image of one pixel."""
    return VideoFrame(image=bytes([number] * 3), width=1, height=1, timestamp=float(number))


def test_audio_both_ways():
    """The user's audio is kept; the bot's audio reaches the sink and the track."""
    speech = bytes(range(64)) * 30  # 60 ms
    source, sink = BytesSource(speech, 16000), BytesSink()
    transport = MemoryTransport(audio=True)
    with RTVIClient(transport=transport, mic=source, speaker=sink) as client:
        track = client.tracks().bot.audio
        assert track is not None
        frames = track.frames()
        assert source.wait(GUARD)
        transport.receive_audio(b"\1\0" * 240, 24000)
        transport.receive_audio(b"\2\0\4\0" * 240, 24000, 2)
        assert [next(frames).pcm, next(frames).pcm] == [b"\1\0" * 240, b"\3\0" * 240]
    assert sink.pcm == b"\1\0" * 240 + b"\3\0" * 240
    assert b"".join(frame.pcm for frame in transport.sent_audio).startswith(speech)
    assert {frame.sample_rate_hz for frame in transport.sent_audio} == {16000}
    transport.receive_audio(b"\1\0", 24000)  # there is no connection
    with pytest.raises(DisconnectedError):
        transport.send_audio(b"\1\0", 16000)


def test_video_both_ways():
    """The camera's pictures are kept and can be read from the track, and so can the bot's."""
    arrived = threading.Event()

    class Watched(MemoryTransport):
        def send_video(self, frame: VideoFrame) -> None:
            super().send_video(frame)
            if frame.timestamp == 3.0:
                arrived.set()

    film = Film()
    transport = Watched(video=True)
    with RTVIClient(transport=transport, cam=film, enable_mic=False) as client:
        assert not client.is_cam_enabled
        mine = client.tracks().local.video
        assert mine is not None
        seen = mine.frames()
        client.enable_cam(True)
        assert [next(seen).timestamp for _ in range(3)] == [1.0, 2.0, 3.0]
        with client.events(RTVIEvent.TRACK_STARTED, timeout=GUARD) as events:
            transport.receive_video(image(7))
            started = next(iter(events)).data
        assert (started.participant.id, started.track.kind) == ("bot", "video")
        bots = client.tracks().bot.video
        assert bots is not None
        shown = bots.frames()
        transport.receive_video(image(8))
        assert next(shown) == image(8)
        assert arrived.wait(GUARD)
        film.over.set()
    assert transport.sent_video[-1].timestamp == 3.0  # of those before it, those for which there was time
    assert list(transport.sent_screen) == []
    transport.receive_video(image(9))
    for send in (transport.send_video, transport.send_screen):
        with pytest.raises(DisconnectedError):
            send(image(9))


def test_without_media_no_device_is_touched():
    """A MemoryTransport without audio and video touches no device."""
    transport = MemoryTransport()
    with RTVIClient(transport=transport, cam=FilmNobodyReads(), mic=BytesSource(bytes(640), 16000)) as client:
        assert client.tracks().local.audio is None
        assert client.tracks().local.video is None
        with pytest.raises(UnsupportedFeatureError):
            client.enable_cam(True)
        with pytest.raises(UnsupportedFeatureError):
            client.enable_screen_share(True)
    assert list(transport.sent_audio) == []


class FilmNobodyReads(Film):
    """Fails the test if it is read."""

    def read(self) -> VideoFrame | None:
        raise AssertionError("no image was requested")
