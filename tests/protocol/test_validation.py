"""Validation rules: which values pass, which error the others raise, and that no secret is shown."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import RTVIClientOptions, RTVIClientParams
from rtvi_sync.protocol import validation as rules
from rtvi_sync.protocol.validation import Rule, from_mapping, snake_case
from rtvi_sync.session.event_bus import takes_payload
from rtvi_sync.session.params import Endpoints

pytestmark = pytest.mark.inside


async def coroutine_function() -> None:
    raise NotImplementedError


def generator_function() -> Any:
    yield


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (rules.BOOL, [True, False]),
        (rules.STRING, ["", "a"]),
        (rules.NAME, ["a"]),
        (rules.BYTES, [b"", bytearray(1), memoryview(b"")]),
        (rules.PATH, ["a", Path("a")]),
        (rules.SECONDS, [1, 0.001, 1e300]),
        (rules.WAIT, [0, 0.0, 5]),
        (rules.COUNT, [1, 10**9]),
        (rules.COUNT_OR_ZERO, [0]),
        (rules.PORT, [0, 65535]),
        (rules.FUNCTION, [print, lambda: None, functools.partial(print)]),
        (rules.STRINGS, [{}, {"a": "b"}]),
        (rules.one_of("a", "b"), ["a", "b"]),
        (rules.positive_or_timedelta("seconds"), [1, timedelta(seconds=1)]),
        (rules.list_of(rules.STRING, "a list"), [[], ["a"], ("a",)]),
        (rules.STRING.or_none, [None, "a"]),
    ],
)
def test_values_that_pass(rule: Rule, values: list[Any]) -> None:
    """A rule accepts them without a word."""
    for value in values:
        rule.check(option=value)


@pytest.mark.parametrize(
    ("rule", "value", "error", "text"),
    [
        (rules.BOOL, 1, TypeError, r"option must be True or False, not int"),
        (rules.BOOL, None, TypeError, r"option must be True or False, not None"),
        (rules.STRING, b"secret", TypeError, r"option must be a string, not bytes"),
        (rules.NAME, "", ValueError, r"option must be a string that is not empty, not ''"),
        (rules.PATH, "a\0b", ValueError, r"option must be a path .*null"),
        (rules.SECONDS, True, TypeError, r"positive number of seconds, not True"),
        (rules.SECONDS, 0, ValueError, r"positive number of seconds, not 0"),
        (rules.SECONDS, float("inf"), ValueError, r"not inf"),
        (rules.SECONDS, float("nan"), ValueError, r"not nan"),
        (rules.COUNT, 1.0, TypeError, r"an integer of 1 or more, not float"),
        (rules.PORT, 65536, ValueError, r"an integer from 0 to 65535, not 65536"),
        (rules.FUNCTION, coroutine_function, TypeError, r"not a coroutine function"),
        (rules.FUNCTION, functools.partial(coroutine_function), TypeError, r"not a coroutine function"),
        (rules.FUNCTION, functools.partial(generator_function), TypeError, r"not a generator function"),
        (rules.STRINGS, {"a": 1}, TypeError, r"option\['a'\] must be a string, not int"),
        (rules.STRINGS, {1: "a"}, TypeError, r"each key of option must be a string, not int"),
        (rules.one_of("a", "b"), "c", ValueError, r'option must be "a" or "b", not \'c\''),
        (
            rules.positive_or_timedelta("seconds"),
            timedelta(0),
            ValueError,
            r"positive number of seconds or a timedelta",
        ),
        (rules.list_of(rules.STRING, "a list"), "text", TypeError, r"option must be a list, not str"),
        (rules.list_of(rules.STRING, "a list"), ["a", 1], TypeError, r"option\[1\] must be a string, not int"),
        (rules.instance_of("an object", list), list, TypeError, r"option must be an object, not the class list"),
        (rules.SECONDS.but("leave it out"), 0, ValueError, r"not 0; leave it out$"),
    ],
)
def test_values_that_are_refused(rule: Rule, value: Any, error: type[Exception], text: str) -> None:
    """A wrong type is a TypeError, which hides the value, a wrong value a ValueError; both name the option."""
    with pytest.raises(error, match=text) as caught:
        rule.check(option=value)
    assert "secret" not in str(caught.value)


def test_a_field_of_an_attrs_class() -> None:
    """The error names the field as its constructor does."""

    @attrs.define
    class Options:
        _most: float = attrs.field(validator=rules.SECONDS)

    assert Options(most=1.0)._most == 1.0
    with pytest.raises(ValueError, match=r"^most must be"):
        Options(most=0)


@attrs.define(field_transformer=rules.check_together)
class Together:
    most: float = attrs.field(default=5.0, validator=rules.SECONDS)
    name: str = attrs.field(default="", converter=lambda text: text and str(text), validator=rules.NAME)
    anything: Any = None
    __attrs_post_init__ = rules.check_fields


def test_fields_that_are_checked_together() -> None:
    """Each value is checked, also one that is assigned later, but not a default itself: "" would be refused."""
    together = Together()
    assert Together(most=2, name=3, anything=together).name == "3"
    with pytest.raises(ValueError, match=r"^most must be"):
        Together(most=0)
    with pytest.raises(TypeError, match=r"^name must be"):
        Together(name=[])
    with pytest.raises(TypeError, match=r"^most must be .* not str$"):
        together.most = "secret"  # type: ignore[assignment]
    together.name = 4  # type: ignore[assignment]
    assert (together.most, together.name) == (5.0, "4")


@pytest.mark.parametrize("options", [RTVIClientOptions, RTVIClientParams, Endpoints])
def test_defaults_pass(options: type[Any]) -> None:
    """The defaults of the package's own classes, which are not checked, would pass."""
    default = options()
    for field in attrs.fields(options):
        setattr(default, field.name, getattr(default, field.name))


@attrs.frozen(kw_only=True)
class Point:
    across: int = attrs.field(default=0, validator=rules.COUNT_OR_ZERO)
    how_high: int = attrs.field(default=0, validator=rules.COUNT_OR_ZERO)


def test_an_object_from_a_mapping() -> None:
    """Keys may be in snake_case or camelCase; an object of the class is returned itself."""
    point = Point(across=1, how_high=2)
    assert from_mapping(Point, {"across": 1, "howHigh": 2}, "point") == point
    assert from_mapping(Point, {"across": 1, "how_high": 2}, "point") == point
    assert from_mapping(Point, point, "point") is point


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (3, TypeError, "point must be Point or a mapping, not int"),
        ({"depth": 1}, TypeError, "Point has no depth; it has across, how_high"),
        ({"howHigh": 1, "how_high": 2}, TypeError, "point has a key in two spellings"),
        ({"howHigh": -1}, ValueError, "^howHigh must be"),
        ({"howHigh": "secret"}, TypeError, "^howHigh must be .* not str$"),
    ],
)
def test_a_mapping_that_is_refused(value: Any, error: type[Exception], text: str) -> None:
    """The error names the key as it is spelt in the mapping."""
    with pytest.raises(error, match=text):
        from_mapping(Point, value, "point")


@pytest.mark.parametrize(
    ("name", "snake"), [("requestData", "request_data"), ("onLLMText", "on_llm_text"), ("plain", "plain")]
)
def test_snake_case(name: str, snake: str) -> None:
    """An abbreviation is one word."""
    assert snake_case(name) == snake


class Callees:
    """Methods of each kind."""

    def method(self, a: int) -> None: ...

    @classmethod
    def of_class(cls, a: int, b: int = 0) -> None: ...

    @staticmethod
    def static(*a: int) -> None: ...

    def __call__(self, a: int, b: int) -> None: ...


def wanting_a_name(a: int, *, b: int) -> None:
    """Cannot be called without a name."""


def with_defaults(a: int, b: int = 0, *, c: int = 0) -> None:
    """Can be called in several ways."""


@functools.wraps(with_defaults)
def wrapping(*a: int) -> None:
    """Says that it is another function."""


FUNCTIONS: list[Any] = [
    *(Callees().method, Callees.method, Callees.of_class, Callees.static, Callees(), Callees),
    *(wanting_a_name, with_defaults, wrapping, len, functools.partial(with_defaults, 1), lambda *_, **__: None),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_function_takes(function: Any) -> None:
    """A function is taken to be called as its signature says."""
    for number in range(4):
        arguments = range(number)
        try:
            inspect.signature(function).bind(*arguments)
            expected = True
        except TypeError:
            expected = False
        assert rules.takes(function, *arguments) is expected, number
    assert rules.is_function(function)


class Decided:
    """Has a method whose annotation names nothing that exists."""

    def decide(self, error: "Missing") -> bool:  # type: ignore[name-defined]  # noqa: F821, UP037
        """Decide nothing."""
        return bool(error)


def with_a_database(function: Callable[..., None]) -> Callable[..., None]:
    """Pass a further argument to a function."""

    @functools.wraps(function)
    def wrapper(event: object) -> None:
        function("database", event)

    return wrapper


def test_functions_that_can_be_called() -> None:
    """Arguments that a decorator adds to the call are not required of the caller, and annotations are not evaluated."""
    rule = rules.function_taking("event")
    rule.check(where=with_a_database(lambda _database, _event: None))
    rule.check(where=Decided().decide)
    rule.check(where=wrapping)  # its own parameters are any number
    assert takes_payload(with_a_database(lambda _database, _event: None))
    assert not takes_payload(functools.wraps(lambda: None)(lambda *_: None))


def test_a_partial_of_arguments_that_its_function_lacks() -> None:
    """A partial with too many arguments cannot be called; a built-in function without a signature takes anything."""
    too_many: Any = [1, 2, 3]
    assert not rules.takes(functools.partial(with_defaults, *too_many), 4)
    assert rules.takes(functools.partial(max, 1), 2)


def test_a_function_is_named_without_what_it_holds() -> None:
    """Arguments of a `partial()` may be keys and tokens."""
    with pytest.raises(TypeError) as caught:
        rules.function_taking("event").check(connect=functools.partial(len, "secret"))
    assert str(caught.value) == "connect must be a function that can be called as connect(event); len cannot"


@pytest.mark.parametrize("function", [generator_function, coroutine_function, functools.partial(coroutine_function), 5])
def test_what_is_no_function(function: Any) -> None:
    """An object that runs nothing when it is called is no function."""
    assert not rules.is_function(function)
