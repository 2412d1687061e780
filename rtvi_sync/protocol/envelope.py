"""The JSON envelope around every RTVI message: ``{"id", "label", "type", "data"}``.

Everything received is untrusted: whatever the text is, `decode()` returns a message or raises `ProtocolError`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ProtocolError
from ..messages import RTVIMessage

try:
    from orjson import loads as _loads_fast  # the extra "speed"
except ImportError:
    _loads_fast = None  # type: ignore[assignment]

LABEL = "rtvi-ai"

# The deepest message seen from a bot has 8 levels. The limit keeps code that walks a payload recursively (a handler's
# json.dumps, a repr) from running into Python's own recursion limit of 1000.
MAX_DEPTH = 100
# A value of three characters takes twenty times as much once it is parsed. The largest message seen from a bot has some
# hundreds of values.
MAX_VALUES = 100_000
_VALUE_BYTES = 24
# orjson reserves twelve times what it parses, so the few large messages go to the standard library.
_MAX_FAST = 1_048_576
# A string may end with the text: if its end were insisted on, one without would be tried from each of its quotes.
_STRING_OR_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[,\[{]', re.DOTALL)
_LARGEST_ID = 2**64


class ForeignMessageError(ProtocolError):
    """Well-formed JSON that is not RTVI's: other label, or none. Such messages are skipped without a word."""


def encode(message: RTVIMessage) -> str:
    """The JSON text of `message`.

    Raises:
        TypeError: `data` holds something that is not JSON; the message says what.
        ValueError: `data` holds a NaN or infinity, or refers to itself.
    """
    try:
        return json.dumps(message.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ValueError(f"The data of the {message.type!r} message is nested too deeply") from None


def decode(text: str | bytes | bytearray) -> RTVIMessage:
    """The message in a JSON text.

    Raises:
        ForeignMessageError: the label is not RTVI's.
        ProtocolError: not JSON, not an envelope, or more than a message may hold.
    """
    if _has_too_many_values(text):
        raise ProtocolError(f"A message holds more than {MAX_VALUES} values")
    try:
        envelope = _loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and too large integers are ValueErrors
        raise ProtocolError(f"A message is not JSON: {_shorten(str(error))}") from None
    return from_json(envelope)


def weight(text: str | bytes | bytearray) -> int:
    """About how many bytes a JSON text takes once it is parsed, the text included."""
    return len(text) + _VALUE_BYTES * _marks(text)


def _marks(text: str | bytes | bytearray) -> int:
    """How many values there can be at most in a JSON text, save one. Costs next to nothing."""
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _has_too_many_values(text: str | bytes | bytearray) -> bool:
    if _marks(text) < MAX_VALUES:
        return False
    # It may be prose, with commas of its own. All that matters is ASCII.
    plain = text if isinstance(text, str) else text.decode("latin-1")
    marks = (match for match in _STRING_OR_MARK.finditer(plain) if plain[match.start()] != '"')
    return next(itertools.islice(marks, MAX_VALUES - 1, None), None) is not None


def _loads(text: str | bytes | bytearray) -> Any:
    if _loads_fast is not None and len(text) <= _MAX_FAST:
        try:
            return _loads_fast(text)
        except ValueError:
            pass  # the standard library takes more, such as NaN, which Python servers do send
    return json.loads(text)


def from_json(envelope: Any) -> RTVIMessage:
    """The message in a parsed JSON document. Raises as `decode()` does."""
    if not isinstance(envelope, Mapping):
        raise ProtocolError(f"A message is a JSON {_kind(envelope)}, not an object")
    if envelope.get("label") != LABEL:
        raise ForeignMessageError(f"A message has the label {_shorten(repr(envelope.get('label')))}, not {LABEL!r}")
    type_ = envelope.get("type")
    if not isinstance(type_, str) or not type_:
        raise ProtocolError(f"A message has the type {_shorten(repr(type_))}; it must be a non-empty string")
    id_ = envelope.get("id")
    if not isinstance(id_, str):
        # JSON-RPC habits: a number is as good an id as its text, and the reply is only looked up by it.
        is_number = isinstance(id_, int) and not isinstance(id_, bool) and abs(id_) < _LARGEST_ID
        id_ = str(id_) if is_number else None
    data = envelope.get("data")
    if is_too_deep(data):
        raise ProtocolError(f"The data of a {_shorten(type_)!r} message is nested more than {MAX_DEPTH} levels deep")
    return RTVIMessage(type=type_, data=data, id=id_)


def is_too_deep(document: Any) -> bool:
    """Whether a parsed JSON document has more than `MAX_DEPTH` levels."""
    level = [document] if isinstance(document, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _kind(value: Any) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names.get(type(value), "value")


def _shorten(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
