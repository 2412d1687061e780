"""The JSON envelope around every RTVI message: ``{"id", "label", "type", "data"}``.

All received data is untrusted: for any text, `decode()` returns a message or raises `ProtocolError`.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
import re
from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Any, TypeAlias

from ..errors import ProtocolError
from .json_faults import find_fault
from .message import RTVIMessage
from .text import one_line, quoted

_raw_decode = json.JSONDecoder().raw_decode


def _loads_bare(text: str | bytes | bytearray) -> Any:
    """Parse like `json.loads()`, but skip its checks for surrounding white space, which double the time."""
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
    """Convert an enum's member or a UUID as orjson does by itself, so that both encoders write the same text."""
    import uuid  # rarely needed

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
        """Encode like `_dumps_bare()`, but faster."""
        try:
            written = orjson.dumps(document, option=_PLAIN)
        except TypeError:  # keys that are not strings, integers beyond 64 bits, subclasses; or not JSON
            return _dumps_bare(document)
        # For NaN and infinities orjson writes null, where the standard library raises.
        return written if b"null" not in written else _dumps_bare(document)


Content: TypeAlias = tuple[str, Any, str | None]
"""The type, the data and the id of a message."""

LABEL = "rtvi-ai"

# The deepest message seen from a bot has 8 levels. The limit keeps recursive code (a handler's json.dumps, a repr) away
# from Python's own recursion limit of 1000.
MAX_DEPTH = 100
# A text with at most this many characters cannot have more levels.
_SHALLOW = 2 * MAX_DEPTH
# A value of three characters takes twenty times its memory once it is parsed. The largest message seen from a bot has
# some hundreds of values.
MAX_VALUES = 100_000
_VALUE_BYTES = 24
# For a text of at most this many bytes, counting the values would take longer than parsing it.
_SMALL = 256
_SMALL_GROWS = 4
# orjson allocates twelve times the size of its input, so the few large messages are parsed by the standard library.
_MAX_FAST = 1_048_576
# The closing quote is optional. Otherwise an unterminated string would be searched again from each of its quotes.
_STRING_OR_MARK = r'"[^"\\]*(?:\\.[^"\\]*)*"?|[,\[{]'
_LARGEST_ID = 2**64

# A message over a limit is not parsed, but a call may wait for it. Its type and id are before or after the data.
_WINDOW = 1024  # the number of characters to search at either end
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_SCALAR_MEMBER = rf'\s*{_STRING}\s*:\s*(?:{_STRING}|[^\s"\[{{,\]}}]+)\s*'
_FIRST_MEMBERS = rf"\s*\{{((?:{_SCALAR_MEMBER},)*)"
_LAST_MEMBERS = rf"((?:,{_SCALAR_MEMBER})+)\}}\s*\Z"


class ForeignMessageError(ProtocolError):
    """Well-formed JSON with a label other than RTVI's, or none. Such messages are skipped without a warning."""


class LimitError(ProtocolError):
    """A message over a limit of this client. `type` and `id` are the message's. None: not readable."""

    def __init__(self, message: str, type: str | None, id: str | None) -> None:
        super().__init__(message)
        self.type = type
        self.id = id


def encode(message: RTVIMessage) -> bytes:
    """Return the JSON text of `message`, in UTF-8. Raises as `to_json()` does."""
    return to_json(message.to_dict())


def to_json(document: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON text of `document`, in UTF-8.

    Args:
        document: The data to send.
        given: The application's data from which it is made, by the name to use in errors. None: `document`.

    Raises:
        TypeError: It contains an object that is not JSON. The text names its place and its type.
        ValueError: It contains a NaN, an infinity, a lone surrogate, a circular reference or too many levels. The text
            names the place.
    """
    try:
        return _dumps_fast(document)
    except (TypeError, ValueError, RecursionError) as error:
        fault = find_fault(document if given is None else given, _dumps_bare)
        if fault is None:
            raise ValueError(f"The data cannot be written as JSON: {one_line(str(error))}") from None
    raise fault


def decode(text: str | bytes | bytearray) -> RTVIMessage:
    """Return the message in a JSON text. Raises as `parse_text()` does."""
    return RTVIMessage(*parse_text(text))


def parse_text(text: str | bytes | bytearray) -> Content:
    """Return the content of a JSON text, without making a message of it.

    Raises:
        ForeignMessageError: The label is not RTVI's.
        LimitError: The message is over a limit.
        ProtocolError: The text is not JSON, or not an envelope.
    """
    envelope = parse_json(text)
    # A fast path for nearly every message; open_document() handles all others and the errors.
    if len(text) < _SHALLOW and type(envelope) is dict and envelope.get("label") == LABEL:
        type_, id_ = envelope.get("type"), envelope.get("id")
        if type(type_) is str and type_ and (id_ is None or type(id_) is str):
            return type_, envelope.get("data"), id_
    return open_document(envelope)


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the document in a JSON text of a peer, of any depth that Python parses.

    Raises:
        ProtocolError: The text is not JSON, or over a limit.
    """
    size = len(text)
    if size > MAX_VALUES and has_too_many_values(text):
        raise _over_limit(text, f"more than {MAX_VALUES} values (MAX_VALUES)")
    try:
        return _loads_fast(text) if size <= _MAX_FAST else _loads_slowly(text)
    except (ValueError, RecursionError):
        return _loads_slowly(text)


def estimated_size(text: str | bytes | bytearray) -> int:
    """Return about how many bytes a JSON text takes once it is parsed, including the text."""
    size = getsizeof(text)  # not the length, because in a text with an emoji each character takes four bytes
    return _SMALL_GROWS * size if size <= _SMALL else size + _VALUE_BYTES * _marks(text)


def _marks(text: str | bytes | bytearray) -> int:
    """Return the maximum number of values in a JSON text, minus one. Fast."""
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def has_too_many_values(text: str | bytes | bytearray) -> bool:
    """Return whether a JSON text has more than `MAX_VALUES` values. Fast, because it does not parse the text."""
    if _marks(text) < MAX_VALUES:
        return False
    # Commas in strings do not count. Decoding as Latin-1 is enough, because the marks are ASCII.
    plain = text if isinstance(text, str) else text.decode("latin-1")
    marks = (match for match in re.finditer(_STRING_OR_MARK, plain, re.DOTALL) if plain[match.start()] != '"')
    return next(itertools.islice(marks, MAX_VALUES - 1, None), None) is not None


def _loads_slowly(text: str | bytes | bytearray) -> Any:
    """Parse by the standard library, which accepts more than orjson, such as NaN, which Python servers do send."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"A message is not JSON: {one_line(str(error))}") from None
    except RecursionError:
        raise _over_limit(text, f"more than {MAX_DEPTH} levels (MAX_DEPTH)") from None
    except ValueError:
        raise _over_limit(text, "a number of more digits than Python takes (sys.set_int_max_str_digits())") from None


def _over_limit(text: str | bytes | bytearray, held: str) -> ProtocolError:
    """Return the error for a text that is not parsed, with the type and id from its first and last members.

    A nested member is not mistaken for one of the envelope's: no bracket lies between the members of the envelope and
    the ends of the text.
    """
    first, last = (
        part if isinstance(part, str) else part.decode(errors="replace") for part in (text[:_WINDOW], text[-_WINDOW:])
    )
    head, tail = re.match(_FIRST_MEMBERS, first, re.DOTALL), re.search(_LAST_MEMBERS, last, re.DOTALL)
    members: dict[str, Any] = {}
    for found in (head[1][:-1] if head is not None else "", tail[1][1:] if tail is not None else ""):
        with contextlib.suppress(ValueError):
            members |= json.loads(f"{{{found}}}")
    if members.get("label", LABEL) != LABEL:
        return ForeignMessageError(f"A message of another label than {LABEL!r} holds {held}")
    labelled = LABEL in text if isinstance(text, str) else LABEL.encode() in text
    if head is None or not labelled:
        return ProtocolError(f"A message is no JSON object with the label {LABEL!r}, and holds {held}")
    type_ = members.get("type")
    return LimitError(f"A message holds {held}", type_ if isinstance(type_, str) else None, _id_of(members.get("id")))


def open_document(envelope: Any) -> Content:
    """Return the content of a parsed JSON document. Raises as `parse_text()` does."""
    if type(envelope) is not dict and not isinstance(envelope, Mapping):
        raise ProtocolError(f"A message is a JSON {_kind(envelope)}, not an object")
    if envelope.get("label") != LABEL:
        raise ForeignMessageError(f"A message has the label {quoted(envelope.get('label'))}, not {LABEL!r}")
    type_ = envelope.get("type")
    if not isinstance(type_, str) or not type_:
        raise ProtocolError(f"A message has the type {quoted(type_)}; it must be a non-empty string")
    id_ = envelope.get("id")
    if id_ is not None and not isinstance(id_, str):
        id_ = _id_of(id_)
    data = envelope.get("data")
    if is_too_deep(data):
        raise too_deep(type_, id_)
    return type_, data, id_


def too_deep(type_: str, id_: str | None) -> LimitError:
    """Return the error for a message whose data `is_too_deep()`."""
    return LimitError(f"A {quoted(type_)} message holds more than {MAX_DEPTH} levels (MAX_DEPTH)", type_, id_)


def _id_of(value: Any) -> str | None:
    """Return an id as a string. A number counts as its text, as in JSON-RPC, because ids are only looked up."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_ID
    return value if isinstance(value, str) else str(value) if is_number else None


def is_too_deep(document: Any) -> bool:
    """Return whether a parsed JSON document has more than `MAX_DEPTH` levels."""
    if isinstance(document, dict):
        for value in document.values():
            if isinstance(value, (dict, list)):
                break
        else:
            return False  # the case of most data
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
