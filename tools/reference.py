"""The pages of docs/reference that are made of the code: events, options, errors, commands, pytest's options, samples.

`python -m tools.reference` writes them. The pages of classes are written by hand around the docstrings that Sphinx
inserts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import pytest

import rtvi_sync
import run
from rtvi_sync import RTVIClientOptions, RTVIError, RTVIEvent
from rtvi_sync.cli import _parser
from rtvi_sync.client.options import option_texts
from rtvi_sync.testing import pytest_plugin

from .event_overloads import groups

_ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = _ROOT / "docs" / "reference"

_EVENTS: Final = """\
# Events

`client.on()`, `client.wait_for()`, `client.events()` and `signals` take these names, and the members of `RTVIEvent`.
The class of `event.data` is one of those on the page [Messages](messages.md).
The page [Protocol](protocol.md) says which bots send which message.
"""
_EVENT_CLASSES: Final = """
## Classes

```{eval-rst}
.. autoclass:: rtvi_sync.Event

.. autoclass:: rtvi_sync.RTVIEvent
   :members: snake

.. autoclass:: rtvi_sync.RTVIEventCallbacks
   :no-inherited-members:

.. autoclass:: rtvi_sync.HandlerError

.. autoclass:: rtvi_sync.BotStartedData

.. autoclass:: rtvi_sync.ReconnectingData
   :members: describe

.. autoclass:: rtvi_sync.ReconnectFailedData
```

## Signals

```{eval-rst}
.. automodule:: rtvi_sync.signals
   :no-inherited-members:

.. autoclass:: rtvi_sync.signals.EventSignal
   :members: connect, disconnect
```
"""
_OPTIONS: Final = """\
# Options

The keyword arguments of [`RTVIClient`](client.md).
[`connect()`](connect.md) and `RTVIClient.for_url()` take all of them except `custom_connect_handler`.
Times are in seconds, except `timeout`, which is in milliseconds.
"""
_ERRORS: Final = """\
# Error classes

The classes of the errors that the package raises.
To search for a message, see the guide [Errors](../guides/errors.md).
An `except` for a class catches the classes indented below it, too:

"""
_COMMANDS: Final = """\
# Commands

`rtvi-sync COMMAND --help` prints the same; the guide is [Use the commands](../guides/terminal.md).
"""
_PYTEST: Final = """\
# Options of pytest

The plugin `rtvi_sync.testing.pytest_plugin` is there once the package is installed.
The guide is [Test your bot with pytest](../guides/testing-bots.md).

## Command line

"""

_SAMPLES: Final = """\
# Samples

`python3 run.py sample NAME` runs a program of the folder `samples` in a clone, and `--url` gives it your bot's address.
Most of them talk to the embedded bot without it.
"""


#: The modules whose public names the reference describes.
MODULES: Final = (
    "rtvi_sync",
    "rtvi_sync.media",
    "rtvi_sync.media.convert",
    "rtvi_sync.testing",
    "rtvi_sync.testing.scenarios",
    "rtvi_sync.testing.transport_contract",
    "rtvi_sync.flask",
    "rtvi_sync.django",
    "rtvi_sync.notebook",
    "rtvi_sync.otel",
)


def pages() -> Mapping[str, str]:
    """Return the text of each page, by its name."""
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "events.md": _events,
        "options.md": _options,
        "errors.md": _errors,
        "cli.md": _commands,
        "pytest.md": _pytest,
        "samples.md": _samples,
    }
    return {name: "\n".join(make()).rstrip("\n") + "\n" for name, make in makers.items()}


def _events() -> Iterator[str]:
    types = {event: group.type for group in groups() for event in group.events}
    shown = {"None": "", "Any": "any JSON"}
    rows = ((f"`{e.snake}`", shown.get(types[e], f"`{types[e]}`"), e.when) for e in RTVIEvent)
    yield _EVENTS
    yield from _table(("event", "data", "when"), rows)
    yield _EVENT_CLASSES


def _options() -> Iterator[str]:
    fields = attrs.fields_dict(RTVIClientOptions)
    rows = ((f"`{n}`", f"`{fields[n].default!r}`", f"`{fields[n].type}`<br>{text}") for n, text in option_texts())
    yield _OPTIONS
    yield from _table(("option", "default", "type and effect"), rows)


def _errors() -> Iterator[str]:
    tree = list(_tree(RTVIError))
    yield f"{_ERRORS}```"
    for depth, error in tree:
        others = [base.__name__ for base in error.__bases__ if not issubclass(base, RTVIError)]
        also = f" (also {', '.join(others)})" if others and error is not RTVIError else ""
        yield f"{'    ' * depth}{error.__name__}{also}"
    yield "```\n\n```{eval-rst}"
    yield "\n\n".join(f".. autoexception:: rtvi_sync.{error.__name__}" for _, error in tree)
    yield "```"


def _tree(error: type[RTVIError], depth: int = 0) -> Iterator[tuple[int, type[RTVIError]]]:
    """Return a class and the public classes derived from it, with their depths."""
    yield depth, error
    for each in sorted(error.__subclasses__(), key=lambda each: each.__name__):
        if each.__name__ in rtvi_sync.__all__:
            yield from _tree(each, depth + 1)


def options_of_commands() -> dict[str, set[str]]:
    """Return the options of each command of `rtvi-sync`."""
    return {name: {*parser._option_string_actions} for name, parser in _parsers().items()}


def options_of_pytest() -> set[str]:
    """Return the options that the pytest plugin adds."""
    options = _OptionsOf()
    pytest_plugin.pytest_addoption(options)  # type: ignore[arg-type]
    return {word for row, _ in options.rows for word in re.findall(r"--[\w-]+", row)}


def _parsers() -> Mapping[str, argparse.ArgumentParser]:
    return next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)).choices


def _commands() -> Iterator[str]:
    yield _COMMANDS
    for name, parser in _parsers().items():
        summary, _, rest = (parser.description or "").partition("\n")
        yield f"## {name}\n\n{summary}"
        if rest.strip():
            yield f"\n```\n{rest.strip()}\n```"
        yield ""
        yield from _table(("argument", "effect"), map(_argument, _shown(parser)))
        yield ""


def _shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS)


def _argument(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    if isinstance(value, tuple):  # of an option with several values
        value = " ".join(value)
    takes = action.nargs != 0
    names = ", ".join(action.option_strings)
    words = " ".join(filter(None, (names, value if takes or not names else "")))
    given = {**vars(action), "prog": "rtvi-sync"}
    return f"`{words}`", " ".join((action.help or "").split()) % given


def _pytest() -> Iterator[str]:
    options, settings = _OptionsOf(), []
    pytest_plugin.pytest_addoption(options)  # type: ignore[arg-type]
    settings = options.settings
    yield _PYTEST
    yield from _table(("option", "effect"), options.rows)
    yield "\n## Settings\n\nIn `pytest.ini`, or `[tool.pytest.ini_options]` of `pyproject.toml`:\n"
    yield from _table(("setting", "effect"), settings)
    yield "\n## Fixtures\n"
    yield from _table(("fixture", "description"), _fixtures())
    yield f"\n## The marker\n\n```\n{pytest_plugin.MARKER}\n```"


def _samples() -> Iterator[str]:
    yield _SAMPLES
    rows = []
    for name, program in run.sample_programs().items():
        place = (program.parent if program.name == "__main__.py" else program).relative_to(_ROOT).as_posix()
        page = _ROOT / place / "README.md"
        rows.append((f"[{name}](../../{place}{'/README.md' if page.exists() else ''})", run.summary_of(program)))
    yield from _table(("sample", "description"), rows)


class _OptionsOf:
    """Stands in for pytest's parser, and keeps the options that the plugin adds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.settings: list[tuple[str, str]] = []

    def getgroup(self, *_: object) -> _OptionsOf:
        """Return the group of the plugin's options."""
        return self

    def addoption(self, *names: str, help: str = "", metavar: str = "", **_: object) -> None:
        """Keep an option of the command line."""
        self.rows.append((f"`{' '.join(filter(None, (', '.join(names), metavar)))}`", help))

    def addini(self, name: str, help: str, **_: object) -> None:
        """Keep a setting."""
        self.settings.append((f"`{name}`", help))


def _fixtures() -> Iterator[tuple[str, str]]:
    for name, value in vars(pytest_plugin).items():
        if isinstance(value, _FIXTURE) and not name.startswith("_"):
            yield f"`{name}`", _first_paragraph(value.__doc__ or "")


_FIXTURE: Final = type(pytest.fixture(lambda: None))


def _first_paragraph(text: str) -> str:
    first, _, _ = text.partition("\n\n")
    return " ".join(first.rstrip(":").split()).replace("``", "`")


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for cells in (heads, ("---",) * len(heads)):
        yield f"| {' | '.join(cells)} |"
    for cells in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    for page, text in pages().items():
        FOLDER.joinpath(page).write_text(text, "utf-8")
