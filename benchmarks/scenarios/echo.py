"""Chirps that a bot sends back: the sent audio, and the place of each chirp in the received audio."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

from .figures import percentile

#: How many sessions, of `CHIRPS` chirps each, are enough for a figure. A bot's lateness depends on its start.
SESSIONS: Final = 5
CHIRPS: Final = 6
#: Seconds from the start of one chirp to the start of the next. A later echo counts as the echo of another chirp.
PAUSE: Final = 0.7
#: The rate of the sent audio.
SENT_HZ: Final = 16_000
_SECONDS: Final = 0.2
_LOW_HZ, _HIGH_HZ, _PEAK = 300.0, 2000.0, 8000.0


def chirp(rate_hz: int, shift: float = 0.0) -> list[float]:
    """Return the samples of one chirp, from -1 to 1; by `shift` samples later."""
    times = ((n - shift) / rate_hz for n in range(round(_SECONDS * rate_hz)))
    slope = (_HIGH_HZ - _LOW_HZ) / _SECONDS
    return [math.sin(2 * math.pi * (_LOW_HZ * t + slope * t * t / 2)) * math.sin(math.pi * t / _SECONDS) for t in times]


def speech() -> bytes:
    """Return the chirps of a session, 16-bit mono; the first one starts after a pause."""
    one = chirp(SENT_HZ)
    pause = [0.0] * (round(PAUSE * SENT_HZ) - len(one))
    samples = [0.0] * round(PAUSE * SENT_HZ) + CHIRPS * (one + pause)
    return struct.pack(f"<{len(samples)}h", *(round(_PEAK * sample) for sample in samples))


def summary(echoes: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Return the figures of the echoes of all sessions."""
    latencies, likes, gains = zip(*echoes, strict=True)
    return {
        "p50_ms": percentile(latencies, 0.5) * 1e3,
        "most_ms": max(latencies) * 1e3,
        "correlation": percentile(likes, 0.5),
        "gain": percentile(gains, 0.5),
    }


def compare(
    taken: Sequence[tuple[float, int]], heard: Sequence[tuple[float, bytes]], rate_hz: int
) -> list[tuple[float, float, float]]:
    """Return how late each echo is, how alike, and how loud.

    Args:
        taken: when each chunk of `speech()` was said, and the position of its first sample.
        heard: when each chunk of the echo was heard.
        rate_hz: of the echo.

    Raises:
        RuntimeError: an echo is missing.
    """
    import numpy as np

    references = [np.array(chirp(rate_hz, shift / 4)) for shift in range(4)]
    echoes = []
    for index in range(CHIRPS):
        begins = round(PAUSE * SENT_HZ) * (index + 1)
        said = max(when for when, position in taken if position <= begins)
        near = [(when, chunk) for when, chunk in heard if said <= when < said + PAUSE + _SECONDS]
        sound: Any = np.frombuffer(b"".join(chunk for _, chunk in near), np.int16).astype(float)
        if len(sound) < len(references[0]):
            raise RuntimeError(f"chirp {index + 1} has not come back within {PAUSE} s")
        like, at, gain = max(_match(sound, reference) for reference in references)
        ends = np.cumsum([len(chunk) // 2 for _, chunk in near])
        latency = near[int(np.searchsorted(ends, at, side="right"))][0] - said
        echoes.append((latency, like, gain))
    return echoes


def _match(sound: Any, reference: Any) -> tuple[float, int, float]:
    """Return the similarity at the best place, that place, and the loudness of the echo relative to the sent chirp."""
    import numpy as np

    places = len(sound) - len(reference) + 1
    size = len(sound) + len(reference)
    found = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(reference, size).conj(), size)[:places]
    total = np.concatenate(([0.0], np.cumsum(sound**2)))
    energy = total[len(reference) :] - total[: -len(reference)]
    norm = float(np.sqrt((reference**2).sum()))
    like = found / np.maximum(norm * np.sqrt(energy), 1e3)
    at = int(like.argmax())
    return float(like[at]), at, float(found[at]) / norm**2 / _PEAK
