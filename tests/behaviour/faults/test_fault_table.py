"""Every fault at every moment of a session: it ends in a named error or a working session, and nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.starving import starved

from .scenario import Scenario
from .side_by_side import live_through, tell
from .table import HARMS, MOMENTS, REFUSAL, Moment, anywhere


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: str(moment).replace(" ", "-"))
def test_every_fault_at(moment: Moment, show_table: Callable[..., None]) -> None:
    """Each fault, in each direction, at this moment, plain and over TLS."""
    failures, tally = live_through(
        Scenario(moment, harm, secure=secure)
        for secure in ((True,) if moment.tls_only else (False, True))
        for harm in moment.harms
    )

    show_table(tell, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
def test_any_fault_at_any_byte(seed: int, show_table: Callable[..., None]) -> None:
    """200 faults, each after a number of bytes that nobody has chosen."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    failures, tally = live_through(
        Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(200)
    )

    show_table(tell, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
def test_faults_on_a_busy_machine(seed: int, show_table: Callable[..., None]) -> None:
    """40 faults, each after a number of bytes that nothing has chosen, in a process that is stopped again and again."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    with starved():
        failures, tally = live_through(
            Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(40)
        )

    show_table(tell, tally)
    assert not failures, "\n".join(failures)
