"""Sounds to play, and measures of heard sound."""

from __future__ import annotations

import wave
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .pulse import RATE, Samples

#: Louder than this (RMS of 10 ms) is sound: the noise of conversions is far below, speech far above.
SOUND = 100.0


@cache
def speech(seconds: float = 2.0) -> Samples:
    """Return the start of a few spoken sentences at 24 kHz; the array is read-only."""
    with wave.open(str(Path(__file__).parents[2] / "rtvi_sync" / "cli" / "speech.wav")) as said:
        assert (said.getframerate(), said.getnchannels(), said.getsampwidth()) == (RATE, 1, 2)
        return np.frombuffer(said.readframes(int(seconds * RATE)), np.int16)


def alignment(heard: Samples, said: Samples) -> tuple[float, int]:
    """Return how much the heard sound matches the said one (1.0: fully, at any volume), and the sample where it
    starts.
    """
    size = len(heard) + len(said)
    x, y = np.fft.rfft(heard.astype(float), size), np.fft.rfft(said.astype(float), size)
    similarity = np.fft.irfft(x * np.conj(y), size)[: len(heard)]
    begin = int(similarity.argmax())
    part = heard[begin : begin + len(said)].astype(float)
    norm = float(np.linalg.norm(part) * np.linalg.norm(said.astype(float)))
    return (float(similarity[begin]) / norm if norm else 0.0), begin


def correlation(heard: Samples, said: Samples) -> float:
    """Return how much the heard sound matches the said one, 1.0 at best."""
    return alignment(heard, said)[0]


def loudness(samples: Samples) -> npt.NDArray[np.float64]:
    """Return the RMS of each 10 ms, counted from the end."""
    step = RATE // 100
    rows = samples[len(samples) % step :].reshape(-1, step).astype(float)
    return np.sqrt((rows**2).mean(axis=1))


def loud_seconds(samples: Samples) -> float:
    """Return the seconds of sound."""
    return float((loudness(samples) > SOUND).sum()) / 100


def longest_silence(*recordings: Samples) -> float:
    """Return the seconds of the longest silence between first and last sound, of recordings that ended together."""
    loud = [loudness(recording) > SOUND for recording in recordings]
    together = min(map(len, loud))
    sound = np.flatnonzero(np.logical_or.reduce([each[-together:] for each in loud]))
    return float(np.diff(sound).max(initial=1) - 1) / 100 if len(sound) else float("inf")
