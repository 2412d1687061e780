"""Measure the package and other clients, and write the figures to the page.

    python -m benchmarks [--quick] [--only NAME ...]

`python3 run.py bench` has the same arguments, and sets up the other clients first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from . import measure, parts, plots, report
from .peers import ENVIRONMENTS, LONG, PEERS, WHOLE
from .results import Results
from .scenarios import SCENARIOS
from .tables import PYTHON_PEERS, PYTHON_ROWS

PAGE: Final = "performance.md"
#: Measurements in addition to the scenarios.
OTHERS: Final = ("pythons", "parts", "mouth-to-ear")
_PACKAGES: Final = ("websocket-client", "protobuf", "orjson", "blinker", "attrs")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        prog="run.py bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure a tenth, as a check; not for the page")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*SCENARIOS, *OTHERS],
        metavar="NAME",
        help=f"measure only NAME, and keep the other results: {', '.join([*SCENARIOS, *OTHERS])}",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        choices=PEERS,
        metavar="NAME",
        help=f"measure only NAME: {', '.join(PEERS)}",
    )
    parser.add_argument("--rounds", type=int, help="number of rounds; the median counts (default 3; quick: 1)")
    parser.add_argument("--effort", type=float, help="fraction of each measurement (default 1; quick: 0.1)")
    parser.add_argument("--output", type=Path, help="folder of the page (default docs; quick: .cache/bench)")
    parser.add_argument("--text", action="store_true", help="measure nothing, only write the page and the plots")
    given = parser.parse_args()
    output = given.output or measure.ROOT / (".cache/bench" if given.quick else "docs")
    output.mkdir(parents=True, exist_ok=True)
    if not (output / PAGE).exists():
        shutil.copy(measure.ROOT / "docs" / PAGE, output)
    file = output / "performance" / "results.json"
    if given.peer and output.resolve() == measure.ROOT / "docs":
        parser.error("the page compares peers that were measured together: add --output, or omit --peer")
    results = Results.load(file)
    if not given.text:
        rounds, effort = given.rounds or (1 if given.quick else 3), given.effort or (0.1 if given.quick else 1.0)
        whole = () if given.quick else WHOLE
        measure_all(results, given.only, given.peer, rounds, effort, whole, lambda: results.save(file))
    write_page(Results.load(file), output)  # loaded again, so that `--text` writes the same page


def measure_all(
    results: Results,
    only: Sequence[str],
    peers: Sequence[str],
    rounds: int,
    effort: float,
    whole: Sequence[str],
    save: Callable[[], None],
) -> None:
    """Measure what was chosen, or all, and save after each step. The scenarios in `whole` ignore `effort`."""
    here = machine()
    for scenario in only or [each for each in SCENARIOS if each not in LONG]:
        chosen = measure.peers_of(scenario, peers) if scenario in SCENARIOS else []
        if chosen:
            places = {peer: (python, peer) for peer in chosen if (python := measure.python_of(peer)) is not None}
            its_effort = 1.0 if scenario in whole else effort
            lacking = [peer for peer in chosen if peer not in places]
            results.rounds[scenario] = {
                **(measure.measure(scenario, places, rounds, its_effort, print) if places else {}),
                **{peer: [{"failed": f"there is no environment {ENVIRONMENTS[peer]}"}] for peer in lacking},
            }
            results.measured[scenario], results.machines[scenario] = how(rounds, its_effort), here
            save()
    for name, measure_other in (("pythons", pythons), ("parts", all_parts), ("mouth-to-ear", mouth_to_ear)):
        if name in only or not (only or peers):
            its_effort = 1.0 if name in whole else effort
            measure_other(results, rounds, its_effort)
            results.measured[name] = how(rounds if name == "pythons" else 1, its_effort)
            results.machines[name] = here
            save()


def how(rounds: int, effort: float) -> str:
    """Return the rounds and the effort of a measurement, in words."""
    return f"{rounds} round{'s' * (rounds != 1)}" + (f", {effort:g} of each measurement" if effort != 1 else "")


def machine() -> dict[str, str]:
    """Return the machine, and the versions of the packages that matter."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("model name")[2].partition("\n")[0].strip(" \t:")
    return {
        "processor": f"{cpu or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def pythons(results: Results, rounds: int, effort: float) -> None:
    """Measure some scenarios with each available Python."""
    found = measure.pythons()
    results.lacking.pop("other Pythons", None)
    if not found:
        results.lacking["other Pythons"] = "run.py sets them up"
    places = {f"{version} {peer}": (python, peer) for version, python in found.items() for peer in PYTHON_PEERS}
    results.pythons = {version: {} for version in found}
    for scenario in dict.fromkeys(row.scenario for row in PYTHON_ROWS) if found else ():
        for name, each in measure.measure(scenario, places, rounds, effort, print).items():
            version, _, peer = name.partition(" ")
            results.pythons[version].setdefault(scenario, {})[peer] = each


def all_parts(results: Results, rounds: int, effort: float) -> None:  # noqa: ARG001 - pyperf decides how often
    """Measure the parts of the package by pyperf, in a process of its own."""
    results.parts = parts.measure(fast=effort < 1)


def mouth_to_ear(results: Results, rounds: int, effort: float) -> None:  # noqa: ARG001 - once: it takes minutes
    """Measure the latency through the devices, if there are any."""
    command = [sys.executable, "-m", "benchmarks.mouth_to_ear", "--json", "--seconds", str(max(5.0, 60 * effort))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT, timeout=measure.LIMIT)
    results.lacking.pop("mouth to ear", None)
    if done.returncode:
        results.lacking["mouth to ear"] = (done.stderr.strip().splitlines() or ["no word"])[-1]
        results.mouth_to_ear = []
    else:
        results.mouth_to_ear = json.loads(done.stdout.splitlines()[-1])


def write_page(results: Results, output: Path) -> None:
    """Write the tables into the page, and the plots beside it."""
    page = output / PAGE
    page.write_text(report.page(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    plots.draw(results, output / "performance")
    print(page)


if __name__ == "__main__":
    main()
