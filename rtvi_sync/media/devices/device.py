"""What microphones, speakers and cameras of this machine have in common: they are opened, fail, hang, and come back."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TypeVar

from ...concurrency.deadline import Deadline
from ...concurrency.latch import Latch, Notifier
from ...errors import DeviceError, RTVIError, fresh_copy
from ..base import MediaDeviceInfo
from ..kinds import Kind

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long a failed device is left alone before it is tried again.
RETRY_INTERVAL = 1.0
# A device that answers no call for so long hangs.
HANGS_AFTER = 1.0
# If the watchdog itself comes so late, the whole process was held up, and with it the thread that is watched.
_WATCHDOG_LATE = 0.6

_NAMES = {"mic": "microphone", "speaker": "speaker", "cam": "camera", "screen": "screen"}
_WHAT_TO_DO = {
    **dict.fromkeys(
        ("mic", "speaker"),
        "Unplug it and plug it in again, restart the sound system of this machine, or choose another",
    ),
    "cam": "Unplug it and plug it in again, end other programs that use it, or choose another",
}


def wait_at(notifier: Notifier, ready: Callable[[], object], timeout: float) -> None:
    """Sleep at `notifier` until `ready()`, at most `timeout` seconds."""
    notifier.wait_for(ready, Deadline(timeout))


class Device:
    """One device, which belongs to a thread of its own; tells how it stands with it.

    The first open is the caller's affair: see `wait_opened()`. Everything after it is told through `report` and
    `opened`. Between a `report` and the `opened` that follows once the device works again neither is called, and
    neither is after `halt()`.

    Args:
        kind: "mic", "speaker", "cam" or "screen".
        device_id: None: the system's default.
        report: told, once, that the device failed, on its thread, or that it hangs, on the one that calls `check()`.
        opened: told on its thread what was opened, each time. After a `report`: once it works again.
    """

    def __init__(
        self,
        kind: Kind,
        device_id: str | None,
        *,
        report: Callable[[DeviceError], None],
        opened: Callable[[MediaDeviceInfo], None],
    ) -> None:
        self._kind = kind
        self._device_id = device_id
        self._report = report
        self._opened = opened
        self._label = "default" if device_id is None else device_id
        self._hangs_after = HANGS_AFTER
        # Open once the first open has succeeded or failed, or is not wanted any more.
        self._settled = Latch()
        self._failure: RTVIError | None = None  # of the first open
        # Guards the three fields below. The thread and those that halt and check it hold it for a few instructions.
        # Re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        self._halted = False
        self._troubled = False  # somebody reports a failure, or has done so
        self._told = False  # it was reported, and the device has not worked since
        # The thread's alone. The number of the call that it makes to the library, 0 between calls, is read by others.
        self._calls = 0
        self._call = 0
        # Those of whoever calls check().
        self._checked = -math.inf
        self._watched = 0
        self._watched_since = 0.0

    def wait_opened(self, deadline: Deadline) -> None:
        """Wait until the device was opened for the first time.

        After an error it has ended: nothing is reported or tried again. A session that goes on without it tries a
        device anew by making another one of these.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: the device cannot be opened, or did not answer before `deadline`; then the thread is in the
                library still, and `join()` returns it.
        """
        if not self._settled.wait(deadline):
            self.halt()
            raise self._error("does not answer")
        if self._failure is not None:
            raise fresh_copy(self._failure)

    def check(self, now: float) -> None:
        """Report a device that hangs: to be called a few times a second, on one thread. Does not block.

        Args:
            now: monotonic seconds.
        """
        call = self._call
        if call != self._watched or now - self._checked > _WATCHDOG_LATE:
            self._watched, self._watched_since = call, now
        self._checked = now
        # The first open is watched by wait_opened().
        if call and now - self._watched_since >= self._hangs_after and self._settled.is_set():
            self._trouble(self._error("has stopped answering"))

    def halt(self) -> None:
        """Nothing is told any more. Never blocks; idempotent."""
        with self._lock:
            self._halted = True
        self._settled.set()

    # -- its thread --------------------------------------------------------------------------------------------------

    def _ask(self, call: Callable[[], T]) -> T:
        """Call the library; `check()` sees how long it takes."""
        self._calls += 1
        self._call = self._calls
        try:
            return call()
        except RTVIError:
            raise
        except Exception as error:
            raise self._error(f"failed: {error!r}") from error
        finally:
            self._call = 0

    def _has_opened(self, info: MediaDeviceInfo) -> None:
        self._label = info.label
        if not self._troubled and not self._halted:
            self._opened(info)
        self._settled.set()

    def _works(self, info: MediaDeviceInfo) -> None:
        if self._told:
            self._told = self._troubled = False
            if not self._halted:
                self._opened(info)

    def _has_failed(self, error: RTVIError) -> bool:
        """Tell of a `DeviceError` or `MissingExtraError`; whether to try again."""
        if not self._settled.is_set():
            self._failure = fresh_copy(error)
            self._settled.set()
            return False
        if not isinstance(error, DeviceError):
            failure = DeviceError(str(error), devices=(self._kind,), type="not-found")
            failure.__cause__ = error
            error = failure
        self._trouble(error)
        return not self._halted

    def _trouble(self, error: DeviceError) -> None:
        """Report what is wrong, unless it is known."""
        with self._lock:
            known, self._troubled = self._troubled, True
            if known or self._halted:
                return
        logger.warning("%s", error)
        self._report(error)
        # Only now may the thread tell, in the midst of whose call this may be, that all is well again.
        self._told = True

    def _error(self, what: str) -> DeviceError:
        advice = _WHAT_TO_DO.get(self._kind)
        return DeviceError(
            f"The {_NAMES[self._kind]} {self._label!r} {what}"
            + (f". {advice} one with update_{self._kind}()" if advice else ""),
            devices=(self._kind,),
        )
