"""A source or sink of the application, while a session uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..concurrency.lifecycle import fork_generation
from ..concurrency.logs import package_logger
from ..errors import DeviceError
from .base import AudioSink, AudioSource
from .leases import Lease

logger: logging.Logger = package_logger(__name__)

Report = Callable[[BaseException], None]


class LeasedDevice:
    """The lease on a source or sink, and its end: the device is closed or, if it hangs in a call, abandoned.

    Abandoning releases the lease: from then on the thread that is blocked in the call owns nothing, and the result of
    the call is ignored. If a device works and only does not return in time, it is still closed when its call returns,
    unless another session uses it by then.

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
        self._closes_late = False
        self._generation = fork_generation()
        # Holds the lease under the key 0. Not an attribute, because `pop()` is one step: either the thread that calls
        # the device or the one that abandons it releases the lease, once.
        self._leases: dict[int, Lease] = {0: lease}

    @property
    def abandoned(self) -> bool:
        """Return whether the device must not be used any more: it was abandoned, or it is the parent's of a fork."""
        return not self._leases or fork_generation() != self._generation

    def abandon(self, *, closes_late: bool = False) -> None:
        """Give up the device, which hangs in a call.

        Args:
            closes_late: it works, and `close()` still closes it.
        """
        self._closes_late = closes_late
        self.release()

    def failed(self, error: BaseException, what: str = "failed", *, report: bool = True) -> None:
        """Log and report an exception of the device."""
        if self.abandoned:
            logger.info("The abandoned %s %s late: %r", type(self._device).__name__, what, error)
            return
        logger.error("%s %s", type(self._device).__name__, what, exc_info=error)
        if report:
            self._report(error)

    def close(self, *, report: bool = True) -> None:
        """Close the device, if that is still the session's to do, and release it.

        Args:
            report: whether an exception is reported; False after another one, because a sink that fails to write often
                fails to close, too.
        """
        if self.abandoned and not self._renew_lease():
            return
        try:
            self._device.close()
        except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
            self.failed(error, "failed to close", report=report)
        self.release()

    def release(self) -> None:
        """Release the device without closing it. Idempotent."""
        lease = self._leases.pop(0, None)
        if lease is not None:
            lease.release()

    def _renew_lease(self) -> bool:
        """Lease the device again to close it late; return whether it may be closed."""
        if not self._closes_late:
            return False
        try:
            self._leases[0] = Lease(self._device, self._role)
        except DeviceError:  # another session uses the device and will close it
            return False
        return True
