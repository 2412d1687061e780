"""The search for a value in the application's data that JSON cannot express, for the error text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from .text import quoted

_Encode = Callable[[Any], object]

# Data with more levels is reported as too deep. The limit of Python's encoder is about the same.
_MAX_DEPTH: Final = 1000
# The search stops after this many values. Then the error has the encoder's own text.
_MAX_NODES: Final = 100_000
_MAX_KEY_LENGTH: Final = 40
# A longer path is shown by this many first and last keys.
_SHOWN_KEYS: Final = 4
_ADVICE: Final = "Pass text, numbers, True, False, None, lists, and dicts with text as keys"


class _Node(NamedTuple):
    """A value, and the container that holds it under `key`."""

    value: Any
    key: Any
    parent: _Node | None = None

    def ancestors(self) -> Iterator[_Node]:
        """Yield the containers of the value, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def __str__(self) -> str:
        """Return the path to the value as a Python expression: ``request_data['user']['when']``."""
        *keys, root = [node.key for node in (self, *self.ancestors())]
        steps = [f"[{_shown(key)}]" for key in reversed(keys)]
        if len(steps) > 2 * _SHOWN_KEYS:
            steps[_SHOWN_KEYS:-_SHOWN_KEYS] = ["[...]"]
        return "".join([root, *steps])


def find_fault(given: Mapping[str, Any], encode: _Encode) -> Exception | None:
    """Return the error for a value that cannot be encoded. None if the value is not found.

    The error names the place and the type. It never names the value, which may be secret.

    Args:
        given: The application's data, by the name to use in the error.
        encode: A function that raises for a value that cannot be encoded.
    """
    level = [_Node(value, name) for name, value in given.items()]
    count = 0
    for _ in range(_MAX_DEPTH):
        count += len(level)
        for node in level:
            fault = _fault_of(node, encode)
            if fault is not None:
                return fault
        level = [child for node in level for child in _children(node)] if count <= _MAX_NODES else []
    if not level:
        return None
    return ValueError(f"{level[0]} is nested too deeply for JSON. Pass data with fewer levels")


def _children(node: _Node) -> Iterator[_Node]:
    value = node.value
    if isinstance(value, dict):
        yield from (_Node(child, key, node) for key, child in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (_Node(child, index, node) for index, child in enumerate(value))


def _fault_of(node: _Node, encode: _Encode) -> Exception | None:
    """Return the error for a value itself, without the values that it contains. None if there is none."""
    value = node.value
    if not isinstance(value, (dict, list, tuple)):
        return _error_of(value, encode, node, "")
    for ancestor in node.ancestors():
        if ancestor.value is value:
            text = f"{node} refers back to {ancestor}, which JSON cannot express. Pass data without circular references"
            return ValueError(text)
    for key in value if isinstance(value, dict) else ():
        error = _error_of(key, lambda key: encode({key: None}), node, "has a key that ")
        if error is not None:
            return error
    return None


def _error_of(value: Any, encode: _Encode, node: _Node, what: str) -> Exception | None:
    """Return the error for a value without nested values, or for a key. Its description starts with `what`."""
    try:
        encode(value)
    except UnicodeEncodeError:
        advice = "which UTF-8 cannot express. Pass whole characters"
        return ValueError(f"{node} {what}has half a character (a lone surrogate) in it, {advice}")
    except TypeError:
        return TypeError(f"{node} {what}is {_named_type(value)}, which JSON does not have. {_ADVICE}")
    except (ValueError, RecursionError):
        if isinstance(value, float):
            return ValueError(f"{node} {what}is {float(value)}, a number that JSON does not have. Pass None instead")
        return ValueError(f"{node} {what}is {_named_type(value)} too large for JSON. Pass a smaller one, or text")
    return None


def _named_type(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _shown(key: Any) -> str:
    return quoted(key, _MAX_KEY_LENGTH)
