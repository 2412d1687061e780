"""The names of the JavaScript packages, and their Python counterparts.

`names/` has the public names of each JavaScript package, as `names_of.py` finds them, and those that its documentation
uses without the package having them. `accounts.json` accounts for each name, by sections of
`docs/reference/javascript.md`:

    {"js": "RTVIClient.getConfig()", "python": "RTVIClient.get_config()", "remark": "shown to readers; optional"}
    {"js": ["Logger", "Logger.debug()"], "reason": "why there is none in Python"}

A Python name is a path below `rtvi_sync`: `Class`, `Class.attribute`, `Class.method()`, `Class.method(parameter)`.
Where it is spelled differently, the remark says why.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from rtvi_sync import RTVIEventCallbacks
from tests.support.wire import snake_case

_HERE = Path(__file__).parent
_PATH = re.compile(r"(?P<thing>[\w.]+)(?P<call>\((?P<parameter>\w*)\))?")
# Classes that are accounted for under one name.
_SAME = {
    "PipecatClient": "RTVIClient",
    "PipecatClientOptions": "RTVIClientOptions",
    "TypedEventEmitter": "RTVIClient",  # both clients inherit from it
}


@attrs.frozen
class Account:
    """The Python counterpart of a JavaScript name.

    Attributes:
        section: Section of the page that lists it.
        js: The JavaScript name.
        python: Path below `rtvi_sync`, or None.
        remark: Remark for readers; without a Python name, the reason.
        group: Names that are accounted for together, this one included.
    """

    section: str
    js: str
    python: str | None
    remark: str
    group: tuple[str, ...]

    @property
    def owner(self) -> str:
        """The name of which it is a part, or ""."""
        return self.js.rpartition(".")[0]

    @property
    def last(self) -> str:
        """Its last part, without brackets or quotes."""
        return last_of(self.js)


def last_of(name: str) -> str:
    """Return the last part of a name of either language, without brackets or quotes: a parameter, if it has one."""
    part = re.split(r"\.(?![^']*'$)", name)[-1].removesuffix("()")
    return part[part.find("(") + 1 :].strip(")'")


def spelled_in_python(name: str) -> str:
    """Return how the last part of a JavaScript name is spelled in Python; the case of constants and classes aside."""
    return snake_case(last_of(name).replace("-", "_"))


def packages() -> dict[str, dict[str, str]]:
    """Return JavaScript package and version -> name -> value of an enum's member, or ""."""
    return {path.stem: _read(path) for path in sorted((_HERE / "names").glob("*.txt"))}


def accounts(sections: Mapping[str, list[dict[str, Any]]] | None = None) -> list[Account]:
    """Return every account, in the order of the file.

    Raises:
        ValueError: an entry has both a Python name and a reason, or neither, or something else.
    """
    if sections is None:
        sections = json.loads((_HERE / "accounts.json").read_text("utf-8"))
    return [account for section, entries in sections.items() for entry in entries for account in _of(section, entry)]


def _of(section: str, entry: Mapping[str, Any]) -> list[Account]:
    shapes = ({"js", "python"}, {"js", "python", "remark"}, {"js", "reason"})
    if set(entry) not in shapes or not all(entry.values()):
        raise ValueError(f"neither a Python name nor a reason, or both: {entry}")
    js = entry["js"]
    names = (js,) if isinstance(js, str) else tuple(js)
    remark = entry.get("reason") or entry.get("remark", "")
    return [Account(section, name, entry.get("python"), remark, names) for name in names]


def _read(path: Path) -> dict[str, str]:
    names = {}
    for line in path.read_text("utf-8").splitlines():
        name, _, value = line.partition(" = ")
        owner, dot, rest = name.partition(".")
        names[_SAME.get(owner, owner) + dot + rest] = value
    return names


def resolve(path: str) -> object:
    """Return the object at a path below `rtvi_sync`: a class, a member, a parameter, ...

    Raises:
        LookupError: No such object, or it is a method and the path says otherwise, or the other way round.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise LookupError(f"{path!r} is not a path")
    thing = _thing(match["thing"])
    if match["parameter"]:
        return _parameter(thing, match["parameter"])
    if inspect.isroutine(thing) is not bool(match["call"]):
        raise LookupError(f"{path!r}: only methods and functions have brackets")
    return thing


def _thing(path: str) -> Any:
    try:
        return pkgutil.resolve_name(f"rtvi_sync.{path}")
    except (ImportError, AttributeError, ValueError):  # no such thing, or no path of Python's
        owner, _, name = path.rpartition(".")
        if not owner:
            raise LookupError(f"rtvi_sync has no {path}") from None
    cls = _thing(owner)
    if cls is RTVIEventCallbacks:
        try:
            return RTVIEventCallbacks(**{name: print}).items()[0]
        except (TypeError, IndexError):
            raise LookupError(f"no event has the callback {name}") from None
    if attrs.has(cls) and name in attrs.fields_dict(cls):
        return attrs.fields_dict(cls)[name]
    return _parameter(cls, name)  # an attribute that `__init__` sets


def _parameter(function: Any, name: str) -> object:
    try:
        return inspect.signature(function).parameters[name]
    except (KeyError, TypeError, ValueError):
        raise LookupError(f"{getattr(function, '__qualname__', function)} has no {name}") from None
