"""Descriptors that the application closes: what has lost its own ends, and what has the number now is left alone."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

import pytest

from rtvi_sync.concurrency import descriptors
from rtvi_sync.concurrency.descriptors import DescriptorGuard
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.errors import DisconnectedError
from tests.support.garbage import collect
from tests.support.io_threads import on
from tests.support.required import numbered_sockets
from tests.support.slowness import GUARD
from tests.support.thread_parts import inner, selector_of, wake, wakers_of

from .lines import SELECTORS, Line

pytestmark = [pytest.mark.inside, numbered_sockets]


def is_open(number: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False


@contextlib.contextmanager
def taken(numbers: list[int]):
    """Open sockets until all of `numbers` are in use, and look at the end whether they were left alone."""
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


def test_a_guard():
    """A guard distinguishes a socket's descriptor from another one with the same number, and closes only the former."""
    one, other = socket.socketpair()
    with other:
        guard = DescriptorGuard(one)
        before = guard.intact
        guard.close(one)
        assert one.fileno() == -1
        assert (before, guard.intact) == (True, False)
    one, other = socket.socketpair()
    with other:
        guard, number = DescriptorGuard(one), one.fileno()
        os.close(number)
        assert not guard.intact
        with taken([number]):
            assert not guard.intact
            guard.close(one)
        assert one.fileno() == -1


def test_a_recent_check_is_not_repeated(monkeypatch):
    """A check that found the descriptor intact counts for a moment; one that did not is not remembered."""
    now = [0.0]
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    one, other = socket.socketpair()
    with other:
        guard, number = DescriptorGuard(one), one.fileno()
        assert guard.intact_within(0.001)
        os.close(number)
        assert guard.intact_within(0.001)
        now[0] += 0.002
        assert not guard.intact_within(0.001)
        assert not guard.intact_within(0.001)
        guard.close(one)


@pytest.mark.parametrize("kind", [kind for kind in SELECTORS if hasattr(kind, "fileno")])
def test_an_abandoned_selector(kind):
    """An abandoned selector can neither wait nor close a descriptor, and its number is left alone."""
    selector = kind()
    number = selector.fileno()
    os.close(number)
    with taken([number]):
        descriptors.abandon(selector)
        with pytest.raises(OSError, match="Bad file descriptor"):
            selector.select(0)
        del selector
        collect()


def own_descriptors(owner: IOThread) -> list[int]:
    """Return the descriptors of the I/O thread itself."""
    assert wakers_of(owner)[1] is not None
    own: list[Any] = [selector_of(owner)] if hasattr(selector_of(owner), "fileno") else []
    return [opened.fileno() for opened in (*own, *wakers_of(owner))]


def left(first: threading.Thread, owner: IOThread) -> None:
    """Wait for a thread whose place another one has taken."""
    if owner.thread is not first:
        first.join(GUARD)
        assert not first.is_alive()


def test_the_next_call_replaces_a_thread_that_cannot_be_woken(io: IOThread):
    """When all its descriptors are gone: channels end with an error, commands and new channels are served, and nothing
    reaches what has the numbers now."""
    with Line(io) as line:
        on(io, lambda: io.call_later(2.0, int))  # at which the first thread leaves
        first = io.thread
        numbers = [line.fileno(), *own_descriptors(io)]  # the channel's first, so that the thread cannot keep it
        for number in numbers:
            os.close(number)
        with taken(numbers):
            assert on(io, lambda: 5) == 5
            line.wait(lambda: isinstance(line.failure, DisconnectedError))
            with Line(io) as new:
                new.peer.sendall(b"x")
                new.wait(lambda: new.received == b"x")
            left(first, io)


def test_a_wake_up_whose_descriptor_belongs_to_the_application(io: IOThread):
    """A wake-up whose descriptor belongs to the application is not read: that socket would block."""
    on(io, lambda: io.call_later(2.0, int))  # at which the thread leaves, if another one has its place
    first, numbers = io.thread, own_descriptors(io)
    with contextlib.ExitStack() as stack, Line(io) as line:

        def lose() -> None:
            """Close the descriptors on the I/O thread, which has a wake-up to read."""
            wake(io)
            for number in numbers:
                os.close(number)
            stack.enter_context(taken(numbers))
            inner(io, "read a wake-up")()

        io.call(lose)
        assert on(io, lambda: 5) == 5
        line.peer.sendall(b"x")
        line.wait(lambda: line.received == b"x")
        left(first, io)


def test_a_number_that_comes_back(io: IOThread):
    """A new channel with the number of one whose descriptor was closed takes its place; the other one has failed."""
    with Line(io) as lost:
        number = lost.fileno()
        os.close(number)
        with contextlib.ExitStack() as stack:
            new = Line(io)
            while new.fileno() != number:
                new.sock.close()
                new.peer.close()
                new = Line(io)
            stack.enter_context(new)
            lost.wait(lambda: isinstance(lost.failure, DisconnectedError))
            new.peer.sendall(b"x")
            new.wait(lambda: new.received == b"x")
