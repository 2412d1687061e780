"""The server's end of a page's WebSocket, over simple-websocket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..concurrency.lock import new_lock
from ..errors import MissingExtraError
from .refusal import MAX_BODY_BYTES, Refusal

try:
    import simple_websocket
    import wsproto.utilities
except ModuleNotFoundError as _error:
    if _error.name not in ("simple_websocket", "wsproto"):
        raise
    raise MissingExtraError("A page that talks", "flask") from _error

# Seconds after which a peer that does not read, or sends nothing, counts as gone.
_SOCKET_TIMEOUT: Final = 10.0
#: Message for a page whose server cannot open a WebSocket, or has no thread for one.
NO_WEBSOCKET: Final = (
    "This web server cannot keep a WebSocket open. Serve with threads: "
    "gunicorn --worker-class gthread --workers 1 --threads 80"
)
# Maximum bytes received but not yet handled, and the overhead counted for each message.
_MAX_BACKLOG, _MESSAGE_BYTES = 1024 * 1024, 1024
# The headers of the handshake. Sec-WebSocket-Extensions is left out, because deflate hardly shortens audio.
_HEADERS: Final = frozenset(
    {"HTTP_HOST", "HTTP_UPGRADE", "HTTP_CONNECTION", "HTTP_SEC_WEBSOCKET_KEY", "HTTP_SEC_WEBSOCKET_VERSION"}
)
#: Exceptions of `send()`, `receive()` and `close()` on a connection that has closed or is closing.
CLOSED: Final = (OSError, simple_websocket.ConnectionClosed, wsproto.utilities.ProtocolError)


class _SharedSocket:
    """A socket that two threads write to. The web server closes its descriptor.

    Args:
        real: the web server's socket, or a duplicate of it.
        is_copy: True for a duplicate, which this object closes.
        backlog: returns the number of received bytes that are not yet handled.
    """

    def __init__(self, real: socket.socket, is_copy: bool, backlog: Callable[[], int]) -> None:
        self._socket = real
        self._is_copy = is_copy
        self._backlog = backlog
        # Guards writing, so that the frames of two threads stay apart. Held while a write blocks, for up to 10 s.
        self._writing = new_lock()
        self._timeout = real.gettimeout()
        real.settimeout(_SOCKET_TIMEOUT)

    def recv(self, size: int) -> bytes:
        """Receive up to `size` bytes."""
        if self._backlog() > _MAX_BACKLOG:
            raise ConnectionAbortedError("The page sends faster than the server handles its messages")
        return self._socket.recv(size)

    def send(self, data: bytes) -> int:
        """Send all of `data`; return its length."""
        with self._writing:
            self._socket.sendall(data)
        return len(data)

    def shut(self) -> None:
        """Shut the connection down, and unblock the threads that use it. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Return the connection to the web server, which answers the request."""
        self._socket.settimeout(self._timeout)
        if self._is_copy:
            self._socket.close()

    def close(self) -> None:
        """Shut the connection down, so that nothing more is written. Called by the reading thread."""
        self.shut()
        if self._is_copy:
            self._socket.close()


class PageSocket(simple_websocket.Server):  # type: ignore[misc]
    """A WebSocket that a page opened. A separate thread reads it.

    Args:
        environ: the WSGI environment of the request.

    Raises:
        Refusal: the web server provides no socket, or the request is no valid handshake.
        OSError: the connection was lost.
    """

    sock: Any  # the web server's socket until the handshake, then `_shared`
    _shared: _SharedSocket | None = None

    def __init__(self, environ: Mapping[str, Any]) -> None:
        kept = {name: value for name, value in environ.items() if not name.startswith("HTTP_") or name in _HEADERS}
        threads = partial(threading.Thread, daemon=True)
        try:
            super().__init__(kept, max_message_size=MAX_BODY_BYTES, thread_class=threads)
        except wsproto.utilities.ProtocolError as error:
            if self._shared is not None:
                self._shared.release()
            raise Refusal(400, "bad_request", "The request is no handshake of a WebSocket.") from error
        except BaseException as error:
            if self._shared is not None:  # the handshake may have been answered
                self._shared.close()
                raise
            if not isinstance(error, RuntimeError):
                raise
            raise Refusal(501, "no_websocket", NO_WEBSOCKET) from error

    def handshake(self) -> None:
        """Answer the request. Called by the base class's constructor, once it has a socket."""
        shared = _SharedSocket(self.sock, self.mode == "gevent", self._count_backlog)
        self._shared = self.sock = shared
        super().handshake()

    def _count_backlog(self) -> int:
        return sum(len(message) + _MESSAGE_BYTES for message in self.input_buffer)

    def wait(self, timeout: float) -> None:
        """Wait until the page has closed the connection, at most `timeout` seconds."""
        self.thread.join(timeout)

    def shut(self) -> None:
        """Shut the connection down, and wait for the reading thread to end."""
        assert self._shared is not None
        self._shared.shut()
        self.thread.join(_SOCKET_TIMEOUT)
