"""The frames on the WebSocket wire as objects, for bots and tests. The client itself uses only `wire`."""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from . import wire
from .record import Record


def _size_repr(audio: bytes) -> str:
    return f"<{len(audio)} bytes>"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TextFrame(Record):
    """Plain text.

    Attributes:
        text: The text.
        id: The sender's number for the frame. 0 without one.
        name: The sender's name for the frame. "" without one.
    """

    text: str
    id: int = 0
    name: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AudioRawFrame(Record):
    """PCM, signed 16 bit, little endian, channels interleaved.

    Attributes:
        audio: The samples: `2 * num_channels` bytes for each sampling time.
        sample_rate: Samples per second and channel. Servers answer 0 with an error.
        num_channels: 1 (mono) in all servers seen so far. Servers close the connection at 0.
        id: The sender's number for the frame. 0 without one.
        name: The sender's name for the frame. "" without one.
        pts: Presentation time stamp in nanoseconds, or None.
    """

    audio: bytes = attrs.field(repr=_size_repr)
    sample_rate: int
    num_channels: int = 1
    id: int = 0
    name: str = ""
    pts: int | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TranscriptionFrame(Record):
    """A user's speech as text. A bot treats a client's frame like the output of its own speech recognition.

    Attributes:
        text: The words.
        user_id: The id of the user.
        timestamp: The time of the speech, ISO 8601.
        id: The sender's number for the frame. 0 without one.
        name: The sender's name for the frame. "" without one.
    """

    text: str
    user_id: str
    timestamp: str
    id: int = 0
    name: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MessageFrame(Record):
    """One RTVI message.

    Attributes:
        data: The message as JSON text.
    """

    data: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class InterruptionFrame(Record):
    """The bot was interrupted. The receiver should drop its unplayed audio.

    Attributes:
        id: The sender's number for the frame. 0 without one.
        name: The sender's name for the frame. "" without one.
    """

    id: int = 0
    name: str = ""


Frame: TypeAlias = TextFrame | AudioRawFrame | TranscriptionFrame | MessageFrame | InterruptionFrame


_CLASSES: Final[dict[str, type[Frame]]] = {
    "text": TextFrame,
    "audio": AudioRawFrame,
    "transcription": TranscriptionFrame,
    "message": MessageFrame,
    "interruption": InterruptionFrame,
}
_KIND_OF: Final = {frame_class: kind for kind, frame_class in _CLASSES.items()}


def encode(frame: Frame) -> bytes:
    """Serialize a frame to the bytes of one binary WebSocket message.

    Raises:
        ValueError: a number does not fit its field, or a text is not valid Unicode.
        TypeError: a field has the wrong type, or `frame` is not a frame.
    """
    if type(frame) not in _KIND_OF:
        raise TypeError(f"{type(frame).__name__} is not a frame class")
    return wire.write_frame(_KIND_OF[type(frame)], attrs.asdict(frame))


def decode(data: bytes) -> Frame | None:
    """Decode the bytes of one binary WebSocket message. It may have unknown fields.

    Returns:
        The frame, or None if the bytes are well-formed but of an unknown kind of frame.

    Raises:
        ProtocolError: The bytes are not a serialized frame, or a text in them is not UTF-8.
    """
    kind, fields = wire.read_frame(data)
    return _CLASSES[kind](**fields) if kind is not None else None
