"""From a camera, or another source of pictures, to the bot and to the readers of the local track."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Literal

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import start_thread
from ...errors import DeviceError, MissingExtraError, RTVIError
from ..base import Lease, MediaDeviceInfo, VideoFrame, VideoQueue, VideoSource
from ..video import CameraSource, Pace, PackagedVideo, ScreenSource
from .device import RETRY_INTERVAL, Device

logger: logging.Logger = logging.getLogger(__name__)

SendVideo = Callable[[VideoFrame], None]

# A camera that is to be opened may take this long, in seconds, and one that works so long for the next picture (it
# takes five a second at least, however dark it is). Otherwise it hangs.
_OPENING, _SILENCE = 10.0, 3.0
# How often a second a source of the user's is read at most, should it not wait by itself.
_MOST_FPS = 60.0


class Camera(Device):
    """Reads a camera or another source while it is on.

    All of it happens on one thread: a camera is opened, read and released there, as OpenCV wants it. When the camera is
    turned off it is released as soon as the picture under way has come. A picture goes to the local track, and by
    another thread to the transport; if that is slow it gets the newest, and capture goes on.

    A camera or screen of this machine that fails is tried again every second; another source that has failed, or ended,
    is read again when the camera is turned off and on.

    Args:
        cam: None: the default camera; a device's id; or a source.
        enabled: whether it is on. Asked on any thread.
        publish: given each picture, on the camera's thread; must not block.
        report, opened: see `Device`. Of a source of the user's every failure is reported, and nothing opened.
        role: "screen" for a screen that is shared.

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
    ) -> None:
        self._source: VideoSource = CameraSource(cam) if cam is None or isinstance(cam, str) else cam
        # One of this machine's; otherwise a source that is none, which may wait for as long as it likes.
        self._device = self._source if isinstance(self._source, (CameraSource, ScreenSource)) else None
        name = self._device.device_id if self._device is not None else type(self._source).__name__
        super().__init__(role, name, report=report, opened=opened)
        self._enabled = enabled
        self._publish = publish
        self._lease: Lease | None = Lease(self._source, role)  # `Device`'s lock guards it
        self._looks = 0  # how often it was turned on or off
        self._notifier = Notifier()  # rung when that has changed, or it is halted
        self._send: SendVideo | None = None
        self._outgoing = VideoQueue(1)
        self._sender: threading.Thread | None = None  # the camera's thread alone starts it
        if self._device is None or not enabled():
            self._settled.set()
        try:
            self._thread = start_thread(role, self._run)
        except RuntimeError:
            self._release_lease()
            raise

    @property
    def dropped(self) -> int:
        """Pictures that the transport did not get because it was too slow."""
        return self._outgoing.dropped

    def start(self, send: SendVideo) -> None:
        """The bot is ready: send it pictures from now on. Does not block; called once.

        Args:
            send: called on a thread that it has for itself, so it may block; a picture that comes meanwhile waits, and
                the next one takes its place. An `RTVIError` of it ends the sending.
        """
        self._send = send

    def look(self) -> None:
        """The camera was turned on or off. Any thread; does not block."""
        if self._enabled():
            with self._lock:
                self._troubled = self._told = False  # whoever turns it on wants to know again
        self._looks += 1
        self._notifier.notify_all()

    def check(self, now: float) -> None:
        if self._device is not None:
            super().check(now)

    def halt(self) -> None:
        """Publish nothing more and begin to send nothing more from the return of this call on. Idempotent."""
        super().halt()
        self._outgoing.end()
        self._notifier.notify_all()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until the source is closed; the thread that was given up at the deadline, or None."""
        if not self._join(self._thread, deadline):
            # It hangs in a library or in the user's code, and owns nothing from here on.
            self._release_lease()
            return self._thread
        sender = self._sender
        return None if sender is None or self._join(sender, deadline) else sender

    @staticmethod
    def _join(thread: threading.Thread, deadline: Deadline) -> bool:
        return thread is not threading.current_thread() and join_thread(thread, deadline)

    # -- the camera's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        again = True
        try:
            while again and self._wait(lambda: self._enabled(), None):
                looks = self._looks
                again, interval = self._take_pictures()
                if again and self._wanted():
                    self._wait(partial(self._looked_since, looks), interval)
        finally:
            self._outgoing.end()
            self._release_lease()

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until then; False: it is over."""
        self._notifier.wait_for(lambda: self._halted or ready(), Deadline(timeout))
        return not self._halted

    def _looked_since(self, looks: int) -> bool:
        return self._looks != looks

    def _wanted(self) -> bool:
        return not self._halted and self._enabled()

    def _take_pictures(self) -> tuple[bool, float | None]:
        """Read until it is turned off, ends or fails.

        Returns:
            False if it has failed for good, and the seconds after which to try again otherwise; None: not by itself.
        """
        pace = None if isinstance(self._source, PackagedVideo) else Pace(_MOST_FPS)
        self._hangs_after = _OPENING
        try:
            while self._wanted():
                if pace is not None:
                    pace.wait()
                frame = self._ask(self._source.read)
                if frame is None:
                    break
                if not isinstance(frame, VideoFrame):
                    raise self._error(f"failed: read() returns a VideoFrame or None, not {type(frame).__name__}")
                if not self._wanted():
                    break
                if self._device is not None and self._device.device is not None:
                    self._works_with(self._device.device)
                self._take(frame)
        except BaseException as error:  # noqa: BLE001 - the SystemExit of a user's code must not pass silently
            again = self._fail(error)
            return again, None if self._device is None or isinstance(error, MissingExtraError) else RETRY_INTERVAL
        finally:
            self._close()
        return True, None

    def _works_with(self, info: MediaDeviceInfo) -> None:
        if self._hangs_after == _OPENING:
            self._hangs_after = _SILENCE
            self._has_opened(info)
        self._works(info)

    def _take(self, frame: VideoFrame) -> None:
        self._publish(frame)
        if self._send is not None:
            self._outgoing.put(frame)
            if self._sender is None:
                self._sender = start_thread("video", self._send_all, self._send)

    def _close(self) -> None:
        if self._lease is None and not isinstance(self._source, PackagedVideo):
            return  # it was given up, and another session may be reading it
        try:
            self._source.close()
        except BaseException as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: BaseException) -> bool:
        """Tell of a failure; whether to try again."""
        if not isinstance(error, RTVIError):
            failure = self._error(f"failed: {error!r}")
            failure.__cause__ = error
            error = failure
        if self._device is None and not self._halted:
            logger.error("%s failed", type(self._source).__name__, exc_info=error.__cause__ or error)
        return self._has_failed(error)

    def _error(self, what: str) -> DeviceError:
        if self._device is not None:
            return super()._error(what)
        return DeviceError(f"The {self._kind} {self._label} {what}", devices=(self._kind,))

    def _release_lease(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    # -- the thread that sends ----------------------------------------------------------------------------------------

    def _send_all(self, send: SendVideo) -> None:
        while (item := self._outgoing.get()) is not None and item[1] is not None:
            if not self._wanted():
                continue
            try:
                send(item[1])
            except RTVIError as error:
                # The line is gone; the end of the session is on its way.
                logger.debug("Sending video ended: %s", error)
                return
            except Exception:
                logger.exception("Sending video failed; no more is sent in this session")
                return
