"""The thread that calls a source or sink of the application."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.lifecycle import start_thread
from ..errors import DeviceError
from .base import AudioSink, AudioSource, Lease

logger: logging.Logger = logging.getLogger(__name__)

Report = Callable[[BaseException], None]


class DeviceThread:
    """A thread that runs the work of one source or sink and then closes it.

    The thread holds the lease on the object. Abandoning the thread releases the lease: from then on the thread owns
    nothing, and the result of the call in which it is blocked is ignored. If a device works and only does not return
    in time, it is still closed when its call returns, unless another session uses it by then.

    Args:
        role: "mic" or "speaker".
        device: the source or sink; it is closed after the work.
        lease: on the device; released when the work has ended.
        work: called with this object; returns when the session has ended or this thread is abandoned, and raises what
            the device raised.
        report: called with an exception of the device, on this thread.
        closes: called after the work; False if the device is not to be closed.

    Raises:
        RuntimeError: the process cannot start more threads; the lease has been released.
    """

    def __init__(
        self,
        role: str,
        device: AudioSource | AudioSink,
        lease: Lease,
        work: Callable[[DeviceThread], None],
        report: Report,
        closes: Callable[[], bool] = lambda: True,
    ) -> None:
        self._role = role
        self._device = device
        self._work = work
        self._report = report
        self._closes = closes
        self._closes_late = False
        # Guards `_lease`, which either this thread or the one that abandons it releases, once. Re-entrant, because a
        # finalizer may run on the thread that holds it.
        self._lock = threading.RLock()
        self._lease: Lease | None = lease
        try:
            self._thread = start_thread(role, self._run)
        except RuntimeError:
            self._release_lease()
            raise

    @property
    def abandoned(self) -> bool:
        """Return whether the thread is abandoned, so that it must not use the device."""
        with self._lock:
            return self._lease is None

    @property
    def is_current(self) -> bool:
        """Return whether the caller runs on this thread."""
        return self._thread is threading.current_thread()

    def wait(self, deadline: Deadline) -> bool:
        """Wait for the end of the work; return False if the thread still runs or is the caller's."""
        return not self.is_current and join_thread(self._thread, deadline)

    def join(self, deadline: Deadline, *, closes_late: bool = False) -> threading.Thread | None:
        """Wait for the end of the work, and abandon the thread at the deadline.

        Args:
            deadline: of the wait.
            closes_late: the device works, so an abandoned thread closes it after its call.

        Returns:
            The thread if it was abandoned, else None.
        """
        if self.wait(deadline):
            return None
        self._closes_late = closes_late
        self._release_lease()
        return self._thread

    def _run(self) -> None:
        failed = False
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
            failed = True
            self._failed("failed", error, report=True)
        if self.abandoned and not self._renew_lease():
            return
        try:
            if self._closes():
                self._device.close()
        except BaseException as error:  # noqa: BLE001
            # Only one of the two errors is reported, because a sink that fails to write often fails to close, too.
            self._failed("failed to close", error, report=not failed)
        self._release_lease()

    def _failed(self, what: str, error: BaseException, *, report: bool) -> None:
        if self.abandoned:
            logger.info("The abandoned %s %s late: %r", type(self._device).__name__, what, error)
            return
        logger.exception("%s %s", type(self._device).__name__, what)
        if report:
            self._report(error)

    def _renew_lease(self) -> bool:
        """Lease the device again to close it late; return whether this thread may close it."""
        if not self._closes_late:
            return False
        try:
            lease = Lease(self._device, self._role)
        except DeviceError:  # another session uses the device and will close it
            return False
        with self._lock:
            self._lease = lease
        return True

    def _release_lease(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
