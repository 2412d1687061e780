"""How threads start, and the effect of forks and exits."""

from __future__ import annotations

import errno
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rtvi_sync import ConnectionTimeoutError, StartBotError
from rtvi_sync.concurrency import lifecycle
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lifecycle import (
    NoThreadError,
    fork_generation,
    log_stack_of,
    register_for_exit,
    register_for_fork,
    start_thread,
    system_failures_as,
    unregister_for_exit,
)
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.slowness import GUARD
from tests.support.thread_parts import at_exit, lock_of
from tests.support.threads import switch_interval

pytestmark = pytest.mark.inside


class Thing:
    """Notes the calls it gets."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.told: list[str] = []

    def after_fork_in_child(self) -> None:
        self.told.append("fork")
        if self.fails:
            raise ValueError("mine")

    def at_exit(self, deadline: Deadline) -> None:
        self.after_fork_in_child()


def test_threads_are_named_daemons():
    """A thread of the package is a daemon, and its name says that it belongs to the package, and its purpose."""
    stop = threading.Event()
    first, second = start_thread("test", stop.wait), start_thread("test", stop.wait, GUARD)
    try:
        for thread in (first, second):
            role, _, number = thread.name.rpartition("-")
            assert role == "rtvi-test"
            assert number.isdigit()
            assert thread.daemon
        assert first.name != second.name
    finally:
        stop.set()
        first.join(GUARD)
        second.join(GUARD)


def test_a_thread_gets_its_arguments():
    """`start_thread()` hands its arguments on."""
    got: list[object] = []
    start_thread("test", lambda *args: got.extend(args), 1, "two").join(GUARD)
    assert got == [1, "two"]


@pytest.mark.parametrize("what", ["_thread.start_new_thread", "threading.Thread.start"])
def test_no_thread_to_be_had(monkeypatch, what):
    """Whatever keeps a thread from being started is told by one error."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(what, refuse)
    with pytest.raises(NoThreadError, match="can't start new thread"):
        start_thread("test", int)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="the platform has no signals of this kind")
def test_a_thread_that_leaves_takes_no_signals():
    """A thread takes signals while it works, and none while it ends."""
    blocked = []

    class Last:
        """Destroyed after all else that the thread does."""

        def __del__(self) -> None:
            blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    local = threading.local()

    def work() -> None:
        local.last = Last()
        blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    start_thread("test", work).join(GUARD)
    at_work, leaving = blocked
    assert at_work == signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} <= leaving


def test_no_memory_for_a_thread(monkeypatch):
    """Any other failure is raised as it is, on the thread that asked."""

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(MemoryError):
        start_thread("test", int)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NoThreadError("none"), "The call failed: none"),
        (OSError(errno.EMFILE, "too many"), r"The call failed: .*too many\. Close files .*ulimit -n"),
        (OSError(errno.EIO, "broken"), r"The call failed: .*broken\. Check the resources of the system"),
    ],
    ids=["thread", "descriptor", "other"],
)
def test_failures_of_the_system_become_an_error_of_the_caller(error, told):
    """A failure of the system becomes the caller's error, which names the failure and the remedy."""
    with pytest.raises(StartBotError, match=told) as raised, system_failures_as(StartBotError, "The call failed"):
        raise error
    assert raised.value.__cause__ is error


def test_errors_of_the_package_stay_as_they_are():
    """Errors of the package stay as they are, even those that are an `OSError`."""
    error = ConnectionTimeoutError("too late", phase="bot-ready", elapsed=1.0)
    with pytest.raises(ConnectionTimeoutError) as raised, system_failures_as(StartBotError, "The call failed"):
        raise error
    assert raised.value is error
    assert isinstance(error, OSError)


def test_no_thread_at_the_end_of_the_interpreter():
    """A finalizer that runs when threads run no more is refused one; it does not wait for it for ever."""
    script = """
    from rtvi_sync.concurrency import lifecycle
    class Last:
        def __del__(self, start_thread=lifecycle.start_thread, error=lifecycle.NoThreadError):
            try:
                start_thread("test", int)
            except error:
                print("refused", flush=True)
    last = Last()
    last.me = last
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=GUARD, check=True
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")


def test_a_fork_begins_a_new_generation():
    """A child, and its child, know that they are not the process that imported the package."""
    before = fork_generation()
    assert in_child(lambda: (fork_generation(), in_child(fork_generation))) == (before + 1, before + 2)
    assert fork_generation() == before


def test_all_that_registered_is_told_of_the_fork():
    """Every registered object is told in the child, and there only; one that fails does not keep it from the others."""
    things = [Thing(), Thing(fails=True), Thing()]
    for thing in things:
        register_for_fork(thing)
    assert in_child(lambda: [thing.told for thing in things]) == [["fork"]] * 3
    assert [thing.told for thing in things] == [[]] * 3


def test_a_fork_while_another_thread_registers():
    """A lock that another thread held at the fork does not exist in the child: registering works there."""
    with lock_of(lifecycle):
        assert in_child(lambda: register_for_fork(Thing())) is None
        assert in_child(lambda: register_for_exit(Thing())) is None


def test_what_lived_in_the_parent_does_not_end_in_the_child():
    """A session that is live at the fork is the parent's to end: an exiting child does not touch it."""
    thing = Thing()
    register_for_exit(thing)

    def child() -> list[str]:
        at_exit()
        return thing.told

    assert in_child(child) == []
    unregister_for_exit(thing)


def test_registered_objects_are_not_kept():
    """The registers hold weakly: an object without other references is collected, and not called."""
    collected: list[int] = []

    class Dying(Thing):
        def __del__(self) -> None:
            collected.append(1)

    thing = Dying()
    register_for_fork(thing)
    register_for_exit(thing)
    del thing
    collect()
    assert collected == [1]
    at_exit()


def test_exit_tells_all_that_are_registered(caplog):
    """Every live object is told of the exit; one that fails is logged, and one that has ended is not told."""
    things = [Thing(), Thing(fails=True), Thing()]
    ended = Thing()
    for thing in (*things, ended):
        register_for_exit(thing)
    unregister_for_exit(ended)
    with caplog.at_level(logging.ERROR):
        at_exit()
    assert [thing.told for thing in things] == [["fork"]] * 3
    assert ended.told == []
    assert "mine" in caplog.text
    for thing in things:
        unregister_for_exit(thing)


def test_exit_while_others_register():
    """Sessions may start and end on other threads while the exit hook looks at the register."""
    things = [Thing() for _ in range(2000)]
    for thing in things:
        register_for_exit(thing)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for thing in [Thing() for _ in range(50)]:
                register_for_exit(thing)
                unregister_for_exit(thing)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    try:
        with switch_interval(1e-6):
            for thread in threads:
                thread.start()
            for _ in range(10):
                at_exit()
    finally:
        stop.set()
        for thread in threads:
            thread.join(GUARD)
        for thing in things:
            unregister_for_exit(thing)
    assert all(len(thing.told) == 10 for thing in things)


def test_the_interpreter_tells_at_its_exit():
    """The hook runs when a real interpreter exits, and daemon threads do not keep it from exiting."""
    script = """
        import threading
        from rtvi_sync.concurrency.lifecycle import register_for_exit, start_thread
        class Thing:
            def at_exit(self, deadline):
                print("told", threading.current_thread() is threading.main_thread())
        thing = Thing()
        register_for_exit(thing)
        start_thread("test", threading.Event().wait)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=GUARD, check=True
    )
    assert run.stdout == "told True\n"
    assert run.stderr == ""


def test_an_interrupted_question_does_not_end_the_main_thread():
    """Ctrl-C at any line below `is_exiting()`: the process does not take itself for one that exits."""
    script = """
        import sys, threading
        from rtvi_sync.concurrency.lifecycle import is_exiting

        def interrupts_at(line):
            count = 0
            def trace(frame, event, argument):
                nonlocal count
                count += event == "line"
                if event == "line" and count == line:
                    raise KeyboardInterrupt
                return trace
            return trace

        lines = 0
        while True:
            lines += 1
            sys.settrace(interrupts_at(lines))
            try:
                is_exiting()
                break
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
        print(lines > 3, threading.main_thread().is_alive(), is_exiting())
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=GUARD, check=True
    )
    assert run.stdout == "True True False\n"


def test_the_stacks_of_late_threads_are_logged(caplog):
    """The log has the stack of each thread that is over its limit; one that ends in time is not logged."""
    stop = threading.Event()

    def a_handler_that_sits_here() -> None:
        stop.wait()

    late, ended = start_thread("test", a_handler_that_sits_here), start_thread("test", int)
    ended.join(GUARD)
    never = threading.Thread(name="never started")
    try:
        deadline = time.monotonic() + GUARD
        with caplog.at_level(logging.WARNING):
            while "a_handler_that_sits_here" not in caplog.text and time.monotonic() < deadline:
                caplog.clear()
                log_stack_of([late, ended, never], "The test is over")
    finally:
        stop.set()
        late.join(GUARD)
    assert "a_handler_that_sits_here" in caplog.text
    assert late.name in caplog.text
    assert caplog.text.count("The test is over") == 3
    assert caplog.text.count("it has just ended") == 2
