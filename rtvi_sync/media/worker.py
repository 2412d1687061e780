"""The thread on which a source or sink of the user's runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.lifecycle import start_thread
from .base import AudioSink, AudioSource, Claim

logger: logging.Logger = logging.getLogger(__name__)

Report = Callable[[BaseException], None]


class DeviceThread:
    """Runs the work of one source or sink, then closes it, all on one thread.

    The thread holds the claim to the object. Whoever gives the thread up takes the claim away: from then on it owns
    nothing, and what comes out of the call it hangs in is ignored.

    Args:
        role: "mic" or "speaker".
        device: its `close()` ends the work.
        claim: given back when the work has ended.
        work: gets this object; returns when the session is over or it is abandoned, and raises what the device raised.
        report: told of an exception, on this thread.

    Raises:
        RuntimeError: the process can start no more threads; the claim has been given back.
    """

    def __init__(
        self,
        role: str,
        device: AudioSource | AudioSink,
        claim: Claim,
        work: Callable[[DeviceThread], None],
        report: Report,
    ) -> None:
        self._device = device
        self._work = work
        self._report = report
        # Guards `_claim`, which either the thread or who gives it up takes, once. Re-entrant, as all locks here,
        # because a finalizer may come in between.
        self._lock = threading.RLock()
        self._claim: Claim | None = claim
        try:
            self._thread = start_thread(role, self._run)
        except RuntimeError:
            self._take_claim()
            raise

    @property
    def abandoned(self) -> bool:
        """The thread owns nothing any more and must touch nothing."""
        with self._lock:
            return self._claim is None

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait for the end of the work; give the thread up at the deadline. Returns the thread if it was given up."""
        if self._thread is not threading.current_thread() and join_thread(self._thread, deadline):
            return None
        self._take_claim()
        return self._thread

    def _run(self) -> None:
        failed = False
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001 - the SystemExit of a user's code must not pass silently
            failed = True
            self._failed("failed", error, report=True)
        if self.abandoned:
            return
        try:
            self._device.close()
        except BaseException as error:  # noqa: BLE001
            # One event per failure: a sink that could not be written often cannot be closed either.
            self._failed("failed to close", error, report=not failed)
        self._take_claim()

    def _failed(self, what: str, error: BaseException, *, report: bool) -> None:
        if self.abandoned:
            logger.info("The given-up %s %s late: %r", type(self._device).__name__, what, error)
            return
        logger.exception("%s %s", type(self._device).__name__, what)
        if report:
            self._report(error)

    def _take_claim(self) -> None:
        with self._lock:
            claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()
