"""Private parts that far ends and tables of behaviour tests use: the one place that knows where each is."""

from __future__ import annotations

import sys

from rtvi_sync.cli.scripted_speech import SHIPPED
from rtvi_sync.media.pcm import rms
from rtvi_sync.protocol import frames
from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND, load_payload
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
from rtvi_sync.testing.embedded_bot.audio import tones

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
    "forget_payloads",
    "frames",
    "is_generator",
    "rms",
    "snake_case",
    "tones",
]


def forget_payloads() -> None:
    """Forget the imports of the classes of payloads, in a process that needs none of them again."""
    load_payload.cache_clear()
    for name in [name for name in sys.modules if name.startswith("rtvi_sync.protocol.") and name.endswith("_payloads")]:
        del sys.modules[name]
