"""Notes on a conversation beside its words: calls, latencies, unheard text, and a summary. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from rtvi_sync import Turn
from rtvi_sync.protocol.text import one_line
from rtvi_sync.recording.percentiles import percentiles_of

_MAX_TEXT = 500  # length limit of the arguments, and of the unheard text, in characters
_NAMES = {"voice_to_voice": "voice to voice", "time_to_first_audio": "first audio", "time_to_first_token": "first text"}


def activity(turns: Sequence[Turn], *, is_bot_heard: bool = False) -> str:
    """Return the bot's current activity: "listening", "thinking", "calling NAME" or "speaking".

    Args:
        turns: Last turns, in order.
        is_bot_heard: True if its audio is not silent.
    """
    turn = next((turn for turn in reversed(turns) if turn.is_open), None)
    if turn is None:
        return "speaking" if is_bot_heard else "listening"
    speech = [entry.kind for entry in turn.timeline if entry.who == "bot" and entry.kind in ("speaks", "silent")]
    if speech and speech[-1] == "speaks":
        return "speaking"
    calls = [call for call in turn.function_calls if call.stopped is None and not call.cancelled]
    if calls:
        return f"calling {calls[-1].function_name or 'a function'}"
    timings = turn.timings
    is_asked = timings.user_stopped_reported or timings.acknowledged or timings.llm_started or turn.modality != "audio"
    return "thinking" if is_asked else "listening"


@attrs.define
class _Told:
    """The notes already given on a turn."""

    calls: int = 0
    end: bool = False


class Notes:
    """Notes on turns. Each note is given once."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}  # by the number of the turn

    def calls(self, turns: Iterable[Turn]) -> list[str]:
        """Return a line for each function call since the last time, once its arguments are known.

        Bots report the arguments after the name, or never.
        """
        lines: list[str] = []
        for turn in turns:
            told = self._told.setdefault(turn.number, _Told())
            for call in turn.function_calls[told.calls :]:
                if call.arguments is None and call.stopped is None and turn.is_open:
                    break
                told.calls += 1
                arguments = json.dumps(call.arguments, ensure_ascii=False, default=str) if call.arguments else ""
                lines.append(f"calls {call.function_name or 'a function'}({one_line(arguments, _MAX_TEXT)})")
        return lines

    def ends(self, turns: Iterable[Turn]) -> list[str]:
        """Return a line for each turn that ended since the last time, if it has anything notable."""
        lines = []
        for turn in turns:
            told = self._told.setdefault(turn.number, _Told())
            if not turn.is_open and not told.end:
                told.end = True
                if note := _end_of(turn):
                    lines.append(note)
        return lines


def _end_of(turn: Turn) -> str:
    parts = []
    if turn.initiator == "user":
        measure = next((name for name in _NAMES if getattr(turn, name) is not None), None)
        if measure is not None:
            parts.append(f"{_NAMES[measure]} {getattr(turn, measure):.2f} s")
    if turn.interrupted:
        rest = unheard(turn)
        parts.append(f"interrupted; not heard: {one_line(rest, _MAX_TEXT)}" if rest else "interrupted")
    elif turn.status == "failed":
        parts.append("no answer")
    return ", ".join(parts)


def unheard(turn: Turn) -> str:
    """Return the text that the bot wrote but did not speak; "" if there is none, or it is unknown."""
    if turn.spoken_exact is None or turn.bot_text is None or turn.spoken_text is None:
        return ""
    spoken = os.path.commonprefix([turn.bot_text, turn.spoken_text])  # noqa: RUF071 - characters are meant
    return turn.bot_text[len(spoken) :].strip()


def summary(turns: Sequence[Turn], seconds: float) -> str:
    """Return one line about a conversation: the number of turns, the speed of the answers, and the failures.

    Args:
        turns: Last turns, in order.
        seconds: Duration in seconds.
    """
    parts = [f"{_count(len(turns), 'turn')} in {clock(seconds)}"]
    measured = percentiles_of(turns)
    measure: Literal["voice_to_voice", "time_to_first_audio", "time_to_first_token"]
    for measure in ("voice_to_voice", "time_to_first_audio", "time_to_first_token"):
        of = measured[measure]
        if of.p50 is not None and of.max is not None:
            parts.append(f"{_NAMES[measure]} {of.p50:.2f} s (median), {of.max:.2f} s (slowest)")
            break
    if count := sum(turn.interrupted for turn in turns):
        parts.append(f"{count} interrupted")
    if count := sum(turn.status == "failed" for turn in turns):
        parts.append(f"{count} without an answer")
    if count := sum(len(turn.errors) for turn in turns):
        parts.append(_count(count, "error"))
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
