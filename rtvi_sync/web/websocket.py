"""The server's end of a page's WebSocket, over simple-websocket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..errors import MissingExtraError
from .refusal import MAX_BODY_BYTES, Refusal

try:
    import simple_websocket
    import wsproto.utilities
except ModuleNotFoundError as _error:
    if _error.name not in ("simple_websocket", "wsproto"):
        raise
    raise MissingExtraError("A page that talks", "flask") from _error

# Seconds in which the peer must read what is sent, and send something.
_SOCKET_TIMEOUT: Final = 10.0
#: What a page is told whose server cannot open a WebSocket, or has no thread for it.
NO_WEBSOCKET: Final = (
    "This web server cannot keep a WebSocket open. Serve with threads: "
    "gunicorn --worker-class gthread --workers 1 --threads 80"
)
# Bytes that were received and that the application has not taken, and bytes that a message counts beside its own.
_MAX_BACKLOG, _MESSAGE_BYTES = 1024 * 1024, 1024
# The headers of the handshake. Without Sec-WebSocket-Extensions, because audio that is deflated is hardly shorter.
_HEADERS: Final = frozenset(
    {"HTTP_HOST", "HTTP_UPGRADE", "HTTP_CONNECTION", "HTTP_SEC_WEBSOCKET_KEY", "HTTP_SEC_WEBSOCKET_VERSION"}
)
#: What a send raises if the connection has ended, or is about to.
CLOSED: Final = (OSError, simple_websocket.ConnectionClosed, wsproto.utilities.ProtocolError)


class _SharedSocket:
    """A socket that two threads write to, and whose descriptor is the web server's to close.

    Args:
        real: the web server's socket.
        is_copy: it is a duplicate of the server's.
        backlog: returns the number of bytes that wait for the application.
    """

    def __init__(self, real: socket.socket, is_copy: bool, backlog: Callable[[], int]) -> None:
        self._socket = real
        self._is_copy = is_copy
        self._backlog = backlog
        # Guards writing, so that the frames of two threads are not mixed. Held while the peer does not read.
        self._writing = threading.Lock()
        self._timeout = real.gettimeout()
        real.settimeout(_SOCKET_TIMEOUT)

    def recv(self, size: int) -> bytes:
        """Receive up to `size` bytes."""
        if self._backlog() > _MAX_BACKLOG:
            raise ConnectionAbortedError("The page sends faster than it can be served")
        return self._socket.recv(size)

    def send(self, data: bytes) -> int:
        """Send all of it."""
        with self._writing:
            self._socket.sendall(data)
        return len(data)

    def shut(self) -> None:
        """Shut the connection down; whatever is blocked on it returns. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Leave the connection to the web server."""
        self._socket.settimeout(self._timeout)
        if self._is_copy:
            self._socket.close()

    def close(self) -> None:
        """Shut the connection down, so that nothing is written to it any more. Called by the thread that reads."""
        self.shut()
        if self._is_copy:
            self._socket.close()


class PageSocket(simple_websocket.Server):  # type: ignore[misc]
    """A WebSocket that a page has opened. A thread of its own reads it.

    Args:
        environ: of the request.

    Raises:
        Refusal: the web server gives no socket, or the request is no handshake.
        OSError: the connection is gone.
    """

    sock: Any  # the web server's, and then `_shared`
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
            if self._shared is not None:  # it may have been answered
                self._shared.close()
                raise
            if not isinstance(error, RuntimeError):
                raise
            raise Refusal(501, "no_websocket", NO_WEBSOCKET) from error

    def handshake(self) -> None:
        """Answer the request. Called by the constructor, once there is a socket."""
        shared = _SharedSocket(self.sock, self.mode == "gevent", self._count_backlog)
        self._shared = self.sock = shared
        super().handshake()

    def _count_backlog(self) -> int:
        return sum(len(message) + _MESSAGE_BYTES for message in self.input_buffer)

    def wait(self, timeout: float) -> None:
        """Wait until the connection has ended, which the page does when it is told to close."""
        self.thread.join(timeout)

    def shut(self) -> None:
        """Shut the connection down, and wait until the thread that reads it has ended."""
        assert self._shared is not None
        self._shared.shut()
        self.thread.join(_SOCKET_TIMEOUT)
