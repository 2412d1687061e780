"""The nodes of a YAML file, each with its place, read within limits. No part of a file creates a Python object.

The format is YAML 1.1 like in PyYAML's `SafeLoader`, with two changes. Only plain decimals are numbers, so `012` and
`0x1F` are text. `!include PATH` stands for the content of another file.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from rtvi_sync.errors import MissingExtraError, ScenarioFileError
from rtvi_sync.protocol.text import one_line, quoted
from rtvi_sync.testing.scenarios.model import Place

try:
    import yaml
except ModuleNotFoundError as _error:
    if _error.name != "yaml":
        raise
    raise MissingExtraError("Reading scenario files", "scenarios") from _error

#: Size limits of a file, and of all files that are read together.
MAX_FILE_BYTES: Final = 1 << 20
MAX_BYTES: Final = 8 << 20
#: Limit on the nodes of all files that are read together. Each alias counts its whole target.
MAX_NODES: Final = 100_000
#: Limit on the levels of lists and mappings, including levels of included files.
MAX_DEPTH: Final = 50
#: Limit on the depth of includes.
MAX_INCLUDES: Final = 16
#: Length limit of a number, in characters.
MAX_DIGITS: Final = 100
TOO_MANY: Final = f"more than {MAX_NODES} nodes, where each alias counts as what it stands for"

_YAML: Final = "tag:yaml.org,2002:"
_TAGS: Final = {_YAML + name: name for name in ("str", "null", "bool", "int", "float", "seq", "map")}
_TRUE: Final = ("yes", "true", "on")
_QUOTE: Final = "write it in quotes if it is text"
_NOT_YAML: Final = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Value: TypeAlias = "str | int | float | bool | list[Node] | dict[str, tuple[Node, Node]] | None"


# libyaml's events, if PyYAML has it: thirty times as fast, so that a hostile file is refused at once.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The YAML parser, and the rules for which plain scalars are text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_YAML}int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_YAML}int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))


@attrs.frozen(eq=False)
class _File:
    """A file during reading.

    Attributes:
        path: Path for errors.
        folder: Folder for relative paths of its includes.
        included: Place of the include, for errors; "" without one.
        opened: Real paths of the including files, up to this one.
    """

    path: Path
    folder: Path
    included: str
    opened: tuple[str, ...]


@attrs.frozen(eq=False, repr=False)
class Node:
    """A value in a file, and its place.

    Attributes:
        value: A scalar, a list of nodes, or, for a mapping, the nodes of key and value by the text of the key.
        line, column: Position, counted from 1; 0 for the whole file.
        size: Number of its nodes.
        height: Number of its levels.
    """

    value: Value
    file: _File
    line: int
    column: int
    size: int = 1
    height: int = 1

    @property
    def place(self) -> Place:
        """Place in the file."""
        return Place(self.file.path, self.line, self.column)

    def fault(self, text: str) -> ScenarioFileError:
        """Return the error for a fault of this value or key."""
        return _fault(self.file, text, self.line, self.column)

    def plain(self) -> Any:
        """Return the value as texts, numbers, booleans, None, and lists and dicts of these."""
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        if isinstance(self.value, dict):
            return {name: node.plain() for name, (_, node) in self.value.items()}
        return self.value


@attrs.define
class Budget:
    """The remaining limits of all files that are read together."""

    bytes: int = MAX_BYTES
    nodes: int = MAX_NODES

    def takes(self, nodes: int) -> bool:
        """Count nodes, and return whether the limit still holds."""
        self.nodes -= nodes
        return self.nodes >= 0


def read(path: Path, budget: Budget) -> Node:
    """Return the root of a file, with its includes.

    Args:
        path: Path of the file.
        budget: Remaining limits.

    Raises:
        ScenarioFileError: The file cannot be read, is not YAML, or exceeds a limit.
    """
    file = _File(path, path.parent, "", (_real(path),))
    content = _content(path, budget)
    if isinstance(content, str):
        raise _fault(file, content)
    return _Composer(file, content, budget).root(1)


def _fault(file: _File, text: str, line: int = 0, column: int = 0) -> ScenarioFileError:
    return ScenarioFileError(file.path, line, column, text + file.included)


def _real(path: Path) -> str:
    """Return the unique path of a file."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a path that no system allows
        return str(path)


def _content(path: Path, budget: Budget) -> bytes | str:
    """Return the content of a file, or the reason why it cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would block, and a device may have no end
            return "cannot be read: it is not a file"
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        return f"cannot be read: {one_line(getattr(error, 'strerror', None) or str(error))}"
    if len(data) > MAX_FILE_BYTES:
        return f"it has more than {MAX_FILE_BYTES >> 20} MiB"
    budget.bytes -= len(data)
    return data if budget.bytes >= 0 else f"the files have more than {MAX_BYTES >> 20} MiB together"


class _Composer:
    """Builds the nodes of one file from its parser's events."""

    def __init__(self, file: _File, data: bytes, budget: Budget) -> None:
        self._file = file
        self._budget = budget
        self._anchors: dict[str, Node | None] = {}  # None while incomplete
        self._parser = _Loader(self._decoded(data))

    def root(self, depth: int) -> Node:
        """Return the root of the only document."""
        self._event()  # the start of the stream
        if isinstance(event := self._event(), yaml.StreamEndEvent):
            return self._counted(None, event)
        node = self._node(self._event(), depth)
        self._event()  # the end of the document
        if not isinstance(event := self._event(), yaml.StreamEndEvent):
            raise self._fault_at(event, "a second document; one file has one")
        return node

    # -- events --

    def _decoded(self, data: bytes) -> str:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = data[: error.start].decode("utf-8-sig")
            self._fail_in(before, "not UTF-8")
        if found := _NOT_YAML.search(text):
            self._fail_in(text[: found.start()], f"a character that YAML does not allow: {found.group()!a}")
        return text

    def _fail_in(self, before: str, text: str) -> NoReturn:
        line = before.count("\n")
        raise _fault(self._file, text, line + 1, len(before) - before.rfind("\n"))

    def _event(self) -> Any:
        try:
            return self._parser.get_event()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = " ".join(filter(None, (error.problem, error.context)))
            line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
            raise _fault(self._file, f"not valid YAML: {one_line(said)}", line, column) from None
        except yaml.YAMLError as error:
            raise _fault(self._file, f"not valid YAML: {one_line(str(error))}") from None

    def _fault_at(self, event: Any, text: str) -> ScenarioFileError:
        mark = event.start_mark
        return _fault(self._file, text, mark.line + 1, mark.column + 1)

    def _counted(self, value: Value, event: Any, parts: Sequence[Node] = ()) -> Node:
        """Return a new node; its `parts` are already counted."""
        if not self._budget.takes(1):
            raise self._fault_at(event, TOO_MANY)
        mark = event.start_mark
        size, height = 1, 1
        if parts:  # nearly all nodes are scalars
            size, height = 1 + sum(part.size for part in parts), 1 + max(part.height for part in parts)
        return Node(value, self._file, mark.line + 1, mark.column + 1, size, height)

    # -- nodes --

    def _node(self, event: Any, depth: int) -> Node:
        """Return the node that starts with an event."""
        if depth > MAX_DEPTH:
            raise self._fault_at(event, f"more than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._named(event, depth)
        if event.anchor is not None:
            if event.anchor in self._anchors:
                raise self._fault_at(event, f"a second anchor {quoted(event.anchor)}")
            self._anchors[event.anchor] = None
        if event.tag == "!include":
            node = self._included(event, depth)
        elif event.tag not in (None, "!") and event.tag not in _TAGS:
            raise self._fault_at(event, f"the tag {quoted(event.tag)} is not allowed; !include is")
        elif isinstance(event, yaml.ScalarEvent):
            node = self._counted(self._scalar(event), event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(event, depth)
        else:
            node = self._mapping(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _named(self, event: Any, depth: int) -> Node:
        """Return the target of an alias."""
        if event.anchor not in self._anchors:
            raise self._fault_at(event, f"there is no anchor {quoted(event.anchor)} before this alias")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._fault_at(event, "an alias of a node that contains it")
        if depth + node.height - 1 > MAX_DEPTH:
            raise self._fault_at(event, f"more than {MAX_DEPTH} levels")
        if not self._budget.takes(node.size):
            raise self._fault_at(event, TOO_MANY)
        return node

    def _list(self, event: Any, depth: int) -> Node:
        self._check_tag(event, "seq")
        nodes: list[Node] = []
        while not isinstance(each := self._event(), yaml.SequenceEndEvent):
            nodes.append(self._node(each, depth + 1))
        return self._counted(nodes, event, nodes)

    def _mapping(self, event: Any, depth: int) -> Node:
        self._check_tag(event, "map")
        pairs: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] | None = None
        parts: list[Node] = []
        while not isinstance(each := self._event(), yaml.MappingEndEvent):
            if isinstance(each, yaml.ScalarEvent) and each.value == "<<" and each.implicit[0]:
                if merged is not None:
                    raise self._fault_at(each, "the key '<<' is there twice; it takes a list of mappings")
                parts.append(self._counted("<<", each))
                parts.append(self._node(self._event(), depth + 1))
                merged = self._merged(parts[-1])
                continue
            key, value = self._node(each, depth + 1), self._node(self._event(), depth + 1)
            parts += key, value
            name = key.value
            if not isinstance(name, str):
                raise self._fault_at(each, f"a key must be text, not {described(name)}; write it in quotes")
            if name in pairs:
                raise self._fault_at(
                    each, f"the key {quoted(name)} is there twice, first in line {pairs[name][0].line}"
                )
            pairs[name] = key, value
        return self._counted({**(merged or {}), **pairs}, event, parts)

    def _merged(self, node: Node) -> dict[str, tuple[Node, Node]]:
        """Return the pairs of a `<<`; earlier mappings have precedence."""
        pairs: dict[str, tuple[Node, Node]] = {}
        for each in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(each.value, dict) or each.file is not self._file:  # Pipecat merges no included file
                raise node.fault("'<<' must be an alias of a mapping, or a list of such")
            for name, pair in each.value.items():
                pairs.setdefault(name, pair)
        return pairs

    def _check_tag(self, event: Any, name: str) -> None:
        if event.tag not in (None, "!", _YAML + name):
            raise self._fault_at(event, f"the tag {quoted(event.tag)} does not fit")

    def _scalar(self, event: Any) -> str | int | float | bool | None:
        text: str = event.value
        tag = event.tag
        if tag in (None, "!"):
            tag = self._parser.resolve(yaml.ScalarNode, text, event.implicit)
        elif tag != f"{_YAML}str" and tag != self._parser.resolve(yaml.ScalarNode, text, (True, False)):
            raise self._fault_at(event, f"the tag {quoted(tag)} does not fit")
        kind = _TAGS.get(tag)
        if kind == "str":
            if not text.isascii() and re.search("[\ud800-\udfff]", text):
                raise self._fault_at(event, "half of a surrogate pair, which no message can carry")
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in _TRUE
        if kind is None:
            what = "a date" if tag == f"{_YAML}timestamp" else "a sign of YAML"
            raise self._fault_at(event, f"{quoted(text)} is {what}; {_QUOTE}")
        return self._number(event, text, kind)

    def _number(self, event: Any, text: str, kind: str) -> int | float:
        if len(text) > MAX_DIGITS:
            raise self._fault_at(event, f"a number of {len(text)} characters; {_QUOTE}")
        if kind == "int":
            return int(text.replace("_", ""))
        number = _float(text)
        if not math.isfinite(number):
            raise self._fault_at(event, f"a number must be finite; {_QUOTE}")
        return number

    def _included(self, event: Any, depth: int) -> Node:
        """Return the root of an included file."""
        if not isinstance(event, yaml.ScalarEvent) or not event.value:
            raise self._fault_at(event, "!include takes a path")
        path = self._file.folder / event.value
        real = _real(path)
        if real in self._file.opened:
            raise self._fault_at(event, f"{quoted(event.value)} includes itself")
        if len(self._file.opened) > MAX_INCLUDES:
            raise self._fault_at(event, f"more than {MAX_INCLUDES} files that include each other")
        content = _content(path, self._budget)
        if isinstance(content, str):
            raise self._fault_at(event, f"{quoted(event.value)} {content}")
        mark: Any = event.start_mark
        included = f" (included at {self._file.path}:{mark.line + 1})"
        file = _File(path, self._file.folder, included, (*self._file.opened, real))
        return _Composer(file, content, self._budget).root(depth)


def _float(text: str) -> float:
    """Return the value of a YAML 1.1 float, which may be sexagesimal."""
    digits = text.replace("_", "").lower()
    if digits.lstrip("+-") in (".inf", ".nan"):
        return math.inf
    sign = -1.0 if digits.startswith("-") else 1.0
    value = 0.0
    for part in digits.lstrip("+-").split(":"):
        value = value * 60 + float(part)
    return sign * value


def described(value: object) -> str:
    """Return the kind of a value in words of YAML, without the value, which may be secret."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a boolean (yes, no, on and off are such in YAML)"
    if isinstance(value, str):
        return "text"
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else "a number"
