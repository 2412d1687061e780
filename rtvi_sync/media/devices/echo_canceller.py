"""Echo cancellation: removes the speaker's audio from the microphone's, by the AEC3 of WebRTC.

AEC3 finds the echo if the recorded audio is 0 to 480 ms behind the reference: the audio written to the speaker, silence
included. So the reference is read by time. Written audio is heard 20 to 240 ms after this device's buffer reaches it,
and is recorded some milliseconds later. Clocks that drift move it by less than the rest of the 480 ms. A jump costs
7 dB for a second, so the code jumps only at the limits below.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ...concurrency.lock import new_lock
from ...errors import MissingExtraError
from .. import pcm as pcm_tools
from ..resample import RateConverter

# Seconds by which the reference may be older or newer than the recorded audio, and the number of calls that measure it:
# half a second, because a busy machine delivers recorded audio late, and then in one burst.
_OLDER, _NEWER = 0.03, 0.12
_AGES = 25
# A pause of the speaker that is longer, in seconds, is silence in the reference.
_PAUSE = 0.02
# Seconds of the reference that are kept for a microphone that is not read. A speaker's buffer holds 0.6 s at most.
_KEPT = 2.0
# Minimum delay of the echo behind the reference: two periods of the microphone. AEC3 looks for the echo from there on,
# and without this number lets more of the first second through.
_LEAST_DELAY_MS = 40
# AEC3 has to learn the room, and lets parts of the first second through. So nothing is recorded beside the first
# seconds that the speaker plays, until the last of their echo is over. Quieter samples, of 32768, count as silence.
_LEARNING = 1.5
_LONGEST_ECHO = 0.5
_AUDIBLE = 100
# Of WebRTC's noise suppression, from 0 (6 dB) to 3 (21 dB).
_NOISE_SUPPRESSION = 1


def load() -> Any:
    """Import the extra `aec`, which takes about 0.1 s, and return its module.

    Raises:
        MissingExtraError: the extra is not installed.
    """
    try:
        import numpy  # noqa: F401 - installed with both
        import pywebrtc_audio
        import soxr  # noqa: F401 - the speaker's audio has another rate
    except ImportError as error:
        raise MissingExtraError("Echo cancellation", "aec", hint=str(error)) from error
    return pywebrtc_audio


def is_available() -> bool:
    """Return whether the extra `aec` is installed."""
    try:
        load()
    except MissingExtraError:
        return False
    return True


class Reference:
    """The audio that a speaker plays, read by the time at which it is played.

    Args:
        sample_rate_hz: sample rate of the audio that `take()` returns.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self.sample_rate_hz: int = sample_rate_hz
        self._converter = RateConverter(sample_rate_hz)
        self._held_back = 0.0  # seconds of audio that are in the converter
        self._pcm = bytearray()
        self._end = 0.0  # when the last of it is played
        # Seconds by which the first of the audio should have been taken earlier, at the latest calls. The caller may be
        # late, never early, so the lowest is the true one.
        self._ages: deque[float] = deque(maxlen=_AGES)
        self._is_aligned = False

    @property
    def begin(self) -> float:
        """The time at which the first of the audio is played."""
        return self._end - len(self._pcm) / 2 / self.sample_rate_hz

    def add(self, pcm: bytes, sample_rate_hz: int, at: float) -> None:
        """Append audio that is played from the time `at` on."""
        converted = self._converter.convert(pcm, sample_rate_hz)
        added = len(converted) / 2 / self.sample_rate_hz
        begin = at - self._held_back
        if begin - self._end > _PAUSE:
            pause = min(begin - self._end, _KEPT)
            self._pcm += pcm_tools.silence(round(pause * self.sample_rate_hz))
        self._pcm += converted
        self._end = begin + added
        self._held_back += len(pcm) / 2 / sample_rate_hz - added
        del self._pcm[: -2 * round(_KEPT * self.sample_rate_hz)]

    def cut(self, at: float) -> None:
        """Remove the audio that would have been played from the time `at` on."""
        unplayed = 2 * round(max(0.0, self._end - at) * self.sample_rate_hz)
        if unplayed:
            del self._pcm[-unplayed:]
            self._end = at

    def take(self, frames: int, at: float) -> bytes:
        """Remove and return `frames` samples of the audio that plays at the time `at`; silence where none plays."""
        if not self._pcm:
            self._is_aligned = False
            return bytes(2 * frames)
        self._ages.append(at - self.begin)
        if not self._is_aligned or len(self._ages) == _AGES:
            self._align(min(self._ages))
        taken = bytes(self._pcm[: 2 * frames])
        del self._pcm[: 2 * frames]
        return taken + bytes(2 * frames - len(taken))

    def _align(self, age: float) -> None:
        """Remove audio that is too old by now, or prepend silence to audio that is played later."""
        if not self._is_aligned or not -_NEWER <= age <= _OLDER:
            samples = round(max(-_KEPT, age) * self.sample_rate_hz)
            self._pcm[: 2 * max(0, samples)] = pcm_tools.silence(max(0, -samples))
            self._ages.clear()
            self._is_aligned = True


class EchoCanceller:
    """Echo cancellation and noise suppression between the microphone and the speaker of one session.

    Audio that a microphone records while no speaker of the machine plays is not changed.

    Raises:
        MissingExtraError: the extra `aec` is not installed.
    """

    def __init__(self) -> None:
        self._library = load()
        # Guards the three fields below. The threads of the microphone and the speaker hold it for some microseconds.
        self._lock = new_lock()
        self._reference: Reference | None = None  # while no microphone was opened
        self._has_speaker = False
        self._must_reset = False
        # Of the microphone's thread.
        self._processor: Any = None
        self._learnt = 0.0  # seconds of audible reference
        self._echo_ends = 0.0  # when the echo of the last of it is over

    # -- the microphone's thread --------------------------------------------------------------------------------------

    def begin(self, sample_rate_hz: int) -> None:
        """Start for a microphone that was opened."""
        self._processor = self._library.AudioProcessor(
            sample_rate=sample_rate_hz,
            echo_cancellation=True,
            noise_suppression=True,
            ns_level=_NOISE_SUPPRESSION,
            stream_delay_ms=_LEAST_DELAY_MS,
        )
        self._learnt = 0.0
        with self._lock:
            self._reference = Reference(sample_rate_hz)

    def cancel(self, pcm: bytes, at: float) -> bytes:
        """Return recorded audio without the speaker's audio.

        Args:
            pcm: the audio.
            at: start of the recording, in monotonic seconds.
        """
        with self._lock:
            if self._reference is None or not self._has_speaker:
                return pcm
            played = self._reference.take(len(pcm) // 2, at)
            must_reset, self._must_reset = self._must_reset, False
            rate = self._reference.sample_rate_hz
        if must_reset:
            self._processor.reset()
            self._learnt = 0.0
        import numpy

        near, far = (numpy.frombuffer(each, "<i2") for each in (pcm, played))
        cleaned = self._processor.process(near, far)
        if self._learnt < _LEARNING:
            if max(far.max(), -far.min()) > _AUDIBLE:
                self._learnt += len(far) / rate
                self._echo_ends = at + _LONGEST_ECHO
            if at < self._echo_ends:
                return bytes(len(pcm))
        return bytes(cleaned.tobytes())

    # -- the speaker's thread -----------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Start again for a speaker that was opened."""
        with self._lock:
            self._has_speaker = self._must_reset = True

    def play(self, pcm: bytes, sample_rate_hz: int, at: float) -> None:
        """Note audio that the speaker plays.

        Args:
            pcm: the audio as it is written, after the volume.
            sample_rate_hz: sample rate of the audio.
            at: time at which it will be played, in monotonic seconds.
        """
        with self._lock:
            self._has_speaker = True
            if self._reference is not None:
                self._reference.add(pcm, sample_rate_hz, at)

    def drop(self, at: float) -> None:
        """Note that the audio from the time `at` on was dropped and will not be played."""
        with self._lock:
            if self._reference is not None:
                self._reference.cut(at)

    def end(self) -> None:
        """Note that the speaker has ended."""
        with self._lock:
            self._has_speaker = False
