"""One direction of a connection, with faults that delay and change its bytes. Pure."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar

import attrs

from rtvi_sync.testing.faults import (
    BlackHole,
    Coalesce,
    ConnectionFault,
    Corrupt,
    Delay,
    Direction,
    Drop,
    HalfClose,
    Reset,
    Split,
    Throttle,
)

# Limit of queued bytes. Above it, the sender gets back-pressure, as on a slow connection.
_MAX_QUEUED_BYTES: Final = 256 * 1024
# Seconds between two sends of a throttled connection.
_THROTTLE_INTERVAL: Final = 0.01

F = TypeVar("F", bound=ConnectionFault)


class InjectedFault(Protocol):
    """A fault injected into a pipe."""

    @property
    def fault(self) -> ConnectionFault:
        """The fault."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in which it acts."""

    @property
    def lifted(self) -> bool:
        """True after the fault was lifted."""

    def strike(self) -> None:
        """Mark the fault as in effect."""


@attrs.frozen
class StreamEnd:
    """The end of a stream, which follows its last byte.

    Attributes:
        reset: True if the connection is reset; False if the stream ends.
        injected: Fault that caused it; None if the sender did.
    """

    reset: bool
    injected: InjectedFault | None = None


Item: TypeAlias = "memoryview | StreamEnd | InjectedFault"


@attrs.define
class _Entry:
    due: float
    item: Item


class FaultPipe:
    """A queue of the bytes in one direction, shaped by faults. Callers pass the time. Not thread-safe.

    Attributes:
        received: Number of bytes received so far.
        ended: True if the sender has ended the stream.
        closed: True if the stream has ended for the receiver. Later bytes are dropped.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self.ended: bool = False
        self.closed: bool = False
        self._triggers: list[tuple[int, Callable[[float], None]]] = []
        self._injected: dict[type[ConnectionFault], InjectedFault] = {}
        self._remaining: dict[type[ConnectionFault], int | None] = {}  # bytes still to drop or corrupt
        self._queue: deque[_Entry] = deque()
        self._queued_bytes = 0
        self._held = bytearray()  # coalesced
        self._held_until = 0.0
        self._next_send_at = 0.0  # earliest time of a throttled connection's next send

    # -- input --------------------------------------------------------------------------------------------------------

    def add_trigger(self, position: int, action: Callable[[float], None], now: float) -> None:
        """Call `action(now)` after `position` bytes have been received; immediately if they have."""
        bisect.insort(self._triggers, (position, action), key=lambda trigger: trigger[0])
        self._run_triggers(now)

    def strike(self, injected: InjectedFault, now: float) -> None:
        """Apply a fault to all later bytes."""
        if injected.lifted:
            return
        fault = injected.fault
        if isinstance(fault, HalfClose | Reset):
            self._append(StreamEnd(isinstance(fault, Reset), injected), now)
            return
        if isinstance(fault, BlackHole):
            self._append(injected, now)
        elif isinstance(fault, Drop | Corrupt):
            self._remaining[type(fault)] = fault.size_bytes
        self._injected[type(fault)] = injected
        injected.strike()

    @property
    def wants_input(self) -> bool:
        """True if more bytes may be fed."""
        if self.ended:
            return False
        return self.closed or (self._queued_bytes < _MAX_QUEUED_BYTES and not self._blocked)

    def feed(self, data: bytes, now: float) -> None:
        """Process bytes from the sender."""
        rest = memoryview(data)
        while rest:
            size = len(rest)
            if self._triggers:
                size = min(size, self._triggers[0][0] - self.received)
            self.received += size
            self._apply_faults(rest[:size], now)
            rest = rest[size:]
            self._run_triggers(now)

    def end(self, *, reset: bool, now: float) -> None:
        """Process the end of the sender's stream, or its reset."""
        self.ended = True
        self._append(StreamEnd(reset), now)

    def _run_triggers(self, now: float) -> None:
        while self._triggers and self._triggers[0][0] <= self.received:
            self._triggers.pop(0)[1](now)

    def _apply_faults(self, data: memoryview, now: float) -> None:
        drop, corrupt, coalesce = self._active(Drop), self._active(Corrupt), self._active(Coalesce)
        if drop is not None:
            data = data[self._consume(Drop, len(data)) :]
        if corrupt is not None:
            size = self._consume(Corrupt, len(data))
            data = memoryview(bytes(byte ^ corrupt.mask for byte in data[:size]) + data[size:])
        if self.closed or not data:
            return
        if coalesce is None:
            self._release_held(now)
            self._append(data, now)
            return
        if not self._held:
            self._held_until = now + coalesce.seconds
        self._held += data
        if len(self._held) >= coalesce.size_bytes:
            self._release_held(now)

    def _consume(self, kind: type[ConnectionFault], size: int) -> int:
        remaining = self._remaining[kind]
        if remaining is None:
            return size
        used = min(size, remaining)
        self._remaining[kind] = remaining - used
        return used

    def _active(self, kind: type[F]) -> F | None:
        injected = self._injected.get(kind)
        return (
            injected.fault
            if injected is not None and isinstance(injected.fault, kind) and not injected.lifted
            else None
        )

    def _append(self, item: Item, now: float) -> None:
        if self.closed:
            return
        if not isinstance(item, memoryview):
            self._release_held(now)
        else:
            self._queued_bytes += len(item)
        delay = self._active(Delay)
        due = now + (delay.seconds if delay is not None else 0.0)
        # After a delay was lifted or shortened, bytes must not overtake earlier ones.
        self._queue.append(_Entry(max(due, self._queue[-1].due) if self._queue else due, item))

    def _release_held(self, now: float) -> None:
        if self._held:
            held, self._held = memoryview(bytes(self._held)), bytearray()
            self._append(held, now)

    # -- output -------------------------------------------------------------------------------------------------------

    def next(self, now: float) -> memoryview | StreamEnd | None:
        """Return the next chunk to send, or the end; None if nothing is due. Bytes stay queued until `sent()`."""
        if self.closed:
            return None
        if self._held and (now >= self._held_until or self._active(Coalesce) is None):
            self._release_held(now)
        while self._queue and self._queue[0].due <= now:
            item = self._queue[0].item
            if isinstance(item, memoryview):
                return item[: self._send_size(len(item))] if now >= self._next_send_at else None
            if isinstance(item, StreamEnd):
                if item.injected is None or not item.injected.lifted:
                    return item
            elif not item.lifted:
                return None
            self._queue.popleft()
        return None

    def sent(self, size: int, now: float) -> None:
        """Remove the `size` sent bytes of the next chunk."""
        entry = self._queue[0]
        assert isinstance(entry.item, memoryview)
        entry.item = entry.item[size:]
        if not entry.item:
            self._queue.popleft()
        self._queued_bytes -= size
        throttle = self._active(Throttle)
        if throttle is not None:
            self._next_send_at = max(now, self._next_send_at) + size / throttle.bytes_per_second

    def close(self) -> None:
        """Drop all queued and later bytes."""
        self.closed = True
        self._queue.clear()
        self._held.clear()
        self._queued_bytes = 0

    def due(self) -> float | None:
        """Return when `next()` may return data; None if another call must change the pipe first."""
        if self.closed:
            return None
        times = [self._held_until] if self._held else []
        if self._queue and not self._blocked_at(0):
            moving = isinstance(self._queue[0].item, memoryview)
            times.append(max(self._queue[0].due, self._next_send_at if moving else 0.0))
        return min(times, default=None)

    def _send_size(self, size: int) -> int:
        split, throttle = self._active(Split), self._active(Throttle)
        if split is not None:
            size = min(size, split.size_bytes)
        if throttle is not None:
            size = min(size, max(1, int(throttle.bytes_per_second * _THROTTLE_INTERVAL)))
        return size

    @property
    def _blocked(self) -> bool:
        return any(self._blocked_at(index) for index in range(len(self._queue)))

    def _blocked_at(self, index: int) -> bool:
        item = self._queue[index].item
        return not isinstance(item, memoryview | StreamEnd) and not item.lifted
