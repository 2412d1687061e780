"""A fault at any moment of a session ends in a named error or a working session, and leaves no thread.

Each run takes a sixth of the faults at each moment; the matrix takes all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from rtvi_sync import EvalTransport
from tests.support.starving import starved

from .scenario import Scenario
from .side_by_side import format_table, run_scenarios
from .table import HARMS, IN_SESSION, MOMENTS, REFUSAL, Harm, Moment, anywhere


def sample_of(moments: list[Moment], moment: Moment, share: int) -> Iterator[tuple[Harm, bool]]:
    """Yield one in `share` of the faults that are possible at a moment, each with whether it goes over TLS.

    At as many moments in a row each fault is among them once, and over TLS at every second of these.
    """
    position = moments.index(moment)
    for number, harm in enumerate(moment.harms):
        if (number + position) % share == 0:
            yield harm, moment.tls_only or bool((number + position) // share % 2)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: str(moment).replace(" ", "-"))
def test_some_faults_at(moment: Moment, show_table: Callable[..., None]) -> None:
    """A sixth of the faults end well at this moment, half of them over TLS."""
    failures, tally = run_scenarios(
        Scenario(moment, harm, secure=secure) for harm, secure in sample_of(MOMENTS, moment, 6)
    )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: str(moment).replace(" ", "-"))
def test_every_fault_at(moment: Moment, show_table: Callable[..., None]) -> None:
    """Each fault, in each direction, ends well at this moment, plain and over TLS."""
    failures, tally = run_scenarios(
        Scenario(moment, harm, secure=secure)
        for secure in ((True,) if moment.tls_only else (False, True))
        for harm in moment.harms
    )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("moment", IN_SESSION, ids=lambda moment: str(moment).replace(" ", "-"))
def test_some_faults_on_the_eval_route_at(moment: Moment, show_table: Callable[..., None]) -> None:
    """One in twelve of the faults end well over `EvalTransport` at the moments at which messages are on the way."""
    failures, tally = run_scenarios(
        Scenario(moment, harm, secure=False, transport_class=EvalTransport)
        for harm, _ in sample_of(IN_SESSION, moment, 12)
    )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("moment", IN_SESSION, ids=lambda moment: str(moment).replace(" ", "-"))
def test_every_fault_on_the_eval_route_at(moment: Moment, secure: bool, show_table: Callable[..., None]) -> None:
    """Each fault ends well over `EvalTransport` at the moments at which messages are on the way; the others are no
    different."""
    failures, tally = run_scenarios(
        Scenario(moment, harm, secure=secure, transport_class=EvalTransport) for harm in moment.harms
    )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
def test_any_fault_at_any_byte(seed: int, show_table: Callable[..., None]) -> None:
    """200 faults, each after a random number of bytes."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    failures, tally = run_scenarios(
        Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(200)
    )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
def test_faults_on_a_busy_machine(seed: int, show_table: Callable[..., None]) -> None:
    """40 faults, each after a random number of bytes, in a process that is stopped repeatedly."""
    rng = random.Random(seed)
    harms = [harm for harm in HARMS if harm is not REFUSAL]

    with starved():
        failures, tally = run_scenarios(
            Scenario(anywhere(rng), rng.choice(harms), secure=rng.random() < 0.5) for _ in range(40)
        )

    show_table(format_table, tally)
    assert not failures, "\n".join(failures)
