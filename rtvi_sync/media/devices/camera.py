"""Camera capture: from a camera or another video source to the bot and to the readers of the local track."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Literal

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import start_thread
from ...concurrency.logs import package_logger
from ...errors import DeviceError, MissingExtraError, RTVIError
from ..base import MediaDeviceInfo, VideoFrame, VideoQueue, VideoSource
from ..leases import Lease
from ..video import CameraSource, Pace, PackagedVideo, ScreenSource
from .device import Device

logger: logging.Logger = package_logger(__name__)

SendVideo = Callable[[VideoFrame], None]

# Seconds after which a camera counts as hanging: until its first frame, and from then on between two frames (even in
# the dark a camera delivers at least 5 per second).
_OPEN_TIMEOUT, _FRAME_TIMEOUT = 10.0, 3.0
# Limit for a source of the application whose read() does not block.
_MAX_FPS = 60.0


class Camera(Device):
    """Capture from a camera or another source while it is on.

    One thread opens, reads and releases a camera, as OpenCV requires. When the camera is turned off, the thread
    releases it as soon as the current read returns. Each frame goes to the local track, and by another thread to the
    transport. If the transport is slow, it gets the newest frame, and capture continues.

    A camera or screen of this machine that fails is opened again, after longer and longer pauses. Another source that
    has failed or ended is read again when the camera is turned off and on.

    Args:
        cam: None: the default camera; a device's id; or a source.
        enabled: returns whether the camera is on. Called on any thread.
        publish: called with each frame, on the camera's thread; must not block.
        report, opened: see `Device`. For a source of the application `report` is called with each failure, and `opened`
            never.
        role: "screen" for a shared screen.
        persists: see `Device`.
        deadline: limit of the wait for a call of the source that an earlier session has left. None: no wait.

    Raises:
        DeviceError: another session uses the source; `.type` is "in-use".
        NoThreadError: the process can start no more threads.
    """

    def __init__(
        self,
        cam: str | VideoSource | None,
        *,
        enabled: Callable[[], bool],
        publish: Callable[[VideoFrame], None],
        report: Callable[[DeviceError], None],
        opened: Callable[[MediaDeviceInfo], None] = lambda _: None,
        role: Literal["cam", "screen"] = "cam",
        persists: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        self._source: VideoSource = CameraSource(cam) if cam is None or isinstance(cam, str) else cam
        # None for a source of the application, whose read() may block for any time.
        self._device = self._source if isinstance(self._source, (CameraSource, ScreenSource)) else None
        name = self._device.device_id if self._device is not None else type(self._source).__name__
        super().__init__(role, name, report=report, opened=opened, persists=persists)
        self._enabled = enabled
        self._publish = publish
        self._lease: Lease | None = Lease(self._source, role, deadline)  # guarded by `_lock`
        self._given_up = False  # its thread hangs in a call
        self._switches = 0  # how often it was turned on or off
        #: Whether a source has ended or failed, and is read again only when the camera is turned off and on.
        self.ended: bool = False
        self._notifier = Notifier()  # notified when it was turned on or off, or halted
        self._send: SendVideo | None = None
        self._outgoing = VideoQueue(1)
        self._sender: threading.Thread | None = None  # started by the camera's thread only
        if self._device is None or not enabled():
            self._first_open_done.set()
        try:
            self._thread = start_thread(role, self._run)
        except RuntimeError:
            self._release_lease()
            raise

    @property
    def dropped(self) -> int:
        """The number of frames that were not sent because the transport was too slow."""
        return self._outgoing.dropped

    def start(self, send: SendVideo) -> None:
        """Start sending frames: the bot is ready. Does not block; called once.

        Args:
            send: called on a thread of its own, so it may block. One frame waits for it, which the next one replaces.
                If it raises an `RTVIError`, sending ends.
        """
        self._send = send

    def look(self) -> None:
        """Apply that the camera was turned on or off. Called on any thread; does not block."""
        if self._enabled():
            with self._lock:
                self._failing = self._reported = False  # a failure after this is reported again
        self._switches += 1
        self._notifier.notify_all()

    def check(self, now: float) -> None:
        """Report a camera or screen of this machine that hangs; see `Device.check()`."""
        if self._device is not None:
            super().check(now)

    def halt(self) -> None:
        """Stop publishing and sending. After the return of this call neither starts again. Idempotent."""
        super().halt()
        self._outgoing.end()
        self._notifier.notify_all()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait until the source is closed, after `halt()`.

        Returns:
            The thread that was abandoned at the deadline, or None.
        """
        if not self._join(self._thread, deadline):
            self._give_up()
            return self._thread
        sender = self._sender
        return None if sender is None or self._join(sender, deadline) else sender

    def _give_up(self) -> None:
        """Abandon the thread, which hangs in a library or in the application's code."""
        self._given_up = True
        if isinstance(self._source, PackagedVideo):  # each thread has a stream of its own
            self._release_lease()
        elif (lease := self._lease) is not None:  # it is released when the call returns: two threads may not read it
            lease.end_soon()

    @staticmethod
    def _join(thread: threading.Thread, deadline: Deadline) -> bool:
        return thread is not threading.current_thread() and join_thread(thread, deadline)

    # -- the camera's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        again = True
        try:
            while again and self._wait(lambda: self._enabled(), None):
                switches = self._switches
                again, interval = self._capture()
                if again and self._is_on():
                    self.ended = interval is None
                    self._wait(partial(self._switched_since, switches), interval)
                    self.ended = False
        finally:
            self._outgoing.end()
            self._release_lease()

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `ready()` or the timeout, and return whether the camera was not halted."""
        self._notifier.wait_for(lambda: self._halted or ready(), Deadline(timeout))
        return not self._halted

    def _switched_since(self, switches: int) -> bool:
        return self._switches != switches

    def _is_on(self) -> bool:
        return not self._halted and self._enabled()

    def _capture(self) -> tuple[bool, float | None]:
        """Read the source until it is turned off, ends or fails.

        Returns:
            Whether to try again, and after how many seconds; None: only when the camera is turned off and on.
        """
        pace = Pace(_MAX_FPS)
        self._hangs_after = _OPEN_TIMEOUT
        try:
            while self._is_on():
                if not isinstance(self._source, PackagedVideo):
                    pace.wait()
                else:  # waits here, because the source's own wait cannot be interrupted, and would count as hanging
                    self._wait(lambda: not self._enabled(), self._source.remaining)
                    if not self._is_on():
                        break
                frame = self._call_library(self._source.read)
                if frame is None:
                    break
                if not isinstance(frame, VideoFrame):
                    raise self._error(f"failed: read() returns a VideoFrame or None, not {type(frame).__name__}")
                if not self._is_on():
                    break
                if self._device is not None and self._device.device is not None:
                    self._on_frame_of(self._device.device)
                self._deliver(frame)
        except Exception as error:  # noqa: BLE001
            again = self._fail(error)
            is_over = self._device is None or isinstance(error, MissingExtraError)
            return again, None if is_over else self._next_retry_interval()
        finally:
            self._close()
        return True, None

    def _on_frame_of(self, info: MediaDeviceInfo) -> None:
        if self._hangs_after == _OPEN_TIMEOUT:
            self._hangs_after = _FRAME_TIMEOUT
            self._on_opened(info)
        self._on_success(info)

    def _deliver(self, frame: VideoFrame) -> None:
        self._publish(frame)
        if self._send is not None:
            self._outgoing.put(frame)
            if self._sender is None:
                self._sender = start_thread("video", self._send_all, self._send)

    def _close(self) -> None:
        if self._given_up and not isinstance(self._source, PackagedVideo):
            return
        try:
            self._source.close()
        except BaseException as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: BaseException) -> bool:
        """Report a failure, and return whether to try again."""
        if not isinstance(error, RTVIError):
            failure = self._error(f"failed: {error!r}")
            failure.__cause__ = error
            error = failure
        if self._device is None and not self._halted:
            logger.error("%s failed", type(self._source).__name__, exc_info=error.__cause__ or error)
        return self._on_failure(error)

    def _error(self, what: str, *, hangs: bool = False) -> DeviceError:
        if self._device is not None:
            return super()._error(what, hangs=hangs)
        return DeviceError(f"The {self._kind} {self._label} {what}", devices=(self._kind,))

    def _release_lease(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    # -- the sending thread -------------------------------------------------------------------------------------------

    def _send_all(self, send: SendVideo) -> None:
        while (frame := self._outgoing.get()) is not None:
            if not self._is_on():
                continue
            try:
                send(frame)
            except RTVIError as error:
                # The connection is lost, and the session is about to end.
                logger.debug("Sending video ended: %s", error)
                return
            except Exception:
                logger.exception("Sending video failed; no more is sent in this session")
                return
