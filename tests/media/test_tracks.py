"""Reading what is sent and heard."""

from __future__ import annotations

import gc
import threading
import time

from rtvi_sync.media import ToneSource, Tracks

LIMIT = 5.0
FRAME = bytes(range(2)) * 480


def test_no_tracks_without_a_session(talk, pacer):
    """Before prepare() and after stop() there is no track; in between there are two of audio."""
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
    """What is absent is None."""
    session = talk(mic=None).prepare()
    assert session.manager.tracks().local.audio is None
    assert session.manager.tracks().bot.audio is not None


def test_local_frames_are_what_was_sent(talk, pacer):
    """Frames carry the bytes, the rate and the time of each chunk that was sent, silence included."""
    session = talk(mic=ToneSource(440, 0.1, 24000)).begin()
    track = session.manager.tracks().local.audio
    frames = track.frames()
    pacer.advance(0.2)
    session.manager.stop(1.0)
    read = list(frames)
    assert [frame.pcm for frame in read] == session.chunks
    assert [frame.timestamp for frame in read] == session.times
    assert {(frame.sample_rate_hz, frame.num_channels, frame.duration) for frame in read} == {(24000, 1, 0.02)}
    assert frames.dropped == 0


def test_queued_frames_stay_for_the_iteration(talk):
    """Looking at what has come takes nothing away, and never waits."""
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
    """The local track says whether the microphone is on; the bot's is always on."""
    session = talk().prepare()
    tracks = session.manager.tracks()
    session.manager.enable_mic(False)
    assert (tracks.local.audio.enabled, tracks.bot.audio.enabled) == (False, True)
    session.manager.enable_mic(True)
    assert tracks.local.audio.enabled is True


def test_bot_frames_are_stamped_at_arrival(talk):
    """Frames of the bot's come mono, with its rate and the monotonic time of their arrival."""
    session = talk().prepare()
    frames = session.manager.tracks().bot.audio.frames()
    before = time.monotonic()
    session.hear(b"\2\0\4\0" * 100, 48000, channels=2)
    after = time.monotonic()
    frame = next(frames)
    assert (frame.pcm, frame.sample_rate_hz, frame.num_channels) == (b"\3\0" * 100, 48000, 1)
    assert before <= frame.timestamp <= after


def test_reading_begins_with_the_call(talk):
    """What comes between frames() and the first next() is not lost; what came before frames() is not there."""
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
        reader.join(LIMIT)
    assert got == [[2 * number for number in range(1, 101)]] * 3


def test_a_slow_reader_loses_the_oldest_and_knows(talk):
    """Beyond its buffer a reader loses old frames and counts them; others lose nothing."""
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
    """close() ends an iteration that waits on another thread."""
    session = talk().prepare()
    frames = session.manager.tracks().bot.audio.frames()
    ended = threading.Event()
    reader = threading.Thread(target=lambda: (list(frames), ended.set()))
    reader.start()
    assert not ended.wait(0.02)
    frames.close()
    assert ended.wait(LIMIT)
    reader.join(LIMIT)
    session.hear(FRAME)
    assert list(frames) == []


def test_reading_an_ended_track(talk):
    """frames() of a track that has ended is an empty iteration."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    session.manager.stop(1.0)
    assert list(track.frames()) == []


def test_a_reader_nobody_holds_costs_nothing(talk):
    """A reader that was dropped without close() is forgotten."""
    session = talk().prepare()
    track = session.manager.tracks().bot.audio
    for _ in range(3):
        track.frames()
    gc.collect()
    session.hear(FRAME)
    assert track._readers == {}
