"""The protobuf wire: every WebSocket message is one serialized ``pipecat.Frame``.

Messages, which are nearly all frames of a session without audio, are encoded and decoded here without protobuf. It
handles all other frames, and is imported on first use.

All functions are pure and may be called on any thread.
"""

from __future__ import annotations

import functools
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.errors import ProtocolError


def _size_repr(audio: bytes) -> str:
    return f"<{len(audio)} bytes>"


@attrs.frozen(kw_only=True)
class TextFrame:
    """Plain text.

    Attributes:
        text: the text.
        id: number that the sender gave the frame; 0 without one.
        name: name that the sender gave the frame; "" without one.
    """

    text: str
    id: int = 0
    name: str = ""


@attrs.frozen(kw_only=True)
class AudioRawFrame:
    """PCM, signed 16 bit, little endian, channels interleaved.

    Attributes:
        audio: the samples; `2 * num_channels` bytes for each sampling time.
        sample_rate: samples per second and channel. Servers answer 0 with an error.
        num_channels: 1 (mono) in all servers seen so far. Servers close the connection at 0.
        id: number that the sender gave the frame; 0 without one.
        name: name that the sender gave the frame; "" without one.
        pts: presentation time stamp in nanoseconds, or None.
    """

    audio: bytes = attrs.field(repr=_size_repr)
    sample_rate: int
    num_channels: int = 1
    id: int = 0
    name: str = ""
    pts: int | None = None


@attrs.frozen(kw_only=True)
class TranscriptionFrame:
    """A user's speech as text. A bot treats one of a client as the output of its own speech recognition.

    Attributes:
        text: the words.
        user_id: the id of the user.
        timestamp: the time of the speech, ISO 8601.
        id: number that the sender gave the frame; 0 without one.
        name: name that the sender gave the frame; "" without one.
    """

    text: str
    user_id: str
    timestamp: str
    id: int = 0
    name: str = ""


@attrs.frozen(kw_only=True)
class MessageFrame:
    """One RTVI message.

    Attributes:
        data: the message as JSON text.
    """

    data: str


@attrs.frozen(kw_only=True)
class InterruptionFrame:
    """The bot was interrupted: its audio that was not played yet is to be dropped.

    Attributes:
        id: number that the sender gave the frame; 0 without one.
        name: name that the sender gave the frame; "" without one.
    """

    id: int = 0
    name: str = ""


Frame: TypeAlias = TextFrame | AudioRawFrame | TranscriptionFrame | MessageFrame | InterruptionFrame

# Message -> its fields in the order of their numbers, from 1. "?" marks an optional field: absent is not 0.
_FIELDS: Final = {
    "TextFrame": "id:uint64 name:string text:string",
    "AudioRawFrame": "id:uint64 name:string audio:bytes sample_rate:uint32 num_channels:uint32 pts?:uint64",
    "TranscriptionFrame": "id:uint64 name:string text:string user_id:string timestamp:string",
    "MessageFrame": "data:string",
    "InterruptionFrame": "id:uint64 name:string",
}
# Kinds in the oneof of Frame, in the order of their numbers, from 1.
_KINDS: Final[dict[str, type[Frame]]] = {
    "text": TextFrame,
    "audio": AudioRawFrame,
    "transcription": TranscriptionFrame,
    "message": MessageFrame,
    "interruption": InterruptionFrame,
}
_PACKAGE: Final = "pipecat"
# Protobuf tags (field number and wire type 2, length-delimited) of `Frame.message` and `MessageFrame.data`.
_MESSAGE_TAG: Final = bytes([4 << 3 | 2])
_DATA_TAG: Final = bytes([1 << 3 | 2])
_KIND_OF: Final = {frame_class: kind for kind, frame_class in _KINDS.items()}
_NAMES_OF: Final = {frame_class: [field.name for field in attrs.fields(frame_class)] for frame_class in _KIND_OF}


def load() -> None:
    """Import protobuf now, because a process that is forked while another thread imports a module cannot import it."""
    _protobuf()


@functools.cache
def _protobuf() -> tuple[Any, type[Exception]]:
    """Return the class of a frame, and the exception that it raises for bytes that are none."""
    from . import descriptors  # it takes longer than all other imports of this package

    kinds = {kind: frame_class.__name__ for kind, frame_class in _KINDS.items()}
    return descriptors.build(_PACKAGE, _FIELDS, "Frame", kinds), descriptors.DecodeError


def encode(frame: Frame) -> bytes:
    """Serialize a frame to the bytes of one binary WebSocket message.

    Raises:
        ValueError: a number does not fit its field, or a text is not valid Unicode.
        TypeError: a field has the wrong type, or `frame` is not a frame.
    """
    frame_class = type(frame)
    if frame_class not in _KIND_OF:
        raise TypeError(f"{frame_class.__name__} is not a frame class")
    wire = _protobuf()[0]()
    message = getattr(wire, _KIND_OF[frame_class])
    message.SetInParent()
    for name in _NAMES_OF[frame_class]:
        value = getattr(frame, name)
        if value is None and name == "pts":
            continue
        try:
            setattr(message, name, value)
        except ValueError as error:
            raise ValueError(f"{frame_class.__name__}.{name}: {error}") from error
        except TypeError as error:
            raise TypeError(f"{frame_class.__name__}.{name}: {error}") from error
    data: bytes = wire.SerializeToString()
    return data


def encode_message(text: bytes) -> bytes:
    """Return what `encode(MessageFrame(data=text.decode()))` returns, faster. `text` is UTF-8."""
    return _message_head(len(text)) + text


@functools.lru_cache(maxsize=1024)
def _message_head(text_bytes: int) -> bytes:
    """Return the bytes before the text in a frame that holds only a message, as all bots write it."""
    field = _DATA_TAG + _varint(text_bytes) if text_bytes else b""
    return _MESSAGE_TAG + _varint(len(field) + text_bytes) + field


@functools.lru_cache(maxsize=1024)
def _message_head_in(frame_bytes: int) -> bytes | None:
    """Return the head of a frame of this size that holds only a message; None if there is no such size."""
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
    """Return the JSON text in the bytes of a WebSocket message, if its first bytes are those of a message frame.

    None: it is another frame, or invalid, or not in the shortest encoding; `decode_kind()` handles all of these.
    """
    head = _message_head_in(len(data))
    if head is None or not data.startswith(head):
        return None
    try:
        return data[len(head) :].decode()
    except UnicodeDecodeError:
        return None


def decode_kind(data: bytes) -> tuple[str | None, Any]:
    """Return the content of one binary WebSocket message. Faster than `decode()`, for thousands of calls a second.

    Returns:
        "message" and its JSON text; "audio" and its PCM, sample rate and number of channels; any other kind of frame,
        or None, and None.

    Raises:
        ProtocolError: as `decode()`.
    """
    wire = _read(data)
    kind = wire.WhichOneof("kind")
    if kind == "message":
        return kind, wire.message.data
    if kind == "audio":
        audio = wire.audio
        return kind, (audio.audio, audio.sample_rate, audio.num_channels)
    return kind, None


def _read(data: bytes) -> Any:
    frame, decode_error = _protobuf()
    try:
        return frame.FromString(data)
    # Without its C extension protobuf raises ValueError for bad UTF-8 and RecursionError for deep nesting.
    except (decode_error, ValueError, RecursionError) as error:
        raise ProtocolError(f"Cannot decode a frame of {len(data)} bytes: {error}") from error


def decode(data: bytes) -> Frame | None:
    """Decode the bytes of one binary WebSocket message. Unknown fields are skipped.

    Returns:
        The frame, or None if the bytes are well-formed and hold no known kind of frame.

    Raises:
        ProtocolError: the bytes are not a serialized frame, or a text in them is not UTF-8.
    """
    wire = _read(data)
    kind = wire.WhichOneof("kind")
    if kind == "message":
        return MessageFrame(data=wire.message.data)
    if kind == "audio":
        audio = wire.audio
        return AudioRawFrame(
            audio=audio.audio,
            sample_rate=audio.sample_rate,
            num_channels=audio.num_channels,
            id=audio.id,
            name=audio.name,
            pts=audio.pts if audio.HasField("pts") else None,
        )
    if kind is None:
        return None
    frame_class, message = _KINDS[kind], getattr(wire, kind)
    return frame_class(**{name: getattr(message, name) for name in _NAMES_OF[frame_class]})
