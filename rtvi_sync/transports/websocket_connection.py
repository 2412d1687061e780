"""One open WebSocket, served by the io thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

import attrs
from websocket import ABNF

from ..concurrency.deadline import Deadline, wait_for_event
from ..concurrency.io_thread import IOThread, Timer
from ..concurrency.lifecycle import register_for_fork
from ..errors import DisconnectedError
from ..protocol.states import CloseInfo
from .websocket_frames import FrameError, FrameReader

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
# After so many seconds the other connections get their turn.
_TURN = 0.01
# One TLS record. What was handed to SSL_write and did not fit must be handed to it again, unchanged, before anything
# else.
_CHUNK_BYTES = 16 * 1024
_MAX_QUEUED_AUDIO = 1.0  # seconds
# What a queued frame costs besides its bytes: many small ones must not get past the limit of what may be queued.
_ITEM_BYTES = 128
# How much the system may hold that it has not sent. By default that is megabytes: minutes of audio that could not be
# dropped any more, and so much has to leave before the socket takes more that a slow line would look like a dead one.
_UNSENT_BYTES = 32 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NOTHING = memoryview(b"")


@attrs.define(eq=False)
class _Outgoing:
    frame: bytes
    audio: float  # seconds of audio in it; 0 for anything else

    @property
    def size(self) -> int:
        return len(self.frame) + _ITEM_BYTES


class WebSocketConnection:
    """An open WebSocket: bytes in and out without blocking, the close handshake, and how it ended.

    Every callback is called on the io thread.

    Args:
        sock: connected, after the handshake; owned from now on.
        io: serves it.
        on_message: called with opcode and payload of each text or binary message.
        on_closed: called once, when the connection has ended, whoever ended it.
        max_message_bytes: limit of an inbound message.
        max_queued_bytes: limit of what may wait to be sent; more fails the connection.
        stall_timeout: seconds that queued bytes may wait without one of them leaving, before the connection fails.
    """

    def __init__(
        self,
        sock: socket.socket,
        io: IOThread,
        *,
        on_message: Callable[[int, bytes], None],
        on_closed: Callable[[CloseInfo], None],
        max_message_bytes: int,
        max_queued_bytes: int,
        stall_timeout: float,
    ) -> None:
        sock.setblocking(False)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):  # it is not TCP
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        self._sock = sock
        self._io = io
        self._on_message = on_message
        self._on_closed = on_closed
        self._max_queued_bytes = max_queued_bytes
        self._stall_timeout = stall_timeout
        self._reader = FrameReader(max_message_bytes)
        self._closed = threading.Event()
        # Both are set on the io thread: how the connection will end once the peer has answered our close frame, and how
        # it has ended.
        self._leaving: CloseInfo | None = None
        self._info: CloseInfo | None = None
        self._stall_timer: Timer | None = None
        self._watching_writes = False
        self._reading_on = False  # a command that goes on reading is on its way
        # Guards everything below and, because a TLS object is not for two threads, the use of the socket. Any thread
        # may hold it; only non-blocking socket calls are made under it.
        self._lock = threading.Lock()
        self._queue: deque[_Outgoing] = deque()
        self._queued_bytes = 0
        self._queued_audio = 0.0
        self._begun = _NOTHING  # what is left of the frame that is being written
        self._blocked = False  # the io thread will go on writing
        self._progress_at = 0.0
        self._accepts = True  # False from the close frame on
        self._failure: Exception | None = None  # found by a sending thread, acted on by the io thread
        self.dropped_audio = 0.0
        register_for_fork(self)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def start(self, first: bytes = b"") -> None:
        """Begin to serve. `first` is what was read of the stream already."""
        self._io.call(lambda: self._start(first), self)

    def send(self, opcode: int, payload: bytes, audio: float = 0.0) -> None:
        """Send a message without waiting: what the socket does not take now, the io thread sends later.

        Args:
            audio: seconds of audio in it. Over 1 s of queued audio the oldest is dropped and counted.

        Raises:
            DisconnectedError: the connection has ended or is being closed.
        """
        frame = ABNF.create_frame(payload, opcode).format()
        with self._lock:
            if not self._accepts or self._failure is not None:
                raise DisconnectedError("The connection is closed; call connect() again", initiator="network")
            self._enqueue(_Outgoing(frame, audio))
            must_tell_io = not self._blocked and not self._write()
            self._blocked = self._blocked or must_tell_io
            self._limit_queue()
            must_tell_io = must_tell_io or self._failure is not None
        if must_tell_io:
            self._io.call(self._wait_for_room, self)

    def close(self, timeout: float, code: int = 1000) -> None:
        """Close politely within `timeout` seconds, else hard. Returns when it is closed. Not on the io thread."""
        deadline = Deadline(timeout)
        leaving = CloseInfo(initiator="client")
        self._io.call(lambda: self._send_close(code, leaving), self)
        if timeout > 0 and wait_for_event(self._closed, deadline):
            return
        self._io.call(lambda: self._finish(leaving))
        # The io thread runs nothing that blocks, so this is a matter of microseconds; bounded all the same.
        wait_for_event(self._closed, Deadline(1.0))

    @property
    def info(self) -> CloseInfo | None:
        """How the connection ended; None while it is open."""
        return self._info

    # -- io thread ----------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._sock.fileno()

    def on_readable(self) -> None:
        """Read, unless that goes on by itself already."""
        if not self._reading_on:
            self._read()

    def on_writable(self) -> None:
        """Go on with what the socket did not take."""
        if self._info is not None:
            return
        with self._lock:
            self._blocked = not self._write()
            blocked, failure = self._blocked, self._failure
        if failure is not None:
            self._finish(self._broken(failure))
        elif blocked != self._watching_writes:
            self._io.watch_writes(self, blocked)
            self._watching_writes = blocked

    def on_failure(self, error: BaseException) -> None:
        self._finish(CloseInfo(initiator="network", error=error))

    def _start(self, first: bytes) -> None:
        if self._info is not None:
            return
        self._io.register(self)
        self._reader.feed(first)
        self._read()  # frames may have come in the same TLS record as the handshake's answer

    def _read(self) -> None:
        """Read until the socket has no more: bytes may wait inside the TLS object, where no selector sees them."""
        self._reading_on = False
        turn_ends = time.monotonic() + _TURN
        data = b""  # what the last turn left in the reader comes first
        while self._deliver(turn_ends):
            if data and time.monotonic() >= turn_ends:
                self._read_on()
                break
            try:
                with self._lock:
                    data = self._sock.recv(_READ_BYTES)
            except _WOULD_BLOCK:
                break
            except (OSError, ValueError) as error:
                self._finish(self._broken(error))
                return
            if not data:
                self._finish(self._broken(None))
                return
            self._reader.feed(data)
        if self._blocked:
            self.on_writable()  # a TLS write may have waited for what was just read

    def _read_on(self) -> None:
        """It is the others' turn."""
        self._reading_on = True
        self._io.call(self._read, self)

    def _deliver(self, turn_ends: float) -> bool:
        """Hand out what was read. False: the connection has ended, or there is more but the turn is over."""
        try:
            for opcode, payload in self._reader.messages():
                self._take(opcode, payload)
                if self._info is not None:
                    return False
                if time.monotonic() >= turn_ends:
                    self._read_on()
                    return False
        except FrameError as error:
            info = CloseInfo(code=error.code, reason=str(error), initiator="client", error=error)
            self._send_close(error.code, info)
            self._finish(info)
        return self._info is None

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT):
            self._on_message(opcode, payload)
        elif opcode == ABNF.OPCODE_PING:
            with contextlib.suppress(DisconnectedError):
                self.send(ABNF.OPCODE_PONG, payload)
        elif opcode == ABNF.OPCODE_CLOSE:
            self._receive_close(payload)
        if self._failure is not None:
            self._finish(self._broken(self._failure))

    def _receive_close(self, payload: bytes) -> None:
        code = struct.unpack("!H", payload[:2])[0] if payload else 1005
        initiator = "server" if self._leaving is None else "client"
        info = CloseInfo(code=code, reason=payload[2:].decode("utf-8", "replace"), initiator=initiator)
        self._send_close(code if code != 1005 else 1000, info)
        self._finish(info)

    def _send_close(self, code: int, leaving: CloseInfo) -> None:
        """The close frame goes after what is queued, save audio: nobody wants to hear the rest."""
        if self._info is not None or self._leaving is not None:
            return
        self._leaving = leaving
        with self._lock:
            self._accepts = False
            self._drop_audio(0.0)
            self._enqueue(_Outgoing(ABNF.create_frame(struct.pack("!H", code), ABNF.OPCODE_CLOSE).format(), 0.0))
            done = self._blocked or self._write()
            self._blocked = not done or self._blocked
        if not done:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self.on_writable()
        if self._blocked and self._stall_timer is None and self._info is None:
            self._stall_timer = self._io.call_later(self._stall_timeout, self._check_stall, self)

    def _check_stall(self) -> None:
        self._stall_timer = None
        if self._info is not None or not self._blocked:
            return
        waited = time.monotonic() - self._progress_at
        if waited >= self._stall_timeout:
            error = DisconnectedError(
                f"The server has read nothing for {waited:.1f} s while data was waiting to be sent; "
                "the session is ended"
            )
            self._finish(CloseInfo(initiator="network", error=error))
        else:
            self._stall_timer = self._io.call_later(self._stall_timeout - waited, self._check_stall, self)

    def _broken(self, error: BaseException | None) -> CloseInfo:
        """How to call an end without a close frame: as planned, if the connection was being closed."""
        return self._leaving or CloseInfo(initiator="network", error=error)

    def _finish(self, info: CloseInfo) -> None:
        if self._info is not None:
            return
        self._info = info
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        # Unregister first: a forked child may hold a copy of the descriptor, which would keep it in the selector.
        self._io.unregister(self)
        with self._lock:
            self._accepts = False
            self._queue.clear()
            self._begun = _NOTHING
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown(), which forgets that the socket is encrypted.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            self._sock.close()
        self._closed.set()
        self._on_closed(info)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _enqueue(self, item: _Outgoing) -> None:
        if not self._blocked:
            self._progress_at = time.monotonic()
        self._queue.append(item)
        self._queued_bytes += item.size
        self._queued_audio += item.audio

    def _limit_queue(self) -> None:
        self._drop_audio(_MAX_QUEUED_AUDIO)
        if self._queued_bytes > self._max_queued_bytes:
            self._failure = DisconnectedError(
                f"More than {self._max_queued_bytes} bytes are waiting to be sent; the server does not read fast enough"
            )

    def _drop_audio(self, limit: float) -> None:
        """Drop the oldest audio that no byte of has left, until at most `limit` seconds are queued."""
        if self._queued_audio <= limit:
            return
        kept: deque[_Outgoing] = deque()
        for item in self._queue:
            if item.audio and self._queued_audio > limit:
                self._queued_audio -= item.audio
                self._queued_bytes -= item.size
                # What is queued at the end nobody misses.
                self.dropped_audio += item.audio if limit else 0.0
            else:
                kept.append(item)
        self._queue = kept

    def _write(self) -> bool:
        """Write what the socket takes. True if nothing is left to write."""
        while self._failure is None:
            if not self._begun:
                if not self._queue:
                    return True
                item = self._queue.popleft()
                self._queued_bytes -= item.size
                self._queued_audio = max(0.0, self._queued_audio - item.audio) if self._queue else 0.0
                self._begun = memoryview(item.frame)
            try:
                sent = self._sock.send(self._begun[:_CHUNK_BYTES])
            except _WOULD_BLOCK:
                return False
            except (OSError, ValueError) as error:
                self._failure = error
                break
            self._begun = self._begun[sent:]
            self._progress_at = time.monotonic()
        return False  # the io thread acts on the failure

    def after_fork_in_child(self) -> None:
        # The connection is the parent's: close the copy, without shutdown() and without touching a lock.
        self._lock = threading.Lock()
        self._accepts = False
        self._info = CloseInfo(initiator="network")
        self._closed = threading.Event()
        self._closed.set()
        with contextlib.suppress(OSError):
            socket.close(self._sock.detach())
