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
by 10 to 20 ms whenever they need it, which is often, and by a third of a second once in some minutes. So this thread
measures how long it waits for its turn: before it opens the device, with each portion of silence, and with each frame
that it had waited for. Where that is long again and again, and for half a minute afterwards, speech begins 480 ms after
it has come, and the device is open with a buffer of 600 ms. It is opened anew for that when nothing is said, or when
speech begins or has broken off.

A call of the library gives the interpreter away, and to get it back takes 10 ms and more beside busy threads. So there
is one call for 40 ms of speech, which waits for room in the buffer, for a period of the device at most where the bot
has sent much at once: an interruption is followed once it returns.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import start_thread
from ...errors import DeviceError, MissingExtraError
from .. import pcm as pcm_tools
from ..base import AudioFrame, AudioQueue, MediaDeviceInfo
from .backend import AudioBackend, OutputStream
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
# How long this thread waits for its turn, as a moving average: beside one busy thread 5 ms, beside two 10 and more. It
# counts as held up until that was less for so many seconds: a load in between would open the device again and again.
_HELD_UP = 0.0075
_CALM = 30.0
_FORGETTING = 0.05
# What one turn counts at most: a pause of the machine, however long, is no busy thread.
_LONGEST_TURN = 0.02
# So often it is measured before there is anything to be late for.
_FIRST_TURNS = 8
# A bot may send faster than it speaks.
_QUEUE_SECONDS = 120.0
# What comes so soon after the speaker had to fall silent belongs to the same speech.
_PAUSE = 0.2
# How often the device is asked how much it has before it, and by how much its clock may differ from ours until then.
_LOOK_EVERY = 1.0
_DRIFT = 0.001
# What the device needs for being closed, when what is not played at the deadline of `join()` is cut off.
_CLOSING = 0.2


def take_turn() -> float:
    """Give the interpreter away: after how many seconds this thread has it back."""
    begun = time.perf_counter()  # the clock of monotonic() ticks in 16 ms on Windows
    time.sleep(0)
    return time.perf_counter() - begun


class DeviceSpeaker(Device):
    """Plays the bot's audio on a speaker of this machine.

    A thread of its own opens the device, writes, and closes it. A device that fails is tried again every second; what
    it would have played meanwhile is dropped. At another sample rate it is opened anew, once it has played what it has.

    Args:
        backend: opens the device.
        device_id: None: the system's default, as it is at first and after each failure.
        volume: 0.0 (silence) to 1.0 (as the bot sent it); asked for each time that something is written.
        report: see `Device`.
        opened: see `Device`.
        clock: monotonic seconds.
        wait: `wait(notifier, ready, timeout)` sleeps at the notifier until `ready()`, at most `timeout` seconds.
        turn: waits for the interpreter; see `take_turn()`. These three are parameters for the sake of tests.

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
        wait: Callable[[Notifier, Callable[[], object], float], object] = wait_at,
        turn: Callable[[], float] = take_turn,
    ) -> None:
        super().__init__("speaker", device_id, report=report, opened=opened)
        self._backend = backend
        self._volume = volume
        self._clock = clock
        self._wait = wait
        self._turn = turn
        self._queue = AudioQueue(_QUEUE_SECONDS)
        self._cut = False  # the thread is to close the device now
        # The rest is the thread's alone, others read the counters.
        self._underruns = 0
        self._missed = 0.0
        self._generation = 0
        self._dry = clock()  # when the device will have played all it was given, or when it had
        self._look_at = -math.inf  # when to ask it
        self._turn_takes = 0.0  # seconds, a moving average
        self._busy_until = -math.inf  # so long this thread counts as held up by others
        self._period = _DEVICE_PERIOD  # with which the device was opened
        self._accepted = False  # it has taken something since then
        self._takes_long = True  # it can be opened with the long one, as far as is known
        self._speaking = False  # the last of that is speech
        self._spoken = -math.inf  # when the last of the speech is, or was, played
        self._thread = start_thread("speaker", self._run)

    @property
    def dropped_seconds(self) -> float:
        """Audio that came too fast, or for a device that had failed. May be read from any thread."""
        return self._queue.dropped_seconds + self._missed

    @property
    def underruns(self) -> int:
        """How often speech was broken by silence that was not the bot's. May be read from any thread."""
        return self._underruns

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Play this next. Never blocks.

        Args:
            pcm: any number of samples.
            sample_rate_hz: at which they are played.

        Returns:
            See `Speaker`.
        """
        now, size = self._clock(), 2 * round(PERIOD * sample_rate_hz)
        begins = range(0, len(pcm), size)
        return sum(self._queue.add(pcm[begin : begin + size], sample_rate_hz, now) for begin in begins)

    def interrupt(self) -> None:
        """Forget what is not yet heard: within 40 ms, or 200 if the device has its long buffer. Never blocks."""
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
        device_id = self._device_id
        self._turn_takes = sum(min(self._turn(), _LONGEST_TURN) for _ in range(_FIRST_TURNS)) / _FIRST_TURNS
        self._has_waited(self._turn())
        while rate is not None and not self._cut:
            self._period, self._accepted = self._wanted_period(), False
            try:
                stream = self._open(device_id, rate)
                device_id = stream.device.device_id
                rate = self._play(stream, rate)
            except (DeviceError, MissingExtraError) as error:
                if self._period == _LONG_DEVICE_PERIOD and not self._accepted and not self._halted:
                    self._takes_long = False  # perhaps it is that
                    continue
                if not self._has_failed(error):
                    return
                self._wait(self._queue.notifier, lambda: self._halted, RETRY_INTERVAL)
                if self._halted:
                    return
                device_id, self._takes_long = self._device_id, True
                self._pass_over(self._clock())
                # It may have failed because of the rate, which may be another one by now.
                rate = next((frame.sample_rate_hz for frame in self._queue.queued()[-1:]), rate)

    def _open(self, device_id: str | None, rate: int) -> OutputStream:
        return self._ask(lambda: self._backend.open_output(device_id, rate, self._period))

    def _play(self, stream: OutputStream, rate: int) -> int | None:
        """Play until the device is to be opened anew, at the rate that is returned; None: there is no more to play."""
        try:
            self._dry = min(self._dry, self._clock())
            self._speaking, self._spoken = False, -math.inf
            self._has_opened(stream.device)
            while not self._cut and not self._queue.exhausted:
                frame = self._next(stream)
                if frame is None:
                    if self._needs_reopen(after=stream.buffer):
                        return rate
                    self._be_silent(stream)
                elif frame.sample_rate_hz != rate:
                    self._queue.put_back(self._generation, frame)
                    self._drain(stream)
                    return frame.sample_rate_hz
                elif self._speaking and self._ahead() > 0:
                    self._say(stream, frame, lead=0.0)
                else:
                    if frame.timestamp < self._spoken + _PAUSE:
                        self._underruns += 1
                    if self._held_up() and self._needs_reopen():
                        self._queue.put_back(self._generation, frame)
                        return rate
                    self._say(stream, frame, lead=self._lead(stream))
            self._drain(stream)
        finally:
            self._ask(stream.close)
        return None

    def _held_up(self) -> bool:
        """Whether others keep the interpreter from this thread."""
        return self._clock() < self._busy_until

    def _wanted_period(self) -> float:
        return _LONG_DEVICE_PERIOD if self._held_up() and self._takes_long else _DEVICE_PERIOD

    def _needs_reopen(self, after: float = 0.0) -> bool:
        """Whether it wants another buffer and can have it, since nothing was heard for so many seconds."""
        if self._wanted_period() == self._period or self._queue.exhausted:
            return False
        return self._clock() > self._spoken + after

    def _lead(self, stream: OutputStream) -> float:
        """How much silence is to be before speech that begins, in seconds."""
        if not self._held_up():
            return LEAD
        return max(LEAD, min(_LONG_LEAD, stream.buffer - 2 * PERIOD))  # with room for the bot's head start

    def _next(self, stream: OutputStream) -> AudioFrame | None:
        """The next piece of audio; None if the device needs silence before one has come."""

        def ready() -> bool:
            return len(self._queue) > 0 or self._queue.exhausted or self._queue.generation != self._generation

        waited = not ready()
        if waited:
            self._wait(self._queue.notifier, ready, max(0.0, self._ahead() - LOW))
        now = self._clock()
        if now - self._dry > HANGS_AFTER:  # the device, or this thread, was held up
            self._pass_over(now)
        # Not in the midst of speech, unless it has broken off: one more call, and this thread may be late once more.
        if now > self._dry or (now >= self._look_at and not len(self._queue)):
            self._look(stream, now)
        generation, frame = self._queue.poll()
        if waited and frame is not None:
            self._has_waited(now - frame.timestamp)
        self._follow(stream, generation)
        return frame

    def _has_waited(self, seconds: float) -> None:
        """So long did a turn take to come."""
        self._turn_takes += (min(seconds, _LONGEST_TURN) - self._turn_takes) * _FORGETTING
        if self._turn_takes > _HELD_UP:
            self._busy_until = self._clock() + _CALM

    def _be_silent(self, stream: OutputStream) -> None:
        """Write a period of silence."""
        self._put(stream, pcm_tools.silence(round(PERIOD * stream.sample_rate_hz)))
        self._speaking = False
        self._has_waited(self._turn())

    def _say(self, stream: OutputStream, frame: AudioFrame, lead: float) -> None:
        """Write a piece of audio, and what follows it until the device is full; before it `lead` seconds of silence,
        less what there is."""
        ahead = self._ahead()
        lead = max(0.0, lead - ahead)
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
        self._accepted = True
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
            self._missed += frame.duration
