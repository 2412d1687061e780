"""How the tables of this folder define the values that a public callable must refuse."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from tests.support.targets import Targets

Wrong: TypeAlias = "tuple[Any, ...] | str"
"""Values that a parameter must refuse, or the reason why none exists."""


@attrs.frozen
class Call:
    """A public callable.

    Attributes:
        function: Function that makes it, bound to an object that needs no session.
        valid: Arguments that it accepts.
        wrong: Values that must be refused in place of the valid argument, by parameter.
    """

    function: Callable[[Targets], Callable[..., object]]
    valid: Mapping[str, Any]
    wrong: Mapping[str, Wrong]


def call(
    function: Callable[[Targets], Callable[..., object]], valid: Mapping[str, Any] | None = None, /, **wrong: Wrong
) -> Call:
    """Return a `Call`; the keywords are its `wrong`."""
    return Call(function, valid or {}, wrong)


def construct(cls: Callable[..., object], valid: Mapping[str, Any] | None = None, /, **wrong: Wrong) -> Call:
    """Return a `Call` of a constructor or a function."""
    return Call(lambda _: cls, valid or {}, wrong)


async def coroutine_function(*_: object) -> None:
    """Do nothing."""


async def async_generator_function(*_: object) -> Any:
    """Yield nothing, once."""
    yield


def generator_function(*_: object) -> Any:
    """Yield nothing, once."""
    yield


def demanding(_one: object, _two: object, _three: object, _four: object, _five: object) -> None:
    """Take more than any function of the application is given."""


class AsyncCallable:
    """An object that does nothing when it is called."""

    async def __call__(self, *_: object) -> None: ...


NOT_STRING: Wrong = (5, b"text", ["text"])
NOT_NAME: Wrong = (*NOT_STRING, None, "")
NOT_BOOL: Wrong = ("no", 1, 0, 0.0, [])
NOT_NUMBER: Wrong = ("5", True, [5], math.nan, math.inf, 10**400)
NOT_SECONDS: Wrong = (*NOT_NUMBER, 0, -1)
NOT_WAIT: Wrong = (*NOT_NUMBER, -1)
NOT_INTEGER: Wrong = ("5", True, [5], 1.5, math.nan, math.inf)
NOT_COUNT: Wrong = (*NOT_INTEGER, None, 0, -1)
NOT_RATE: Wrong = (*NOT_INTEGER, 0, -16000, 10**9)
NOT_FUNCTION: Wrong = (
    5,
    "print",
    coroutine_function,
    functools.partial(coroutine_function),
    async_generator_function,
    AsyncCallable(),
    functools.partial(AsyncCallable()),
    generator_function,
    functools.partial(generator_function),
    demanding,
)
NOT_MAPPING: Wrong = (5, "text", ["key"], [("key", "value")])
NOT_STRINGS: Wrong = (*NOT_MAPPING, {"key": 5}, {"key": None}, {5: "value"})
NOT_PATH: Wrong = (5, b"file", ["file"], "a\0file")
NOT_BYTES: Wrong = (5, "text", [1, 2], None)
NOT_EVENT: Wrong = (5, None, ["botReady"], "no_such_event")
NOT_CONFIG: Wrong = (5, "text", {"service": "llm"}, [5], [{"options": []}], [{"service": "llm", "options": 5}])
