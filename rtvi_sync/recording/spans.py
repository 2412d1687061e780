"""The spans of a conversation and the one table of their names, for the OTLP exporter and `rtvi_sync.otel`. Pure.

Turns have the names of Pipecat's own traces. The `gen_ai.` names are OpenTelemetry's conventions for generative AI,
which define none for voices. The `rtvi.` names are this package's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from .lanes import end_of, start_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtvi_sync import Turn

    from ..conversation.record import ReportedFunctionCall

Attributes: TypeAlias = "Mapping[str, str | bool | int | float]"

SCOPE: Final = "rtvi_sync"  # of the instrumentation

# Spans.
CONVERSATION: Final = "conversation"
CONNECT: Final = "connect"
TURN: Final = "turn"
TOOL: Final = "execute_tool"

# Attributes of a conversation, and the ids also of its turns.
CONVERSATION_ID: Final = "conversation.id"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
CONVERSATION_TYPE: Final = "conversation.type"

# Of a turn.
NUMBER: Final = "turn.number"
TYPE: Final = "turn.type"
WAS_INTERRUPTED: Final = "turn.was_interrupted"
DURATION: Final = "turn.duration_seconds"
LATENCY: Final = "turn.user_bot_latency_seconds"
ENDED_BY_CONVERSATION_END: Final = "turn.ended_by_conversation_end"
STATUS: Final = "rtvi.turn.status"
INITIATOR: Final = "rtvi.turn.initiator"
MODALITY: Final = "rtvi.turn.modality"
ASSUMED: Final = "rtvi.turn.assumed"

# Of a call of a function.
OPERATION: Final = "gen_ai.operation.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

# Words, arguments and results: recorded only if the application asks for them.
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
SPOKEN: Final = "rtvi.turn.spoken_text"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"


@attrs.frozen(kw_only=True)
class PlannedSpan:
    """A complete span.

    Attributes:
        name: Name of the span.
        start, end: Its limits in seconds, by the clock of the turns.
        attributes: Known values.
        events: Moments and names, in the order of time.
        error: Reason of the failure; None if nothing failed.
        children: Spans below it.
    """

    name: str
    start: float
    end: float
    attributes: Attributes
    events: Sequence[tuple[float, str]] = ()
    error: str | None = None
    children: Sequence[PlannedSpan] = ()


def conversation_attributes(conversation_id: str) -> Attributes:
    """Return the attributes of the span of a conversation."""
    return {**_ids(conversation_id), CONVERSATION_TYPE: "voice"}


def _ids(conversation_id: str) -> Attributes:
    return {CONVERSATION_ID: conversation_id, GEN_AI_CONVERSATION_ID: conversation_id}


def turn_span(
    turn: Turn, conversation_id: str, now: float, *, is_cut: bool = False, content: bool = False
) -> PlannedSpan:
    """Return the span of a turn, with its function calls as children.

    Args:
        turn: The turn.
        conversation_id: Id of its conversation.
        now: End of the span, for a turn in progress.
        is_cut: True if the conversation's end cut the turn. A turn in progress counts as cut anyway.
        content: True to include words, arguments and results.
    """
    start, end = start_of(turn.timings), end_of(turn.timings)
    end = max(end, now) if turn.is_open else end
    moments = attrs.asdict(turn.timings).items()
    failed = turn.errors[0].message if turn.errors else "there was no answer" if turn.status == "failed" else None
    return PlannedSpan(
        name=TURN,
        start=start,
        end=end,
        attributes={
            **_ids(conversation_id),
            **_turn_attributes(turn, end - start, is_cut=is_cut or turn.is_open),
            **(_turn_content(turn) if content else {}),
        },
        events=sorted((at, name) for name, at in moments if at is not None),
        error=failed,
        children=[
            _call_span(call, call.started, end, content=content)
            for call in turn.function_calls
            if call.started is not None
        ],
    )


def _turn_attributes(turn: Turn, seconds: float, *, is_cut: bool) -> Attributes:
    values: dict[str, str | bool | int | float | None] = {
        NUMBER: turn.number,
        TYPE: "conversation",
        WAS_INTERRUPTED: turn.interrupted,
        DURATION: seconds,
        LATENCY: turn.time_to_first_audio,
        ENDED_BY_CONVERSATION_END: is_cut or None,
        STATUS: turn.status,
        INITIATOR: turn.initiator,
        MODALITY: turn.modality,
        ASSUMED: turn.assumed,
    }
    return {name: value for name, value in values.items() if value is not None}


def _turn_content(turn: Turn) -> Attributes:
    values: dict[str, str] = {}
    if turn.user_text:
        values[INPUT] = _messages("user", turn.user_text)
    if turn.bot_text:
        values[OUTPUT] = _messages("assistant", turn.bot_text)
    if turn.interrupted and turn.spoken_text is not None:
        values[SPOKEN] = turn.spoken_text
    return values


def _messages(role: str, text: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _call_span(call: ReportedFunctionCall, start: float, turn_end: float, *, content: bool) -> PlannedSpan:
    name = call.function_name or "unknown"
    attributes = {OPERATION: TOOL, TOOL_NAME: name}
    if call.tool_call_id is not None:
        attributes[TOOL_CALL_ID] = call.tool_call_id
    if content and call.arguments is not None:
        attributes[TOOL_ARGUMENTS] = _json(call.arguments)
    if content and call.result is not None:
        attributes[TOOL_RESULT] = _json(call.result)
    end = turn_end if call.stopped is None else call.stopped
    return PlannedSpan(name=f"{TOOL} {name}", start=start, end=max(start, end), attributes=attributes)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
