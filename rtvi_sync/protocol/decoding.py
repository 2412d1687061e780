"""From plain JSON to payload classes, driven by nothing but the fields of the class."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import attrs

from ..errors import ProtocolError

Decoder = Callable[[Any, str], Any]
"""Takes a JSON value and its path ("bot-output: data.text"); returns what it means or raises `ProtocolError`."""


@attrs.frozen(kw_only=True)
class Payload:
    """Base of all payload classes.

    A field without a default must be there; any other may be absent or null and then has its default. `int` means a
    JSON integer, `float` any JSON number, a tuple a JSON array, `dict[str, Any]` any JSON object, `Any` any JSON.

    Attributes:
        extra: the fields of the message that its class does not know, as they came.
    """

    # Not hashed, so that a payload of plain values can be a key although a dict cannot.
    extra: dict[str, Any] = attrs.field(factory=dict, hash=False, repr=False)


PayloadT = TypeVar("PayloadT", bound=Payload)

_variants: dict[type[Payload], tuple[str, dict[str, type[Payload]]]] = {}


def sent_as(*names: str) -> Mapping[str, Any]:
    """Metadata of a field that the wire calls by one of `names`: the first that is there and not null counts."""
    return {"names": names}


ANY_SHAPE: Mapping[str, Any] = {"any_shape": True}
"""Metadata of a field that bots fill as they like: what does not fit counts as absent and does not cost the message."""


def variant_of(base: type[Payload], tag: str, value: str) -> Callable[[type[PayloadT]], type[PayloadT]]:
    """Decorates the subclass that `base` is decoded into when its field `tag` has this value."""

    def register(cls: type[PayloadT]) -> type[PayloadT]:
        _variants.setdefault(base, (tag, {}))[1][value] = cls
        return cls

    return register


def decoder_of(cls: type[Payload]) -> Decoder:
    """Returns the decoder of a payload class. Everything that can be known before the first message is worked out here.

    Raises:
        TypeError: a field has an annotation that JSON cannot mean.
    """
    if cls not in _variants:
        return _object_decoder(cls)
    base = _object_decoder(cls)
    tag, classes = _variants[cls]
    decoders = {value: _object_decoder(variant) for value, variant in classes.items()}

    def decode(data: Any, where: str) -> Any:
        value = data.get(tag) if type(data) is dict else None
        chosen = decoders.get(value, base) if type(value) is str else base
        return chosen(data, where)

    return decode


def _object_decoder(cls: type[Payload]) -> Decoder:
    plan = tuple(_step(field) for field in attrs.fields(cls) if field.name != "extra")
    own_names = frozenset(step.name for step in plan)

    def decode(data: Any, where: str) -> Any:
        if type(data) is not dict:
            raise _mismatch(where, dict, data)
        values: dict[str, Any] = {}
        known = own_names
        for attribute, name, synonyms, kinds, convert, required in plan:
            value = data.get(name)
            if value is None and synonyms:
                name = next((synonym for synonym in synonyms if data.get(synonym) is not None), name)
                value = data.get(name)
                known = known | {name}
            if value is None:
                if required:
                    raise _mismatch(f"{where}.{name}", kinds[0], data.get(name, attrs.NOTHING))
            elif kinds and type(value) not in kinds:
                raise _mismatch(f"{where}.{name}", kinds[0], value)
            else:
                values[attribute] = convert(value, f"{where}.{name}") if convert else value
        if not known.issuperset(data):
            values["extra"] = {name: value for name, value in data.items() if name not in known}
        return cls(**values)

    return decode


class _Step(NamedTuple):
    """How one field is read. A named tuple, because the decoder unpacks it for every field of every message."""

    attribute: str
    name: str
    synonyms: tuple[str, ...]
    kinds: tuple[type, ...]  # what JSON may give; empty: anything
    convert: Decoder | None
    required: bool


def _step(field: attrs.Attribute[Any]) -> _Step:
    kinds, convert = _reader(field.type)
    if field.metadata.get("any_shape"):
        kinds, convert = (), _or_default(kinds, convert, field.default)
    required = field.default is attrs.NOTHING
    if required and not kinds:
        raise TypeError(f"{field.name}: null means absent, so a field of any JSON needs a default")
    name, *synonyms = field.metadata.get("names", (field.name,))
    return _Step(field.name, name, tuple(synonyms), kinds, convert, required)


def _reader(hint: Any) -> tuple[tuple[type, ...], Decoder | None]:
    """What JSON gives for an annotation, as exact types: `int` excludes bool, `float` includes int."""
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
    raise TypeError(f"no JSON can mean {hint!r}")


def _or_default(kinds: tuple[type, ...], convert: Decoder | None, default: Any) -> Decoder:
    def decode(data: Any, where: str) -> Any:
        if type(data) not in kinds:
            return default
        try:
            return convert(data, where) if convert else data
        except ProtocolError:
            return default

    return decode


def _tuple_decoder(kinds: tuple[type, ...], convert: Decoder | None) -> Decoder:
    def decode(data: Any, where: str) -> Any:
        for index, item in enumerate(data):
            if kinds and type(item) not in kinds:
                raise _mismatch(f"{where}[{index}]", kinds[0], item)
        if convert is None:
            return tuple(data)
        return tuple([convert(item, f"{where}[{index}]") for index, item in enumerate(data)])

    return decode


def _mismatch(where: str, expected: type, value: Any) -> ProtocolError:
    # The value itself stays out of the message: it may be huge, and it may be secret.
    got = "nothing" if value is attrs.NOTHING else "null" if value is None else type(value).__name__
    return ProtocolError(f"{where}: expected {expected.__name__}, got {got}")
