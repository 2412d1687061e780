"""Both voices on one time line."""

from __future__ import annotations

import importlib
import sys
import wave
from array import array
from pathlib import Path

import pytest

from rtvi_sync.media import AudioFrame, AudioTrack, ParticipantTracks, Tracks
from rtvi_sync.recording.recording import Recorder, Stretch, find_resampler, played, write_conversation

RATE = 1000


def frame(at: float, value: int, samples: int = 20, rate: int = RATE) -> AudioFrame:
    """A piece of audio that has one value."""
    return AudioFrame(pcm=array("h", [value] * samples).tobytes(), sample_rate_hz=rate, timestamp=at)


def stretch(at: float, *values: int, rate: int = RATE) -> Stretch:
    """Audio of these samples."""
    return Stretch(at, bytearray(array("h", values).tobytes()), rate)


def shape(line: list[Stretch]) -> list[tuple[float, int]]:
    """Start and number of samples of each stretch."""
    return [(round(item.start, 6), len(item.pcm) // 2) for item in line]


def read(path: Path) -> tuple[int, int, list[int]]:
    """Channels, rate and interleaved samples of a WAV file."""
    with wave.open(str(path)) as file:
        return file.getnchannels(), file.getframerate(), array("h", file.readframes(10**6)).tolist()


def test_jitter_leaves_no_hole() -> None:
    """Frames that are late by some milliseconds continue the ones before."""
    line = played([frame(5.0, 1), frame(5.024, 2), frame(5.039, 3), frame(5.09, 4)])
    assert shape(line) == [(5.0, 80)]


def test_a_pause_is_kept() -> None:
    """A frame that comes well after the end of the last begins at its own time."""
    assert shape(played([frame(5.0, 1), frame(5.5, 2)])) == [(5.0, 20), (5.5, 20)]


def test_what_comes_early_is_played_in_turn() -> None:
    """A bot that sends faster than real time is heard in real time."""
    line = played([*(frame(5.0, 1) for _ in range(10)), frame(5.21, 2)])
    assert shape(line) == [(5.0, 220)]


def test_an_interruption_drops_what_was_not_yet_played() -> None:
    """What had come but was not heard before the interruption is cut, also in the middle of a frame."""
    burst = [frame(5.0, 1) for _ in range(10)]
    assert shape(played(burst, drops=[5.05])) == [(5.0, 50)]
    assert shape(played([*burst, frame(5.06, 2)], drops=[5.05])) == [(5.0, 70)]
    assert shape(played([frame(5.0, 1), frame(5.5, 1)], drops=[4.0, 5.3, 9.0])) == [(5.0, 20), (5.5, 20)]


def test_a_new_sample_rate_begins_a_new_stretch() -> None:
    """It begins where the old one ends."""
    line = played([frame(5.0, 1), frame(5.01, 2, rate=2000)])
    assert shape(line) == [(5.0, 20), (5.02, 20)]


def test_both_sides_share_one_time_line(tmp_path: Path) -> None:
    """Left the user, right the bot, each sample at its time, the shorter side padded."""
    path = tmp_path / "out.wav"
    assert write_conversation(path, [stretch(7.001, 1, 2)], [stretch(7.000, -1), stretch(7.003, -3, -4)]) == [path]
    assert read(path) == (2, RATE, [0, -1, 1, 0, 2, 0, 0, -3, 0, -4])


def test_one_silent_side(tmp_path: Path) -> None:
    """A bot that says nothing leaves its channel silent."""
    path = tmp_path / "out.wav"
    write_conversation(path, [stretch(7.0, 5, 6)], [])
    assert read(path) == (2, RATE, [5, 0, 6, 0])


def test_nothing_said_is_nothing_written(tmp_path: Path) -> None:
    """There is no empty file."""
    assert write_conversation(tmp_path / "out.wav", [], []) == []
    assert list(tmp_path.iterdir()) == []


def test_different_rates_with_a_resampler_meet_at_the_bots(tmp_path: Path) -> None:
    """The user's side is resampled and laid at its time by the new rate."""
    path = tmp_path / "out.wav"

    def twice(pcm: bytes, old: int, new: int) -> bytes:
        assert (old, new) == (1000, 2000)
        return array("h", [value for value in array("h", pcm) for _ in range(2)]).tobytes()

    files = write_conversation(path, [stretch(7.001, 1, 2)], [stretch(7.0, 9, rate=2000)], twice)
    assert files == [path]
    assert read(path) == (2, 2000, [0, 9, 0, 0, 1, 0, 1, 0, 2, 0, 2, 0])


def test_different_rates_without_a_resampler_get_files_of_their_own(tmp_path: Path) -> None:
    """Each file begins at the same moment, at its own rate, bit exact."""
    user, bot = [stretch(7.001, 1, 2)], [stretch(7.0, 8, rate=2000), stretch(7.002, 9, rate=4000)]
    files = write_conversation(tmp_path / "out.wav", user, bot)
    assert [file.name for file in files] == ["out-user-1000.wav", "out-bot-2000.wav", "out-bot-4000.wav"]
    assert [read(file) for file in files] == [
        (1, 1000, [0, 1, 2]),
        (1, 2000, [8]),
        (1, 4000, [0] * 8 + [9]),
    ]


def test_resampler_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without soxr there is none."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert find_resampler() is None


@pytest.mark.skipif(importlib.util.find_spec("soxr") is None, reason="soxr (extra resample) is not installed")
def test_resampler_keeps_length_and_level() -> None:
    """A second stays a second, and a constant stays what it is."""
    resample = find_resampler()
    assert resample is not None
    samples = array("h", resample(array("h", [1000] * 16_000).tobytes(), 16_000, 24_000))
    assert len(samples) == 24_000
    assert all(abs(value - 1000) < 20 for value in samples[2000:-2000])


def test_recorder_keeps_both_tracks_from_its_first_attachment() -> None:
    """Attaching it twice records everything once; what comes after the stop is not recorded."""
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


def test_recorder_tells_what_there_is_so_far() -> None:
    """Looking at a recording takes nothing out of it, and it goes on."""
    bot = AudioTrack(label="bot")
    recorder = Recorder(limit=10)
    recorder.attach(Tracks(bot=ParticipantTracks(audio=bot)))
    for number in (1, 2):
        bot.publish(b"\0\0", RATE, float(number))
        assert [frame.timestamp for frame in recorder.frames()[1]] == [1.0, 2.0][:number]


def test_recorder_keeps_the_latest_of_a_long_session_and_as_much_of_those_before() -> None:
    """Memory is bounded in seconds; sessions in which nothing was heard do not count."""
    recorder = Recorder(limit=1.0)
    for session, halves in enumerate((1, 1, 0, 1, 3)):
        bot = AudioTrack(label="bot")
        recorder.attach(Tracks(bot=ParticipantTracks(audio=bot)))
        for half in range(halves):
            bot.publish(bytes(RATE), RATE, session + half / 10)
        bot.end()
    assert [frame.timestamp for frame in recorder.frames()[1]] == [1.0, 3.0, 4.1, 4.2]


def test_recorder_that_was_never_attached_has_nothing() -> None:
    """A session that did not begin has no audio."""
    assert Recorder(limit=10).stop() == ([], [])
