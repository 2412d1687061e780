"""Connecting to the first address of a host that answers (RFC 8305, "Happy Eyeballs")."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..concurrency.descriptors import make_selector
from ..concurrency.lifecycle import what_to_do

#: An item of `socket.getaddrinfo()`: family, type, protocol, canonical name, socket address.
AddressInfo: TypeAlias = tuple[Any, ...]
#: Ends the watch of an `AbortSignal` over a socket.
Detach: TypeAlias = Callable[[], None]

# The "Connection Attempt Delay" of RFC 8305, section 5, in seconds.
_ATTEMPT_DELAY = 0.25
# A bound, because a name server decides how many addresses a host has, and each pending one takes two descriptors.
_MAX_ADDRESSES = 32
_MAX_ERRORS_SHOWN = 4


def connect_first(
    addresses: Iterable[AddressInfo], signal: AbortSignal, timeout: float | None
) -> tuple[socket.socket, Detach]:
    """Connect to the first of `addresses` that answers, and close all other attempts.

    An attempt begins 250 ms after the previous one, or at once if an attempt fails. All of them are made on the
    calling thread.

    Args:
        addresses: in the order of preference; the address families alternate.
        signal: shuts the sockets down when the caller's attempt is aborted.
        timeout: limit of all attempts together, in seconds; None: no limit.

    Returns:
        The socket, which is non-blocking, and the function that ends the watch of `signal` over it.

    Raises:
        OSError: no address has answered; with several addresses the message has the reason of each one.
        BaseException: the signal's reason, if the attempt was aborted.
    """
    untried = deque(itertools.islice(_interleaved(addresses), _MAX_ADDRESSES))
    deadline = Deadline(timeout)
    with contextlib.closing(_Attempts(signal)) as attempts:
        while untried or attempts.pending:
            if untried:
                attempts.begin(untried.popleft())
            connected = attempts.wait(deadline.at_most(_ATTEMPT_DELAY) if untried else deadline.remaining())
            if connected is not None:
                return connected
            if deadline.expired:
                raise attempts.timeout_error()
        raise attempts.error()


def _interleaved(addresses: Iterable[AddressInfo]) -> Iterator[AddressInfo]:
    """Order addresses so that the families alternate (RFC 8305, section 4)."""
    families: dict[int, list[AddressInfo]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    for row in itertools.zip_longest(*families.values()):
        yield from filter(None, row)


class _Attempts:
    """The pending connection attempts, and the errors of those that failed."""

    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal
        self._selector = make_selector()
        #: By socket: its address, and the function that ends the signal's watch over it.
        self.pending: dict[socket.socket, tuple[Any, Detach]] = {}
        self._errors: list[tuple[Any, OSError]] = []

    def begin(self, address: AddressInfo) -> None:
        """Begin to connect to `address`; an immediate error is kept for `error()`."""
        family, type_, proto, _, target = address
        try:
            sock = socket.socket(family, type_, proto)
            try:
                self._connect(sock, target)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self._signal.raise_if_aborted()
            self._errors.append((target, error))

    def _connect(self, sock: socket.socket, target: Any) -> None:
        sock.setblocking(False)
        code = sock.connect_ex(target)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(code, os.strerror(code))
        # Attached after connect(), because shutdown() has no effect on an unconnected socket: an abort would be lost.
        detach = self._signal.attach(sock)
        try:
            self._selector.register(sock, selectors.EVENT_WRITE, sock)
        except BaseException:
            detach()
            raise
        self.pending[sock] = target, detach

    def wait(self, timeout: float | None) -> tuple[socket.socket, Detach] | None:
        """Wait until an attempt has connected or failed.

        Returns:
            The connected socket and the function that ends the watch over it; None: an attempt has failed, or the
            timeout has passed.
        """
        if not self.pending:
            return None
        ready = self._selector.select(timeout)
        self._signal.raise_if_aborted()
        for key, _ in ready:
            sock: socket.socket = key.data
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            target, detach = self.pending[sock]
            if not failed:
                del self.pending[sock]
                return sock, detach
            self._errors.append((target, OSError(failed, os.strerror(failed))))
            self._drop(sock)
        return None

    def _drop(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        _, detach = self.pending.pop(sock)
        detach()
        sock.close()

    def timeout_error(self) -> OSError:
        """Return the error for a timeout."""
        for target, _ in self.pending.values():
            self._errors.append((target, TimeoutError("the connection was not answered in time")))
        return self._combined(TimeoutError)

    def error(self) -> OSError:
        """Return the error after all attempts have failed."""
        kinds = {type(error) for _, error in self._errors}
        return self._combined(kinds.pop() if len(kinds) == 1 else OSError)

    def _combined(self, kind: type[OSError]) -> OSError:
        if len(self._errors) == 1:
            return self._errors[0][1]
        shown = [f"{target[0]} port {target[1]}: {error}" for target, error in self._errors[:_MAX_ERRORS_SHOWN]]
        more = len(self._errors) - len(shown)
        combined = kind("; ".join([*shown, f"and {more} more addresses"] if more else shown))
        # A shortage of the process, such as of descriptors, is the cause, because `tls.explain()` has advice about it.
        combined.__cause__ = next((error for _, error in self._errors if what_to_do(error)), None)
        return combined

    def close(self) -> None:
        """Close the pending attempts."""
        for sock in list(self.pending):
            self._drop(sock)
        self._selector.close()
