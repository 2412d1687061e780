"""Clients by others: each with its own library, in a process of the environment that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks import measure
from benchmarks.peers import AMONG, ENVIRONMENTS, ONLY
from benchmarks.scenarios import session
from benchmarks.tables import TABLES
from tests.support.required import missing
from tests.support.slowness import GUARD

TINY = 0.01
SCENARIOS = sorted({*session.SCENARIOS} - {"latency-idle", "ask"})  # slow, and as latency-50; not for all
# Whatever can be measured, and what becomes of a request that is not answered and of a bot that is not ready.
PROGRAM = """
import json, sys
from benchmarks.peer import figures_of
from benchmarks.peers import find

name, url, effort, *scenarios = sys.argv[1:]
found = {scenario: figures_of(name, scenario, url, float(effort)) for scenario in scenarios}
errors = []
client = find(name)(url)
client.connect()
try:
    client.request("silence", timeout=0.05)
except Exception as error:
    errors.append(type(error).__name__)
client.close()
try:
    find(name)(url + "?mute").connect(0.05)
except Exception as error:
    errors.append(type(error).__name__)
print(json.dumps([found, errors]))
"""


def python_of(peer: str) -> str:
    """Return the Python that has the library of a peer; without it, skip the test, or fail it if all is required."""
    python = sys.executable if peer == "websockets" else measure.python_of(peer)
    if python is None:
        missing(f"{peer} is not installed: run `python3 run.py test --matrix`")
    return python


@pytest.mark.parametrize(
    "peer",
    [
        peer if peer == "websockets" else pytest.param(peer, marks=pytest.mark.matrix)
        for peer in ENVIRONMENTS
        if peer not in ONLY
    ],
)
def test_all_scenarios_find_their_figures(peer: str, url: str) -> None:
    """What a library can do is measured, more than nothing each; its limits of time are kept, and it leaves nothing."""
    scenarios = [scenario for scenario in SCENARIOS if peer in AMONG.get(scenario, (peer,))]
    words = [python_of(peer), "-c", PROGRAM, peer, url, str(TINY), *scenarios]
    environ = {**os.environ, "PYTHONPATH": str(measure.ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=GUARD, cwd=measure.ROOT, env=environ)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found, errors = json.loads(done.stdout)
    rows = [row for row in TABLES["session"] if row.scenario in scenarios and "cannot" not in found[row.scenario]]
    assert {(row.scenario, row.figure) for row in rows if found[row.scenario].get(row.figure, 0) <= 0} == set()
    assert len(rows) > 9
    assert len(errors) == 2
