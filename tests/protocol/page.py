"""The tables of docs/reference/protocol.md, from the table of messages.

`python -m tests.protocol.page` writes them there.

It replaces the text between the markers; the rest of the page is written by hand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from rtvi_sync.protocol.dialects import FIELDS, INBOUND, OUTBOUND, VERSIONS, FieldSpec, MessageSpec, Version

from .wire import examples

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"


def page(text: str) -> str:
    """Return the page with its tables as they should be.

    Raises:
        ValueError: a table has no place in the page.
    """
    for name, table in TABLES.items():
        marked = re.compile(rf"(<!-- {name}: from the table of messages -->\n).*?(<!-- end -->)", re.DOTALL)
        text, places = marked.subn(functools.partial(_put, table()), text)
        if places != 1:
            raise ValueError(f"{PAGE.name} has {places} places for the table of {name}, not one")
    return text


def _put(table: str, match: re.Match[str]) -> str:
    """Return the matched text with `table` between its markers."""
    return match[1] + table + match[2]


def _versions() -> str:
    rows = [
        (
            _text(version),
            f"{first} to {last}" if first != last else first,
            _types(name for name, spec in _ALL.items() if spec.since == version),
            _types(name for name, spec in _ALL.items() if spec.until == version),
        )
        for version, (first, last) in VERSIONS.items()
    ]
    return _table(("RTVI", "pipecat-ai", "new", "gone"), rows)


def _messages_of_the_bot() -> str:
    seen = _seen("bot")
    rows = [
        (
            f"`{spec.type}`",
            f"`{spec.event.snake}`" if spec.event is not None else "",
            f"`{spec.payload.__name__}`" if spec.payload is not None else "",
            _span(spec),
            _releases(spec),
            _types(request.type for request in OUTBOUND.values() if request.answer == spec.type),
            seen.get(spec.type, "read"),
        )
        for spec in INBOUND.values()
    ]
    return _table(("type", "event", "payload", "RTVI", "Pipecat", "answers", "seen"), rows)


def _messages_of_the_client() -> str:
    rows = [
        (
            f"`{spec.type}`",
            spec.feature if spec.feature != spec.type else "",
            _span(spec),
            _releases(spec),
            f"`{spec.answer}`" if spec.answer is not None else "",
        )
        for spec in OUTBOUND.values()
    ]
    rows += [(f"`{name}`", "", _span(spec), "", "") for name, spec in FIELDS.items()]
    return _table(("type", "feature", "RTVI", "Pipecat", "answer"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "versions": _versions,
    "messages of the bot": _messages_of_the_bot,
    "messages of the client": _messages_of_the_client,
}

_ALL: dict[str, MessageSpec | FieldSpec] = {**INBOUND, **OUTBOUND, **FIELDS}


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _types(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _span(spec: MessageSpec | FieldSpec) -> str:
    """Return the versions that know it, in words."""
    if spec.since is None and spec.until is None:
        return "all"
    last = _text(_before(spec.until)) if spec.until is not None else ""
    first = _text(spec.since or min(VERSIONS))
    if not last:
        return f"{first} on"
    return last if last == first else f"{first} to {last}"


def _releases(spec: MessageSpec) -> str:
    """Return the releases of Pipecat that have it."""
    if spec.pipecat:
        return spec.pipecat
    last = VERSIONS[_before(spec.until)][1] if spec.until is not None else ""
    if spec.since is None:
        return f"up to {last}" if last else "all"
    first = VERSIONS[spec.since][0]
    return f"{first} to {last}" if last else f"from {first}"


def _before(until: Version) -> Version:
    return max(version for version in VERSIONS if version < until)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _seen(sender: str) -> dict[str, str]:
    """Return, by type, the releases of which a running bot was seen to send it."""
    found: dict[str, list[str]] = {}
    for example in examples(sender):
        if example.seen and example.pipecat not in found.setdefault(example.type, []):
            found[example.type].append(example.pipecat)
    return {type_: ", ".join(releases) for type_, releases in found.items()}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
