"""The page `docs/reference/reference.md`: every event, the options and members of the client, and every public name.

`python -m tools.reference` writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import attrs

from rtvi_sync import RTVIClient, RTVIClientOptions, RTVIEvent
from rtvi_sync.client.options import option_texts

from .event_overloads import groups

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "reference.md"
MODULES = ("rtvi_sync", "rtvi_sync.media", "rtvi_sync.media.convert", "rtvi_sync.testing")

_HEAD = """\
# Reference

`python -m tools.reference` writes this page from the docstrings; `help(name)` shows the whole of each.
The names of the integrations are in [flask.md](../guides/flask.md), [notebook.md](../guides/notebook.md), \
[otel.md](../guides/otel.md) and [load.md](../guides/load.md).

## Events

`client.on()`, `client.wait_for()`, `client.events()` and `signals` take these names, and the members of `RTVIEvent`.
The class of `event.data` is one of those below.
[protocol.md](protocol.md) says which bots send which message.
"""
_OPTIONS_HEAD = """
## Options

Keyword arguments of `RTVIClient`.
`connect()` and `RTVIClient.for_url()` take all of them except `custom_connect_handler`.
"""
_CLIENT_HEAD = """
## `RTVIClient`
"""
# Names without a docstring of their own.
_OTHERS: Mapping[str, str] = {
    "DEFAULT_TIMEOUT": "The client's `request_timeout`, which is the `timeout` of calls that wait for an answer.",
    "RTVIActionResponse": "The answer to an action: an `RTVIMessage`.",
    "Timeout": "The type of a `timeout`: seconds, `DEFAULT_TIMEOUT`, or None for no limit.",
    "__version__": "The version of the package.",
}


def page() -> str:
    """Return the whole page."""
    events = _table(("event", "data", "when it comes"), _events())
    options = _table(("option", "type", "default", "what it does"), _options())
    members = _table(("member", "what it does"), _members(RTVIClient))
    return "\n".join([_HEAD, *events, _OPTIONS_HEAD, *options, _CLIENT_HEAD, *members, *_modules()]) + "\n"


def _events() -> Iterator[tuple[str, str, str]]:
    types = {event: group.type for group in groups() for event in group.events}
    for event in RTVIEvent:
        data = {"None": "", "Any": "any JSON"}.get(types[event], f"`{types[event]}`")
        yield f"`{event.snake}`", data, event.when


def _options() -> Iterator[tuple[str, str, str, str]]:
    for name, text in option_texts():
        field = attrs.fields_dict(RTVIClientOptions)[name]
        yield f"`{name}`", f"`{field.type}`".replace("|", "\\|"), f"`{field.default!r}`", text


def _modules() -> Iterator[str]:
    for name in MODULES:
        yield f"\n## `{name}`\n"
        yield from _table(("name", "what it is"), _names(import_module(name)))


def _names(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name in module.__all__:
        yield f"`{name}`", _first_paragraph(_OTHERS.get(name) or inspect.getdoc(getattr(module, name)) or "")


def _members(owner: type) -> Iterator[tuple[str, str]]:
    for name in dir(owner):
        if not name.startswith("_"):
            member = getattr(owner, name)
            call = "()" if callable(member) else ""
            yield f"`{name}{call}`", _first_paragraph(inspect.getdoc(member) or "")


def _first_paragraph(text: str) -> str:
    first, _, _ = text.partition("\n\n")
    return first.rstrip(":").replace("\n", " ").replace("``", "`").replace("|", "\\|")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (heads, ("---",) * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
