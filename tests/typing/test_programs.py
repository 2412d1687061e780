"""That the programs of this folder, which the type checkers look at, use all that there is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import attrs

import rtvi_sync
import rtvi_sync.media
from rtvi_sync import LLMHelper, Payload, RTVIClient, RTVIClientHelper

PROGRAMS = [path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.name.startswith(("test_", "__"))]


def nodes() -> Iterator[ast.AST]:
    """Yield all that is written in the programs."""
    for path in PROGRAMS:
        yield from ast.walk(ast.parse(path.read_text()))


NAMES = {node.id for node in nodes() if isinstance(node, ast.Name)}
ATTRIBUTES = {node.attr for node in nodes() if isinstance(node, ast.Attribute)}
KEYWORDS = {node.arg for node in nodes() if isinstance(node, ast.keyword)}
DEFINED = {node.name for node in nodes() if isinstance(node, ast.FunctionDef)}


def public(thing: type) -> set[str]:
    """Return the public attributes of a class."""
    return {name for name in dir(thing) if not name.startswith("_")}


def test_every_export_is_used() -> None:
    """Each name that can be imported from `rtvi_sync` and `rtvi_sync.media` is used, not only imported."""
    exported = {*rtvi_sync.__all__, *rtvi_sync.media.__all__}
    assert exported - NAMES == set()


def test_every_method_is_used() -> None:
    """Every public method and property of the client, and of helpers, which users also override."""
    assert public(RTVIClient) - ATTRIBUTES == set()
    assert public(LLMHelper) - ATTRIBUTES - DEFINED - NAMES == set()
    assert public(RTVIClientHelper) <= public(LLMHelper)


def test_every_option_is_used() -> None:
    """Every keyword of the client's constructor is given."""
    options = {field.alias for field in attrs.fields(rtvi_sync.RTVIClientOptions)}
    assert options - KEYWORDS == set()


def test_every_field_is_read() -> None:
    """Every field of every payload."""
    exported = [getattr(rtvi_sync, name) for name in rtvi_sync.__all__]
    payloads = [thing for thing in exported if inspect.isclass(thing) and issubclass(thing, Payload)]
    assert len(payloads) > 40
    fields = {field.name for payload in payloads for field in attrs.fields(payload)}
    assert fields - ATTRIBUTES == set()


def test_every_mistake_is_one() -> None:
    """The programs make mistakes that a type checker has to see; each says which rule does."""
    ignored = [line for path in PROGRAMS for line in path.read_text().splitlines() if "type: ignore" in line]
    assert len(ignored) >= 8
    assert all("# type: ignore[" in line for line in ignored)
