"""Microphone capture: opened, read, sent and closed on one thread, at the pace of the sound card."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import partial

from ...concurrency.clock import monotonic
from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import start_thread
from ...concurrency.logs import package_logger
from ...concurrency.timer_thread import Scheduler
from ...errors import DeviceError, MissingExtraError, RTVIError
from .. import pcm as pcm_tools
from ..base import MediaDeviceInfo
from ..capture import CHUNKS_PER_SECOND, SendAudio
from ..pcm import MICROPHONE_RATE_HZ
from .backend import AudioBackend, InputStream
from .device import Device, wait_until
from .echo_canceller import EchoCanceller

logger: logging.Logger = package_logger(__name__)

PERIOD = 1 / CHUNKS_PER_SECOND
# Chunks of silence that are sent after muting or a failure, so that the bot's VAD can end the turn.
_SILENCE_CHUNKS = CHUNKS_PER_SECOND
# Seconds between two frames, or seconds of unread audio, above which frames are stale: the bot's answers to them
# would be as late. A device that was just opened may need longer for its first frame.
_STALE_AFTER = 0.2
_FIRST_FRAME_WITHIN = 1.0
# Seconds after which a transport that is sending a frame counts as hanging; disconnecting it ends the call.
_SEND_LIMIT = 0.5


class DeviceMic(Device):
    """Capture from a microphone of this machine to the bot, while it is on.

    A thread of its own opens the device, reads 20 ms at a time and sends each frame immediately. When the microphone is
    muted, the thread closes the device, which ends the recording within one period. Then, and when the device fails,
    the bot gets 1 s of silence in real time, and nothing after it. A device that fails is opened again, after longer
    and longer pauses.

    Args:
        backend: opens the device.
        device_id: id of the device. None: the system's default, looked up at each open.
        enabled: returns whether the microphone is on. Call `look()` when that changes. If it starts muted, the device
            is not opened, and `wait_opened()` does not block.
        publish: called with the captured audio, and with the silence after it, also before `start()`: pcm, rate,
            monotonic time. Like `report` and `opened` it must not block, and is not called after `halt()`.
        report: see `Device`.
        opened: see `Device`. After a `report` it is called once frames arrive again.
        echo: cancels the echo of a speaker; None: the audio is sent as it was recorded.
        persists: see `Device`.
        clock: returns monotonic seconds.
        wait: `wait(notifier, ready, timeout)` blocks on the notifier until `ready()`, for up to `timeout` seconds. It
            and `clock` are parameters for tests.

    Raises:
        NoThreadError: the process can start no more threads.
    """

    #: The device sets the pace, so no silence is ever sent in place of a late frame.
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
        echo: EchoCanceller | None = None,
        persists: bool = False,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[Notifier, Callable[[], object], float], object] = wait_until,
    ) -> None:
        super().__init__("mic", device_id, report=report, opened=opened, persists=persists)
        self._backend = backend
        self._enabled = enabled
        self._publish = publish
        self._echo = echo
        self._clock = clock
        self._wait = wait
        self._notifier = Notifier()  # notified when the thread may have to open or close the device, or end
        self._sent = Notifier()  # notified when no frame is being sent
        # Guarded by `_lock`.
        self._sending = False
        self._send: SendAudio | None = None
        self._started = False
        # Used only by the microphone's thread, except that other threads read `_stale`.
        self._ident = 0
        self._rate = MICROPHONE_RATE_HZ
        self._silence_left = 0  # chunks of silence that are still to be sent
        self._due = 0.0  # when the next of them is due
        self._stale = 0
        if not enabled():
            self._first_open_done.set()
        self._thread = start_thread("mic", self._run)

    #: A recording is dropped (`stale_dropped`), and never sent later.
    delayed_seconds: float = 0.0
    #: It is sent when it is recorded, and due at no other time.
    max_delay: float = 0.0

    @property
    def stale_dropped(self) -> int:
        """The number of frames of 20 ms that were dropped because they were read too late. Thread-safe."""
        return self._stale

    def start(self, schedule: Scheduler, send: SendAudio) -> None:  # noqa: ARG002 - the device sets the pace
        """Send the captured audio from now on; only the first call counts. Does not block.

        Args:
            schedule: the session's schedule; not used.
            send: `send(pcm, sample_rate_hz)`, called on the microphone's thread; must not block. Once it has raised an
                `RTVIError` it is not called again.
        """
        with self._lock:
            if not self._started:
                self._started, self._send = True, send

    def look(self) -> None:
        """Apply that the microphone was muted or unmuted. Called on any thread; never blocks."""
        self._notifier.notify_all()

    def halt(self) -> None:
        """Stop sending by the return of this call; the device is closed soon. Idempotent; thread-safe."""
        super().halt()
        self._notifier.notify_all()
        if threading.get_ident() != self._ident:
            self._sent.wait_for(lambda: not self._sending, Deadline(_SEND_LIMIT))

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait until the device is closed, after `halt()`.

        Returns:
            The thread that was abandoned at the deadline, or None. Once its call to the library returns, it closes the
            device and does nothing else.
        """
        if threading.current_thread() is not self._thread and join_thread(self._thread, deadline):
            return None
        return self._thread

    # -- the microphone's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._ident = threading.get_ident()
        while not self._halted:
            if not self._enabled():
                self._first_open_done.set()
                self._stay_closed(self._enabled, math.inf)
                continue
            try:
                self._record()
            except (DeviceError, MissingExtraError) as error:
                if not self._on_failure(error):
                    return
                self._stay_closed(lambda: not self._enabled(), self._clock() + self._next_retry_interval())

    def _record(self) -> None:
        """Open the device and send its audio until it is muted or halted."""
        # A device that refuses this rate is read at its own.
        stream = self._call_library(lambda: self._backend.open_input(self._device_id, MICROPHONE_RATE_HZ, PERIOD))
        with self._closing(stream, self._backend):
            self._rate = stream.sample_rate_hz
            if self._echo is not None:
                self._echo.begin(self._rate)
            self._on_opened(stream.device)
            self._read(stream)

    def _read(self, stream: InputStream) -> None:
        late = False
        last = self._clock() + _FIRST_FRAME_WITHIN
        while not self._must_stop():
            begun = self._clock()
            pcm = self._call_library(stream.read)
            now = self._clock()
            if self._must_stop():
                return  # muted while it was recorded
            backlog = self._call_library(stream.backlog)
            if now - last > _STALE_AFTER + PERIOD or backlog > _STALE_AFTER:
                late = True
            elif now - begun > PERIOD / 2:
                late = False  # the read blocked, so this frame is the newest
            last = now
            if self._echo is not None:  # stale frames too, because a gap would cost it a second
                pcm = self._call_library(partial(self._echo.cancel, pcm, now - backlog - PERIOD))
            if late:
                self._stale += 1
                continue
            self._on_success(stream.device)
            self._deliver(pcm, now)
            self._silence_left, self._due = _SILENCE_CHUNKS, now + PERIOD

    def _stay_closed(self, over: Callable[[], bool], until: float) -> None:
        """Leave the device closed until `over()`, `halt()` or the time `until`, and send the silence that is due."""

        def ready() -> bool:
            return self._halted or over()

        self._due = max(self._due, self._clock())
        while not ready() and (now := self._clock()) < until:
            if self._silence_left and now >= self._due:
                index = _SILENCE_CHUNKS - self._silence_left
                # At a rate whose 20 ms are no integer number of samples, 50 chunks still make exactly 1 s.
                frames = (index + 1) * self._rate // CHUNKS_PER_SECOND - index * self._rate // CHUNKS_PER_SECOND
                self._deliver(pcm_tools.silence(frames), now)
                self._silence_left -= 1
                self._due += PERIOD
            else:
                self._wait(self._notifier, ready, (min(self._due, until) if self._silence_left else until) - now)

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
                    # The connection is lost, and the session is about to end.
                    logger.debug("Sending audio ended: %s", error)
                    self._send = None
                except Exception:
                    logger.exception("Sending audio failed; no more is sent in this session")
                    self._send = None
            self._publish(pcm, self._rate, now)
        finally:
            self._sending = False
            self._sent.notify_all()

    def _must_stop(self) -> bool:
        return self._halted or not self._enabled()
