"""The common base of records, compared with the methods that attrs generates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from rtvi_sync.protocol.record import MutableRecord, Record

pytestmark = pytest.mark.inside


def size(value: bytes) -> str:
    """Return the repr of bytes in records."""
    return f"<{len(value)} bytes>"


@attrs.frozen(eq=False, repr=False)
class Ours(Record):
    """Fields of every kind."""

    text: str
    pcm: bytes = attrs.field(default=b"", repr=size)
    secret: str = attrs.field(default="", repr=False)
    extra: dict[str, Any] = attrs.field(factory=dict, hash=False)
    is_default: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class Theirs:
    """The same by attrs."""

    text: str
    pcm: bytes = attrs.field(default=b"", repr=size)
    secret: str = attrs.field(default="", repr=False)
    extra: dict[str, Any] = attrs.field(factory=dict, hash=False)
    is_default: bool = attrs.field(default=False, eq=False)


@attrs.define(eq=False, repr=False)
class Settings(MutableRecord):
    """A class whose fields may be assigned."""

    volume: float = 1.0


@attrs.frozen(eq=False, repr=False)
class More(Ours):
    """A field more."""

    more: int = 0


CHANGES: list[dict[str, Any]] = [
    {},
    {"text": "b"},
    {"pcm": b"12"},
    {"secret": "x"},
    {"extra": {"a": 1}},
    {"is_default": True},
]


@pytest.mark.parametrize("one", CHANGES, ids=str)
@pytest.mark.parametrize("other", CHANGES, ids=str)
def test_equality_and_hash_are_those_of_attrs(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two objects are equal, and have one hash, if and only if attrs' versions are and do."""

    def made(cls: Callable[..., Any]) -> tuple[bool, bool, bool]:
        first, second = cls(**{"text": "a", **one}), cls(**{"text": "a", **other})
        return first == second, first != second, hash(first) == hash(second)

    assert made(Ours) == made(Theirs)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_repr_is_that_of_attrs(change: dict[str, Any]) -> None:
    """A repr has the fields that attrs would show, as attrs would show them."""
    ours, theirs = Ours(**{"text": "a", **change}), Theirs(**{"text": "a", **change})
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")


def test_only_objects_of_one_class_are_equal() -> None:
    """A subclass has other fields, and something else has none."""
    assert Ours("a") != More("a")
    assert More("a") != Ours("a")
    assert More("a", more=1) != More("a", more=2)
    assert Ours("a") != ("a", b"", "", {}, False)


def test_what_cannot_be_hashed() -> None:
    """An object with an unhashable value has no hash, and an object whose fields may be assigned has none either."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours([]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Settings())
    assert Settings() == Settings(1.0) != Settings(0.5)
    assert repr(Settings()) == "Settings(volume=1.0)"


def test_a_repr_inside_itself() -> None:
    """An object that holds itself is shown once."""
    ours = Ours("a")
    ours.extra["self"] = ours
    assert repr(ours) == "Ours(text='a', pcm=<0 bytes>, extra={'self': ...}, is_default=False)"


def test_the_repr_of_an_object_that_is_not_complete() -> None:
    """A traceback that shows locals may have one."""
    assert repr(object.__new__(Settings)) == "Settings(volume=NOTHING)"


def test_the_repr_of_a_class_in_a_function() -> None:
    """A class inside a function is shown by its own name."""

    @attrs.frozen(eq=False, repr=False)
    class Local(Record):
        """Made here."""

    assert repr(Local()) == "Local()"
