"""Every parameter of every public function, constructor, method and settable property, found by introspection."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from types import ModuleType

import rtvi_sync
import rtvi_sync.cli
import rtvi_sync.django
import rtvi_sync.flask
import rtvi_sync.media
import rtvi_sync.media.convert
import rtvi_sync.messages
import rtvi_sync.notebook
import rtvi_sync.otel
import rtvi_sync.signals
import rtvi_sync.testing
import rtvi_sync.testing.faults
import rtvi_sync.testing.scenarios

# Not `rtvi_sync.locust`: importing Locust patches the process. Its one class is constructed and started by Locust.
MODULES = (
    rtvi_sync,
    rtvi_sync.media,
    rtvi_sync.media.convert,
    rtvi_sync.testing,
    rtvi_sync.testing.faults,
    rtvi_sync.testing.scenarios,
    rtvi_sync.signals,
    rtvi_sync.django,
    rtvi_sync.flask,
    rtvi_sync.notebook,
    rtvi_sync.otel,
    rtvi_sync.cli,
)
# Decoded from the bot's messages, by rules of their own; those that applications construct are tested.
_PAYLOADS = {getattr(rtvi_sync.messages, name) for name in rtvi_sync.messages.__all__} - {
    rtvi_sync.RTVIMessage,
    rtvi_sync.ConfigOption,
    rtvi_sync.RTVIClientConfigOption,
}


def parameters() -> Iterator[str]:
    """Yield the name of each parameter: "RTVIClient.send_text.content", "RTVIClientOptions.events"."""
    seen: set[object] = set()
    for module in MODULES:
        for thing in _public(module):
            if inspect.isfunction(thing):
                yield from _of(thing.__name__, thing, seen)
            elif inspect.isclass(thing) and not (issubclass(thing, enum.Enum | BaseException) or thing in _PAYLOADS):
                yield from _of_class(thing, seen)


def _public(module: ModuleType) -> list[object]:
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return [getattr(module, name) for name in names]


def _of_class(cls: type, seen: set[object]) -> Iterator[str]:
    constructor = cls.__init__  # type: ignore[misc]  # mypy takes the class for an instance
    if cls not in seen and constructor is not object.__init__ and "no_init_or_replace" not in constructor.__name__:
        seen.add(cls)
        yield from _of(cls.__name__, constructor, set(), skip=1)
    for name in dir(cls):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if name.startswith("_") or not owner.__module__.startswith("rtvi_sync"):
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property):
            if value.fset is not None and value not in seen:
                seen.add(value)
                yield f"{cls.__name__}.{name}.{name}"
        elif isinstance(value, classmethod | staticmethod):
            yield from _of(f"{cls.__name__}.{name}", value.__func__, seen, skip=1)
        elif inspect.isfunction(value):
            yield from _of(f"{cls.__name__}.{name}", value, seen, skip=1)


def _of(name: str, function: object, seen: set[object], skip: int = 0) -> Iterator[str]:
    if function in seen:
        return  # inherited, or another name of it
    seen.add(function)
    for parameter in list(inspect.signature(function).parameters)[skip:]:  # type: ignore[arg-type]
        yield f"{name}.{parameter}"
