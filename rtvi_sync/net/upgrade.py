"""The opening handshake of a WebSocket: websocket-client's, on a socket of `dial()` behind a fence."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult

from websocket import WebSocket, WebSocketException

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..errors import TransportStartError
from .advice import WEBSOCKET, failure_text, is_of_tls, refusal, status_of, websocket_advice
from .dial import USER_AGENT, Detach, Head, Network, dial, read_head, socket_timeout
from .urls import basic_authorization, check_headers, printable, server_of

# Headers that websocket-client sets, or that would change the data of the connection.
OWN_HEADERS = (
    "connection",
    "content-length",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "transfer-encoding",
    "upgrade",
)
# Headers of the answer that websocket-client gets: those that it checks. Without Set-Cookie, which would go into a jar
# that all connections of the process share.
_SHOWN_HEADERS = (b"connection", b"sec-websocket-accept", b"upgrade")
# The limits of a refusal's body, which only explains it: a larger or later body is ignored. The timeout is in seconds.
_MAX_REASON_BYTES = 64 * 1024
_REASON_TIMEOUT = 1.0


def open_websocket(
    url: SplitResult,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    shown: SplitResult | None = None,
) -> tuple[socket.socket, bytes, Detach]:
    """Open a WebSocket.

    Args:
        url: The address of the WebSocket.
        headers: The caller's headers of the request.
        network: TLS and proxy.
        signal: Abandons the attempt.
        shown: The URL in error texts. None: `url`, as `printable()` shows it.

    Returns:
        The socket, the bytes read behind the handshake, and the function that ends the watch of `signal`.

    Raises:
        TransportStartError: The WebSocket could not be opened; the message has the reason.
        InvalidTransportParamsError: A header or the proxy is not valid.
        BaseException: The signal's reason, if the attempt was abandoned.
    """
    shown = shown or url
    check_headers(headers, OWN_HEADERS)
    fields = {name.lower(): (name, value) for name, value in headers.items()}
    fields.setdefault("user-agent", ("User-Agent", USER_AGENT))
    if (authorization := basic_authorization(url)) is not None:
        fields.setdefault("authorization", ("Authorization", authorization))
    _, host = fields.pop("host", ("Host", server_of(url)))
    try:
        sock, detach = dial(url, network, signal)
    except OSError as error:
        signal.raise_if_aborted()
        failed = "has no TLS that can be used" if is_of_tls(error) else "cannot be reached"
        text = f"{printable(shown.geturl())} {failed}: {_why(error, shown)}"
        raise TransportStartError(text, status=status_of(error)) from error
    try:
        fence = _Fence(sock, signal, url, dict(fields.values()))
        try:
            WebSocket(enable_multithread=False).connect(  # type: ignore[no-untyped-call]
                # A random host, because websocket-client sends the cookies of its process-wide jar for the URL's host.
                f"ws://{os.urandom(8).hex()}/",
                socket=fence,
                host=host,
                suppress_origin=True,
                redirect_limit=0,
                timeout=None,
            )
        except (WebSocketException, OSError, ValueError) as error:
            head = fence.head
            if head is None:
                raise _failed(shown, _why(error, shown)) from None
            if head.status != 101:
                authorization = fields.get("authorization", ("", ""))[1]
                raise TransportStartError(_refusal(sock, head, shown, authorization), status=head.status) from None
            fault = "the server has accepted it without a valid Upgrade, Connection or Sec-WebSocket-Accept header"
        else:
            assert fence.head is not None
            head = fence.head
            fault = _unrequested(head, fields.get("sec-websocket-protocol", ("", ""))[1])
        if fault:
            raise _failed(shown, f"{fault}. {WEBSOCKET.advice_for(404)}")
    except BaseException:
        detach()
        sock.close()
        signal.raise_if_aborted()
        raise
    return sock, head.rest, detach


class _Fence:
    """The socket that websocket-client uses during the handshake.

    The library reads byte by byte without limit, and acts upon headers that it must not act upon. It gets an answer
    that was read here, within limits, with the headers that it checks and no other.
    """

    def __init__(self, sock: socket.socket, signal: AbortSignal, url: SplitResult, headers: Mapping[str, str]) -> None:
        self._sock = sock
        self._signal = signal
        resource = (url.path or "/") + (f"?{url.query}" if url.query else "")
        lines = [f"GET {resource} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), ""]
        self._first_lines = "\r\n".join(lines).encode("ascii")
        self.head: Head | None = None
        self._parts: Iterator[bytes] = iter(())  # of the head, that websocket-client has not read yet

    def send(self, data: bytes) -> int:
        """Send the library's request with the real path and the caller's headers."""
        # The library gets neither, because it would cut a path at a semicolon, and its tracing would show the headers.
        self._sock.settimeout(socket_timeout(self._signal))
        # A server that closes the connection may have sent the reason, as TLS 1.3 does if it refuses the client's
        # certificate: the error of the read that follows has it.
        with contextlib.suppress(ssl.SSLEOFError, ConnectionError):
            self._sock.sendall(self._first_lines + data.partition(b"\r\n")[2])
        return len(data)

    def recv(self, size: int) -> bytes:  # noqa: ARG002 - see below
        """Return the next part of the answer's head."""
        if self.head is None:
            self.head = read_head(self._sock, self._signal, "the answer")
            if self.head.status != 101:
                # Refused here, because one release of the library treats a redirect that it must not follow as success.
                raise WebSocketException("refused")
            shown = (name + b": " + value for name, value in self.head.fields if name in _SHOWN_HEADERS)
            lines = (b"HTTP/1.1 101", *shown, b"")
            # The library requests one byte at a time until a line feed. It gets all bytes before that at once.
            self._parts = iter([part for line in lines for part in (line + b"\r", b"\n")])
        return next(self._parts)

    def gettimeout(self) -> float:
        """Return 0.0, with which websocket-client does not wait before it calls `recv()`."""
        return 0.0

    def settimeout(self, timeout: float | None) -> None:
        """Do nothing: the attempt's limit applies, not the library's."""

    def close(self) -> None:
        """Do nothing: the caller owns the socket."""


def _failed(url: SplitResult, why: str) -> TransportStartError:
    return TransportStartError(f"The WebSocket handshake with {printable(url.geturl())} failed: {why}")


def _why(error: Exception, url: SplitResult) -> str:
    return failure_text(error, str(error), url, advice="Check the URL, and that the bot is running")


def _unrequested(head: Head, asked: str) -> str:
    """Return the fault of an answer with an extension or a subprotocol that was not requested; "" without one."""
    subprotocols = [name.strip().encode() for name in asked.split(",")]
    for name, value in head.fields:
        if name == b"sec-websocket-extensions":
            # None is ever requested, because permessage-deflate would let a small message expand to any size.
            return "the server answered with an extension that was not requested"
        if name == b"sec-websocket-protocol" and (not asked or value not in subprotocols):
            return "the server answered with a subprotocol that was not requested"
    return ""


def _refusal(sock: socket.socket, head: Head, url: SplitResult, authorization: str) -> str:
    """Return the text of the error for an answer that is not 101."""
    return refusal(
        f"{printable(url.geturl())} {'refused' if head.status >= 400 else 'answered'} the WebSocket handshake with",
        head.status,
        phrase=head.phrase,
        body=_read_reason(sock, head),
        retry_after=head.field(b"retry-after"),
        challenge=head.field(b"www-authenticate"),
        authorization=authorization,
        scheme=url.scheme,
        advice=websocket_advice(head.status, url, head.field(b"server")),
    )


def _read_reason(sock: socket.socket, head: Head) -> bytes:
    """Return the part of a refusal's body that arrives within 1 s. A long body is not read."""
    promised, body = head.field(b"content-length"), head.rest
    size = int(promised) if re.fullmatch(r"\d{1,9}", promised, re.ASCII) else 0
    deadline = Deadline(_REASON_TIMEOUT)
    # An error is ignored, because the body is optional; an abort is raised by `open_websocket()`.
    with contextlib.suppress(OSError):
        while len(body) < size <= _MAX_REASON_BYTES:
            sock.settimeout(deadline.remaining())
            if not (chunk := sock.recv(4096)):
                break
            body += chunk
    return body
