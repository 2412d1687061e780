"""From one sample rate to another, for devices that refuse the one that is wanted, and for files, which have one."""

from __future__ import annotations

import array

from ..errors import MissingExtraError
from . import pcm as pcm_tools


class Resampler:
    """Converts a stream of mono PCM piece by piece, without a click between the pieces.

    Its filter is soxr's "low quality": 87 dB. It works in blocks, so 2 to 20 ms of what came in are not out yet; with
    the better ones it is up to 40 ms.

    Args:
        from_hz: rate of what comes in.
        to_hz: rate of what goes out.

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
        """Take the next piece, and return what is ready of all that came in; it may be nothing yet."""
        return self._convert(pcm, last=False)

    def finish(self) -> bytes:
        """Return what is not out yet; nothing more comes in."""
        return self._convert(b"", last=True)

    def _convert(self, pcm: bytes, *, last: bool) -> bytes:
        import numpy as np  # soxr needs it too

        converted = self._stream.resample_chunk(np.frombuffer(pcm, "<i2"), last=last)
        return bytes(converted.astype("<i2", copy=False).tobytes())

    def reset(self) -> None:
        """Forget what came in: what comes next is the beginning of something else."""
        self._stream.clear()


class LinearResampler:
    """Converts as `Resampler` does, by linear interpolation: with some aliasing, and without a library.

    Args:
        from_hz: rate of what comes in.
        to_hz: rate of what goes out.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz: int = from_hz
        self._to_hz = to_hz
        self._samples: array.array[int] = array.array("h")  # from the one before the next that goes out
        self._position = 0  # of that one, from the first of these on, in parts of `to_hz`

    def convert(self, pcm: bytes) -> bytes:
        """Take the next piece, and return what is ready of all that came in."""
        samples, to_hz = self._samples, self._to_hz
        samples += pcm_tools.samples_of(pcm)
        positions = range(self._position, to_hz * (len(samples) - 1), self.from_hz)
        places = (divmod(position, to_hz) for position in positions)
        ready = [samples[n] + (samples[n + 1] - samples[n]) * part // to_hz for n, part in places]
        self._position += len(ready) * self.from_hz
        done = max(0, min(self._position // to_hz, len(samples) - 1))
        self._position -= done * to_hz
        del samples[:done]
        return pcm_tools.bytes_of(ready)

    def finish(self) -> bytes:
        """Return what is not out yet; nothing more comes in."""
        last = self._samples[-1:]
        return self.convert(pcm_tools.bytes_of(last))


def resampler_of(from_hz: int, to_hz: int) -> Resampler | LinearResampler:
    """The best there is: soxr's where it is installed."""
    try:
        return Resampler(from_hz, to_hz)
    except MissingExtraError:
        return LinearResampler(from_hz, to_hz)
