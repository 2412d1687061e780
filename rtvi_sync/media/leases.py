"""The use of a source or sink by one session at a time: its lease, its failures, and its close."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..errors import DeviceError

logger: logging.Logger = package_logger(__name__)

Report = Callable[[BaseException], None]


class _InUse:
    """The sources and sinks in use.

    Attributes:
        leases: the lease of each, by its key. Only single operations of the dict access it, which are atomic with and
            without a GIL; a lock could be inherited in the locked state.
    """

    def __init__(self) -> None:
        self.leases: dict[object, Lease] = {}
        register_for_fork(self)

    def after_fork_in_child(self) -> None:
        """Abandon everything: the sessions that use it are live only in the parent process."""
        leases, self.leases = self.leases, {}
        for lease in leases.values():
            lease.abandoned, lease.closes_late = True, False


_in_use = _InUse()


def lease_key_of(thing: object) -> object:
    """Return the key of a source or sink: its own `lease_key`, or its id."""
    return getattr(thing, "lease_key", None) or id(thing)


class Lease:
    """The right of one session to use a source or sink; objects with the same `lease_key` count as one.

    The session closes the thing at its end or, if the thing hangs in a call, abandons it: the result of that call is
    ignored, and the lease ends when the call returns, so that no later session calls the thing at the same time. A
    thing that works, but did not return in time, is closed then.

    Args:
        thing: The source or sink. One thread at a time calls its methods, and `failed()` and `close()`.
        device: Its kind, for the error.
        deadline: The limit of the wait for a lease that is about to end. None: don't wait.
        report: Called with an exception of the thing, on the thread that calls it.

    Raises:
        DeviceError: another session uses it; `.type` is "in-use".
    """

    def __init__(
        self, thing: Any, device: str, deadline: Deadline | None = None, report: Report = lambda _: None
    ) -> None:
        self._thing = thing  # kept alive, so that no other object gets its id
        self.report: Report = report
        self._key = lease_key_of(thing)
        self._released = Latch()
        self._ends = False
        #: True if the thing must not be used any more: abandoned, released, or the parent process's.
        self.abandoned: bool = False
        #: True if `close()` closes the thing though it was abandoned.
        self.closes_late: bool = False
        while (holder := _in_use.leases.setdefault(self._key, self)) is not self:
            if deadline is not None and holder._ends and holder._released.wait(deadline):
                continue
            name = repr(thing) if hasattr(thing, "lease_key") else f"This {type(thing).__name__}"
            question = ", by a question of this client," if device == "mic" else ""
            used = f"is used by another session{question} or by this one already; give each one of its own"
            if holder._ends:
                used = "was used before, and a call of its methods has not returned yet; let them return sooner"
            raise DeviceError(f"{name} {used}", devices=(device,), type="in-use")

    @property
    def is_released(self) -> bool:
        """True once the lease has ended."""
        return self._released.is_set()

    @staticmethod
    def leased() -> list[object]:
        """Return the sources and sinks that sessions of this process use now."""
        return [lease._thing for lease in _in_use.leases.copy().values()]

    def end_soon(self) -> None:
        """Note that the holder releases the lease as soon as the source's current call returns."""
        self._ends = True

    def abandon(self, *, closes_late: bool = False) -> None:
        """Abandon the thing, which hangs in a call; its thread calls `close()` when the call returns. Any thread.

        Args:
            closes_late: The thing works, and `close()` still closes it.
        """
        self.closes_late, self.abandoned = closes_late, True
        self.end_soon()

    def failed(self, error: BaseException, what: str = "failed", *, report: bool = True) -> None:
        """Log and report an exception of the thing."""
        if self.abandoned and not self.closes_late:
            logger.info("The abandoned %s %s late: %r", type(self._thing).__name__, what, error)
            return
        logger.error("%s %s", type(self._thing).__name__, what, exc_info=error)
        if report:
            self.report(error)

    def close(self, *, report: bool = True) -> None:
        """Close the thing, unless it was abandoned, and end the lease.

        Args:
            report: True to report an exception. False after another one: a sink that fails to write often fails to
                close, too.
        """
        if not self.abandoned or self.closes_late:
            try:
                self._thing.close()
            except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
                self.failed(error, "failed to close", report=report)
        self.release()

    def release(self) -> None:
        """End the lease without closing the thing. Idempotent."""
        if _in_use.leases.get(self._key) is self:
            del _in_use.leases[self._key]
        self.abandoned = True
        self._released.set()
