"""The faults that `FaultProxy` can inject into a connection. Plain data; sizes in bytes, times in seconds."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from rtvi_sync.protocol.validation import COUNT, POSITIVE, WAIT, integer

#: The direction of bytes.
Direction: TypeAlias = Literal["to_client", "to_server"]
DIRECTIONS: Final[tuple[Direction, Direction]] = ("to_client", "to_server")


@attrs.frozen
class ConnectionFault:
    """Base of the faults. All but `HalfClose` and `Reset` last until lifted.

    A number out of range, such as a rate of 0, raises `ValueError`. A value that is not a number raises `TypeError`.
    """


@attrs.frozen
class Delay(ConnectionFault):
    """Every byte arrives later.

    Attributes:
        seconds (seconds): Delay.
    """

    seconds: float = attrs.field(validator=WAIT)


@attrs.frozen
class Split(ConnectionFault):
    """Data is split into chunks, each sent in its own segment.

    Attributes:
        size_bytes: Size of a chunk.
    """

    size_bytes: int = attrs.field(default=1, validator=COUNT)


@attrs.frozen
class Coalesce(ConnectionFault):
    """Data is buffered and sent in one chunk.

    Attributes:
        size_bytes: Number of buffered bytes that are sent immediately.
        seconds (seconds): Longest time for which a byte is buffered.
    """

    size_bytes: int = attrs.field(validator=COUNT)
    seconds: float = attrs.field(validator=WAIT)


@attrs.frozen
class Throttle(ConnectionFault):
    """The connection is slow.

    Attributes:
        bytes_per_second: Transfer rate.
    """

    bytes_per_second: float = attrs.field(validator=POSITIVE)


@attrs.frozen
class Drop(ConnectionFault):
    """Bytes are dropped; later bytes arrive as if the dropped bytes had never been sent.

    Attributes:
        size_bytes: Number of dropped bytes; None for all.
    """

    size_bytes: int | None = attrs.field(default=None, validator=COUNT.or_none)


@attrs.frozen
class Corrupt(ConnectionFault):
    """Bytes arrive with some bits flipped.

    Attributes:
        size_bytes: Number of corrupted bytes; None for all.
        mask: Flipped bits, as a number from 1 to 255.
    """

    size_bytes: int | None = attrs.field(default=1, validator=COUNT.or_none)
    mask: int = attrs.field(default=0x01, validator=integer(1, 255))


@attrs.frozen
class BlackHole(ConnectionFault):
    """No more bytes get through, and the connection stays open. When the fault is lifted, the held bytes arrive."""


@attrs.frozen
class HalfClose(ConnectionFault):
    """The receiver sees the end of the stream (FIN); the other direction stays open."""


@attrs.frozen
class Reset(ConnectionFault):
    """The receiver sees the connection reset (RST). For the sender, it is closed."""
