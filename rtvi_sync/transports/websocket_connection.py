"""One open WebSocket, served by the I/O thread."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline, on_main_thread
from ..concurrency.descriptors import DONT_WAIT, TooManySocketsError, closed_error
from ..concurrency.io_thread import IOThread, Timer
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..errors import DisconnectedError, ProtocolError, TransportStartError
from ..net.tls import WOULD_BLOCK, by_itself
from ..protocol.states import BY_CLIENT, CloseInfo
from ..protocol.text import one_line
from .base import TransportStats
from .websocket_frames import CLOSE, PING, PONG, FrameError, FrameReader, masked_frame
from .websocket_writer import FrameWriter, Outgoing

logger: logging.Logger = package_logger(__name__)

_READ_BYTES = 64 * 1024
# After a read of at least this size the socket is read again, which under load is cheaper than a call of the selector.
# A read that is smaller than a TLS record has emptied the TLS object, whose buffer the selector does not know.
_FULL_READ_BYTES = 4 * 1024
_TIME_SLICE = 0.01  # seconds, after which the I/O thread serves the other connections
# A bound of the bytes that wait for the I/O thread. Without it, an application that sends in a loop would fill the
# memory before the limit of the queue is checked. The wait is short, because the I/O thread never blocks.
_MAX_ARRIVED_BYTES = 256 * 1024
_CATCH_UP_TIMEOUT = 1.0
# A bound of the unsent bytes in the system's buffer. The default is megabytes: minutes of audio that could not be
# dropped any more, and on a slow line the socket would take no byte for so long that the peer would seem dead.
_UNSENT_BYTES = 32 * 1024
_CHECKS = 10  # of a close per `idle_timeout`, whether bytes have been sent: the system has no event for that
# The I/O thread never blocks, so it closes a socket in time. The wait for that is still bounded, by the part of
# the transport's time that `time_to_close()` leaves, and in seconds.
_CLOSING_SHARE, _CLOSING_TIMEOUT, _CLOSING_LEAST = 1 / 9, 1.0, 0.1


class WebSocketConnection:
    """An open WebSocket: non-blocking reads and writes, keep-alive, and the close handshake.

    Every callback is called on the I/O thread.

    Args:
        sock: connected socket, after the handshake. The connection owns it from now on.
        io: the I/O thread that serves it.
        on_messages: handlers by opcode, text or binary, called with the payloads of consecutive messages of that kind.
        on_closed: called once, when the connection has ended, by either side.
        max_message_bytes: limit of an inbound message, in bytes.
        max_queued_bytes: limit of the bytes that wait to be sent; more bytes fail the connection.
        stall_timeout: seconds that queued bytes may wait without any byte being sent, before the connection fails.
            None: no limit.
        ping_interval: seconds of silence before the peer is pinged. None: never.
        ping_timeout: seconds that the peer may then stay silent before the connection fails. None: no limit.
    """

    def __init__(
        self,
        sock: socket.socket,
        io: IOThread,
        *,
        on_messages: Mapping[int, Callable[[list[bytes]], None]],
        on_closed: Callable[[CloseInfo], None],
        max_message_bytes: int,
        max_queued_bytes: int,
        stall_timeout: float | None,
        ping_interval: float | None = None,
        ping_timeout: float | None = 10.0,
    ) -> None:
        sock.setblocking(False)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):  # the socket is not TCP
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        self._sock = sock
        self._io = io
        self._on_messages = on_messages
        self._on_closed = on_closed
        self._stall_timeout = stall_timeout
        self._ping_interval = ping_interval
        self._ping_timeout = math.inf if ping_timeout is None else ping_timeout
        self._reader = FrameReader(max_message_bytes)
        self._writer = FrameWriter(sock, max_queued_bytes)
        self._closed = Latch()
        # Only the I/O thread uses these fields, except `unsent`.
        self._info: CloseInfo | None = None  # how it has ended
        self._stall_timer: Timer | None = None
        self._ping_timer: Timer | None = None
        self._pinged_at = 0.0
        self._ping: bytes | None = None  # the payload of the ping that waits for its pong
        self._received_at = 0.0  # monotonic time; 0.0: reading has not started
        self._round_trip: float | None = None
        self._watching_writes = False
        self._resume_pending = False  # `_resume()` is scheduled
        self._inbox: Iterator[tuple[int, list[bytes]]] = iter(())  # read and not delivered yet
        self._bytes_received = 0
        #: True once a message has arrived.
        self.has_received: bool = False
        #: After the end: at least how many messages have not reached the peer, and how many bytes of them.
        self.unsent: tuple[int, int] = (0, 0)
        register_for_fork(self)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def start(self, first: bytes = b"") -> None:
        """Start reading. `first` has the bytes that were read behind the handshake."""
        self._io.call(lambda: self._start(first), self)

    def send(self, opcode: int, payload: bytes, audio: float = 0.0) -> None:
        """Send a message without blocking. If the socket takes only a part, the I/O thread sends the rest later.

        On the main thread it waits up to 1 s if too many bytes wait for the I/O thread.

        Args:
            opcode: opcode of the message or control frame.
            payload: its bytes.
            audio: seconds of audio in it. If more than 1 s of audio is queued, the oldest is dropped and counted.

        Raises:
            DisconnectedError: the connection has ended or is being closed.
        """
        item = Outgoing(masked_frame(opcode, payload), audio)
        if self._writer.send(item):
            self._io.call(self._wait_for_room, self)
            if on_main_thread() and len(self._writer.arrived) * item.size > _MAX_ARRIVED_BYTES:
                caught_up = Latch()
                self._io.call(caught_up.set)
                caught_up.wait(Deadline(_CATCH_UP_TIMEOUT))
        if item.refused:
            # The session may not know yet how the connection ends: a server that refuses a client does so at once.
            info = self._info or self._writer.closing
            raise (
                info.as_error()
                if info is not None
                else DisconnectedError("The connection is closed; call connect() again", initiator="network")
            )

    def close(self, idle_timeout: float, limit: float = math.inf, *, code: int = 1000) -> bool:
        """Send the queued messages, without audio, and a close frame, and wait for the end. Not on the I/O thread.

        The I/O thread is woken by the peer's answer, and not before, unless the socket takes too little.

        Args:
            idle_timeout: seconds without a sent byte or the peer's close frame after which the socket is closed; 0:
                closed at once.
            limit: seconds after which the socket is closed even if bytes are still being sent.
            code: code of the close frame.

        Returns:
            False if the I/O thread has not closed it in time.
        """
        if self._io.detect_loss():
            return True  # the I/O thread may sleep, and ends the connection when a timer wakes it
        ends_at = monotonic() + (limit if idle_timeout > 0 else 0.0)
        if on_main_thread():  # at the exit; Ctrl-C could interrupt the write anywhere
            self._io.call(lambda: self._send_close(code, BY_CLIENT), self)
        else:
            self._send_close(code, BY_CLIENT)
        left, since = -1, 0.0  # the bytes that had not reached the peer at the last check, and since when
        given_up_at = math.inf
        while not self._closed.is_set():
            now, before = monotonic(), left
            left = self._writer.bytes_left
            since = since if left == before else now
            pause = min(ends_at, since + idle_timeout) - now
            if pause <= 0:
                self._io.call(partial(self._end_close, left, ends_at), self)
                # Measured from now if this thread is late, because the whole process was stopped.
                reserve = max(_CLOSING_LEAST, min(limit * _CLOSING_SHARE, _CLOSING_TIMEOUT))
                given_up_at = min(given_up_at, max(now, ends_at) + reserve)
                pause = given_up_at - now
                if pause <= 0:
                    return False
            self._closed.wait(Deadline(min(pause, idle_timeout / _CHECKS or pause)))
        return True

    @property
    def info(self) -> CloseInfo | None:
        """The end of the connection; None while it is open."""
        return self._info

    def stats(self) -> TransportStats:
        """Return the counters."""
        return TransportStats(
            bytes_sent=self._writer.bytes_sent,
            bytes_received=self._bytes_received,
            audio_sent=self._writer.audio_sent,
            audio_unsent=self._writer.audio_unsent,
            bytes_waiting=self._writer.bytes_waiting,
            round_trip=self._round_trip,
        )

    # -- I/O thread ---------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._sock.fileno()

    def on_readable(self) -> None:
        """Read, unless `_resume()` is scheduled."""
        if not self._resume_pending and self._info is None:
            self._read(monotonic() + _TIME_SLICE)

    def on_writable(self) -> None:
        """Write the bytes that the socket did not take before."""
        if self._info is not None:
            return
        writer = self._writer
        writer.flush(room=True)
        if writer.failure is not None:
            if self._received_at and writer.closing is None:
                self._resume()  # the server may have sent more, and a close frame, before it stopped reading
            self._finish(self._broken_info(writer.failure))
            return
        blocked = writer.blocked  # read once: a sender may set it at any time, and then wakes this thread
        if blocked != self._watching_writes and self._received_at:
            self._io.watch_writes(self, blocked)
            self._watching_writes = blocked

    def on_failure(self, error: BaseException) -> None:
        """End the connection because of an error of the I/O thread."""
        self._finish(CloseInfo(initiator="network", error=error))

    def _start(self, first: bytes) -> None:
        if self._info is not None:
            return
        try:
            self._io.register(self)
        except TooManySocketsError as error:
            self._finish(CloseInfo(error=TransportStartError(f"This session cannot be served: {error}")))
            return
        self._received_at = monotonic()
        if self._ping_interval is not None:
            self._schedule_ping_check(self._ping_interval)
        self._bytes_received += len(first)
        self._inbox = self._reader.runs(first)
        self._resume()  # without waiting for the selector: the TLS object may have frames behind the handshake's answer

    def _resume(self) -> None:
        """Deliver the rest of the last time slice, and the bytes that the socket has by now."""
        self._resume_pending = False
        slice_end = monotonic() + _TIME_SLICE
        if self._deliver(slice_end):
            self._read(slice_end)

    def _read(self, slice_end: float) -> None:
        more = True
        while more:
            try:
                if self._writer.is_plain:
                    data = self._sock.recv(_READ_BYTES, DONT_WAIT)
                else:
                    with self._writer.lock:
                        data = by_itself(self._sock.recv, _READ_BYTES)
            except WOULD_BLOCK:
                break
            except (OSError, ValueError) as error:
                self._finish(self._broken_info(error))
                return
            if not data:
                self._finish(self._broken_info(self._writer.failure))  # whose error recv() does not repeat
                return
            now = monotonic()
            more = len(data) >= _FULL_READ_BYTES
            self._received_at = now
            self._bytes_received += len(data)
            self._inbox = self._reader.runs(data)
            if more and now >= slice_end:
                self._resume_later()
                break
            more = self._deliver(slice_end) and more
        if (self._writer.blocked or self._writer.arrived) and self._writer.failure is None:
            self._wait_for_room()  # a TLS write may have waited for the bytes that were just read, or for the lock

    def _resume_later(self) -> None:
        """Continue after the other connections."""
        self._resume_pending = True
        self._io.call(self._resume, self)

    def _deliver(self, slice_end: float) -> bool:
        """Deliver the messages read so far; return False if the connection, or the time slice, has ended."""
        try:
            for opcode, payloads in self._inbox:
                if opcode < CLOSE:
                    self.has_received = True
                    self._on_messages[opcode](payloads)
                else:
                    self._take_control(opcode, payloads[0])
                if self._info is not None:
                    return False
                if monotonic() >= slice_end:
                    self._resume_later()
                    return False
        except FrameError as error:
            failure = ProtocolError(str(error))  # the public class
            info = CloseInfo(code=error.code, reason=str(error), initiator="client", error=failure)
            self._send_close(error.code, info)
            self._finish(info)
        return self._info is None

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            with contextlib.suppress(DisconnectedError):
                self.send(PONG, payload)
        elif opcode == PONG:
            if payload == self._ping:
                self._ping = None  # because each repeated pong of a peer would set a timer
                self._round_trip = self._received_at - struct.unpack("!d", payload)[0]
                if self._ping_interval is not None:
                    # Replaces the check at the pong's timeout, which would wake an idle thread for nothing.
                    self._schedule_ping_check(self._ping_interval)
        elif opcode == CLOSE:
            self._receive_close(payload)

    def _receive_close(self, payload: bytes) -> None:
        code = struct.unpack("!H", payload[:2])[0] if payload else 1005
        initiator = "server" if self._writer.closing is None else "client"
        # One line, because applications print the text as it is.
        reason = one_line(payload[2:].decode("utf-8", "replace"))
        info = CloseInfo(code=code, reason=reason, initiator=initiator)
        self._send_close(code if code != 1005 else 1000, info)
        self._finish(info)

    def _send_close(self, code: int, closing: CloseInfo) -> None:
        """Send a close frame behind the queued messages, without audio, unless one was sent. Not on the main thread."""
        if self._writer.closing is not None:
            return
        frame = Outgoing(masked_frame(CLOSE, struct.pack("!H", code)), 0.0)
        if self._writer.send_close(frame, closing):
            self._io.call(self._wait_for_room, self)

    def _end_close(self, left: int, ends_at: float) -> None:
        """Close the socket, unless fewer bytes than `left` are left, and it is not `ends_at` yet."""
        now = self._catch_up()
        if self._info is None and (now >= ends_at or self._writer.bytes_left == left):
            self._finish(self._writer.closing or BY_CLIENT)

    def _wait_for_room(self) -> None:
        self.on_writable()
        if self._stall_timeout is None or self._stall_timer is not None:
            return
        if self._writer.blocked and self._info is None:
            self._stall_timer = self._io.call_later(self._stall_timeout, self._check_stall, self)

    def _catch_up(self) -> float:
        """Read and write all that the socket has and takes by now, before a timer ends the connection.

        A late timer, of a process that was stopped or busy, would otherwise run before the peer's bytes are read.

        Returns:
            The time up to which the peer's activity is known. It is read first, because the process may be stopped
            after the read, too.
        """
        now = monotonic()
        if self._received_at:
            self.on_readable()
        self.on_writable()
        return now

    def _check_stall(self) -> None:
        now = self._catch_up()
        self._stall_timer = None
        if self._stall_timeout is None or self._info is not None or not self._writer.blocked:
            return
        waited = now - self._writer.progress_at
        if waited >= self._stall_timeout:
            error = DisconnectedError(
                f"The server has read nothing for {waited:.1f} s while data was waiting to be sent; "
                "the session is ended. Check the network, or raise stall_timeout"
            )
            self._finish(self._broken_info(error))
        else:
            self._stall_timer = self._io.call_later(self._stall_timeout - waited, self._check_stall, self)

    def _check_silence(self) -> None:
        """Ping a peer that was silent for the interval; if it remains silent, end the connection or ping again."""
        now = self._catch_up()
        if self._info is not None or self._ping_interval is None or self._writer.closing is not None:
            return  # a close has timeouts of its own
        unanswered = self._pinged_at > self._received_at
        if unanswered and self._writer.blocked:
            self._pinged_at = now  # the ping may be in the queue, which the stall timer checks
        elif unanswered and now - self._pinged_at >= self._ping_timeout:
            error = DisconnectedError(
                f"The server has been silent for {now - self._received_at:.1f} s and has not answered a ping; "
                "the session is ended. Check the network, or raise ping_timeout"
            )
            self._finish(self._broken_info(error))
            return
        elif (not unanswered or self._ping_timeout == math.inf) and now - self._received_at >= self._ping_interval:
            unanswered, self._ping = True, struct.pack("!d", now)
            with contextlib.suppress(DisconnectedError):
                self.send(PING, self._ping)
            self._pinged_at = monotonic()  # read after the send, during which the process may have been stopped
        due = min(self._pinged_at + self._ping_timeout, now + self._ping_interval)
        if not unanswered:
            due = self._received_at + self._ping_interval
        self._schedule_ping_check(due - now)

    def _schedule_ping_check(self, seconds: float) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._ping_timer = self._io.call_later(seconds, self._check_silence, self)

    def _broken_info(self, error: BaseException | None) -> CloseInfo:
        """Return how a connection without a close frame of the peer has ended: as planned, if it was being closed."""
        return self._writer.closing or CloseInfo(
            initiator="network", error=closed_error() if self._io.detect_loss() else error
        )

    def _finish(self, info: CloseInfo) -> None:
        if self._info is not None:
            return
        self._info = info
        for timer in (self._stall_timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        # Unregistered first, because a copy of the descriptor in a forked child would keep it in the selector.
        if not self._io.unregister(self):
            self._sock.detach()
        self.unsent = self._writer.end()
        self._inbox = iter(())
        self._closed.set()
        self._on_closed(info)

    def after_fork_in_child(self) -> None:
        """Close the copy of the parent's connection, without shutdown() and without a lock."""
        self._writer.after_fork_in_child()
        self._info = CloseInfo(initiator="network")
        self._closed.set()
        with contextlib.suppress(OSError):
            number = self._sock.detach()
            if not self._io.detect_loss():
                socket.close(number)
