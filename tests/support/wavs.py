"""WAV files, with tones, which count as speech, and with compressed samples."""

from __future__ import annotations

import math
import struct
import wave
from collections.abc import Iterable
from pathlib import Path


def tone(seconds: float, rate: int = 16_000, amplitude: int = 8000) -> bytes:
    """Return a tone that counts as speech."""
    count = round(seconds * rate)
    return struct.pack(f"<{count}h", *(round(amplitude * math.sin(0.2 * index)) for index in range(count)))


def silence(seconds: float, rate: int = 16_000) -> bytes:
    """Return silence."""
    return bytes(2 * round(seconds * rate))


def write_wav(path: Path, parts: Iterable[bytes], rate: int = 16_000) -> Path:
    """Write a mono WAV file of these parts."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(b"".join(parts))
    return path


def compressed_wav(kind: int, data: bytes) -> bytes:
    """Return a WAV file of one byte a sample."""
    form = struct.pack("<HHIIHHH", kind, 1, 8000, 8000, 1, 8, 0)
    chunks = ((b"fmt ", form), (b"data", data))
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(chunk)) + chunk for name, chunk in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body
