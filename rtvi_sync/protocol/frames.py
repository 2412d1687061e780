"""The protobuf wire: every WebSocket message is one serialized ``pipecat.Frame``.

The message classes are built when this module is imported, from the field facts below, in a descriptor pool of their
own. Generated code would register ``frames.proto`` in the process-wide pool, where a server framework's own copy may
already be, and it would tie the package to one runtime version of protobuf.

Everything here is pure and may be called from any thread.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

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
_Field = descriptor_pb2.FieldDescriptorProto


def _describe() -> descriptor_pb2.FileDescriptorProto:
    """Turn the field facts into what a compiler would have made of the ``.proto`` file."""
    file = descriptor_pb2.FileDescriptorProto(name="frames.proto", package=_PACKAGE, syntax="proto3")
    for message_name, facts in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for number, fact in enumerate(facts.split(), start=1):
            name, type_name = fact.split(":")
            field = message.field.add(
                name=name.rstrip("?"),
                number=number,
                label=_Field.LABEL_OPTIONAL,
                type=_Field.Type.Value(f"TYPE_{type_name.upper()}"),
            )
            if name.endswith("?"):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    frame = file.message_type.add(name="Frame")
    frame.oneof_decl.add(name="frame")
    for number, (kind, frame_class) in enumerate(_KINDS.items(), start=1):
        frame.field.add(
            name=kind,
            number=number,
            label=_Field.LABEL_OPTIONAL,
            type=_Field.TYPE_MESSAGE,
            type_name=f".{_PACKAGE}.{frame_class.__name__}",
            oneof_index=0,
        )
    return file


def _build() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_describe().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Frame"))


_Frame: Final[Any] = _build()
_parse: Final = _Frame.FromString
_KIND_OF: Final = {frame_class: kind for kind, frame_class in _KINDS.items()}
_NAMES_OF: Final = {frame_class: [field.name for field in attrs.fields(frame_class)] for frame_class in _KIND_OF}


def encode(frame: Frame) -> bytes:
    """Serialize a frame to the bytes of one binary WebSocket message.

    Raises:
        ValueError: a number does not fit its field, or a text is not valid Unicode.
        TypeError: a field has the wrong type, or `frame` is not a frame.
    """
    frame_class = type(frame)
    if frame_class not in _KIND_OF:
        raise TypeError(f"not a frame: {frame_class.__name__}")
    wire = _Frame()
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


def decode(data: bytes) -> Frame | None:
    """Read the bytes of one binary WebSocket message. Unknown fields are skipped.

    Returns:
        The frame, or None when the bytes are well formed and hold no kind of frame that is known here.

    Raises:
        ProtocolError: the bytes are not a serialized frame, or a text in them is not UTF-8.
    """
    try:
        wire = _parse(data)
    # Bad UTF-8 is a ValueError and deep nesting a RecursionError where protobuf runs without its C extension.
    except (DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"undecodable frame of {len(data)} bytes: {error}") from error
    kind = wire.WhichOneof("frame")
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
