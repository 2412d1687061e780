"""Reads the payload of a client's message: what is not as its type needs it is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

_Kind = TypeVar("_Kind")
_NAMES: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean", dict: "dictionary", list: "list"}


class InvalidMessageError(ValueError):
    """The payload of a client's message is not what its type needs."""


def invalid(name: str, reason: str) -> InvalidMessageError:
    """The error for one field, in the words of a real bot's validation."""
    return InvalidMessageError(f"1 validation error\n{name}\n  {reason}")


@overload
def field(data: Any, name: str, kind: type[_Kind]) -> _Kind: ...
@overload
def field(data: Any, name: str, kind: tuple[type, ...]) -> Any: ...
def field(data: Any, name: str, kind: Any) -> Any:
    """The value of a field that must be there and of this kind (or one of them).

    Raises:
        InvalidMessageError: it is not.
    """
    value = required(data if isinstance(data, Mapping) else {}, name)
    # To Python a bool is an int; to a protocol it is not.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = " or ".join(_NAMES[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise invalid(name, f"Input should be a valid {names}")
    return value


def optional(data: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind | None:
    """As `field`, but None for a field that is missing or null."""
    return None if data.get(name) is None else field(data, name, kind)


def required(data: Mapping[str, Any], name: str) -> Any:
    """The value of a field that must be there, whatever it is.

    Raises:
        InvalidMessageError: it is not.
    """
    if name not in data:
        raise invalid(name, "Field required")
    return data[name]


def entries(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The value of a field that must be a list of objects.

    Raises:
        InvalidMessageError: it is not.
    """
    found = field(data, name, list)
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            raise invalid(f"{name}.{number}", "Input should be an object")
    return found


def values_by_name(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The value of a field that is a list of ``{"name", "value"}``, in its order.

    Raises:
        InvalidMessageError: it is not.
    """
    return {field(entry, "name", str): required(entry, "value") for entry in entries(data, name)}
