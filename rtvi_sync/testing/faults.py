"""What `FaultProxy` can do to a connection. Plain data; sizes in bytes, times in seconds."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from rtvi_sync.protocol.validation import COUNT, POSITIVE, WAIT, integer

#: The bytes that go there.
Direction: TypeAlias = Literal["to_client", "to_server"]
DIRECTIONS: Final[tuple[Direction, Direction]] = ("to_client", "to_server")


@attrs.frozen
class Fault:
    """Base of the faults. All but `HalfClose` and `Reset` last until they are lifted.

    A number that makes no sense (a rate of 0, say) raises `ValueError`, and what is no number `TypeError`.
    """


@attrs.frozen
class Delay(Fault):
    """Every byte arrives later.

    Attributes:
        seconds: by how much.
    """

    seconds: float = attrs.field(validator=WAIT)


@attrs.frozen
class Split(Fault):
    """What came in one piece goes on in many, each in a segment of its own.

    Attributes:
        size_bytes: of a piece.
    """

    size_bytes: int = attrs.field(default=1, validator=COUNT)


@attrs.frozen
class Coalesce(Fault):
    """What comes is held back, and goes on in one piece.

    Attributes:
        size_bytes: so many bytes are let go at once.
        seconds: the longest that a byte is held back.
    """

    size_bytes: int = attrs.field(validator=COUNT)
    seconds: float = attrs.field(validator=WAIT)


@attrs.frozen
class Throttle(Fault):
    """The line is slow.

    Attributes:
        bytes_per_second: its rate.
    """

    bytes_per_second: float = attrs.field(validator=POSITIVE)


@attrs.frozen
class Drop(Fault):
    """Bytes vanish; those after them arrive as if nothing had been there.

    Attributes:
        size_bytes: how many; None: all.
    """

    size_bytes: int | None = attrs.field(default=None, validator=COUNT.or_none)


@attrs.frozen
class Corrupt(Fault):
    """Bytes arrive with some of their bits flipped.

    Attributes:
        size_bytes: how many; None: all.
        mask: the bits, as a number from 1 to 255.
    """

    size_bytes: int | None = attrs.field(default=1, validator=COUNT.or_none)
    mask: int = attrs.field(default=0x01, validator=integer(1, 255))


@attrs.frozen
class BlackHole(Fault):
    """Nothing gets through any longer, and the connection stays open. When it is lifted, what was held up arrives."""


@attrs.frozen
class HalfClose(Fault):
    """The receiver sees the end of the stream (FIN); the other direction goes on."""


@attrs.frozen
class Reset(Fault):
    """The receiver sees the connection reset (RST). For the sender it is closed."""
