"""A connection through a `FaultProxy`: two sockets, and a pipe for each direction."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.protocol.validation import COUNT_OR_ZERO, WAIT, instance_of, one_of
from rtvi_sync.testing.fault_injection.fault_pipe import FaultPipe, StreamEnd
from rtvi_sync.testing.faults import DIRECTIONS, ConnectionFault, Direction

from ...concurrency.clock import monotonic

_READ_BYTES: Final = 64 * 1024
# The return values of `connect_ex()` that mean no failure.
_UNDER_WAY: Final = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)
# With this SO_LINGER value close() sends a reset. The two numbers are shorts on Windows, ints elsewhere.
_RESET_ON_CLOSE: Final = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


_FAULT = instance_of("an object of rtvi_sync.testing.faults, such as Reset()", ConnectionFault)
_DIRECTION = one_of(*DIRECTIONS)


@attrs.frozen
class TargetAddress:
    """The address of the server behind the proxy."""

    family: socket.AddressFamily
    address: Any


# Makes a change under the proxy's lock, and returns after the proxy's thread has acted on it.
Apply: TypeAlias = Callable[[Callable[[], object]], None]


class Injection:
    """An injected fault. Made by `inject()`. Any thread may use it.

    Attributes:
        fault: Fault, as given to `inject()`.
        directions: Directions in which it acts.
    """

    def __init__(self, fault: ConnectionFault, directions: tuple[Direction, ...], apply: Apply) -> None:
        self.fault: Final = fault
        self.directions: Final = directions
        self._apply = apply
        self._struck = threading.Event()
        self._lifted = threading.Event()

    @property
    def struck(self) -> bool:
        """True after the fault has taken effect, in at least one direction of at least one connection."""
        return self._struck.is_set()

    @property
    def lifted(self) -> bool:
        """True after `lift()` was called."""
        return self._lifted.is_set()

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait until the fault has taken effect, up to `timeout` seconds. Return `struck`."""
        WAIT.check(timeout=timeout)
        return self._struck.wait(timeout)

    def lift(self) -> None:
        """End the fault: later bytes pass unchanged. Lost bytes stay lost, and closed connections stay closed."""
        self._apply(self._lifted.set)

    def strike(self) -> None:
        """Mark the fault as in effect. Called by the proxy."""
        self._struck.set()


@attrs.frozen
class InjectionPlan:
    """The moment at which an injection takes effect.

    Attributes:
        injection: The fault.
        after_bytes: Number of bytes that pass first.
        counted_in: Direction in which they are counted; None if each direction of the fault counts its own.
    """

    injection: Injection
    after_bytes: int
    counted_in: Direction | None

    @classmethod
    def from_arguments(
        cls,
        fault: ConnectionFault,
        direction: Direction | None,
        after_bytes: int,
        counted_in: Direction | None,
        apply: Apply,
    ) -> InjectionPlan:
        """Build a plan from the arguments of `inject()`.

        Raises:
            TypeError: `fault` is not a fault.
            ValueError: The direction is unknown, or the number of bytes is negative.
        """
        _FAULT.check(fault=fault)
        _DIRECTION.or_none.check(direction=direction, counted_in=counted_in)
        COUNT_OR_ZERO.check(after_bytes=after_bytes)
        return cls(Injection(fault, DIRECTIONS if direction is None else (direction,), apply), after_bytes, counted_in)


class ProxyConnection:
    """A client's connection through the proxy. Made by `FaultProxy`. Any thread may use it."""

    def __init__(
        self, client: socket.socket, targets: Sequence[TargetAddress], selector: selectors.BaseSelector, apply: Apply
    ) -> None:
        self._selector = selector
        self._apply = apply
        self._client = client
        self._untried = deque(targets)
        self._pipes: Final[dict[Direction, FaultPipe]] = {direction: FaultPipe() for direction in DIRECTIONS}
        self._watched: dict[socket.socket, int] = {client: 0}
        self._blocked: set[socket.socket] = set()  # their send buffers are full
        self._connected = False
        self._ended = threading.Event()
        _prepare(client)
        if not self._connect():
            raise OSError("there is no socket for any address of the server")

    def inject(
        self,
        fault: ConnectionFault,
        direction: Direction | None = None,
        *,
        after_bytes: int = 0,
        counted_in: Direction | None = None,
    ) -> Injection:
        """Inject a fault into this connection, now or after more bytes. Arguments: see `FaultProxy.inject()`."""
        plan = InjectionPlan.from_arguments(fault, direction, after_bytes, counted_in, self._apply)
        self._apply(lambda: self.apply_plan(plan))
        return plan.injection

    def received_bytes(self, direction: Direction) -> int:
        """Return the number of bytes in a direction that have reached the proxy."""
        _DIRECTION.check(direction=direction)
        return self._pipes[direction].received

    @property
    def ended(self) -> bool:
        """True after both sides have closed the connection, or it was reset."""
        return self._ended.is_set()

    def wait_ended(self, timeout: float = 30.0) -> bool:
        """Wait until the connection has ended, up to `timeout` seconds. Return `ended`."""
        WAIT.check(timeout=timeout)
        return self._ended.wait(timeout)

    # -- under the proxy's lock ---------------------------------------------------------------------------------------

    def apply_plan(self, plan: InjectionPlan) -> None:
        """Schedule the injection of a plan."""
        for direction in plan.injection.directions:
            pipe, counted = self._pipes[direction], self._pipes[plan.counted_in or direction]

            def strike(now: float, pipe: FaultPipe = pipe) -> None:
                pipe.strike(plan.injection, now)

            counted.add_trigger(counted.received + plan.after_bytes, strike, monotonic())

    def transfer(self, now: float) -> float | None:
        """Forward all bytes that can be forwarded. Called on the proxy's thread.

        Returns:
            Time of the next call; None to call again when a socket is ready.
        """
        if not self._connected:
            self._finish_connect()
        if self._connected:
            self._blocked.clear()
            for direction in DIRECTIONS:
                self._read(direction, now)
                self._write(direction, now)
            if all(pipe.ended and pipe.closed for pipe in self._pipes.values()):
                self.close()
        if self.ended:
            return None
        self._update_selector()
        times = [
            pipe.due() for direction, pipe in self._pipes.items() if self._sockets[direction][1] not in self._blocked
        ]
        return min((due for due in times if due is not None), default=None)

    def close(self, *reset: socket.socket) -> None:
        """Close the connection; the peers of the given sockets see a reset. Called on the proxy's thread."""
        for sock, watched in self._watched.items():
            if watched:
                self._selector.unregister(sock)
            if sock in reset:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            sock.close()
        self._watched.clear()
        self._ended.set()

    def _connect(self) -> bool:
        """Start connecting to the next usable address; return False if there is none."""
        while self._untried:
            target = self._untried.popleft()
            try:
                server = socket.socket(target.family, socket.SOCK_STREAM)
            except OSError:  # this machine lacks the address family, or has no free descriptor
                continue
            _prepare(server)
            # The source and sink of each direction.
            self._sockets: dict[Direction, tuple[socket.socket, socket.socket]] = {
                "to_client": (server, self._client),
                "to_server": (self._client, server),
            }
            self._server, self._watched[server] = server, 0
            self._refused = server.connect_ex(target.address) not in _UNDER_WAY
            return True
        return False

    def _finish_connect(self) -> None:
        while self._refused or self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            failed = self._server
            if not self._connect():
                self.close(self._client)  # the client sees a reset, as from a port without a listener
                return
            if self._watched.pop(failed):
                self._selector.unregister(failed)
            failed.close()
        with contextlib.suppress(OSError):
            self._server.getpeername()
            self._connected = True

    def _read(self, direction: Direction, now: float) -> None:
        pipe = self._pipes[direction]
        if self.ended or not pipe.wants_input:
            return
        try:
            data = self._sockets[direction][0].recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            pipe.end(reset=True, now=now)
            return
        if data:
            pipe.feed(data, now)
        else:
            pipe.end(reset=False, now=now)

    def _write(self, direction: Direction, now: float) -> None:
        pipe, (source, sink) = self._pipes[direction], self._sockets[direction]
        item = None if self.ended else pipe.next(now)
        if item is None:
            return
        if isinstance(item, StreamEnd):
            self._finish(direction, item)
            return
        try:
            pipe.sent(sink.send(item), now)
        except BlockingIOError:
            self._blocked.add(sink)
        except OSError:
            pipe.close()
            # The end of the sink's own stream will report it, unless that stream has already ended.
            if all(other.ended for other in self._pipes.values() if other is not pipe):
                self.close(source)

    def _finish(self, direction: Direction, end: StreamEnd) -> None:
        if end.injected is not None:
            end.injected.strike()  # first, because a test that sees the end may read `struck` at once
        if end.reset:
            directions = end.injected.directions if end.injected is not None else (direction,)
            self.close(*(self._sockets[each][1] for each in directions))
        else:
            self._pipes[direction].close()
            with contextlib.suppress(OSError):
                self._sockets[direction][1].shutdown(socket.SHUT_WR)

    def _update_selector(self) -> None:
        """Register each socket for the readiness that it waits for."""
        for direction, (source, _) in self._sockets.items():
            if self._connected:
                events = selectors.EVENT_READ if self._pipes[direction].wants_input else 0
                events |= selectors.EVENT_WRITE if source in self._blocked else 0
            else:
                events = selectors.EVENT_WRITE if source is self._server else 0
            watched = self._watched[source]
            if events and watched:
                if events != watched:
                    self._selector.modify(source, events)
            elif events:
                self._selector.register(source, events)
            elif watched:
                self._selector.unregister(source)
            self._watched[source] = events


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # some systems raise if the client has already disconnected
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
