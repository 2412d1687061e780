"""Audio of replies: the user's own voice, or a tone for each word."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest

from rtvi_sync.testing.embedded_bot.tones import ReplyAudio, echo, tones
from rtvi_sync.testing.embedded_bot.vad import Utterance

from .bot_client import RATE

pytestmark = pytest.mark.inside


def test_echo_is_bit_exact_at_the_users_rate() -> None:
    """The user's own audio is returned unchanged, its length divided among the words."""
    said = echo(Utterance(pcm=b"\1\2" * RATE, sample_rate=RATE), ["a", "b"], RATE)

    assert said == ReplyAudio(pcm=b"\1\2" * RATE, sample_rate=RATE, word_starts=(0.0, 0.5))


@pytest.mark.parametrize("rate", [8000, 24000, 44100])
def test_echo_at_another_rate_sounds_the_same(rate: int) -> None:
    """A ramp stays a ramp of the same length in time and the same values at its ends."""
    ramp = array("h", range(-16000, 16000, 2))

    said = echo(Utterance(pcm=ramp.tobytes(), sample_rate=RATE), ["a"], rate)
    samples = array("h", said.pcm)

    assert (said.sample_rate, len(samples)) == (rate, rate)
    assert (samples[0], list(samples)) == (-16000, sorted(samples))
    assert samples[-1] == pytest.approx(16000, abs=10)


def test_tones_differ_by_word_and_have_soft_edges() -> None:
    """A word has the same tone at any position and another word another; no tone starts with a click."""
    said = tones(["hello", "you", "hello"], 24000)
    starts = [round(start * 24000) * 2 for start in said.word_starts]
    first, second, third = said.pcm[: starts[1]], said.pcm[starts[1] : starts[2]], said.pcm[starts[2] :]
    samples = array("h", said.pcm)

    assert first == third != second
    assert max(map(abs, samples)) > 5000
    assert max(abs(after - before) for before, after in pairwise(samples)) < 2000
    assert samples[0] == samples[-1] == 0
