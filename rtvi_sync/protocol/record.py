"""The equality, hash and repr of attrs classes, written once instead of for each class.

    @attrs.frozen(eq=False, repr=False)
    class Answer(Record):
        text: str

attrs compiles these methods again for each class, which takes longer than the rest of the module's import. The methods
here have the same effect. They read the fields of the class.
"""

from __future__ import annotations

import reprlib
from typing import Any

import attrs


class MutableRecord:
    """The base of classes with assignable fields. Their objects have no hash."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _fields(self) if field.eq)

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={_shown(self, field)}" for field in _fields(self) if field.repr)
        return f"{type(self).__qualname__.rpartition('>.')[2]}({shown})"


class Record(MutableRecord):
    """The base of frozen classes. An object has a hash if its values have."""

    __slots__ = ()

    def __hash__(self) -> int:
        hashed = (field.name for field in _fields(self) if (field.eq if field.hash is None else field.hash))
        return hash((type(self), *(getattr(self, name) for name in hashed)))


def _fields(record: Any) -> tuple[attrs.Attribute[Any], ...]:
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(type(record))
    return fields


def _shown(record: object, field: attrs.Attribute[Any]) -> str:
    value = getattr(record, field.name, attrs.NOTHING)  # a traceback may show an object that is not complete
    return field.repr(value) if callable(field.repr) else repr(value)
