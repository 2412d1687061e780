"""WebSocket server of the embedded bot, built on `websockets`. Import it late, because the library loads slowly."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.testing.embedded_bot.server import TCPServer, cut, listen

logger: logging.Logger = package_logger(__name__)

# At DEBUG, websockets logs every request and message of a client, including its token; its INFO lines would clutter the
# output of an application that asks for warnings.
logger.setLevel(logging.WARNING)


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a log entry reports a fault. Clients may abandon a handshake, so that is none.

    websockets before 17 logs an abandoned handshake as an error.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, (EOFError, ConnectionError)):
        error = error.__cause__
    return error is None


logger.addFilter(_is_fault)
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_CLOSE_TIMEOUT: Final = 2.0
_DONE: Final = 1000
_FAILED: Final = 1011


class BotConnection:
    """One client's connection after its handshake. Any thread may call it; only one may receive."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        request = connection.request
        assert request is not None
        self.path: Final[str] = request.path
        self.headers: Final[Mapping[str, str]] = {name.lower(): value for name, value in request.headers.raw_items()}

    def send(self, data: bytes | str) -> None:
        """Send one binary or text message; block while the peer doesn't read.

        Raises:
            DisconnectedError: The connection has ended.
        """
        try:
            self._connection.send(data)
        except ConnectionClosed as error:
            raise _disconnected(error) from error

    def receive(self, timeout: float | None) -> bytes | str:
        """Return the next message; block up to `timeout` seconds, or without limit for None.

        Raises:
            TimeoutError: No message arrived in time.
            DisconnectedError: The connection has ended.
        """
        try:
            return self._connection.recv(timeout)
        except ConnectionClosed as error:
            raise _disconnected(error) from error

    def close(self, code: int, reason: str) -> None:
        """Perform the closing handshake; wait up to `_CLOSE_TIMEOUT` (2 s) for the peer's close frame."""
        self._connection.close(code, reason)

    def drop(self) -> None:
        """End the connection without a close frame. The peer sees the end of the stream."""
        cut(self._connection.socket)


class WebSocketServer:
    """A server that runs `serve_client(connection)` for each WebSocket client, each on its own thread.

    Args:
        host: Address to listen on; the port is any free one.
        ssl_context: TLS context; None for no TLS.
        serve_client: Function that serves a client. When it returns, the connection closes with 1000; if it raises,
            1011.
    """

    def __init__(
        self, host: str, ssl_context: ssl.SSLContext | None, serve_client: Callable[[BotConnection], None]
    ) -> None:
        self._serve_client = serve_client
        self._server = serve(
            self._serve_connection,
            sock=listen(host, 0),
            ssl=ssl_context,
            compression=None,
            close_timeout=_CLOSE_TIMEOUT,
            max_size=_MAX_MESSAGE_BYTES,
            logger=logger,
        )
        # The library's own serve_forever() leaves a descriptor to the garbage collector, and cannot cut clients before
        # the end of their handshake.
        self._tcp_server = TCPServer(self._server.socket, "bot-session", self._server.handler)
        self.port: Final = self._tcp_server.port

    def stop(self, timeout: float) -> None:
        """Cut every connection and stop listening. Blocks until all threads have ended, up to `timeout` seconds."""
        self._tcp_server.stop(timeout)
        # The library opens these to wake serve_forever(), which never runs here. They are sockets since websockets 17,
        # descriptors before, and missing on Windows.
        for end in (getattr(self._server, "shutdown_watcher", None), getattr(self._server, "shutdown_notifier", None)):
            if isinstance(end, int):
                os.close(end)
            elif end is not None:
                end.close()

    def _serve_connection(self, connection: ServerConnection) -> None:
        # A client on a busy machine may answer a ping late, which must not fail the tests of an application.
        connection.ping_timeout = None
        name = threading.current_thread().name
        helpers = {"receive": connection.recv_events_thread, "ping": getattr(connection, "keepalive_thread", None)}
        for role, thread in helpers.items():
            if thread is not None:
                thread.name = name.replace("session", role)
        code = _FAILED
        try:
            self._serve_client(BotConnection(connection))
            code = _DONE
        finally:
            connection.close(code)
            for thread in helpers.values():
                if thread is not None:
                    thread.join(_CLOSE_TIMEOUT)


def _disconnected(error: ConnectionClosed) -> DisconnectedError:
    close = error.rcvd or error.sent
    if close is None:
        return DisconnectedError("The connection broke without a close frame", initiator="network")
    initiator = "client" if error.rcvd and (not error.sent or error.rcvd_then_sent) else "server"
    return DisconnectedError(str(error), code=close.code, reason=close.reason, initiator=initiator)
