"""Validation of the payloads of client messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

_Kind = TypeVar("_Kind")
_NAMES: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean", dict: "dictionary", list: "list"}


class InvalidMessageError(ValueError):
    """The payload of a client's message does not fit its type."""


def invalid(name: str, reason: str) -> InvalidMessageError:
    """Return the error for one field, in the words of a real bot's validation."""
    return InvalidMessageError(f"1 validation error\n{name}\n  {reason}")


@overload
def field(data: Any, name: str, kind: type[_Kind]) -> _Kind: ...
@overload
def field(data: Any, name: str, kind: tuple[type, ...]) -> Any: ...
def field(data: Any, name: str, kind: Any) -> Any:
    """Return the value of a required field of this kind (or one of them).

    Raises:
        InvalidMessageError: the field is missing or of another kind.
    """
    value = required(data if isinstance(data, Mapping) else {}, name)
    # In Python a bool is an int; in the protocol it is not.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = " or ".join(_NAMES[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise invalid(name, f"Input should be a valid {names}")
    return value


def optional(data: Mapping[str, Any], name: str, kind: type[_Kind]) -> _Kind | None:
    """Return as `field()`, but None for a field that is missing or null."""
    return None if data.get(name) is None else field(data, name, kind)


def required(data: Mapping[str, Any], name: str) -> Any:
    """Return the value of a required field of any kind.

    Raises:
        InvalidMessageError: the field is missing.
    """
    if name not in data:
        raise invalid(name, "Field required")
    return data[name]


def entries(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the value of a required field that is a list of objects.

    Raises:
        InvalidMessageError: the field is missing, or no list of objects.
    """
    found = field(data, name, list)
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            raise invalid(f"{name}.{number}", "Input should be an object")
    return found


def values_by_name(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values by name of a field that is a list of ``{"name", "value"}``, in its order.

    Raises:
        InvalidMessageError: the field is missing, or no such list.
    """
    return {field(entry, "name", str): required(entry, "value") for entry in entries(data, name)}
