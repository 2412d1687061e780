"""The JSON envelope around every RTVI message: ``{"id", "label", "type", "data"}``.

Everything received is untrusted: whatever the text is, `decode()` returns a message or raises `ProtocolError`.
"""

from __future__ import annotations

import enum
import itertools
import json
import re
from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Any, TypeAlias

from ..errors import ProtocolError
from ..messages import RTVIMessage

_raw_decode = json.JSONDecoder().raw_decode


def _loads_bare(text: str | bytes | bytearray) -> Any:
    """What `json.loads()` returns, without the looks for white space around the document, which take as long again."""
    if type(text) is str:
        try:
            document, end = _raw_decode(text)
        except ValueError:
            pass
        else:
            if end == len(text):
                return document
    return json.loads(text)


def _as_json(value: Any) -> Any:
    """What orjson makes of an enum's member or a UUID without being asked to, so that both write the same."""
    import uuid  # hardly anybody needs it

    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_json).encode


def _dumps_bare(document: Any) -> bytes:
    return _to_text(document).encode()


try:
    import orjson  # the extra "speed"
except ImportError:
    _loads_fast: Callable[[str | bytes | bytearray], Any] = _loads_bare
    _dumps_fast = _dumps_bare
else:
    _loads_fast = orjson.loads
    _PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

    def _dumps_fast(document: Any) -> bytes:
        """What the standard library writes, sooner."""
        try:
            written = orjson.dumps(document, option=_PLAIN)
        except TypeError:  # keys that are no strings, integers beyond 64 bits, subclasses; or it is no JSON
            return _dumps_bare(document)
        # Where the standard library refuses a number that is none, it writes null.
        return written if b"null" not in written else _dumps_bare(document)


Content: TypeAlias = tuple[str, Any, str | None]
"""The type, the data and the id of a message."""

LABEL = "rtvi-ai"

# The deepest message seen from a bot has 8 levels. The limit keeps code that walks a payload recursively (a handler's
# json.dumps, a repr) from running into Python's own recursion limit of 1000.
MAX_DEPTH = 100
# A text of so many characters cannot open and close more levels.
_SHALLOW = 2 * MAX_DEPTH
# A value of three characters takes twenty times as much once it is parsed. The largest message seen from a bot has some
# hundreds of values.
MAX_VALUES = 100_000
_VALUE_BYTES = 24
# To count the values of a small text would cost more than to parse it.
_SMALL = 256
_SMALL_GROWS = 4
# orjson reserves twelve times what it parses, so the few large messages go to the standard library.
_MAX_FAST = 1_048_576
# A string may end with the text: if its end were insisted on, one without would be tried from each of its quotes.
_STRING_OR_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[,\[{]', re.DOTALL)
_LARGEST_ID = 2**64


class ForeignMessageError(ProtocolError):
    """Well-formed JSON that is not RTVI's: other label, or none. Such messages are skipped without a word."""


def encode(message: RTVIMessage) -> bytes:
    """The JSON text of `message`, in UTF-8.

    Raises:
        TypeError: `data` holds something that is not JSON; the message says what.
        ValueError: `data` holds a NaN, an infinity or half a character, or refers to itself.
    """
    try:
        return _dumps_fast(message.to_dict())
    except RecursionError:
        raise ValueError(f"The data of the {message.type!r} message is nested too deeply") from None


def decode(text: str | bytes | bytearray) -> RTVIMessage:
    """The message in a JSON text. Raises as `open_text()` does."""
    return RTVIMessage(*open_text(text))


def open_text(text: str | bytes | bytearray) -> Content:
    """What a JSON text says; no message is made of it.

    Raises:
        ForeignMessageError: the label is not RTVI's.
        ProtocolError: not JSON, not an envelope, or more than a message may hold.
    """
    size = len(text)
    if size > MAX_VALUES and _has_too_many_values(text):
        raise ProtocolError(f"A message holds more than {MAX_VALUES} values")
    try:
        envelope = _loads_fast(text) if size <= _MAX_FAST else _loads_slowly(text)
    except (ValueError, RecursionError):
        envelope = _loads_slowly(text)
    # What nearly every message is, is seen at a glance; what is anything else, or wrong, open_document() finds out.
    if size < _SHALLOW and type(envelope) is dict and envelope.get("label") == LABEL:
        type_, id_ = envelope.get("type"), envelope.get("id")
        if type(type_) is str and type_ and (id_ is None or type(id_) is str):
            return type_, envelope.get("data"), id_
    return open_document(envelope)


def weight(text: str | bytes | bytearray) -> int:
    """About how many bytes a JSON text takes once it is parsed, the text included."""
    size = getsizeof(text)  # of one with an emoji each character takes four bytes
    return _SMALL_GROWS * size if size <= _SMALL else size + _VALUE_BYTES * _marks(text)


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


def _loads_slowly(text: str | bytes | bytearray) -> Any:
    """The standard library takes more than orjson, such as NaN, which Python servers do send."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and too large integers are ValueErrors
        raise ProtocolError(f"A message is not JSON: {_shorten(str(error))}") from None


def open_document(envelope: Any) -> Content:
    """What a parsed JSON document says. Raises as `open_text()` does."""
    if type(envelope) is not dict and not isinstance(envelope, Mapping):
        raise ProtocolError(f"A message is a JSON {_kind(envelope)}, not an object")
    if envelope.get("label") != LABEL:
        raise ForeignMessageError(f"A message has the label {_shorten(repr(envelope.get('label')))}, not {LABEL!r}")
    type_ = envelope.get("type")
    if not isinstance(type_, str) or not type_:
        raise ProtocolError(f"A message has the type {_shorten(repr(type_))}; it must be a non-empty string")
    id_ = envelope.get("id")
    if id_ is not None and not isinstance(id_, str):
        # JSON-RPC habits: a number is as good an id as its text, and the reply is only looked up by it.
        is_number = isinstance(id_, int) and not isinstance(id_, bool) and abs(id_) < _LARGEST_ID
        id_ = str(id_) if is_number else None
    data = envelope.get("data")
    if is_too_deep(data):
        raise ProtocolError(f"The data of a {_shorten(type_)!r} message is nested more than {MAX_DEPTH} levels deep")
    return type_, data, id_


def is_too_deep(document: Any) -> bool:
    """Whether a parsed JSON document has more than `MAX_DEPTH` levels."""
    if isinstance(document, dict):
        for value in document.values():
            if isinstance(value, (dict, list)):
                break
        else:
            return False  # as most data is
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
