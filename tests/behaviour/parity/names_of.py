"""Every public name that a TypeScript declaration file (`index.d.ts`) declares.

`python -m tests.behaviour.parity.names_of index.d.ts` prints them, one a line, as the files in `names/` hold them:

    RTVIClient.connect()            a method or function
    RTVIClient.connected            a property
    RTVIEvent.BotReady = botReady   a member of an enum
    TransportState.'ready'          a value of a type that is a choice of strings
    Tracks.local.audio              a property of an object inside another one

Declarations that are not exported are listed too, since exported names lead to them. Private and protected ones are
not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tree_sitter import Language, Node, Parser
from tree_sitter_typescript import language_typescript

_FUNCTIONS = {"function_signature", "method_signature", "abstract_method_signature"}
_NAMING = {
    *_FUNCTIONS,
    "class_declaration",
    "abstract_class_declaration",
    "interface_declaration",
    "type_alias_declaration",
    "enum_declaration",
    "variable_declarator",
    "public_field_definition",  # the grammar's name for it, with any modifier
    "property_signature",
    "enum_assignment",
}
# Names below these belong to a call, not to the callable.
_OF_CALLS = {"formal_parameters", "type_parameters", "function_type", "constructor_type"}


def names_of(declarations: str) -> dict[str, str]:
    """Name to value of all that a declaration file declares, in its order. The value is "" but for members of enums.

    Raises:
        ValueError: the text is not TypeScript.
    """
    root = Parser(Language(language_typescript())).parse(declarations.encode()).root_node
    if root.has_error:
        raise ValueError("this is not TypeScript, or newer TypeScript than tree-sitter-typescript knows")
    return dict(_names_below(root, ""))


def lines_of(declarations: str) -> list[str]:
    """Return the names as lines for people."""
    return [f"{name} = {value}" if value else name for name, value in names_of(declarations).items()]


def _names_below(node: Node, owner: str) -> Iterator[tuple[str, str]]:
    for child in node.named_children:
        if child.type in _NAMING:
            yield from _names_at(child, owner)
        elif child.type == "property_identifier" and node.type == "enum_body":
            yield owner + _text(child), ""
        elif child.type == "literal_type" and _is_choice(node) and _text(child)[0] in "\"'":
            yield owner + _text(child).replace('"', "'"), ""
        elif child.type not in _OF_CALLS:
            yield from _names_below(child, owner)


def _names_at(node: Node, owner: str) -> Iterator[tuple[str, str]]:
    name = _text(node.child_by_field_name("name"))
    hidden = any(child.type == "accessibility_modifier" and _text(child) != "public" for child in node.named_children)
    if hidden or name == "constructor":
        return
    if node.type in _FUNCTIONS:
        is_property = any(child.type in ("get", "set") for child in node.children)
        yield owner + name + ("" if is_property else "()"), ""
        return
    value = node.child_by_field_name("value") if node.type == "enum_assignment" else None
    yield owner + name, _text(value).strip("\"'") if value is not None else ""
    yield from _names_below(node, f"{owner}{name}.")


def _is_choice(node: Node | None) -> bool:
    """Return whether this is a union right below a `type Name = "a" | "b" | "c"`; unions are nested to the left."""
    if node is None or node.type != "union_type":
        return False
    return node.parent is not None and (node.parent.type == "type_alias_declaration" or _is_choice(node.parent))


def _text(node: Node | None) -> str:
    assert node is not None
    assert node.text is not None
    return node.text.decode()


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines_of(Path(sys.argv[1]).read_text("utf-8")))
