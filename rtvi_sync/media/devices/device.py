"""Common base of microphones, speakers and cameras of this machine: opening, failure, watchdog, recovery."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from ...concurrency.deadline import Deadline
from ...concurrency.latch import Latch, Notifier
from ...concurrency.lock import new_lock
from ...concurrency.logs import package_logger
from ...errors import DeviceError, RTVIError, fresh_copy
from ..base import MediaDeviceInfo
from ..kinds import Kind
from .audio_errors import jack_advice
from .backend import AudioBackend, InputStream, OutputStream, failure_of

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

# Seconds after which a device that has not opened is considered hung.
OPEN_TIMEOUT = 5.0
# Limit in seconds for a device, source or sink to end after it was replaced or could not be opened.
END_TIMEOUT = 2.0
# Seconds after which a failed device is opened again. They double with each failure, because an attempt may start a
# process, and PortAudio writes lines to standard error that cannot be suppressed.
RETRY_INTERVAL = 1.0
LONGEST_RETRY_INTERVAL = 30.0
# A call to a device that takes longer, in seconds, counts as hanging.
HANGS_AFTER = 1.0
# If `check()` itself is late by this many seconds, the whole process was suspended, and the watched thread with it.
_WATCHDOG_LATE = 0.6

_NAMES = {"mic": "microphone", "speaker": "speaker", "cam": "camera", "screen": "screen"}
_ADVICE = {
    **dict.fromkeys(
        ("mic", "speaker"),
        "Unplug it and plug it in again, restart the audio system of this machine, or choose another",
    ),
    "cam": "Unplug it and plug it in again, end other programs that use it, or choose another",
}


def wait_until(notifier: Notifier, ready: Callable[[], object], timeout: float) -> None:
    """Block on `notifier` until `ready()` is true, for up to `timeout` seconds."""
    notifier.wait_for(ready, Deadline(timeout))


class Device:
    """One device, which belongs to a thread of its own and reports its status.

    The caller handles the result of the first open: see `wait_opened()`. Everything after it is reported by `report`
    and `opened`. After a `report` neither is called until the device works again, which calls `opened`. After `halt()`
    neither is called.

    Args:
        kind: "mic", "speaker", "cam" or "screen".
        device_id: id of the device; None: the system's default.
        report: called once per failure: on the device's thread if the device failed, on the thread that calls `check()`
            if it hangs.
        opened: called on the device's thread each time a device was opened; after a `report`, once it works again.
        persists: True to try again also if the first open fails, as after a `report`.

    Attributes:
        persists: as given.
    """

    def __init__(
        self,
        kind: Kind,
        device_id: str | None,
        *,
        report: Callable[[DeviceError], None],
        opened: Callable[[MediaDeviceInfo], None],
        persists: bool = False,
    ) -> None:
        self.persists: bool = persists
        self._kind = kind
        self._device_id = device_id
        self._report = report
        self._opened = opened
        self._label = "default" if device_id is None else device_id
        self._hangs_after = HANGS_AFTER
        # Set once the first open has succeeded or failed, or is no longer needed.
        self._first_open_done = Latch()
        self._first_open_error: RTVIError | None = None
        self._was_opened = False
        # Guards the three fields below. The device's thread and those that halt and check it hold it for a few
        # instructions. Re-entrant, because a finalizer may run while it is held.
        self._lock = new_lock()
        self._halted = False
        self._failing = False  # a failure was reported, or its report is under way
        self._reported = False  # its report is complete, and the device has not worked since
        # Written by the device's thread only. Other threads read `_current_call`: 0 between calls to the library.
        self._call_count = 0
        self._current_call = 0
        self._retry_interval = RETRY_INTERVAL
        # Used only by the thread that calls check().
        self._checked_at = -math.inf
        self._watched_call = 0
        self._watched_since = 0.0

    ended = False  # a device that fails is opened again

    def wait_opened(self, deadline: Deadline) -> None:
        """Wait until the device was opened for the first time.

        If this raises, the device has ended, unless it `persists` and the error is a `DeviceError`: then it has
        failed, and the caller reports that.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: the device cannot be opened, or did not answer before `deadline`; in the latter case the thread
                is still in the library, and `join()` returns it.
        """
        if not self._first_open_done.wait(deadline):
            if self.persists:
                self._failing = self._reported = True
                self._first_open_done.set()
            else:
                self.halt()
            raise self._error("does not answer", hangs=True)
        if self._first_open_error is not None:
            raise fresh_copy(self._first_open_error)

    @property
    def has_failed(self) -> bool:
        """True if a failure was reported, and the device has not worked since. Any thread."""
        return self._failing

    def check(self, now: float) -> None:
        """Report a device that hangs. Called a few times per second, on one thread; does not block.

        Args:
            now: monotonic seconds.
        """
        call = self._current_call
        if call != self._watched_call or now - self._checked_at > _WATCHDOG_LATE:
            self._watched_call, self._watched_since = call, now
        self._checked_at = now
        # wait_opened() has the timeout of the first open.
        if call and now - self._watched_since >= self._hangs_after and self._first_open_done.is_set():
            self._report_once(self._error("does not answer", hangs=True))

    def halt(self) -> None:
        """Stop reporting. Never blocks; idempotent."""
        with self._lock:
            self._halted = True
        self._first_open_done.set()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait until the device is closed, after `halt()`.

        Returns:
            The thread that was abandoned at the deadline, or None.
        """
        raise NotImplementedError

    # -- the device's thread -----------------------------------------------------------------------------------------

    def _call_library(self, call: Callable[[], T]) -> T:
        """Call the library, under the watch of `check()`."""
        self._call_count += 1
        self._current_call = self._call_count
        try:
            return call()
        except RTVIError:
            raise
        except BaseException as error:  # the SystemExit of application code must not pass silently
            raise self._error(f"failed: {error!r}") from error
        finally:
            self._current_call = 0

    @contextlib.contextmanager
    def _closing(self, stream: InputStream | OutputStream, backend: AudioBackend) -> Iterator[None]:
        """Close the stream after the block, and find out why it failed, if it did."""
        try:
            try:
                yield
            finally:
                self._call_library(stream.close)
        except DeviceError as error:
            if self._halted:
                raise
            failure = error
            try:
                # Not under the watch of `check()`: it may take seconds, in which the device does not hang.
                failure = failure_of(backend, error, stream.device)
            except Exception:
                logger.debug("Cannot find out why the %s failed", _NAMES[self._kind], exc_info=True)
            raise failure from error.__cause__

    def _on_opened(self, info: MediaDeviceInfo) -> None:
        self._label = info.label
        self._was_opened = True
        if not self._failing and not self._halted:
            self._opened(info)
        self._first_open_done.set()

    def _on_success(self, info: MediaDeviceInfo) -> None:
        self._retry_interval = RETRY_INTERVAL  # in any case: a camera that is turned on forgets its last failure
        if self._reported:
            self._reported = self._failing = False
            if not self._halted:
                self._opened(info)

    def _on_failure(self, error: RTVIError) -> bool:
        """Report a `DeviceError` or `MissingExtraError`, and return whether to try again."""
        if not self._first_open_done.is_set():
            persists = self.persists and isinstance(error, DeviceError)
            self._failing = self._reported = persists
            self._first_open_error = fresh_copy(error)
            self._first_open_done.set()
            return persists and not self._halted
        if not isinstance(error, DeviceError):
            failure = DeviceError(str(error), devices=(self._kind,), type="not-found")
            failure.__cause__ = error
            error = failure
        self._report_once(error)
        return not self._halted

    def _next_retry_interval(self) -> float:
        """Return the seconds until a failed device is opened again."""
        interval, self._retry_interval = self._retry_interval, min(2 * self._retry_interval, LONGEST_RETRY_INTERVAL)
        return interval

    def _report_once(self, error: DeviceError) -> None:
        """Report an error, unless one was reported since the device worked last."""
        with self._lock:
            known, self._failing = self._failing, True
            if known or self._halted:
                return
        logger.warning("%s", error)
        self._report(error)
        # Set after the report, so that the device's thread, which may be in a call now, reports recovery only after it.
        self._reported = True

    def _error(self, what: str, *, hangs: bool = False) -> DeviceError:
        advice = f". {_ADVICE[self._kind]} one with update_{self._kind}()" if self._kind in _ADVICE else ""
        if hangs and self._kind in ("mic", "speaker"):
            advice += jack_advice()
        return DeviceError(f"The {_NAMES[self._kind]} {self._label!r} {what}{advice}", devices=(self._kind,))


def await_opening(device: Device, deadline: Deadline) -> DeviceError | None:
    """Wait until a device has opened; end a device that cannot be opened.

    Returns:
        Why a device that `persists` could not be opened yet; None if the device is open.
    """
    try:
        device.wait_opened(deadline)
    except BaseException as error:
        if device.persists and isinstance(error, DeviceError):
            return error
        device.halt()
        if not deadline.expired:  # a hung device would only use up the timeout
            device.join(Deadline(END_TIMEOUT))
        raise
    return None
