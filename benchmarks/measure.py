"""Measuring: a process for each figure, the peers in turn, over several rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from .peers import AMONG, COUNTED, ENVIRONMENTS
from .results import Round
from .rtc_bots import packet_bot, pipecat_bot, pipecat_python
from .scenarios import webrtc
from .server import running

ROOT: Final = Path(__file__).parents[1]
#: Seconds that a measurement may take before it counts as failed; the longest takes ten minutes.
LIMIT: Final = 900.0


def python_of(peer: str) -> str | None:
    """Return the Python that has a peer's library; None if it is unavailable."""
    environment = ENVIRONMENTS.get(peer)
    return os.environ.get(f"RTVI_PEER_{environment}") if environment else sys.executable


def peers_of(scenario: str, chosen: Sequence[str]) -> list[str]:
    """Return the peers that a scenario is measured with, among the chosen ones or all."""
    return [peer for peer in AMONG[scenario] if not chosen or peer in chosen]


def server_of(scenario: str) -> AbstractContextManager[str]:
    """Return a context manager that runs the other end of a scenario and yields its address."""
    if scenario in webrtc.OF_PIPECAT:
        return pipecat_bot()
    return packet_bot() if scenario in webrtc.OF_PACKETS else running()


def measure_once(python: str, peer: str, scenario: str, url: str, effort: float) -> Round:
    """Measure in one process, and return its figures."""
    command = [python, "-m", "benchmarks.peer", peer, scenario, url, "--effort", str(effort)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}  # the package is used in place, without a build
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT, env=environ)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {LIMIT:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    scenario: str,
    places: Mapping[str, tuple[str, str]],
    rounds: int,
    effort: float,
    show: Callable[[str], None],
    once: Collection[str] = (),
) -> dict[str, list[Round]]:
    """Measure a scenario: in each round every peer once, each round starting with another one.

    Args:
        places: name -> Python and peer to measure.
        once: names that only the first round measures.
    """
    names = list(places)
    if scenario in webrtc.OF_PIPECAT and pipecat_python() is None:
        return {name: [{"failed": "there is no environment PIPECAT, which has the bot"}] for name in names}
    found: dict[str, list[Round]] = {name: [] for name in names}
    # Programs beside it don't disturb a count.
    together = len(os.sched_getaffinity(0)) if scenario in COUNTED else 1
    with server_of(scenario) as url, ThreadPoolExecutor(together) as pool:
        for number in range(rounds):
            first = number % len(names)
            order = [name for name in names[first:] + names[:first] if not (number and name in once)]
            results = pool.map(lambda name: measure_once(*places[name], scenario, url, effort), order)
            for name, result in zip(order, results, strict=True):
                found[name].append(result)
                show(f"{scenario} {number + 1}/{rounds} {name}: {_words(result)}")
    return found


def _words(result: Round) -> str:
    found = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in result.items())
    return ", ".join(found)
