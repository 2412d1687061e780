"""Descriptions of Python functions as RTVI actions: argument names, and types by annotation or default. Pure."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

_TYPES: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    set: "array",
    collections.abc.Sequence: "array",
    collections.abc.Iterable: "array",
}
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def type_of(value: Any) -> str:
    """Return the RTVI type of a JSON value: "bool", "number", "string", "array" or "object"."""
    return _TYPES.get(type(value), "object")


def describe(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Describe an action as `actions-available` does.

    Args:
        name: "service:action".
        function: takes the arguments by name. The type is "object" where its annotations do not tell.
    """
    service, _, action = name.partition(":")
    hints = _hints(function)
    arguments = [
        {"name": parameter.name, "type": _type_of_parameter(parameter, hints)}
        for parameter in parameters_of(function)
        if parameter.kind in _NAMED
    ]
    result = _type_named(hints["return"]) if "return" in hints else "object"
    return {"service": service, "action": action, "arguments": arguments, "result": result}


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check that a function can be called with these arguments.

    Raises:
        TypeError: one is missing or unexpected; the text says which.
    """
    inspect.Signature(parameters_of(function)).bind(**arguments)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; arbitrary keywords if it has no signature, as some C functions."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name is known to type checkers only, or the callable is no plain function
        return {}


def _type_of_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> str:
    if parameter.name in hints:
        return _type_named(hints[parameter.name])
    return "object" if parameter.default is inspect.Parameter.empty else type_of(parameter.default)


def _type_named(hint: Any) -> str:
    """Return the RTVI type of an annotation; of a union, that of its first member that is not None."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _type_named(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return next(_type_named(part) for part in typing.get_args(hint) if part is not type(None))
    if origin is typing.Literal:
        return type_of(typing.get_args(hint)[0])
    return _TYPES.get(origin or hint, "object")
