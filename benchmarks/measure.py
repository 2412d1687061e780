"""Measuring: a process for each figure, the peers by turns, as many rounds as it takes to tell luck from speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .peers import AMONG, ENVIRONMENTS, ONLY, PEERS
from .results import Round
from .server import running

ROOT: Final = Path(__file__).parents[1]
#: Seconds that a measurement may take before it counts as failed; the longest takes ten minutes.
LIMIT: Final = 900.0


def pythons() -> dict[str, str]:
    """The Pythons that `run.py` has set up to be compared, by their version."""
    prefix = "RTVI_PYTHON_"
    return {name[len(prefix) :].replace("_", "."): os.environ[name] for name in os.environ if name.startswith(prefix)}


def python_of(peer: str) -> str | None:
    """The Python that has a peer's library; None if it cannot be had."""
    environment = ENVIRONMENTS.get(peer)
    return os.environ.get(f"RTVI_PEER_{environment}") if environment else sys.executable


def peers_of(scenario: str, chosen: Sequence[str]) -> list[str]:
    """Those of the chosen peers, or of all, that a scenario is measured with."""
    among = [peer for peer in AMONG.get(scenario, PEERS) if scenario in ONLY.get(peer, (scenario,))]
    return [peer for peer in among if peer in (chosen or PEERS)]


def measure_once(python: str, peer: str, scenario: str, url: str, effort: float) -> Round:
    """What one process finds."""
    command = [python, "-m", "benchmarks.peer", peer, scenario, url, "--effort", str(effort)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}  # the package is used in place, nothing is built
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT, env=environ)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {LIMIT:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    scenario: str, places: Mapping[str, tuple[str, str]], rounds: int, effort: float, show: Callable[[str], None]
) -> dict[str, list[Round]]:
    """Measure a scenario, by turns: in each round every peer once, each round beginning with another.

    Args:
        places: what is measured, by a name -> its Python, and the peer's own name.
    """
    names = list(places)
    found: dict[str, list[Round]] = {name: [] for name in names}
    with running() as url:
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                python, peer = places[name]
                result = measure_once(python, peer, scenario, url, effort)
                found[name].append(result)
                show(f"{scenario} {number + 1}/{rounds} {name}: {_words(result)}")
    return found


def _words(result: Round) -> str:
    found = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in result.items())
    return ", ".join(found)
