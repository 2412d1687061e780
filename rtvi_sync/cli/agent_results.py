"""The results of a coding agent's tools: a turn or an error as JSON, small enough for the agent's context. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync import ExpectationError, Turn
from rtvi_sync.conversation.turn import timeline_of
from rtvi_sync.protocol.text import encodable
from rtvi_sync.recording.percentiles import MEASURES
from rtvi_sync.recording.summary import turn_as_data

# Size limit of a result, in bytes of UTF-8.
_MAX_BYTES = 8000
# Length limits of a text, in characters. The first one that makes the result small enough applies.
_LIMITS = (4000, 1500, 600, 250, 100, 40, 16)
# A list keeps one item for this number of characters, but never fewer than the minimum.
_CHARACTERS_PER_ITEM = 25
_MIN_ITEMS = 4
# Fields that are never cut: words of this package, and the name of a file.
_WHOLE = ("kind", "status", "next", "recording")
# Fields of a call that the bot may send in any form.
_OF_ANY_FORM = ("arguments", "result")


def turn_result(turn: Turn, recording: str | None) -> dict[str, Any]:
    """Return a turn as plain data, with latencies in milliseconds.

    Args:
        turn: The turn.
        recording: File with the recording of its session; None if it is not recorded.
    """
    data = turn_as_data(turn)
    result = {
        "turn": turn.number,
        "status": turn.status,
        "user_text": turn.user_text,
        "bot_text": turn.bot_text,
        "spoken_text": turn.spoken_text,
        "calls": [_call(call) for call in data["calls"]],
        "errors": [error.message for error in turn.errors],
        "latencies_ms": {name: round(1000 * data[name]) for name in MEASURES if data[name] is not None},
        "timeline": _lines(timeline_of(turn)),
    }
    return result if recording is None else {**result, "recording": recording}


def failure_result(error: BaseException, next_step: str, recording: str | None) -> dict[str, Any]:
    """Return an error as plain data: the cause, the next step, and the turn in which it occurred.

    Args:
        error: Error that a tool raised.
        next_step: Advice to the agent.
        recording: See `turn_result()`.
    """
    turn: Turn | None = getattr(error, "turn", None)
    if isinstance(error, ExpectationError):
        unmet = ((error.expected, error.got, error.kind), *error.others)
        text = "; ".join(f"expected {expected}, but {got} [{kind}]" for expected, got, kind in unmet)
        failure = {"error": text, "kind": error.kind, "next": next_step, "timeline": _lines(error.timeline)}
        return failure if recording is None else {**failure, "recording": recording}
    result = {"error": str(error) or type(error).__name__, "kind": type(error).__name__, "next": next_step}
    return result if turn is None else {**result, "so_far": turn_result(turn, recording)}


def as_text(result: Mapping[str, Any]) -> str:
    """Return a result as JSON of at most 8,000 bytes. If fields had to be cut, the key `cut` says so."""
    for limit in _LIMITS:
        cutter = _Cutter(limit)
        shown = cutter.fields(result)
        if cutter.has_cut:
            shown["cut"] = f"texts to {limit} characters, lists to {cutter.items} items"
        text = json.dumps(shown, ensure_ascii=False, indent=1)
        if len(text.encode()) <= _MAX_BYTES:
            break
    return text


@attrs.define
class _Cutter:
    """Shortens the fields of a result.

    Attributes:
        limit: Length limit of a text, in characters.
        has_cut: True after a field was cut.
    """

    limit: int
    has_cut: bool = False

    @property
    def items(self) -> int:
        """The number of items that a list keeps."""
        return max(_MIN_ITEMS, self.limit // _CHARACTERS_PER_ITEM)

    def fields(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a result, or of a call in it."""
        return {name: self.field(name, value) for name, value in given.items()}

    def field(self, name: str, given: Any) -> Any:
        """Return the value of a field."""
        if name in _WHOLE and isinstance(given, str):
            return encodable(given)
        return self.json(given) if name in _OF_ANY_FORM else self.value(given)

    def value(self, given: Any) -> Any:
        """Return a text, list or call, shortened; any other value unchanged."""
        if isinstance(given, str):
            return self.text(given)
        if isinstance(given, list):
            return self.list_of_few(given)
        return self.fields(given) if isinstance(given, Mapping) else given

    def json(self, given: Any) -> Any:
        """Return a value of any form; the start of its JSON if it is long."""
        text = encodable(json.dumps(given, ensure_ascii=False))
        return self.text(text) if len(text) > self.limit else json.loads(text)

    def list_of_few(self, given: Sequence[Any]) -> list[Any]:
        """Return the first and the last items of a list."""
        left_out = len(given) - self.items
        if left_out <= 0:
            return [self.value(item) for item in given]
        self.has_cut = True
        head = self.items // 2
        kept = [self.value(item) for item in (*given[:head], *given[head + left_out :])]
        return [*kept[:head], f"... {left_out} more ...", *kept[head:]]

    def text(self, given: str) -> str:
        """Return the start of a text."""
        if len(given) > self.limit:
            self.has_cut = True
            given = given[: self.limit - 1] + "…"
        return encodable(given)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    seconds = call["seconds"]
    return {
        **{name: value for name, value in call.items() if name != "seconds"},
        "ms": None if seconds is None else round(1000 * seconds),
    }


def _lines(timeline: str) -> list[str]:
    return [line.strip() for line in timeline.splitlines()]
