"""A custom transport: RTVI over TCP, one JSON document per line. docs/guides/transport.md goes through it."""

import contextlib
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

from rtvi_sync import AbortSignal, CloseInfo, DisconnectedError, InvalidTransportParamsError, RTVIMessage, Transport

LIMIT_BYTES = 1_048_576  # of a line from the bot, and of the lines still to be read by it, if the system allows


class LineTransport(Transport):
    """A connection to a bot at ``tcp://host:port`` (IPv4): `url`, or the ``"url"`` that `connect()` is given."""

    name = "lines"
    max_message_size = 65_536

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        # Guards `_sock`. Any thread may hold it, for a moment; re-entrant, because a finalizer may send in between.
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._reader = threading.Thread()

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Connect, and make the thread that reads."""
        url = urlsplit(self._url or (auth_bundle or {}).get("url", ""))
        if url.scheme != "tcp" or not url.hostname or not url.port:
            raise InvalidTransportParamsError("LineTransport needs a URL such as tcp://localhost:7070")
        sock = socket.socket()
        try:
            sock.settimeout(10)  # for an abort in the moment before connect(), when there is nothing to shut down yet
            detach = abort.attach(sock)  # a later abort shuts the socket down, which ends connect()
            try:
                sock.connect((url.hostname, url.port))
            finally:
                detach()
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LIMIT_BYTES)
            with self._lock:
                abort.raise_if_aborted()  # disconnect() may have returned by then, and another session started
                self._sock, self._reader = sock, threading.Thread(target=self._read, args=(sock,), daemon=True)
        except BaseException:
            sock.close()
            raise

    def send_ready_message(self) -> None:
        """Start to read, and send the ready message."""
        with self._lock:
            if self._sock is not None:
                self._reader.start()  # not in connect(): messages would be delivered before the event `connected`
        super().send_ready_message()

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message as one line."""
        line = self.serialize(message).encode() + b"\n"
        with self._lock:
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    if self._sock.send(line, socket.MSG_DONTWAIT) == len(line):
                        return
                _shut_down(self._sock)  # the bot reads nothing, and half a line may be sent; the reader reports the end
        raise DisconnectedError("The line to the bot is closed; call connect() for a new one")

    def disconnect(self) -> None:
        """Close the connection."""
        with self._lock:
            sock, self._sock = self._sock, None
        if sock is not None:
            for how in (socket.SHUT_WR, socket.SHUT_RDWR):  # first send the rest, and let the bot close
                _shut_down(sock, how)
                if self._reader.is_alive():
                    self._reader.join(1)
            sock.close()

    def _read(self, sock: socket.socket) -> None:
        on_message, on_closed = self.on_message, self.options.on_closed  # of this session
        end = CloseInfo(initiator="network")
        with contextlib.suppress(OSError), sock.makefile("rb") as lines:
            while (line := lines.readline(LIMIT_BYTES)).endswith(b"\n"):
                on_message(line)
            if not line:
                end = CloseInfo(initiator="server")
            elif len(line) == LIMIT_BYTES:
                end = CloseInfo(initiator="server", error=DisconnectedError("The bot sent a line that is too long"))
        _shut_down(sock)  # from here on send_message() raises
        if self._sock is sock:  # otherwise this side closed the connection, and nothing is reported
            on_closed(end)


def _shut_down(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)
