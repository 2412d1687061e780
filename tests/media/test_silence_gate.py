"""The pauses of a voice that is sent without end."""

from __future__ import annotations

import pytest

from rtvi_sync.media.pcm import bytes_of
from rtvi_sync.media.silence_gate import SilenceGate

pytestmark = pytest.mark.inside

RATE = 24000
SILENCE, ECHO, SPEECH = bytes(960), bytes_of([-2, 2] * 240), bytes_of([-3, 40] * 240)


def passed(gate, *frames):
    return [gate.passes(frame, RATE) for frame in frames]


def test_nothing_before_the_first_word():
    """A bot that has not spoken yet sends silence, which is nothing."""
    assert passed(SilenceGate(), SILENCE, ECHO, SPEECH) == [False, False, True]


def test_a_pause_of_a_moment_stays():
    """0.3 s of silence pass, and no more until the next word; a codec may leave the last bit."""
    gate = SilenceGate()
    assert passed(gate, SPEECH, *[SILENCE, ECHO] * 10) == [True, *[True] * 15, *[False] * 5]
    assert passed(gate, SPEECH, SILENCE) == [True, True]


def test_old_speech_after_an_interruption():
    """Audio in flight is dropped, up to 0.2 s or the next silence."""
    gate = SilenceGate()
    passed(gate, SPEECH)
    gate.interrupted()
    assert passed(gate, *[SPEECH] * 12) == [*[False] * 10, True, True]
    gate.interrupted()
    assert passed(gate, SPEECH, SILENCE, SPEECH) == [False, True, True]


def test_an_interruption_of_a_silent_bot():
    """The next word of a bot that was interrupted in silence is heard at once, with or without silence before it."""
    for silence in ([], [SILENCE]):
        gate = SilenceGate()
        gate.interrupted()
        assert passed(gate, *silence, SPEECH)[-1]
        passed(gate, *[SILENCE] * 11)
        gate.interrupted()
        assert passed(gate, *silence, SPEECH)[-1]


def test_a_bot_that_sends_nothing_after_an_interruption():
    """Later speech is heard from its first word on: no audio is in flight for so long."""
    now = [100.0]
    gate = SilenceGate(clock=lambda: now[0])
    passed(gate, SPEECH)
    gate.interrupted()
    now[0] += 0.5
    assert passed(gate, SPEECH) == [False]
    now[0] += 10.0
    assert passed(gate, SPEECH) == [True]
