"""A conversation's audio, cut into its turns, and the latencies that follow from it."""

from __future__ import annotations

import io
import wave
from array import array
from collections.abc import Sequence

import pytest

from rtvi_sync.media import AudioFrame
from rtvi_sync.notebook.sound import Clip, Sound
from rtvi_sync.notebook.turns import Turn

RATE = 1000
TICK = 0.02


def frames(until: float, *loud: tuple[float, float], value: int = 1000, rate: int = RATE) -> list[AudioFrame]:
    """Frames of 20 ms up to a moment, silent but for some stretches."""
    made = []
    for index in range(round(until / TICK)):
        at = round(index * TICK, 6)
        level = value if any(begin <= at < end for begin, end in loud) else 0
        made.append(
            AudioFrame(pcm=array("h", [level] * round(rate * TICK)).tobytes(), sample_rate_hz=rate, timestamp=at)
        )
    return made


def spoken(began: float, **moments: float) -> Turn:
    """A turn of a user who spoke."""
    return Turn(1, began, moments.pop("heard_from", began), aloud=True, **moments)


def levels(clips: Sequence[Clip]) -> list[tuple[int, float]]:
    """The level of each stretch of a clip, and how long it lasts."""
    (clip,) = clips
    found: list[tuple[int, float]] = []
    for level in array("h", clip.pcm):
        if found and found[-1][0] == level:
            found[-1] = (level, found[-1][1] + 1 / clip.sample_rate_hz)
        else:
            found.append((level, 1 / clip.sample_rate_hz))
    return [(level, round(seconds, 2)) for level, seconds in found]


def test_a_users_turn_begins_before_the_bot_hears_it() -> None:
    """What was said before the bot told that the user began is part of it, with a bit of silence around."""
    user = frames(8, (1.0, 2.0), (2.5, 3.0), (6.0, 7.0))
    sound = Sound([spoken(1.2), spoken(6.3)], user, [], [])
    assert levels(sound.of_user(0)) == [(0, 0.1), (1000, 1.0), (0, 0.5), (1000, 0.5), (0, 0.08)]
    assert levels(sound.of_user(1)) == [(0, 0.1), (1000, 1.0), (0, 0.08)]


def test_a_bots_turn_is_what_was_heard_of_it() -> None:
    """An interruption ends it, also what had come ahead of its time; the rest belongs to the next turn."""
    burst = [AudioFrame(pcm=array("h", [7000] * 2000).tobytes(), sample_rate_hz=RATE, timestamp=2.0)]
    answer = [AudioFrame(pcm=array("h", [9000] * 100).tobytes(), sample_rate_hz=RATE, timestamp=3.5)]
    turns = [spoken(1.0), spoken(2.9, heard_from=3.0)]
    sound = Sound(turns, [], [*burst, *answer], [3.0])
    assert levels(sound.of_bot(0)) == [(7000, 1.0)]
    assert levels(sound.of_bot(1)) == [(9000, 0.1)]


def test_who_typed_or_was_silent_has_no_clip() -> None:
    """Noise at the microphone is not what a user said who typed."""
    sound = Sound([Turn(1, 1.0, 1.0, typed=1.0), spoken(5.0)], frames(4, (1.0, 2.0)), [], [])
    assert sound.of_user(0) == sound.of_user(1) == sound.of_bot(0) == []


def test_a_new_sample_rate_begins_a_new_clip() -> None:
    """Each clip has one rate, and nothing is resampled."""
    bot = [*frames(1, (0.5, 1.0)), *(frame for frame in frames(2, (1.0, 1.5), rate=2000) if frame.timestamp >= 1)]
    clips = Sound([spoken(0.1)], [], bot, []).of_bot(0)
    assert [(clip.sample_rate_hz, round(clip.seconds, 2)) for clip in clips] == [(1000, 0.6), (2000, 0.58)]


def test_a_clip_is_a_wav_file() -> None:
    """Bit exact, mono."""
    with wave.open(io.BytesIO(Clip(b"\1\0\2\0", 24_000).wav())) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.readframes(9) == b"\1\0\2\0"


def test_latencies_of_spoken_turns_count_from_the_last_sound() -> None:
    """Not from the bot's word for it, which comes later; where the bot spoke first, that is no turn of the user's."""
    greeting = Turn(None, 0.1, 0.1, text=0.1)
    turns = [greeting, spoken(1.2, final=2.5, text=2.6, spoke=2.9), spoken(6.3, final=7.4, text=7.5)]
    sound = Sound(turns, frames(8, (1.0, 2.0), (6.0, 7.0)), frames(10, (2.8, 4.0), (7.6, 9.0)), [])
    first, second = sound.latencies()
    assert (first.transcript, first.text, first.sound) == pytest.approx((0.52, 0.62, 0.82))
    assert (second.transcript, second.text, second.sound) == pytest.approx((0.42, 0.52, 0.62))


def test_latency_of_a_typed_turn_counts_from_its_acknowledgement() -> None:
    """Though the bot was speaking until it was interrupted just then."""
    turns = [Turn(1, 1.0, 1.0, typed=1.0, text=1.1), Turn(2, 5.0, 4.99, typed=5.0, text=5.2)]
    bot = frames(9, (1.2, 4.99), (5.1, 8.0))
    latencies = Sound(turns, [], bot, [4.99]).latencies()
    assert [(each.transcript, round(each.text or 0, 2), round(each.sound or 0, 2)) for each in latencies] == [
        (None, 0.1, 0.2),
        (None, 0.2, 0.1),
    ]


def test_without_audio_the_bots_word_is_taken() -> None:
    """A transport that carries none still has latencies."""
    turns = [spoken(1.0, stopped=2.0, final=2.1, text=2.2, spoke=2.5), spoken(5.0, stopped=6.0, spoke=6.4)]
    first, second = Sound(turns, [], [], []).latencies()
    assert (first.transcript, first.text, first.sound) == pytest.approx((0.1, 0.2, 0.5))
    assert (second.text, second.sound) == (None, pytest.approx(0.4))
