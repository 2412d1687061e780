"""The WAV file of both sides: where audio is placed, and that the file is valid at every instant."""

from __future__ import annotations

import math
import random
import stat
import wave

import pytest

from rtvi_sync.media.stereo_file import StereoChannel, StereoFile
from tests.support.pcm import bytes_of

pytestmark = pytest.mark.inside

RATE = 24_000
FRAME = RATE // 50


def sine(hertz: float, seconds: float, rate_hz: int) -> bytes:
    count = round(seconds * rate_hz)
    return bytes_of(round(10_000 * math.sin(2 * math.pi * hertz * index / rate_hz)) for index in range(count))


def level(value: int, samples: int = FRAME) -> bytes:
    return value.to_bytes(2, "little", signed=True) * samples


def channels_of(path) -> tuple[list[int], list[int]]:
    """Return the samples of the user and of the bot."""
    with wave.open(str(path)) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (2, 2, RATE)
        data = reader.readframes(reader.getnframes())
        assert path.stat().st_size == 44 + len(data)
    samples = memoryview(data).cast("h").tolist()
    return samples[::2], samples[1::2]


def test_both_sides_are_on_one_time_line(tmp_path):
    """The user is left, the bot right, and there is silence where there was no audio."""
    path = tmp_path / "a.wav"
    file = StereoFile(path, RATE)
    assert file.bot.place(1.0, level(7), RATE) == (RATE, FRAME)
    assert file.user.place(0.5, level(5), RATE) == (RATE // 2, FRAME)
    assert file.close()
    user, bot = channels_of(path)
    assert user[RATE // 2 : RATE // 2 + FRAME] == [5] * FRAME
    assert bot[RATE:] == [7] * FRAME
    assert (sum(user), sum(bot)) == (5 * FRAME, 7 * FRAME)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_never_overwritten(tmp_path):
    """A file in its place may be a recording."""
    (tmp_path / "a.wav").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        StereoFile(tmp_path / "a.wav", RATE)


def test_the_file_is_valid_after_each_write(tmp_path):
    """Sizes and audio match the written data, and audio that may still arrive is not missing later."""
    path = tmp_path / "a.wav"
    file = StereoFile(path, RATE)
    assert channels_of(path) == ([], [])
    for index in range(100):
        file.bot.place(0.02 * index, level(index + 1), RATE)
        assert file.write(0.02 * index - 0.2)
        _, bot = channels_of(path)
        assert bot == [1 + place // FRAME for place in range(len(bot))]
        assert abs(len(bot) - max(0, (index - 10) * FRAME)) <= 1
    file.close()
    assert len(channels_of(path)[1]) == 100 * FRAME


def test_jitter_makes_no_gap_and_a_pause_does():
    """A frame that is up to 50 ms late continues the audio before it."""
    bot = StereoChannel(RATE, is_user=False)
    assert bot.place(1.0, level(1), RATE) == (RATE, FRAME)
    assert bot.place(1.069, level(1), RATE) == (RATE + FRAME, FRAME)
    assert bot.place(1.5, level(1), RATE) == (RATE + RATE // 2, FRAME)


def test_what_a_bot_sends_ahead_waits():
    """Early audio is heard after the audio before it; up to a minute of it is kept."""
    bot = StereoChannel(RATE, is_user=False)
    places = [bot.place(0.001 * index, level(1, RATE), RATE) for index in range(70)]
    assert places[:60] == [(RATE * index, RATE) for index in range(60)]
    assert places[62:] == [None] * 8


def test_an_interruption_voids_what_was_not_heard():
    """The samples are counted, and the next audio has its place."""
    bot = StereoChannel(RATE, is_user=False)
    bot.place(0.0, level(1, 2 * RATE), RATE)
    assert bot.cut(0.5) == RATE + RATE // 2
    assert bot.cut(0.6) == 0
    assert bot.place(0.7, level(2), RATE) == (round(0.7 * RATE), FRAME)
    assert bot.take(RATE) == level(1, RATE // 2) + bytes(2 * round(0.2 * RATE)) + level(2)


@pytest.mark.parametrize("drift", [200e-6, -200e-6])
def test_no_clock_of_a_user_drifts_away(drift):
    """After an hour with a clock that is 200 ppm off, each frame is within 60 ms of its moment."""
    user = StereoChannel(RATE, is_user=True)
    worst, jitter = 0.0, random.Random(1)
    for index in range(50 * 3600):
        t = 0.02 * (1 + drift) * index + jitter.uniform(0, 0.004)
        placed = user.place(t, bytes(2 * FRAME), RATE)
        assert placed is not None
        worst = max(worst, abs(placed[0] / RATE - t))
        if not index % 10:
            user.take(max(user.first, int((t - 0.2) * RATE)))
    assert worst <= 0.06


def test_the_bot_is_bit_exact_at_the_rate_of_the_file():
    """Whatever the sizes of its frames."""
    said = sine(440, 2.0, RATE)
    bot, heard, begin, size = StereoChannel(RATE, is_user=False), b"", 0, random.Random(2)
    while begin < len(said):
        frame = said[begin : begin + 2 * size.randint(1, 1000)]
        bot.place(begin / 2 / RATE + size.uniform(0, 0.03), frame, RATE)
        begin += len(frame)
        heard += bot.take(max(bot.first, begin // 2 - RATE // 5))
    start = len(heard) // 2 + len(said) // 2 - bot.end
    heard += bot.take(bot.end)
    assert heard.lstrip(b"\0").rstrip(b"\0") == said.lstrip(b"\0").rstrip(b"\0")
    assert start >= 0


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
def test_audio_of_other_rates_keeps_its_place_and_length(rate_hz):
    """Converted in a stream, a run of frames has the length of its audio, and nothing is behind it."""
    user, heard = StereoChannel(RATE, is_user=True), b""
    for index in range(100):
        frame = sine(440, 0.02, rate_hz)
        assert user.place(1.0 + 0.02 * index, frame, rate_hz) == (RATE + FRAME * index, FRAME)
        heard += user.take(max(user.first, round((0.8 + 0.02 * index) * RATE)))
    for later in range(1, 20):
        heard += user.take(round((2.8 + 0.02 * later) * RATE))
    assert len(heard) == 2 * (RATE + 100 * FRAME)
    loud = [abs(sample) > 1000 for sample in memoryview(heard).cast("h").tolist()]
    assert not any(loud[:RATE])
    assert any(loud[-FRAME:])


def test_silence_takes_no_memory():
    """Nothing is kept of the time in which neither side speaks."""
    user = StereoChannel(RATE, is_user=True)
    for second in range(1, 3600):
        assert user.take(second * RATE) == b""
    assert user.place(3600.0, level(1), RATE) == (3600 * RATE, FRAME)
    assert len(user.take(3601 * RATE)) == 2 * (RATE + FRAME)


def test_a_limit_ends_the_file_in_time(tmp_path):
    """The written part is valid, and the caller learns that there was no room."""
    path = tmp_path / "a.wav"
    file = StereoFile(path, RATE)
    file.bot.place(0.0, level(3, RATE), RATE)
    assert file.write(0.1, 20_044)
    assert not file.write(0.5, 20_044)
    assert not file.close(20_044)
    assert path.stat().st_size == 20_044
    assert channels_of(path)[1] == [3] * 5000
