"""Abandoning a blocking attempt from another thread.

A thread that blocks in a system call cannot be interrupted, but its socket can be shut down: the call then returns at
once. An attempt is cancelled in this way only, because closing a descriptor that another thread uses is never safe.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable

from ..protocol.validation import WAIT, Rule, function_taking, has_method, instance_of
from .deadline import Deadline
from .latch import Latch
from .lifecycle import register_for_fork
from .lock import new_lock
from .logs import package_logger

logger: logging.Logger = package_logger(__name__)


_SOCKET = Rule("a socket", lambda sock: has_method(sock, "fileno") and hasattr(sock, "family"))
_REASON = instance_of("an exception", BaseException).or_none


class AbortSignal:
    """The state of one attempt: whether it was abandoned, and which sockets to wake then. Made by `AbortController`.

    Any thread may use it. Aborting wakes the steps of the attempt that block on a socket.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        #: Another thread abandons the attempt at its limit; else only the time-outs of its sockets end it.
        self.is_supervised: bool = True
        self._latch = Latch()
        # Guards the four fields below. Any thread may hold it; only shutdown(), which never blocks, is called under it,
        # so that no socket is closed between its look-up and its shutdown.
        # Re-entrant, because a finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._reason: BaseException | None = None
        self._finished = False
        self._callbacks: list[Callable[[], object]] = []
        self._duplicates: set[int] = set()  # descriptors; a socket object for each would take as long as connecting
        register_for_fork(self)

    @property
    def aborted(self) -> bool:
        """True if the attempt was abandoned."""
        return self._reason is not None

    @property
    def reason(self) -> BaseException | None:
        """The exception that the abandoned attempt raises, or None."""
        return self._reason

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the attempt is abandoned, up to `timeout` seconds, and return `aborted`."""
        WAIT.or_none.check(timeout=timeout)
        return self._latch.wait(Deadline(timeout))

    def remaining(self) -> float | None:
        """Return the seconds left of the attempt's limit; None without a limit."""
        return self._deadline.remaining()

    def on_abort(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when the attempt is abandoned, on the thread that aborts it; at once if it already is."""
        function_taking().check(callback=callback)
        self._on_abort(callback)

    def _on_abort(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        _run_callback(callback)

    def raise_if_aborted(self) -> None:
        """Raise the reason if the attempt was abandoned."""
        if self._reason is not None:
            raise self._reason

    def attach(self, sock: socket.socket) -> Callable[[], None]:
        """Shut `sock` down when the attempt is abandoned, and return a function that ends the watch.

        The watch holds a duplicate of the descriptor, so it survives the wrapping of `sock` in TLS. A socket that is
        not connecting yet cannot be shut down: give a connection that starts after this call a time limit.

        Raises:
            BaseException: The reason, if the attempt was abandoned already.
        """
        if type(sock) is not socket.socket:  # most are; the check takes as long as all the rest
            _SOCKET.check(sock=sock)
        duplicate = socket.dup(sock.fileno())
        with self._lock:
            self._duplicates.add(duplicate)
            reason = self._reason

        def detach() -> None:
            with self._lock:
                if duplicate not in self._duplicates:  # called before
                    return
                self._duplicates.remove(duplicate)
            socket.close(duplicate)

        if reason is not None:
            detach()
            raise reason
        return detach

    def _abort(self, reason: BaseException) -> bool:
        with self._lock:
            if self._reason is not None or self._finished:
                return False
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
            for duplicate in self._duplicates:
                _shut_down(duplicate)
        self._latch.set()
        for callback in callbacks:
            _run_callback(callback)
        return True

    def _finish(self) -> None:
        """End the attempt, because it has succeeded. A later abort does not affect its connection."""
        with self._lock:
            self._finished = True
            self._callbacks.clear()

    def after_fork_in_child(self) -> None:
        """Close the duplicates and renew the lock."""
        self._lock = new_lock()
        # close(), never shutdown(), because the duplicates share their connection with the parent process.
        self._close_duplicates()

    def _close_duplicates(self) -> None:
        while self._duplicates:
            with contextlib.suppress(OSError):  # the application has closed it
                socket.close(self._duplicates.pop())

    __del__ = _close_duplicates  # of watches that a transport has not ended


class AbortController:
    """The control of one attempt. Made by `RTVIClient.connect()`. Any thread may call `abort()`.

    Args:
        deadline: The limit of the attempt, which `signal.remaining()` reports.
        default_reason: Makes the exception for an `abort()` without a reason.
    """

    def __init__(self, deadline: Deadline, default_reason: Callable[[], BaseException]) -> None:
        self.signal: AbortSignal = AbortSignal(deadline)
        self._default_reason = default_reason

    def abort(self, reason: BaseException | None = None) -> bool:
        """Abandon the attempt, which then raises `reason`. Return False if it was abandoned or has succeeded before."""
        _REASON.check(reason=reason)
        return self.signal._abort(reason if reason is not None else self._default_reason())


def _shut_down(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        sock = socket.socket(fileno=descriptor)
        try:
            sock.shutdown(socket.SHUT_RDWR)
        finally:
            sock.detach()


def _run_callback(callback: Callable[[], object]) -> None:
    try:
        callback()
    except (Exception, SystemExit):  # the thread that aborts has other steps to do
        logger.exception("A callback of on_abort() raised")
