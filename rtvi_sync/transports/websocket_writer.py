"""The writing side of one WebSocket: frames are written by the sending thread, or later by the I/O thread."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import sys
import threading
from collections import deque
from types import BuiltinMethodType

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import on_main_thread
from ..errors import DisconnectedError
from ..net.tls import WOULD_BLOCK, by_itself
from ..protocol.states import CloseInfo
from .websocket_frames import CLOSE

if sys.platform == "linux":
    import fcntl
    import termios

# One TLS record. Bytes that SSL_write did not take must be passed to it again, unchanged, before any others.
_CHUNK_BYTES = 16 * 1024
# In seconds. After it a writer releases the lock, so that the I/O thread can serve the other sessions. Each chunk
# releases the GIL, and a busy thread then keeps it for 5 ms.
_TIME_SLICE = 0.01
_MAX_QUEUED_AUDIO = 1.0  # seconds
# The memory of a queued frame beyond its bytes, counted so that many small frames do not evade the limit of the queue.
_ITEM_BYTES = 128
# The bytes that TLS adds to a record: header, type or nonce, and tag. Other ciphers add no more than the last number.
_RECORD_BYTES = {"TLSv1.3": 22, "GCM": 29, "CHACHA20": 21, "": 64}


@attrs.define(eq=False, repr=False)
class Outgoing:
    """An outbound frame and its progress."""

    frame: bytes
    audio: float  # seconds of audio in it; 0 for other frames
    refused: bool = False  # it was sent after the close frame
    written: int = 0  # bytes of it that the socket took

    @property
    def size(self) -> int:
        """The frame's memory while it is queued, in bytes."""
        return len(self.frame) + _ITEM_BYTES

    @property
    def is_message(self) -> bool:
        """True if the frame is a message, whose loss must be reported. Audio and control frames are not."""
        return not self.audio and self.frame[0] & 0x0F < CLOSE

    @property
    def rest(self) -> memoryview:
        """The bytes that the socket has not taken."""
        return memoryview(self.frame)[self.written :]


class FrameWriter:
    """A non-blocking writer of frames, with a queue for those that the socket does not take.

    `send()` is re-entrant: a signal handler or a finalizer may call it during another `send()` on the same thread.
    Therefore frames arrive in a queue that needs no lock. A thread that finds the lock held leaves its frame there, and
    the holder checks the queue again after its write.

    Args:
        sock: non-blocking; closed by `end()`.
        max_bytes: limit of the queue; more is a failure.
    """

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self._sock = sock
        self._max_bytes = max_bytes
        #: True for a plain socket, whose methods are one step of the interpreter; False with TLS, or under gevent.
        self.is_plain: bool = isinstance(sock.send, BuiltinMethodType)
        #: The frames that were not moved to the queue yet.
        self.arrived: deque[Outgoing] = deque()
        #: Guards all fields below, writing, and the reads of a TLS object, which two threads must not use at once. Any
        #: thread may hold it; only non-blocking socket calls are made under it.
        self.lock: threading.Lock = threading.Lock()
        self._queue: deque[Outgoing] = deque()
        self._queued_audio = 0.0
        self._begun: Outgoing | None = None  # the frame that is being written; no longer in the queue
        self._accepts = True  # False from the close frame on
        #: How the connection will end, once the close frame is queued.
        self.closing: CloseInfo | None = None
        # True while no frame is in progress or queued, so that a sending thread may write its own at once.
        self._direct = self.is_plain
        #: True if the I/O thread will continue to write.
        self.blocked: bool = False
        #: The monotonic time since which the socket has taken no byte, while `blocked`.
        self.progress_at: float = 0.0
        #: Set by a sending thread, handled by the I/O thread.
        self.failure: Exception | None = None
        #: The counters: bytes in the queue, bytes and seconds of audio sent, seconds of audio dropped.
        self.bytes_waiting: int = 0
        self.bytes_sent: int = 0
        self.audio_sent: float = 0.0
        self.audio_unsent: float = 0.0
        # The sent bytes behind the last message: if at most these are unacknowledged, all messages have arrived.
        self._after_message = 0
        self._overhead = _overhead_of(sock)

    def send(self, item: Outgoing) -> bool:
        """Send `item`, or set its `refused`. Any thread may call it; never blocks.

        Returns:
            True if the I/O thread must be woken: because of a failure, or to continue to write.
        """
        if not self._accepts or self.failure is not None:
            item.refused = True
            return False
        if not self._write_directly(item):
            self._arrive(item)
        if self._begun is None and not self.arrived:
            return False
        # The main thread leaves the rest to the I/O thread: Ctrl-C could interrupt `flush()` anywhere.
        return on_main_thread() or self.flush()

    def _arrive(self, item: Outgoing) -> None:
        self.arrived.append(item)
        # Read after the append: a frame that arrives while `send_close()` runs is either queued by it or refused here.
        item.refused = not self._accepts

    def send_close(self, close: Outgoing, closing: CloseInfo) -> bool:
        """Send the close frame behind the queued frames, without queued audio; nothing if one was sent, or after
        `end()`. Not on the main thread; never blocks.

        Returns:
            True if the I/O thread must be woken: because of a failure, or to continue to write.
        """
        with self.lock:
            if not self._accepts:
                return False
            self.closing = closing
            self._accepts = self._direct = False
            self._queue_arrived()
            self._drop_audio(0.0)
            self._queue.append(close)
            self.bytes_waiting += close.size
            return self._continue()

    @property
    def bytes_left(self) -> int:
        """The number of bytes that have not reached the peer: queued, or, on Linux, in the system's buffer."""
        begun = self._begun
        return self.bytes_waiting + (len(begun.rest) if begun is not None else 0) + _unacknowledged(self._sock)

    def end(self) -> tuple[int, int]:
        """Drop the queue, and close the socket.

        Returns:
            At least how many messages have not reached the peer, and how many bytes of them.
        """
        with self.lock:
            self._accepts = self._direct = False
            self._queue_arrived()
            unsent = self._unsent()
            self._queue.clear()
            self._begun = None
            self.bytes_waiting, self._queued_audio = 0, 0.0
            with contextlib.suppress(OSError):
                # The base class's method, because SSLSocket.shutdown() drops the TLS object of the socket.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                self._sock.close()
        return unsent

    def _unsent(self) -> tuple[int, int]:
        messages = [item for item in self._queue if item.is_message]
        after = self._after_message
        if self._begun is not None and self._begun.is_message:
            messages.append(self._begun)
        elif self._begun is not None:
            after += self._on_wire(self._begun.written)
        held = max(0, _unacknowledged(self._sock) - after)
        return len(messages) or int(held > 0), held + sum(len(item.rest) for item in messages)

    def after_fork_in_child(self) -> None:
        """Replace the lock, whose holder does not exist in the child, and accept no frame."""
        self.lock = threading.Lock()
        self._accepts = False

    def _write_directly(self, item: Outgoing) -> bool:
        """Write a frame, nearly always completely; return False if other frames must be written before it.

        Ctrl-C may interrupt the main thread here. Python runs signal handlers after calls and backward jumps. Between
        taking the lock and releasing it there are none, because iterators make the calls. So the lock and the number of
        written bytes are never lost, and a handler that disconnects finds the lock free. (Since Python 3.14, `with`
        calls the lock. Python 3.10 runs handlers after forward jumps, too.)
        """
        if not self._direct or self.arrived:
            return False
        size, is_message = len(item.frame), not item.audio and item.is_message
        # Not blocking: the lock may be held by this thread, which a finalizer has interrupted.
        acquire, write = map(self.lock.acquire, (False,)), map(self._sock.send, (item.frame,))
        begun = held = False
        try:
            (held,) = acquire
            begun = held and self._direct  # False if another thread was faster
            if begun:
                self._begun, self._direct = item, False
                (item.written,) = write
                if item.written == size:
                    self.bytes_sent += size
                    self.audio_sent += item.audio
                    self._after_message += size
                    if is_message:
                        self._after_message = 0
                    self._begun, self._direct = None, True
        except OSError:  # the next write raises it again
            return True
        finally:
            if held:
                self.lock.release()
        return begun

    def flush(self, room: bool = False) -> bool:
        """Write the frames that have arrived.

        Args:
            room: the socket may take more bytes than before. On the I/O thread.

        Returns:
            True if the I/O thread must be woken: because of a failure, or to continue to write.
        """
        wake_io = False
        while True:
            # Not blocking, because the holder may be interrupted by a finalizer that waits for this thread.
            if not self.lock.acquire(blocking=False):
                return wake_io
            try:
                self._accept_arrived()
                wake_io = self._continue(room) or wake_io
            finally:
                self.lock.release()
            if not self.arrived:
                return wake_io

    def _continue(self, room: bool = False) -> bool:
        """Write the queued frames, and return as `flush()` does. Under the lock."""
        done = (room or not self.blocked) and self._write()
        self._limit_queue()
        wake_io = self.failure is not None
        if not (done or self.blocked):
            self.progress_at = monotonic()
            wake_io = True
        self.blocked = not done
        self._direct = done and self._accepts and self.is_plain
        return wake_io

    def _accept_arrived(self) -> None:
        if self._accepts:
            self._queue_arrived()
        else:
            self.arrived.clear()  # `_arrive()` has refused them

    def _queue_arrived(self) -> None:
        while True:
            try:
                item = self.arrived.popleft()
            except IndexError:  # not checked before, because a finalizer may run in between
                return
            if not self._queue:
                self.bytes_waiting, self._queued_audio = 0, 0.0
            self._queue.append(item)
            self.bytes_waiting += item.size
            self._queued_audio += item.audio

    def _limit_queue(self) -> None:
        self._drop_audio(_MAX_QUEUED_AUDIO)
        if self.bytes_waiting > self._max_bytes:
            self.failure = DisconnectedError(
                f"More than {self._max_bytes} bytes are waiting to be sent; the server does not read fast enough. "
                "Send less, or wait for the bot's answers"
            )

    def _drop_audio(self, limit: float) -> None:
        """Drop the oldest unsent audio in the queue until at most `limit` seconds are queued."""
        if self._queued_audio <= limit:
            return
        kept: deque[Outgoing] = deque()
        for item in self._queue:
            if item.audio and self._queued_audio > limit:
                self._queued_audio -= item.audio
                self.bytes_waiting -= item.size
                # Audio that is dropped at the close is not counted as lost.
                self.audio_unsent += item.audio if limit else 0.0
            else:
                kept.append(item)
        self._queue = kept

    def _write(self) -> bool:
        """Write the bytes that the socket takes, for a time slice; return True if nothing is left to write."""
        began = 0.0
        while self.failure is None:
            if self._begun is None and not self._queue:
                return True
            if began and self.progress_at - began >= _TIME_SLICE:
                return False  # the I/O thread continues, as if the socket took no more
            if self._begun is None:
                self._begun = item = self._queue.popleft()
                self.bytes_waiting -= item.size
                self._queued_audio = max(0.0, self._queued_audio - item.audio) if self._queue else 0.0
            item = self._begun
            try:
                rest = item.rest[:_CHUNK_BYTES]
                item.written += self._sock.send(rest) if self.is_plain else by_itself(self._sock.send, rest)
            except WOULD_BLOCK:
                return False
            except (OSError, ValueError) as error:
                self.failure = error
                return False  # the I/O thread handles it
            self.progress_at = monotonic()
            began = began or self.progress_at
            if not item.rest:
                self._begun = None
                self._count(item)
        return False

    def _count(self, item: Outgoing) -> None:
        """Count a frame that was written completely."""
        size = len(item.frame)
        self.bytes_sent += size
        self.audio_sent += item.audio
        self._after_message = 0 if item.is_message else self._after_message + self._on_wire(size)

    def _on_wire(self, size: int) -> int:
        """Return how many bytes the system was given for `size` bytes of a frame."""
        return size + self._overhead * math.ceil(size / _CHUNK_BYTES)


def _overhead_of(sock: socket.socket) -> int:
    """Return how many bytes TLS adds to each write; 0 without TLS."""
    cipher = sock.cipher() if hasattr(sock, "cipher") else None  # not by class, because gevent has one of its own
    if cipher is None:
        return 0
    return next(size for part, size in _RECORD_BYTES.items() if part in (cipher[1], "") or part in cipher[0])


def _unacknowledged(sock: socket.socket) -> int:
    """Return the number of sent bytes that the peer has not acknowledged; 0 if the system does not report it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # the socket is closed
            return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    return 0
