"""Connections to servers: `dial()` looks up, connects, tunnels and wraps in TLS, and can be abandoned in each step.

It also has the two rules of every answer that is read from such a socket: how long to wait, and whether it is HTTP.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

import attrs

from .._version import __version__
from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..concurrency.descriptors import make_selector
from ..concurrency.lifecycle import what_to_do
from ..protocol.record import Record
from .advice import NoHTTPError, ProxyError
from .proxies import Proxy, naming, proxy_for
from .tls import default_context, start_tls, warn_if_unverified
from .urls import authority, basic_authorization, port_of

#: An item of `socket.getaddrinfo()`: family, type, protocol, canonical name, socket address.
AddressInfo: TypeAlias = tuple[Any, ...]
#: Ends the watch of an `AbortSignal` over a socket.
Detach: TypeAlias = Callable[[], None]

USER_AGENT = f"rtvi_sync/{__version__}"
# In seconds. The largest socket timeout that every platform accepts.
_MAX_TIMEOUT = 1e6
# In seconds. The owner of an attempt abandons it when its limit has passed, which wakes the socket with a reason. The
# socket's own timeout is this much later, so it only applies without an owner, or where shutdown() wakes no thread.
_GRACE = 1.0
# The "Connection Attempt Delay" of RFC 8305, section 5, in seconds.
_ATTEMPT_DELAY = 0.25
# A bound, because a name server decides how many addresses a host has, and each pending one takes two descriptors.
_MAX_ADDRESSES = 32
_MAX_ERRORS_SHOWN = 4
# A bound, because a server may send without end; real heads have some hundred bytes.
_MAX_HEAD_BYTES = 64 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n]*)")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Network(Record):
    """The client's network settings, for HTTP and WebSocket alike.

    Attributes:
        ssl_context: The context for `https` and `wss`; None: one that trusts the authorities of certifi, or of
            SSL_CERT_FILE or SSL_CERT_DIR.
        proxy: The URL of an HTTP proxy; None: the proxy of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY,
            NO_PROXY); False: no proxy.
    """

    ssl_context: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    proxy: str | bool | None = attrs.field(default=None, repr=False)  # it may hold a password

    def __attrs_post_init__(self) -> None:
        if self.ssl_context is not None:
            warn_if_unverified(self.ssl_context)

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context for `https` and `wss`."""
        return self.ssl_context if self.ssl_context is not None else default_context()

    def proxy_for(self, url: str) -> Proxy | None:
        """Return the proxy for `url`, or None.

        Raises:
            InvalidTransportParamsError: the proxy is not an HTTP proxy.
        """
        return proxy_for(url, self.proxy)

    def forwarding_proxy_for(self, url: str) -> Proxy | None:
        """Return the proxy that forwards requests to `url`, as it does without TLS, and may make their answers."""
        return self.proxy_for(url) if urlsplit(url).scheme == "http" else None


def dial(url: SplitResult, network: Network, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """Open a connection to the server of a URL, through the proxy if there is one, with TLS for ``wss`` and ``https``.

    With a proxy for an ``http`` URL the connection is to the proxy, which forwards requests. For the other schemes it
    is a tunnel.

    Returns:
        The socket, with the timeout of `socket_timeout()`, and the function that ends the watch of `signal` over it.

    Raises:
        ProxyError: The proxy cannot be reached, or refuses.
        OSError: The connection could not be opened. If the server has several addresses, the message has the reason of
            each one.
        InvalidTransportParamsError: The proxy is not an HTTP proxy, or no certificate authorities can be loaded.
        BaseException: The signal's reason, if the attempt was abandoned.
    """
    return dial_by(network.proxy_for(url.geturl()), url, network, signal)


def dial_by(
    proxy: Proxy | None, url: SplitResult, network: Network, signal: AbortSignal
) -> tuple[socket.socket, Detach]:
    """Open a connection as `dial()` does, through a known proxy, or directly if `proxy` is None."""
    host, port = url.hostname or "", port_of(url)
    with naming(proxy):
        sock, detach = _connect(*((host, port) if proxy is None else proxy.address), signal)
    try:
        if proxy is not None and url.scheme != "http":
            with naming(proxy):
                _request_tunnel(sock, proxy, authority(host, port), signal)
        if url.scheme in ("https", "wss"):
            sock.settimeout(socket_timeout(signal))
            sock = start_tls(sock, network.tls(), host)
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, detach


def socket_timeout(signal: AbortSignal) -> float | None:
    """Return how long the next call of a socket may block, in seconds; None: no limit.

    Raises:
        TimeoutError: The limit has passed, and the attempt was not abandoned.
        BaseException: The signal's reason, if the attempt was abandoned at its limit.
    """
    remaining, grace = signal.remaining(), _GRACE if signal.is_supervised else 0.0
    if remaining == 0.0:
        signal.wait(grace)
        signal.raise_if_aborted()
        raise TimeoutError("timed out")
    return None if remaining is None else min(remaining + grace, _MAX_TIMEOUT)


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Keep-alive, because a client that sends nothing would never notice the loss of the network.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _request_tunnel(sock: socket.socket, proxy: Proxy, target: str, signal: AbortSignal) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    authorization = basic_authorization(proxy.url)
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = read_head(sock, signal, "its answer to CONNECT")
    if not 200 <= head.status <= 299:
        raise ProxyError(proxy.refusal(f"connect to {target}", head.status, head.phrase), head.status)


# -- the first address that answers (RFC 8305, "Happy Eyeballs") ------------------------------------------------------


def _connect(host: str, port: int, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """Connect to the first address of a host that answers, and close all other attempts.

    An attempt starts 250 ms after the previous one, or at once if an attempt fails. All of them are made on the calling
    thread. The name look-up cannot be abandoned: the abort takes effect when the look-up has returned.
    """
    signal.raise_if_aborted()
    # Passed as bytes, because the first look-up of a str in a process loads all IDNA tables, and this is ASCII.
    addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    if not addresses:
        raise OSError(f"{host} has no address")
    untried = deque(itertools.islice(_interleaved(addresses), _MAX_ADDRESSES))
    deadline = Deadline(socket_timeout(signal))
    with contextlib.closing(_Attempts(signal)) as attempts:
        while untried or attempts.pending:
            if untried:
                attempts.start(untried.popleft())
            connected = attempts.wait(deadline.at_most(_ATTEMPT_DELAY) if untried else deadline.remaining())
            if connected is not None:
                return connected
            if deadline.expired:
                raise attempts.timeout_error()
        raise attempts.error()


def _interleaved(addresses: Iterable[AddressInfo]) -> Iterator[AddressInfo]:
    """Order addresses so that the families alternate (RFC 8305, section 4)."""
    families: dict[int, list[AddressInfo]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    for row in itertools.zip_longest(*families.values()):
        yield from filter(None, row)


class _Attempts:
    """The pending connection attempts, and the errors of those that failed."""

    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal
        # poll(), where it is, needs no descriptor.
        self._selector = getattr(selectors, "PollSelector", make_selector)()
        #: By socket: its address, and the function that ends the signal's watch over it.
        self.pending: dict[socket.socket, tuple[Any, Detach]] = {}
        self._errors: list[tuple[Any, OSError]] = []

    def start(self, address: AddressInfo) -> None:
        """Start to connect to `address`; an immediate error is kept for `error()`."""
        family, type_, proto, _, target = address
        try:
            sock = socket.socket(family, type_, proto)
            try:
                self._connect(sock, target)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self._signal.raise_if_aborted()
            self._errors.append((target, error))

    def _connect(self, sock: socket.socket, target: Any) -> None:
        sock.setblocking(False)
        code = sock.connect_ex(target)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(code, os.strerror(code))
        # Attached after connect(), because shutdown() has no effect on an unconnected socket: an abort would be lost.
        detach = self._signal.attach(sock)
        try:
            self._selector.register(sock, selectors.EVENT_WRITE, sock)
        except BaseException:
            detach()
            raise
        self.pending[sock] = target, detach

    def wait(self, timeout: float | None) -> tuple[socket.socket, Detach] | None:
        """Wait until an attempt has connected or failed.

        Returns:
            The connected socket and the function that ends the watch over it; None: an attempt has failed, or the
            timeout has passed.
        """
        if not self.pending:
            return None
        ready = self._selector.select(timeout)
        self._signal.raise_if_aborted()
        for key, _ in ready:
            sock: socket.socket = key.data
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            target, detach = self.pending[sock]
            if not failed:
                _set_options(sock)
                sock.settimeout(socket_timeout(self._signal))
                del self.pending[sock]
                return sock, detach
            self._errors.append((target, OSError(failed, os.strerror(failed))))
            self._drop(sock)
        return None

    def _drop(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        _, detach = self.pending.pop(sock)
        detach()
        sock.close()

    def timeout_error(self) -> OSError:
        """Return the error for a timeout."""
        for target, _ in self.pending.values():
            self._errors.append((target, TimeoutError("the connection was not answered in time")))
        return self._combined(TimeoutError)

    def error(self) -> OSError:
        """Return the error after all attempts have failed."""
        kinds = {type(error) for _, error in self._errors}
        return self._combined(kinds.pop() if len(kinds) == 1 else OSError)

    def _combined(self, kind: type[OSError]) -> OSError:
        if len(self._errors) == 1:
            return self._errors[0][1]
        shown = [f"{target[0]} port {target[1]}: {error}" for target, error in self._errors[:_MAX_ERRORS_SHOWN]]
        more = len(self._errors) - len(shown)
        combined = kind("; ".join([*shown, f"and {more} more addresses"] if more else shown))
        # A shortage of the process, such as of descriptors, is the cause, because `explain()` has advice about it.
        combined.__cause__ = next((error for _, error in self._errors if what_to_do(error)), None)
        return combined

    def close(self) -> None:
        """Close the pending attempts."""
        for sock in list(self.pending):
            self._drop(sock)
        self._selector.close()


# -- answers ----------------------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """The head of an HTTP answer.

    Attributes:
        status, phrase: Its first line.
        fields: Its headers, with names in lower case.
        rest: The bytes that were read behind it.
    """

    status: int
    phrase: str
    fields: list[tuple[bytes, bytes]]
    rest: bytes

    def field(self, name: bytes) -> str:
        """Return the value of a header; "" without one."""
        return dict(self.fields).get(name, b"").decode("latin-1")


def read_head(sock: socket.socket, signal: AbortSignal, subject: str) -> Head:
    """Read the head of an answer, and skip interim answers before it.

    Args:
        sock: The socket.
        signal: The signal of the attempt.
        subject: The name of the answer in error texts.

    Raises:
        NoHTTPError: The answer is not HTTP, incomplete, or too long.
        OSError, BaseException: The connection has failed, or the attempt was abandoned.
    """
    received, size = b"", 0
    while b"\r\n\r\n" not in received:
        if size > _MAX_HEAD_BYTES:
            raise NoHTTPError(f"{subject} is not HTTP: its head has more than {_MAX_HEAD_BYTES} bytes")
        sock.settimeout(socket_timeout(signal))
        chunk = sock.recv(4096)
        size += len(chunk)
        received += chunk
        check_is_http(received)
        # 101 is no interim answer: it answers an upgrade.
        while _INTERIM.match(received) and b"\r\n\r\n" in received:
            received = received.partition(b"\r\n\r\n")[2]
        if not chunk:
            raise NoHTTPError(f"{subject} is not HTTP: the connection was closed in the middle of it")
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise NoHTTPError(f"{subject} is not HTTP")
    fields = [(field[1].lower(), field[2].strip()) for line in lines if (field := _FIELD.fullmatch(line))]
    if len(fields) < len(lines):
        raise NoHTTPError(f"{subject} is not HTTP: it has a line that is no header")
    return Head(int(status[1]), (status[2] or b"").decode("latin-1"), fields, rest)


def check_is_http(received: bytes) -> None:
    """Refuse bytes that cannot be the start of an HTTP answer, so that the caller does not wait for the rest.

    Args:
        received: All bytes received so far; empty: the server has closed the connection.

    Raises:
        NoHTTPError: The bytes are the start of something else.
        ConnectionError: There are no bytes.
    """
    if not received:
        raise ConnectionAbortedError("the connection was closed without an answer")
    if b"HTTP/".startswith(received[:5]):
        return
    # The bytes are not part of the text, because a server may echo the request, and with it a token.
    if received.startswith(b"\x15\x03"):  # an alert
        raise NoHTTPError("the server there speaks TLS, not plain HTTP")
    does = "speaks SSH, not HTTP" if received.startswith(b"SSH-") else "does not speak HTTP"
    raise NoHTTPError(f"the server there {does}")
