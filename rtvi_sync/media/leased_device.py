"""A source or sink of the application, while a session uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..concurrency.lifecycle import fork_generation
from ..concurrency.logs import package_logger
from .base import AudioSink, AudioSource
from .leases import Lease

logger: logging.Logger = package_logger(__name__)

Report = Callable[[BaseException], None]


class LeasedDevice:
    """The lease on a source or sink, and its end: the device is closed or, if it hangs in a call, abandoned.

    The result of a call that was abandoned is ignored. The lease ends when that call returns, so that a later session
    cannot call the device beside it. If a device works and only does not return in time, it is closed then.

    Args:
        role: "mic" or "speaker".
        device: the source or sink. One thread at a time calls it, and the methods of this object but `abandon()`.
        lease: on the device.
        report: called with an exception of the device, on the thread that calls the device.
    """

    def __init__(self, role: str, device: AudioSource | AudioSink, lease: Lease, report: Report) -> None:
        self._role = role
        self._device = device
        self._report = report
        self._lease: Lease | None = lease
        self._given_up = self._closes_late = False
        self._generation = fork_generation()

    @property
    def abandoned(self) -> bool:
        """Return whether the device must not be used any more: it was abandoned, or it is the parent's of a fork."""
        return self._given_up or self._lease is None or fork_generation() != self._generation

    def abandon(self, *, closes_late: bool = False) -> None:
        """Give up the device, which hangs in a call; its thread calls `close()` when it returns. On any thread.

        Args:
            closes_late: it works, and `close()` still closes it.
        """
        self._closes_late, self._given_up = closes_late, True
        if (lease := self._lease) is not None:
            lease.end_soon()

    def failed(self, error: BaseException, what: str = "failed", *, report: bool = True) -> None:
        """Log and report an exception of the device."""
        if self.abandoned and not self._closes_late:
            logger.info("The abandoned %s %s late: %r", type(self._device).__name__, what, error)
            return
        logger.error("%s %s", type(self._device).__name__, what, exc_info=error)
        if report:
            self._report(error)

    def close(self, *, report: bool = True) -> None:
        """Close the device, unless it was abandoned, and release it.

        Args:
            report: whether an exception is reported; False after another one, because a sink that fails to write often
                fails to close, too.
        """
        if not self.abandoned or (self._closes_late and fork_generation() == self._generation):
            try:
                self._device.close()
            except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
                self.failed(error, "failed to close", report=report)
        self.release()

    def release(self) -> None:
        """Release the device without closing it. Idempotent."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
