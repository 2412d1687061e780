"""Decoders from plain JSON to payload classes, made from the fields of the classes."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import attrs

from ..errors import ProtocolError
from .record import Record

Decoder = Callable[[Any], Any]
"""A function that takes a JSON value and returns its meaning or raises `MismatchError`."""


class MismatchError(ProtocolError):
    """A JSON value has the wrong type.

    Args:
        expected: The expected type.
        value: The value, or NOTHING if it is absent. Not in the text, because it may be huge or secret.
        path: Its place in the decoded value, such as ".text".
    """

    def __init__(self, expected: type, value: Any, path: str = "") -> None:
        got = "nothing" if value is attrs.NOTHING else "null" if value is None else type(value).__name__
        self._what = f"expected {expected.__name__}, got {got}"
        #: The decoder of the containing value prepends its own path.
        self.path: str = path
        super().__init__(self._what)

    def __str__(self) -> str:
        return f"{self.path}: {self._what}"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Payload(Record):
    """The base of all payload classes.

    A field without a default is required. Any other field may be absent or null and then has its default. `int` means a
    JSON integer, `float` any JSON number, a tuple a JSON array, `dict[str, Any]` any JSON object, `Any` any JSON.

    Attributes:
        extra: The message's fields that the class does not know, as received.
    """

    # Not hashed, so that a payload of plain values is hashable although a dict is not.
    extra: dict[str, Any] = attrs.field(factory=dict, hash=False, repr=False)

    if not typing.TYPE_CHECKING:  # a type checker would accept any misspelt attribute

        def __getattr__(self, name: str) -> Any:
            # `extra` is rarely used, and a dict for each message would be more work for the garbage collector.
            if name != "extra":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            extra: dict[str, Any] = {}
            object.__setattr__(self, "extra", extra)
            return extra


PayloadT = TypeVar("PayloadT", bound=Payload)

_variants: dict[type[Payload], tuple[str, dict[str, type[Payload]]]] = {}


def sent_as(*names: str) -> Mapping[str, Any]:
    """Return the metadata of a field with other names on the wire. The first that is present and not null counts."""
    return {"names": names}


ANY_SHAPE: Mapping[str, Any] = {"any_shape": True}
"""The metadata of a field that bots fill freely: a value of another type counts as absent, and is not an error."""


def variant_of(base: type[Payload], tag: str, value: str) -> Callable[[type[PayloadT]], type[PayloadT]]:
    """Decorate the subclass that `base` is decoded into if its field `tag` has this value."""

    def register(cls: type[PayloadT]) -> type[PayloadT]:
        _variants.setdefault(base, (tag, {}))[1][value] = cls
        return cls

    return register


def decoder_of(cls: type[Payload]) -> Decoder:
    """Return the decoder of a payload class. All work that does not depend on a message is done here, once.

    Raises:
        TypeError: A field has an annotation without a meaning in JSON.
    """
    if cls not in _variants:
        return _object_decoder(cls)
    base = _object_decoder(cls)
    tag, classes = _variants[cls]
    decoders = {value: _object_decoder(variant) for value, variant in classes.items()}

    def decode(data: Any) -> Any:
        value = data.get(tag) if type(data) is dict else None
        chosen = decoders.get(value, base) if type(value) is str else base
        return chosen(data)

    return decode


def _object_decoder(cls: type[Payload]) -> Decoder:
    steps = [_step(field) for field in attrs.fields(cls) if field.name != "extra"]
    plan = [(_putter(cls, step.field), step.name, step.plain, step.absent, step) for step in steps]
    put_extra = _putter(cls, "extra")
    new = object.__new__

    def decode(data: Any) -> Any:
        if type(data) is not dict:
            raise MismatchError(dict, data)
        # Without the class's own __init__, because the __init__ of a frozen class takes twice as long.
        payload = new(cls)
        known = 0  # how many fields of `data` are known by their first name
        for put, name, plain, absent, step in plan:
            value = data.get(name)
            if type(value) is plain:
                put(payload, value)
                known += 1
            elif value is None and absent is not attrs.NOTHING:
                put(payload, absent)
            else:
                put(payload, step.read(data))
                known += value is not None
        if known < len(data) and (unknown := _unknown(steps, data)):
            put_extra(payload, unknown)
        return payload

    return decode


def _unknown(steps: list[_Step], data: dict[str, Any]) -> dict[str, Any]:
    known = {name for step in steps for name in (step.name, step.name_in(data))}
    return {name: value for name, value in data.items() if name not in known}


class _Nothing:
    """The type of no JSON value."""


@attrs.frozen(eq=False, repr=False)
class _Step:
    """The decoding of one field."""

    field: str
    name: str  # on the wire
    synonyms: tuple[str, ...]
    kinds: tuple[type, ...]  # the accepted JSON types; empty: any
    convert: Decoder | None
    default: Any  # NOTHING if the field is required; `dict` for a new dict each time
    plain: type = attrs.field(init=False)  # a value of this type needs no conversion
    absent: Any = attrs.field(init=False)  # the value if the field is absent or null; NOTHING: read() finds it

    def __attrs_post_init__(self) -> None:
        is_plain = self.kinds and self.convert is None
        object.__setattr__(self, "plain", self.kinds[0] if is_plain else _Nothing)
        needs_read = self.synonyms or self.default is dict
        object.__setattr__(self, "absent", attrs.NOTHING if needs_read else self.default)

    def name_in(self, data: dict[str, Any]) -> str:
        """Return the name of the field in `data`."""
        if data.get(self.name) is None:
            for synonym in self.synonyms:
                if data.get(synonym) is not None:
                    return synonym
        return self.name

    def read(self, data: dict[str, Any]) -> Any:
        """Return the field's value. Raises MismatchError."""
        name = self.name_in(data)
        value = data.get(name)
        if value is None:
            if self.default is attrs.NOTHING:
                raise MismatchError(self.kinds[0], data.get(name, attrs.NOTHING), f".{name}")
            return {} if self.default is dict else self.default
        if self.kinds and type(value) not in self.kinds:
            raise MismatchError(self.kinds[0], value, f".{name}")
        if self.convert is None:
            return value
        try:
            return self.convert(value)
        except MismatchError as error:
            error.path = f".{name}{error.path}"
            raise


def _step(field: attrs.Attribute[Any]) -> _Step:
    default = getattr(field.default, "factory", field.default)
    if callable(default) and default is not dict:
        raise TypeError(f"{field.name}: the only supported factory of a default is dict")
    kinds, convert = _reader(field.type)
    if field.metadata.get("any_shape"):
        kinds, convert = (), _or_default(kinds, convert, default)
    if field.converter is not None:
        convert = _both(convert, cast(Decoder, field.converter))
    if default is attrs.NOTHING and not kinds:
        raise TypeError(f"{field.name}: null means absent, so a field of type Any needs a default")
    name, *synonyms = field.metadata.get("names", (field.name,))
    return _Step(field.name, name, tuple(synonyms), kinds, convert, default)


def _putter(cls: type[Payload], name: str) -> Callable[[Any, Any], None]:
    """Return the setter of an attribute's slot, which bypasses the frozen class."""
    slot: types.MemberDescriptorType = getattr(cls, name)
    return slot.__set__


def _both(first: Decoder | None, second: Decoder) -> Decoder:
    return second if first is None else lambda data: second(first(data))


def _reader(hint: Any) -> tuple[tuple[type, ...], Decoder | None]:
    """Return the exact JSON types of an annotation, and a converter: `int` excludes bool, `float` includes int."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return (), None
    if origin is types.UnionType and len(arguments) == 2 and arguments[1] is types.NoneType:
        return _reader(arguments[0])
    if hint is float:
        return (float, int), None
    if hint in (str, int, bool):
        return (hint,), None
    if hint == dict[str, Any]:
        return (dict,), None
    if origin is tuple and arguments[1:] == (...,):
        return (list,), _tuple_decoder(*_reader(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, Payload):
        return (dict,), decoder_of(hint)
    raise TypeError(f"{hint!r} has no meaning in JSON")


def _or_default(kinds: tuple[type, ...], convert: Decoder | None, default: Any) -> Decoder:
    def decode(data: Any) -> Any:
        if type(data) not in kinds:
            return default
        try:
            return convert(data) if convert else data
        except MismatchError:
            return default

    return decode


def _tuple_decoder(kinds: tuple[type, ...], convert: Decoder | None) -> Decoder:
    def decode(data: Any) -> Any:
        for index, item in enumerate(data):
            if kinds and type(item) not in kinds:
                raise MismatchError(kinds[0], item, f"[{index}]")
        if convert is None:
            return tuple(data)
        items = []
        for index, item in enumerate(data):
            try:
                items.append(convert(item))
            except MismatchError as error:
                error.path = f"[{index}]{error.path}"
                raise
        return tuple(items)

    return decode
