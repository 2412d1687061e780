"""Every fault at every moment of a session: it ends in a named error or a working session, and nothing is left."""

from __future__ import annotations

import random
from typing import Final

import pytest

from .scenario import Scenario
from .side_by_side import live_through
from .table import HARMS, MOMENTS, REFUSAL, Moment, anywhere

ROWS: Final = [
    pytest.param(moment, secure, id=f"{moment}{' over TLS' if secure else ''}".replace(" ", "-"))
    for secure in (False, True)
    for moment in MOMENTS
    if secure or not moment.tls_only
]


@pytest.mark.parametrize(("moment", "secure"), ROWS)
def test_every_fault_at(moment: Moment, secure: bool) -> None:
    """Each fault, in each direction, at this moment."""
    failures = live_through(Scenario(moment, harm, secure=secure) for harm in moment.harms)

    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
def test_any_fault_at_any_byte(seed: int) -> None:
    """200 faults, each after a number of bytes that nobody has chosen."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    failures = live_through(Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(200))

    assert not failures, "\n".join(failures)
