"""What one WebSocket sends: written by whoever sends it, or by the io thread when the socket has room."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from types import BuiltinMethodType

import attrs

from ..concurrency.deadline import on_main_thread
from ..concurrency.descriptors import DescriptorGuard
from ..errors import DisconnectedError
from .websocket_frames import CLOSE

if sys.platform == "linux":
    import fcntl
    import termios

# One TLS record. What was handed to SSL_write and did not fit must be handed to it again, unchanged, before anything
# else.
_CHUNK_BYTES = 16 * 1024
# So many seconds of writing, and the io thread, which waits for the lock or writes itself, gets to the other sessions.
# Each chunk gives the interpreter away, and a busy thread keeps it for 5 ms.
_TURN = 0.01
_MAX_QUEUED_AUDIO = 1.0  # seconds
# What a queued frame costs besides its bytes: many small ones must not get past the limit of what may be queued.
_ITEM_BYTES = 128
# What TLS puts around a frame, at most.
_RECORD_BYTES = 64
#: The socket takes, or has, nothing now.
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@attrs.define(eq=False)
class Outgoing:
    """A frame on its way out, and how far it is."""

    frame: bytes
    audio: float  # seconds of audio in it; 0 for anything else
    refused: bool = False  # it came after the close frame
    written: int = 0  # bytes of it that have left

    @property
    def size(self) -> int:
        """What it takes while it waits."""
        return len(self.frame) + _ITEM_BYTES

    @property
    def is_message(self) -> bool:
        """Tell whether it is neither audio nor a control frame, so that its loss matters."""
        return not self.audio and self.frame[0] & 0x0F < CLOSE

    @property
    def rest(self) -> memoryview:
        """What has not left."""
        return memoryview(self.frame)[self.written :]


class FrameWriter:
    """Writes frames to a socket without blocking, and keeps what it does not take.

    `take()` must work wherever the program is: a signal handler or a finalizer may call it in the midst of another
    `take()` on the same thread, and wait for an answer to what it sends. Hence: what is sent arrives in a queue that
    needs no lock; who finds somebody writing leaves it there, and the writer looks into the queue again afterwards. The
    main thread, which signals strike, writes a frame itself where no handler can come in between; all else it leaves to
    the io thread.

    Args:
        sock: non-blocking; closed by `end()`.
        max_bytes: limit of what may wait; more is a failure.
    """

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self._sock = sock
        self.guard: DescriptorGuard = DescriptorGuard(sock)
        self._max_bytes = max_bytes
        #: The socket's functions are one step of the interpreter: it is neither encrypted nor gevent's.
        self.is_plain: bool = isinstance(sock.send, BuiltinMethodType)
        self._arrived: deque[Outgoing] = deque()  # sent, and not seen by the writer yet
        #: Guards everything below, writing, and reading if it is a TLS object, which is not for two threads. Any thread
        #: may hold it; only non-blocking socket calls are made under it.
        self.lock: threading.Lock = threading.Lock()
        self._queue: deque[Outgoing] = deque()
        self._queued_audio = 0.0
        self._begun: Outgoing | None = None  # what is being written; no longer in the queue
        self._accepts = True  # False from the close frame on
        #: The io thread will go on writing.
        self.blocked: bool = False
        # For `send()` on the main thread: one value while it may write, none while the io thread has something to.
        self._flags: list[int] = [0]
        # What the main thread has sent, and how much the socket took of it, if that was not all.
        self._cut: list[tuple[Outgoing, list[int]]] = []
        #: When a byte left last.
        self.progress_at: float = 0.0
        #: Found by a sending thread, acted on by the io thread.
        self.failure: Exception | None = None
        #: So much waits in the queue, left in all, and was dropped.
        self.bytes_waiting: int = 0
        self.bytes_sent: int = 0
        self.audio_sent: float = 0.0
        self.audio_unsent: float = 0.0
        # Of the bytes that left, those after the end of the last message: if no more than these are unacknowledged, all
        # messages have arrived.
        self._after_message = 0
        self._overhead = 0 if self.is_plain else _RECORD_BYTES

    @property
    def arrived(self) -> int:
        """How many frames wait to be looked at."""
        return len(self._arrived)

    def take(self, item: Outgoing) -> bool:
        """Send `item`, or set its `refused`. True if the io thread has to be told: of a failure, or that it is to go
        on. Any thread; never blocks.
        """
        if not self._accepts or self.failure is not None:
            item.refused = True
            return False
        if not on_main_thread():
            if not self._begin(item):
                self._arrive(item)
            return self.flush() if self._begun is not None or self._arrived else False
        written = self._write_at_once(item)
        if not written:
            self._arrive(item)
        return written < len(item.frame) or bool(self._arrived)

    def _arrive(self, item: Outgoing) -> None:
        self._arrived.append(item)
        # Only now: what arrives while `take_last()` runs is either taken by it or refused here, and never lost.
        item.refused = not self._accepts

    def take_last(self, close: Outgoing) -> None:
        """Queue the close frame after what is queued, save audio: nobody wants to hear the rest."""
        with self.lock:
            self._accepts = False
            self._flags.clear()
            self._queue_arrived()
            self._drop_audio(0.0)
            self._queue.append(close)
            self.bytes_waiting += close.size

    @property
    def bytes_left(self) -> int:
        """Count the bytes that have not reached the peer: those that wait, and on Linux those that the system holds."""
        begun = self._begun
        return self.bytes_waiting + (len(begun.rest) if begun is not None else 0) + _unacknowledged(self._sock)

    def end(self) -> tuple[int, int]:
        """Forget what waits, and close the socket.

        Returns:
            How many messages have not reached the peer, at least, and how many bytes of them.
        """
        with self.lock:
            self._accepts = False
            self._flags.clear()
            self._take_cut()
            self._queue_arrived()
            unsent = self._unsent()
            self._queue.clear()
            self._begun = None
            self.bytes_waiting, self._queued_audio = 0, 0.0
            if self.guard.intact:
                with contextlib.suppress(OSError):
                    # Not SSLSocket.shutdown(), which forgets that the socket is encrypted.
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            self.guard.close(self._sock)
        return unsent

    def _unsent(self) -> tuple[int, int]:
        messages = [item for item in self._queue if item.is_message]
        after = self._after_message
        if self._begun is not None and self._begun.is_message:
            messages.append(self._begun)
        elif self._begun is not None:
            after += self._begun.written + self._overhead
        held = max(0, _unacknowledged(self._sock) - after)
        return len(messages) or int(held > 0), held + sum(len(item.rest) for item in messages)

    def after_fork_in_child(self) -> None:
        """Whoever held the lock does not exist here."""
        self.lock = threading.Lock()
        self._accepts = False

    def _write_at_once(self, item: Outgoing) -> int:
        """Write a frame on the main thread, if nothing else waits; returns how many bytes the socket took.

        A signal handler may strike here, send on this same connection, and wait for an answer, which the io thread
        reads and others may have to write for. Python runs handlers after calls and jumps, not between operators and
        assignments: so there is nothing else under the lock, and nothing that the garbage collector counts. A handler
        finds all of it done, or nothing, and the lock free.
        """
        if not self.is_plain or not self._flags or self._arrived:
            return 0
        size, is_message = len(item.frame), item.is_message
        sent: list[int] = []
        # Whether it may write is asked when the list is walked, under the lock.
        step = map(self._sock.send, (item.frame,), self._flags)
        whole, cut = [size], ((item, sent),)
        try:
            with self.lock:
                sent += step
                done = sent == whole
                self._flags *= done
                self._cut += cut * (not done)
                self.bytes_sent += size * done
                self.audio_sent += item.audio * done
                self._after_message = (self._after_message + size * done) * (1 - done * is_message)
        except OSError:  # the io thread finds out why
            return 0
        return sum(sent)

    def _begin(self, item: Outgoing) -> bool:
        """Write what the socket takes of a frame, nearly always all of it; False if something else comes first. Not
        on the main thread.
        """
        if not self._flags or not self.is_plain or self._arrived or not self.lock.acquire(blocking=False):
            return False
        try:
            if not self._flags:  # somebody was faster
                return False
            item.written = self._sock.send(item.frame)
            if item.written < len(item.frame):
                self._begun = item
                self._flags.clear()
                self.progress_at = time.monotonic()
            else:
                self._count(item)
            return True
        except (OSError, ValueError):  # flush() finds out why
            return False
        finally:
            self.lock.release()

    def flush(self, room: bool = False) -> bool:
        """Write what has arrived. True if the io thread has to be told: of a failure, or that it is to go on.

        Args:
            room: the socket may take more of what it did not take before. On the io thread.
        """
        must_tell_io = False
        while True:
            # Who holds it may have been interrupted, by a finalizer that waits for what this thread is to do.
            if not self.lock.acquire(blocking=False):
                return must_tell_io
            try:
                self._take_cut()
                self._take_arrived()
                done = (room or not self.blocked) and self._write()
                self._limit_queue()
                must_tell_io = must_tell_io or self.failure is not None or not (done or self.blocked)
                self.blocked = not done
                self._flags[:] = [0] if done and self._accepts else []
            finally:
                self.lock.release()
            if not self._arrived:
                return must_tell_io

    def _take_cut(self) -> None:
        """Go on with the frame of which the main thread could write a part only."""
        for item, sent in self._cut:
            if sent:
                item.written, self._begun = sent[0], item
                self.progress_at = time.monotonic()
        self._cut.clear()

    def _take_arrived(self) -> None:
        if self._accepts:
            self._queue_arrived()
        else:
            self._arrived.clear()  # `_arrive()` has refused it

    def _queue_arrived(self) -> None:
        while True:
            try:
                item = self._arrived.popleft()
            except IndexError:  # a look before would not do: a finalizer may come in between
                return
            if not self._queue:
                self.bytes_waiting, self._queued_audio = 0, 0.0
                if not self.blocked:
                    self.progress_at = time.monotonic()
            self._queue.append(item)
            self.bytes_waiting += item.size
            self._queued_audio += item.audio

    def _limit_queue(self) -> None:
        self._drop_audio(_MAX_QUEUED_AUDIO)
        if self.bytes_waiting > self._max_bytes:
            self.failure = DisconnectedError(
                f"More than {self._max_bytes} bytes are waiting to be sent; the server does not read fast enough"
            )

    def _drop_audio(self, limit: float) -> None:
        """Drop the oldest audio that no byte of has left, until at most `limit` seconds are queued."""
        if self._queued_audio <= limit:
            return
        kept: deque[Outgoing] = deque()
        for item in self._queue:
            if item.audio and self._queued_audio > limit:
                self._queued_audio -= item.audio
                self.bytes_waiting -= item.size
                # What is queued at the end nobody misses.
                self.audio_unsent += item.audio if limit else 0.0
            else:
                kept.append(item)
        self._queue = kept

    def _write(self) -> bool:
        """Write what the socket takes, for a turn. True if nothing is left to write."""
        began = 0.0
        while self.failure is None:
            if self._begun is None and not self._queue:
                return True
            if began and self.progress_at - began >= _TURN:
                return False  # the io thread goes on, as if the socket took no more
            if self._begun is None:
                self._begun = item = self._queue.popleft()
                self.bytes_waiting -= item.size
                self._queued_audio = max(0.0, self._queued_audio - item.audio) if self._queue else 0.0
            item = self._begun
            try:
                item.written += self._sock.send(item.rest[:_CHUNK_BYTES])
            except WOULD_BLOCK:
                return False
            except (OSError, ValueError) as error:
                self.failure = error
                return False  # the io thread acts on it
            self.progress_at = time.monotonic()
            began = began or self.progress_at
            if not item.rest:
                self._begun = None
                self._count(item)
        return False

    def _count(self, item: Outgoing) -> None:
        """Count a frame that has left as a whole."""
        size = len(item.frame)
        self.bytes_sent += size
        self.audio_sent += item.audio
        self._after_message = 0 if item.is_message else self._after_message + size + self._overhead


def _unacknowledged(sock: socket.socket) -> int:
    """Count the bytes that the system has taken and the peer has not acknowledged; 0 where the system does not tell."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # it is closed
            return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    return 0
