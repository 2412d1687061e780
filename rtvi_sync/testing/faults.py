"""What `FaultProxy` can do to a connection. Plain data; sizes in bytes, times in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import validators

#: The bytes that go there.
Direction: TypeAlias = Literal["to_client", "to_server"]
DIRECTIONS: Final[tuple[Direction, Direction]] = ("to_client", "to_server")

_Validator: TypeAlias = "Callable[[Any, attrs.Attribute[Any], Any], Any]"

# Checked when a fault is made: on the proxy's thread nobody would see the mistake.
_NOT_NEGATIVE: Final[_Validator] = validators.and_(validators.ge(0), validators.lt(math.inf))
_POSITIVE: Final[_Validator] = validators.and_(validators.gt(0), validators.lt(math.inf))
_POSITIVE_OR_NONE: Final[_Validator] = validators.optional(_POSITIVE)
_SOME_BITS: Final[_Validator] = validators.and_(validators.ge(1), validators.le(255))


@attrs.frozen
class Fault:
    """Base of the faults. All but `HalfClose` and `Reset` last until they are lifted.

    A number that makes no sense (a rate of 0, say) raises `ValueError`.
    """


@attrs.frozen
class Delay(Fault):
    """Every byte arrives later.

    Attributes:
        seconds: by how much.
    """

    seconds: float = attrs.field(validator=_NOT_NEGATIVE)


@attrs.frozen
class Split(Fault):
    """What came in one piece goes on in many, each in a segment of its own.

    Attributes:
        size_bytes: of a piece.
    """

    size_bytes: int = attrs.field(default=1, validator=_POSITIVE)


@attrs.frozen
class Coalesce(Fault):
    """What comes is held back, and goes on in one piece.

    Attributes:
        size_bytes: so many bytes are let go at once.
        seconds: the longest that a byte is held back.
    """

    size_bytes: int = attrs.field(validator=_POSITIVE)
    seconds: float = attrs.field(validator=_NOT_NEGATIVE)


@attrs.frozen
class Throttle(Fault):
    """The line is slow.

    Attributes:
        bytes_per_second: its rate.
    """

    bytes_per_second: float = attrs.field(validator=_POSITIVE)


@attrs.frozen
class Drop(Fault):
    """Bytes vanish; those after them arrive as if nothing had been there.

    Attributes:
        size_bytes: how many; None: all.
    """

    size_bytes: int | None = attrs.field(default=None, validator=_POSITIVE_OR_NONE)


@attrs.frozen
class Corrupt(Fault):
    """Bytes arrive with some of their bits flipped.

    Attributes:
        size_bytes: how many; None: all.
        mask: the bits, as a number from 1 to 255.
    """

    size_bytes: int | None = attrs.field(default=1, validator=_POSITIVE_OR_NONE)
    mask: int = attrs.field(default=0x01, validator=_SOME_BITS)


@attrs.frozen
class BlackHole(Fault):
    """Nothing gets through any longer, and the connection stays open. When it is lifted, what was held up arrives."""


@attrs.frozen
class HalfClose(Fault):
    """The receiver sees the end of the stream (FIN); the other direction goes on."""


@attrs.frozen
class Reset(Fault):
    """The receiver sees the connection reset (RST). For the sender it is closed."""
