"""Resamplers: for devices that refuse a sample rate, for files, which have one, and for clocks that differ."""

from __future__ import annotations

import array
import functools
import math
from collections.abc import Iterator
from typing import Any, Final

from ..errors import MissingExtraError
from . import pcm as pcm_tools

# Samples on each side of an output sample of `SpeedChanger`, and the filter's places between two samples.
_HALF: Final = 8
_PHASES: Final = 1024
# Taps of `HalfRate`, an odd number.
_HALF_RATE_TAPS: Final = 63


class Resampler:
    """A resampler of a stream of mono PCM, chunk by chunk and without a click between the chunks.

    Its filter is soxr's "low quality" with 87 dB. Because it works in blocks, its output lags behind its input: up to
    40 ms, or 60 between 8 and 16 kHz; see `longest_lag()`.

    Args:
        from_hz: sample rate of the input.
        to_hz: sample rate of the output.

    Raises:
        MissingExtraError: soxr is not installed.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        try:
            import soxr
        except ImportError as error:
            raise MissingExtraError(f"Converting audio from {from_hz} to {to_hz} Hz", "resample") from error
        self.from_hz: int = from_hz
        self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16", quality=soxr.LQ)

    def convert(self, pcm: bytes) -> bytes:
        """Take the next input and return the output that is ready, which may be empty."""
        return self._convert(pcm, last=False)

    def finish(self) -> bytes:
        """End the input and return the rest of the output."""
        return self._convert(b"", last=True)

    def _convert(self, pcm: bytes, *, last: bool) -> bytes:
        import numpy as np  # installed with soxr, which needs it, too

        converted = self._stream.resample_chunk(np.frombuffer(pcm, "<i2"), last=last)
        return bytes(converted.astype("<i2", copy=False).tobytes())

    def reset(self) -> None:
        """Discard the input so far; the next input starts a new stream."""
        self._stream.clear()


class LinearResampler:
    """A resampler as `Resampler`, by linear interpolation: with some aliasing, but without a library.

    Args:
        from_hz: sample rate of the input.
        to_hz: sample rate of the output.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz: int = from_hz
        self._to_hz = to_hz
        self._samples: array.array[int] = array.array("h")  # input from the sample before the next output sample on
        self._position = 0  # of the next output sample from the first of these on, in units of 1 / `to_hz` samples

    def convert(self, pcm: bytes) -> bytes:
        """Take the next input and return the output that is ready."""
        samples, to_hz = self._samples, self._to_hz
        samples += pcm_tools.samples_of(pcm)
        positions = range(self._position, to_hz * (len(samples) - 1), self.from_hz)
        places = (divmod(position, to_hz) for position in positions)
        ready = [samples[n] + (samples[n + 1] - samples[n]) * rest // to_hz for n, rest in places]
        self._position += len(ready) * self.from_hz
        done = max(0, min(self._position // to_hz, len(samples) - 1))
        self._position -= done * to_hz
        del samples[:done]
        return pcm_tools.bytes_of(ready)

    def finish(self) -> bytes:
        """End the input and return the rest of the output."""
        last = self._samples[-1:]
        return self.convert(pcm_tools.bytes_of(last))


class SpeedChanger:
    """A resampler of a stream of mono PCM whose speed changes all the time, by up to some percent.

    It interpolates by a windowed sinc of 16 samples, and holds back 8. Samples stay unchanged as long as the speed has
    always been 1.0.

    Raises:
        MissingExtraError: numpy, which is installed with soxr, is missing.
    """

    def __init__(self) -> None:
        try:
            import numpy as np
        except ImportError as error:
            raise MissingExtraError("Changing the speed of audio", "resample") from error
        self._np = np
        self._around = np.arange(2 * _HALF)
        offsets = np.arange(_PHASES + 1)[:, None] / _PHASES + (_HALF - 1) - self._around
        self._weights = np.sinc(offsets) * np.cos(offsets * (np.pi / (2 * _HALF))) ** 2
        # From the first sample around the next output sample on, and its distance from the `_HALF`th of these.
        self._samples: Any
        self._place: float
        self.reset()

    def convert(self, pcm: bytes, speed: float) -> bytes:
        """Take the next input, and return the output that is ready; at a speed of 1.01 it is a hundredth shorter."""
        np = self._np
        samples = np.concatenate([self._samples, np.frombuffer(pcm, "<i2")])
        count = max(0, math.ceil((len(samples) - 2 * _HALF + 1 - self._place) / speed))
        if speed == 1.0 and not self._place:
            ready = samples[_HALF - 1 : _HALF - 1 + count]
        else:
            places = self._place + speed * np.arange(count)
            whole = places.astype(np.intp)
            weights = self._weights[np.rint((places - whole) * _PHASES).astype(np.intp)]
            mixed = np.einsum("ij,ij->i", samples[whole[:, None] + self._around], weights)
            ready = np.clip(np.rint(mixed), -32768, 32767)
        end = self._place + speed * count
        done = int(end)
        self._samples, self._place = samples[done:], end - done
        return bytes(ready.astype("<i2").tobytes())

    def reset(self) -> None:
        """Discard the rest of the output; the next input starts a new stream."""
        self._samples = self._np.zeros(_HALF - 1, self._np.int16)
        self._place = 0.0


class HalfRate:
    """A converter of a stream of mono PCM to half its rate, 2 ms late. soxr would hold back up to 60 ms.

    Its filter, a windowed sinc of 63 taps, passes up to 0.45 of the new rate, and damps by 45 dB and more from 0.55 on.
    Each frame gives half as many samples, from the first frame on.

    Raises:
        MissingExtraError: numpy, which is installed with soxr, is missing.
    """

    def __init__(self) -> None:
        try:
            import numpy as np
        except ImportError as error:
            raise MissingExtraError("Halving a sample rate", "resample") from error
        self._np = np
        middle = _HALF_RATE_TAPS // 2
        taps = np.sinc(np.arange(-middle, middle + 1) / 2) * np.kaiser(_HALF_RATE_TAPS, 5.0)
        taps = (taps / taps.sum()).astype(np.float32)
        # Beside the tap in the middle every second one is zero.
        self._outer, self._middle = taps[::2], taps[middle]
        self._samples: Any = np.zeros(2 * middle, np.float32)  # those around the next output sample, and before it
        self._is_silent = True  # and they are zeros

    def convert(self, pcm: bytes) -> bytes:
        """Take the next input, and return the output that is ready: a sample for every second one of the input."""
        np = self._np
        is_silent = not pcm.strip(b"\0")
        if is_silent and self._is_silent and not len(pcm) % 4:
            return bytes(len(pcm) // 2)  # most of a call is silence
        self._is_silent = is_silent and len(pcm) >= 2 * _HALF_RATE_TAPS  # and so is all that the filter remembers
        samples = np.concatenate([self._samples, np.frombuffer(pcm, "<i2")], dtype=np.float32)
        count = max(0, (len(samples) - _HALF_RATE_TAPS) // 2 + 1)
        self._samples = samples[2 * count :]
        if not count:
            return b""
        outer = np.convolve(samples[::2], self._outer, "valid")[:count]
        middle = samples[1::2][_HALF_RATE_TAPS // 4 :][:count] * self._middle
        return bytes(np.clip(np.rint(outer + middle), -32768, 32767).astype("<i2").tobytes())


class RateConverter:
    """A converter of a stream of mono PCM, whose rate may change, to one rate; audio of that rate passes unchanged.

    Args:
        to_hz: sample rate of the output.
    """

    def __init__(self, to_hz: int) -> None:
        self.to_hz: int = to_hz
        self._resampler: Resampler | LinearResampler | None = None

    def convert(self, pcm: bytes, from_hz: int) -> bytes:
        """Take the next input and return the output that is ready, after the rest of the input of another rate."""
        rest = b""
        if self._resampler is not None and self._resampler.from_hz != from_hz:
            rest = self.finish()
        if from_hz == self.to_hz:
            return rest + pcm
        if self._resampler is None:
            self._resampler = resampler_of(from_hz, self.to_hz)
        return rest + self._resampler.convert(pcm)

    def convert_in_parts(self, pcm: bytes, from_hz: int) -> Iterator[bytes]:
        """Yield the output of `convert()` for a second of input at a time: audio of a low rate grows up to some hundred
        times.
        """
        size = 2 * from_hz if from_hz != self.to_hz else len(pcm) or 1
        for begin in range(0, len(pcm), size):
            yield self.convert(pcm[begin : begin + size], from_hz)

    def finish(self) -> bytes:
        """End the input and return the rest of the output; the next input starts a new stream."""
        resampler, self._resampler = self._resampler, None
        return b"" if resampler is None else resampler.finish()

    def reset(self) -> None:
        """Discard the rest of the output; the next input starts a new stream."""
        self._resampler = None


def resampler_of(from_hz: int, to_hz: int) -> Resampler | LinearResampler:
    """Return soxr's resampler if it is installed, else a linear one."""
    try:
        return Resampler(from_hz, to_hz)
    except MissingExtraError:
        return LinearResampler(from_hz, to_hz)


@functools.lru_cache
def longest_lag(from_hz: int, to_hz: int) -> float:
    """Return the largest amount of audio that a resampler holds back, in seconds, measured with 1 s of silence."""
    resampler, longest, made = resampler_of(from_hz, to_hz), 0.0, 0
    for taken in range(step := from_hz // 1000, from_hz, step):
        made += len(resampler.convert(pcm_tools.silence(step))) // 2
        longest = max(longest, taken / from_hz - made / to_hz)
    return longest


def resample(pcm: bytes, from_hz: int, to_hz: int) -> bytes:
    """Return a complete recording of mono PCM at another rate."""
    converter = RateConverter(to_hz)
    # In parts, because the linear resampler makes an object for each sample.
    return b"".join([*converter.convert_in_parts(pcm, from_hz), converter.finish()])
