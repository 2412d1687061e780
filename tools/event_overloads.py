"""The types of the events, for type checkers. `python -m tools.event_overloads` writes the two stubs.

`event_names.pyi` has the names of the events in groups, one for each type of payload; `event_overloads.pyi` has the
methods that take events, with an overload for each group. Type checkers read them in the place of `client/events.py`;
a program that runs imports neither.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

import rtvi_sync.media
from rtvi_sync import Event, EventStream, RTVIEvent
from rtvi_sync.events import BY_NAME
from rtvi_sync.protocol.dialects import INBOUND

PACKAGE = Path(__file__).parents[1] / "rtvi_sync"

_HEAD = '''\
"""{what} Written by `python -m tools.event_overloads`."""

'''

_NAMES_HEAD = _HEAD.format(what="The names of the events, in groups that have payloads of one type.")

_OVERLOADS_HEAD = _HEAD.format(what="The methods of `client/events.py` that take events, as type checkers see them.")

_CLASS = '''\
H = TypeVar("H", bound=Callable[..., object])
T_co = TypeVar("T_co", covariant=True)

class _NoObject(Protocol[T_co]):
    """As `_NoObject[Never]`: no object is one, but mypy holds any except None for similar.

    An argument that is wrong, missing or one too many matches no overload, and mypy shows all of them, 48 kB, unless
    one is similar. So the last overloads take arguments similar to these, of type variables with names that mypy
    shows: what an argument should have been.
    """

    def __sizeof__(self) -> T_co: ...  # type: ignore[override]

class _HandlerWithDefault(Protocol):
    """A handler such as `lambda data, n=n: ...`; mypy infers no types of its arguments."""

    def __call__(self, data: Any, default: Any = ..., /) -> object: ...

class _HandlerWithoutData(Protocol):
    """A handler such as `lambda: ...` or `lambda n=n: ...`; for mypy, the second is no `Callable[[], object]`."""

    def __call__(self) -> object: ...

NameOfTheEvent = TypeVar("NameOfTheEvent", bound=AnyName | _NoObject[Never])
HandlerOfTheEvent = TypeVar("HandlerOfTheEvent", bound=_NoObject[Never])
NoneIsNoHandler = TypeVar("NoneIsNoHandler", bound=_NoObject[Never])
ConditionOnTheEvent = TypeVar("ConditionOnTheEvent", bound=_NoObject[Never] | None)
Seconds = TypeVar("Seconds", bound=float | _NoObject[Never] | None)
NoSuchArgument = TypeVar("NoSuchArgument", bound=_NoObject[Never])

class ClientEvents(ClientBase):
    """Handlers of events, and calls that wait for events, with the types of the payloads.

    A misspelt name is an error. An event that is only known when the program runs is given as `RTVIEvent(name)`;
    its payload, and that of events of several types, has the type Any.
    """

'''

# The arguments of an overload for a call without an event, which has too few: mypy counts those of a tuple later.
_NONE_GIVEN = "*arguments: Unpack[tuple[Unpack[tuple[NoSuchArgument, ...]], NoSuchArgument]], **others: NoSuchArgument"
# The body of an overload that mypy never takes, because an earlier one takes the same arguments.
_NOT_OF_MYPY = "...  # type: ignore[overload-cannot-match]"


@attrs.frozen
class Group:
    """The events whose payloads have one type.

    Attributes:
        payload: the type.
        events: at least one.
    """

    payload: Any
    events: list[RTVIEvent] = attrs.field(factory=list)

    @property
    def type(self) -> str:
        """Return the payload's type as an annotation."""
        if self.payload in (None, Any):
            return str(self.payload).removeprefix("typing.")
        if isinstance(self.payload, types.GenericAlias):
            return f"list[{self.payload.__args__[0].__name__}]"
        name: str = self.payload.__name__
        return name

    @property
    def name(self) -> str:
        """Return the name of the group: the name of the class, or one like it."""
        if self.type.startswith("list["):
            return f"{self.type[5:-1]}List"
        return {"None": "NoData", "Any": "AnyData"}.get(self.type, self.type)

    @property
    def import_of(self) -> tuple[str, str] | None:
        """Return the payload's module, as the folder `client` imports it, and its class."""
        if self.payload in (None, Any):
            return None
        payload = self.payload.__args__[0] if isinstance(self.payload, types.GenericAlias) else self.payload
        return payload.__module__.replace("rtvi_sync", ".", 1), payload.__name__


def payloads() -> dict[RTVIEvent, Any]:
    """Return the type of each event's payload, in the order of `RTVIEvent`."""
    of_messages = {spec.event: spec.payload for spec in INBOUND.values()}
    names = {**vars(rtvi_sync.media), "Any": Any, **{name: getattr(rtvi_sync, name) for name in rtvi_sync.__all__}}
    return {
        # The text is one of ours.
        event: eval(event.payload, names) if event.payload else of_messages.get(event)  # noqa: S307 # nosec B307
        for event in RTVIEvent
    }


def groups() -> list[Group]:
    """Return all groups, in the order of their first events."""
    found: list[Group] = []
    for event, payload in payloads().items():
        group = next((group for group in found if group.payload == payload), None)
        if group is None:
            found.append(group := Group(payload))
        group.events.append(event)
    return found


def names_stub() -> str:
    """Return the text of `event_names.pyi`."""
    lines = [_NAMES_HEAD, "from typing import Literal, TypeAlias, TypeVar\n", "from .events import RTVIEvent\n"]
    for group in groups():
        lines.append(f"{group.name}Name: TypeAlias = Literal[")
        for event in group.events:
            spellings = ", ".join(f'"{name}"' for name, named in BY_NAME.items() if named is event)
            lines.append(f"    RTVIEvent.{event.name}, {spellings},")
        lines.append("]")
    lines.append("AnyName: TypeAlias = (")
    lines.extend(f"    {'| ' if number else ''}{group.name}Name" for number, group in enumerate(groups()))
    lines.append("    | RTVIEvent\n)")
    lines.append("# mypy shows the name of this variable in an error, and not all the names of events.")
    lines.append('NameOfAnEvent = TypeVar("NameOfAnEvent", bound=AnyName)\n')
    return "\n".join(lines)


def overloads_stub() -> str:
    """Return the text of `event_overloads.pyi`."""
    return "\n".join([_OVERLOADS_HEAD, *_imports(), "", *map(_handler, groups()), _CLASS, *_methods(), ""])


def _imports() -> Iterator[str]:
    yield "from collections.abc import Callable"
    yield "from typing import Any, Protocol, TypeAlias, TypeVar, overload"
    yield ""
    yield "from typing_extensions import Never, Unpack"
    yield ""
    wanted: dict[str, set[str]] = {".base": {"ClientBase"}}
    for module, name in (
        *(group.import_of for group in groups() if group.import_of is not None),
        *((each.__module__.replace("rtvi_sync", ".", 1), each.__name__) for each in (Event, EventStream, RTVIEvent)),
    ):
        wanted.setdefault(module, set()).add(name)
    for module in sorted(wanted, key=lambda module: (not module.startswith(".."), module)):
        yield f"from {module} import {', '.join(sorted(wanted[module]))}"
    yield "from ..event_names import *"


def _handler(group: Group) -> str:
    bound = f"Callable[[{group.type}], object] | Callable[[], object]"
    return f'{group.name}Handler = TypeVar("{group.name}Handler", bound={bound})'


def _methods() -> Iterator[str]:
    rows = [(f"{group.name}Name", group.type) for group in groups()]
    # mypy explains an error by the first overload that is similar, pyright by the last. So they stand on both sides of
    # that for a call without an event.
    on = (
        "def on(self, event: NameOfTheEvent, handler: HandlerOfTheEvent = ...,"
        " *more: NoSuchArgument, **others: NoSuchArgument) -> Any:"
    )
    wait_for = (
        "def wait_for(self, event: NameOfTheEvent, where: ConditionOnTheEvent = ..., timeout: Seconds = ...,"
        " *more: NoSuchArgument, **others: NoSuchArgument) -> Event[Any]:"
    )
    yield from _overloads(
        *(
            signature
            for name, payload in rows
            for signature in (
                f"def on(self, event: {name}) -> Callable[[{name[:-4]}Handler], {name[:-4]}Handler]: ...",
                # No type variable: mypy would not know the type of a lambda's argument.
                f"def on(self, event: {name}, handler: Callable[[{payload}], object]) -> Callable[..., Any]: ...",
            )
        ),
        "def on(self, event: RTVIEvent) -> Callable[[H], H]: ...",
        "def on(self, event: RTVIEvent, handler: H) -> H: ...",
        "def on(self, event: AnyName, handler: _HandlerWithoutData | _HandlerWithDefault) -> Callable[..., Any]: ...",
        "def on(self, event: NoneIsNoHandler, handler: None) -> Any: ...",
        f"{on} ...",
        f"def on(self, {_NONE_GIVEN}) -> Any: ...",
        f"{on} {_NOT_OF_MYPY}",
    )
    yield "    once = on\n"
    yield "    def off(self, event: NameOfAnEvent, handler: Callable[..., Any] | None = None) -> None: ...\n"
    yield from _overloads(
        "def events(self, *, timeout: float | None = None) -> EventStream[Any]: ...",
        *(
            f"def events(self, event: {name}, /, *events: {name}, timeout: float | None = None)"
            f" -> EventStream[{payload}]: ..."
            for name, payload in (*rows, ("AnyName", "Any"))
        ),
        "def events(self, *events: NameOfTheEvent, timeout: Seconds = ..., **others: NoSuchArgument)"
        " -> EventStream[Any]: ...",
    )
    yield from _overloads(
        *(
            f"def wait_for(self, event: {name}, where: Callable[[Event[{payload}]], object] | None = None,"
            f" timeout: float | None = None) -> Event[{payload}]: ..."
            for name, payload in (*rows, ("RTVIEvent", "Any"))
        ),
        f"{wait_for} ...",
        f"def wait_for(self, {_NONE_GIVEN}) -> Event[Any]: ...",
        f"{wait_for} {_NOT_OF_MYPY}",
    )
    yield "    def process_events(self, timeout: float | None = 0.0) -> int: ..."


def _overloads(*signatures: str) -> Iterator[str]:
    for signature in signatures:
        yield "    @overload"
        yield f"    {signature}"
    yield ""


STUBS = {PACKAGE / "event_names.pyi": names_stub, PACKAGE / "client" / "event_overloads.pyi": overloads_stub}


def main() -> None:
    """Write the stubs."""
    for path, text in STUBS.items():
        path.write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
