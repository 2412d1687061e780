"""Lives through many scenarios at a time, and keeps the tally that the summary of the test run tells."""

from __future__ import annotations

import collections
import concurrent.futures
import traceback
from collections.abc import Iterable
from typing import Final

from rtvi_sync.testing import faults

from .scenario import Scenario, landmarks

# Each scenario has some 25 descriptors, of which a process has 1024 where nobody asked for more.
_AT_A_TIME: Final = 16


class Tally:
    """How many combinations came to which end in this run, and how many of them should not have."""

    endings: Final[collections.Counter[str]] = collections.Counter()
    bad = 0


def live_through(scenarios: Iterable[Scenario]) -> list[str]:
    """Run the scenarios, each with a bot and a client of its own. Returns what went wrong."""
    for secure in (False, True):
        landmarks(secure)  # measured while nothing else goes on
    with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
        runs = {scenario: pool.submit(scenario.run) for scenario in scenarios}
    failures = []
    for scenario, run in runs.items():
        error = run.exception()
        ending = run.result() if error is None else type(error).__name__
        Tally.endings[ending] += 1
        what = f"{scenario.moment}, {scenario.harm}{', over TLS' if scenario.secure else ''}"
        if error is not None:
            failures.append(f"{what}: {''.join(traceback.format_exception(error))}")
        elif scenario.harmless and ending not in ("works", "ended"):
            failures.append(f"{what}: nothing was lost, and yet: {ending}")
        elif isinstance(scenario.harm.fault, faults.Reset) and "Timeout" in ending:
            failures.append(f"{what}: noticed only when the time was up: {ending}")
    Tally.bad += len(failures)
    return failures
