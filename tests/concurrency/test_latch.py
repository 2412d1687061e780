"""Notifiers and latches: waits that Ctrl-C, signal handlers and finalizers cannot break."""

from __future__ import annotations

import inspect
import itertools
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

import rtvi_sync
from rtvi_sync.client.helpers import RTVIClientHelper
from rtvi_sync.concurrency import latch as module
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch, Notifier, sleepless
from rtvi_sync.errors import WouldDeadlockError
from rtvi_sync.session.event_bus import EventBus
from tests.support import limits
from tests.support.forking import in_child
from tests.support.processes import run_python
from tests.support.slowness import GUARD
from tests.support.thread_parts import sleepers_of
from tests.support.threads import in_sleepless_thread, running, tracing
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class StruckError(BaseException):
    """Stands for Ctrl-C."""


def codes(namespace: object) -> Iterator[types.CodeType]:
    """Return the code of all functions of latch.py that are below a module, class or function."""
    if isinstance(namespace, types.FunctionType):
        yield namespace.__code__
    elif namespace is module or getattr(namespace, "__module__", None) == module.__name__:
        for value in vars(namespace).values():
            if value is not namespace and isinstance(value, (type, types.FunctionType)):
                yield from (code for code in codes(value) if code.co_filename == module.__file__)


@contextmanager
def interrupting(number: int, interrupt: Callable[[], None]) -> Iterator[list[int]]:
    """Call `interrupt()` before the instruction of latch.py with that number, on this thread. The list counts them."""
    count, me = [0], threading.get_ident()

    def step() -> None:
        if threading.get_ident() == me:
            count[0] += 1
            if count[0] == number:
                interrupt()

    with (monitored if sys.version_info >= (3, 12) else traced)(step, number, count):
        yield count


@contextmanager
def monitored(step: Callable[[], None], number: int, count: list[int]) -> Iterator[None]:
    """Call `step()` before each instruction of latch.py, until it was called `number` times. From Python 3.12 on."""
    monitoring = cast(Any, sys).monitoring
    tool, instruction = monitoring.DEBUGGER_ID, monitoring.events.INSTRUCTION

    def called(code: types.CodeType, offset: int) -> None:
        if count[0] < number:
            step()

    monitoring.use_tool_id(tool, "strike")
    monitoring.register_callback(tool, instruction, called)
    try:
        for code in codes(module):
            monitoring.set_local_events(tool, code, instruction)
        yield
    finally:
        for code in codes(module):
            monitoring.set_local_events(tool, code, 0)
        monitoring.register_callback(tool, instruction, None)
        monitoring.free_tool_id(tool)


@contextmanager
def traced(step: Callable[[], None], number: int, count: list[int]) -> Iterator[None]:
    """Do the same for Python 3.10 and 3.11."""

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "opcode" and count[0] < number:
            step()
        return local

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        return local

    with tracing(trace):
        yield


def interrupt_everywhere(
    scene: Callable[[Callable[[Callable[[], object]], None]], None], interrupt: Callable[[], None]
) -> int:
    """Play `scene(act)` once for each instruction of the function that it passes to `act()`, interrupted there. Return
    how many."""
    for number in itertools.count(1):
        interrupted: list[bool] = []

        def act(call: Callable[[], object], number: int = number, interrupted: list[bool] = interrupted) -> None:
            with interrupting(number, interrupt) as count, suppress(StruckError):
                call()
            interrupted.append(count[0] >= number)

        scene(act)
        if not any(interrupted):
            return number - 1
    raise AssertionError


def raise_struck() -> None:
    raise StruckError


@contextmanager
def waiting(wait: Callable[[], Any], notifier: Notifier | Latch, sleepers: int = 1) -> Iterator[Any]:
    """Run a thread in `wait()`, and yield once `sleepers` threads sleep there."""
    with running(wait) as thread:
        until(lambda: len(sleepers_of(notifier)) >= sleepers)
        yield thread


def test_a_latch_opens_once_for_all():
    """All threads that wait, before and after, pass the open latch; a wait whose deadline has passed returns False."""
    latch = Latch()
    assert not latch.is_set()
    assert not latch.wait(Deadline(0.01))
    with running(lambda: latch.wait(Deadline(None))) as one, running(lambda: latch.wait(Deadline(GUARD))) as two:
        latch.set()
        latch.set()
        assert one.get() is two.get() is True
    assert latch.is_set()
    assert latch.wait(Deadline(0.0))
    assert not sleepers_of(latch)


def test_a_notifier_wakes_the_threads_whose_condition_is_true():
    """Each `notify_all()` makes every waiter check its condition; it sleeps on if that is false."""
    notifier, value = Notifier(), [0]
    with (
        running(lambda: notifier.wait_for(lambda: value[0] >= 1, Deadline(GUARD))) as first,
        running(lambda: notifier.wait_for(lambda: value[0] >= 2, Deadline(GUARD))) as second,
    ):
        notifier.notify_all()
        value[0] = 1
        notifier.notify_all()
        assert first.get() is True
        value[0] = 2
        notifier.notify_all()
        assert second.get() is True


def test_what_becomes_true_at_the_limit_counts():
    """A wait whose time is up looks a last time."""
    notifier, looks = Notifier(), itertools.count()
    assert notifier.wait_for(lambda: next(looks) == 2, Deadline(0.01))
    assert not notifier.wait_for(lambda: False, Deadline(0.0))


@pytest.mark.parametrize("timeout", [None, 1e12, float("inf"), GUARD])
def test_a_wait_of_any_length(timeout):
    """Waits without a limit, or with one that no platform can wait in one go, return when the latch opens."""
    latch = Latch()
    thread = threading.Thread(target=latch.set)
    thread.start()
    assert latch.wait(Deadline(timeout))
    thread.join()


def test_sliced_waits_go_on_until_the_limit(monkeypatch):
    """Where waits are sliced (Windows), the end of a slice is not the end of the wait."""
    limits.patch(monkeypatch, deadline_slice=0.001)
    began = time.monotonic()
    assert not Latch().wait(Deadline(0.05))
    assert time.monotonic() - began >= 0.05


def test_no_notification_is_lost():
    """A change that is followed by a notification is never missed: two threads count to 4000 alternately."""
    notifiers, number = (Notifier(), Notifier()), [0]

    def count(own: int) -> int:
        while number[0] < 4000:
            assert notifiers[own].wait_for(lambda: number[0] % 2 == own or number[0] >= 4000, Deadline(GUARD))
            number[0] += number[0] < 4000
            notifiers[1 - own].notify_all()
        return number[0]

    with running(lambda: count(0)) as even, running(lambda: count(1)) as odd:
        assert even.get() == odd.get() == 4000


def test_ctrl_c_at_any_instruction_of_wait():
    """An exception anywhere in a wait breaks nothing: another thread's wait ends when the latch opens."""

    def scene(act: Callable[[Callable[[], object]], None]) -> None:
        latch = Latch()
        act(lambda: latch.wait(Deadline(0.0)))
        with running(lambda: latch.wait(Deadline(GUARD))) as other:
            latch.set()
            assert other.get() is True
        assert latch.wait(Deadline(0.0))

    assert interrupt_everywhere(scene, raise_struck) > 30


def test_ctrl_c_at_any_instruction_of_set():
    """An exception anywhere in `set()` leaves no thread asleep before an open latch, and the next `set()` opens it."""

    def scene(act: Callable[[Callable[[], object]], None]) -> None:
        latch = Latch()
        with (
            waiting(lambda: latch.wait(Deadline(GUARD)), latch) as one,
            waiting(lambda: latch.wait(Deadline(GUARD)), latch, sleepers=2) as two,
        ):
            act(latch.set)
            if not latch.is_set():
                latch.set()
            assert one.get() is two.get() is True

    assert interrupt_everywhere(scene, raise_struck) > 20


@pytest.mark.parametrize("within", ["wait", "set"])
def test_set_in_a_signal_handler_at_any_instruction(within: str):
    """A signal handler may open the latch that the interrupted thread waits for, or opens, at that moment."""

    def scene(act: Callable[[Callable[[], object]], None]) -> None:
        latch = Latch()
        latches.append(latch)
        with running(lambda: latch.wait(Deadline(GUARD))) as other:
            if within == "wait":
                act(lambda: latches[-1].wait(Deadline(0.0)))
                latches[-1].set()
            else:
                act(latches[-1].set)
            assert other.get() is True

    latches: list[Latch] = []
    assert interrupt_everywhere(scene, lambda: latches[-1].set()) > 20


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the platform cannot send a signal to a thread")
@pytest.mark.parametrize("reaction", ["raise", "open"])
def test_a_signal_reaches_a_wait_without_limit(reaction: str):
    """The handler of a signal runs while the main thread waits; its exception ends the wait, and so does `set()`."""
    latch = Latch()

    def handle(*_: object) -> None:
        if reaction == "raise":
            raise StruckError
        latch.set()

    before = signal.signal(signal.SIGUSR1, handle)
    main = threading.get_ident()

    def send() -> None:
        until(lambda: sleepers_of(latch))
        signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        if reaction == "raise":
            with pytest.raises(StruckError):
                latch.wait(Deadline(None))
        else:
            assert latch.wait(Deadline(None))
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert not sleepers_of(latch)


def test_a_latch_in_a_forked_child():
    """A child opens and passes its copy of a latch, though threads of the parent wait at it."""
    latch = Latch()

    def child() -> object:
        before = latch.wait(Deadline(0.01))
        latch.set()
        return before, latch.wait(Deadline(0.0))

    with waiting(lambda: latch.wait(Deadline(GUARD)), latch) as other:
        assert in_child(child) == (False, True)
        assert not latch.is_set()
        latch.set()
        assert other.get() is True


def test_a_wait_on_a_sleepless_thread():
    """A thread that all others wait for refuses to wait, but may check and open latches."""
    latch = Latch()

    def serve() -> tuple[bool, bool]:
        with in_sleepless_thread():
            with pytest.raises(WouldDeadlockError, match="finalizer"):
                latch.wait(Deadline(None))
            looked = latch.wait(Deadline(0.0))
            latch.set()
            return looked, latch.wait(Deadline(None))

    with running(serve) as served:
        assert served.get() == (False, True)
    assert not sleepers_of(latch)
    assert not Latch().wait(Deadline(0.01))


def test_a_child_has_no_such_thread():
    """In a forked child the identity of the thread is free for others, on which one may wait."""

    def wait() -> bool:
        sleepless.clear()
        return Latch().wait(Deadline(0.01))

    with in_sleepless_thread():
        assert in_child(wait) is False


COLLECT = """
import gc, threading
from rtvi_sync.concurrency.latch import Notifier

from tests.support.thread_parts import sleepers_of
notifier, sleepers = Notifier(), [threading.Lock() for _ in range(5)]
# As if other threads left while a finalizer runs. No list is kept for reuse, so that each new one may collect.
gc.callbacks.append(lambda phase, info: sleepers_of(notifier).clear())
kept = [[] for _ in range(200)]
gc.set_threshold(1)
for _ in range(300):
    sleepers_of(notifier).extend(sleepers)
    notifier.notify_all()
    kept += ([], [], [], [])
"""


def test_a_collection_while_it_notifies() -> None:
    """Sleepers that leave while garbage is collected do not crash the process, as with `list.copy()` before 3.12."""
    code, _, err = run_python(COLLECT, timeout=GUARD)
    assert (code, err) == (0, "")


def test_no_shared_list_is_read_in_two_steps() -> None:
    """Lists that threads share are read by a display: `copy()`, a tuple, a slice or a sum take the same two steps."""
    found = []
    for path in sorted(Path(rtvi_sync.__file__).parent.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for name in set(re.findall(r"self\.(_\w+)(?:: list\[.*\])? = \[\]", source)):
            two_steps = rf"self\.{name}(\.copy\(\)|\[:\](?! =)| \+ )|tuple\(self\.{name}\)|\+ self\.{name}\b"
            found += [f"{path.name}: {match[0]}" for match in re.finditer(two_steps, source)]
    assert found == []


def test_handlers_are_read_in_one_step() -> None:
    """Lists of handlers, which have no attribute of their own, are read in one step, too."""
    source = inspect.getsource(EventBus) + inspect.getsource(RTVIClientHelper)
    assert re.findall(r"[hH]andlers\w*(?:\([^()]*\)|\.get\([^()]*\))?\.copy\(\)", source) == []
