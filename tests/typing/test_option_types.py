"""The types of a client's options, which a tool writes for type checkers, and their texts."""

from __future__ import annotations

import ast

import attrs
import pytest

from rtvi_sync import RTVIClient, RTVIClientOptions
from tools.option_types import STUB, stub

pytestmark = pytest.mark.inside


def test_the_stub_is_what_the_tool_writes() -> None:
    """A changed option needs `python -m tools.option_types`."""
    assert STUB.read_text("utf-8") == stub()


def test_the_stub_has_the_options() -> None:
    """The constructor takes every option of `RTVIClientOptions`, and `for_url()` all but two."""
    by_url, constructor = (node for node in ast.parse(stub()).body if isinstance(node, ast.ClassDef))
    names = [
        [part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
        for node in (by_url, constructor)
    ]
    assert names[1] == ["transport", "custom_connect_handler"]
    assert sorted(names[0] + names[1]) == sorted(field.name for field in attrs.fields(RTVIClientOptions))


def test_the_docstring_of_the_client_has_the_options() -> None:
    """`help(RTVIClient)` describes each option, between the other arguments and the errors."""
    above, _, below = (RTVIClient.__doc__ or "").partition("    options: ")
    assert above.endswith("\nArgs:\n")
    assert [field.name for field in attrs.fields(RTVIClientOptions) if f"\n    {field.name}: " not in below] == []
    assert below.index("\n    reconnect: ") < below.index("\n\nRaises:\n    TypeError: ")
