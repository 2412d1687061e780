"""The writer of a connection, and a signal handler that strikes the main thread while the system takes a frame."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading

import pytest

from rtvi_sync.transports import websocket_writer as module
from rtvi_sync.transports.websocket_writer import FrameWriter, Outgoing
from tests.support.required import numbered_sockets
from tests.support.slowness import GUARD
from tests.support.threads import running, switch_interval
from tests.support.waiting import until
from tests.support.websocket import MB, tcp_pair


@contextlib.contextmanager
def struck_in_the_next_system_call(handler):
    """Have another thread run only when this one waits for the system, and then a signal strike: it runs `handler`
    on this thread, as soon as the system call is done. If the other thread is too slow, there is no strike.
    """
    now, over = threading.Lock(), threading.Event()
    now.acquire()

    def strike() -> None:
        now.acquire()
        if not over.is_set():
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        with running(strike), switch_interval(GUARD):
            now.release()
            yield
            over.set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def read(sock: socket.socket, size: int) -> bytes:
    """Return up to this many bytes."""
    data = bytearray()
    with contextlib.suppress(BlockingIOError):
        while len(data) < size:
            data += sock.recv(MB)
    return bytes(data)


def send_and_be_struck(size: int) -> bool:
    """Send a frame of this many bytes; return False if no signal arrived meanwhile."""
    ours, theirs = tcp_pair(False)
    frame, arrived, free = b"x" * size, bytearray(), []
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)

        def use_elsewhere() -> bool:
            got = writer.lock.acquire(timeout=GUARD / 10)
            if got:
                writer.lock.release()
            return got

        def handler() -> None:
            sys.setswitchinterval(0.005)
            with running(use_elsewhere) as elsewhere:
                free.append(elsewhere.get())
            arrived.extend(read(theirs, size))  # now the socket has room for what follows
            writer.send(Outgoing(b"handler", 0.0))

        with struck_in_the_next_system_call(handler):
            writer.send(Outgoing(frame, 0.0))
            struck = bool(free)
        if not struck:
            return False
        while len(arrived) < size + len(b"handler"):
            writer.flush(room=True)
            arrived += read(theirs, size)
        # Python 3.10 runs signal handlers after forward jumps, too, and so under the lock.
        assert free == [True] or sys.version_info < (3, 11)
        assert arrived == frame + b"handler"
        assert writer.bytes_sent == len(arrived)
        return True


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no signal to strike with")
@pytest.mark.parametrize("size", [MB, 32 * MB], ids=["whole", "part"])
def test_a_handler_that_strikes_while_the_system_takes_a_frame(size):
    """It may wait for other threads that use the connection, and what it sends comes after all of the frame."""
    until(lambda: send_and_be_struck(size))  # on a busy machine the signal often comes late


def test_a_part_that_the_main_thread_wrote_and_did_not_tell_of():
    """Ctrl-C may keep it from waking the I/O thread: the next sender writes the rest."""
    ours, theirs = tcp_pair(False)
    frame, arrived = b"x" * (32 * MB), bytearray()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)
        assert writer.send(Outgoing(frame, 0.0))
        with running(lambda: writer.send(Outgoing(b"next", 0.0))) as elsewhere:
            assert elsewhere.get(), "the I/O thread has to be told"
        assert writer.blocked
        while len(arrived) < len(frame) + len(b"next"):
            writer.flush(room=True)
            arrived += read(theirs, len(frame))
        assert arrived == frame + b"next"
        assert not writer.blocked


def test_the_main_thread_sends_after_the_end():
    """What comes after the close frame is refused, though the socket would take it."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer, late = FrameWriter(ours, MB), Outgoing(b"late", 0.0)
        writer.send_close(Outgoing(b"close", 0.0))
        writer.flush()
        assert not writer.send(late)
        assert late.refused
        assert read(theirs, MB) == b"close"
        writer.end()


def test_the_main_thread_does_not_overtake():
    """A frame that another thread could not write, because the lock was held, comes first."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, MB)
        with writer.lock, running(lambda: writer.send(Outgoing(b"first ", 0.0))) as elsewhere:
            assert not elsewhere.get(), "the writer checks the queue again"
        assert len(writer.arrived) == 1
        assert writer.send(Outgoing(b"second ", 0.0)), "the I/O thread has to be told"
        writer.flush()
        assert not writer.send(Outgoing(b"third", 0.0))
        assert theirs.recv(MB, socket.MSG_PEEK).startswith(b"first second ")
        assert writer.bytes_sent == len(b"first second third")


def test_audio_that_the_main_thread_sent_is_counted():
    """In seconds; what waits for the socket is not sent yet."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)
        assert not writer.send(Outgoing(b"x", 0.02))
        assert writer.audio_sent == 0.02
        assert writer.send(Outgoing(b"x" * (32 * MB), 0.5))
        writer.flush()
        assert writer.audio_sent == 0.02


def test_nobody_writes_for_long(monkeypatch):
    """However much the socket takes: a sender leaves the rest to the I/O thread, and that serves the others in
    between."""
    monkeypatch.setattr(module, "_TIME_SLICE", 0.0)
    size = 3 * module._CHUNK_BYTES
    ours, theirs = tcp_pair(True)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, MB)
        with running(lambda: writer.send(Outgoing(bytes(size), 0.0))) as elsewhere:
            assert elsewhere.get(), "the I/O thread has to be told"
        turns = 1
        while writer.blocked:
            writer.flush(room=True)
            turns += 1
        assert (turns, writer.bytes_sent) == (3, size)


@numbered_sockets
def test_what_has_the_number_of_a_closed_socket_is_not_asked() -> None:
    """What another socket holds back is not counted as lost by this one."""
    ours, theirs = tcp_pair(False)
    opened, other_end = socket.socketpair()
    with theirs, opened, other_end:
        writer, number = FrameWriter(ours, MB), ours.fileno()
        os.dup2(opened.fileno(), number)
        opened.send(b"x" * 1000)
        assert writer.end() == (0, 0)
        os.close(number)
