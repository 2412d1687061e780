"""The opening handshake, by websocket-client behind a fence.

The fence is a socket-like object that websocket-client talks through. It bounds the answer, which the library reads
without limit; it hides Set-Cookie, which the library would keep in a jar that all connections of the process share;
and it reads in blocks, where the library reads byte by byte.
"""

from __future__ import annotations

import re
import socket
import ssl
from urllib.parse import SplitResult

from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

from ..concurrency.cancel import AbortSignal
from ..errors import InvalidTransportParamsError, TransportStartError
from .net import USER_AGENT, Detach, Network, open_stream

_MAX_HEADER_BYTES = 64 * 1024
_MAX_ERROR_BODY_BYTES = 16 * 1024
# websocket-client sends the cookies that its process-wide jar has for the URL's host. It is given this host, which no
# server can set a cookie for; the real one goes into the Host header.
_HOST_WITHOUT_COOKIES = "host-of-this-connection.invalid"


def open_websocket(
    url: SplitResult, headers: dict[str, str], network: Network, signal: AbortSignal
) -> tuple[socket.socket, bytes, Detach]:
    """Open a WebSocket.

    Returns:
        The socket, what was read of the stream after the handshake, and the function that ends the watch of `signal`.

    Raises:
        TransportStartError: it could not be opened; the message says why.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    where = f"{url.scheme}://{url.netloc}{url.path}"  # the query may hold a token
    try:
        sock, detach = open_stream(url, network, signal)
    except ssl.SSLCertVerificationError as error:
        signal.raise_if_aborted()
        raise TransportStartError(
            f"The certificate of {where} is not trusted: {error.verify_message}. "
            "For a private certificate authority pass ssl_context=ssl.create_default_context(cafile=...)."
        ) from error
    except ssl.SSLError as error:
        signal.raise_if_aborted()
        raise TransportStartError(_tls_message(where, error)) from error
    except OSError as error:
        signal.raise_if_aborted()
        raise TransportStartError(f"{where} cannot be reached: {error}") from error
    try:
        leftover = _handshake(sock, url, where, headers, signal)
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, leftover, detach


def _tls_message(where: str, error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST") or isinstance(
        error, ssl.SSLEOFError
    ):
        return (
            f"{where} says wss, but the server does not speak TLS ({error.reason or 'it hung up'}). "
            "Pipecat's runner advertises wss:// whenever its --host is not 'localhost': pass the plain address, "
            f"WebSocketTransport(ws_url={where.replace('wss://', 'ws://', 1)!r})."
        )
    return f"TLS with {where} failed: {error}"


def _handshake(
    sock: socket.socket, url: SplitResult, where: str, headers: dict[str, str], signal: AbortSignal
) -> bytes:
    fence = _Fence(sock, signal)
    resource = (url.path or "/") + (f"?{url.query}" if url.query else "")
    _check_headers(headers)
    lines = [f"{name}: {value}" for name, value in {"User-Agent": USER_AGENT, **headers}.items()]
    try:
        WebSocket(enable_multithread=False).connect(  # type: ignore[no-untyped-call]
            f"ws://{_HOST_WITHOUT_COOKIES}{resource}",
            socket=fence,
            host=url.netloc.rpartition("@")[2],
            header=lines,
            suppress_origin=True,
            redirect_limit=0,
            timeout=None,
        )
    except WebSocketBadStatusException as error:
        signal.raise_if_aborted()
        hint = {
            401: " The token may be missing or wrong.",
            403: " The token may be missing, wrong, expired, or used before (Pipecat's are good for one connection).",
            404: " Check the path of ws_url.",
        }.get(error.status_code, "")
        raise TransportStartError(
            f"{where} refused the WebSocket handshake with {error.status_code}.{hint}", status=error.status_code
        ) from None
    except (WebSocketException, OSError, ValueError) as error:
        signal.raise_if_aborted()
        raise TransportStartError(f"The WebSocket handshake with {where} failed: {error}") from None
    return fence.leftover


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise InvalidTransportParamsError(f"The header {name!r} is not a valid HTTP header")


class _Fence:
    """What websocket-client sees of the socket during the handshake."""

    def __init__(self, sock: socket.socket, signal: AbortSignal) -> None:
        self._sock = sock
        self._signal = signal
        self._head = b""  # of the answer: what websocket-client has not read yet
        self.leftover = b""  # what follows the head
        self._head_read = False
        self._body_bytes = 0

    def send(self, data: bytes) -> int:
        self._sock.settimeout(self._signal.remaining())
        self._sock.sendall(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self._head_read:
            self._read_head()
        if self._head:
            part, self._head = self._head[:size], self._head[size:]
            return part
        # Only the body of a refusal is read further.
        self._body_bytes += size
        if self._body_bytes > _MAX_ERROR_BODY_BYTES:
            raise WebSocketBadStatusException("refused", self._status)
        part, self.leftover = self.leftover[:size], self.leftover[size:]
        return part or self._receive()[:size]

    def _read_head(self) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            if len(received) > _MAX_HEADER_BYTES:
                raise WebSocketException(f"the answer's head has more than {_MAX_HEADER_BYTES} bytes")
            chunk = self._receive()
            if not chunk:
                raise WebSocketException("the server closed the connection without an answer")
            received += chunk
        head, _, self.leftover = received.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"set-cookie:")]
        status = lines[0].split(b" ")[1:2]
        self._status = int(status[0]) if status and status[0].isdigit() else 0
        self._head = b"\r\n".join(lines) + b"\r\n\r\n"
        self._head_read = True

    def _receive(self) -> bytes:
        self._sock.settimeout(self._signal.remaining())
        return self._sock.recv(4096)

    def gettimeout(self) -> float:
        return 0.0  # websocket-client then leaves the waiting to recv()

    def settimeout(self, timeout: float | None) -> None:
        """The attempt's limit rules, not the library's."""

    def close(self) -> None:
        """The socket belongs to the caller."""

    def shutdown(self, how: int) -> None:
        """As `close()`."""
