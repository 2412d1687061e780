"""The types of the events, which a tool writes for type checkers."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RTVIClient, RTVIEvent
from rtvi_sync.client.events import ClientEvents
from rtvi_sync.events import BY_NAME
from tools.event_overloads import STUBS, groups, names_stub, overloads_stub, payloads

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.name)
def test_what_is_stored_is_what_the_tool_writes(path: Path) -> None:
    """A changed event or payload needs `python -m tools.event_overloads`."""
    assert path.read_text("utf-8") == STUBS[path]()


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.name)
def test_a_stub_is_short(path: Path) -> None:
    """A stub has at most 520 lines: it grows with the payloads, not with the events."""
    assert len(path.read_text("utf-8").splitlines()) <= 520


def test_each_name_has_one_overload() -> None:
    """The groups have every event once, and the stub every name of each."""
    assert Counter(event for group in groups() for event in group.events) == Counter(RTVIEvent)
    assert Counter(re.findall(r'"([^"]+)"[,\]]', names_stub().partition("AnyName")[0])) == Counter([*BY_NAME])
    assert len({group.name for group in groups()}) == len(groups())


def test_the_stub_has_the_methods_that_run() -> None:
    """The overloads of a method have its parameters; others take what no method takes."""
    *_, stub = (node for node in ast.parse(overloads_stub()).body if isinstance(node, ast.ClassDef))
    overloads = [node for node in stub.body if isinstance(node, ast.FunctionDef)]
    runs = {name for name in vars(ClientEvents) if not name.startswith("_")}
    assert {node.name for node in overloads} == runs - {"once"}  # which is `on`
    for node in overloads:
        code = getattr(ClientEvents, node.name).__code__
        taken = {
            argument.arg
            for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg)
            if argument is not None and "NoSuchArgument" not in ast.unparse(argument.annotation or argument)
        }
        assert taken <= set(code.co_varnames)
    assert ClientEvents in RTVIClient.__mro__


def of_javascript() -> Iterator[tuple[RTVIEvent, str]]:
    """Return the payload that docs/reference/javascript.md names for each event which it has."""
    for line in (ROOT / "docs" / "reference" / "javascript.md").read_text("utf-8").splitlines():
        row = re.match(r"\| .* \| `RTVIEvent\.(\w+)`, `on_\w+`.* \| (.*) \|$", line)
        if row is not None:
            yield RTVIEvent[row[1]], row[2]


def test_payloads_are_those_of_the_documentation() -> None:
    """The page starts its remark about an event with the class of the payload, if there is one."""
    found = dict(of_javascript())
    assert len(found) > 50
    for event, remark in found.items():
        if remark.startswith("never fired"):
            continue
        named = re.match(r"(a list of )?`(?:media\.)?(\w+(?:Data|Info|State|Error|Level|Message))`", remark)
        payload = payloads()[event]
        if named is None:
            assert payload in (None, Any), event
        elif named[1]:
            assert payload.__args__[0].__name__ == named[2], event
        else:
            assert payload.__name__ == named[2], event
