"""The asyncio loop of the process: its users, its end, and its copy in a forked child."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import socket
import threading
from typing import Any

import pytest

from rtvi_sync.concurrency import loop_thread
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from rtvi_sync.concurrency.lifecycle import start_thread, stop_idle_threads
from rtvi_sync.concurrency.loop_thread import Scope, acquire_loop
from rtvi_sync.errors import DisconnectedError, WouldDeadlockError
from tests.support.forking import in_child
from tests.support.required import numbered_sockets
from tests.support.slowness import GUARD
from tests.support.thread_parts import end_sockets_of, inner, put, selector_of
from tests.support.waiting import until

pytestmark = pytest.mark.inside


@pytest.fixture
def loop():
    """Return the loop with one user, which leaves at the end."""
    loop = acquire_loop()
    yield loop
    loop.release()
    stop_idle_threads()
    assert not loop.thread.is_alive()


def result_of(future):
    assert future.wait(Deadline(GUARD))
    return future.result()


async def this_thread():
    return threading.current_thread()


def test_all_users_have_one_loop(loop):
    """A second user gets the same loop, and its leaving does not end it."""
    assert acquire_loop() is loop
    loop.release()
    stop_idle_threads()
    assert result_of(loop.run(this_thread())) is loop.thread


def test_threads_that_need_it_at_once_have_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that need a loop at once get the same one, even while its thread starts; a failed start leaves none."""
    found: list[loop_thread.LoopThread] = []

    def start_late(*args: Any) -> threading.Thread:
        if not found:
            found.append(loop_thread.acquire_loop())
        return start_thread(*args)

    put(monkeypatch, loop_thread, "slot", slot := inner(loop_thread, "kind of slot")())
    monkeypatch.setattr(loop_thread, "start_thread", start_late)
    loop = loop_thread.acquire_loop()
    assert found == [loop]
    assert result_of(found[0].run(this_thread())) is loop.thread
    assert loop.users == 2
    for _ in range(2):
        loop.release()
    slot.stop_idle_threads(Deadline(GUARD))
    assert not loop.thread.is_alive()

    def refuse(*_: Any) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(loop_thread, "start_thread", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        loop_thread.acquire_loop()
    assert inner(slot, "current") is None


def test_a_failure_reaches_the_waiting_thread(loop):
    """A coroutine's error is raised to the thread that asks for its result."""

    async def fail():
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        result_of(loop.run(fail()))


def test_an_unused_loop_ends(monkeypatch):
    """A loop without users ends after a while, and the next user gets a new one."""
    monkeypatch.setattr(loop_thread, "IDLE_TIMEOUT", 0.02)
    loop = acquire_loop()
    loop.release()
    until(lambda: not loop.thread.is_alive())
    other = acquire_loop()
    assert other is not loop
    other.release()
    until(lambda: not other.thread.is_alive())


def test_after_the_end_nothing_hangs(loop):
    """A coroutine for a loop that has ended fails at once, and a call has no effect."""
    other = loop_thread.LoopThread()
    other.start()
    other.retire()
    other.thread.join(GUARD)
    other.call(pytest.fail)
    with pytest.raises(RuntimeError):
        result_of(other.run(this_thread()))


def test_what_a_library_left_behind_is_cancelled():
    """Tasks that still run when the loop ends are cancelled."""
    loop, begun, cancelled = loop_thread.LoopThread(), threading.Event(), threading.Event()
    loop.start()

    async def linger():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    loop.run(linger())
    assert begun.wait(GUARD)
    loop.retire()
    loop.thread.join(GUARD)
    assert cancelled.is_set()


def test_a_scope_ends_what_was_begun_in_it(loop):
    """Tasks, also those that a task has left behind, and connections; and nothing else."""
    scope, others = Scope(), Scope()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()

        async def begin():
            await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
            return [asyncio.create_task(asyncio.sleep(GUARD))]

        async def begin_in(scope):
            scope.enter()
            return await asyncio.create_task(begin())

        def sockets():
            return len(selector_of(loop).get_map()) - 1

        begun = [*result_of(loop.run(begin_in(scope))), *result_of(loop.run(begin_in(others)))]
        assert sockets() == 4
        result_of(loop.run(scope.close(GUARD)))
        until(lambda: sockets() == 2)
        assert [task.cancelled() for task in begun] == [True, False]
        result_of(loop.run(others.close(GUARD)))


def test_a_socket_closed_just_before_the_end():
    """Asyncio closes it in the loop's next round: the loop makes one more."""
    other = loop_thread.LoopThread()
    other.start()

    async def close_and_stop():
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        transport.close()
        asyncio.get_running_loop().stop()
        return transport.get_extra_info("socket")

    closed = result_of(other.run(close_and_stop()))
    other.thread.join(GUARD)
    assert closed.fileno() == -1


def test_blocking_calls_do_not_hold_up_the_exit(loop):
    """Blocking calls run on threads of the package, not on those that asyncio's users wait for at exit."""

    async def name():
        return await asyncio.get_running_loop().run_in_executor(None, lambda: threading.current_thread().name)

    assert result_of(loop.run(name())).startswith("rtvi-blocking-")


def test_a_finalizer_must_not_wait_on_it(loop):
    """A wait on the loop's thread would wait for itself."""

    async def wait():
        Future().wait(Deadline(None))

    with pytest.raises(WouldDeadlockError):
        result_of(loop.run(wait()))


@numbered_sockets
def test_descriptors_that_the_application_closes():
    """The loop is given up, its users are told once, and the next one gets a new loop; files with the numbers stay."""
    loop, told = acquire_loop(), []
    loop.on_loss.add(lambda: told.append(True))

    async def open_socket():
        asyncio.get_running_loop().call_later(0.1, int)  # the thread is woken, and ends
        made = await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))
        return made[0].get_extra_info("socket").fileno()

    result_of(loop.run(open_socket()))
    numbers = [key.fd for key in selector_of(loop).get_map().values()] + [end_sockets_of(loop)[0].fileno()]
    if isinstance(selector_of(loop), getattr(selectors, "EpollSelector", ())):
        numbers.append(selector_of(loop).fileno())
    for number in numbers:
        os.close(number)
    files = [os.open(os.devnull, os.O_RDWR) for _ in numbers]
    assert sorted(files) == sorted(numbers)
    other = acquire_loop()
    assert result_of(other.run(this_thread())) is other.thread
    assert other is not loop
    assert told == [True]
    assert loop.call(pytest.fail) is False
    with pytest.raises(DisconnectedError, match="closed the session's descriptor"):
        result_of(loop.run(this_thread()))
    loop.thread.join(GUARD)
    loop.release()
    other.release()
    stop_idle_threads()
    for file in files:
        os.close(file)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the selector has no descriptor")
def test_a_selector_that_the_application_closes():
    """The thread ends, and the next user gets a new loop."""
    loop = acquire_loop()
    result_of(loop.run(this_thread()))
    left = [each.fileno() for each in end_sockets_of(loop)]
    os.close(selector_of(loop).fileno())
    loop.call(int)
    loop.thread.join(GUARD)
    for number in left:  # the loop cannot know whether they are open, so it leaves them
        os.close(number)
    other = acquire_loop()
    assert other is not loop
    loop.release()
    other.release()
    stop_idle_threads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_a_loop_of_its_own(loop):
    """The child's copies of the sockets are closed, its loop is another one, and the parent's goes on."""
    made = []

    async def listen():
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        made.append(transport)
        return transport.get_extra_info("socket").fileno()

    number = result_of(loop.run(listen()))

    def child():
        with pytest.raises(OSError, match=r"not a socket|on non-socket"):
            socket.socket(fileno=number)
        own = acquire_loop()
        assert result_of(own.run(this_thread())) is not loop.thread

    in_child(child)
    assert result_of(loop.run(this_thread())) is loop.thread
    loop.call(made[0].close)
