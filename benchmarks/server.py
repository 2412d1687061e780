"""The server that all peers are measured against: one thread, one epoll, frames that are built in advance.

It runs in a process of its own (`python -m benchmarks.server [PEM]`), prints its address, and ends when its standard
input does. With a file that has a key and its certificate it speaks TLS. It needs Linux and the standard library. All
measured client libraries send it the same, RTVI over protobuf frames over WebSocket, and it must never limit them.

The server answers a client's ready message at once with its own. The client then sends its wishes as client messages,
each of which is answered at once by a server response; `Command` lists them. The address may ask, too:
`ws://.../?events=5&audio=50` gets 5 events and 50 audio frames a second from its ready message on, and `?mute` never
gets the bot's ready message.

A text that is sent is answered as by a bot of RTVI 2.0, which writes, and speaks by audio and by reports of its words:
`ANSWER_RATE` messages and frames a second.

An event is a `user-transcription`, as a bot sends it many times a sentence. Its `timestamp` is the time of this
machine's monotonic clock, which all processes share, at which it was sent: twenty characters that `float()` reads. An
audio frame that is sent at a rate has that time in its first samples.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import heapq
import itertools
import json
import math
import os
import resource
import select
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from .server_frames import (
    ANSWER_RATE,
    AUDIO_FRAMES,
    AUDIO_KIND,
    BINARY_OPCODE,
    END_OF_ANSWER,
    answer_frames,
    audio_frame,
    event_frame,
    framed,
    message_frame,
)

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CLOSE, _PING = 0x88, 0x89
# One for all sessions: allocating one of this size for each read would take longer than the read.
_INPUT: Final = memoryview(bytearray(1 << 18))
# About how many bytes of a burst are written at a time, so that other sessions are served in between.
_BLOCK_BYTES: Final = 1 << 17
# The most messages and frames that the server sends on schedule before it looks again for input.
_TURN: Final = 64
# The errors of a socket that cannot go on now.
_LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_MAKERS: Final = {"events": event_frame, "audio": audio_frame}


class Command:
    """The types of client messages that the server handles; their data are the arguments."""

    #: Answered with its own data.
    ECHO: Final = "echo"
    #: Answered with the server's time, `{"now": seconds}`.
    CLOCK: Final = "clock"
    #: Not answered.
    SILENCE: Final = "silence"
    #: `{"n": 1000}`: that many events as fast as the line takes them, all with one stamp; `{"n": 1000, "rate": 50}`: at
    #: this rate per second. Without `n` or with 0: until the end.
    EVENTS: Final = "events"
    #: The same for audio frames; a burst is followed by one event.
    AUDIO: Final = "audio"
    #: Answered with the audio heard in the `seconds` since the last such question, which was at `begun`: `frames`,
    #: `bytes`, times of the `first` and the `last`, the largest `gap` without any, including the gaps at both ends, and
    #: the `times` of all, if `{"times": true}` was asked for before. `late` is the server's own: the most seconds by
    #: which it was late with the messages that it sends this client at given times.
    HEARD: Final = "heard"
    #: Answered with the time at which the last answer to a text ended, `{"ended": seconds}`.
    ANSWERED: Final = "answered"
    #: The server ends the session.
    LEAVE: Final = "leave"


class Heard:
    """The statistics of the audio from one side."""

    __slots__ = ("begun", "bytes", "first", "frames", "gap", "last", "late", "seconds", "times")

    def __init__(self, last: float = 0.0, times: list[float] | None = None) -> None:
        self.frames = self.bytes = 0
        self.first = self.gap = self.late = 0.0
        self.last = last  # when audio arrived last; 0: never
        self.begun = time.monotonic()
        self.seconds = 0.0
        self.times = times

    def note(self, frames: int, size: int) -> None:
        """Count the frames of one read."""
        now = time.monotonic()
        if self.last:
            self.gap = max(self.gap, now - self.last)
        if not self.frames:
            self.first = now
        self.last = now
        self.frames += frames
        self.bytes += size
        if self.times is not None:
            self.times += [now] * frames

    def told(self) -> dict[str, Any]:
        """Return the statistics as an answer; no other method is called after it."""
        now = time.monotonic()
        self.seconds = now - self.begun
        if self.last:
            self.gap = max(self.gap, now - self.last)
        return {name: getattr(self, name) for name in self.__slots__}


class Session:
    """One client."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self.sock = sock
        self._rest = b""
        self._out: deque[memoryview] = deque()
        # Blocks of a burst, and how often each is still to be sent.
        self._burst: deque[tuple[bytes, int]] = deque()
        self._asked: dict[str, str] | None = None
        self._heard = Heard()
        self._waits_to_write = False
        self._answered = 0.0
        self.open = True

    def readable(self) -> None:
        """Read and handle the received bytes."""
        try:
            size = self.sock.recv_into(_INPUT)  # more than a record of TLS has, so none is left that epoll does not see
        except _LATER:
            return
        except OSError:
            size = 0
        if not size:
            self._server.drop(self)
            return
        data = bytes(_INPUT[:size])
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._asked is None:
            head, end, data = data.partition(b"\r\n\r\n")
            if not end:
                self._rest = head
                return
            self._welcome(head.decode("latin-1"))
        self._take_frames(data)

    def _welcome(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._asked = dict(parse_qsl(urlsplit(request.split(" ")[1]).query, keep_blank_values=True))
        accept = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + _MAGIC).digest())
        self.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    def _take_frames(self, data: bytes) -> None:
        position, end = 0, len(data)
        frames = size_of_audio = 0
        while end - position >= 6:
            first, (begin, size) = data[position], _place(data, position)
            if begin + size > end:
                break
            position = begin + size
            if first == BINARY_OPCODE and size and data[begin] ^ data[begin - 4] == AUDIO_KIND:
                frames += 1
                size_of_audio += size
                continue
            payload = _unmasked(data[begin - 4 : begin], data[begin:position])
            if frames:  # before the message that may ask for their number
                self._heard.note(frames, size_of_audio)
                frames = size_of_audio = 0
            if first == BINARY_OPCODE:
                self._take_message(payload)
            elif first == _PING:
                self.send(framed(payload, 0x8A))
            elif first == _CLOSE:
                self.send(framed(payload[:2], _CLOSE))
                self._server.drop(self)
                return
        self._rest = data[position:]
        if frames:
            self._heard.note(frames, size_of_audio)

    def _take_message(self, payload: bytes) -> None:
        message = json.loads(_content(_content(payload)))
        if message["type"] == "client-ready":
            self._begin(message["id"])
        elif message["type"] == "client-message":
            self._obey(message["id"], message["data"]["t"], message["data"].get("d"))
        elif message["type"] == "send-text":
            frames = answer_frames(message["data"]["content"])
            answer = itertools.chain(frames, self._end_of_answer())
            self._server.pace(self, answer.__next__, ANSWER_RATE, len(frames) + 1)

    def _end_of_answer(self) -> Iterator[bytes]:
        """Yield the last message, and note when."""
        self._answered = time.monotonic()
        yield END_OF_ANSWER

    def _begin(self, id: str) -> None:
        assert self._asked is not None
        if "mute" in self._asked:
            return
        self.send(message_frame("bot-ready", {"version": "2.0.0", "about": {"library": "benchmarks"}}, id))
        for kind, make in _MAKERS.items():
            if kind in self._asked:
                self._server.pace(self, make, float(self._asked[kind]), 0)

    def _obey(self, id: str, command: str, arguments: Any) -> None:
        if command == Command.LEAVE:
            self.send(framed((1000).to_bytes(2, "big"), _CLOSE))
            return
        if command == Command.SILENCE:
            return
        answer = arguments
        if command == Command.HEARD:
            answer = self._heard.told()
            self._heard = Heard(self._heard.last, [] if arguments and arguments.get("times") else None)
        elif command == Command.CLOCK:
            answer = {"now": time.monotonic()}
        elif command == Command.ANSWERED:
            answer = {"ended": self._answered}
        self.send(message_frame("server-response", {"t": command, "d": answer}, id))
        if command in _MAKERS:
            number, rate = int(arguments.get("n", 0)), float(arguments.get("rate", 0))
            if rate:
                self._server.pace(self, _MAKERS[command], rate, number)
            else:
                end = event_frame() if command == Command.AUDIO else b""
                self._begin_burst([event_frame()] if command == Command.EVENTS else AUDIO_FRAMES, number, end)

    def send_due(self, data: bytes, late: float) -> None:
        """Send as `send()` does, and record the delay in seconds."""
        if late > self._heard.late:
            self._heard.late = late
        self.send(data)

    def send(self, data: bytes) -> None:
        """Write immediately if the socket is writable, or buffer."""
        sent = 0 if self._out else self._sent(data)
        if sent < len(data):
            self._out.append(memoryview(data)[sent:])
            self._wait()

    def _begin_burst(self, frames: list[bytes], number: int, end: bytes) -> None:
        block = frames * max(1, _BLOCK_BYTES // len(b"".join(frames)))
        blocks = ((b"".join(block), number // len(block)), (b"".join(block[: number % len(block)]), 1), (end, 1))
        self._burst.extend((block, times) for block, times in blocks if block and times)
        self.writable()

    def writable(self) -> None:
        """Write as much of the buffer as the socket accepts, and one block of a burst."""
        if self._burst and not self._out:
            block, times = self._burst.popleft()
            self._out.append(memoryview(block))
            if times > 1:
                self._burst.appendleft((block, times - 1))
        while self._out:
            sent = self._sent(self._out[0])
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
                break
            self._out.popleft()
        self._wait()

    def _sent(self, data: bytes | memoryview) -> int:
        """Write as much as the socket accepts, and return the number of bytes."""
        try:
            return self.sock.send(data)
        except _LATER:
            return 0
        except OSError:
            self._server.drop(self)
            return 0

    def _wait(self) -> None:
        """Wait for the socket to be writable, if anything is left to write."""
        wait = bool(self._out or self._burst)
        if wait != self._waits_to_write and self.open:
            self._waits_to_write = wait
            self._server.watch(self, select.EPOLLIN | select.EPOLLOUT if wait else select.EPOLLIN)


def _place(data: bytes, position: int) -> tuple[int, int]:
    """Return the position and the size of the payload of a frame; the mask is before it."""
    size = data[position + 1] & 0x7F
    if size < 126:
        return position + 6, size
    if size == 126:
        return position + 8, int.from_bytes(data[position + 2 : position + 4], "big")
    return position + 14, int.from_bytes(data[position + 2 : position + 10], "big")


def _unmasked(mask: bytes, payload: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def _content(field: bytes) -> bytes:
    """Return the content of a length-delimited field that reaches to the end."""
    position = 1
    while field[position] & 0x80:
        position += 1
    return field[position + 1 :]


class Server:
    """All sessions, on one thread."""

    def __init__(self, port: int = 0, pem: str = "") -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if pem else None
        if self._tls is not None:
            self._tls.load_cert_chain(pem)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self.url: Final = f"{'wss' if pem else 'ws'}://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._epoll = select.epoll()
        self._sessions: dict[int, Session] = {}
        # [due time, unique number, session, maker, period, how many are left]: sorted by the first.
        self._paced: list[list[Any]] = []
        self._numbers = itertools.count()

    def serve(self) -> None:
        """Serve until standard input ends."""
        listener, stdin = self._listener.fileno(), sys.stdin.fileno()
        for descriptor in (listener, stdin):
            self._epoll.register(descriptor, select.EPOLLIN)
        while True:
            for descriptor, what in self._epoll.poll(self._send_due()):
                session = self._sessions.get(descriptor)
                if session is not None:
                    if what & ~select.EPOLLOUT:
                        session.readable()
                    if what & select.EPOLLOUT and session.open:
                        session.writable()
                elif descriptor == listener:
                    self._accept()
                elif descriptor == stdin and not os.read(stdin, 1):
                    return

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self._sessions[sock.fileno()] = Session(self, sock)
                self._epoll.register(sock, select.EPOLLIN)

    def watch(self, session: Session, what: int) -> None:
        """Select these events of a socket."""
        self._epoll.modify(session.sock, what)

    def drop(self, session: Session) -> None:
        """Close a connection."""
        if session.open:
            session.open = False
            del self._sessions[session.sock.fileno()]
            session.sock.close()

    def pace(self, session: Session, make: Callable[[], bytes], rate: float, number: int) -> None:
        """Send a client frames at a rate; without end if their number is 0."""
        period = 1 / rate
        heapq.heappush(
            self._paced, [time.monotonic() + period, next(self._numbers), session, make, period, number or math.inf]
        )

    def _send_due(self) -> float:
        """Send the due messages, at most a batch, and return the seconds until the next is due."""
        paced = self._paced
        for _ in range(_TURN):
            if not paced:
                return -1
            entry = paced[0]
            wait: float = entry[0] - time.monotonic()
            if wait > 0:
                return wait
            session = entry[2]
            if session.open:
                session.send_due(entry[3](), -wait)
                entry[5] -= 1
            if session.open and entry[5]:
                entry[0] += entry[4]
                heapq.heapreplace(paced, entry)
            else:
                heapq.heappop(paced)
        return 0


@contextlib.contextmanager
def running(before: Sequence[str] = (), pem: str = "") -> Iterator[str]:
    """Run a server in a process of its own within the block, and yield its address.

    Args:
        before: the prefix of its command, such as `taskset`.
        pem: file with the key and the certificate of a server that speaks TLS.
    """
    server = subprocess.Popen(
        [*before, sys.executable, "-m", "benchmarks.server", *([pem] if pem else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:  # waits for the process, which ends with its input
        yield server.stdout.readline().strip()
        server.stdin.close()


def main() -> None:
    """Run the server."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = Server(pem=sys.argv[1] if len(sys.argv) > 1 else "")
    print(server.url, flush=True)
    gc.disable()  # its pauses would count as a client's
    server.serve()


if __name__ == "__main__":
    main()
