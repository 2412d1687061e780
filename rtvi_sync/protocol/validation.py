"""Validation rules of options, with the same texts for constructors, functions and fields of attrs classes.

    SECONDS.check(heartbeat_interval=heartbeat_interval, idle_timeout=idle_timeout)
    echo: bool = attrs.field(default=True, validator=BOOL)

A wrong type is a `TypeError`, a wrong value a `ValueError`. Both name the option. A `TypeError` never shows the value,
so options that contain secrets have rules about their type only. The validators of attrs are not used, because they
show every value that they refuse, and accept a bool as a number.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from .text import one_line, quoted

T = TypeVar("T")

_RULE = "rule"  # the key in the metadata of a field
_MAX_HEADERS = 100
_LONGEST_NAME = 100
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NOT_IN_HEADER = r"[\x00-\x08\x0a-\x1f\x7f]|^\s|\s\Z"

_NOT_CALLED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
_NOT_EVALUATED: dict[str, Any] = {}
if sys.version_info >= (3, 14):  # an annotation may have names that only type checkers know
    import annotationlib

    _NOT_EVALUATED["annotation_format"] = annotationlib.Format.STRING
_LARGEST = sys.float_info.max  # an integer may be larger, and a clock cannot add it
_SMALLEST = math.ulp(0.0)  # the smallest positive number


def is_async(function: object) -> bool:
    """Return whether calling `function` runs nothing and returns an object to be awaited."""
    called = _called(function)
    return any(map(inspect.iscoroutinefunction, called)) or any(map(inspect.isasyncgenfunction, called))


def is_generator(function: object) -> bool:
    """Return whether calling `function` runs nothing and returns an object to be iterated over."""
    return any(map(inspect.isgeneratorfunction, _called(function)))


def _called(function: object) -> tuple[object, object]:
    """Return the function of a `partial()`, and the method that a call of an object runs."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - an object may be called too


def is_function(value: Any) -> bool:
    """Return whether a value can be called, and the call runs its code."""
    return callable(value) and (
        _plain_function(value) is not None
        or type(value) is types.BuiltinFunctionType
        or not (is_async(value) or is_generator(value))  # the slow checks
    )


def _plain_function(value: object) -> types.FunctionType | None:
    """Return the function of a usual function or method of Python. None if the slow checks are needed."""
    function = value.__func__ if type(value) is types.MethodType else value
    if type(function) is not types.FunctionType or function.__code__.co_flags & _NOT_CALLED or vars(function):
        return None
    return function


def takes(function: Callable[..., Any], *arguments: object, follow_wrapped: bool = True) -> bool:
    """Return whether `function` can be called with `arguments`, as far as it has a signature.

    Args:
        function: The function to call.
        arguments: The arguments, by position.
        follow_wrapped: True: a decorated function is judged by the function inside it. False if the decorator adds
            arguments.
    """
    plain = _plain_function(function)
    if plain is not None:
        code, given = plain.__code__, len(arguments) + (plain is not function)  # a method gets its object, too
        required = code.co_argcount - len(plain.__defaults__ or ())
        fits = given <= code.co_argcount or bool(code.co_flags & inspect.CO_VARARGS)
        return fits and given >= required and code.co_kwonlyargcount == len(plain.__kwdefaults__ or ())
    try:
        signature = inspect.signature(function, follow_wrapped=follow_wrapped, **_NOT_EVALUATED)
    except (TypeError, ValueError):  # a built-in function without a signature, or a partial() with wrong arguments
        return not isinstance(function, functools.partial) or takes(function.func, *function.args, *arguments)
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def name_of(function: object) -> str:
    """Return the name of a function without its arguments or its object, whose reprs may contain secrets."""
    return getattr(_called(function)[0], "__qualname__", type(function).__name__)


def has_method(value: object, name: str) -> bool:
    """Return whether a value is an object, not a class, with a method whose call runs its code."""
    return not isinstance(value, type) and is_function(getattr(value, name, None))


@attrs.frozen(eq=False, slots=False, repr=False)
class Rule:
    """The rule for the value of an option.

    Attributes:
        what: The words after "must be" in the error.
        has_type: Returns False for a `TypeError`.
        has_value: Called with a value of the right type. Returns False for a `ValueError`.
        hint: The end of the error text: advice.
        optional: True if None is allowed.
        usual: Values of these types are allowed without further checks.
        limits: Numbers from the first to the second are allowed without further checks, but not a bool.
    """

    what: str
    has_type: Callable[[Any], bool]
    has_value: Callable[[Any], bool] = lambda _: True
    hint: str = attrs.field(default="", kw_only=True)
    optional: bool = attrs.field(default=False, kw_only=True)
    usual: tuple[Any, ...] = attrs.field(default=(), kw_only=True)
    limits: tuple[float, float] | None = attrs.field(default=None, kw_only=True)

    def check(self, **options: Any) -> None:
        """Check options by their names.

        Raises:
            TypeError: An option has a wrong type.
            ValueError: An option has a wrong value.
        """
        for name, value in options.items():
            if isinstance(value, self.usual) and (
                self.limits is None or (type(value) is not bool and self.limits[0] <= value <= self.limits[1])
            ):
                continue
            if value is not None or not self.optional:
                self.check_one(name, value)

    def check_one(self, name: str, value: Any) -> None:
        """Check an option whose name is not an identifier. Raises as `check()` does."""
        if value is None and self.optional:
            return
        if not self.has_type(value):
            raise TypeError(f"{name} must be {self.what}, not {described(value)}{self.hint}")
        if not self.has_value(value):
            raise ValueError(f"{name} must be {self.what}, not {repr(value)[:100]}{self.hint}")

    def __call__(self, _instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        """Validate a field of an attrs class."""
        self.check(**{attribute.alias or attribute.name: value})

    @functools.cached_property
    def or_none(self) -> Rule:
        """The rule that allows None too."""
        return attrs.evolve(self, what=f"{self.what} or None", optional=True)

    def but(self, hint: str) -> Rule:
        """Return the rule with a hint in its errors."""
        return attrs.evolve(self, hint=f"; {hint}")


@attrs.frozen(eq=False, slots=False, repr=False)
class _EachRule(Rule):
    """The rule for a collection and for each item in it. Keys of a mapping must be strings."""

    each: Rule = attrs.field(kw_only=True)

    def check_one(self, name: str, value: Any) -> None:
        """Check the collection, then each key and item."""
        super().check_one(name, value)
        is_mapping = isinstance(value, Mapping)
        for key, item in value.items() if is_mapping else enumerate(value or ()):
            if is_mapping:
                STRING.check_one(f"each key of {name}", key)
            self.each.check_one(f"{name}[{key!r}]", item)


@attrs.frozen(eq=False, slots=False, repr=False)
class _HeadersRule(_EachRule):
    """The rule for headers of a request."""

    own: Collection[str] = attrs.field(kw_only=True)

    def check_one(self, name: str, value: Any) -> None:
        """Check the mapping, then each header."""
        super().check_one(name, value)
        if fault := headers_fault(value or {}, self.own):
            raise ValueError(f"{name} cannot be sent: {fault}")


def headers_fault(headers: Mapping[str, str], own: Collection[str] = ()) -> str | None:
    """Return why headers cannot be sent, without their values, which may be secret. None: they can.

    An invalid header could inject others.

    Args:
        headers: The headers, by name.
        own: The names, in lower case, that the request has already.
    """
    if len(headers) > _MAX_HEADERS:  # a server may name them
        return f"there are {len(headers)} headers; pass {_MAX_HEADERS} at most"
    for name, value in headers.items():
        if isinstance(name, str) and name.lower() in own:
            return f"the header {quoted(name)} is set by the request; leave it out"
        if not isinstance(name, str) or not re.fullmatch(_HEADER_NAME, name):
            return f"{quoted(name)} is not a valid name of an HTTP header"
        if not isinstance(value, str) or not value.isascii() or re.search(_NOT_IN_HEADER, value):
            return (
                f"the value of the header {quoted(name)} is not valid: it is not a str, starts or ends with a space or "
                "a line break, or has a control or non-ASCII character in it"
            )
    return None


@attrs.frozen(eq=False, slots=False, repr=False)
class _FunctionRule(Rule):
    """The rule for a function that is called with these arguments, all by position."""

    arguments: Sequence[str] = attrs.field(kw_only=True)

    def check_one(self, name: str, value: Any) -> None:
        """Check that the function can be called, then that it takes these arguments."""
        super().check_one(name, value)
        either = (True, False)
        if value is not None and not any(takes(value, *self.arguments, follow_wrapped=follow) for follow in either):
            form = f"{name}({', '.join(self.arguments)})"
            raise TypeError(f"{name} must be a function that can be called as {form}; {name_of(value)} cannot")


def described(value: object) -> str:
    """Return a description of a value of a wrong type, without the value, which may be secret."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if is_async(value):
        return "a coroutine function (it is called, not awaited)"
    if is_generator(value):
        return "a generator function (it is called, not iterated over)"
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


# -- making rules -----------------------------------------------------------------------------------------------------


def instance_of(what: str, *types: type) -> Rule:
    """Return the rule for an object of one of the types."""
    return Rule(what, lambda value: isinstance(value, types), usual=types)


def one_of(*choices: str) -> Rule:
    """Return the rule for one of a few words."""
    *others, last = (f'"{choice}"' for choice in choices)
    return Rule(f"{', '.join(others)} or {last}", lambda value: isinstance(value, str), choices.__contains__)


def integer(low: int, high: float = _LARGEST) -> Rule:
    """Return the rule for an integer in a range."""
    limits = f"of {low} or more" if high == _LARGEST else f"from {low} to {high}"
    return Rule(
        f"an integer {limits}", _is_integer, lambda value: low <= value <= high, usual=(int,), limits=(low, high)
    )


def number(low: float, high: float) -> Rule:
    """Return the rule for a number in a range."""
    return _number(f"a number from {low:g} to {high:g}", low, high)


def _number(what: str, low: float, high: float = _LARGEST) -> Rule:
    return Rule(what, _is_number, lambda value: low <= value <= high, usual=(int, float), limits=(low, high))


def positive_or_timedelta(unit: str) -> Rule:
    """Return the rule for a positive number of a unit, or a `timedelta`."""
    return Rule(
        f"a positive number of {unit} or a timedelta",
        lambda value: _is_number(value) or isinstance(value, timedelta),
        lambda value: 0 < (value.total_seconds() if isinstance(value, timedelta) else value) <= _LARGEST,
    )


def mapping_of(each: Rule, what: str = "a mapping") -> Rule:
    """Return the rule for a mapping of strings to values."""
    return _EachRule(what, lambda value: isinstance(value, Mapping), each=each)


def headers_without(*own: str) -> Rule:
    """Return the rule for headers of a request that sets `own`, in lower case, itself."""
    return _HeadersRule(
        "a mapping of strings to strings", lambda value: isinstance(value, Mapping), each=STRING, own=own
    )


def list_of(each: Rule, what: str) -> Rule:
    """Return the rule for a list of items, or another sequence of them that is not text."""
    return _EachRule(what, lambda value: isinstance(value, Sequence) and _is_iterable(value), each=each)


def function_taking(*arguments: str) -> Rule:
    """Return the rule for a function that is called with these arguments."""
    return _FunctionRule("a function", is_function, arguments=arguments)


def iterable(what: str) -> Rule:
    """Return the rule for an iterable whose items are checked later, while they are read."""
    return Rule(what, _is_iterable)


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- rules ------------------------------------------------------------------------------------------------------------

ANYTHING = Rule("anything", lambda _: True)
BOOL = instance_of("True or False", bool)
STRING = instance_of("a string", str)
NAME = Rule("a string that is not empty", lambda value: isinstance(value, str), bool)
BYTES = instance_of("bytes", bytes, bytearray, memoryview)
PATH = Rule(
    "a path (a str or os.PathLike, without null characters)",
    lambda value: isinstance(value, (str, os.PathLike)),
    lambda value: "\0" not in str(value),
)
URL = instance_of("a URL (a str)", str)

NUMBER = _number("a finite number", -_LARGEST)
POSITIVE = _number("a positive number", _SMALLEST)
SECONDS = _number("a positive number of seconds", _SMALLEST)
WAIT = _number("a number of seconds from 0 on", 0)
COUNT = integer(1)
COUNT_OR_ZERO = integer(0)
PORT = integer(0, 65535)

FUNCTION = Rule("a function", is_function)
EVENT_CONDITION = function_taking("event").or_none

MAPPING = mapping_of(ANYTHING)
STRINGS = mapping_of(STRING, "a mapping of strings to strings")
# Headers that mark the end of an HTTP request. Wrong ones would break the request, or hide another request in it.
OWN_HEADERS = ("content-length", "transfer-encoding")
HEADERS = headers_without(*OWN_HEADERS)


def snake_case(name: str) -> str:
    """Convert camelCase: ``"requestData"`` → ``"request_data"``, ``"onLLMText"`` → ``"on_llm_text"``."""
    if name.islower():
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def check_names(what: str, given: Iterable[str], known: Collection[str], *, camel_case: bool = True) -> None:
    """Check the names of options.

    Args:
        what: The subject of the error: the call or class that takes the options.
        given: The given names.
        known: All known names, in snake_case.
        camel_case: True if names may be in camelCase.

    Raises:
        TypeError: A name is unknown. The text has the nearest name, in the same spelling if that is allowed, and all
            names.
    """
    unknown = [name for name in given if (snake_case(name) if camel_case else name) not in known]
    if not unknown:
        return
    near = nearest(snake_case(unknown[0]), known)
    if near and camel_case:
        near = _spelt_as(unknown[0], near)
    hint = f"did you mean {near}? It" if near else "it"
    names = ", ".join(name if name.isidentifier() else quoted(name) for name in unknown)
    raise TypeError(f"{what} has no {one_line(names)}; {hint} has {', '.join(known)}")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant. None: none is similar."""
    import difflib  # imported only for an error

    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, 1)
    return near[0] if near else None


def _spelt_as(name: str, known: str) -> str:
    """Return `known`, in camelCase if `name` is."""
    first, *others = known.split("_")
    return known if name == snake_case(name) else first + "".join(map(str.capitalize, others))


def from_mapping(cls: type[T], value: T | Mapping[str, Any], name: str) -> T:
    """Return an object of `cls`: `value` itself, or one made from a mapping with snake_case or camelCase keys.

    Args:
        cls: An attrs class.
        value: The value of an option.
        name: The name of the option.

    Raises:
        TypeError: A key is unknown or missing, or `value` is not a mapping or an object of `cls`.
        TypeError, ValueError: A key has a wrong value. The error names the key as it is spelt in the mapping.
    """
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be {cls.__name__} or a mapping, not {described(value)}")
    hashable: Any = cls  # which mypy doubts
    fields, required = _fields_of(hashable), _required(hashable)
    if required <= value.keys() <= fields.keys():
        return cls(**value)
    MAPPING.check_one(name, value)
    given = {snake_case(key): item for key, item in value.items()}
    if len(given) < len(value):
        raise TypeError(f"{name} has a key in two spellings: {', '.join(value)}. Use one of them")
    check_names(cls.__name__, value, fields)
    if missing := [key for key in fields if key in required and key not in given]:
        raise TypeError(f"{name} needs {' and '.join(map(repr, missing))}; a {cls.__name__} has {', '.join(fields)}")
    for key in value.keys() - fields.keys():
        rule = _rule_of(fields[snake_case(key)])
        if rule is not None:  # otherwise the error would name the field, not the key
            rule.check_one(key, value[key])
    return cls(**given)


@functools.cache
def _fields_of(cls: Any) -> Mapping[str, attrs.Attribute[Any]]:
    return {field.alias or field.name: field for field in attrs.fields(cls)}


@functools.cache
def _required(cls: Any) -> frozenset[str]:
    return frozenset(name for name, field in _fields_of(cls).items() if field.default is attrs.NOTHING)


# -- classes with many fields, most of which keep their defaults ------------------------------------------------------


def check_together(_cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Let `check_fields()` check the fields of a class in one call, instead of attrs each on its own.

        @attrs.define(field_transformer=check_together)
        class Options:
            echo: bool = attrs.field(default=True, validator=BOOL)
            __attrs_post_init__ = check_fields

    A field that is assigned later is checked as in other classes.
    """
    setter = attrs.setters.pipe(attrs.setters.convert, _check_set)
    return [
        field.evolve(validator=None, metadata={**field.metadata, _RULE: field.validator}, on_setattr=setter)
        for field in fields
    ]


def check_fields(instance: attrs.AttrsInstance) -> None:
    """Check the fields of a new object whose values are not the defaults themselves.

    Raises:
        TypeError: A field has a wrong type.
        ValueError: A field has a wrong value.
    """
    for name, field in _fields_of(type(instance)).items():
        value = getattr(instance, field.name)
        if value is not field.default and (rule := field.metadata[_RULE]) is not None:
            rule.check(**{name: value})


def _check_set(instance: attrs.AttrsInstance, field: attrs.Attribute[Any], value: Any) -> Any:
    if (rule := _rule_of(field)) is not None:
        rule(instance, field, value)
    return value


def _rule_of(field: attrs.Attribute[Any]) -> Rule | None:
    rule = field.metadata.get(_RULE, field.validator)
    return rule if isinstance(rule, Rule) else None
