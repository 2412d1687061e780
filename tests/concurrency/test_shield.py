"""Work on another thread than the one that signals interrupt."""

from __future__ import annotations

import functools
import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rtvi_sync.concurrency import lifecycle, pool_task
from rtvi_sync.concurrency.shield import shielded
from tests.support import limits
from tests.support.slowness import GUARD
from tests.support.strikes import Strikes, StruckError, needs_timers
from tests.support.threads import package_threads, running
from tests.support.waiting import until

pytestmark = [pytest.mark.inside, needs_timers]


@pytest.fixture
def striker() -> Iterator[Strikes]:
    """Interrupt the main thread."""
    with Strikes() as striker:
        yield striker


def test_what_comes_of_it():
    """shielded() returns the work's result and raises its error, as a plain call would."""
    assert shielded(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError, match="zero"):
        shielded(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        shielded(lambda: exec("raise SystemExit"))


def test_which_thread_does_it():
    """Work of the main thread runs on another one; a thread that no signal interrupts does it itself."""
    assert shielded(threading.current_thread) is not threading.current_thread()
    with running(lambda: shielded(threading.current_thread) is threading.current_thread()) as outcome:
        assert outcome.get() is True


def test_it_goes_on_when_the_caller_is_struck(striker: Strikes):
    """Without `on_interrupt` the exception is raised at once, and the work is still done to its end."""
    go_on, done = threading.Event(), threading.Event()

    def work() -> None:
        striker.strike_in(0.01)
        assert go_on.wait(GUARD)
        done.set()

    with pytest.raises(StruckError):
        shielded(work)
    assert not done.is_set()
    go_on.set()
    assert done.wait(GUARD)


def test_it_is_told_when_the_caller_is_struck(striker: Strikes):
    """With `on_interrupt` the work can end early, and has ended when the exception is raised."""
    stop, done = threading.Event(), threading.Event()

    def work() -> None:
        striker.strike_in(0.01)
        assert stop.wait(GUARD)
        done.set()

    with pytest.raises(StruckError):
        shielded(work, stop.set)
    assert done.is_set()


def test_work_that_does_not_listen_is_left_behind(striker: Strikes, monkeypatch):
    """The wait for its end has a limit."""
    limits.patch(monkeypatch, shield_leave=0.05)
    stop, told = threading.Event(), []

    def work() -> None:
        striker.strike_in(0.01)
        assert stop.wait(GUARD)

    with pytest.raises(StruckError):
        shielded(work, lambda: told.append(stop.is_set()))
    stop.set()
    assert told == [False]


def test_it_is_done_where_no_thread_can_be_started(monkeypatch):
    """At the exit of the interpreter the caller does it itself."""

    def refuse(*_: object) -> None:
        raise lifecycle.NoThreadError("none to be had")

    lifecycle.stop_idle_threads()
    monkeypatch.setattr(pool_task, "start_thread", refuse)
    assert shielded(threading.current_thread) is threading.current_thread()


# Python can do no more than report an exception that is raised inside the callback of a weak reference.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_strike_anywhere_leaves_nothing_half_done(striker: Strikes):
    """After an interrupt at any instruction, the work is done once or not at all, and nothing hangs."""
    rng = random.Random(5)
    ends = time.monotonic() + 1.5
    begun = done = interrupts = 0

    def work() -> None:
        nonlocal begun, done
        begun += 1
        sum(range(300))
        done += 1

    while time.monotonic() < ends:
        calls = begun
        try:
            striker.strike_in(rng.uniform(1e-5, 6e-4))
            shielded(work, lambda: None)
            striker.rest()
        except StruckError:
            interrupts += 1
        assert begun - calls in (0, 1)
    assert interrupts > 50
    until(lambda: not package_threads())  # the last one may be under way
    assert begun == done > 20


def test_nothing_is_kept():
    """The work and its result do not outlive the call, even without the garbage collector."""

    class Thing:
        pass

    def same(thing: Thing) -> Thing:
        return thing

    def fail(thing: Thing) -> None:
        raise ValueError

    gc.disable()
    try:
        thing = Thing()
        gone = weakref.ref(thing)
        assert shielded(functools.partial(same, thing)) is thing
        with suppress(ValueError):
            shielded(functools.partial(fail, thing))
        until(lambda: not package_threads())
        del thing
        assert gone() is None
    finally:
        gc.enable()
