"""Recordings of both sides on one time line."""

from __future__ import annotations

import wave
from array import array
from pathlib import Path

import pytest

from rtvi_sync.media import AudioFrame, AudioTrack, ParticipantTracks, Tracks
from rtvi_sync.recording.recorder import AudioSegment, Recorder, simulate_playback, write_conversation
from tests.support.disks import full_disk

pytestmark = pytest.mark.inside

RATE = 1000


def frame(at: float, value: int, samples: int = 20, rate: int = RATE) -> AudioFrame:
    """Return a frame whose samples have one value."""
    return AudioFrame(pcm=array("h", [value] * samples).tobytes(), sample_rate_hz=rate, timestamp=at)


def segment(at: float, *values: int, rate: int = RATE) -> AudioSegment:
    """Return a segment of these samples."""
    return AudioSegment(at, bytearray(array("h", values).tobytes()), rate)


def layout(segments: list[AudioSegment]) -> list[tuple[float, int]]:
    """Return start and number of samples of each segment."""
    return [(round(item.start, 6), len(item.pcm) // 2) for item in segments]


def read(path: Path) -> tuple[int, int, list[int]]:
    """Return channels, rate and interleaved samples of a WAV file."""
    with wave.open(str(path)) as file:
        return file.getnchannels(), file.getframerate(), array("h", file.readframes(10**6)).tolist()


def test_jitter_leaves_no_gap() -> None:
    """A frame that is a few milliseconds late continues the frame before it."""
    segments = simulate_playback([frame(5.0, 1), frame(5.024, 2), frame(5.039, 3), frame(5.09, 4)])
    assert layout(segments) == [(5.0, 80)]


def test_a_pause_is_kept() -> None:
    """A frame that arrives well after the end of the last one begins at its own time."""
    assert layout(simulate_playback([frame(5.0, 1), frame(5.5, 2)])) == [(5.0, 20), (5.5, 20)]


def test_early_frames_are_played_one_after_the_other() -> None:
    """Audio that is sent faster than real time is played in real time."""
    segments = simulate_playback([*(frame(5.0, 1) for _ in range(10)), frame(5.21, 2)])
    assert layout(segments) == [(5.0, 220)]


def test_an_interruption_drops_unplayed_audio() -> None:
    """Audio that arrived but was not played before the interruption is cut, also in the middle of a frame."""
    burst = [frame(5.0, 1) for _ in range(10)]
    assert layout(simulate_playback(burst, interruptions=[5.05])) == [(5.0, 50)]
    assert layout(simulate_playback([*burst, frame(5.06, 2)], interruptions=[5.05])) == [(5.0, 70)]
    assert layout(simulate_playback([frame(5.0, 1), frame(5.5, 1)], interruptions=[4.0, 5.3, 9.0])) == [
        (5.0, 20),
        (5.5, 20),
    ]


def test_a_new_sample_rate_begins_a_new_segment() -> None:
    """The new segment begins where the old one ends."""
    segments = simulate_playback([frame(5.0, 1), frame(5.01, 2, rate=2000)])
    assert layout(segments) == [(5.0, 20), (5.02, 20)]


def test_both_sides_share_one_time_line(tmp_path: Path) -> None:
    """The user is left, the bot right, each sample at its time, and the shorter side is padded."""
    path = tmp_path / "out.wav"
    assert write_conversation(path, [segment(7.001, 1, 2)], [segment(7.000, -1), segment(7.003, -3, -4)])
    assert read(path) == (2, RATE, [0, -1, 1, 0, 2, 0, 0, -3, 0, -4])


def test_one_silent_side(tmp_path: Path) -> None:
    """The channel of a bot without audio is silent."""
    path = tmp_path / "out.wav"
    write_conversation(path, [segment(7.0, 5, 6)], [])
    assert read(path) == (2, RATE, [5, 0, 6, 0])


def test_a_full_disk(tmp_path: Path) -> None:
    """The error names the file, which holds both sides as far as there was room."""
    path = tmp_path / "out.wav"
    with full_disk(44 + 6), pytest.raises(OSError, match=rf"'{path}'"):
        write_conversation(path, [segment(7.0, 5, 6, 7)], [segment(7.0, -5, -6, -7)])
    assert read(path) == (2, RATE, [5, -5])


def test_a_conversation_without_audio_writes_no_file(tmp_path: Path) -> None:
    """No empty file is written."""
    assert write_conversation(tmp_path / "out.wav", [], []) is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("last", [4, 384_000])
def test_the_rate_is_that_of_most_of_the_audio(tmp_path: Path, last: int) -> None:
    """A single frame of another rate does not decide on the file."""
    path = tmp_path / "out.wav"
    bot = [segment(0.0, *[1] * 3000, rate=24_000), segment(10.0, 2, 2, rate=last)]
    assert write_conversation(path, [], bot)
    assert read(path)[1] == (24_000 if last == 384_000 else 4)


def test_the_user_is_resampled_to_the_rate_of_the_bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's side is resampled and placed at its time by the new rate."""
    path = tmp_path / "out.wav"

    def twice(pcm: bytes, from_hz: int, to_hz: int) -> bytes:
        assert (from_hz, to_hz) == (1000, 2000)
        return array("h", [value for value in array("h", pcm) for _ in range(2)]).tobytes()

    monkeypatch.setattr("rtvi_sync.recording.recorder.resample", twice)
    assert write_conversation(path, [segment(7.001, 1, 2)], [segment(7.0, 9, rate=2000)])
    assert read(path) == (2, 2000, [0, 9, 0, 0, 1, 0, 1, 0, 2, 0, 2, 0])


def test_recorder_keeps_both_tracks_from_its_first_attachment() -> None:
    """attach() is idempotent, and audio after stop() is not recorded."""
    user, bot = AudioTrack(label="mic"), AudioTrack(label="bot")
    tracks = Tracks(local=ParticipantTracks(audio=user), bot=ParticipantTracks(audio=bot))
    recorder = Recorder(limit=10)
    bot.publish(b"\0\0", RATE, 0.5)
    recorder.attach(tracks)
    user.publish(b"\1\0", RATE, 1.0)
    recorder.attach(tracks)
    bot.publish(b"\2\0", RATE, 2.0)
    said, heard = recorder.stop()
    bot.publish(b"\3\0", RATE, 3.0)
    assert [(f.pcm, f.timestamp) for f in said] == [(b"\1\0", 1.0)]
    assert [(f.pcm, f.timestamp) for f in heard] == [(b"\2\0", 2.0)]
    assert recorder.frames() == recorder.stop() == (said, heard)


def test_frames_are_those_recorded_so_far() -> None:
    """frames() removes nothing, and the recording continues."""
    bot = AudioTrack(label="bot")
    recorder = Recorder(limit=10)
    recorder.attach(Tracks(bot=ParticipantTracks(audio=bot)))
    for number in (1, 2):
        bot.publish(b"\0\0", RATE, float(number))
        assert [frame.timestamp for frame in recorder.frames()[1]] == [1.0, 2.0][:number]


def test_recorder_keeps_the_last_seconds_of_all_sessions() -> None:
    """Memory is bounded in seconds; sessions without audio do not count."""
    recorder = Recorder(limit=1.0)
    for session, halves in enumerate((1, 1, 0, 1, 3)):
        bot = AudioTrack(label="bot")
        recorder.attach(Tracks(bot=ParticipantTracks(audio=bot)))
        for half in range(halves):
            bot.publish(bytes(RATE), RATE, (2 * session + half) / 10)
        bot.end()
    assert [frame.timestamp for frame in recorder.frames()[1]] == [0.2, 0.6, 0.9, 1.0]


def test_a_side_that_says_little() -> None:
    """What it said long ago does not lengthen the recording, of which the other side has only the end."""
    user, bot = AudioTrack(label="mic"), AudioTrack(label="bot")
    recorder = Recorder(limit=10.0)
    recorder.attach(Tracks(local=ParticipantTracks(audio=user), bot=ParticipantTracks(audio=bot)))
    bot.publish(bytes(2 * RATE), RATE, 0.0)
    for second in range(100):
        user.publish(bytes(2 * RATE), RATE, float(second))
    bot.publish(bytes(2 * RATE), RATE, 99.0)
    said, heard = recorder.stop()
    assert [frame.timestamp for frame in said] == [*range(90, 100)]
    assert [frame.timestamp for frame in heard] == [99.0]


def test_recorder_that_was_never_attached_is_empty() -> None:
    """stop() returns no frames if attach() was never called."""
    assert Recorder(limit=10).stop() == ([], [])
