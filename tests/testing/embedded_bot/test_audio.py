"""Utterances in the user's audio, and the audio of replies."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.testing.embedded_bot.audio import (
    ReplyAudio,
    SpeechContinues,
    SpeechDetector,
    SpeechEvent,
    SpeechStarted,
    Utterance,
    echo,
    tones,
)
from tests.support.wavs import silence, tone

pytestmark = pytest.mark.inside

RATE = 16000


def detector(hangover: float = 0.6, max_speech: float = 60.0) -> SpeechDetector:
    return SpeechDetector(threshold=500, hangover=hangover, max_speech=max_speech)


def feed(vad: SpeechDetector, pcm: bytes, chunk: int = 640) -> list[SpeechEvent]:
    return [event for start in range(0, len(pcm), chunk) for event in vad.feed(pcm[start : start + chunk], RATE)]


def utterances(events: list[SpeechEvent]) -> list[Utterance]:
    return [event for event in events if isinstance(event, Utterance)]


def test_speech_between_silences_is_complete() -> None:
    """An utterance is the exact slice from just before the speech to just after it."""
    pcm = silence(1) + tone(1) + silence(1)

    events = feed(detector(), pcm)

    assert events == [
        SpeechStarted(),
        SpeechContinues(0.5),
        SpeechContinues(1.0),
        SpeechContinues(1.5),
        *utterances(events),
    ]
    assert [said.pcm for said in utterances(events)] == [silence(0.1) + tone(1) + silence(0.1)]


def test_a_pause_shorter_than_the_hangover_is_part_of_the_speech() -> None:
    """A pause for breath does not end an utterance."""
    pcm = tone(0.5) + silence(0.5) + tone(0.5) + silence(0.6)

    assert [said.pcm for said in utterances(feed(detector(), pcm))] == [
        tone(0.5) + silence(0.5) + tone(0.5) + silence(0.1)
    ]


def test_each_utterance_comes_by_itself() -> None:
    """After one utterance the next is detected from its own start."""
    said = utterances(feed(detector(), (tone(0.3) + silence(1)) * 3))

    assert [len(utterance.pcm) for utterance in said] == [
        len(silence(0.4)),
        len(silence(0.5)),
        len(silence(0.5)),
    ]


@pytest.mark.parametrize(
    "pcm",
    [
        pytest.param(silence(2), id="silence"),
        pytest.param(tone(2, amplitude=600), id="too-soft"),
        pytest.param((tone(0.03) + silence(0.5)) * 3, id="clicks"),
    ],
)
def test_what_is_no_speech(pcm: bytes) -> None:
    """Silence, hum below the threshold and clicks start no utterance."""
    assert feed(detector(), pcm) == []


def test_endless_noise_ends_at_the_limit() -> None:
    """Without a pause the utterance is cut, so that constant noise does not fill the memory."""
    said = utterances(feed(detector(max_speech=1.0), tone(2.5)))

    assert [round(utterance.duration, 2) for utterance in said] == [1.0, 1.0]


def test_speech_that_just_stops_coming_is_ended_by_the_caller() -> None:
    """Every sample up to the last is part of the utterance if the sender stops without sending silence."""
    vad = detector()
    pcm = tone(0.5) + b"\1\2"
    assert feed(vad, pcm) == [SpeechStarted(), SpeechContinues(0.5)]
    assert vad.speaking

    assert vad.end() == Utterance(pcm=pcm, sample_rate=RATE)
    assert not vad.speaking


def test_a_new_rate_ends_the_utterance() -> None:
    """Audio of two rates is never mixed into one utterance."""
    vad = detector()
    feed(vad, tone(0.5))

    events = list(vad.feed(tone(0.5, rate=8000) + silence(1, rate=8000), 8000))

    assert [(said.sample_rate, said.duration) for said in utterances(events)] == [(16000, 0.5), (8000, 0.6)]


@given(st.lists(st.integers(1, 20000), max_size=30))
def test_chunk_sizes_make_no_difference(sizes: list[int]) -> None:
    """Real time, bursts and odd frame sizes give the same events."""
    pcm = silence(0.2) + tone(0.4) + silence(0.9) + tone(0.2) + silence(0.7)
    vad, rest = detector(), pcm
    events: list[SpeechEvent] = []
    for size in sizes:
        events += vad.feed(rest[: 2 * size], RATE)
        rest = rest[2 * size :]
    events += vad.feed(rest, RATE)

    assert events == feed(detector(), pcm, len(pcm))


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
