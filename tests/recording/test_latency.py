"""Latencies of the bot."""

from __future__ import annotations

from array import array

from rtvi_sync.media import AudioFrame
from rtvi_sync.recording.latency import HEADERS, Latency, as_rows, audible_timestamps, measure


def every_20_ms(begin: float, end: float) -> list[float]:
    """Return the timestamps of continuous audio."""
    return [begin + 0.02 * index for index in range(round((end - begin) / 0.02))]


def rounded(latency: Latency) -> tuple[float | None, ...]:
    """Return the latencies to transcript, text and audio, rounded to milliseconds."""
    return tuple(
        None if value is None else round(value, 3) for value in (latency.transcript, latency.text, latency.audio)
    )


def test_each_turn_is_measured_from_the_end_of_its_audio() -> None:
    """A reaction counts for one utterance only; of transcripts the last final one counts, of the rest the first."""
    user = [*every_20_ms(10.1, 11.02), *every_20_ms(20.1, 22.02)]  # the last audio of each is sent at 11.0 and 22.0
    bot = [*every_20_ms(11.9, 13.0), *every_20_ms(22.7, 23.0)]
    latencies = measure([10.0, 20.0], user, bot, [10.5, 11.3, 11.4, 22.2], [11.6, 11.7, 22.4, 22.5])
    assert [rounded(latency) for latency in latencies] == [(0.4, 0.6, 0.9), (0.2, 0.4, 0.7)]


def test_a_reaction_that_did_not_come_is_none() -> None:
    """A bot that sends no transcripts, text or audio, and an utterance that was not sent, have no latencies."""
    assert measure([10.0, 20.0], every_20_ms(10.1, 11.0), [], [], []) == [Latency(), Latency()]
    assert measure([], [], [], [], []) == []


def test_continuing_audio_is_no_reaction() -> None:
    """The next frame of an echo, or of a bot that speaks all the time, is no reaction."""
    user = every_20_ms(10.0, 11.02)
    echo = every_20_ms(10.1, 11.12)
    assert rounded(measure([10.0], user, echo, [], [])[0]) == (None, None, None)
    assert rounded(measure([10.0], user, [*echo, *every_20_ms(12.0, 13.0)], [], [])[0]) == (None, None, 1.0)


def test_audio_after_an_interruption_is_a_reaction() -> None:
    """An interruption ends the bot's utterance, however short the pause is."""
    bot = [*every_20_ms(9.0, 10.0), *every_20_ms(10.1, 11.0)]
    assert rounded(measure([10.02], [10.02], bot, [], [])[0]) == (None, None, None)
    assert rounded(measure([10.02], [10.02], bot, [], [], [10.01])[0]) == (None, None, 0.08)


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
