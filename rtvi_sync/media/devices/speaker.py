"""Playback of the bot's audio on a speaker: one thread writes it into the sound card's buffer, padded with silence.

The delay until a word is played, and how late a frame may arrive, have one cause: the amount of audio in the sound
card's buffer. The figures below are for a bot that sends 40 ms at a time in real time, with a head start of two frames,
as Pipecat does. The buffer of the sound card holds 240 ms, which is capacity, not delay.

- While nothing is said, silence is written in small portions: the buffer never holds more than 60 ms of it.
- Speech is played 80 ms after it arrived: the buffer is filled up with silence to that amount first. This is the
  latency of this module; the sound system adds its own buffers, which are not visible here.
- From then on the bot is 120 to 160 ms ahead of playback, and all of that is in the buffer: for that time the thread,
  which competes with the application's threads for the GIL, may be delayed.
- If no frame arrives, silence is written when 20 ms are left in the buffer. Until then a late frame may still arrive.

Beside threads that keep the GIL busy, not only this thread is late, but also the one that receives the audio: often by
10 to 20 ms, and once in some minutes by a third of a second. So this thread measures how long it waits for the GIL:
before it opens the device, with each portion of silence, and with each frame that it waited for. If the wait is long
repeatedly, then until 30 s after that speech is played 480 ms after it arrived, from a buffer of 600 ms. For the larger
buffer the device is reopened: while the bot is silent, when speech starts, or when speech has broken off.

A call of the library releases the GIL, and acquiring it again takes 10 ms and more beside busy threads. So one call
writes 40 ms of speech. It waits for room in the buffer, for up to one period of the device if the bot has sent much at
once: an interruption takes effect once the call returns.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ...concurrency.clock import monotonic, perf_counter
from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Latch, Notifier
from ...concurrency.lifecycle import start_thread
from ...errors import DeviceError, MissingExtraError
from .. import pcm as pcm_tools
from ..base import AudioFrame, AudioQueue, MediaDeviceInfo
from ..playback import Speaker
from .backend import AudioBackend, OutputStream
from .device import HANGS_AFTER, Device, wait_until
from .drift_control import DriftControl
from .echo_canceller import EchoCanceller

# The usual rate of bots. For another rate the device is reopened.
_RATE_HZ = 24000
PERIOD = 0.04
# The buffer of the device holds three of these. A longer period may add latency: sound servers adopt it.
_DEVICE_PERIOD = 0.08
# Seconds of audio in the buffer before the first word, and those at which silence is written. See above.
PREBUFFER = 0.08
LOW_WATER = 0.02
# The same beside busy threads: two of them made a buffer of 360 ms run dry in one minute of ten.
_LONG_DEVICE_PERIOD = 0.2
_LONG_PREBUFFER = 0.48
# Moving average of the wait for the GIL, in seconds, above which the GIL is contended: beside one busy thread the wait
# is 5 ms, beside two 10 and more. The GIL counts as contended for _CONTENTION_HOLD seconds after that, because the
# device would be reopened repeatedly under a load in between.
_CONTENDED_WAIT = 0.0075
_CONTENTION_HOLD = 30.0
_AVERAGE_WEIGHT = 0.05
# A single wait counts as this many seconds at most: a suspended machine is no busy thread.
_LONGEST_WAIT = 0.02
# Number of waits that are measured before the device is opened.
_FIRST_WAITS = 8
# A bot may send faster than real time.
_QUEUE_SECONDS = 120.0
# A frame that arrives up to this many seconds after the last speech was played belongs to the same utterance.
_MAX_PAUSE = 0.2
# Interval at which the device's fill level is queried, and by how much its clock may differ from ours in between.
_QUERY_INTERVAL = 1.0
_CLOCK_DRIFT = 0.001
# Interval at which a call that waits for the end of playback checks the device, in seconds.
_CHECK_INTERVAL = 0.1
# Seconds that the device needs to close, if the audio not played by the deadline of `join()` is cut off.
_CLOSE_TIME = 0.2


def measure_gil_wait() -> float:
    """Release the GIL, and return the seconds until this thread has it again."""
    begun = perf_counter()  # on Windows monotonic() has a resolution of 16 ms
    time.sleep(0)
    return perf_counter() - begun


def _end_of(frame: AudioFrame, empty_at: float) -> float:
    """Return when a working device plays the end of a frame; `empty_at` is that time of the frame before."""
    return max(empty_at, frame.timestamp) + frame.duration


class DeviceSpeaker(Device, Speaker):
    """Playback of the bot's audio on a speaker of this machine.

    A thread of its own opens the device, writes to it, and closes it. A device that fails is opened again, after longer
    and longer pauses; the bot's audio is dropped until it works, uncounted if it has never worked. For another sample
    rate the device is reopened, once it has played its buffer.

    Args:
        backend: opens the device.
        device_id: id of the device. None: the system's default, looked up at the first open and after each failure.
        volume: returns the volume, 0.0 (silence) to 1.0 (as the bot sent it); called for each write.
        report: see `Device`.
        opened: see `Device`.
        echo: echo canceller that gets the played audio; None: no echo is cancelled.
        is_continuous: returns whether the bot sends in real time and without end, so that its delay is controlled.
        persists: see `Device`.
        sample_rate_hz: sample rate with which the device is opened first.
        queue_seconds: limit of the audio that waits for the device, in seconds; beyond it the oldest is dropped.
        clock: returns monotonic seconds.
        wait: `wait(notifier, ready, timeout)` blocks on the notifier until `ready()`, for up to `timeout` seconds.
        gil_wait: see `measure_gil_wait()`. These three are parameters for tests.

    Raises:
        NoThreadError: the process can start no more threads.
    """

    def __init__(
        self,
        backend: AudioBackend,
        device_id: str | None,
        *,
        volume: Callable[[], float],
        report: Callable[[DeviceError], None],
        opened: Callable[[MediaDeviceInfo], None],
        echo: EchoCanceller | None = None,
        is_continuous: Callable[[], bool] = lambda: False,
        persists: bool = False,
        sample_rate_hz: int = _RATE_HZ,
        queue_seconds: float = _QUEUE_SECONDS,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[Notifier, Callable[[], object], float], object] = wait_until,
        gil_wait: Callable[[], float] = measure_gil_wait,
    ) -> None:
        super().__init__("speaker", device_id, report=report, opened=opened, persists=persists)
        self._backend = backend
        self._volume = volume
        self._echo = echo
        self._is_continuous = is_continuous
        self._clock = clock
        self._wait = wait
        self._gil_wait = gil_wait
        self._first_rate = sample_rate_hz
        self._queue = AudioQueue(queue_seconds)
        self._abort = False  # the thread has to close the device now
        # Written by the speaker's thread only. Other threads read `_underruns`, `_skipped_seconds`, `_empty_at` and
        # `_speech_end`.
        self._underruns = 0
        self._skipped_seconds = 0.0
        self._generation = 0
        self._empty_at = clock()  # when the device's buffer will be, or was, played to its end
        self._query_at = -math.inf  # when to query the device's fill level
        self._average_wait = 0.0  # moving average of the waits for the GIL, in seconds
        self._contended_until = -math.inf  # until when the GIL counts as contended
        self._period = _DEVICE_PERIOD  # with which the device was opened
        self._has_written = False  # the device has taken audio since it was opened
        self._long_period_works = True  # as far as is known
        self._speaking = False  # the end of the buffer is speech
        self._speech_end = -math.inf  # when the last of the speech is, or was, played
        self._drift: DriftControl | None = None  # from the first silence on that may be followed by continuous speech
        self._thread = start_thread("speaker", self._run)

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio that arrived too fast, or were not played before a failure or the end.

        Thread-safe.
        """
        return self._queue.dropped_seconds + self._skipped_seconds

    @property
    def waiting_seconds(self) -> float:
        """The seconds of speech that was not played yet, without the buffers of the sound system. Thread-safe.

        0.0 while the device fails or hangs: what waits then is dropped, except its end if the device works in time.
        """
        if self._failing:
            return 0.0
        return self._queue.waiting + max(0.0, self._speech_end - self._clock())

    @property
    def underruns(self) -> int:
        """The number of times that silence, not sent by the bot, interrupted speech. Thread-safe."""
        return self._underruns

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Queue audio for playback. Never blocks.

        Args:
            pcm: any number of samples.
            sample_rate_hz: sample rate of playback.

        Returns:
            See `Speaker`.
        """
        if self._failing and not self._was_opened:
            return 0.0
        now, size = self._clock(), 2 * round(PERIOD * sample_rate_hz)
        begins = range(0, len(pcm), size)
        return sum(self._queue.add(pcm[begin : begin + size], sample_rate_hz, now) for begin in begins)

    def interrupt(self) -> None:
        """Drop the audio not yet played: within 40 ms, or 200 ms if the device has its long buffer. Never blocks."""
        self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """Stop taking audio, and return the queued audio; the device plays its buffer to the end. Never blocks.

        If the device fails or hangs, the audio that would have been played by now is dropped.
        """
        self._queue.end()
        frames = self._queue.take_all()
        if not self._failing:
            return frames
        now, empty_at, timely = self._clock(), self._empty_at, []
        for frame in frames:
            empty_at = _end_of(frame, empty_at)
            if empty_at > now:
                timely.append(frame)
            else:
                self._queue.add(frame.pcm, frame.sample_rate_hz, now)  # has ended, so it counts it as dropped
        return timely

    def play_out(self, stop: Latch) -> None:
        """Stop taking audio, and wait until all was played or `stop` is set. Failures are still reported."""
        self._queue.end()
        while not stop.is_set() and not join_thread(self._thread, Deadline(_CHECK_INTERVAL)):
            self.check(self._clock())

    def halt(self) -> None:
        """Stop taking audio. The device is closed once it has played the written audio. Never blocks; idempotent."""
        super().halt()
        self._queue.end()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait until the device is closed, after `halt()`. Audio that is not played by then is cut off.

        Returns:
            The thread that was abandoned at the deadline, or None. Once its call to the library returns, it closes the
            device and does nothing else.
        """
        if threading.current_thread() is self._thread:
            return self._thread
        if not join_thread(self._thread, Deadline(self._until_abort(deadline))):
            self._abort = True
            self._queue.drop_all()
            self._queue.clear()  # starts a new generation, so that no queued audio is played out
            if not join_thread(self._thread, deadline):
                return self._thread
        return None

    @staticmethod
    def _until_abort(deadline: Deadline) -> float | None:
        remaining = deadline.remaining()
        return None if remaining is None else remaining - min(_CLOSE_TIME, remaining / 4)

    # -- the speaker's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._play_until_end()
        finally:
            if self._echo is not None:
                self._echo.end()

    def _play_until_end(self) -> None:
        rate: int | None = self._first_rate
        device_id = self._device_id
        self._average_wait = sum(min(self._gil_wait(), _LONGEST_WAIT) for _ in range(_FIRST_WAITS)) / _FIRST_WAITS
        self._add_wait(self._gil_wait())
        while rate is not None and not self._abort:
            self._period, self._has_written = self._target_period(), False
            try:
                stream = self._open(device_id, rate)
                device_id = stream.device.device_id
                rate = self._play(stream, rate)
            except (DeviceError, MissingExtraError) as error:
                if self._period == _LONG_DEVICE_PERIOD and not self._has_written and not self._halted:
                    self._long_period_works = False  # perhaps the device refuses the long buffer
                    continue
                if not self._on_failure(error):
                    return
                self._wait(self._queue.notifier, lambda: self._halted, self._next_retry_interval())
                if self._halted:
                    return
                device_id, self._long_period_works = self._device_id, True
                self._skip_late_audio(self._clock())
                # The device may have failed because of the rate, which may be another one by now.
                rate = next((frame.sample_rate_hz for frame in self._queue.queued()[-1:]), rate)

    def _open(self, device_id: str | None, rate: int) -> OutputStream:
        return self._call_library(lambda: self._backend.open_output(device_id, rate, self._period))

    def _play(self, stream: OutputStream, rate: int) -> int | None:
        """Play until the device has to be reopened, and return the rate for that; None at the end."""
        with self._closing(stream, self._backend):
            self._empty_at = min(self._empty_at, self._clock())
            self._speaking, self._speech_end = False, -math.inf
            if self._echo is not None:
                self._echo.reset()
            self._on_opened(stream.device)
            while not self._abort and not self._queue.exhausted:
                frame = self._next_frame(stream)
                if frame is None:
                    if self._needs_reopen(after=stream.buffer):
                        return rate
                    self._write_silence(stream)
                elif frame.sample_rate_hz != rate:
                    self._queue.put_back(self._generation, frame)
                    self._drain(stream)
                    return frame.sample_rate_hz
                elif self._speaking and self._buffered() > 0:
                    self._write_speech(stream, frame, prebuffer=0.0)
                else:
                    if frame.timestamp < self._speech_end + _MAX_PAUSE:
                        self._underruns += 1
                    if self._is_gil_contended() and self._needs_reopen():
                        self._queue.put_back(self._generation, frame)
                        return rate
                    self._write_speech(stream, frame, prebuffer=self._prebuffer(stream))
            self._drain(stream)
        return None

    def _is_gil_contended(self) -> bool:
        """Return whether other threads keep the GIL from this one."""
        return self._clock() < self._contended_until

    def _target_period(self) -> float:
        return _LONG_DEVICE_PERIOD if self._is_gil_contended() and self._long_period_works else _DEVICE_PERIOD

    def _needs_reopen(self, after: float = 0.0) -> bool:
        """Return whether the device needs another buffer size, and no speech was played for `after` seconds."""
        if self._target_period() == self._period or self._queue.exhausted:
            return False
        return self._clock() > self._speech_end + after

    def _prebuffer(self, stream: OutputStream) -> float:
        """Return the seconds of audio that the buffer has to hold before the first word."""
        if not self._is_gil_contended():
            return PREBUFFER
        return max(PREBUFFER, min(_LONG_PREBUFFER, stream.buffer - 2 * PERIOD))  # with room for the bot's head start

    def _next_frame(self, stream: OutputStream) -> AudioFrame | None:
        """Wait for the next frame and return it; None if the device needs silence before one has arrived."""

        def ready() -> bool:
            return len(self._queue) > 0 or self._queue.exhausted or self._queue.generation != self._generation

        waited = not ready()
        if waited:
            self._wait(self._queue.notifier, ready, max(0.0, self._buffered() - LOW_WATER))
        now = self._clock()
        if now - self._empty_at > HANGS_AFTER:  # the device, or this thread, was blocked
            self._skip_late_audio(now)
        # The query is one more call to the library, after which this thread may be late. So during speech the device is
        # queried only if the speech has broken off, or if it may last for an hour.
        if now > self._empty_at or (now >= self._query_at and (self._drift is not None or not len(self._queue))):
            self._query_fill_level(stream, now)
        generation, frame = self._queue.poll()
        if waited and frame is not None:
            self._add_wait(now - frame.timestamp)
        self._apply_interruption(stream, generation)
        return frame

    def _add_wait(self, seconds: float) -> None:
        """Update the moving average by one wait for the GIL."""
        self._average_wait += (min(seconds, _LONGEST_WAIT) - self._average_wait) * _AVERAGE_WEIGHT
        if self._average_wait > _CONTENDED_WAIT:
            self._contended_until = self._clock() + _CONTENTION_HOLD

    def _write_silence(self, stream: OutputStream) -> None:
        """Write one period of silence."""
        self._write(stream, pcm_tools.silence(round(PERIOD * stream.sample_rate_hz)))
        self._speaking = False
        if self._drift is None and self._is_continuous():
            self._drift = DriftControl()
        self._add_wait(self._gil_wait())

    def _write_speech(self, stream: OutputStream, frame: AudioFrame, prebuffer: float) -> None:
        """Fill the buffer up to `prebuffer` seconds with silence, then write a frame and as many more as fit."""
        buffered = self._buffered()
        silence = max(0.0, prebuffer - buffered)
        frames = [frame]
        room = stream.buffer - buffered - silence - frame.duration
        while room > 0:
            generation, more = self._queue.poll()
            if more is None:
                break
            if generation != self._generation or more.sample_rate_hz != frame.sample_rate_hz:
                self._queue.put_back(generation, more)
                break
            frames.append(more)
            room -= more.duration
        pcm = pcm_tools.silence(round(silence * frame.sample_rate_hz)) + b"".join(each.pcm for each in frames)
        if self._drift is not None and self._is_continuous():
            if prebuffer:
                self._drift.begin(prebuffer)
            self._drift.note(frames, self._clock() + buffered + silence)
            pcm = self._drift.convert(pcm)
        self._write(stream, pcm_tools.scaled(pcm, self._volume()))
        self._speaking, self._speech_end = True, self._empty_at

    def _drain(self, stream: OutputStream) -> None:
        """Write one buffer of silence, so that all speech is played before closing the device cuts off the rest."""
        for _ in range(math.ceil(stream.buffer / PERIOD)):
            self._apply_interruption(stream, self._queue.generation)
            if self._clock() > self._speech_end + stream.buffer:
                return  # all speech was played, or it was interrupted
            self._write(stream, pcm_tools.silence(round(PERIOD * stream.sample_rate_hz)))

    def _write(self, stream: OutputStream, pcm: bytes) -> None:
        begin = max(self._empty_at, self._clock())
        empty_at = begin + len(pcm) / (2 * stream.sample_rate_hz)
        if self._echo is not None:
            self._echo.play(pcm, stream.sample_rate_hz, begin)
        self._call_library(lambda: stream.write(pcm))
        self._empty_at = min(empty_at, self._clock() + stream.buffer)
        self._has_written = True
        self._on_success(stream.device)

    def _buffered(self) -> float:
        """Return the seconds of audio that the device has not played yet."""
        return max(0.0, self._empty_at - self._clock())

    def _query_fill_level(self, stream: OutputStream, now: float) -> None:
        """Correct `_empty_at` by the fill level that the device reports."""
        known = self._empty_at + _CLOCK_DRIFT if now <= self._empty_at else math.inf
        # If the sound system takes audio in large steps, the reported level is too high except right after a step.
        self._empty_at = min(known, now + max(0.0, stream.buffer - self._call_library(stream.room)))
        self._query_at = now + _QUERY_INTERVAL

    def _apply_interruption(self, stream: OutputStream, generation: int) -> None:
        """Drop the device's buffer if `generation` is a new one."""
        if generation != self._generation:
            self._generation = generation
            if not self._abort:  # closing the device drops it too, and there is no time for both
                self._call_library(stream.drop)
            self._empty_at = self._clock()
            if self._echo is not None:
                self._echo.drop(self._empty_at)
            self._speaking, self._speech_end = False, -math.inf

    def _skip_late_audio(self, now: float) -> None:
        """Drop the queued audio that would have been played by now, since the device played nothing until now."""
        while True:
            generation, frame = self._queue.poll()
            if frame is None:
                return
            end = _end_of(frame, self._empty_at)
            if end > now:
                self._queue.put_back(generation, frame)
                return
            self._empty_at = end
            self._skipped_seconds += frame.duration
