"""The thread on which a source or sink of the user's runs."""

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
    """Runs the work of one source or sink, then closes it, all on one thread.

    The thread holds the lease to the object. Whoever gives the thread up takes the lease away: from then on it owns
    nothing, and what comes out of the call it hangs in is ignored. A device that works, and only does not return in
    time, is closed all the same when its call returns, unless another session uses it by then.

    Args:
        role: "mic" or "speaker".
        device: its `close()` ends the work.
        lease: given back when the work has ended.
        work: gets this object; returns when the session is over or it is abandoned, and raises what the device raised.
        report: told of an exception, on this thread.

    Raises:
        RuntimeError: the process can start no more threads; the lease has been given back.
    """

    def __init__(
        self,
        role: str,
        device: AudioSource | AudioSink,
        lease: Lease,
        work: Callable[[DeviceThread], None],
        report: Report,
    ) -> None:
        self._role = role
        self._device = device
        self._work = work
        self._report = report
        self._closes_late = False
        # Guards `_lease`, which either the thread or who gives it up takes, once. Re-entrant, as all locks here,
        # because a finalizer may come in between.
        self._lock = threading.RLock()
        self._lease: Lease | None = lease
        try:
            self._thread = start_thread(role, self._run)
        except RuntimeError:
            self._release_lease()
            raise

    @property
    def abandoned(self) -> bool:
        """The thread owns nothing any more and must touch nothing."""
        with self._lock:
            return self._lease is None

    @property
    def is_current(self) -> bool:
        """Whether this thread is the one that asks."""
        return self._thread is threading.current_thread()

    def wait(self, deadline: Deadline) -> bool:
        """Wait for the end of the work; False if the thread is still at it, or is the one that asks."""
        return not self.is_current and join_thread(self._thread, deadline)

    def join(self, deadline: Deadline, *, closes_late: bool = False) -> threading.Thread | None:
        """Wait for the end of the work; give the thread up at the deadline. Returns the thread if it was given up.

        Args:
            deadline: of the wait.
            closes_late: the device works; a thread that was given up closes it after its call.
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
        except BaseException as error:  # noqa: BLE001 - the SystemExit of a user's code must not pass silently
            failed = True
            self._failed("failed", error, report=True)
        if self.abandoned and not self._renew_lease():
            return
        try:
            self._device.close()
        except BaseException as error:  # noqa: BLE001
            # One event per failure: a sink that could not be written often cannot be closed either.
            self._failed("failed to close", error, report=not failed)
        self._release_lease()

    def _failed(self, what: str, error: BaseException, *, report: bool) -> None:
        if self.abandoned:
            logger.info("The given-up %s %s late: %r", type(self._device).__name__, what, error)
            return
        logger.exception("%s %s", type(self._device).__name__, what)
        if report:
            self._report(error)

    def _renew_lease(self) -> bool:
        if not self._closes_late:
            return False
        try:
            lease = Lease(self._device, self._role)
        except DeviceError:  # another session uses it, and closes it
            return False
        with self._lock:
            self._lease = lease
        return True

    def _release_lease(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
