"""Recordings as plain data: what `rtvi-sync show --json` prints, and what its page is made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from .compare import Comparison
from .percentiles import MEASURES, percentiles_of

if TYPE_CHECKING:
    from rtvi_sync import Turn
    from rtvi_sync.conversation.record import ReportedFunctionCall

    from .recording import Recording


def summary(recordings: Sequence[Recording], comparison: Comparison | None = None) -> dict[str, Any]:
    """Return the turns of recordings, the percentiles over all, and how they compare with a baseline.

    Args:
        recordings: in the order in which they are told.
        comparison: with a baseline; None: there is none.
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
    """Return what was said and called in a turn, and its latencies in seconds."""
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
    """Return the questions that were not compared, because one side alone has them."""
    if comparison is None:
        return {"before": [], "after": []}
    return {"before": list(comparison.only_before), "after": list(comparison.only_after)}
