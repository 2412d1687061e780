"""One open WebSocket, served by the io thread."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

from ..concurrency.deadline import Deadline, on_main_thread
from ..concurrency.descriptors import DONT_WAIT, closed_error
from ..concurrency.io_thread import IOThread, Timer
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import register_for_fork
from ..errors import DisconnectedError, ProtocolError
from ..protocol.states import CloseInfo
from ..protocol.text import one_line
from .base import TransportStats
from .websocket_frames import CLOSE, PING, PONG, FrameError, FrameReader, masked_frame
from .websocket_writer import WOULD_BLOCK, FrameWriter, Outgoing

logger: logging.Logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
# After a read that gave so much the socket is asked again, which in a flood is cheaper than to go by the selector. One
# that gave less than a TLS record can hold has emptied the TLS object, of which the selector knows nothing.
_MORE_BYTES = 4 * 1024
# After so many seconds the other connections get their turn.
_TURN = 0.01
# More than about this may not wait for the io thread to look at it, or a program that sends in a loop would fill the
# memory before any limit is looked at. The io thread runs nothing that blocks, so that takes no time to speak of.
_MAX_ARRIVED_BYTES = 256 * 1024
_CATCH_UP_TIMEOUT = 1.0
# How much the system may hold that it has not sent. By default that is megabytes: minutes of audio that could not be
# dropped any more, and so much has to leave before the socket takes more that a slow line would look like a dead one.
_UNSENT_BYTES = 32 * 1024
# In a burst of messages one look in so many seconds must do: the look is a system call as each message is. An
# application needs longer to close all descriptors and to open others.
_BURST = 0.0001
# A close looks this often, for each span of its patience, whether bytes have left: the system tells only who asks.
_LOOKS = 10


class WebSocketConnection:
    """An open WebSocket: bytes in and out without blocking, the close handshake, and how it ended.

    Every callback is called on the io thread.

    Args:
        sock: connected, after the handshake; owned from now on.
        io: serves it.
        on_messages: called with text or binary messages that came in a row: their opcode and payloads.
        on_closed: called once, when the connection has ended, whoever ended it.
        max_message_bytes: limit of an inbound message.
        max_queued_bytes: limit of what may wait to be sent; more fails the connection.
        stall_timeout: seconds that queued bytes may wait without one of them leaving, before the connection fails;
            None: no limit.
        ping_interval: seconds of silence after which the peer is pinged; None: never.
        ping_timeout: seconds that it may then remain silent before the connection fails; None: no limit.
    """

    def __init__(
        self,
        sock: socket.socket,
        io: IOThread,
        *,
        on_messages: Callable[[int, list[bytes]], None],
        on_closed: Callable[[CloseInfo], None],
        max_message_bytes: int,
        max_queued_bytes: int,
        stall_timeout: float | None,
        ping_interval: float | None = None,
        ping_timeout: float | None = 10.0,
    ) -> None:
        sock.setblocking(False)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with contextlib.suppress(OSError):  # it is not TCP
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
        # All but the last are the io thread's. How the connection will end once the peer has answered our close frame,
        # and how it has ended:
        self._leaving: CloseInfo | None = None
        self._info: CloseInfo | None = None
        self._stall_timer: Timer | None = None
        self._ping_timer: Timer | None = None
        self._pinged_at = 0.0
        self._ping: bytes | None = None  # the payload of the one that waits for its answer
        self._heard_at = 0.0  # 0.0: nobody listens yet
        self._round_trip: float | None = None
        self._watching_writes = False
        self._reading_on = False  # a command that goes on reading is on its way
        self._inbox: Iterator[tuple[int, list[bytes]]] = iter(())  # what was read and not handed out yet
        self._bytes_received = 0
        #: Once it has ended: how many messages have not reached the peer, at least, and how many bytes of them.
        self.unsent: tuple[int, int] = (0, 0)
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
        if not self._writer.guard.intact_within(_BURST) and self._info is None:
            self._io.call(self._lose_descriptor)
            raise closed_error()
        item = Outgoing(masked_frame(opcode, payload), audio)
        if self._writer.take(item):
            self._io.call(self._wait_for_room, self)
            if on_main_thread() and self._writer.arrived * item.size > _MAX_ARRIVED_BYTES:
                caught_up = Latch()
                self._io.call(caught_up.set)
                caught_up.wait(Deadline(_CATCH_UP_TIMEOUT))
        if item.refused:
            raise DisconnectedError("The connection is closed; call connect() again", initiator="network")

    def close(self, patience: float, limit: float = math.inf, *, code: int = 1000) -> None:
        """Send what waits, save audio, and close: politely if the peer lets it, else hard. Not on the io thread.

        Args:
            patience: seconds without a byte leaving, or the peer's close frame, after which it is closed hard; 0: at
                once.
            limit: seconds after which it is closed hard though bytes leave.
            code: of the close frame.
        """
        leaving = CloseInfo(initiator="client")
        limit = limit if patience > 0 else 0.0
        ends_at = time.monotonic() + limit
        self._io.call(lambda: self._send_close(code, leaving), self)
        self._io.call(lambda: self._end_close(leaving, patience, ends_at), self)
        # The io thread runs nothing that blocks, so it is closed in time; the wait is bounded all the same.
        self._closed.wait(Deadline(limit + 1.0))

    @property
    def info(self) -> CloseInfo | None:
        """How the connection ended; None while it is open."""
        return self._info

    def stats(self) -> TransportStats:
        """What it carried so far."""
        return TransportStats(
            bytes_sent=self._writer.bytes_sent,
            bytes_received=self._bytes_received,
            audio_sent=self._writer.audio_sent,
            audio_unsent=self._writer.audio_unsent,
            bytes_waiting=self._writer.bytes_waiting,
            round_trip=self._round_trip,
        )

    # -- io thread ----------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._sock.fileno()

    def on_readable(self) -> None:
        """Read, unless that goes on by itself already."""
        if not self._reading_on and self._info is None:
            self._read(time.monotonic() + _TURN)

    def on_writable(self) -> None:
        """Go on with what the socket did not take."""
        if self._info is not None:
            return
        writer = self._writer
        writer.flush(room=True)
        if writer.failure is not None:
            self._finish(self._broken(writer.failure))
            return
        blocked = writer.blocked  # read once: a sender may set it meanwhile, and then tells
        if blocked != self._watching_writes and self._heard_at:
            self._io.watch_writes(self, blocked)
            self._watching_writes = blocked

    def on_failure(self, error: BaseException) -> None:
        self._finish(CloseInfo(initiator="network", error=error))

    @property
    def intact(self) -> bool:
        return self._info is not None or self._writer.guard.intact  # at its end it closes the descriptor itself

    def _lose_descriptor(self) -> None:
        self.on_failure(closed_error())

    def _start(self, first: bytes) -> None:
        if self._info is not None:
            return
        if not self.intact:
            self._lose_descriptor()
            return
        self._io.register(self)
        self._heard_at = time.monotonic()
        if self._ping_interval is not None:
            self._look_in(self._ping_interval)
        self._bytes_received += len(first)
        self._inbox = self._reader.runs(first)
        self._go_on()  # frames may have come in the same TLS record as the handshake's answer

    def _go_on(self) -> None:
        """Hand out what is left of the last turn, and what the socket has by now."""
        self._reading_on = False
        turn_ends = time.monotonic() + _TURN
        if self._deliver(turn_ends):
            self._read(turn_ends)

    def _read(self, turn_ends: float) -> None:
        more = True
        while more:
            try:
                if self._writer.is_plain:
                    data = self._sock.recv(_READ_BYTES, DONT_WAIT)
                else:
                    with self._writer.lock:
                        data = self._sock.recv(_READ_BYTES)
            except WOULD_BLOCK:
                break
            except (OSError, ValueError) as error:
                self._finish(self._broken(error))
                return
            if not data:
                self._finish(self._broken(None))
                return
            now = time.monotonic()
            more = len(data) >= _MORE_BYTES
            self._heard_at = now
            self._bytes_received += len(data)
            self._inbox = self._reader.runs(data)
            if more and now >= turn_ends:
                self._read_on()
                break
            more = self._deliver(turn_ends) and more
        if self._writer.blocked or self._writer.arrived:
            self._wait_for_room()  # a TLS write may have waited for what was just read, or for its end

    def _read_on(self) -> None:
        """It is the others' turn."""
        self._reading_on = True
        self._io.call(self._go_on, self)

    def _deliver(self, turn_ends: float) -> bool:
        """Hand out what was read. False: the connection has ended, or there is more but the turn is over."""
        try:
            for opcode, payloads in self._inbox:
                if opcode < CLOSE:
                    self._on_messages(opcode, payloads)
                else:
                    self._take_control(opcode, payloads[0])
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

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            with contextlib.suppress(DisconnectedError):
                self.send(PONG, payload)
        elif opcode == PONG:
            if payload == self._ping:
                self._ping = None  # a peer that repeats its answer would set a timer each time
                self._round_trip = self._heard_at - struct.unpack("!d", payload)[0]
                if self._ping_interval is not None:
                    self._look_in(self._ping_interval)  # not when the answer was due: an idle thread sleeps on
        elif opcode == CLOSE:
            self._receive_close(payload)
        if self._writer.failure is not None:
            self._finish(self._broken(self._writer.failure))

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
        self._writer.take_last(Outgoing(masked_frame(CLOSE, struct.pack("!H", code)), 0.0))
        self._wait_for_room()

    def _end_close(
        self, leaving: CloseInfo, patience: float, ends_at: float, seen: tuple[int, float] = (-1, 0.0)
    ) -> None:
        """Close hard when no byte has left for `patience` seconds, or at `ends_at`.

        Args:
            seen: how many bytes were left at the last look, and since when.
        """
        now = self._catch_up()
        if self._info is not None:
            return
        left = self._writer.bytes_left
        if left != seen[0]:
            seen = left, now
        due = min(ends_at, seen[1] + patience)
        if now >= due:
            self._finish(leaving)
            return
        look = partial(self._end_close, leaving, patience, ends_at, seen)
        self._io.call_later(min(due - now, patience / _LOOKS), look, self)

    def _wait_for_room(self) -> None:
        self.on_writable()
        if self._stall_timeout is None or self._stall_timer is not None:
            return
        if self._writer.blocked and self._info is None:
            self._stall_timer = self._io.call_later(self._stall_timeout, self._check_stall, self)

    def _catch_up(self) -> float:
        """Read and write what the socket has and takes by now, before a timer judges the peer.

        A timer may run late, because the process was stopped or busy, and then precedes what the peer did meanwhile.

        Returns:
            The time up to which the peer can be judged. It is taken first, because this thread may be held up after it
            has read, too.
        """
        now = time.monotonic()
        if self._heard_at:
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
                "the session is ended"
            )
            self._finish(self._broken(error))
        else:
            self._stall_timer = self._io.call_later(self._stall_timeout - waited, self._check_stall, self)

    def _watch_silence(self) -> None:
        """Ping a peer that has been silent for the interval; one that remains so is dead."""
        now = self._catch_up()
        if self._info is not None or self._ping_interval is None or self._leaving is not None:
            return  # a close has limits of its own
        unanswered = self._pinged_at > self._heard_at
        if unanswered and self._writer.blocked:
            self._pinged_at = now  # the ping may be among what waits; the stall timer watches over that
        elif unanswered and now - self._pinged_at >= self._ping_timeout:
            error = DisconnectedError(
                f"The server has been silent for {now - self._heard_at:.1f} s and has not answered a ping; "
                "the session is ended"
            )
            self._finish(self._broken(error))
            return
        elif not unanswered and now - self._heard_at >= self._ping_interval:
            unanswered, self._ping = True, struct.pack("!d", now)
            with contextlib.suppress(DisconnectedError):
                self.send(PING, self._ping)
            self._pinged_at = time.monotonic()  # after the send, which the process may have been stopped in
        due = min(self._pinged_at + self._ping_timeout, now + self._ping_interval)
        if not unanswered:
            due = self._heard_at + self._ping_interval
        self._look_in(due - now)

    def _look_in(self, seconds: float) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._ping_timer = self._io.call_later(seconds, self._watch_silence, self)

    def _broken(self, error: BaseException | None) -> CloseInfo:
        """How to call an end without a close frame: as planned, if the connection was being closed."""
        if not self.intact:
            error = closed_error()
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
        self.unsent = self._writer.end()
        self._inbox = iter(())
        self._closed.set()
        self._on_closed(info)

    def after_fork_in_child(self) -> None:
        # The connection is the parent's: close the copy, without shutdown() and without touching a lock.
        self._writer.after_fork_in_child()
        self._info = CloseInfo(initiator="network")
        self._closed.set()
        with contextlib.suppress(OSError):
            intact = self._writer.guard.intact
            number = self._sock.detach()
            if intact:
                socket.close(number)
