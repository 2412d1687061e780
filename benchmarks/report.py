"""The generated parts of the page, and the table in the terminal: only from measured figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from .results import Results, gaps, measured, median, ratio
from .tables import QUICK, TABLES, Row, Table

_GAP: Final = "-"
_MARKED: Final = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def page(text: str, results: Results) -> str:
    """Return the page with its parts generated again.

    Raises:
        KeyError: A part has an unknown name.
    """
    return _MARKED.sub(lambda match: f"{match[1]}{part(match[2], results)}{match[3]}", text)


def part(name: str, results: Results) -> str:
    """Return a generated part: `machines`, `gaps`, or a table."""
    if name == "machines":
        return machines(results)
    if name == "gaps":
        return "".join(f"- {line}\n" for line in lacking(results)) or "Nothing.\n"
    head, *lines = cells(results, TABLES[name])
    rule = ["---", *("--:" for _ in head[1:-1]), "---"]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def terminal(results: Results) -> str:
    """Return the quick table for a terminal, and a line with the figures that could not be measured."""
    lines = cells(results, QUICK)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:-1], widths[1:-1]), line[-1]]).rstrip()
        for line in lines
    ]
    missing = "; ".join(lacking(results, [row.scenario for row in QUICK.rows]))
    return "\n".join([*rows, *([f"not measured: {missing}"] if missing else [])])


def cells(results: Results, table: Table) -> list[list[str]]:
    """Return the head of a table and its rows: figures, the ratio, the target and whether it is met."""
    first, *others = table.peers
    shown = [peer for peer in others if any(_figure(results, row, peer) is not None for row in table.rows)]
    head = ["", first, *shown, f"x {others[0]}", "target", ""]
    return [head, *([row.heading, *_cells(results, row, shown, others[0])] for row in table.rows)]


def _cells(results: Results, row: Row, others: Sequence[str], beside: str) -> list[str]:
    values = [_number(_figure(results, row, peer), row.digits) for peer in (row.peer, *others)]
    times = ratio(results.rounds, row.scenario, row.peer, row.figure, row.over or beside)
    return [*values, _times(times), row.wanted(beside) or _GAP, verdict(results, row)]


def verdict(results: Results, row: Row) -> str:
    """Return whether a row meets its target, and how often it could not be measured."""
    found = measured(results.rounds, row.scenario, row.peer, row.figure, row.over)
    judged = row.judge(row.figure_of(found)) if found else "not measured"
    failed = len(gaps(results.rounds, row.scenario, row.peer))
    if failed and found:
        judged += f", {failed} of {len(results.rounds[row.scenario][row.peer])} rounds failed"
    return judged or _GAP


def _figure(results: Results, row: Row, peer: str) -> float | None:
    return median(results.rounds, row.scenario, peer, row.figure)


def _number(value: float | None, digits: int) -> str:
    return _GAP if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    """Return a ratio with two or three significant digits."""
    return _GAP if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def machines(results: Results) -> str:
    """Return the list of the machines, and for each its scenarios, their dates and their rounds."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, how in results.measured.items():
        words = ", ".join(_words_of(results.machines[name]))
        found.setdefault(words, {}).setdefault(how, []).append(name)
    return "".join(
        f"* {words}\n" + "".join(f"  * {how}: {', '.join(sorted(names))}\n" for how, names in sorted(hows.items()))
        for words, hows in found.items()
    )


def _words_of(machine: Mapping[str, str]) -> Sequence[str]:
    """Return the page's words about a machine; only the results have the versions of the packages."""
    return [machine[name] for name in ("processor", "system", "Python") if name in machine]


def lacking(results: Results, only: Sequence[str] = ()) -> list[str]:
    """Return a line for each reason of missing figures or rounds."""
    # Peer and reason -> the scenarios, with the number of rounds if not all are missing.
    found: dict[tuple[str, str], list[str]] = {}
    for scenario, peers in results.rounds.items():
        for peer, rounds in peers.items() if not only or scenario in only else ():
            reasons = gaps(results.rounds, scenario, peer)
            for why in dict.fromkeys(reasons):
                some = f" ({reasons.count(why)} of {len(rounds)} rounds)" if len(reasons) < len(rounds) else ""
                found.setdefault((peer, why), []).append(scenario + some)
    return [f"{peer}, {', '.join(scenarios)}: {why}" for (peer, why), scenarios in found.items()]
