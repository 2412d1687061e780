"""The pauses of a voice that is sent without a break."""

from __future__ import annotations

from collections.abc import Callable

from ..concurrency.clock import monotonic
from . import pcm as pcm_tools

# A voice codec makes exact zeros of silence, up to its last bit.
_SILENT_PEAK = 2
# A pause within speech stays as it is.
_PAUSE = 0.3
# Audio that was on its way when the bot was interrupted is no longer than this, in seconds.
_ON_THE_WAY = 0.2
# It arrives at once, or after a stall of the network, within this many seconds. A bot may also send no silence at all.
_LATEST = 1.0


class SilenceGate:
    """Drops silence after 0.3 s of it, and the bot's speech right after an interruption.

    Over RTP a bot sends silence 50 times a second. Recorded, it would be as long as the session; measured, it would
    never end. Used on one thread.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._silent_for = _PAUSE  # silent until the bot has spoken
        self._old = 0.0  # seconds of audio that may still be from before an interruption
        self._old_until = 0.0

    def passes(self, pcm: bytes, sample_rate_hz: int) -> bool:
        """Return whether to play the next audio, mono PCM."""
        seconds = len(pcm) / (2 * sample_rate_hz)
        if _is_silent(pcm):
            self._old = 0.0
            self._silent_for += seconds
            return self._silent_for <= _PAUSE
        self._silent_for = 0.0
        if self._old >= seconds / 2 and self._clock() < self._old_until:
            self._old -= seconds
            return False
        return True

    def interrupted(self) -> None:
        """Drop audio that was on its way, up to the next silence. No effect if the bot has been silent for 0.2 s."""
        if self._silent_for < _ON_THE_WAY:
            self._old, self._old_until = _ON_THE_WAY, self._clock() + _LATEST


def _is_silent(pcm: bytes) -> bool:
    if not pcm.strip(b"\0"):
        return True
    samples = pcm_tools.samples_of(pcm)
    return max(samples) <= _SILENT_PEAK and min(samples) >= -_SILENT_PEAK
