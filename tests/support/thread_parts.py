"""Private parts that tests of threads, queues and pools look at: the one place that knows these names."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.concurrency import lifecycle, pool_task


def lock_of(part: Any) -> Any:
    """Return the lock that guards a part."""
    return part._lock


def sleepers_of(part: Any) -> Any:
    """Return the threads that wait for a notifier, or for the latch that has it."""
    return getattr(part, "_notifier", part)._sleepers


def idle_workers(workers: Any) -> Any:
    """Return the workers of a pool that have nothing to do."""
    return workers._idle


def selector_of(loop: Any) -> Any:
    """Return the selector of a thread that waits for sockets."""
    return loop._selector


def wakers_of(io: Any) -> tuple[Any, Any]:
    """Return the ends of the pair of sockets that wakes such a thread: the one that it reads, and the other."""
    return io._wake_reader, io._waker


def slot_of(module: Any) -> Any:
    """Return the slot in which a module keeps the part that all sessions share."""
    return module._slot


def shared_by(module: Any) -> Any:
    """Return the part that all sessions share now, or None."""
    return slot_of(module)._current


def task_pool() -> Any:
    """Return the threads that run the tasks of calls which wait."""
    return pool_task._pool


def at_exit() -> None:
    """Do the work of the interpreter's exit."""
    lifecycle._at_exit()


def sockets_of(signal: Any) -> Any:
    """Return the descriptors of the sockets that an abort signal shuts down."""
    return signal._duplicates


def finish(signal: Any) -> None:
    """End a signal whose attempt has ended."""
    signal._finish()


def stop(io: Any) -> None:
    """Stop a thread that waits for sockets, as the last session's end does. Called on it."""
    io._stop()


def wake(io: Any) -> None:
    """Wake a thread that waits for sockets."""
    io._wake()


def replace_waker(io: Any, waker: Any) -> Any:
    """Replace the socket that wakes a thread; return the previous one."""
    before, io._waker = io._waker, waker
    return before


def end_sockets_of(loop: Any) -> Any:
    """Return the sockets by which asyncio wakes its loop, the far end first."""
    own = vars(loop._loop)
    return own["_csock"], own["_ssock"]


# Steps and fields of parts, into which a test puts a fault or a delay.
_INNER = {
    "latch": "_latch",  # of an abort signal
    "release": "_release",  # a queue is left by its worker
    "worker": "_Worker",
    "call a worker": "_call_worker",
    "ready": "_ready",  # the queues that wait for a worker
    "plan a round": "_plan_round",
    "planned": "_round_planned",
    "start of a round": "_round_began",
    "open": "_open",  # the descriptors of a thread that waits for sockets
    "timers": "_run_timers",
    "waker": "_Waker",  # of a module
    "seconds between checks": "_CHECK_INTERVAL",  # of the descriptors
    "slot": "_slot",  # of a module
    "kind of slot": "_Slot",
    "current": "_current",  # of a slot
}


def inner(part: Any, name: str) -> Any:
    """Return a step or a field of a part by its plain name."""
    return getattr(part, _INNER[name])


def put(monkeypatch: pytest.MonkeyPatch, part: Any, name: str, value: Any) -> None:
    """Replace a step or a field of a part until the test ends, or undoes its patches."""
    monkeypatch.setattr(part, _INNER[name], value)
