"""Every fault at every moment of a session: it ends in a named error or a working session, and nothing is left."""

from __future__ import annotations

import random

import pytest

from .scenario import Scenario
from .side_by_side import live_through
from .table import HARMS, MOMENTS, REFUSAL, Moment, anywhere


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: str(moment).replace(" ", "-"))
def test_every_fault_at(moment: Moment) -> None:
    """Each fault, in each direction, at this moment, plain and over TLS."""
    failures = live_through(
        Scenario(moment, harm, secure=secure)
        for secure in ((True,) if moment.tls_only else (False, True))
        for harm in moment.harms
    )

    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
def test_any_fault_at_any_byte(seed: int) -> None:
    """200 faults, each after a number of bytes that nobody has chosen."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    failures = live_through(Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(200))

    assert not failures, "\n".join(failures)
