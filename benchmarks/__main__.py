"""Measure the package and other clients, print the rows that matter, and write the figures to the pages.

    python -m benchmarks [--quick] [--only NAME ...]

`python3 run.py bench` has the same arguments, and sets up the other clients first.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from . import locust_workers, measure, report
from .peers import COUNTED, ENVIRONMENTS, PEERS, WHOLE
from .results import Results
from .scenarios import SCENARIOS
from .tables import QUICK

#: Page -> the function that makes its generated parts.
PAGES: Final[dict[str, Callable[[str, Results], str]]] = {
    "background/performance.md": report.page,
    "reference/measurements.md": report.page,
    "background/many-sessions.md": locust_workers.page,
}
#: The measurement in addition to the scenarios.
LOCUST: Final = "locust"
_PACKAGES: Final = ("websocket-client", "protobuf", "orjson", "blinker", "attrs")
_QUICK_EFFORT: Final = 0.2
# Measured in the first round of the quick run alone: no target is about it, and it takes most of the time.
_QUICK_ONCE: Final = ("pipecat-pipeline",)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        prog="run.py bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="five minutes: measure and print the rows that matter; write them only with --output",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*SCENARIOS, LOCUST],
        metavar="NAME",
        help=f"measure only NAME, and keep the other results: {', '.join([*SCENARIOS, LOCUST])}",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        choices=PEERS,
        metavar="NAME",
        help=f"measure only NAME: {', '.join(PEERS)}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the median counts (default 3)")
    parser.add_argument("--effort", type=float, help=f"part of each measurement (default 1; quick: {_QUICK_EFFORT})")
    parser.add_argument("--output", type=Path, help="folder of the pages (default docs; with --quick: none)")
    parser.add_argument("--text", action="store_true", help="measure nothing, only print the table and write the pages")
    given = parser.parse_args()
    docs = measure.ROOT / "docs"
    output = given.output or (None if given.quick else docs)
    if given.peer and output is not None and output.resolve() == docs:
        parser.error("the page compares peers that were measured together: add --output, or omit --peer")
    file = None if output is None else output / "background" / "performance.json"
    results = Results() if file is None else Results.load(file)
    begun = time.monotonic()
    if not given.text:
        names = given.only or (quick_scenarios() if given.quick else [] if given.peer else [*SCENARIOS, LOCUST])
        measure_all(
            results,
            names or [*SCENARIOS],
            given.peer or (QUICK.peers if given.quick else ()),
            given.rounds,
            given.effort or (_QUICK_EFFORT if given.quick else 1.0),
            () if given.quick else WHOLE,
            _QUICK_ONCE if given.quick else (),
            lambda: None if file is None else results.save(file),
        )
    print(report.terminal(results))
    if not given.text:
        print(f"measured in {(time.monotonic() - begun) / 60:.1f} minutes")
    if output is not None and file is not None:
        write_pages(Results.load(file), output)  # loaded again, so that `--text` writes the same pages


def quick_scenarios() -> list[str]:
    """Return the scenarios of the quick table."""
    return list(dict.fromkeys(row.scenario for row in QUICK.rows))


def measure_all(
    results: Results,
    names: Sequence[str],
    peers: Sequence[str],
    rounds: int,
    effort: float,
    whole: Collection[str],
    once: Collection[str],
    save: Callable[[], None],
) -> None:
    """Measure the named scenarios, and save after each step.

    Args:
        whole: scenarios that ignore `effort`.
        once: peers that only the first round measures.
    """
    here = machine()
    for name in names:
        its_rounds, its_effort = 1 if name in COUNTED else rounds, 1.0 if name in whole else effort
        if name == LOCUST:
            results.held, results.storms = locust_workers.measure(its_effort)
            its_rounds = 1
        else:
            chosen = measure.peers_of(name, peers)
            if not chosen:
                continue
            places = {peer: (python, peer) for peer in chosen if (python := measure.python_of(peer)) is not None}
            lacking = [peer for peer in chosen if peer not in places]
            results.rounds[name] = {
                **(measure.measure(name, places, its_rounds, its_effort, print, once) if places else {}),
                **{peer: [{"failed": f"there is no environment {ENVIRONMENTS[peer]}"}] for peer in lacking},
            }
        results.measured[name], results.machines[name] = how(its_rounds, its_effort), here
        save()


def how(rounds: int, effort: float) -> str:
    """Return the rounds and the effort of a measurement, in words, and its date."""
    part = f", {effort:g} of each measurement" if effort != 1 else ""
    return f"{rounds} round{'s' * (rounds != 1)}{part}, {time.strftime('%Y-%m-%d')}"


def machine() -> dict[str, str]:
    """Return the machine, and the versions of the packages that matter."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("model name")[2].partition("\n")[0].strip(" \t:")
    return {
        "processor": f"{cpu or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def write_pages(results: Results, output: Path) -> None:
    """Write the generated parts into the pages."""
    for name, make in PAGES.items():
        page = output / name
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.exists():
            shutil.copy(measure.ROOT / "docs" / name, page)
        page.write_text(make(page.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
