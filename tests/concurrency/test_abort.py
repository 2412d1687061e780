"""Abandoning an attempt: its sockets are shut down, its callbacks called, its reason raised."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import logging
import os
import selectors
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rtvi_sync.concurrency.abort import AbortController, AbortSignal
from rtvi_sync.concurrency.deadline import Deadline
from tests.support.forking import in_child
from tests.support.loopback import black_hole, serving, trusting
from tests.support.slowness import GUARD
from tests.support.thread_parts import finish, inner, lock_of, put, sockets_of
from tests.support.threads import running

pytestmark = pytest.mark.inside


class AbortedError(Exception):
    """The attempt was abandoned."""


@pytest.fixture
def controller():
    """Abandon an attempt without limit."""
    return AbortController(Deadline(None), AbortedError)


@pytest.fixture
def pair():
    """Yield two connected sockets."""
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(GUARD)
        right.settimeout(GUARD)
        yield left, right


def test_the_first_abort_counts(controller):
    """The first reason is the one that is raised; a later abort changes nothing and says so."""
    signal = controller.signal
    signal.raise_if_aborted()
    assert (signal.aborted, signal.reason) == (False, None)
    reason = ValueError("enough")
    assert controller.abort(reason)
    assert not controller.abort(KeyError())
    assert (signal.aborted, signal.reason) == (True, reason)
    with pytest.raises(ValueError, match="enough"):
        signal.raise_if_aborted()


def test_an_attempt_that_has_succeeded(controller, pair):
    """An abort that is too late says so, and touches nothing."""
    signal, called = controller.signal, []
    signal.on_abort(lambda: called.append("then"))
    detach = signal.attach(pair[0])
    finish(signal)
    assert not controller.abort()
    assert (signal.aborted, called) == (False, [])
    pair[0].sendall(b"x")
    detach()


def test_abort_without_a_reason(controller):
    """`abort()` without a reason raises the controller's default error."""
    assert controller.abort()
    with pytest.raises(AbortedError):
        controller.signal.raise_if_aborted()


def test_waiting_for_the_abort(controller):
    """`wait()` returns False at its limit and True as soon as the attempt is abandoned."""
    assert not controller.signal.wait(0.01)
    with running(lambda: controller.signal.wait(GUARD)) as waiter, running(controller.signal.wait) as without_limit:
        controller.abort()
        assert waiter.get() is True
        assert without_limit.get() is True


def test_the_signal_tells_what_remains():
    """`remaining()` is the rest of the attempt's deadline."""
    assert AbortController(Deadline(None), AbortedError).signal.remaining() is None
    assert AbortController(Deadline(0.0), AbortedError).signal.remaining() == 0.0
    assert 0 < (AbortController(Deadline(5.0), AbortedError).signal.remaining() or 0) <= 5.0


def test_a_recv_is_woken(controller, pair):
    """A thread that blocks in recv() sees the end of the stream at once; so does the peer."""
    left, right = pair
    detach = controller.signal.attach(left)
    with running(lambda: left.recv(1)) as reader:
        controller.abort()
        assert reader.get() == b""
    assert right.recv(1) == b""
    detach()


def test_a_send_is_woken(controller, pair):
    """A thread that blocks in sendall() because the peer reads nothing gets a broken pipe at once."""
    left, _ = pair
    detach = controller.signal.attach(left)
    with running(lambda: left.sendall(bytes(64 * 1024 * 1024))) as writer:
        controller.abort()
        with pytest.raises(BrokenPipeError):
            writer.get()
    detach()


def test_a_connect_is_woken(controller):
    """A connection that is under way (its SYN is not answered) is given up at once."""
    with black_hole() as port, socket.socket() as sock, selectors.DefaultSelector() as selector:
        sock.setblocking(False)
        assert sock.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
        detach = controller.signal.attach(sock)
        selector.register(sock, selectors.EVENT_WRITE)
        with running(lambda: selector.select(GUARD)) as connecting:
            controller.abort()
            assert connecting.get()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        detach()


def test_a_tls_handshake_is_woken(controller, pair):
    """A thread in the TLS handshake with a silent peer is freed at once, though TLS has taken the socket over."""
    left, right = pair
    detach = controller.signal.attach(left)
    with running(lambda: trusting().wrap_socket(left, server_hostname="localhost")) as handshake:
        assert right.recv(1) == b"\x16"  # a client hello is there: the handshake waits for its answer
        controller.abort()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake.get()
    detach()


def test_the_watch_survives_the_wrapping_in_tls(controller, pair):
    """A socket that is attached before it is wrapped in TLS is woken after it."""
    left, right = pair
    detach = controller.signal.attach(left)
    with running(lambda: serving().wrap_socket(right, server_side=True)) as server_handshake:
        client = trusting().wrap_socket(left, server_hostname="localhost")
        server = server_handshake.get()
    with client, server:
        server.sendall(b"x")
        assert client.recv(1) == b"x"
        with running(lambda: client.recv(1)) as reader:
            controller.abort()
            with contextlib.suppress(BrokenPipeError):  # OpenSSL 3.4 and later: it cannot send its alert
                assert reader.get() == b""
    detach()


def test_attach_after_the_abort_raises(controller, pair):
    """A step after the abort does not start: attach() raises the reason and leaves the socket alone."""
    left, right = pair
    controller.abort()
    with pytest.raises(AbortedError):
        controller.signal.attach(left)
    left.sendall(b"x")
    assert right.recv(1) == b"x"


def test_a_detached_socket_is_left_alone(controller, pair):
    """After detach() an abort does not touch the socket; detach() may be called again."""
    left, right = pair
    detach = controller.signal.attach(left)
    detach()
    detach()
    controller.abort()
    left.sendall(b"x")
    assert right.recv(1) == b"x"


def test_a_closed_socket_does_not_stop_the_abort(controller, pair):
    """A socket whose connection is gone already is passed over; the others are shut down."""
    left, right = pair
    with socket.socket() as never_connected:
        detachers = [controller.signal.attach(never_connected), controller.signal.attach(left)]
        controller.abort()
        assert right.recv(1) == b""
        for detach in detachers:
            detach()


def test_callbacks_are_called_in_order_on_the_aborting_thread(controller):
    """Callbacks run in the order of their registration, on the thread that aborts, when `aborted` is true already."""
    calls: list[object] = []
    signal: AbortSignal = controller.signal

    def called(n: int) -> None:
        calls.append((n, threading.current_thread(), signal.aborted))

    for n in range(3):
        signal.on_abort(functools.partial(called, n))
    aborting = threading.Thread(target=controller.abort)
    aborting.start()
    aborting.join(GUARD)
    assert calls == [(n, aborting, True) for n in range(3)]


def test_a_callback_after_the_abort_is_called_at_once(controller):
    """A callback that is registered too late runs on the thread that registers it; its error is logged as any other."""
    controller.abort()
    calls: list[int] = []
    controller.signal.on_abort(lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_callback_that_raises_stops_no_other(controller, caplog, error):
    """A callback's error is logged; the abort goes on, and so do the other callbacks."""
    calls: list[int] = []

    def fail() -> None:
        raise error("mine")

    controller.signal.on_abort(fail)
    controller.signal.on_abort(lambda: calls.append(2))
    with caplog.at_level(logging.ERROR):
        assert controller.abort()
    assert calls == [2]
    assert "mine" in caplog.text


def test_a_callback_may_use_the_signal(controller, pair):
    """A callback may look at the signal, register another callback and abort again: no lock is held around it."""
    calls: list[object] = []

    def callback() -> None:
        calls.append(controller.abort())
        controller.signal.on_abort(lambda: calls.append("inner"))
        with pytest.raises(AbortedError):
            controller.signal.attach(pair[0])

    controller.signal.on_abort(callback)
    controller.abort()
    assert calls == [False, "inner"]


def test_aborted_is_true_after_the_second_abort(monkeypatch: pytest.MonkeyPatch):
    """Once any `abort()` has returned, True or False, the signal says so: no thread may see it in between.

    The latch of the signal is opened last, so the test holds the first abort there and checks on another thread.
    """
    controller = AbortController(Deadline(None), AbortedError)
    signal = controller.signal
    reached, go_on = threading.Event(), threading.Event()
    open_latch = inner(signal, "latch").set

    def slow_set() -> None:
        reached.set()
        assert go_on.wait(GUARD)
        open_latch()

    put(monkeypatch, signal, "latch", SimpleNamespace(set=slow_set))
    with running(controller.abort) as first:
        assert reached.wait(GUARD)
        try:
            assert not controller.abort()
            assert signal.aborted
        finally:
            go_on.set()
        assert first.get() is True


def test_attach_and_abort_race():
    """Whatever the order, an attached socket is shut down and a refused one is not: none is forgotten."""
    for _ in range(100):
        controller = AbortController(Deadline(None), AbortedError)
        pairs = [socket.socketpair() for _ in range(4)]
        start = threading.Barrier(3)
        outcome: dict[int, Callable[[], None] | None] = {}

        def attach(numbers, controller=controller, pairs=pairs, start=start, outcome=outcome):
            start.wait(GUARD)
            for n in numbers:
                try:
                    outcome[n] = controller.signal.attach(pairs[n][0])
                except AbortedError:
                    outcome[n] = None

        threads = [threading.Thread(target=attach, args=(numbers,)) for numbers in ((0, 1), (2, 3))]
        for thread in threads:
            thread.start()
        start.wait(GUARD)
        controller.abort()
        for thread in threads:
            thread.join(GUARD)
        for n, (left, right) in enumerate(pairs):
            right.setblocking(False)
            detach = outcome[n]
            if detach is None:
                with pytest.raises(BlockingIOError):
                    right.recv(1)
            else:
                assert right.recv(1) == b""
                detach()
            left.close()
            right.close()


def test_a_forked_child_closes_its_copies_and_leaves_the_connection(controller, pair):
    """In a child the watch ends, even if a thread held its lock at the fork; the parent's connection stays open."""
    left, right = pair
    signal = controller.signal
    detach = signal.attach(left)
    (duplicate,) = sockets_of(signal)

    def child() -> object:
        held = list(sockets_of(signal))
        controller.abort()  # the lock is new: nothing hangs, and nothing is shut down
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(duplicate)
        return len(held), signal.wait(GUARD)

    with lock_of(signal):
        assert in_child(child) == (0, True)
    left.sendall(b"x")
    assert right.recv(1) == b"x"
    assert not signal.aborted
    detach()


def test_an_unended_watch_of_a_descriptor_that_the_application_has_closed(pair, monkeypatch):
    """The collection of a watch reports nothing."""
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    own = AbortController(Deadline(None), RuntimeError)
    own.signal.attach(pair[0])
    os.close(*sockets_of(own.signal))
    del own
    gc.collect()
    assert errors == []


def test_an_attempt_that_was_abandoned_stays_so_in_a_child(controller):
    """A child sees that the attempt was abandoned before the fork, and waits for nothing."""
    controller.abort()
    assert in_child(lambda: (controller.signal.aborted, controller.signal.wait())) == (True, True)
