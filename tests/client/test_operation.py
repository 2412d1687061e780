"""An operation is right to cancel at every instant."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rtvi_sync import CloseInfo, DisconnectedError
from rtvi_sync.client.operation import Operation, Progress
from rtvi_sync.concurrency.deadline import Deadline
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class FakeLife(SimpleNamespace):
    """A client's life that only knows its operations."""

    def __init__(self) -> None:
        super().__init__(operations=[], released=[], settled=[])

    def release(self, operation: Any) -> None:
        self.released.append(operation)

    def settle(self, session: Any, operation: Any, *, wanted: bool) -> bool:
        self.settled.append((session, operation, wanted))
        return wanted


class FakeSession(SimpleNamespace):
    """A session that is ended."""

    def __init__(self, *, is_lost: bool = True) -> None:
        super().__init__(is_lost=is_lost, ends=[])

    def end(self, info: CloseInfo) -> None:
        self.ends.append(info.initiator)


class Work(Operation[str]):
    """An operation whose work waits until it may go on, or is abandoned and has cleaned up."""

    def __init__(self, life: Any, *outcomes: Any) -> None:
        super().__init__(life)
        self.outcomes = list(outcomes)
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.undone = 0
        self.cleaned_up = threading.Event()
        self.cleaned_up.set()

    def _perform(self, life: Any) -> str:
        self.entered.set()
        until(lambda: self.abandoned or self.go_on.is_set())
        assert self.cleaned_up.wait(GUARD)
        outcome = self.outcomes.pop()
        if isinstance(outcome, BaseException):
            raise outcome
        return str(outcome)

    def _undo(self, deadline: Deadline) -> None:
        self.undone += 1

    def _wants_next(self, session: Any) -> bool:
        return True


@pytest.fixture
def life() -> Any:
    return FakeLife()


def test_it_is_under_way_while_it_runs(life: Any) -> None:
    """`disconnect()` finds it, and nothing is left of it."""
    work = Work(life, "done")
    running = InThread(work.run)
    assert work.entered.wait(GUARD)
    assert (life.operations, work.progress) == ([work], Progress.RUNNING)
    work.go_on.set()
    assert running.get() == "done"
    assert (life.operations, life.released, work.progress) == ([], [], Progress.DONE)


def test_a_failure_gives_the_client_back(life: Any) -> None:
    """A call that fails holds the client no longer when it raises."""
    work = Work(life, ValueError("no"))
    work.go_on.set()
    with pytest.raises(ValueError, match="no"):
        work.run()
    assert (life.operations, life.released, work.progress) == ([], [work], Progress.FAILED)
    work.cancel()
    assert (work.undone, work.abandoned) == (0, False)


def test_cancelled_before_it_runs(life: Any) -> None:
    """A cancelled call never starts, even if it was interrupted after the list of operations had it."""
    work = Work(life, "done")
    life.operations.append(work)
    work.cancel()
    assert life.operations == []
    with pytest.raises(DisconnectedError):
        work.run()
    assert not work.entered.is_set()
    assert work.undone == 0


def test_cancelled_while_it_runs(life: Any) -> None:
    """The work is abandoned, and the caller waits until nothing of it runs."""
    work = Work(life, "done")
    session = FakeSession()
    work.session = session  # type: ignore[assignment]
    running = InThread(work.run)
    assert work.entered.wait(GUARD)
    with takes(1.0):
        work.cancel()
    assert work.progress is Progress.DONE
    assert (work.undone, session.ends) == (1, ["client"])
    running.get()


def test_cancelled_when_it_is_done(life: Any) -> None:
    """The result of a cancelled call is ended: the call has not returned it."""
    work = Work(life, "done")
    work.go_on.set()
    work.run()
    work.cancel()
    assert work.undone == 1


def test_the_next_waits_for_an_abandoned_one(life: Any) -> None:
    """A call that follows Ctrl-C or `disconnect()` does not meet the rest of the call before."""
    first, second = Work(life, ValueError("abandoned")), Work(life, "done")
    second.go_on.set()
    first.cleaned_up.clear()
    one = InThread(first.run)
    assert first.entered.wait(GUARD)
    first.abandon()
    two = InThread(second.run)
    assert two.goes_on(0.2)
    assert not second.entered.is_set()
    first.cleaned_up.set()
    assert isinstance(one.error(), ValueError)
    assert two.get() == "done"


def test_the_end_of_an_operation_wakes_those_that_wait(life: Any) -> None:
    """A thread that waits until an operation is over continues when it is, not at the limit of its wait."""
    work = Work(life, "done")
    running = InThread(work.run)
    assert work.entered.wait(GUARD)
    waiting = InThread(lambda: work.wait_over(Deadline(3 * GUARD)))
    assert waiting.goes_on(0.2)
    work.go_on.set()
    waiting.get()
    running.get()


def test_a_pause_ends_when_it_is_abandoned(life: Any) -> None:
    """The wait between two attempts ends with `disconnect()`."""
    work = Work(life)
    waiting = InThread(lambda: work.pause(GUARD))
    work.stop()
    assert isinstance(waiting.error(), DisconnectedError)
    until(lambda: not waiting.thread.is_alive())


@pytest.mark.parametrize("is_lost", [True, False])
def test_only_a_loss_is_followed(life: Any, is_lost: bool) -> None:
    """The end that the application wanted is settled, too, and nothing follows it."""
    work, session = Work(life), FakeSession(is_lost=is_lost)
    assert work.after(session) is is_lost  # type: ignore[arg-type]
    assert life.settled == [(session, work, is_lost)]


def test_nothing_follows_a_collected_client() -> None:
    """The life of a client is held weakly."""
    work = Work(FakeLife())
    session: Any = FakeSession()
    assert not work.after(session)
    work.drained(session)
    with pytest.raises(DisconnectedError):
        _ = work.life
