"""Latencies of the bot."""

from __future__ import annotations

from array import array

import attrs
import pytest

from rtvi_sync import Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.media import AudioFrame, ToneSource
from rtvi_sync.recording.latency import HEADERS, Latency, as_rows, audible_timestamps, of_turn
from rtvi_sync.testing import EmbeddedBot, MeasuredClient, Measurement
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


def test_the_latencies_of_a_turn() -> None:
    """Latencies are counted from the end of the user's turn, typed or spoken; a missing one is None."""
    timings = TurnTimings(user_stopped=10.0, transcribed=10.25, first_token=10.5, first_audio=11.0)
    turn = Turn(number=1, session=1, initiator="user", modality="audio", timings=timings)
    assert of_turn(turn) == Latency(transcript=0.25, text=0.5, audio=1.0)
    typed = TurnTimings(user_stopped=10.0, first_token=10.5)
    assert of_turn(attrs.evolve(turn, modality="text", timings=typed)) == Latency(text=0.5)
    assert of_turn(attrs.evolve(turn, timings=TurnTimings())) == Latency()


def test_quiet_frames_are_not_audible() -> None:
    """Silence, and noise far below the voice, are not audible."""
    levels = [0, 5, 100, 8000, 400, 7000, 100]
    frames = [
        AudioFrame(pcm=array("h", [level, -level] * 80).tobytes(), sample_rate_hz=8000, timestamp=float(at))
        for at, level in enumerate(levels)
    ]
    assert audible_timestamps(frames) == [3.0, 4.0, 5.0]
    assert audible_timestamps(frames[:2]) == []
    assert audible_timestamps([]) == []


def test_rows_have_whole_milliseconds_and_the_median_of_known_values() -> None:
    """An unknown latency is a dash and does not count for the median."""
    rows = as_rows(
        [
            Latency(transcript=0.1004, text=0.2, audio=0.7),
            Latency(transcript=0.3, text=None),
            Latency(transcript=0.2),
        ]
    )
    assert rows == [
        ("1", "100", "200", "700"),
        ("2", "300", "-", "-"),
        ("3", "200", "-", "-"),
        ("median", "200", "200", "700"),
    ]
    assert all(len(row) == len(HEADERS) for row in rows)
    assert as_rows([]) == []


@pytest.mark.parametrize("by", ["text", "voice"])
def test_all_tell_the_same(by: str) -> None:
    """The tables of demo, talk and notebook, load tests, and the turn itself have the same latencies."""
    measured: list[Measurement] = []
    with EmbeddedBot(transcripts=["Hello"]) as bot:
        client = MeasuredClient.for_url(bot.base_url, mic=False, speaker=False)
        client.on_measurement = measured.append
        with client:
            turn = client.ask("Hello" if by == "text" else ToneSource(440, 0.3), GUARD)
    parts = {each.name: each.seconds for each in measured if each.kind == "answer"}
    shown = of_turn(turn)
    assert turn.time_to_first_audio is not None
    assert shown.audio == turn.time_to_first_audio == pytest.approx(parts["first audio"])
    assert shown.text == turn.time_to_first_token == pytest.approx(parts["first text"])
    assert shown.transcript == turn.transcription
    assert (turn.voice_to_voice == turn.time_to_first_audio) is (by == "voice")
