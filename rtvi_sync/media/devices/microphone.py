"""From a microphone to the bot: read, sent and closed again on one thread, which the sound card paces."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import start_thread
from ...concurrency.timer_thread import Scheduler
from ...errors import DeviceError, MissingExtraError, RTVIError
from .. import pcm as pcm_tools
from ..base import MediaDeviceInfo
from ..capture import CHUNKS_PER_SECOND, SendAudio
from .backend import AudioBackend, InputStream
from .device import RETRY_INTERVAL, Device, wait_at

logger: logging.Logger = logging.getLogger(__name__)

# What speech recognition works at. A device that refuses it is read at its own rate.
_RATE_HZ = 16000
PERIOD = 1 / CHUNKS_PER_SECOND
# What is sent after muting or a failure, so that the bot's VAD can end the turn.
_HUSH_CHUNKS = CHUNKS_PER_SECOND
# After so long between two frames, and with so much that waits to be read, what comes is stale: answers to it would
# come just as late. A device that was just opened may need longer for its first frame.
_STALE_AFTER = 0.2
_FIRST_FRAME_WITHIN = 1.0
# A transport that has not sent a frame by then hangs, until it is told to disconnect.
_SEND_LIMIT = 0.5


class DeviceMic(Device):
    """Sends what a microphone of this machine hears, while it is on.

    A thread of its own opens the device, reads 20 ms at a time, sends each at once and closes the device when the
    microphone is muted, which ends the recording within one period. Then, and when the device fails, the bot hears 1 s
    of silence at the pace of real time and after it nothing. A device that fails is tried again every second.

    Args:
        backend: opens the device.
        device_id: None: the system's default, as it is each time the device is opened.
        enabled: whether the microphone is on. Call `look()` when that changes. Muted from the start, the device is not
            touched, and there is nothing to wait for.
        publish: given what was heard, and the silence after it, also before `start()`: pcm, rate, monotonic time. Like
            `report` and `opened` it must not block, and is not called after `halt()`.
        report: see `Device`.
        opened: see `Device`. After a `report` it is called once frames come again.
        clock: monotonic seconds.
        wait: `wait(notifier, ready, timeout)` sleeps at the notifier until `ready()`, at most `timeout` seconds. It and
            `clock`
            are parameters for the sake of tests.

    Raises:
        NoThreadError: the process can start no more threads.
    """

    #: The device sets the pace, so nothing is ever sent in place of something late.
    underruns = 0

    def __init__(
        self,
        backend: AudioBackend,
        device_id: str | None,
        *,
        enabled: Callable[[], bool],
        publish: Callable[[bytes, int, float], None],
        report: Callable[[DeviceError], None],
        opened: Callable[[MediaDeviceInfo], None],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Notifier, Callable[[], object], float], object] = wait_at,
    ) -> None:
        super().__init__("mic", device_id, report=report, opened=opened)
        self._backend = backend
        self._enabled = enabled
        self._publish = publish
        self._clock = clock
        self._wait = wait
        self._notifier = Notifier()  # rung when the thread may have to open, close or end
        self._sent = Notifier()  # rung when nothing is being sent
        # These are guarded by the lock, too.
        self._sending = False
        self._send: SendAudio | None = None
        self._started = False
        # The rest is the thread's alone, others read the counter.
        self._ident = 0
        self._rate = _RATE_HZ
        self._hush = 0  # chunks of silence that the bot is still to hear
        self._due = 0.0  # when the next of them is due
        self._stale = 0
        if not enabled():
            self._settled.set()
        self._thread = start_thread("mic", self._run)

    @property
    def stale_dropped(self) -> int:
        """Frames of 20 ms that nobody heard because they were read too late. May be read from any thread."""
        return self._stale

    def start(self, schedule: Scheduler, send: SendAudio) -> None:  # noqa: ARG002 - the device sets the pace
        """Send from now on what is heard; the first call counts. Does not block.

        Args:
            schedule: of the session; not used.
            send: `send(pcm, sample_rate_hz)`, called on the microphone's thread; must not block. Once it has raised an
                `RTVIError` it is not called again.
        """
        with self._lock:
            if not self._started:
                self._started, self._send = True, send

    def look(self) -> None:
        """The microphone was muted or unmuted. Called on any thread; never blocks."""
        self._notifier.notify_all()

    def halt(self) -> None:
        """Send nothing more from the return of this call on; the device is closed soon. Idempotent, on any thread."""
        super().halt()
        self._notifier.notify_all()
        if threading.get_ident() != self._ident:
            self._sent.wait_for(lambda: not self._sending, Deadline(_SEND_LIMIT))

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until the device is closed; the thread that was given up at the deadline, or None.

        A thread that was given up closes the device when the library lets it go, and does nothing else.
        """
        if threading.current_thread() is not self._thread and join_thread(self._thread, deadline):
            return None
        return self._thread

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._ident = threading.get_ident()
        while not self._halted:
            if not self._enabled():
                self._settled.set()
                self._rest(self._enabled, math.inf)
                continue
            try:
                self._record()
            except (DeviceError, MissingExtraError) as error:
                if not self._has_failed(error):
                    return
                self._rest(lambda: not self._enabled(), self._clock() + RETRY_INTERVAL)

    def _record(self) -> None:
        """Send what the device hears until it is muted or halted."""
        stream = self._ask(lambda: self._backend.open_input(self._device_id, _RATE_HZ, PERIOD))
        try:
            self._rate = stream.sample_rate_hz
            self._has_opened(stream.device)
            self._read(stream)
        finally:
            self._ask(stream.close)

    def _read(self, stream: InputStream) -> None:
        late = False
        last = self._clock() + _FIRST_FRAME_WITHIN
        while not self._unwanted():
            begun = self._clock()
            pcm = self._ask(stream.read)
            now = self._clock()
            if self._unwanted():
                return  # muted while it was heard
            if now - last > _STALE_AFTER + PERIOD or self._ask(stream.backlog) > _STALE_AFTER:
                late = True
            elif now - begun > PERIOD / 2:
                late = False  # it had to wait for this frame, so this is the newest
            last = now
            if late:
                self._stale += 1
                continue
            self._works(stream.device)
            self._deliver(pcm, now)
            self._hush, self._due = _HUSH_CHUNKS, now + PERIOD

    def _rest(self, over: Callable[[], bool], until: float) -> None:
        """Leave the device alone until `over()`, `halt()` or the time `until`; the bot hears the silence due to it."""

        def ready() -> bool:
            return self._halted or over()

        self._due = max(self._due, self._clock())
        while not ready() and (now := self._clock()) < until:
            if self._hush and now >= self._due:
                index = _HUSH_CHUNKS - self._hush
                # Of rates whose 20 ms are not whole samples, 50 chunks are 1 s all the same.
                frames = (index + 1) * self._rate // CHUNKS_PER_SECOND - index * self._rate // CHUNKS_PER_SECOND
                self._deliver(pcm_tools.silence(frames), now)
                self._hush -= 1
                self._due += PERIOD
            else:
                self._wait(self._notifier, ready, (min(self._due, until) if self._hush else until) - now)

    def _deliver(self, pcm: bytes, now: float) -> None:
        with self._lock:
            if self._halted:
                return
            self._sending, send = True, self._send
        try:
            if send is not None:
                try:
                    send(pcm, self._rate)
                except RTVIError as error:
                    # The line is gone; the end of the session is on its way.
                    logger.debug("Sending audio ended: %s", error)
                    self._send = None
                except Exception:
                    logger.exception("Sending audio failed; no more is sent in this session")
                    self._send = None
            self._publish(pcm, self._rate, now)
        finally:
            self._sending = False
            self._sent.notify_all()

    def _unwanted(self) -> bool:
        return self._halted or not self._enabled()
