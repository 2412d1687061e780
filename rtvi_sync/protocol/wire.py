"""The protobuf wire: every WebSocket message is one serialized ``pipecat.Frame``.

A frame is one of five messages with a few fields. This module reads and writes them itself, because importing the
protobuf library takes longer than importing half of this package.

All functions are pure and may be called on any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..errors import ProtocolError

# The kinds of a frame, and the fields of each, both in the order of their numbers, from 1. The values are the defaults
# of fields that are not sent.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "text": {"id": 0, "name": "", "text": ""},
    "audio": {"id": 0, "name": "", "audio": b"", "sample_rate": 0, "num_channels": 0, "pts": None},
    "transcription": {"id": 0, "name": "", "text": "", "user_id": "", "timestamp": ""},
    "message": {"data": ""},
    "interruption": {"id": 0, "name": ""},
}
_NAMES: Final = tuple(_KINDS)
_BITS: Final = {"id": 64, "sample_rate": 32, "num_channels": 32, "pts": 64}  # of the fields that are numbers

# The types of fields on the wire, the last three bits of a tag: a number, and bytes behind their size. For the others,
# which no known field has: the bytes that a value takes.
_VARINT, _BYTES = 0, 2
_OTHERS: Final = {1: 8, 5: 4}
_LARGEST_NUMBER: Final = 2**29 - 1  # of a field
# Bytes of the longest number, and of the longest tag or size.
_LONGEST_VARINT, _LONGEST_TAG = 10, 5
# The limit of fields in a frame and in each message in it, so of a thousand fields in all. The I/O thread reads frames
# and serves all sessions. Real frames have one message of at most six fields.
_MAX_FIELDS: Final = 32
_MESSAGE_TAG: Final = bytes([4 << 3 | _BYTES])  # of `Frame.message`
_DATA_TAG: Final = bytes([1 << 3 | _BYTES])  # of `MessageFrame.data`


def write_frame(kind: str, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a frame with these fields.

    Raises:
        ValueError: a number does not fit its field, or a text is not valid Unicode.
        TypeError: a value has the wrong type.
    """
    written = bytearray()
    for number, (name, absent) in enumerate(_KINDS[kind].items(), start=1):
        value = values.get(name, absent)
        if value != absent:
            try:
                written += _field(number, value, _BITS.get(name), type(absent))
            except TypeError as error:
                raise TypeError(f"{kind}.{name}: {error}") from error
            except ValueError as error:
                raise ValueError(f"{kind}.{name}: {error}") from error
    return bytes([_NAMES.index(kind) + 1 << 3 | _BYTES]) + _varint(len(written)) + written


def _field(number: int, value: Any, bits: int | None, type_: type[str | bytes]) -> bytes:
    if bits is not None:
        if not isinstance(value, int):
            raise TypeError(f"expected int, got {type(value).__name__}")
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{value} does not fit {bits} bits")
        return bytes([number << 3 | _VARINT]) + _varint(value)
    if not isinstance(value, type_):
        raise TypeError(f"expected {type_.__name__}, got {type(value).__name__}")
    content = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | _BYTES]) + _varint(len(content)) + content


def encode_message(text: bytes) -> bytes:
    """Return the bytes of a message frame, like `write_frame()`, but faster. `text` is UTF-8."""
    return _message_head(len(text)) + text


@functools.lru_cache(maxsize=1024)
def _message_head(text_bytes: int) -> bytes:
    """Return the bytes before the text in a frame that contains only a message, as all bots write it."""
    field = _DATA_TAG + _varint(text_bytes) if text_bytes else b""
    return _MESSAGE_TAG + _varint(len(field) + text_bytes) + field


@functools.lru_cache(maxsize=1024)
def _message_head_in(frame_bytes: int) -> bytes | None:
    """Return the head of a frame of this size that contains only a message. None if there is no such size."""
    for text_bytes in range(max(0, frame_bytes - 12), frame_bytes):
        head = _message_head(text_bytes)
        if len(head) + text_bytes == frame_bytes:
            return head
    return None


def _varint(number: int) -> bytes:
    """Return a number in protobuf's varint encoding: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def match_message_frame(data: bytes) -> str | None:
    """Return the JSON text in the bytes of a WebSocket message, if they start like a message frame.

    None: it is another frame, or invalid, or not in the shortest encoding. `read_frame()` handles all of these.
    """
    head = _message_head_in(len(data))
    if head is None or not data.startswith(head):
        return None
    try:
        return data[len(head) :].decode()
    except UnicodeDecodeError:
        return None


def read_frame(data: bytes) -> tuple[str | None, dict[str, Any]]:
    """Return the kind of a frame and its fields. Unknown fields are skipped.

    Returns:
        The kind and the fields. None and no fields if the bytes are well-formed but of an unknown kind.

    Raises:
        ProtocolError: The bytes are not a serialized frame, or a text in them is not UTF-8.
    """
    kind: str | None = None
    fields: dict[str, Any] = {}
    try:
        for number, content in _wire_fields(data):
            if number <= len(_NAMES) and type(content) is bytes:
                before, kind = kind, _NAMES[number - 1]
                if kind != before:  # of several kinds the last one counts
                    fields = dict(_KINDS[kind])
                fields |= _values(content, _KINDS[kind])
    # An index is out of range if a number breaks off.
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"Cannot decode a frame of {len(data)} bytes: {error}") from error
    return kind, fields


def _values(data: bytes, known: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the known fields in one of the messages."""
    names = [*known]
    values: dict[str, Any] = {}
    for number, value in _wire_fields(data):
        if number > len(names):
            continue
        name = names[number - 1]
        if name in _BITS:
            if type(value) is int:
                values[name] = value & (1 << _BITS[name]) - 1
        elif type(value) is bytes:
            values[name] = value.decode() if type(known[name]) is str else value
    return values


def _wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes | None]]:
    """Yield number and value of each field. None: the type of the field is one that no known field has.

    Raises:
        ValueError: The bytes are damaged.
        IndexError: A number breaks off.
    """
    position, end = 0, len(data)
    for _ in range(_MAX_FIELDS + 1):
        if position == end:
            return
        tag, position = _read_varint(data, position, _LONGEST_TAG)
        number, kind = tag >> 3, tag & 7
        value: int | bytes | None = None
        if kind == _VARINT:
            value, position = _read_varint(data, position, _LONGEST_VARINT)
        elif kind == _BYTES:
            size, start = _read_varint(data, position, _LONGEST_TAG)
            position = start + size
            value = data[start:position]
        elif kind in _OTHERS:
            position += _OTHERS[kind]
        if (value is None and kind not in _OTHERS) or not 0 < number <= _LARGEST_NUMBER:
            raise ValueError(f"a field has the tag {tag}")
        if position > end:
            raise ValueError("a field breaks off")
        yield number, value
    raise ValueError(f"it has more than {_MAX_FIELDS} fields")


def _read_varint(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """Return the number at `position`, and the position behind it."""
    number = 0
    for shift in range(0, 7 * longest, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise ValueError("a number has too many bytes")
