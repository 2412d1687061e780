"""The frames of Pipecat's protobuf serializer, as a bot writes and reads them."""

from rtvi_sync.protocol.frames import (
    AudioRawFrame,
    Frame,
    InterruptionFrame,
    MessageFrame,
    TextFrame,
    decode,
    encode,
)

__all__ = ["AudioRawFrame", "Frame", "InterruptionFrame", "MessageFrame", "TextFrame", "decode", "encode"]
