"""The stand-ins for models in the scenarios, for Pipecat's harness and for this package's. It imports neither."""

from __future__ import annotations

import wave
from pathlib import Path

#: Milliseconds for an expectation without a limit.
TIMEOUT_MS = 8_000
#: The transcript of everything that the bot says.
HEARD = "words from the recording"

_HELLO = Path(__file__).with_name("hello.wav")


def speech(_: str) -> tuple[bytes, int]:
    """Return the speech of a text: always the same recording."""
    with wave.open(str(_HELLO)) as file:
        return file.readframes(file.getnframes()), file.getframerate()


def verdict_of(answer: str, criterion: str) -> bool | str:
    """Return the verdict on an answer: "has X" if X is in it, and "waits for X" waits until it is."""
    if criterion.startswith("waits for "):
        return True if criterion.removeprefix("waits for ") in answer else "continue"
    return criterion.removeprefix("has ") in answer or criterion == "has anything"
