"""A recording as one request of OTLP/JSON, by which a collector of OpenTelemetry takes its spans. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from rtvi_sync import __version__

from .lanes import end_of, start_of

if TYPE_CHECKING:
    from rtvi_sync import Turn

    from .recording import Recording

Attributes: TypeAlias = Mapping[str, str | bool | int | float]

_INTERNAL: Final = 1  # SPAN_KIND_INTERNAL
_ERROR: Final = 2  # STATUS_CODE_ERROR
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

CONVERSATION: Final = "conversation"
TURN: Final = "turn"


def conversation_attributes(conversation_id: str) -> Attributes:
    """Return the attributes of the span of a conversation, by the names of Pipecat's own traces and of OpenTelemetry's
    conventions for generative AI.
    """
    return {
        "conversation.id": conversation_id,
        "conversation.type": "voice",
        "gen_ai.conversation.id": conversation_id,
    }


def turn_attributes(turn: Turn, conversation_id: str, *, is_last: bool) -> Attributes:
    """Return the attributes of the span of a turn, by the same names.

    Args:
        turn: a turn that has ended.
        conversation_id: that of the conversation.
        is_last: the conversation ended before the turn was over.
    """
    latency = turn.time_to_first_audio
    return {
        "turn.number": turn.number,
        "turn.type": "conversation",
        "turn.was_interrupted": turn.interrupted,
        "turn.duration_seconds": end_of(turn.timings) - start_of(turn.timings),
        **({} if latency is None else {"turn.user_bot_latency_seconds": latency}),
        **({"turn.ended_by_conversation_end": True} if is_last else {}),
        "conversation.id": conversation_id,
        "gen_ai.conversation.id": conversation_id,
        "rtvi.turn.status": turn.status,
        "rtvi.turn.initiator": turn.initiator,
        **({} if turn.modality is None else {"rtvi.turn.modality": turn.modality}),
        **({} if turn.assumed is None else {"rtvi.turn.assumed": turn.assumed}),
    }


def call_attributes(name: str, tool_call_id: str | None) -> Attributes:
    """Return the attributes of the span of a call of a function, by the same names."""
    call_id = {} if tool_call_id is None else {"gen_ai.tool.call.id": tool_call_id}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **call_id}


def otlp(recording: Recording, turns: Sequence[Turn]) -> str:
    """Return an `ExportTraceServiceRequest` as JSON: a span for the conversation, its turns, and their calls.

    Texts, arguments and results are not in it. The same recording has the same ids each time, so that a collector which
    gets it twice has it once.
    """
    digest = hashlib.sha256(json.dumps([recording.head, recording.rows], sort_keys=True).encode()).hexdigest()
    spans = _Spans(trace=digest[:32], start=_nanos_of(recording.head.get("wall")))
    conversation_id = digest[:32]
    root = spans.add(CONVERSATION, 0.0, recording.seconds, conversation_attributes(conversation_id))
    for index, turn in enumerate(turns):
        is_last = index == len(turns) - 1 and turn.status in ("in_progress", "failed")
        begin = start_of(turn.timings)
        end = recording.seconds if turn.is_open else end_of(turn.timings)
        attributes = turn_attributes(turn, conversation_id, is_last=is_last)
        parent = spans.add(TURN, begin, end, attributes, parent=root, events=attrs.asdict(turn.timings))
        if turn.status == "failed" or turn.errors:
            spans.fail(turn.errors[0].message if turn.errors else "the session ended first")
        for call in turn.function_calls:
            if call.started is not None:
                name = call.function_name or "unknown"
                stopped = end if call.stopped is None else call.stopped
                spans.add(
                    f"execute_tool {name}", call.started, stopped, call_attributes(name, call.tool_call_id), parent
                )
    resource = {"attributes": _attributes({"service.name": "rtvi_sync", "service.version": __version__})}
    scope = {"name": "rtvi_sync", "version": __version__}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans.made}]}]}
    return json.dumps(request, ensure_ascii=False, indent=1) + "\n"


@attrs.define
class _Spans:
    """The spans of one trace.

    Attributes:
        trace: its id, in hex.
        start: nanoseconds since 1970 at which the recording began.
        made: the spans as OTLP/JSON has them.
    """

    trace: str
    start: int
    made: list[dict[str, Any]] = attrs.field(factory=list)

    def add(
        self,
        name: str,
        start: float,
        end: float,
        attributes: Attributes,
        parent: str = "",
        events: Mapping[str, float | None] | None = None,
    ) -> str:
        """Add a span, and return its id."""
        span_id = hashlib.sha256(f"{self.trace} {len(self.made)}".encode()).hexdigest()[:16]
        moments = sorted((at, event) for event, at in (events or {}).items() if at is not None)
        self.made.append(
            {
                "traceId": self.trace,
                "spanId": span_id,
                **({"parentSpanId": parent} if parent else {}),
                "name": name,
                "kind": _INTERNAL,
                "startTimeUnixNano": self._nanos(start),
                "endTimeUnixNano": self._nanos(max(start, end)),
                "attributes": _attributes(attributes),
                "events": [{"timeUnixNano": self._nanos(at), "name": event} for at, event in moments],
                "status": {},
            }
        )
        return span_id

    def fail(self, message: str) -> None:
        """Note that what the last span stands for has failed."""
        self.made[-1]["status"] = {"code": _ERROR, "message": message}

    def _nanos(self, seconds: float) -> str:
        return str(self.start + round(1e9 * seconds))


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | bool | int | float) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _nanos_of(wall: object) -> int:
    """Return nanoseconds since 1970; 0 if the recording does not tell when it began."""
    try:
        moment = datetime.fromisoformat(str(wall).replace("Z", "+00:00"))
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
