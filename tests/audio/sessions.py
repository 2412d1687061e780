"""Clients on the daemon's devices, and the sound that they hear."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import AudioFrame, AudioTrack
from tests.support.slowness import GUARD

from .pulse import RATE, Samples
from .signals import SOUND


def device(name: str) -> str:
    """Return the id of one of the daemon's devices."""
    return f"ALSA/{name}"


def client_of(ws_url: str, **options: Any) -> RTVIClient:
    """Return a client with `mic_a` and `speaker_a`."""
    devices = {"mic": device("mic_a"), "speaker": device("speaker_a")}
    return RTVIClient(transport=WebSocketTransport(ws_url), **{"connect_timeout": 20, **devices, **options})


def once(attempt: Callable[[], bool]) -> bool:
    """Return whether one of five attempts succeeds: a sound may be late while other tests use the processors."""
    return any(attempt() for _ in range(5))


def tone(hz: float, seconds: float) -> Samples:
    """Return a loud tone at 24 kHz."""
    return np.round(8000 * np.sin(2 * np.pi * hz * np.arange(int(seconds * RATE)) / RATE)).astype(np.int16)


def is_loud(frame: AudioFrame) -> bool:
    """Return whether a frame contains sound."""
    return float(np.sqrt((frame.to_numpy().astype(float) ** 2).mean())) > SOUND


@attrs.define(eq=False)
class Hearing:
    """Reads a track to its end, on a thread of its own."""

    track: AudioTrack
    frames: list[AudioFrame] = attrs.field(init=False, factory=list)
    _more: threading.Condition = attrs.field(init=False, factory=threading.Condition)

    def __attrs_post_init__(self) -> None:
        threading.Thread(target=self._read, args=[self.track.frames()], daemon=True).start()

    def _read(self, frames: Any) -> None:
        for frame in frames:
            with self._more:
                self.frames.append(frame)
                self._more.notify_all()

    def wait_loud(self, seconds: float, timeout: float = GUARD) -> list[AudioFrame]:
        """Wait for this many seconds of new sound, and return all frames since the call."""
        begin = len(self.frames)

        def loud() -> float:
            return sum(frame.duration for frame in self.frames[begin:] if is_loud(frame))

        with self._more:
            assert self._more.wait_for(lambda: loud() >= seconds, timeout + seconds), f"only {loud():.2f} s were heard"
            return self.frames[begin:]

    def pitch(self) -> float:
        """Return the frequency in Hz of the tone that was heard last."""
        rate = self.frames[-1].sample_rate_hz
        samples = np.concatenate([frame.to_numpy()[:, 0] for frame in self.frames[-20:]])[-rate // 4 :]
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        return float(spectrum.argmax() * rate / len(samples))

    def longest_gap(self, begin: int = 0) -> float:
        """Return the seconds of the longest pause between two sounds, from a frame on: missing audio, or silence."""
        loud = [frame for frame in self.frames[begin:] if is_loud(frame)]
        return max((b.timestamp - a.timestamp - a.duration for a, b in itertools.pairwise(loud)), default=0.0)
