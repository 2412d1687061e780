"""A source that reads another one over a worse line: with noise, lost packets and late ones."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Final

from ..protocol.validation import COUNT, integer, number
from . import pcm as pcm_tools
from .base import AudioSource
from .convert import SourceWrapper
from .levels import audible

_PACKETS_PER_SECOND: Final = 50
_SNR: Final = number(-40, 100).or_none
_SHARE: Final = number(0, 1)
_JITTER: Final = number(0, 10)
_SEED: Final = integer(0)
# RMS of noise whose samples have all values from -32768 to 32767 alike.
_NOISE_RMS: Final = 65536 / math.sqrt(12)
# Factors are integers in units of 1 / `_ONE`, with which arithmetic is fast and the same on every machine.
_BITS: Final = 24
_ONE: Final = 1 << _BITS
_HALF: Final = _ONE >> 1
# Mean delay of a packet as a share of the longest one: most packets of a network are hardly late.
_MEAN_DELAY: Final = 0.25


class NoisySource(SourceWrapper):
    """A source that reads another source as if over a worse line: with noise, lost packets and late ones.

    It returns as many samples as that source, and ends, is closed and is read again with it. A packet has 20 ms. Each
    session gets the same bytes from the same audio, whatever the sizes of its reads. It is read on a thread of its own,
    even if the other source is a `PushSource`, whose `wait()` then returns up to 1 s before the audio is sent.

    Args:
        source: The source to read, which is closed with this one. One session at a time uses it, with or without this
            one.
        snr_db: Level of the audio above the noise, in dB. The noise is white and follows the level of the audio, packet
            by packet, so that silence stays silent, and a bot hears the end of speech. None: no noise.
        loss: Share of the packets that are lost, from 0.0 to 1.0. The bot gets silence in their place.
        jitter (seconds): Longest delay of a packet, rounded to packets. The bot gets silence in the meantime. No packet
            overtakes another one. The next pauses of the audio are shortened by the delay. If the audio ends
            without a pause, its delayed end is cut off.
        seed: Seed of the random numbers. The same seed gives the same result.

    Raises:
        TypeError, ValueError: An argument cannot be used.
    """

    def __init__(
        self,
        source: AudioSource,
        snr_db: float | None = None,
        loss: float = 0.0,
        jitter: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(source)
        _SNR.check(snr_db=snr_db)
        _SHARE.check(loss=loss)
        _JITTER.check(jitter=jitter)
        _SEED.check(seed=seed)
        self._snr_db, self._loss, self._jitter, self._seed = snr_db, loss, jitter, seed
        self._ready: bytes
        self._ended: bool
        self._rewind()

    def __repr__(self) -> str:
        line = f"snr_db={self._snr_db}, loss={self._loss}, jitter={self._jitter}, seed={self._seed}"
        return f"NoisySource({self._source!r}, {line})"

    @property
    def sample_rate_hz(self) -> int:
        """The rate of the source."""
        return self._rate_of_source()

    def read(self, frames: int) -> bytes:
        """Return up to `frames` samples; `b""` after the last."""
        COUNT.check(frames=frames)
        while not self._ready and not self._ended:
            packet = self._read_packet()
            self._ready = self._late(packet) if self._jitter else self._impaired(packet)
        pcm, self._ready = self._ready[: 2 * frames], self._ready[2 * frames :]
        return pcm

    def close(self) -> None:
        """Close the source, which may be read again."""
        self._rewind()
        super().close()

    def _rewind(self) -> None:
        # One generator each, so that the same packets are lost with and without noise.
        self._noise, self._losing, self._delaying = (
            random.Random(f"{self._seed} {use}")  # noqa: S311 - no secret
            for use in ("noise", "loss", "jitter")
        )
        self._read = b""  # audio of the source beyond a packet
        self._ready = b""
        self._ended = False
        self._packets = 0  # that were read
        self._waiting: deque[tuple[int, bytes]] = deque()  # late packets, and the number with which each is due
        self._loudest = 0.0

    def _read_packet(self) -> bytes:
        """Return the next 20 ms of the source, less at its end."""
        rate = self._rate_of_source()
        # From `packets * rate / 50` on, rounded down, so that packets of a rate such as 11,025 Hz average 20 ms.
        begin, end = (number * rate // _PACKETS_PER_SECOND for number in (self._packets, self._packets + 1))
        self._packets += 1
        size = 2 * (end - begin)
        while len(self._read) < size and not self._ended:
            pcm = pcm_tools.samples_from_source(self._source.read((size - len(self._read)) // 2))
            self._read += pcm
            self._ended = not pcm
        packet, self._read = self._read[:size], self._read[size:]
        return packet

    def _impaired(self, packet: bytes) -> bytes:
        """Return a packet with noise, or silence in its place."""
        if self._losing.random() < self._loss:
            return bytes(len(packet))
        if self._snr_db is None:
            return packet
        noise = pcm_tools.samples_of(self._noise.randbytes(len(packet)))
        level = pcm_tools.rms(packet)
        factor = round(level / _NOISE_RMS / 10 ** (self._snr_db / 20) * _ONE)
        if not factor:
            return packet
        return pcm_tools.bytes_of(
            min(32767, max(-32768, sample + (each * factor + _HALF >> _BITS)))
            for sample, each in zip(pcm_tools.samples_of(packet), noise, strict=True)
        )

    def _late(self, packet: bytes) -> bytes:
        """Take the next packet, and return the bot's audio for its time: an earlier packet, this one or silence."""
        level = pcm_tools.rms(packet)
        self._loudest = max(self._loudest, level)
        delay = min(self._jitter, self._delaying.expovariate(1.0) * _MEAN_DELAY * self._jitter)
        is_pause = not audible((self._loudest, level))[-1]
        if not (is_pause and self._waiting):
            late = 0 if is_pause else round(delay * _PACKETS_PER_SECOND)
            self._waiting.append((self._packets + late, self._impaired(packet)))
        due, waiting = self._waiting[0]
        if due > self._packets:
            return bytes(len(packet))
        self._waiting.popleft()
        # Of a rate as 11,025 Hz packets differ by a sample, which is left out, or there twice.
        heard = waiting[: len(packet)]
        return heard + heard[-2:] * ((len(packet) - len(heard)) // 2)
