"""The events of a recording, as bars and marks on one time line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from ..conversation.record import TurnTimings
from ..protocol.recording_rows import TEST_FAILED

if TYPE_CHECKING:
    from rtvi_sync import Turn

    from .recording import Recording

Lane: TypeAlias = Literal["user-audio", "user", "model", "functions", "bot", "bot-audio", "marks"]

LANES: Final[dict[Lane, str]] = {
    "user-audio": "User's audio",
    "user": "User",
    "model": "Model",
    "functions": "Functions",
    "bot": "Bot",
    "bot-audio": "Bot's audio",
    "marks": "Marks",
}
"""The lanes in order, with their display names."""

# Seconds for which typed words, or a call without an end, are shown.
_SHORT: Final = 0.02
# Length limit for a quoted error, in characters.
_MAX_QUOTE: Final = 200


@attrs.frozen(kw_only=True)
class Bar:
    """Something that lasted for a time.

    Attributes:
        lane: Lane of the bar.
        start, end: Its limits, in seconds since the start of the recording.
        turn: Number of its turn; None if it belongs to none.
        text: Label for people.
        unheard: True if the bot was interrupted during it.
    """

    lane: Lane
    start: float
    end: float
    turn: int | None
    text: str
    unheard: bool = False


@attrs.frozen(kw_only=True)
class LaneMark:
    """Something that happened at one moment.

    Attributes:
        at: Time in seconds since the start of the recording.
        kind: Kind of the event.
        text: Label for people.
        turn: Number of its turn; None if it belongs to none.
    """

    at: float
    kind: Literal["interruption", "error", "lost", "mark", "failed", "end"]
    text: str
    turn: int | None = None


@attrs.frozen(kw_only=True)
class AnswerWait:
    """The user's wait for the answer of a turn, from `start` to `end`, and its name."""

    start: float
    end: float
    turn: int
    name: Literal["voice to voice", "first audio", "first token"]


def bars_of(recording: Recording, turns: Sequence[Turn]) -> list[Bar]:
    """Return the bars of all turns and of the language model's runs, ordered by start."""
    return sorted([*turn_bars(turns), *_model_bars(recording, turns)], key=lambda bar: bar.start)


def turn_bars(turns: Sequence[Turn]) -> list[Bar]:
    """Return the bars of both sides' speech and text, and of the function calls."""
    return [bar for turn in turns for bar in _bars_of_turn(turn)]


def _bars_of_turn(turn: Turn) -> Iterator[Bar]:
    timings = turn.timings
    user = user_span(turn)
    if user is not None:
        yield Bar(lane="user", start=user[0], end=user[1], turn=turn.number, text=turn.user_text or "(no transcript)")
    for call in turn.function_calls:
        if call.started is not None:
            end = _first(call.stopped, timings.ended, call.started + _SHORT)
            name = call.function_name or "(a function without a name)"
            text = f"{name} (cancelled)" if call.cancelled else name
            yield Bar(lane="functions", start=call.started, end=end, turn=turn.number, text=text)
    bot = bot_span(turn)
    if bot is not None:
        said = (turn.spoken_text if turn.interrupted else turn.bot_text) or ""
        yield Bar(lane="bot", start=bot[0], end=bot[1], turn=turn.number, text=said, unheard=turn.interrupted)


def user_span(turn: Turn) -> tuple[float, float] | None:
    """Return when the user's part of a turn started and ended; None if the user said nothing."""
    timings = turn.timings
    moments = [each for each in (timings.user_started, timings.user_stopped) if each is not None]
    if not moments and timings.user_stopped_reported is not None:
        moments = [timings.user_stopped_reported]
    if not moments:
        return None
    return min(moments), max(max(moments), min(moments) + _SHORT)


def bot_span(turn: Turn) -> tuple[float, float] | None:
    """Return when the bot started and stopped speaking (or writing) in a turn; None if it did neither."""
    timings = turn.timings
    starts = timings.first_audio, timings.bot_started_speaking, timings.first_token
    start = next((each for each in starts if each is not None), None)
    if start is None:
        return None
    end = _first(timings.interrupted_at, timings.bot_stopped_speaking, timings.ended, start)
    return start, max(end, start + _SHORT)


def _model_bars(recording: Recording, turns: Sequence[Turn]) -> Iterator[Bar]:
    started: float | None = None
    for row in recording.rows:
        kind = _type_of(row)
        if kind == "bot-llm-started" and started is None:
            started = row["t"]
        elif kind == "bot-llm-stopped" and started is not None:
            yield _model_bar(started, row["t"], turns)
            started = None
    if started is not None:  # the bot or the recording ended during the run
        yield _model_bar(started, recording.seconds, turns)


def _model_bar(start: float, end: float, turns: Sequence[Turn]) -> Bar:
    turn = turn_at(start, turns)
    return Bar(lane="model", start=start, end=max(end, start + _SHORT), turn=turn, text="the language model runs")


def turn_at(at: float, turns: Sequence[Turn]) -> int | None:
    """Return the number of the last turn that started before a moment."""
    begun = [turn.number for turn in turns if start_of(turn.timings) <= at]
    return begun[-1] if begun else None


def start_of(timings: TurnTimings) -> float:
    """Return the start of a turn; 0.0 if it has no timings."""
    return min((each for each in attrs.astuple(timings) if each is not None), default=0.0)


def end_of(timings: TurnTimings) -> float:
    """Return the last known moment of a turn; 0.0 if there is none."""
    return max((each for each in attrs.astuple(timings) if each is not None), default=0.0)


def waits_of(turns: Sequence[Turn]) -> list[AnswerWait]:
    """Return the user's wait in each turn, until the first audible reaction, or else the first text."""
    found = []
    for turn in turns:
        timings = turn.timings
        end = _maybe_first(timings.first_audio, timings.first_token)
        if timings.user_stopped is not None and end is not None:
            is_heard = timings.first_audio is not None
            spoken: Literal["voice to voice", "first audio"] = (
                "voice to voice" if turn.modality == "audio" else "first audio"
            )
            name: Literal["voice to voice", "first audio", "first token"] = spoken if is_heard else "first token"
            found.append(AnswerWait(start=timings.user_stopped, end=end, turn=turn.number, name=name))
    return found


def marks_of(recording: Recording, turns: Sequence[Turn]) -> list[LaneMark]:
    """Return the interruptions, errors, losses, marks and the end of the session, in the order of time."""
    found = _interruptions(turns)
    for row in recording.rows:
        mark = _mark_of(row)
        if mark is not None:
            found.append(attrs.evolve(mark, turn=turn_at(mark.at, turns) if mark.kind != "end" else None))
    return sorted(found, key=lambda mark: mark.at)


def turn_marks(turns: Sequence[Turn]) -> list[LaneMark]:
    """Return the interruptions and errors that turns alone report, without a recording."""
    errors = [
        LaneMark(at=entry.at, kind="error", text=entry.text, turn=turn.number)
        for turn in turns
        for entry in turn.timeline
        if entry.kind == "error"
    ]
    return [*_interruptions(turns), *errors]


def _interruptions(turns: Sequence[Turn]) -> list[LaneMark]:
    """Return the interruptions of turns. Bots report more, such as one before each typed text, which cut nothing."""
    return [
        LaneMark(at=turn.timings.interrupted_at, kind="interruption", text="the bot was interrupted", turn=turn.number)
        for turn in turns
        if turn.timings.interrupted_at is not None
    ]


def _mark_of(row: dict[str, Any]) -> LaneMark | None:
    at = float(row.get("t", 0.0))
    match row.get("kind"):
        case "mark":
            text = str(row.get("text", ""))
            return LaneMark(at=at, kind="failed" if text.startswith(TEST_FAILED) else "mark", text=text)
        case "lost":
            return LaneMark(at=at, kind="lost", text=loss_in_words(row))
        case "end":
            return LaneMark(at=at, kind="end", text=end_in_words(row))
        case "message" if _type_of(row) in ("error", "error-response"):
            data = row["message"].get("data")
            told = data if isinstance(data, dict) else {}
            return LaneMark(at=at, kind="error", text=str(told.get("error") or told.get("message") or "an error"))
        case _:
            return None


def loss_in_words(row: dict[str, Any]) -> str:
    """Return the text for a row of the kind "lost"."""
    what = {"in": "the bot's audio", "out": "the user's audio", "rows": "rows"}.get(str(row.get("side")), "data")
    why = str(row.get("why", "")).replace("_", " ")
    return f"{float(row.get('seconds') or 0.0):.2f} s of {what} are missing: {why}"


def failure_in_words(turn: Turn, rows: Iterable[dict[str, Any]]) -> str:
    """Return why a turn failed: errors, calls without a result, the end of the session; "" if it did not fail.

    Args:
        turn: Any turn.
        rows: Rows of its recording; empty without one.
    """
    if turn.status != "failed":
        return ""
    timings = turn.timings
    causes = [f"the bot reported {in_quotes(error.message)}" for error in turn.errors]
    causes += [
        f"the call of {call.function_name or 'a function'} {'was cancelled' if call.cancelled else 'has no result'}"
        for call in turn.function_calls
        if call.cancelled or call.stopped is None
    ]
    ends = [row for row in rows if row["kind"] == "end" and row["t"] == timings.ended]
    causes += map(end_in_words, ends)
    if not causes and timings.ended is not None:
        asked = _first(timings.user_stopped, timings.user_stopped_reported, timings.user_started, timings.ended)
        causes.append(f"no answer came within {timings.ended - asked:.1f} s")
    return "; ".join(causes)


def in_quotes(text: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return f"“{text if len(text) <= _MAX_QUOTE else text[:_MAX_QUOTE] + '…'}”"


def end_in_words(row: dict[str, Any]) -> str:
    """Return the text for a row of the kind "end"."""
    if row.get("initiator") is None:
        return "the recording was ended, and the session was not"
    by = {"client": "the client", "server": "the bot", "network": "the network"}.get(
        str(row.get("initiator")), str(row.get("initiator"))
    )
    code = "" if row.get("code") is None else f", code {row['code']}"
    error = f": {row['error']}" if row.get("error") else ""
    return f"the session was ended by {by}{code}{error}"


def _type_of(row: dict[str, Any]) -> str | None:
    """Return the type of a bot's message; None if the row is not a message."""
    if row.get("kind") != "message" or row.get("dir") != "in" or not isinstance(row.get("message"), dict):
        return None
    return str(row["message"].get("type"))


def _maybe_first(*moments: float | None) -> float | None:
    return next((each for each in moments if each is not None), None)


def _first(*moments: float | None) -> float:
    return next((each for each in moments if each is not None), 0.0)
