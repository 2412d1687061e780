"""The I/O thread: commands, timers, channels, and that nothing of these can end it."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import selectors
import socket
import threading
import time
import weakref
from typing import Any

import pytest

from rtvi_sync.concurrency import io_thread as module
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.lifecycle import NoThreadError, start_thread
from tests.support import limits
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.io_threads import hold, on
from tests.support.slowness import GUARD
from tests.support.thread_parts import inner, replace_waker, selector_of, stop, wakers_of
from tests.support.threads import running
from tests.support.waiting import until

from .lines import Line

pytestmark = pytest.mark.inside


def test_commands_run_in_order_on_the_io_thread(io):
    """Commands of one thread run in the order in which they were given, all on the I/O thread."""
    seen: list[object] = []
    for n in range(500):
        io.call(lambda n=n: seen.append((n, io.is_current)))
    on(io, int)
    assert seen == [(n, True) for n in range(500)]
    assert not io.is_current


def test_a_command_may_give_commands(io):
    """A command given by a command runs later, after those that were there."""
    seen: list[str] = []
    blocked, go_on = threading.Event(), threading.Event()

    def first() -> None:
        blocked.set()
        assert go_on.wait(GUARD)
        io.call(lambda: seen.append("inner"))

    io.call(first)
    assert blocked.wait(GUARD)
    io.call(lambda: seen.append("outer"))
    go_on.set()
    on(io, int)
    on(io, int)
    assert seen == ["outer", "inner"]


def test_commands_that_give_commands_do_not_starve_the_sockets(io):
    """While a command gives itself again and again, channels are served."""
    again = [True]

    def command() -> None:
        if again[0]:
            io.call(command)

    with Line(io) as line:
        io.call(command)
        line.peer.sendall(b"x")
        line.wait(lambda: line.received == b"x")
        again[0] = False


def test_many_threads_give_commands(io):
    """Nothing is lost when many threads give commands at once, and each one's keep their order."""
    seen: list[tuple[int, int]] = []

    def give(giver: int) -> None:
        for n in range(500):
            io.call(lambda n=n: seen.append((giver, n)))

    threads = [threading.Thread(target=give, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    on(io, int)
    assert len(seen) == 3000
    for giver in range(6):
        assert [n for g, n in seen if g == giver] == list(range(500))


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_command_that_raises_is_logged(io, caplog, error):
    """An error in a command, or an exit, ends nothing."""

    def fail() -> None:
        raise error

    with caplog.at_level(logging.ERROR):
        io.call(fail)
        assert on(io, lambda: 5) == 5
    assert error.__name__ in caplog.text


def test_timers(io):
    """Timers run in the order of their times, not before them, on the I/O thread; a cancelled one does not."""
    seen: list[tuple[str, float, bool]] = []
    done = threading.Event()

    def see(name: str) -> None:
        seen.append((name, time.monotonic(), io.is_current))

    def see_last() -> None:
        see("late")
        done.set()

    def plan() -> float:
        now = time.monotonic()
        io.call_later(0.04, see_last)
        io.call_later(0.02, lambda: see("soon"))
        io.call_later(0.01, lambda: see("cancelled")).cancel()
        return now

    began = on(io, plan)
    assert done.wait(GUARD)
    (soon, soon_at, on_soon), (late, late_at, on_late) = seen
    assert (soon, late, on_soon, on_late) == ("soon", "late", True, True)
    assert soon_at >= began + 0.02
    assert late_at >= began + 0.04


def test_a_time_far_away_ends_no_thread(io):
    """A timer and a step may be due in more milliseconds than a selector can count: 2^31 are 24.8 days."""
    later = on(io, lambda: io.call_later(7e6, lambda: None))
    assert on(io, lambda: True)
    later.cancel()
    task = io.scheduler.add(lambda now: None, io.scheduler.now() + 3e6)
    assert on(io, lambda: True)
    task.cancel()
    assert on(io, lambda: True)


def test_a_timer_that_takes_long_makes_the_next_one_no_later(io, monkeypatch):
    """The wait for the next timer is measured from the moment at which the thread starts to wait."""
    now, timeouts, asked = [1000.0], [], threading.Event()
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    select = selector_of(io).select

    def note(timeout: float | None) -> list:
        timeouts.append(timeout)
        asked.set()
        return select(timeout)

    def take_long() -> None:
        now[0] += 40.0

    def plan() -> None:
        io.call_later(0.0, take_long)
        io.call_later(60.0, int)
        monkeypatch.setattr(selector_of(io), "select", note)

    io.call(plan)
    assert asked.wait(GUARD)
    assert timeouts == [20.0]


def test_a_timer_may_be_cancelled_by_another_timer_or_thread(io):
    """A timer that is cancelled before it is due does nothing, on whichever thread it is cancelled."""
    seen: list[str] = []
    done = threading.Event()

    def plan() -> None:
        timers = [io.call_later(0.02, lambda: seen.append("never")) for _ in range(2)]
        io.call_later(0.0, timers[0].cancel)
        other = threading.Thread(target=timers[1].cancel)
        other.start()
        other.join()  # on the io thread, which cannot run the timer at the same time
        io.call_later(0.03, done.set)

    on(io, plan)
    assert done.wait(GUARD)
    assert seen == []


def test_a_timer_may_cancel_one_that_is_due_as_well(io):
    """Of two timers that are due in the same turn the first may still cancel the second."""
    seen: list[str] = []
    done = threading.Event()

    def plan() -> None:
        second = io.call_later(0.0, lambda: seen.append("never"))
        # Earlier in the queue: both are due when the thread next looks.
        io.call_later(-1.0, second.cancel)
        io.call_later(0.0, done.set)

    on(io, plan)
    assert done.wait(GUARD)
    assert seen == []


def test_a_cancelled_timer_holds_nothing(io):
    """A cancelled timer stays until it is due, but does not keep its connection alive."""

    class Channel:
        intact = True

    channels: list[Any] = [Channel()]
    gone = weakref.ref(channels[0])
    on(io, lambda: (io.call_later(1e6, int), io.call_later(2e6, int, channels[0]).cancel()))
    channels.clear()
    until(lambda: gone() is None)


def test_a_timer_that_raises_is_logged(io, caplog):
    """An error in a timer does not end the thread or the next timer."""
    done = threading.Event()
    with caplog.at_level(logging.ERROR):
        on(io, lambda: (io.call_later(0.0, lambda: 1 / 0), io.call_later(0.001, done.set)))
        assert done.wait(GUARD)
    assert "ZeroDivisionError" in caplog.text


def test_channels_are_served(io):
    """Data on many channels is read, in order, each by its own channel."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(Line(io)) for _ in range(20)]
        for n in range(50):
            for line in lines:
                line.peer.sendall(bytes([n]))
        for line in lines:
            line.wait(lambda line=line: line.received == bytes(range(50)))


def test_room_to_write(io):
    """`on_writable` is called while it is watched for, and no longer."""
    with Line(io) as line:
        on(io, int)
        assert line.writable == 0
        on(io, lambda: io.watch_writes(line, True))
        line.wait(lambda: line.writable == 1)
        line.peer.sendall(b"x")
        line.wait(lambda: line.received == b"x")
        assert line.writable == 1


def test_a_channel_that_raises_hurts_no_other(io, caplog):
    """The error ends its channel, with the error as its failure; the others and the thread go on."""

    def fail(line: Line, data: bytes) -> None:
        raise ValueError("mine")

    with caplog.at_level(logging.ERROR), Line(io, fail) as bad, Line(io) as good:
        bad.peer.sendall(b"x")
        bad.wait(lambda: bad.failure is not None)
        assert isinstance(bad.failure, ValueError)
        good.peer.sendall(b"y")
        good.wait(lambda: good.received == b"y")
    assert "mine" in caplog.text


def test_a_channel_that_cannot_even_fail(io, caplog, monkeypatch):
    """An error while a channel is being ended is logged too."""

    def fail(line: Line, data: bytes) -> None:
        io.unregister(line)
        raise ValueError("mine")

    with caplog.at_level(logging.ERROR), Line(io, fail) as bad, Line(io) as good:
        monkeypatch.setattr(bad, "on_failure", lambda error: 1 / 0)
        bad.peer.sendall(b"x")
        good.peer.sendall(b"y")
        good.wait(lambda: good.received == b"y")
        on(io, int)
    assert "mine" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_command_or_timer_of_a_channel_that_raises_ends_the_channel(io, caplog):
    """An error in a command or timer of a channel ends that channel, and does not go unnoticed."""
    with caplog.at_level(logging.ERROR), Line(io) as first, Line(io) as second:
        io.call(lambda: 1 / 0, first)
        first.wait(lambda: first.failure is not None)
        on(io, lambda: io.call_later(0.0, lambda: 1 / 0, second))
        second.wait(lambda: second.failure is not None)
    assert isinstance(first.failure, ZeroDivisionError)
    assert isinstance(second.failure, ZeroDivisionError)


def test_unregistering_twice_is_no_error(io):
    """A channel may be unregistered again, and after its socket was closed."""
    with Line(io) as line:
        on(io, lambda: io.unregister(line))
        on(io, lambda: io.unregister(line))
        line.sock.close()
        on(io, lambda: io.unregister(line))


def test_a_finalizer_may_give_a_command(io):
    """`call()` works wherever the garbage collector runs a finalizer, even inside another `call()`."""
    seen: list[int] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            io.call(lambda: seen.append(1))

    count = 300
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(count):
            Cycle()
            io.call(int)
    finally:
        gc.set_threshold(*threshold)
    collect()
    on(io, int)
    assert len(seen) == count


def test_a_finalizer_just_before_it_waits(io):
    """A finalizer's request to its own thread is done, even if the thread has already looked for work."""
    done = threading.Event()

    def select_struck(timeout):
        selector_of(io).select = select
        io.call(done.set)
        return select(timeout)

    select = selector_of(io).select
    on(io, lambda: setattr(selector_of(io), "select", select_struck))
    assert done.wait(GUARD)


def test_a_finalizer_inside_the_wake_up_itself(io):
    """A finalizer or signal handler that interrupts `call()` at its innermost point may call it again."""
    inner: list[int] = []
    real = wakers_of(io)[1]

    class Interrupted:
        def send(self, data: bytes) -> None:
            replace_waker(io, real)
            io.call(lambda: inner.append(1))
            real.send(data)

    replace_waker(io, Interrupted())
    with running(lambda: io.call(int)) as calling:
        calling.get()
    on(io, int)
    assert inner == [1]


def test_close_runs_what_was_given_before():
    """`close()` lets earlier commands run, frees all descriptors, and the thread ends; giving more is harmless."""
    io = IOThread()
    seen: list[int] = []
    go_on = hold(io)
    for n in range(100):
        io.call(functools.partial(seen.append, n))
    io.close()
    go_on.set()
    io.thread.join(GUARD)
    assert not io.thread.is_alive()
    assert seen == list(range(100))
    io.call(lambda: seen.append(-1))
    io.close()
    assert seen[-1] == 99


def test_no_wake_up_reaches_a_descriptor_that_was_closed(monkeypatch):
    """The wake pair is not closed while a thread writes to it: its number could be reused by then."""
    sending, go_on = threading.Event(), threading.Event()
    waker_class = inner(module, "waker")
    send = waker_class.send

    def slow(waker: socket.socket, data: bytes) -> int:
        sending.set()
        assert go_on.wait(GUARD)
        numbers.append(waker.fileno())
        return send(waker, data)

    io = IOThread()
    numbers: list[int] = []
    monkeypatch.setattr(waker_class, "send", slow)
    with running(lambda: io.call(lambda: stop(io))):
        assert sending.wait(GUARD)
        waker: Any = wakers_of(io)[1]
        send(waker, b"\0")
        io.thread.join(GUARD)
        assert not io.thread.is_alive()
        assert wakers_of(io)[1] is None
        go_on.set()
    assert numbers[0] != -1


def test_channels_that_are_left_at_the_end_are_told():
    """No channel is left behind unserved: when the thread ends, those that are still registered fail."""
    io = IOThread()
    line = Line(io)
    on(io, lambda: io.register(line))
    io.close()
    io.thread.join(GUARD)
    assert line.failure is not None
    line.peer.close()


def test_a_thread_that_cannot_start_leaves_nothing_open(monkeypatch):
    """When the system gives no thread, the descriptors are closed and the error passes."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "start_thread", refuse)
    with pytest.raises(RuntimeError):
        IOThread()


def test_no_thread_no_descriptors(monkeypatch):
    """When the system gives no thread, nothing stays open."""

    def refuse(*_: object) -> None:
        raise NoThreadError("none to be had")

    monkeypatch.setattr(module, "start_thread", refuse)
    with pytest.raises(NoThreadError):
        IOThread()


def test_struck_while_it_begins(monkeypatch):
    """If a greenlet is killed while it waits for the I/O thread to start, the thread ends in good order."""
    begun = []

    def start_struck(role, target):
        begun.append(start_thread(role, lambda: (go.wait(GUARD), target())))
        raise SystemExit

    go = threading.Event()
    monkeypatch.setattr(module, "start_thread", start_struck)
    with pytest.raises(SystemExit):
        IOThread()
    go.set()
    begun[0].join(GUARD)
    assert not begun[0].is_alive()


def test_no_descriptors_no_thread(monkeypatch):
    """When the system gives no descriptors, nothing stays open and no thread is started."""

    def refuse(*_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(OSError, match="too many"):
        IOThread()


def test_a_forked_child_closes_its_copies(io):
    """In a child the inherited descriptors are closed, commands have no effect, and the parent is still served."""
    with Line(io) as line:

        def child() -> object:
            io.call(int)
            io.close()
            return wakers_of(io)[0].fileno(), waker.fileno(), selector_of(io).get_map()

        waker = wakers_of(io)[1]
        assert waker is not None
        assert in_child(child) == (-1, -1, None)
        line.peer.sendall(b"x")
        line.wait(lambda: line.received == b"x")
        on(io, lambda: io.watch_writes(line, True))
        line.wait(lambda: line.writable == 1)


def every_20_ms(io: IOThread, number: int) -> list[tuple[float, float]]:
    """Return when steps were due, and when they were made."""
    made: list[tuple[float, float]] = []
    done = threading.Event()
    due = time.monotonic() + 0.02

    def step(now: float) -> float | None:
        nonlocal due
        assert io.is_current
        made.append((due, now))
        due += 0.02
        if len(made) < number:
            return due
        done.set()
        return None

    io.scheduler.add(step, due)
    assert done.wait(GUARD), "no step is made"
    return made


def test_steps_are_made_at_their_times(io):
    """The I/O thread makes steps at absolute times, not before them, while it serves connections as ever."""
    with Line(io) as line:
        line.peer.sendall(b"x")
        made = every_20_ms(io, 20)
        line.wait(lambda: line.received == b"x")
    assert all(now >= due - 100e-6 for due, now in made)
    until(lambda: min(now - due for due, now in every_20_ms(io, 5)) < 0.003)


@pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="other selectors are exact by themselves")
def test_steps_are_exact_though_epoll_counts_milliseconds(monkeypatch):
    """Where the descriptor is not too high for select(), steps run within a fifth of a millisecond, if the machine has
    time for them."""

    def is_exact(io: IOThread, limit: float) -> bool:
        return min(now - due for due, now in every_20_ms(io, 30)) < limit

    monkeypatch.setattr(selectors, "DefaultSelector", selectors.EpollSelector)
    for most, exact in ((limits.value_of("check_descriptors"), True), (0, False)):
        limits.patch(monkeypatch, check_descriptors=most)
        io = IOThread()
        try:
            limit = 0.0002 if exact else 0.003
            until(functools.partial(is_exact, io, limit))
        finally:
            io.close()
            io.thread.join(GUARD)


def test_a_step_that_is_due_later_costs_nothing_until_then(io, monkeypatch):
    """A thread that serves connections looks at the steps when one is due, or was planned earlier than it knew."""
    io.scheduler.add(lambda now: None, io.scheduler.now() + 3e6)
    on(io, int)
    looks: list[None] = []
    run_due = io.scheduler.run_due

    def look() -> None:
        looks.append(None)
        run_due()

    monkeypatch.setattr(io.scheduler, "run_due", look)
    for _ in range(10):
        on(io, int)
    assert not looks
    assert len(every_20_ms(io, 2)) == 2
    on(io, int)
    assert 2 <= len(looks) <= 4


def test_a_step_that_fails_ends_itself_only(io, caplog):
    """Other steps, and connections, do not suffer from it; it is logged."""

    def fail(now: float) -> float:
        raise RuntimeError("broken step")

    with Line(io) as line:
        io.scheduler.add(fail, time.monotonic())
        assert len(every_20_ms(io, 2)) == 2
        line.peer.sendall(b"x")
        line.wait(lambda: line.received == b"x")
    assert "A scheduled step failed" in caplog.text
    caplog.clear()


def test_the_schedule_ends_with_the_thread():
    """Nothing can be planned on a thread that is gone."""
    io = IOThread()
    task = io.scheduler.add(lambda now: now + 0.01, time.monotonic())
    io.close()
    io.thread.join(GUARD)
    task.cancel()
    with pytest.raises(RuntimeError, match="closed"):
        io.scheduler.add(lambda now: None, 0.0)


def test_a_crowd_of_steps_does_not_keep_connections_waiting(io):
    """Of a thousand steps that are due at once, only some run before a connection that is ready."""
    made: list[float] = []
    heard: list[int] = []
    with Line(io, lambda line, data: heard.append(len(made))) as line:

        def all_at_once() -> None:
            line.peer.sendall(b"x")
            for _ in range(1000):
                io.scheduler.add(made.append, 0.0)

        on(io, all_at_once)
        line.wait(lambda: line.received == b"x")
    assert heard[0] < 32
