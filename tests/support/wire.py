"""What far ends and tables of behaviour tests use of the inside: the one place that knows where each is."""

from __future__ import annotations

from rtvi_sync.cli.scripted_speech import SHIPPED
from rtvi_sync.media.pcm import rms
from rtvi_sync.protocol import frames
from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND
from rtvi_sync.protocol.frames import (
    AudioRawFrame,
    Frame,
    InterruptionFrame,
    MessageFrame,
    TextFrame,
    TranscriptionFrame,
    decode,
    encode,
)
from rtvi_sync.protocol.states import FOLLOWING
from rtvi_sync.protocol.validation import is_generator, snake_case
from rtvi_sync.testing.contract_rig import ContractBot
from rtvi_sync.testing.embedded_bot.tones import tones

__all__ = [
    "FOLLOWING",
    "INBOUND",
    "OUTBOUND",
    "SHIPPED",
    "AudioRawFrame",
    "ContractBot",
    "Frame",
    "MessageFrame",
    "TranscriptionFrame",
    "TextFrame",
    "InterruptionFrame",
    "decode",
    "encode",
    "frames",
    "is_generator",
    "rms",
    "snake_case",
    "tones",
]
