"""Random calls on random threads, against a real bot and a line with faults: docs/background/threads.md holds.

The calls of a seed are the same each time. The order in which threads take turns is not, and the test looks for faults
in it. A failure shows its steps: reproduce it with them and with the seed in the name of the test. With
`RTVI_MODEL_SHRINK=1` Hypothesis looks for fewer steps that also fail, which takes minutes and finds only failures that
almost always happen.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from tests.support.life_states import observed_lives
from tests.support.starving import starved
from tests.support.wire import FOLLOWING

from . import invariants
from .machine import ClientMachine
from .world import TALLY, operations_so_far, tell

CONTRACT: Final = Path(__file__).resolve().parents[3] / "docs" / "background" / "threads.md"
CHECKS: Final[list[Callable[..., None]]] = [
    *invariants.OF_CALLS,
    *invariants.OF_CLIENTS,
    *invariants.AT_REST,
    invariants.a_blocked_handler_holds_up_nothing_else,
    invariants.connect_works_in_the_last_handler,
]


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Keep no log: pytest's record of it, tracebacks with all their frames, would keep clients alive."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def by_the_table() -> Iterator[None]:
    """Check that the clients go from state to state as their table says."""
    with observed_lives() as changes:
        yield
    assert changes.wrong() == set()


@pytest.fixture
def counted(show_table: Callable[..., None]) -> Iterator[None]:
    """Print the counts of all steps in the summary of the test run."""
    before = TALLY.copy()
    yield
    show_table(tell, TALLY - before)


def run_model(seed: str, operations: int, examples: int = 3) -> None:
    """Run examples of a seed until a number of operations of clients have been made."""
    shrink = [Phase.shrink] if os.environ.get("RTVI_MODEL_SHRINK") else []
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate, *shrink],
        suppress_health_check=list(HealthCheck),
    )
    enough = operations_so_far() + operations
    part = 0
    while operations_so_far() < enough:
        machine: Any = hypothesis.seed(f"{seed}-{part}")(type("Seeded", (ClientMachine,), {}))
        run_state_machine_as_test(machine, settings=settings)
        part += 1


@pytest.mark.usefixtures("counted")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2))
def test_what_the_contract_says_holds(seed: int) -> None:
    """The contract holds in 200 operations of each of two seeds."""
    run_model(f"{seed}", 200, examples=1)


@pytest.mark.matrix
@pytest.mark.usefixtures("counted")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 110))
def test_it_holds_for_long(seed: int) -> None:
    """The contract holds in 10,000 operations of each of ten more seeds."""
    run_model(f"{seed}", 10_000)


@pytest.mark.usefixtures("counted")
@pytest.mark.timeout(300)
def test_it_holds_on_a_busy_machine() -> None:
    """The contract holds in 100 operations of a process that is stopped more than half of the time."""
    with starved():
        run_model("starved", 100, examples=1)


@pytest.mark.matrix
@pytest.mark.usefixtures("counted")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(8))
def test_it_holds_on_a_busy_machine_for_long(seed: int) -> None:
    """The contract holds in 2,500 operations of each of eight seeds, in such a process."""
    with starved(limit=1200.0):
        run_model(f"{seed}", 2_500)


def test_the_package_allows_no_other_states() -> None:
    """The package's own table allows exactly the transitions that the checks expect."""
    assert {state: set(after) for state, after in FOLLOWING.items()} == invariants.AFTER


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_check_quotes_the_contract(check: Callable[..., None]) -> None:
    """The sentence of each check is a sentence, or a part of one, of docs/background/threads.md."""
    contract = re.sub(r"[\s*]+", " ", CONTRACT.read_text(encoding="utf-8"))
    quoted = re.sub(r"[\s*]+", " ", check.__doc__ or "").strip()
    assert quoted
    assert quoted in contract
