"""Recordings as plain data, for the JSON, the tables and the page of `rtvi-sync show`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from .compare import Comparison
from .percentiles import MEASURES, percentiles_of

if TYPE_CHECKING:
    from rtvi_sync import Turn
    from rtvi_sync.conversation.record import ReportedFunctionCall

    from .recording import Recording

CHANGES: Final = ("ms", "verdict", "before", "after", "change", "95 % interval")
"""The headers of `change_rows()`; the first two columns are text."""

NOT_JUDGED: Final = "not judged: p50 needs 5 turns with the same questions on each side, p95 needs 20"


def summary(recordings: Sequence[Recording], comparison: Comparison | None = None) -> dict[str, Any]:
    """Return the turns of recordings, the percentiles over all turns, and the comparison with a baseline.

    Args:
        recordings: Recordings in display order.
        comparison: Comparison with a baseline; None without one.
    """
    turns = [turn for recording in recordings for turn in recording.turns()]
    return {
        "recordings": [_recording(recording) for recording in recordings],
        "percentiles": percentiles_as_data(turns),
        "baseline": None if comparison is None else _changes(comparison),
        "left_out": left_out(comparison),
    }


def _recording(recording: Recording) -> dict[str, Any]:
    return {
        "path": str(recording.path),
        "rtvi": recording.rtvi,
        "bot": recording.bot,
        "seconds": recording.seconds,
        "is_cut": recording.is_cut,
        "lost": list(recording.lost),
        "turns": [turn_as_data(turn) for turn in recording.turns()],
    }


def turn_as_data(turn: Turn) -> dict[str, Any]:
    """Return the words and calls of a turn, and its latencies in seconds."""
    return {
        "number": turn.number,
        "initiator": turn.initiator,
        "status": turn.status,
        "user_text": turn.user_text,
        "bot_text": turn.bot_text,
        "spoken_text": turn.spoken_text,
        "calls": [_call(call) for call in turn.function_calls],
        **{measure: getattr(turn, measure) for measure in MEASURES},
    }


def _call(call: ReportedFunctionCall) -> dict[str, Any]:
    seconds = None if call.started is None or call.stopped is None else call.stopped - call.started
    return {
        "name": call.function_name,
        "arguments": call.arguments,
        "result": call.result,
        "cancelled": call.cancelled,
        "seconds": seconds,
    }


def percentiles_as_data(turns: Sequence[Turn]) -> dict[str, dict[str, Any]]:
    """Return the percentiles of each latency."""
    return {measure: attrs.asdict(percentiles) for measure, percentiles in percentiles_of(turns).items()}


def _changes(comparison: Comparison) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        measure: {name: attrs.asdict(change) for name, change in changes.items()}
        for measure, changes in comparison.changes.items()
    }


def left_out(comparison: Comparison | None) -> dict[str, list[str]]:
    """Return the questions that were not compared because only one side has them."""
    if comparison is None:
        return {"before": [], "after": []}
    return {"before": list(comparison.only_before), "after": list(comparison.only_after)}


# -- tables -----------------------------------------------------------------------------------------------------------


def words_of(measure: str) -> str:
    """Return the name of a latency for a table: "first audio"."""
    return measure.removeprefix("time_to_").replace("_", " ")


def in_ms(seconds: float | None) -> str:
    """Return a duration for a table, in milliseconds."""
    return "-" if seconds is None else f"{1000 * seconds:.0f}"


def change_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return one row for each percentile of each latency, under `CHANGES`."""
    return [
        (
            f"{words_of(measure)} {name}",
            change.verdict.replace("_", " "),
            in_ms(change.before),
            in_ms(change.after),
            "-" if change.change is None else f"{1000 * change.change:+.0f}",
            "-" if change.low is None else f"{in_ms(change.low)} to {in_ms(change.high)}",
        )
        for measure, changes in comparison.changes.items()
        for name, change in changes.items()
    ]


def left_out_in_words(comparison: Comparison) -> list[str]:
    """Return a line for each side with questions that were not compared."""
    sides = left_out(comparison).items()
    return [
        f"not compared, because they were asked only {side}: {', '.join(map(repr, texts))}"
        for side, texts in sides
        if texts
    ]


def slower_in_words(comparison: Comparison) -> str:
    """Return the slower latencies: "first audio p50 by 150 ms (650 ms, was 500 ms)"; "" if there are none."""
    return ", ".join(
        f"{words_of(measure)} {name} by {in_ms(change.change)} ms ({in_ms(change.after)} ms, was "
        f"{in_ms(change.before)} ms)"
        for measure, changes in comparison.changes.items()
        for name, change in changes.items()
        if change.verdict == "slower"
    )
