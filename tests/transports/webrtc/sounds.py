"""Sounds, and their form after Opus."""

from __future__ import annotations

import math

from rtvi_sync.media.pcm import bytes_of
from rtvi_sync.transports.webrtc import opus


def tone(rate, seconds, hz=440.0, peak=8000):
    return bytes_of(int(peak * math.sin(2 * math.pi * hz * n / rate)) for n in range(round(rate * seconds)))


def packets(rate, pcm, per_second=opus.FRAMES_PER_SECOND):
    encoder, size = opus.Encoder(rate), 2 * rate // per_second
    return [encoder.encode(pcm[start : start + size]) for start in range(0, len(pcm), size)]
