"""Descriptors that the application closes: their owners end, and the new owners of the numbers are left alone."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
from typing import Any

import pytest

from rtvi_sync.concurrency import io_thread
from rtvi_sync.concurrency.descriptors import Mark, keep_open
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.runtime import acquire_runtime
from rtvi_sync.errors import DisconnectedError
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.io_threads import on
from tests.support.required import numbered_sockets
from tests.support.slowness import GUARD, takes
from tests.support.thread_parts import put, selector_of, wakers_of

from .lines import Line

pytestmark = [pytest.mark.inside, numbered_sockets]


def is_open(number: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False


@contextlib.contextmanager
def taken(numbers: list[int]):
    """Close the descriptors, give their numbers to other sockets, and check at the end that they were left alone."""
    for number in numbers:
        os.close(number)
    pairs = []
    try:
        while not all(map(is_open, numbers)):
            pairs.append(socket.socketpair())
        yield
        for pair in pairs:
            for end, other in (pair, pair[::-1]):
                end.send(b"mine")
                assert other.recv(100) == b"mine"
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def own_descriptors(owner: IOThread) -> list[int]:
    """Return the descriptors of the I/O thread itself, the one by which it notices their loss first."""
    own: list[Any] = [selector_of(owner)] if hasattr(selector_of(owner), "fileno") else []
    return [opened.fileno() for opened in (*reversed(wakers_of(owner)), *own)]


def test_a_mark():
    """A mark tells a socket's descriptor from a closed one, and from another one with the same number."""
    one, other = socket.socketpair()
    with other:
        mark = Mark(one)
        before = mark.is_gone
        with taken([one.detach()]):
            reused = mark.is_gone
        assert (before, reused, mark.is_gone) == (False, True, True)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the system has no file object that closes its number")
def test_what_is_kept_open():
    """The number of a file object that is kept is not closed when nothing refers to it any more."""
    epoll = select.epoll()
    with taken([epoll.fileno()]):
        keep_open(epoll)
        del epoll
        collect()


def test_a_thread_without_descriptors_ends(monkeypatch):
    """At the next check, the thread's channels end with the error, and the new owners of the numbers are untouched."""
    put(monkeypatch, io_thread, "seconds between checks", 0.05)
    io = IOThread()
    others: list[BaseException] = []
    io.on_end |= {others.append, lambda error: 1 / 0}
    line = Line(io)
    on(io, lambda: io.register(line))
    with taken([*own_descriptors(io), line.fileno()]):
        line.wait(lambda: isinstance(line.failure, DisconnectedError))
        io.thread.join(GUARD)
        assert io.ended
        assert [type(error) for error in others] == [DisconnectedError]
        io.call(int)
    line.peer.close()


@pytest.mark.skipif(not hasattr(selectors.DefaultSelector, "fileno"), reason="the selector has no descriptor")
def test_a_closed_selector():
    """An I/O thread whose selector was closed ends with its channels, and closes its own descriptors."""
    io = IOThread()
    line = Line(io)
    on(io, lambda: io.register(line))
    pair = wakers_of(io)
    io.call(lambda: os.close(selector_of(io).fileno()))
    line.wait(lambda: isinstance(line.failure, DisconnectedError))
    io.thread.join(GUARD)
    assert (line.sock.fileno(), pair[0].fileno()) == (-1, -1)
    line.peer.close()


def test_an_end_is_no_loss():
    """A thread that has closed its own descriptors has not lost them."""
    io = IOThread()
    io.close()
    io.thread.join(GUARD)
    assert not io.detect_loss()


def test_the_next_user_of_the_runtime(monkeypatch):
    """The next user gets a new runtime although the old thread may sleep, and no fork waits for that thread."""
    put(monkeypatch, io_thread, "seconds between checks", 3.0)
    runtime = acquire_runtime()
    on(runtime.io, int)
    with taken(own_descriptors(runtime.io)):
        new = acquire_runtime()
        assert new is not runtime
        assert on(new.io, lambda: 5) == 5
        runtime.release()
        new.release()
        with takes(0.5):
            stop_idle_threads()
        assert in_child(lambda: acquire_runtime() not in (runtime, new))
        runtime.io.thread.join(GUARD)
        assert not runtime.io.thread.is_alive()


def test_a_runtime_that_is_not_used_any_more(monkeypatch):
    """One that has lost its descriptors is not waited for."""
    put(monkeypatch, io_thread, "seconds between checks", 1.0)
    runtime = acquire_runtime()
    on(runtime.io, int)
    runtime.release()
    with taken(own_descriptors(runtime.io)):
        with takes(0.5):
            stop_idle_threads()
        runtime.io.thread.join(GUARD)
