"""Exports a recording as one OTLP/JSON request, which an OpenTelemetry collector accepts. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import attrs

from rtvi_sync import __version__

from .spans import CONVERSATION, SCOPE, Attributes, PlannedSpan, conversation_attributes, turn_span

if TYPE_CHECKING:
    from rtvi_sync import Turn

    from .recording import Recording

_INTERNAL: Final = 1  # SPAN_KIND_INTERNAL
_ERROR: Final = 2  # STATUS_CODE_ERROR
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def otlp(recording: Recording, turns: Sequence[Turn]) -> str:
    """Return an `ExportTraceServiceRequest` as JSON: spans for the conversation, its turns and their calls.

    Texts, arguments and results are left out. A recording always gets the same ids, so a collector that receives it
    twice stores it once.
    """
    digest = hashlib.sha256(json.dumps([recording.head, recording.rows], sort_keys=True).encode()).hexdigest()
    spans = _Spans(trace=digest[:32], start=_nanos_of(recording.head.get("wall")))
    ended = next((float(row["t"]) for row in recording.rows if row["kind"] == "end"), math.inf)
    spans.add(
        PlannedSpan(
            name=CONVERSATION,
            start=0.0,
            end=recording.seconds,
            attributes=conversation_attributes(spans.trace),
            children=[
                turn_span(turn, spans.trace, recording.seconds, is_cut=(turn.timings.ended or 0.0) >= ended)
                for turn in turns
            ],
        )
    )
    resource = {"attributes": _attributes({"service.name": SCOPE, "service.version": __version__})}
    scope = {"name": SCOPE, "version": __version__}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans.made}]}]}
    return json.dumps(request, ensure_ascii=False, indent=1) + "\n"


@attrs.define
class _Spans:
    """The spans of one trace.

    Attributes:
        trace: Id of the trace, in hex.
        start: Start of the recording, in nanoseconds since 1970.
        made: Finished spans in OTLP/JSON form.
    """

    trace: str
    start: int
    made: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, span: PlannedSpan, parent: str = "") -> None:
        """Add a span and its children."""
        span_id = hashlib.sha256(f"{self.trace} {len(self.made)}".encode()).hexdigest()[:16]
        self.made.append(
            {
                "traceId": self.trace,
                "spanId": span_id,
                **({"parentSpanId": parent} if parent else {}),
                "name": span.name,
                "kind": _INTERNAL,
                "startTimeUnixNano": self._nanos(span.start),
                "endTimeUnixNano": self._nanos(span.end),
                "attributes": _attributes(span.attributes),
                "events": [{"timeUnixNano": self._nanos(at), "name": name} for at, name in span.events],
                "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
            }
        )
        for child in span.children:
            self.add(child, span_id)

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
    """Return a wall-clock time in nanoseconds since 1970; 0 if the recording doesn't report its start."""
    try:
        moment = datetime.fromisoformat(str(wall).replace("Z", "+00:00"))
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
