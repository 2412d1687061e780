"""Many scenarios at a time, and the tally that the summary of the test run shows."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import traceback
from collections.abc import Iterable
from typing import Final, TypeAlias

from rtvi_sync.testing import faults

from .scenario import EarlyLimitError, Limits, Scenario, landmarks, limits_beside
from .table import ANYWHERE, HARMS, MOMENTS, SLOW

# Each scenario has about 25 descriptors, and a process may have 1024 by default.
_AT_A_TIME: Final = 24


#: The number of scenarios by moment, fault, ending, and whether that ending is wrong.
Tally: TypeAlias = collections.Counter[tuple[str, str, str, bool]]


def format_table(tally: Tally) -> list[str]:
    """Return the fault table: how often each fault was injected at each moment; "!" marks wrong endings."""
    endings: collections.Counter[str] = collections.Counter()
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    bad: collections.Counter[tuple[str, str]] = collections.Counter()
    for (moment, kind, ending, is_bad), number in tally.items():
        endings[ending] += number
        seen[moment, kind] += number
        bad[moment, kind] += number * is_bad
    moments = [name for name in (*map(str, MOMENTS), ANYWHERE) if any(name == moment for moment, _ in seen)]
    kinds = [name for name in dict.fromkeys(harm.name for harm in HARMS) if any(name == kind for _, kind in seen)]
    width = max(map(len, moments))
    table = [" " * width + "  " + "  ".join(kinds)]
    for moment in moments:
        cells = [f"{seen[moment, kind] or '-'}{'!' * bool(bad[moment, kind])}".rjust(len(kind)) for kind in kinds]
        table.append(f"{moment:{width}}  " + "  ".join(cells))
    counts_by_ending = ", ".join(f"{number} {ending}" for ending, number in endings.most_common())
    judged = f"{bad.total()} ended badly" if bad.total() else "all ended well"
    table.append(
        f"fault table: {len(moments)} moments x {len(kinds)} faults in each direction, "
        f"{seen.total()} combinations, {judged} ({counts_by_ending})"
    )
    return table


def run_scenarios(scenarios: Iterable[Scenario]) -> tuple[list[str], Tally]:
    """Run the scenarios, each with its own bot and client. Return the failures and the tally."""
    scenarios = list(scenarios)
    for transport_class in {scenario.transport_class for scenario in scenarios}:
        for secure in (False, True):
            landmarks(secure, transport_class)  # measured while no other scenario runs
    limits = limits_beside(_AT_A_TIME)
    with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
        # Scenarios that run into limits start first, because the last ones would prolong the run.
        slow_first = sorted(scenarios, key=lambda scenario: isinstance(scenario.harm.fault, SLOW), reverse=True)
        runs = {scenario: pool.submit(_run, scenario, limits) for scenario in slow_first}
    failures = []
    tally: Tally = collections.Counter()
    for scenario, run in runs.items():
        error = run.exception()
        ending = run.result() if error is None else type(error).__name__
        wrong = "".join(traceback.format_exception(error)) if error is not None else _wrong_ending(scenario, ending)
        tally[str(scenario.moment), scenario.harm.name, ending, bool(wrong)] += 1
        if wrong:
            over_tls = ", over TLS" if scenario.secure else ""
            failures.append(f"{scenario.moment.name}, {scenario.harm}{over_tls}: {wrong}")
    return failures, tally


def _run(scenario: Scenario, limits: Limits) -> str:
    """Run a scenario and return how it ended. If the limits are too short for its start, run it with longer ones."""
    secure, transport_class = scenario.secure, scenario.transport_class
    for factor in (1, 4):
        again = Scenario(scenario.moment, scenario.harm, secure=secure, transport_class=transport_class)
        with contextlib.suppress(EarlyLimitError):
            return again.run(Limits(factor * limits.connect, factor * limits.request))
    return scenario.run(Limits(16 * limits.connect, 16 * limits.request))


def _wrong_ending(scenario: Scenario, ending: str) -> str:
    if scenario.harmless and ending not in ("works", "ended"):
        return f"no byte was lost, but the session ended: {ending}"
    if isinstance(scenario.harm.fault, faults.Reset) and "Timeout" in ending:
        return f"detected only when the limit passed: {ending}"
    return ""
