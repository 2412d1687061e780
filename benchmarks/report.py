"""The generated parts of the page: a table for each pair of markers, only from measured figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .peers import PEERS
from .results import Results, Rounds, gaps, measured, median, ratio
from .tables import PYTHON_PEERS, PYTHON_ROWS, TABLES, TARGETS, Row

_GAP: Final = "-"
_MARKED: Final = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def page(text: str, results: Results) -> str:
    """Return the page with its parts generated again.

    Raises:
        KeyError: A part has an unknown name.
    """
    return _MARKED.sub(lambda match: f"{match[1]}{part(match[2], results)}{match[3]}", text)


def part(name: str, results: Results) -> str:
    """Return a generated part: `NAME` of `PARTS`, or `NAME-ratios` and `NAME-figures` of a table."""
    if name in PARTS:
        return PARTS[name](results)
    table, _, kind = name.rpartition("-")
    return {"ratios": ratios, "figures": absolutes}[kind](results.rounds, TABLES[table])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> str:
    rule = f"|{'---|' * numbers_from}{'--:|' * (len(head) - numbers_from)}"
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "".join(f"{line}\n" for line in (lines[0], rule, *lines[1:]))


def _number(value: float | None, digits: int) -> str:
    return _GAP if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    """Return a ratio with two or three significant digits."""
    return _GAP if value is None else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _columns(rounds: Rounds, rows: Sequence[Row]) -> list[str]:
    return [peer for peer in PEERS if any(median(rounds, row.scenario, peer, row.figure) is not None for row in rows)]


def ratios(rounds: Rounds, rows: Sequence[Row]) -> str:
    """Return the table of figures divided by those of `ref` in the same round."""
    peers = [peer for peer in _columns(rounds, rows) if peer != "ref"]
    lines = (
        [row.words, *(_times(ratio(rounds, row.scenario, peer, row.figure, "ref")) for peer in peers)]
        for row in rows
        if row.has_ratio
    )
    return _table(["x ref", *peers], [line for line in lines if set(line[1:]) != {_GAP}])


def absolutes(rounds: Rounds, rows: Sequence[Row]) -> str:
    """Return the table of medians."""
    peers = _columns(rounds, rows)
    return _table(
        ["median", *peers],
        [
            [row.heading, *(_number(median(rounds, row.scenario, peer, row.figure), row.digits) for peer in peers)]
            for row in rows
        ],
    )


def targets(results: Results) -> str:
    """Return the table of targets: each with its figure and its verdict."""
    lines = []
    for target in TARGETS:
        found = measured(results.rounds, target.scenario, target.peer, target.figure, target.over)
        value = target.figure_of(found) if found else None
        judged = "not measured" if value is None else target.judge(value)
        failed = len(gaps(results.rounds, target.scenario, target.peer))
        if failed:
            judged += f", {failed} of {len(results.rounds[target.scenario][target.peer])} rounds failed"
        lines.append([target.words, target.wanted, _times(value), judged])
    return _table(["", "target", "measured", ""], lines)


def machines(results: Results) -> str:
    """Return the table of the machines, and of the rounds of each measurement."""
    found: list[Mapping[str, str]] = []
    for machine in results.machines.values():
        if machine not in found:
            found.append(machine)
    facts = {
        fact: [*dict.fromkeys(machine.get(fact, _GAP) for machine in found)] for fact in sorted(set().union(*found))
    }
    names: dict[str, list[str]] = {}
    for name, how in results.measured.items():
        where = f", machine {found.index(results.machines[name]) + 1}" if len(found) > 1 else ""
        names.setdefault(how + where, []).append(name)
    return _table(
        ["", ""],
        [
            *((fact, "; ".join(values)) for fact, values in facts.items()),
            *((how, ", ".join(sorted(names[how]))) for how in sorted(names)),
        ],
        2,
    )


def pythons(results: Results) -> str:
    """Return the table of Python versions: each figure, and its ratio to `ref` with the same Python."""
    versions = sorted(results.pythons, key=lambda version: [int(number) for number in version.split(".")])
    lines = []
    for row in PYTHON_ROWS:
        for peer in PYTHON_PEERS:
            cells = []
            for version in versions:
                at = (results.pythons[version], row.scenario, peer, row.figure)
                times = "" if peer == "ref" else f" ({_times(ratio(*at, 'ref'))})"
                cells.append(_number(median(*at), row.digits) + times)
            lines.append([row.heading, peer, *cells])
    return _table(["median (x ref)", "", *versions], lines, 2)


def parts(results: Results) -> str:
    """Return the table of the durations of the package's parts."""
    return _table(["", "ns"], [[name, _number(value * 1e9, 0)] for name, value in results.parts.items()])


def mouth_to_ear(results: Results) -> str:
    """Return the table of the latencies that the package adds to those of the devices."""
    whole = next((row["p50"] for row in results.mouth_to_ear if row["name"] == "the devices alone"), None)
    return _table(
        ["", "sounds", "p50, ms", "p99, ms", "p50 beside that of the devices"],
        [
            [
                row["name"],
                str(row["sounds"]),
                _number(row["p50"] * 1e3, 1),
                _number(row["p99"] * 1e3, 1),
                f"{row['p50'] / whole:.1%}",
            ]
            for row in results.mouth_to_ear
            if whole is not None
        ],
    )


def lacking(results: Results) -> str:
    """Return the list of missing figures and rounds, with the reasons."""
    lines = [f"- {name}: {why}\n" for name, why in results.lacking.items()]
    # Peer and reason -> the scenarios, with the number of rounds if not all are missing.
    found: dict[tuple[str, str], list[str]] = {}
    for scenario, peers in results.rounds.items():
        for peer, rounds in peers.items():
            reasons = gaps(results.rounds, scenario, peer)
            for why in dict.fromkeys(reasons):
                some = f" ({reasons.count(why)} of {len(rounds)} rounds)" if len(reasons) < len(rounds) else ""
                found.setdefault((peer, why), []).append(scenario + some)
    lines += [f"- {peer}, {', '.join(scenarios)}: {why}\n" for (peer, why), scenarios in found.items()]
    return "".join(lines) or "Nothing.\n"


PARTS: Final[dict[str, Callable[[Results], str]]] = {
    "machines": machines,
    "targets": targets,
    "pythons": pythons,
    "parts": parts,
    "mouth-to-ear": mouth_to_ear,
    "gaps": lacking,
}
