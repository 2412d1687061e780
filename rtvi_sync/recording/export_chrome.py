"""Exports a recording as a trace for chrome://tracing and Perfetto. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .lanes import LANES, Bar, bars_of, marks_of, waits_of

if TYPE_CHECKING:
    from rtvi_sync import Turn

    from .recording import Recording

_PROCESS: Final = 1
_THREADS: Final = {lane: number for number, lane in enumerate(LANES, 1)}


def chrome_trace(recording: Recording, turns: Sequence[Turn], name: str) -> str:
    """Return a trace with a thread for each lane, as JSON.

    Args:
        recording: Recording to export.
        turns: Its turns.
        name: Name of the process in the trace.
    """
    events: list[dict[str, Any]] = [_named("process_name", name, 0)]
    events += [_named("thread_name", LANES[lane], thread) for lane, thread in _THREADS.items()]
    # Waits share the bot's thread, because the bot is silent during a wait.
    waits = [
        Bar(lane="bot", start=wait.start, end=wait.end, turn=wait.turn, text=wait.name)
        for wait in waits_of(turns)
        if wait.end >= wait.start
    ]
    for bar in sorted([*bars_of(recording, turns), *waits], key=lambda bar: bar.start):
        duration = _micros(bar.end) - _micros(bar.start)
        events.append({**_event(bar.text, "X", bar.start, _THREADS[bar.lane], bar.turn), "dur": duration})
    for mark in marks_of(recording, turns):
        text = f"{mark.kind}: {mark.text}"
        events.append({**_event(text, "i", mark.at, _THREADS["marks"], mark.turn), "s": "p"})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, ensure_ascii=False) + "\n"


def _named(what: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _event(name: str, phase: str, at: float, thread: int, turn: int | None) -> dict[str, Any]:
    arguments = {} if turn is None else {"turn": turn}
    return {"ph": phase, "name": name, "pid": _PROCESS, "tid": thread, "ts": _micros(at), "args": arguments}


def _micros(seconds: float) -> int:
    return round(1e6 * seconds)
