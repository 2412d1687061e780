"""The opening handshake, by websocket-client over a socket-like object, `_HandshakeSocket`.

This object bounds and checks the answer, which the library reads without limit and accepts in many forms. It hides the
headers that the library must not act upon: Set-Cookie, which would go into a jar that all connections of the process
share, and the length of a refusal's body, which the library would read. And it reads in blocks, where the library reads
byte by byte.
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

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..errors import TransportStartError
from .failures import failure_text, status_of
from .net import (
    USER_AGENT,
    Detach,
    Network,
    basic_authorization,
    check_headers,
    open_stream,
    printable,
    socket_timeout,
)
from .refusals import NoHTTPError, check_is_http, refusal, without_interim_answers

_MAX_HEADER_BYTES = 64 * 1024
# Headers that websocket-client sets, or that would change what the connection carries.
OWN_HEADERS = (
    "connection",
    "content-length",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "transfer-encoding",
    "upgrade",
)
# The limits of a refusal's body, which only explains it: a larger or later body is ignored. The timeout is in seconds.
_MAX_REASON_BYTES = 64 * 1024
_REASON_TIMEOUT = 1.0
_WRONG_PATH = "Check the path of ws_url: it may not be a WebSocket's, or a proxy in front does not pass WebSockets on"
_REDIRECT = "Redirects are not followed: set ws_url to the bot's final address"
_OLD_TOKEN = "The token may be missing, wrong, expired, or used before (Pipecat's are good for one connection)"  # noqa: S105
# By status of a refusal: the advice.
_ADVICE = {
    200: _WRONG_PATH,
    301: _REDIRECT,
    302: _REDIRECT,
    303: _REDIRECT,
    307: _REDIRECT,
    308: _REDIRECT,
    401: "The token may be missing or wrong: pass the one that the server issued for this session",
    # Pipecat's servers refuse a path that they do not have with 403, too.
    403: "Check the path of the URL: a Pipecat bot's is /ws or /ws-client. "
    f"Otherwise t{_OLD_TOKEN[1:]}: get a new one from the server",
    404: _WRONG_PATH,
    405: _WRONG_PATH,
    426: _WRONG_PATH,
    429: "",
}
# Statuses that a wrong path may have.
_OF_PATH = (200, 400, 403, 404, 405, 426)
_NGINX = (
    "Check the path of ws_url, or let its location in nginx pass WebSockets on (proxy_http_version 1.1, and "
    "proxy_set_header for Upgrade and Connection)"
)
# Headers of the answer that websocket-client gets: those that it checks, and none that it would act upon.
_SHOWN_HEADERS = (b"connection", b"sec-websocket-accept", b"upgrade")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n]*)")


def open_websocket(
    url: SplitResult, headers: Mapping[str, str], network: Network, signal: AbortSignal
) -> tuple[socket.socket, bytes, Detach]:
    """Open a WebSocket.

    Returns:
        The socket, the bytes read behind the handshake, and the function that ends the watch of `signal`.

    Raises:
        TransportStartError: the WebSocket could not be opened; the message has the reason.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    host, lines = _header_lines(url, headers)
    try:
        sock, detach = open_stream(url, network, signal)
    except OSError as error:
        signal.raise_if_aborted()
        text = f"{printable(url.geturl())} cannot be reached: {_why(error, url)}"
        raise TransportStartError(text, status=status_of(error)) from error
    try:
        leftover = _run_handshake(_HandshakeSocket(sock, url, lines, signal), url, host)
    except BaseException:
        detach()
        sock.close()
        signal.raise_if_aborted()
        raise
    return sock, leftover, detach


def _why(error: Exception, url: SplitResult) -> str:
    return failure_text(error, str(error), url, advice="Check the URL, and that the bot is running")


def _header_lines(url: SplitResult, headers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the value of Host, and the header lines that follow those of the handshake."""
    check_headers(headers, OWN_HEADERS)
    fields = {name.lower(): (name, value) for name, value in headers.items()}
    fields.setdefault("user-agent", ("User-Agent", USER_AGENT))
    authorization = basic_authorization(url)
    if authorization is not None:
        fields.setdefault("authorization", ("Authorization", authorization))
    _, host = fields.pop("host", ("Host", url.netloc.rpartition("@")[2]))
    return host, [f"{name}: {value}" for name, value in fields.values()]


def _subprotocols(lines: list[str]) -> list[bytes]:
    """Return the subprotocols that the caller's headers request."""
    fields = (line.partition(":") for line in lines)
    asked = (value for name, _, value in fields if name.lower() == "sec-websocket-protocol")
    return [name.strip().encode() for value in asked for name in value.split(",")]


def _run_handshake(handshake: _HandshakeSocket, url: SplitResult, host: str) -> bytes:
    try:
        WebSocket(enable_multithread=False).connect(  # type: ignore[no-untyped-call]
            # A random host, because websocket-client sends the cookies of its process-wide jar for the URL's host.
            f"ws://{os.urandom(8).hex()}/",
            socket=handshake,
            host=host,
            suppress_origin=True,
            redirect_limit=0,
            timeout=None,
        )
    except (WebSocketException, OSError, ValueError) as error:
        where = printable(url.geturl())
        if handshake.status is None:
            text = f"The WebSocket handshake with {where} failed: {_why(error, url)}"
            raise TransportStartError(text) from None
        if handshake.status == 101:
            invalid = "the server has accepted it without a valid Upgrade, Connection or Sec-WebSocket-Accept header"
            reason = error if isinstance(error, _UnrequestedError) else invalid
            text = f"The WebSocket handshake with {where} failed: {reason}. {_WRONG_PATH}"
            raise TransportStartError(text) from None
        verb = "refused" if handshake.status >= 400 else "answered"
        text = handshake.refusal(f"{where} {verb} the WebSocket handshake with")
        raise TransportStartError(text, status=handshake.status) from None
    return handshake.leftover


class _UnrequestedError(WebSocketException):
    """The error of an answer with an extension or a subprotocol that was not requested."""


class _HandshakeSocket:
    """The socket that websocket-client uses during the handshake."""

    def __init__(self, sock: socket.socket, url: SplitResult, lines: list[str], signal: AbortSignal) -> None:
        self._sock = sock
        self._url = url
        self._signal = signal
        resource = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._first_lines = "\r\n".join([f"GET {resource} HTTP/1.1", *lines, ""]).encode("ascii")
        self._lines = lines
        self._head: bytes | None = None  # the part of the answer's head that websocket-client has not read yet
        self.status: int | None = None
        self.leftover = b""  # the bytes behind the head
        self._phrase = ""
        self._fields: dict[bytes, bytes] = {}  # of the answer

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
        """Return the answer's head line by line."""
        if self._head is None:
            self._head = self._read_head()
        # The library requests one byte at a time until the end of a line. It gets all bytes before that end at once.
        end = self._head.find(b"\n") or 1
        part, self._head = self._head[:end], self._head[end:]
        return part

    def refusal(self, what: str) -> str:
        """Return the text of the error for an answer that is not 101; `what` is the beginning of the text."""
        assert self.status is not None
        return refusal(
            what,
            self.status,
            phrase=self._phrase,
            body=self._read_reason(),
            retry_after=self._field(b"retry-after"),
            challenge=self._field(b"www-authenticate"),
            authorization=self._sent("authorization"),
            scheme=self._url.scheme,
            advice=self._advice(self.status),
        )

    def _advice(self, status: int) -> str:
        advice = _ADVICE.get(status, "See the server's log" if status >= 500 else "Check ws_url")
        if status not in _OF_PATH:
            return advice
        if not self._url.path.strip("/"):
            example = printable(self._url._replace(path="/ws", query="").geturl())
            no_path = (
                f"The URL has no path: the WebSocket of a Pipecat bot is at /ws or at /ws-client, such as {example}"
            )
            return (
                f"{no_path}. Otherwise t{_OLD_TOKEN[1:]}: get a new one from the server" if status == 403 else no_path
            )
        is_nginx = self._field(b"server").lower().startswith("nginx")
        return _NGINX if is_nginx and status != 403 else advice

    def _sent(self, name: str) -> str:
        """Return the value of a header of the request; "" without one."""
        fields = (line.partition(":") for line in self._lines)
        return next((value.strip() for sent, _, value in fields if sent.lower() == name), "")

    def _field(self, name: bytes) -> str:
        return self._fields.get(name, b"").decode("latin-1")

    def _read_reason(self) -> bytes:
        """Return the body of a refusal, as far as it is short and arrives within 1 s."""
        promised = self._fields.get(b"content-length", b"")
        size = int(promised) if re.fullmatch(rb"\d{1,9}", promised) else 0
        deadline = Deadline(_REASON_TIMEOUT)
        # An error is ignored, because the body is optional; if it comes from an abort, open_websocket() raises that.
        with contextlib.suppress(OSError):
            while len(self.leftover) < size <= _MAX_REASON_BYTES:
                self._sock.settimeout(deadline.remaining())
                chunk = self._sock.recv(4096)
                if not chunk:
                    break
                self.leftover += chunk
        return self.leftover

    def _read_head(self) -> bytes:
        received, size = b"", 0
        while b"\r\n\r\n" not in received:
            if size > _MAX_HEADER_BYTES:
                raise WebSocketException(f"the answer's head has more than {_MAX_HEADER_BYTES} bytes")
            self._sock.settimeout(socket_timeout(self._signal))
            chunk = self._sock.recv(4096)
            size += len(chunk)
            received += chunk
            check_is_http(received)
            received = without_interim_answers(received)
            if not chunk:
                raise NoHTTPError("the connection was closed in the middle of the answer")
        head, _, self.leftover = received.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = re.fullmatch(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?", first)
        fields = [(field[1].lower(), field[2].strip()) for line in lines if (field := _FIELD.fullmatch(line))]
        if status is None or len(fields) < len(lines):
            raise NoHTTPError("the answer is not HTTP")
        self.status = int(status[1])
        self._phrase = (status[2] or b"").decode("latin-1")
        self._fields = dict(fields)
        if self.status != 101:
            # Refused here, because one release of the library treats a redirect that it must not follow as a success.
            raise WebSocketException("refused")
        shown = []
        for name, value in fields:
            if name == b"sec-websocket-extensions":
                # None is ever requested, because permessage-deflate would let a small message expand to any size.
                raise _UnrequestedError("the server answered with an extension that was not requested")
            if name == b"sec-websocket-protocol" and value not in _subprotocols(self._lines):
                raise _UnrequestedError("the server answered with a subprotocol that was not requested")
            if name in _SHOWN_HEADERS:
                shown.append(name + b": " + value)
        return b"\r\n".join([b"HTTP/1.1 101", *shown, b"", b""])

    def gettimeout(self) -> float:
        """Return 0.0, with which websocket-client does not wait before it calls `recv()`."""
        return 0.0

    def settimeout(self, timeout: float | None) -> None:
        """Do nothing: the attempt's limit applies, not the library's."""

    def close(self) -> None:
        """Do nothing: the caller owns the socket."""
