"""A conversation's audio, divided into its turns, and the latencies measured from it."""

from __future__ import annotations

import io
import wave
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from rtvi_sync.media import AudioFrame
from rtvi_sync.notebook.audio import Clip, ConversationAudio
from rtvi_sync.notebook.turns import Turn

RATE = 1000
TICK = 0.02


def frames(until: float, *loud: tuple[float, float], value: int = 1000, rate: int = RATE) -> list[AudioFrame]:
    """Return frames of 20 ms up to a time, silent except for some stretches."""
    made = []
    for index in range(round(until / TICK)):
        at = round(index * TICK, 6)
        level = value if any(begin <= at < end for begin, end in loud) else 0
        made.append(
            AudioFrame(pcm=array("h", [level] * round(rate * TICK)).tobytes(), sample_rate_hz=rate, timestamp=at)
        )
    return made


def spoken(began: float, **moments: Any) -> Turn:
    """Return a spoken turn of the user."""
    return Turn(1, began, moments.pop("bot_audio_from", began), by_voice=True, **moments)


def levels(clips: Sequence[Clip]) -> list[tuple[int, float]]:
    """Return the level and the seconds of each stretch of a clip."""
    (clip,) = clips
    found: list[tuple[int, float]] = []
    for level in array("h", clip.pcm):
        if found and found[-1][0] == level:
            found[-1] = (level, found[-1][1] + 1 / clip.sample_rate_hz)
        else:
            found.append((level, 1 / clip.sample_rate_hz))
    return [(level, round(seconds, 2)) for level, seconds in found]


def test_a_users_turn_begins_before_the_bot_hears_it() -> None:
    """Audio before the bot's report that the user speaks belongs to the turn, with a margin of silence."""
    user = frames(8, (1.0, 2.0), (2.5, 3.0), (6.0, 7.0))
    audio = ConversationAudio([spoken(1.2), spoken(6.3)], user, [], [])
    assert levels(audio.user_clips(0)) == [(0, 0.1), (1000, 1.0), (0, 0.5), (1000, 0.5), (0, 0.08)]
    assert levels(audio.user_clips(1)) == [(0, 0.1), (1000, 1.0), (0, 0.08)]


def test_a_bots_turn_is_what_was_heard_of_it() -> None:
    """An interruption ends it, and drops what had arrived early; the rest belongs to the next turn."""
    burst = [AudioFrame(pcm=array("h", [7000] * 2000).tobytes(), sample_rate_hz=RATE, timestamp=2.0)]
    answer = [AudioFrame(pcm=array("h", [9000] * 100).tobytes(), sample_rate_hz=RATE, timestamp=3.5)]
    turns = [spoken(1.0), spoken(2.9, bot_audio_from=3.0)]
    audio = ConversationAudio(turns, [], [*burst, *answer], [3.0])
    assert levels(audio.bot_clips(0)) == [(7000, 1.0)]
    assert levels(audio.bot_clips(1)) == [(9000, 0.1)]


def test_who_typed_or_was_silent_has_no_clip() -> None:
    """Noise at the microphone does not belong to a typed turn."""
    audio = ConversationAudio([Turn(1, 1.0, 1.0, typed=1.0), spoken(5.0)], frames(4, (1.0, 2.0)), [], [])
    assert audio.user_clips(0) == audio.user_clips(1) == audio.bot_clips(0) == []


def test_a_new_sample_rate_begins_a_new_clip() -> None:
    """Each clip has one rate; nothing is resampled."""
    bot = [*frames(1, (0.5, 1.0)), *(frame for frame in frames(2, (1.0, 1.5), rate=2000) if frame.timestamp >= 1)]
    clips = ConversationAudio([spoken(0.1)], [], bot, []).bot_clips(0)
    assert [(clip.sample_rate_hz, round(clip.seconds, 2)) for clip in clips] == [(1000, 0.6), (2000, 0.58)]


def test_a_clip_is_a_wav_file() -> None:
    """The file is mono, and bit-exact."""
    with wave.open(io.BytesIO(Clip(b"\1\0\2\0", 24_000).wav())) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.readframes(9) == b"\1\0\2\0"


def test_latencies_of_spoken_turns_count_from_the_last_sound() -> None:
    """The bot's report comes later and is not used; a turn in which the bot spoke first has no latency."""
    greeting = Turn(None, 0.1, 0.1, text=0.1)
    turns = [greeting, spoken(1.2, final=2.5, text=2.6, spoke=2.9), spoken(6.3, final=7.4, text=7.5)]
    audio = ConversationAudio(turns, frames(8, (1.0, 2.0), (6.0, 7.0)), frames(10, (2.8, 4.0), (7.6, 9.0)), [])
    first, second = audio.latencies()
    assert (first.transcript, first.text, first.audio) == pytest.approx((0.52, 0.62, 0.82))
    assert (second.transcript, second.text, second.audio) == pytest.approx((0.42, 0.52, 0.62))


def test_latency_of_a_typed_turn_counts_from_its_acknowledgement() -> None:
    """So it is when the bot was speaking until it was interrupted."""
    turns = [Turn(1, 1.0, 1.0, typed=1.0, text=1.1), Turn(2, 5.0, 4.99, typed=5.0, text=5.2)]
    bot = frames(9, (1.2, 4.99), (5.1, 8.0))
    latencies = ConversationAudio(turns, [], bot, [4.99]).latencies()
    assert [(each.transcript, round(each.text or 0, 2), round(each.audio or 0, 2)) for each in latencies] == [
        (None, 0.1, 0.2),
        (None, 0.2, 0.1),
    ]


def test_without_audio_the_bots_word_is_taken() -> None:
    """A transport without audio still has latencies."""
    turns = [spoken(1.0, stopped=2.0, final=2.1, text=2.2, spoke=2.5), spoken(5.0, stopped=6.0, spoke=6.4)]
    first, second = ConversationAudio(turns, [], [], []).latencies()
    assert (first.transcript, first.text, first.audio) == pytest.approx((0.1, 0.2, 0.5))
    assert second.text is None
    assert second.audio == pytest.approx(0.4)
