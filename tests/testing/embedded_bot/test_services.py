"""Descriptions of functions as actions: the types of arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

from rtvi_sync.testing.embedded_bot.services import describe

pytestmark = pytest.mark.inside


def with_hints(
    flag: bool,
    count: int | None,
    text: Annotated[str, "any"],
    parts: list[str],
    more: Sequence[int],
    table: dict[str, int],
    fields: Mapping[str, int],
    choice: Literal["a", "b"],
    anything: Any,
    *,
    keyword: float | None = None,
) -> tuple[int, ...]:
    raise NotImplementedError


def with_defaults(flag=True, count=1, text="", parts=(), table={}, unknown=None, *more, **rest):  # noqa: B006
    raise NotImplementedError


def with_hints_for_type_checkers(text: "OnlyKnownThere") -> None:  # type: ignore[name-defined] # noqa: F821, UP037
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "types", "result"),
    [
        (
            with_hints,
            "bool number string array array object object string object number",
            "array",
        ),
        (with_defaults, "bool number string array object object", "object"),
        (with_hints_for_type_checkers, "object", "object"),
        (max, "", "object"),
        (str.upper, "", "object"),
    ],
)
def test_types_of_arguments(function: Callable[..., Any], types: str, result: str) -> None:
    """Types are taken from annotations, then from defaults, else they are "object". Any function can be described."""
    told = describe("service:action", function)

    assert (told["service"], told["action"], told["result"]) == ("service", "action", result)
    assert " ".join(argument["type"] for argument in told["arguments"]) == types
