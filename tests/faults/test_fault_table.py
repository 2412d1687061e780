"""Every fault at every moment of a session: it ends in a named error or a working session, and nothing is left."""

from __future__ import annotations

import collections
import concurrent.futures
import traceback
from typing import Final

import pytest

from rtvi_sync.testing import faults

from .scenario import Scenario, landmarks
from .table import MOMENTS, Moment

# Each scenario has some 25 descriptors, of which a process has 1024 where nobody asked for more.
_SIDE_BY_SIDE: Final = 16
#: How many combinations came to which end in this run, and how many of them should not have.
endings: Final[collections.Counter[str]] = collections.Counter()
bad_endings = 0
ROWS: Final = [
    pytest.param(moment, secure, id=f"{moment}{' over TLS' if secure else ''}".replace(" ", "-"))
    for secure in (False, True)
    for moment in MOMENTS
    if secure or not moment.tls_only
]


@pytest.mark.parametrize(("moment", "secure"), ROWS)
def test_every_fault_at(moment: Moment, secure: bool) -> None:
    """Each fault, in each direction, at this moment: side by side, each with a bot and a client of its own."""
    global bad_endings
    landmarks(secure)
    scenarios = [Scenario(moment, harm, secure=secure) for harm in moment.harms(secure=secure)]
    with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        runs = {scenario: pool.submit(scenario.run) for scenario in scenarios}
    failures = []
    for scenario, run in runs.items():
        error = run.exception()
        endings[run.result() if error is None else type(error).__name__] += 1
        if error is not None:
            failures.append(f"{scenario.harm}: {''.join(traceback.format_exception(error))}")
        elif scenario.harmless and run.result() not in ("works", "ended"):
            failures.append(f"{scenario.harm}: nothing was lost, and yet: {run.result()}")
        elif isinstance(scenario.harm.fault, faults.Reset) and "Timeout" in run.result():
            failures.append(f"{scenario.harm}: noticed only when the time was up: {run.result()}")
    bad_endings += len(failures)
    assert not failures, "\n".join(failures)
