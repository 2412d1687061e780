"""The keys of a mapping in a file, each read by a rule. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync.protocol.text import quoted
from rtvi_sync.protocol.validation import Rule, nearest
from rtvi_sync.testing.scenarios.nodes import Node, described


@attrs.frozen(eq=False, slots=False, repr=False)
class WordsRule(Rule):
    """The rule for one of several words."""

    choices: Sequence[str] = attrs.field(kw_only=True)


def words(*choices: str, any_case: bool = False) -> WordsRule:
    """Return the rule for one of several words."""

    def is_choice(value: str) -> bool:
        return (value.lower() if any_case else value) in choices

    what = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return WordsRule(what, lambda value: isinstance(value, str), is_choice, choices=choices)


@attrs.frozen(eq=False, repr=False)
class Keys:
    """A mapping in a file. A fault of a key is raised as `ScenarioFileError`, with its place.

    A key without a value is left out, unless it has a default.

    Attributes:
        what: Name of the mapping for errors: "a turn".
        node: Node of the mapping.
        pairs: Nodes of key and value, by key.
    """

    what: str
    node: Node
    pairs: Mapping[str, tuple[Node, Node]]

    @classmethod
    def of(cls, node: Node, what: str, known: Collection[str] | None) -> Keys:
        """Return the keys of a node, which must be a mapping with known keys only; `known` of None allows any key."""
        if not isinstance(node.value, dict):
            raise node.fault(f"{what} must be a mapping, not {described(node.value)}")
        for name, (key, _) in node.value.items():
            if known is not None and name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near!r}?" if near else f"it has {', '.join(known)}"
                raise key.fault(f"{what} has no key {quoted(name)}; {hint}")
        return cls(what, node, node.value)

    def __contains__(self, key: str) -> bool:
        return key in self.pairs

    def value_of(self, key: str) -> Node | None:
        """Return the node of a key's value; None if there is no value."""
        node = self.pairs[key][1] if key in self.pairs else None
        return None if node is None or node.value is None else node

    def read(self, key: str, rule: Rule, default: Any = None) -> Any:
        """Return the value of an optional key."""
        if key not in self.pairs:
            return default
        node = self.pairs[key][1]
        if node.value is not None or default is not None:
            check(node, key, rule)
        return node.value

    def needed(self, key: str, rule: Rule) -> Any:
        """Return the value of a required key."""
        check(self.node_needed(key), key, rule)
        return self.pairs[key][1].value

    def node_needed(self, key: str) -> Node:
        """Return the node of a required key's value."""
        if key not in self.pairs:
            raise self.node.fault(f"{self.what} needs the key {key!r}")
        return self.pairs[key][1]

    def items(self, key: str) -> list[Node] | None:
        """Return the items of a list; None if there is no value."""
        node = self.value_of(key)
        return None if node is None else items_of(node, key)

    def refuse(self, keys: Collection[str], why: str) -> None:
        """Raise a fault if one of these keys is present, with or without a value."""
        for key in keys:
            if key in self.pairs:
                raise self.pairs[key][0].fault(f"{key!r} {why}")


def items_of(node: Node, key: str) -> list[Node]:
    """Return the items of a list."""
    if not isinstance(node.value, list):
        raise node.fault(f"{key!r} must be a list, not {described(node.value)}")
    return node.value


def check(node: Node, key: str, rule: Rule) -> None:
    """Raise a fault if a value breaks its rule."""
    value = node.value
    if rule.has_type(value):
        if rule.has_value(value):
            return
        got = quoted(value)
    elif isinstance(value, str) or rule.has_type(""):
        got = quoted(value) if isinstance(value, str) else described(value)  # a value of another type may be a secret
    else:
        got = described(value) if not isinstance(value, int | float) or isinstance(value, bool) else quoted(value)
    hint = ""
    if rule.has_type("") and isinstance(value, bool | int | float):
        hint = "; write it in quotes"
    elif isinstance(rule, WordsRule) and isinstance(value, str) and (near := nearest(value, rule.choices)):
        hint = f"; did you mean {near!r}?"
    raise node.fault(f"{key!r} must be {rule.what}, not {got}{hint}")
