"""Tracks: readable copies of the sent and received media."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from rtvi_sync.errors import MissingExtraError
from rtvi_sync.media import AudioFrame, AudioTrack, ToneSource, Tracks, VideoFrame, VideoTrack
from tests.support.fake_camera import number_of, picture
from tests.support.garbage import collect
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

FRAME = bytes(range(2)) * 480


def test_no_tracks_without_a_session(talk, timer):
    """Before prepare() and after stop() there is no track; in between there are two audio tracks."""
    session = talk(mic=ToneSource())
    assert session.manager.tracks() == Tracks()
    session.begin()
    tracks = session.manager.tracks()
    assert tracks.local.audio.label == "ToneSource"
    assert tracks.bot.audio.kind == "audio"
    assert tracks.local.audio.id != tracks.bot.audio.id
    assert (tracks.local.video, tracks.local.screen_audio, tracks.local.screen_video) == (None, None, None)
    assert (tracks.bot.video, tracks.bot.screen_audio, tracks.bot.screen_video) == (None, None, None)
    assert session.manager.tracks() == tracks
    assert tracks.local.audio.ready_state == tracks.bot.audio.ready_state == "live"
    session.manager.stop(1.0)
    assert tracks.local.audio.ready_state == tracks.bot.audio.ready_state == "ended"
    assert session.manager.tracks() == Tracks()


def test_no_local_track_without_a_microphone(talk):
    """An absent track is None."""
    session = talk(mic=None).prepare()
    assert session.manager.tracks().local.audio is None
    assert session.manager.tracks().bot.audio is not None


def test_local_frames_are_what_was_sent(talk, timer):
    """Frames carry the bytes, the rate and the time of each chunk that was sent, silence included."""
    session = talk(mic=ToneSource(440, 0.1, 24000)).begin()
    track = session.manager.tracks().local.audio
    frames = track.frames()
    timer.advance(0.2)
    session.manager.stop(1.0)
    read = list(frames)
    assert [frame.pcm for frame in read] == session.chunks
    assert [frame.timestamp for frame in read] == session.times
    assert {(frame.sample_rate_hz, frame.num_channels, frame.duration) for frame in read} == {(24000, 1, 0.02)}
    assert frames.dropped == 0


def test_queued_frames_stay_for_the_iteration(talk):
    """Reading the queued frames removes none of them, and does not block."""
    session = talk().begin()
    frames = session.manager.tracks().bot.audio.frames()
    assert frames.queued() == []
    session.hear(FRAME)
    session.hear(FRAME)
    seen = frames.queued()
    assert len(seen) == 2
    assert frames.queued() == seen == [next(frames), next(frames)]
    assert frames.queued() == []


def test_enabled_follows_mute(talk):
    """The local track's `enabled` is the microphone's; the bot's is always True."""
    session = talk().prepare()
    tracks = session.manager.tracks()
    session.manager.enable_mic(False)
    assert (tracks.local.audio.enabled, tracks.bot.audio.enabled) == (False, True)
    session.manager.enable_mic(True)
    assert tracks.local.audio.enabled is True


def test_bot_frames_are_stamped_at_arrival(talk):
    """Frames of the bot are mono, with its rate and the monotonic time of their arrival."""
    session = talk().prepare()
    frames = session.manager.tracks().bot.audio.frames()
    before = time.monotonic()
    session.hear(b"\2\0\4\0" * 100, 48000, channels=2)
    after = time.monotonic()
    frame = next(frames)
    assert (frame.pcm, frame.sample_rate_hz, frame.num_channels) == (b"\3\0" * 100, 48000, 1)
    assert before <= frame.timestamp <= after


def test_reading_begins_with_the_call(talk):
    """Frames that arrive between frames() and the first next() are not lost; earlier ones are not included."""
    session = talk().prepare()
    session.hear(FRAME)
    frames = session.manager.tracks().bot.audio.frames()
    session.hear(FRAME[:100])
    session.hear(FRAME[:200])
    session.manager.stop(1.0)
    assert [len(frame.pcm) for frame in frames] == [100, 200]
    assert list(frames) == []


def test_several_readers_at_once(talk):
    """Readers on several threads each get every frame, and end with the session."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    got: list[list[int]] = [[], [], []]

    def read(frames, into) -> None:
        into.extend(len(frame.pcm) for frame in frames)

    readers = [threading.Thread(target=read, args=(track.frames(), into)) for into in got]
    for reader in readers:
        reader.start()
    for number in range(1, 101):
        session.hear(bytes(2 * number))
    session.manager.stop(1.0)
    for reader in readers:
        reader.join(GUARD)
    assert got == [[2 * number for number in range(1, 101)]] * 3


def test_a_slow_reader_loses_the_oldest_and_knows(talk):
    """Beyond its buffer a reader loses old frames and counts them; other readers lose nothing."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    slow, patient = track.frames(buffer=0.1), track.frames()
    for number in range(20):
        session.hear(bytes([number]) * 960)
    session.manager.stop(1.0)
    assert [frame.pcm[0] for frame in slow] == [15, 16, 17, 18, 19]
    assert slow.dropped == 15
    assert len(list(patient)) == 20
    assert patient.dropped == 0


def test_a_reader_can_be_closed(talk):
    """close() ends an iteration that is blocked on another thread."""
    session = talk().prepare()
    frames = session.manager.tracks().bot.audio.frames()
    ended = threading.Event()

    def read_all() -> None:
        list(frames)
        ended.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    assert not ended.wait(0.02)
    frames.close()
    assert ended.wait(GUARD)
    reader.join(GUARD)
    session.hear(FRAME)
    assert list(frames) == []


def test_reading_an_ended_track(talk):
    """frames() of a track that has ended is an empty iteration."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    session.manager.stop(1.0)
    assert list(track.frames()) == []


def test_an_unreferenced_reader_costs_nothing(talk):
    """A reader that was dropped without close() is forgotten."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    for _ in range(3):
        track.frames()
    collect()
    session.hear(FRAME)
    assert track.readers == {}


def test_a_track_of_video():
    """Every reader gets each image, and the iteration ends with the track."""
    track = VideoTrack(label="camera")
    assert (track.kind, track.label, track.ready_state) == ("video", "camera", "live")
    assert repr(track) == "<Track video 'camera' live>"
    readers = [track.frames(), track.frames()]
    images = [picture(number) for number in range(3)]
    for image in images:
        track.publish(image)
    track.end()
    assert [list(reader) for reader in readers] == [images, images]
    assert track.ready_state == "ended"
    assert list(track.frames()) == []


def test_a_slow_reader_of_video_keeps_the_newest():
    """The buffer is a number of images; losses are counted for this reader alone."""
    track = VideoTrack(label="camera")
    newest, few, usual = track.frames(buffer=1), track.frames(buffer=3), track.frames()
    for number in range(10):
        track.publish(picture(number))
    assert number_of(next(newest)) == 9
    assert [number_of(image) for image in few.queued()] == [7, 8, 9]
    track.end()
    assert len(list(usual)) == 10
    assert (newest.dropped, few.dropped, usual.dropped) == (9, 7, 0)


def test_readers_of_video_on_several_threads():
    """Each reader reads at its own speed while images arrive."""
    track = VideoTrack(label="camera")
    got: list[list[int]] = [[], []]

    def read(frames, into) -> None:
        into.extend(number_of(image) for image in frames)

    readers = [threading.Thread(target=read, args=(track.frames(buffer=100), into)) for into in got]
    for reader in readers:
        reader.start()
    for number in range(100):
        track.publish(picture(number))
    track.end()
    for reader in readers:
        reader.join(GUARD)
    assert got == [list(range(100))] * 2


def test_audio_as_an_array():
    """The array has samples by channels, without a copy."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    frame = AudioFrame(pcm=b"\1\0\2\0\xff\xff\0\x80", sample_rate_hz=16000, timestamp=0.0, num_channels=2)
    array = frame.to_numpy()
    assert (array.dtype, array.shape, array.tolist()) == (numpy.int16, (2, 2), [[1, 2], [-1, -32768]])
    assert not array.flags.writeable
    track = AudioTrack(label="bot")
    frames = track.frames()
    track.publish(b"\1\0" * 320, 16000, 1.0)
    assert next(frames).to_numpy().shape == (320, 1)


def test_video_as_an_array():
    """The array has height by width by red, green and blue, without a copy."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    frame = VideoFrame(image=bytes(range(18)), width=3, height=2, timestamp=0.0)
    array = frame.to_numpy()
    assert (array.dtype, array.shape, array[1, 2].tolist()) == (numpy.uint8, (2, 3, 3), [15, 16, 17])
    assert not array.flags.writeable
    other = VideoFrame(image=b"....", width=2, height=2, format="GRAY", timestamp=0.0)
    with pytest.raises(ValueError, match="'GRAY'"):
        other.to_numpy()


def test_arrays_need_numpy(monkeypatch):
    """The error without numpy has the command that installs it."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtraError, match=r"\[resample\]"):
        AudioFrame(pcm=b"", sample_rate_hz=16000, timestamp=0.0).to_numpy()
    with pytest.raises(MissingExtraError, match=r"\[video\]"):
        picture(1).to_numpy()


@pytest.mark.parametrize(
    ("width", "height", "size"), [(2, 2, 11), (2, 2, 13), (0, 0, 0), (-2, -2, 12), (10**9, 10**9, 12)]
)
def test_an_image_is_as_large_as_it_says(width, height, size):
    """An RGB image with another size than three bytes a pixel is refused; images are not printed."""
    with pytest.raises(ValueError, match=r"an RGB image|width must be"):
        VideoFrame(image=bytes(size), width=width, height=height, timestamp=0.0)
    assert "image=<6 bytes>, width=2, height=1, format='RGB'" in repr(picture(7))


def test_a_burst_is_kept_for_readers(talk):
    """A minute that arrives at once is complete for a reader that reads later."""
    session = talk().prepare()
    frames = session.manager.tracks().bot.audio.frames()
    for number in range(3000):
        session.hear(bytes([number % 251]) * 960)
    session.manager.stop(1.0)
    assert [frame.pcm[0] for frame in frames] == [number % 251 for number in range(3000)]
    assert frames.dropped == 0
