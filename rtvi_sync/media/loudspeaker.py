"""From the bot to a speaker: what has come is written into the sound card's buffer on one thread, with silence around.

How long it takes until a word is heard, and how late a word may come, are one question: both are what the sound card
has before it. The figures are those of a bot that sends 40 ms at a time at the pace of real time, with a head start of
two frames, as Pipecat does; the buffer of the sound card holds 240 ms, which is room, not delay.

- Silent, the speaker is given silence in small portions: it never has more than 60 ms of it before it.
- Speech begins 80 ms after it has come: so much silence is before it, made up if need be. That is the latency of this
  module; the sound system adds what it keeps beyond the buffer that is seen here.
- From then on the bot is 120 to 160 ms ahead of what is heard, and all of that is in the buffer: so long may the
  thread, which shares the interpreter with the program's, be held up.
- If nothing comes, silence is written when 20 ms are left. Until then it may be a late frame.

Beside threads that keep the interpreter busy, not only this thread is late but the one, too, that receives the audio:
by 10 to 20 ms whenever they need it, which is often, and by a third of a second once in some minutes. So where this
thread is held up again and again, the device is opened anew with a buffer of 600 ms, and speech begins 480 ms after it
has come; until it is on time again.

A call of the library gives the interpreter away, and to get it back takes 10 ms and more beside busy threads. So there
is one call for 40 ms of speech, which waits for room in the buffer: an interruption is followed once it returns.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.gate import Bell
from ..concurrency.lifecycle import start_thread
from ..errors import DeviceError, MissingExtraError
from . import pcm as pcm_tools
from .backend import AudioBackend, OutputStream
from .base import AudioFrame, AudioQueue, MediaDeviceInfo
from .device import HANGS_AFTER, RETRY_INTERVAL, Device, wait_at

# What bots speak at, as a rule. At another rate the device is opened anew.
_RATE_HZ = 24000
PERIOD = 0.04
# The buffer of the device holds three of these. A longer period may be a delay as well: sound servers follow it.
_DEVICE_PERIOD = 0.08
# So much is before the first word, and so much is left when silence has to take over. See above.
LEAD = 0.08
LOW = 0.02
# The same beside busy threads: two of them made 360 ms run dry in one minute of ten.
_LONG_DEVICE_PERIOD = 0.2
_LONG_LEAD = 0.48
# Seconds until the thread has the interpreter back, as a moving average: beside one busy thread 0.005, beside two 0.01
# and more. So much of the average is forgotten each time; one pause of the machine, however long, is no busy thread.
_HELD_UP = 0.007
_ON_TIME = 0.0055
_FORGETTING = 0.05
_LONGEST_COUNTED = 0.1
# A bot may send faster than it speaks.
_QUEUE_SECONDS = 120.0
# What comes so soon after the speaker had to fall silent belongs to the same speech.
_PAUSE = 0.2
# How often the device is asked how much it has before it, and by how much its clock may differ from ours until then.
_LOOK_EVERY = 1.0
_DRIFT = 0.001
# What the device needs for being closed, when what is not played at the deadline of `join()` is cut off.
_CLOSING = 0.2


class DeviceSpeaker(Device):
    """Plays the bot's audio on a speaker of this machine.

    A thread of its own opens the device, writes, and closes it. A device that fails is tried again every second; what
    it would have played meanwhile is dropped. At another sample rate it is opened anew, once it has played what it has.

    Args:
        backend: opens the device.
        device_id: None: the system's default, as it is each time the device is opened.
        volume: 0.0 (silence) to 1.0 (as the bot sent it); asked for each time that something is written.
        report: see `Device`.
        opened: see `Device`.
        clock: monotonic seconds.
        wait: `wait(bell, ready, timeout)` sleeps at the bell until `ready()`, at most `timeout` seconds. It and `clock`
            are parameters for the sake of tests.

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
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Bell, Callable[[], object], float], object] = wait_at,
    ) -> None:
        super().__init__("speaker", device_id, report=report, opened=opened)
        self._backend = backend
        self._volume = volume
        self._clock = clock
        self._wait = wait
        self._queue = AudioQueue(_QUEUE_SECONDS)
        self._cut = False  # the thread is to close the device now
        # The rest is the thread's alone, others read the counters.
        self._underruns = 0
        self._missed = 0
        self._generation = 0
        self._dry = clock()  # when the device will have played all it was given, or when it had
        self._look_at = -math.inf  # when to ask it
        self._late = 0.0  # for how long others keep the interpreter from this thread
        self._held_up = False  # long and often
        self._speaking = False  # the last of that is speech
        self._spoken = -math.inf  # when the last of the speech is, or was, played
        self._thread = start_thread("speaker", self._run)

    @property
    def dropped(self) -> int:
        """Pieces of 40 ms at most that came too fast, or for a device that had failed. May be read from any thread."""
        return self._queue.dropped + self._missed

    @property
    def underruns(self) -> int:
        """How often speech was broken by silence that was not the bot's. May be read from any thread."""
        return self._underruns

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Play this next. Never blocks.

        Args:
            pcm: any number of samples.
            sample_rate_hz: at which they are played.
        """
        now, size = self._clock(), 2 * round(PERIOD * sample_rate_hz)
        for begin in range(0, len(pcm), size):
            piece = pcm[begin : begin + size]
            self._queue.put(AudioFrame(pcm=piece, sample_rate_hz=sample_rate_hz, timestamp=now))

    def interrupt(self) -> None:
        """Forget what is not yet heard, within 40 ms. Never blocks."""
        self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """Take nothing more, and give back what the device has not got yet. It plays what it has got. Never blocks."""
        self._queue.end()
        return self._queue.take_all()

    def halt(self) -> None:
        """Nothing more comes: the device is closed once it has played what was written. Never blocks; idempotent."""
        super().halt()
        self._queue.end()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until the device is closed; the thread that was given up at the deadline, or None.

        What is not played by then is cut off. A thread that was given up closes the device when the library lets it go,
        and does nothing else.
        """
        if threading.current_thread() is self._thread:
            return self._thread
        if not join_thread(self._thread, Deadline(self._until_cut(deadline))):
            self._cut = True
            self._queue.clear()
            if not join_thread(self._thread, deadline):
                return self._thread
        return None

    @staticmethod
    def _until_cut(deadline: Deadline) -> float | None:
        remaining = deadline.remaining()
        return None if remaining is None else remaining - min(_CLOSING, remaining / 4)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        rate: int | None = _RATE_HZ
        while rate is not None and not self._cut:
            try:
                rate = self._play_at(rate)
            except (DeviceError, MissingExtraError) as error:
                if not self._has_failed(error):
                    return
                self._wait(self._queue.bell, lambda: self._halted, RETRY_INTERVAL)
                if self._halted:
                    return
                self._pass_over(self._clock())
                # It may have failed because of the rate, which may be another one by now.
                rate = next((frame.sample_rate_hz for frame in self._queue.queued()[-1:]), rate)

    def _play_at(self, rate: int) -> int | None:
        """Play until the device is to be opened anew, at the rate that is returned; None: there is no more to play."""
        held_up = self._held_up
        period = _LONG_DEVICE_PERIOD if held_up else _DEVICE_PERIOD
        stream = self._ask(lambda: self._backend.open_output(self._device_id, rate, period))
        try:
            self._dry = min(self._dry, self._clock())
            self._speaking, self._spoken = False, -math.inf
            self._has_opened(stream.device)
            while not self._cut and not self._queue.exhausted:
                frame = self._next(stream)
                if frame is None:
                    if self._held_up != held_up and self._clock() > self._spoken + stream.buffer:
                        return rate
                    self._be_silent(stream)
                elif frame.sample_rate_hz == rate:
                    self._say(stream, frame)
                else:
                    self._queue.put_back(self._generation, frame)
                    self._drain(stream)
                    return frame.sample_rate_hz
            self._drain(stream)
        finally:
            self._ask(stream.close)
        return None

    def _next(self, stream: OutputStream) -> AudioFrame | None:
        """The next piece of audio; None if the device needs silence before one has come."""

        def ready() -> bool:
            return len(self._queue) > 0 or self._queue.exhausted or self._queue.generation != self._generation

        waited = not ready()
        if waited:
            self._wait(self._queue.bell, ready, max(0.0, self._ahead() - LOW))
        now = self._clock()
        if now - self._dry > HANGS_AFTER:  # the device, or this thread, was held up
            self._pass_over(now)
        # Not in the midst of speech, unless it has broken off: one more call, and this thread may be late once more.
        if now > self._dry or (now >= self._look_at and not len(self._queue)):
            self._look(stream, now)
        generation, frame = self._queue.poll()
        if waited and frame is not None:
            self._was_held_up(now - frame.timestamp)
        self._follow(stream, generation)
        return frame

    def _was_held_up(self, seconds: float) -> None:
        """So long this thread had to wait for nothing but the interpreter."""
        self._late += (min(seconds, _LONGEST_COUNTED) - self._late) * _FORGETTING
        self._held_up = self._late > (_ON_TIME if self._held_up else _HELD_UP)

    def _be_silent(self, stream: OutputStream) -> None:
        """Write a period of silence."""
        begun = self._clock()
        has_room = self._ahead() + 2 * PERIOD <= stream.buffer
        self._put(stream, pcm_tools.silence(round(PERIOD * stream.sample_rate_hz)))
        self._speaking = False
        if has_room:  # the call has waited for nothing else
            self._was_held_up(self._clock() - begun)

    def _say(self, stream: OutputStream, frame: AudioFrame) -> None:
        """Write a piece of audio, and what follows it until the device is full."""
        ahead = self._ahead()
        lead = 0.0
        if not (self._speaking and ahead > 0):
            # With room for the bot's head start.
            lead = min(_LONG_LEAD if self._held_up else LEAD, stream.buffer - 2 * PERIOD)
            lead = max(0.0, lead - ahead)
            if frame.timestamp < self._spoken + _PAUSE:
                self._underruns += 1
        pieces = [pcm_tools.silence(round(lead * frame.sample_rate_hz)), frame.pcm]
        room = stream.buffer - ahead - lead - frame.duration
        while room > 0:
            generation, more = self._queue.poll()
            if more is None:
                break
            if generation != self._generation or more.sample_rate_hz != frame.sample_rate_hz:
                self._queue.put_back(generation, more)
                break
            pieces.append(more.pcm)
            room -= more.duration
        self._put(stream, pcm_tools.scaled(b"".join(pieces), self._volume()))
        self._speaking, self._spoken = True, self._dry

    def _drain(self, stream: OutputStream) -> None:
        """Silence for a whole buffer: once it is in, what was said is out. Without it the end would be cut off."""
        for _ in range(math.ceil(stream.buffer / PERIOD)):
            self._follow(stream, self._queue.generation)
            if self._clock() > self._spoken + stream.buffer:
                return  # nothing was said lately, or it is not wanted any more
            self._put(stream, pcm_tools.silence(round(PERIOD * stream.sample_rate_hz)))

    def _put(self, stream: OutputStream, pcm: bytes) -> None:
        dry = max(self._dry, self._clock()) + len(pcm) / (2 * stream.sample_rate_hz)
        self._ask(lambda: stream.write(pcm))
        self._dry = min(dry, self._clock() + stream.buffer)
        self._works(stream.device)

    def _ahead(self) -> float:
        """Seconds of audio that the device has not played yet."""
        return max(0.0, self._dry - self._clock())

    def _look(self, stream: OutputStream, now: float) -> None:
        """Ask the device what it has not played yet."""
        known = self._dry + _DRIFT if now <= self._dry else math.inf
        # Where the sound system takes audio in leaps, the answer is too high but right after one.
        self._dry = min(known, now + max(0.0, stream.buffer - self._ask(stream.room)))
        self._look_at = now + _LOOK_EVERY

    def _follow(self, stream: OutputStream, generation: int) -> None:
        """If this is a new generation, the device forgets what it has of the old one."""
        if generation != self._generation:
            self._generation = generation
            if not self._cut:  # closing it forgets that too, and there is no time for both
                self._ask(stream.drop)
            self._dry = self._clock()
            self._speaking, self._spoken = False, -math.inf

    def _pass_over(self, now: float) -> None:
        """Nothing was played until now: what would have been heard by now comes too late."""
        while True:
            generation, frame = self._queue.poll()
            if frame is None:
                return
            over = max(self._dry, frame.timestamp) + frame.duration
            if over > now:
                self._queue.put_back(generation, frame)
                return
            self._dry = over
            self._missed += 1
