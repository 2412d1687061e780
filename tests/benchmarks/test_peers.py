"""Clients by others: each with its own library, in a process of the environment that has it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from benchmarks import measure
from benchmarks.peers import AMONG, ENVIRONMENTS
from benchmarks.scenarios import process, session
from benchmarks.tables import FURTHER, QUICK
from tests.support.slowness import GUARD

from .conftest import python_of

pytestmark = pytest.mark.matrix

TINY = 0.01
SCENARIOS = sorted({*session.SCENARIOS, *process.SCENARIOS} - {"instructions"})  # which takes long
# All figures of a peer, and its errors if a request is not answered or a bot is not ready.
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


@pytest.mark.parametrize("peer", [peer for peer in ENVIRONMENTS if peer != "client-js-webrtc"])
def test_all_scenarios_find_their_figures(peer: str, url: str) -> None:
    """A peer has all its figures, each above zero; it keeps its limits of time, and leaves nothing."""
    scenarios = [scenario for scenario in SCENARIOS if peer in AMONG[scenario]]
    words = [python_of(peer), "-c", PROGRAM, peer, url, str(TINY), *scenarios]
    environ = {**os.environ, "PYTHONPATH": str(measure.ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=GUARD, cwd=measure.ROOT, env=environ)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found, errors = json.loads(done.stdout)
    rows = [
        row
        for table in (QUICK, FURTHER)
        for row in table.rows
        if row.scenario in scenarios and row.peer == "ours" and "cannot" not in found[row.scenario]
    ]
    # There is no p99 of as little as is measured here.
    assert {(row.scenario, row.figure) for row in rows if found[row.scenario].get(row.figure, 1) <= 0} == set()
    assert all("p99" in row.figure for row in rows if row.figure not in found[row.scenario])
    assert len(rows) > 4
    assert len(errors) == 2
