"""Opening TCP and TLS connections: one way for HTTP and WebSocket, every step of which can be abandoned."""

from __future__ import annotations

import base64
import errno
import ipaddress
import os
import re
import selectors
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from .._version import __version__
from ..concurrency.cancel import AbortSignal
from ..errors import InvalidTransportParamsError, TransportStartError
from .tls import default_context, start_tls, warn_if_unverified

USER_AGENT = f"rtvi_sync/{__version__}"

Detach = Callable[[], None]

# Real answers to CONNECT have a few hundred bytes.
_MAX_CONNECT_ANSWER_BYTES = 64 * 1024
# What every platform takes as a time-out of a socket.
_MAX_TIMEOUT = 1e6
# Whoever set the limit of an attempt abandons it when the limit has passed, which wakes the socket and says why. The
# socket's own limit lies behind, so that it decides only if nobody does, or where shutdown() wakes nobody.
_GRACE = 1.0
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# A URL that httpx would leave as it is, as most are: to import it takes longer than many sessions take to begin.
_PLAIN_URL = re.compile(
    rf"[a-z]+://(?:[0-9.]*[a-z_-][0-9a-z._-]*|{_OCTET}(?:\.{_OCTET}){{3}})"  # no number is taken for a name
    r"(?::(?!(?:80|443)(?:[/?]|\Z))[1-9]\d{0,4})?"  # httpx leaves out the port that is the default one
    r"(?:/(?!\.)[0-9A-Za-z_~-][0-9A-Za-z._~-]*)*/?(?:\?[0-9A-Za-z._~=&-]+)?",
    re.ASCII,
)
_MAX_PLAIN_URL = 2048
# A name as it goes over the wire, or an IPv6 address.
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f]*:[0-9a-f:.]+(%[0-9a-z._-]+)?")


@attrs.frozen(kw_only=True)
class Network:
    """How this client reaches the network, for HTTP and WebSocket alike.

    Attributes:
        ssl_context: for `https` and `wss`; None: one that trusts the authorities of certifi, or of SSL_CERT_FILE or
            SSL_CERT_DIR.
        proxy: URL of an HTTP proxy; None: what the environment says (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY);
            False: none at all.
    """

    ssl_context: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    proxy: str | bool | None = attrs.field(default=None, repr=False)  # it may hold a password

    def __attrs_post_init__(self) -> None:
        if self.ssl_context is not None:
            warn_if_unverified(self.ssl_context)

    def tls(self) -> ssl.SSLContext:
        return self.ssl_context if self.ssl_context is not None else default_context()

    def proxy_for(self, url: str) -> SplitResult | None:
        """The proxy to reach `url` through, or None.

        Raises:
            InvalidTransportParamsError: it is not an HTTP proxy.
        """
        if self.proxy is False:
            return None
        proxy = self.proxy if isinstance(self.proxy, str) else _proxy_of_environment(urlsplit(url))
        if not proxy:
            return None
        parts = parse_url(proxy if "://" in proxy else f"http://{proxy}", "http")
        if parts is None:
            # The scheme is all that is shown: the rest may hold a password.
            raise InvalidTransportParamsError(
                f"The proxy has the scheme {proxy.partition('://')[0][:20]!r} or is not a valid URL; only HTTP proxies "
                "are supported. Pass proxy='http://host:port', or proxy=False to use none."
            )
        return parts


def _proxy_of_environment(url: SplitResult) -> str | None:
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    # Elsewhere a proxy may be in the settings of the system.
    if sys.platform not in ("darwin", "win32") and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # what follows takes each variable in hand three times, and there is nothing to be found
    import urllib.request  # which imports all of HTTP

    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    # The second form is how NO_PROXY is commonly written for an IPv6 address.
    hosts = (url.netloc.rpartition("@")[2], url.hostname or "")
    return None if proxy is None or any(map(urllib.request.proxy_bypass, hosts)) else proxy


# -- URLs and headers -------------------------------------------------------------------------------------------------


def parse_url(text: str, *schemes: str) -> SplitResult | None:
    """The parts of a URL of one of `schemes`, in ASCII as they go over the wire; None if it is not valid."""
    try:
        parts = urlsplit(text)  # httpx takes some things for a name that are none
        if len(text) > _MAX_PLAIN_URL or not _PLAIN_URL.fullmatch(text):
            parts = urlsplit(_normalized(text))
        valid = parts.scheme in schemes and _HOST.fullmatch(parts.hostname or "") and parts.port != 0
        return parts if valid else None
    except ValueError:
        return None


def _normalized(url: str) -> str:
    import httpx

    try:
        return str(httpx.URL(url))
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None


def printable(url: str) -> str:
    """`url` without what may be secret: user, password, query, fragment; of what is no URL, nothing that could be."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is no number, as where a password was taken for one
    except ValueError:
        return "(not a URL)"
    netloc, path = parts.netloc.rpartition("@")[2], parts.path
    if not netloc:
        path = path.rpartition("@")[2]  # a scheme was forgotten or misspelt
    shown = parts._replace(netloc=netloc, path=path, query="", fragment="").geturl()[:200]
    return "".join(c if c.isprintable() else "?" for c in shown)


def is_nearby(host: str) -> bool:
    """Whether `host` is this machine or a private address, as far as one can see without looking it up."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def basic_authorization(url: SplitResult) -> str | None:
    """The value of (Proxy-)Authorization for the user and password in a URL; None if it has none."""
    if url.username is None:
        return None
    credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that could smuggle in others. What uses them would show the value, which may be secret.

    Raises:
        InvalidTransportParamsError: a name or value is not valid.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise InvalidTransportParamsError(f"{name!r} is not the name of an HTTP header")
        if not isinstance(value, str) or not value.isascii() or re.search(r"[\x00-\x08\x0a-\x1f\x7f]|^\s|\s$", value):
            raise InvalidTransportParamsError(
                f"The value of the header {name!r} is not valid: it is no str, begins or ends with a blank or a line "
                "break, or has a control or non-ASCII character in it"
            )


# -- connections ------------------------------------------------------------------------------------------------------


def socket_timeout(signal: AbortSignal) -> float | None:
    """For how long the next call of a socket may block, in seconds; None: no limit.

    Raises:
        TimeoutError: the limit has passed, and nobody has abandoned the attempt.
        BaseException: the signal's reason, if the attempt was abandoned at its limit.
    """
    remaining = signal.remaining()
    if remaining == 0.0:
        signal.wait(_GRACE)
        signal.raise_if_aborted()
        raise TimeoutError("timed out")
    return None if remaining is None else min(remaining + _GRACE, _MAX_TIMEOUT)


def open_tcp(host: str, port: int, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """A TCP connection, and the function that ends the watch of `signal` over it.

    The name look-up cannot be abandoned: a thread that hangs in it ends with it, and finds out then.

    Raises:
        OSError: no address could be reached.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    signal.raise_if_aborted()
    try:
        # As bytes: for text the first look-up of a process loads all tables of IDNA, and this is ASCII.
        addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"there can be no host {host!r} with port {port}") from error
    failure = OSError(f"{host} has no address")
    for tried, address in enumerate(addresses):
        others = len(addresses) - tried - 1
        timeout = socket_timeout(signal)
        if timeout is not None and others:
            timeout = (timeout - _GRACE) / (others + 1)  # a silent address must leave time for the others
        try:
            return _connect(address, timeout, signal)
        except OSError as error:
            signal.raise_if_aborted()
            failure = error
    raise failure


def _connect(address: Any, timeout: float | None, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    family, type_, proto, _, where = address
    sock = socket.socket(family, type_, proto)
    try:
        sock.setblocking(False)
        begun = sock.connect_ex(where)
        if begun not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(begun, os.strerror(begun))
        # Not before connect(): there would be nothing to shut down yet, and an abort in between would be lost.
        detach = signal.attach(sock)
    except BaseException:
        sock.close()
        raise
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_WRITE)
            if not selector.select(timeout):
                raise TimeoutError("the connection was not answered in time")
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            raise OSError(failed, os.strerror(failed))
        _set_options(sock)
        sock.settimeout(socket_timeout(signal))
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, detach


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client that only listens sends nothing, and would never notice that the network is gone.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def open_stream(url: SplitResult, network: Network, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """A connection to the server of a ``ws`` or ``wss`` URL: through the proxy, and wrapped in TLS, as need be.

    Raises:
        OSError, TransportStartError: it could not be opened.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    host, port = url.hostname or "", url.port or (443 if url.scheme == "wss" else 80)
    proxy = network.proxy_for(url.geturl())
    sock, detach = open_tcp(*((proxy.hostname or "", proxy.port or 80) if proxy else (host, port)), signal)
    try:
        if proxy is not None:
            _tunnel(sock, proxy, host, port, signal)
        if url.scheme == "wss":
            sock.settimeout(socket_timeout(signal))
            sock = start_tls(sock, network.tls(), host)
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, detach


def _tunnel(sock: socket.socket, proxy: SplitResult, host: str, port: int, signal: AbortSignal) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    where = f"The proxy {proxy.hostname}:{proxy.port or 80}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    authorization = basic_authorization(proxy)
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        sock.settimeout(socket_timeout(signal))
        chunk = sock.recv(4096)
        answer += chunk
        if not chunk or len(answer) > _MAX_CONNECT_ANSWER_BYTES:
            raise TransportStartError(f"{where} did not answer CONNECT with HTTP")
    status = re.match(rb"HTTP/1\.[01] (\d{3})\b", answer)
    if status is None:
        raise TransportStartError(f"{where} did not answer CONNECT with HTTP")
    if not status[1].startswith(b"2"):
        hint = " Put user and password into its URL." if status[1] == b"407" else ""
        raise TransportStartError(
            f"{where} refused to connect to {target} with {int(status[1])}.{hint}", status=int(status[1])
        )
