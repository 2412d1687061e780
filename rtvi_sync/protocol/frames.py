"""The protobuf wire: every WebSocket message is one serialized ``pipecat.Frame``.

Messages, which are nearly all that a session without audio has, are written and read here, by hand. Protobuf does the
rest, and is imported when it is needed first.

Everything here is pure and may be called from any thread.
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
        audio: the samples; `2 * num_channels` bytes for each moment.
        sample_rate: samples per second and channel. Servers answer 0 with an error.
        num_channels: 1 (mono) everywhere so far. Servers close the connection at 0.
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
    """What a user said, as text. A bot takes a client's one for the output of its own speech recognition.

    Attributes:
        text: the words.
        user_id: who said them.
        timestamp: when, ISO 8601.
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
    """The bot was interrupted: what it has sent and nobody has heard yet is void.

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
# On the wire: the number of a field whose length is told, and that it is one. `Frame.message` and `MessageFrame.data`.
_MESSAGE_TAG: Final = bytes([4 << 3 | 2])
_DATA_TAG: Final = bytes([1 << 3 | 2])
_KIND_OF: Final = {frame_class: kind for kind, frame_class in _KINDS.items()}
_NAMES_OF: Final = {frame_class: [field.name for field in attrs.fields(frame_class)] for frame_class in _KIND_OF}


def load() -> None:
    """Import protobuf now. A process that forks while another thread imports something can never import it again."""
    _protobuf()


@functools.cache
def _protobuf() -> tuple[Any, type[Exception]]:
    """The class of a frame, and what it raises for bytes that are none."""
    from . import descriptors  # it takes longer than all the rest of this package

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
        raise TypeError(f"not a frame: {frame_class.__name__}")
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
    """What `encode(MessageFrame(data=text.decode()))` returns, sooner. `text` is UTF-8."""
    return _message_head(len(text)) + text


@functools.lru_cache(maxsize=1024)
def _message_head(text_bytes: int) -> bytes:
    """What comes before the text in a frame that holds a message and nothing else, as all bots write it."""
    field = _DATA_TAG + _varint(text_bytes) if text_bytes else b""
    return _MESSAGE_TAG + _varint(len(field) + text_bytes) + field


@functools.lru_cache(maxsize=1024)
def _message_head_in(frame_bytes: int) -> bytes | None:
    """With what a frame of this size begins if it holds a message and nothing else; None: none of this size does."""
    for text_bytes in range(max(0, frame_bytes - 12), frame_bytes):
        head = _message_head(text_bytes)
        if len(head) + text_bytes == frame_bytes:
            return head
    return None


def _varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def match_message_frame(data: bytes) -> str | None:
    """The JSON text in the bytes of a WebSocket message, if that is told by its first bytes.

    None: it is something else, or wrong, or a message that is not written in the shortest way; `content()` tells.
    """
    head = _message_head_in(len(data))
    if head is None or not data.startswith(head):
        return None
    try:
        return data[len(head) :].decode()
    except UnicodeDecodeError:
        return None


def content(data: bytes) -> tuple[str | None, Any]:
    """What the bytes of one binary WebSocket message hold, for those who see thousands a second.

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
    # Bad UTF-8 is a ValueError and deep nesting a RecursionError where protobuf runs without its C extension.
    except (decode_error, ValueError, RecursionError) as error:
        raise ProtocolError(f"undecodable frame of {len(data)} bytes: {error}") from error


def decode(data: bytes) -> Frame | None:
    """Read the bytes of one binary WebSocket message. Unknown fields are skipped.

    Returns:
        The frame, or None when the bytes are well formed and hold no kind of frame that is known here.

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
