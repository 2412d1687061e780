"""Writes `docs/reference/javascript.md` from the accounts: `python -m tests.behaviour.parity.page`.

The words before the tables are in `introduction.md` beside this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import attrs

from rtvi_sync import RTVIEvent
from rtvi_sync.events import event_from
from tests.support.wire import INBOUND

from .accounts import Account, accounts, last_of, packages

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "javascript.md"

_INTRODUCTION = Path(__file__).with_name("introduction.md")
_HEAD = "| JavaScript | in | Python | remark |\n|---|---|---|---|"
_TYPE_OF_EVENTS = "RTVIEvents."  # TypeScript's own list of them, with the same names
_EVENTS = ("RTVIEvent.", "RTVIEventCallbacks.", _TYPE_OF_EVENTS)
# The versions of JavaScript's client with the names of a package.
_VERSIONS = {
    "client-js-0.3.2": {"0.3"},
    "client-js-1.13.0": {"1.x"},
    "documentation-0.3": {"0.3"},
    "typed-emitter-2.1.0": {"0.3", "1.x"},
}


@attrs.define
class _Row:
    """A line of a table: JavaScript names, each with the versions that have it; Python names; a remark."""

    js: list[Account]
    python: list[str]
    remark: str


def page() -> str:
    """Return the whole page."""
    return "\n\n".join([_INTRODUCTION.read_text("utf-8").rstrip(), *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for section, group in groupby(accounts(), lambda account: account.section):
        rows = list(_folded(_rows(group)))
        yield f"## {section}\n\n{_HEAD}\n" + "\n".join(map(_line, rows))


def _rows(group: Iterable[Account]) -> list[_Row]:
    """Return one row for each entry, or for all names of an event."""
    rows: dict[object, _Row] = {}
    for account in group:
        key: object = account.group
        if account.js.startswith(_EVENTS):
            key = event_from(last_of(account.python or "").removeprefix("on_"))
        row = rows.setdefault(key, _Row([], [], _payload(key) if isinstance(key, RTVIEvent) else ""))
        if not account.js.startswith(_TYPE_OF_EVENTS):
            row.js.append(account)
        if account.python is not None and account.python not in row.python:
            row.python.append(account.python)
        if account.remark and account.remark not in row.remark:
            row.remark = "; ".join(part for part in (row.remark, account.remark) if part)
    return list(rows.values())


def _payload(event: RTVIEvent) -> str:
    payload = next((spec.payload for spec in INBOUND.values() if spec.event is event), None)
    return f"`{payload.__name__}`" if payload is not None else ""


def _folded(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Leave out rows for the fields of a class that all have the same names in both languages."""
    fields: dict[str, list[_Row]] = {}
    for row in rows:
        if row.python and not row.js[0].js.endswith("()"):
            fields.setdefault(row.js[0].owner, []).append(row)
    shown = ("", "RTVIClient")  # readers look for a client's names without the class
    folded = {owner for owner, its in fields.items() if owner not in shown and all(map(_says_nothing_new, its))}
    for row in rows:
        if row.js[0].owner in folded and row in fields[row.js[0].owner]:
            continue
        if any(account.js in folded for account in row.js):
            row.remark = "; ".join(part for part in (row.remark, "the names in it are the same") if part)
        yield row


def _says_nothing_new(row: _Row) -> bool:
    return not row.remark and last_of(row.js[0].js).lower() == last_of(row.python[0]).lower()


def _line(row: _Row) -> str:
    # Parts of a name in the same row need no name of their own.
    names = {account.js for account in row.js}
    shown = [account.js for account in row.js if account.owner not in names]
    everywhere = _versions(*shown)
    js = [f"`{_in_use(name)}`" + (f" ({_versions(name)})" if _versions(name) != everywhere else "") for name in shown]
    python = [f"`{_in_use(name)}`" for name in row.python]
    return f"| {', '.join(js)} | {everywhere} | {', '.join(python) or 'none'} | {row.remark} |"


def _in_use(name: str) -> str:
    """Return a name as a program writes it."""
    return re.sub("^RTVIClient[.]", "client.", name).removeprefix("RTVIEventCallbacks.")


@cache
def _versions(*names: str) -> str:
    """Return the versions of JavaScript's client that have any of these names."""
    found: set[str] = set()
    for package, its_names in packages().items():
        if not its_names.keys().isdisjoint(names):
            found |= _VERSIONS[package]
    return ", ".join(sorted(found))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
