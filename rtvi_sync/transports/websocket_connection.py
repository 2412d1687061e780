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

from ..concurrency.deadline import Deadline, on_main_thread
from ..concurrency.gate import Gate
from ..concurrency.io_thread import IOThread, Timer
from ..concurrency.lifecycle import register_for_fork
from ..errors import DisconnectedError, ProtocolError
from ..protocol.states import CloseInfo
from ..protocol.text import one_line
from .base import TransportStats
from .websocket_frames import FrameError, FrameReader

logger: logging.Logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
# After so many seconds the other connections get their turn.
_TURN = 0.01
# One TLS record. What was handed to SSL_write and did not fit must be handed to it again, unchanged, before anything
# else.
_CHUNK_BYTES = 16 * 1024
_MAX_QUEUED_AUDIO = 1.0  # seconds
# More than about this may not wait for the io thread to look at it, or a program that sends in a loop would fill the
# memory before any limit is looked at. The io thread runs nothing that blocks, so that takes no time to speak of.
_MAX_ARRIVED_BYTES = 256 * 1024
_CATCH_UP_TIMEOUT = 1.0
# What a queued frame costs besides its bytes: many small ones must not get past the limit of what may be queued.
_ITEM_BYTES = 128
# How much the system may hold that it has not sent. By default that is megabytes: minutes of audio that could not be
# dropped any more, and so much has to leave before the socket takes more that a slow line would look like a dead one.
_UNSENT_BYTES = 32 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@attrs.define(eq=False)
class _Outgoing:
    """A frame on its way out, and how far it is."""

    frame: bytes
    audio: float  # seconds of audio in it; 0 for anything else
    refused: bool = False  # it came after the close frame
    written: int = 0  # bytes of it that have left

    @property
    def size(self) -> int:
        return len(self.frame) + _ITEM_BYTES

    @property
    def rest(self) -> memoryview:
        return memoryview(self.frame)[self.written :]


class WebSocketConnection:
    """An open WebSocket: bytes in and out without blocking, the close handshake, and how it ended.

    Every callback is called on the io thread.

    `send()` must work wherever the program is: a signal handler or a finalizer may call it in the midst of another
    `send()` on the same thread, and wait for the answer. Hence: what is sent arrives in a queue that needs no lock. The
    main thread, which signals strike, leaves the writing to the io thread; and if a finalizer comes while the socket is
    being written on the same thread, the writer looks into the queue again.

    Args:
        sock: connected, after the handshake; owned from now on.
        io: serves it.
        on_message: called with opcode and payload of each text or binary message.
        on_closed: called once, when the connection has ended, whoever ended it.
        max_message_bytes: limit of an inbound message.
        max_queued_bytes: limit of what may wait to be sent; more fails the connection.
        stall_timeout: seconds that queued bytes may wait without one of them leaving, before the connection fails.
        ping_interval: seconds of silence after which the peer is pinged; None: never.
        ping_timeout: seconds that it may then remain silent before the connection fails.
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
        ping_interval: float | None = None,
        ping_timeout: float = 10.0,
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
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._reader = FrameReader(max_message_bytes)
        self._closed = Gate()
        # All but the last are the io thread's. How the connection will end once the peer has answered our close frame,
        # and how it has ended:
        self._leaving: CloseInfo | None = None
        self._info: CloseInfo | None = None
        self._stall_timer: Timer | None = None
        self._ping_timer: Timer | None = None
        self._pinged_at = 0.0
        self._ping = b""  # the last one's payload
        self._heard_at = 0.0
        self._round_trip: float | None = None
        self._watching_writes = False
        self._reading_on = False  # a command that goes on reading is on its way
        self._bytes_received = 0
        self._arrived: deque[_Outgoing] = deque()  # sent, and not seen by the writer yet
        # Guards everything below and, because a TLS object is not for two threads, the use of the socket. Any thread
        # may hold it; only non-blocking socket calls are made under it. Re-entrant for the sake of `_writing`.
        self._lock = threading.RLock()
        self._writing = False  # a thread that finds it set under the lock has interrupted itself
        self._queue: deque[_Outgoing] = deque()
        self._queued_bytes = 0
        self._queued_audio = 0.0
        self._begun: _Outgoing | None = None  # what is being written; no longer in the queue
        self._blocked = False  # the io thread will go on writing
        self._progress_at = 0.0
        self._accepts = True  # False from the close frame on
        self._failure: Exception | None = None  # found by a sending thread, acted on by the io thread
        self._bytes_sent = 0
        self._audio_sent = 0.0
        self._audio_unsent = 0.0
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
        item = _Outgoing(ABNF.create_frame(payload, opcode).format(), audio)
        if self._accepts and self._failure is None:
            self._arrived.append(item)
            if on_main_thread():
                self._io.call(self._wait_for_room, self)
                if len(self._arrived) * item.size > _MAX_ARRIVED_BYTES:
                    caught_up = Gate()
                    self._io.call(caught_up.set)
                    caught_up.wait(Deadline(_CATCH_UP_TIMEOUT))
            elif self._flush():
                self._io.call(self._wait_for_room, self)
        else:
            item.refused = True
        if item.refused:
            raise DisconnectedError("The connection is closed; call connect() again", initiator="network")

    def close(self, timeout: float, code: int = 1000) -> None:
        """Close politely within `timeout` seconds, else hard. Returns when it is closed. Not on the io thread."""
        deadline = Deadline(timeout)
        leaving = CloseInfo(initiator="client")
        self._io.call(lambda: self._send_close(code, leaving), self)
        if timeout > 0 and self._closed.wait(deadline):
            return
        self._io.call(lambda: self._finish(leaving))
        # The io thread runs nothing that blocks, so this is a matter of microseconds; bounded all the same.
        self._closed.wait(Deadline(1.0))

    @property
    def info(self) -> CloseInfo | None:
        """How the connection ended; None while it is open."""
        return self._info

    def stats(self) -> TransportStats:
        """What it carried so far."""
        return TransportStats(
            bytes_sent=self._bytes_sent,
            bytes_received=self._bytes_received,
            audio_sent=self._audio_sent,
            audio_unsent=self._audio_unsent,
            bytes_waiting=self._queued_bytes,
            round_trip=self._round_trip,
        )

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
        self._flush(room=True)
        if self._failure is not None:
            self._finish(self._broken(self._failure))
        elif self._blocked != self._watching_writes:
            self._io.watch_writes(self, self._blocked)
            self._watching_writes = self._blocked

    def on_failure(self, error: BaseException) -> None:
        self._finish(CloseInfo(initiator="network", error=error))

    def _start(self, first: bytes) -> None:
        if self._info is not None:
            return
        self._io.register(self)
        self._heard_at = time.monotonic()
        if self._ping_interval is not None:
            self._ping_timer = self._io.call_later(self._ping_interval, self._watch_silence, self)
        self._bytes_received += len(first)
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
            self._heard_at = time.monotonic()
            self._bytes_received += len(data)
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
            breach = ProtocolError(str(error))  # under the name that programs know
            info = CloseInfo(code=error.code, reason=str(error), initiator="client", error=breach)
            self._send_close(error.code, info)
            self._finish(info)
        return self._info is None

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT):
            self._on_message(opcode, payload)
        elif opcode == ABNF.OPCODE_PING:
            with contextlib.suppress(DisconnectedError):
                self.send(ABNF.OPCODE_PONG, payload)
        elif opcode == ABNF.OPCODE_PONG:
            if payload and payload == self._ping:
                self._round_trip = self._heard_at - struct.unpack("!d", payload)[0]
        elif opcode == ABNF.OPCODE_CLOSE:
            self._receive_close(payload)
        if self._failure is not None:
            self._finish(self._broken(self._failure))

    def _receive_close(self, payload: bytes) -> None:
        code = struct.unpack("!H", payload[:2])[0] if payload else 1005
        initiator = "server" if self._leaving is None else "client"
        # It is for humans, and many a program prints it as it is.
        reason = one_line(payload[2:].decode("utf-8", "replace"))
        info = CloseInfo(code=code, reason=reason, initiator=initiator)
        self._send_close(code if code != 1005 else 1000, info)
        self._finish(info)

    def _send_close(self, code: int, leaving: CloseInfo) -> None:
        """The close frame goes after what is queued, save audio: nobody wants to hear the rest."""
        if self._info is not None or self._leaving is not None:
            return
        self._leaving = leaving
        close = _Outgoing(ABNF.create_frame(struct.pack("!H", code), ABNF.OPCODE_CLOSE).format(), 0.0)
        with self._lock:
            self._take_arrived()
            self._accepts = False
            self._drop_audio(0.0)
            self._queue.append(close)
            self._queued_bytes += close.size
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

    def _watch_silence(self) -> None:
        """Ping a peer that has been silent for the interval; one that remains so is dead."""
        self._ping_timer = None
        if self._info is not None or self._ping_interval is None:
            return
        now = time.monotonic()
        unanswered = self._pinged_at > self._heard_at
        if unanswered and self._blocked:
            self._pinged_at = now  # the ping may be among what waits; the stall timer watches over that
        elif unanswered and now - self._pinged_at >= self._ping_timeout:
            error = DisconnectedError(
                f"The server has been silent for {now - self._heard_at:.1f} s and has not answered a ping; "
                "the session is ended"
            )
            self._finish(self._broken(error))
            return
        elif not unanswered and now - self._heard_at >= self._ping_interval:
            unanswered, self._pinged_at, self._ping = True, now, struct.pack("!d", now)
            with contextlib.suppress(DisconnectedError):
                self.send(ABNF.OPCODE_PING, self._ping)
        due = min(self._pinged_at + self._ping_timeout, now + self._ping_interval)
        if not unanswered:
            due = self._heard_at + self._ping_interval
        self._ping_timer = self._io.call_later(due - now, self._watch_silence, self)

    def _broken(self, error: BaseException | None) -> CloseInfo:
        """How to call an end without a close frame: as planned, if the connection was being closed."""
        return self._leaving or CloseInfo(initiator="network", error=error)

    def _finish(self, info: CloseInfo) -> None:
        if self._info is not None:
            return
        self._info = info
        for timer in (self._stall_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        # Unregister first: a forked child may hold a copy of the descriptor, which would keep it in the selector.
        self._io.unregister(self)
        with self._lock:
            self._accepts = False
            self._queue.clear()
            self._begun = None
            self._queued_bytes, self._queued_audio = 0, 0.0
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown(), which forgets that the socket is encrypted.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            self._sock.close()
        self._closed.set()
        self._on_closed(info)

    # -- writing: any thread ------------------------------------------------------------------------------------------

    def _flush(self, room: bool = False) -> bool:
        """Write what has arrived. True if the io thread has to be told: of a failure, or that it is to go on.

        Args:
            room: the socket may take more of what it did not take before. On the io thread.
        """
        must_tell_io = False
        while True:
            with self._lock:
                if self._writing:
                    return must_tell_io
                try:
                    self._writing = True
                    self._take_arrived()
                    done = (room or not self._blocked) and self._write()
                    self._limit_queue()
                    must_tell_io = must_tell_io or self._failure is not None or not (done or self._blocked)
                    self._blocked = not done
                finally:
                    self._writing = False
            if not self._arrived:
                return must_tell_io

    def _take_arrived(self) -> None:
        if not self._accepts:
            for item in self._arrived:
                item.refused = True
            self._arrived.clear()
            return
        while True:
            try:
                item = self._arrived.popleft()
            except IndexError:  # a look before would not do: a finalizer may come in between
                return
            if not self._queue:
                self._queued_bytes, self._queued_audio = 0, 0.0
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
                self._audio_unsent += item.audio if limit else 0.0
            else:
                kept.append(item)
        self._queue = kept

    def _write(self) -> bool:
        """Write what the socket takes. True if nothing is left to write."""
        while self._failure is None:
            if self._begun is None:
                if not self._queue:
                    return True
                self._begun = item = self._queue.popleft()
                self._queued_bytes -= item.size
                self._queued_audio = max(0.0, self._queued_audio - item.audio) if self._queue else 0.0
            item = self._begun
            try:
                item.written += self._sock.send(item.rest[:_CHUNK_BYTES])
            except _WOULD_BLOCK:
                return False
            except (OSError, ValueError) as error:
                self._failure = error
                return False  # the io thread acts on it
            self._progress_at = time.monotonic()
            if not item.rest:
                self._begun = None
                self._bytes_sent += len(item.frame)
                self._audio_sent += item.audio
        return False

    def after_fork_in_child(self) -> None:
        # The connection is the parent's: close the copy, without shutdown() and without touching a lock.
        self._lock = threading.RLock()
        self._accepts = False
        self._info = CloseInfo(initiator="network")
        self._closed.set()
        with contextlib.suppress(OSError):
            socket.close(self._sock.detach())
