"""Latencies of the bot."""

from __future__ import annotations

from array import array
from typing import Literal

import pytest

from rtvi_sync import Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.media import AudioFrame, ToneSource
from rtvi_sync.recording.latency import HEADERS, as_rows, audible_timestamps
from rtvi_sync.testing import EmbeddedBot, MeasuredClient, Measurement
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


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


def turn(text: str = "Hello", modality: Literal["text", "audio"] = "audio", **timings: float) -> Turn:
    """Return a turn of the user whose words ended at 10.0."""
    known = TurnTimings(user_stopped=10.0, **timings)
    return Turn(number=1, session=1, initiator="user", modality=modality, user_text=text, timings=known)


def test_rows_have_whole_milliseconds_and_a_median_for_each_way_of_asking() -> None:
    """An unknown latency is a dash and does not count for the median; a long question is cut."""
    rows = as_rows(
        [
            turn(transcribed=10.1004, first_token=10.2, first_audio=10.7),
            turn(transcribed=10.3),
            turn("a\nlong question, which goes on and on", "text", first_token=10.01),
            turn(transcribed=10.2),
        ],
        first=3,
    )
    assert rows == [
        ("3", "spoken", "Hello", "100", "200", "700"),
        ("4", "spoken", "Hello", "300", "-", "-"),
        ("5", "typed", "a long question, which …", "-", "10", "-"),
        ("6", "spoken", "Hello", "200", "-", "-"),
        ("median", "spoken", "", "200", "200", "700"),
        ("median", "typed", "", "-", "10", "-"),
    ]
    assert all(len(row) == len(HEADERS) for row in rows)
    assert as_rows([]) == []


@pytest.mark.parametrize("by", ["text", "voice"])
def test_all_tell_the_same(by: str) -> None:
    """Load tests and the turn itself have the same latencies."""
    measured: list[Measurement] = []
    with EmbeddedBot(transcripts=["Hello"]) as bot:
        client = MeasuredClient.for_url(bot.base_url, mic=False, speaker=False)
        client.on_measurement = measured.append
        with client:
            turn = client.ask("Hello" if by == "text" else ToneSource(440, 0.3), GUARD)
    parts = {each.name: each.seconds for each in measured if each.kind == "answer"}
    assert turn.time_to_first_audio == pytest.approx(parts["first audio"])
    assert turn.time_to_first_token == pytest.approx(parts["first text"])
    assert (turn.voice_to_voice == turn.time_to_first_audio) is (by == "voice")
