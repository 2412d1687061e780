"""From one sample rate to another, for devices that refuse the one that is wanted."""

from __future__ import annotations

from ..errors import MissingExtraError


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
        self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16", quality=soxr.LQ)

    def convert(self, pcm: bytes) -> bytes:
        """Take the next piece, and return what is ready of all that came in; it may be nothing yet."""
        import numpy as np  # soxr needs it too

        converted = self._stream.resample_chunk(np.frombuffer(pcm, "<i2"))
        return bytes(converted.astype("<i2", copy=False).tobytes())

    def reset(self) -> None:
        """Forget what came in: what comes next is the beginning of something else."""
        self._stream.clear()
