"""The opening handshake, by websocket-client behind a fence.

The fence is a socket-like object that websocket-client talks through. It bounds and checks the answer, which the
library reads without limit and takes in many forms; it hides what the library must not act upon, such as Set-Cookie,
which would go into a jar that all connections of the process share, or the length of a refusal's body, which it would
read; and it reads in blocks, where the library reads byte by byte.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult

from websocket import WebSocket, WebSocketException

from ..concurrency.cancel import AbortSignal
from ..errors import InvalidTransportParamsError, TransportStartError
from .net import (
    USER_AGENT,
    Detach,
    Network,
    basic_authorization,
    check_headers,
    is_nearby,
    open_stream,
    printable,
    socket_timeout,
)
from .tls import NoTLSError, explain

_MAX_HEADER_BYTES = 64 * 1024
# Headers that the request gets from websocket-client, or that would change what the connection carries.
_OWN_HEADERS = (
    "connection",
    "content-length",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "transfer-encoding",
    "upgrade",
)
# Headers of the answer that websocket-client gets to see: what it checks, and nothing that it would act upon.
_SHOWN_HEADERS = (b"connection", b"sec-websocket-accept", b"upgrade")


def open_websocket(
    url: SplitResult, headers: Mapping[str, str], network: Network, signal: AbortSignal
) -> tuple[socket.socket, bytes, Detach]:
    """Open a WebSocket.

    Returns:
        The socket, what was read of the stream after the handshake, and the function that ends the watch of `signal`.

    Raises:
        TransportStartError: it could not be opened; the message says why.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    host, lines = _header_lines(url, headers)
    try:
        sock, detach = open_stream(url, network, signal)
    except OSError as error:
        signal.raise_if_aborted()
        raise TransportStartError(_failure(url, error)) from error
    except TransportStartError:
        signal.raise_if_aborted()
        raise
    try:
        leftover = _handshake(_Fence(sock, url, lines, signal), url, host)
    except BaseException:
        detach()
        sock.close()
        signal.raise_if_aborted()
        raise
    return sock, leftover, detach


def _failure(url: SplitResult, error: OSError) -> str:
    where = printable(url.geturl())
    advice = "Check the URL, and that the bot is running"
    if isinstance(error, NoTLSError) and is_nearby(url.hostname or ""):
        # Elsewhere somebody on the line may have answered so, in order to be sent the secrets in plain text.
        advice = (
            "Pipecat's runner advertises wss:// whenever its --host is not 'localhost': pass the plain address, "
            f"WebSocketTransport(ws_url={where.replace('wss://', 'ws://', 1)!r})"
        )
    return f"{where} cannot be reached: {explain(error) or f'{error}. {advice}'}"


def _header_lines(url: SplitResult, headers: Mapping[str, str]) -> tuple[str, list[str]]:
    """The value of Host, and the lines that the handshake's own are followed by."""
    check_headers(headers)
    fields = {name.lower(): (name, value) for name, value in headers.items()}
    for name in _OWN_HEADERS:
        if name in fields:
            raise InvalidTransportParamsError(f"The header {fields[name][0]!r} belongs to the handshake; leave it out")
    fields.setdefault("user-agent", ("User-Agent", USER_AGENT))
    authorization = basic_authorization(url)
    if authorization is not None:
        fields.setdefault("authorization", ("Authorization", authorization))
    _, host = fields.pop("host", ("Host", url.netloc.rpartition("@")[2]))
    return host, [f"{name}: {value}" for name, value in fields.values()]


def _subprotocols(lines: list[str]) -> list[str]:
    """What the caller's headers ask for."""
    fields = (line.partition(":") for line in lines)
    asked = (value for name, _, value in fields if name.lower() == "sec-websocket-protocol")
    return [name.strip() for value in asked for name in value.split(",")]


def _handshake(fence: _Fence, url: SplitResult, host: str) -> bytes:
    try:
        WebSocket(enable_multithread=False).connect(  # type: ignore[no-untyped-call]
            # websocket-client sends the cookies that its process-wide jar has for the URL's host. This one is nobody's.
            f"ws://{os.urandom(8).hex()}/",
            socket=fence,
            host=host,
            suppress_origin=True,
            redirect_limit=0,
            timeout=None,
        )
    except (WebSocketException, OSError, ValueError) as error:
        where = printable(url.geturl())
        if fence.status is None or fence.status == 101:
            reason = explain(error) or error
            raise TransportStartError(f"The WebSocket handshake with {where} failed: {reason}") from None
        hint = {
            401: " The token may be missing or wrong.",
            403: " The token may be missing, wrong, expired, or used before (Pipecat's are good for one connection).",
            404: " Check the path of ws_url.",
        }.get(fence.status, " Redirects are not followed: check ws_url." if 300 <= fence.status < 400 else "")
        raise TransportStartError(
            f"{where} refused the WebSocket handshake with {fence.status}.{hint}", status=fence.status
        ) from None
    return fence.leftover


class _Fence:
    """What websocket-client sees of the socket during the handshake."""

    def __init__(self, sock: socket.socket, url: SplitResult, lines: list[str], signal: AbortSignal) -> None:
        self._sock = sock
        self._signal = signal
        resource = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._first_lines = "\r\n".join([f"GET {resource} HTTP/1.1", *lines, ""]).encode("ascii")
        self._subprotocols = [value.encode() for value in _subprotocols(lines)]
        self._head: bytes | None = None  # of the answer: what websocket-client has not read yet
        self.status: int | None = None
        self.leftover = b""  # what follows the head

    def send(self, data: bytes) -> int:
        # The library would cut a path at a semicolon, and its tracing would show headers: it is given neither.
        self._sock.settimeout(socket_timeout(self._signal))
        # A server that hangs up may have said why, as TLS 1.3 does when the client's certificate is wrong: read that.
        with contextlib.suppress(ssl.SSLEOFError, ConnectionError):
            self._sock.sendall(self._first_lines + data.partition(b"\r\n")[2])
        return len(data)

    def recv(self, size: int) -> bytes:  # noqa: ARG002 - see below
        if self._head is None:
            self._head = self._read_head()
        # The library asks for a byte at a time until it has the end of a line. What comes before that comes in one go.
        end = self._head.find(b"\n") or 1
        part, self._head = self._head[:end], self._head[end:]
        return part

    def _read_head(self) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            if len(received) > _MAX_HEADER_BYTES:
                raise WebSocketException(f"the answer's head has more than {_MAX_HEADER_BYTES} bytes")
            self._sock.settimeout(socket_timeout(self._signal))
            chunk = self._sock.recv(4096)
            if not chunk:
                raise WebSocketException("the server closed the connection without an answer")
            received += chunk
        head, _, self.leftover = received.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = re.fullmatch(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?", first)
        if status is None or not all(re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*", line) for line in lines):
            raise WebSocketException("the answer is not HTTP")
        self.status = int(status[1])
        if self.status != 101:
            # Not left to the library: one release takes a redirect that it is not to follow for a success.
            raise WebSocketException("refused")
        shown = []
        for line in lines:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name == b"sec-websocket-extensions":
                # None is ever asked for: permessage-deflate would let a small message grow to any size.
                raise WebSocketException("the server answered with an extension that it was not asked for")
            if name == b"sec-websocket-protocol" and value.strip() not in self._subprotocols:
                raise WebSocketException("the server answered with a subprotocol that it was not asked for")
            if name in _SHOWN_HEADERS:
                shown.append(line)
        return b"\r\n".join([b"HTTP/1.1 101", *shown, b"", b""])

    def gettimeout(self) -> float:
        return 0.0  # websocket-client then leaves the waiting to recv()

    def settimeout(self, timeout: float | None) -> None:
        """The attempt's limit rules, not the library's."""

    def close(self) -> None:
        """The socket belongs to the caller."""
