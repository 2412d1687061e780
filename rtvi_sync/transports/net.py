"""Opening TCP and TLS connections: one way for HTTP and WebSocket, every step of which can be abandoned."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from .._version import __version__
from ..concurrency.abort import AbortSignal
from ..errors import InvalidTransportParamsError, RTVIError
from ..protocol.text import one_line
from .happy_eyeballs import Detach as Detach
from .happy_eyeballs import connect_first
from .refusals import NoHTTPError, check_is_http, refusal
from .tls import default_context, start_tls, warn_if_unverified

USER_AGENT = f"rtvi_sync/{__version__}"

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

    def proxy_for(self, url: str) -> Proxy | None:
        """The proxy to reach `url` through, or None.

        Raises:
            InvalidTransportParamsError: it is not an HTTP proxy.
        """
        if self.proxy is False:
            return None
        given = self.proxy if isinstance(self.proxy, str) else None
        proxy, origin = _proxy_of_environment(urlsplit(url)) if given is None else (given, PROXY_OPTION)
        if not proxy:
            return None
        parts = parse_url(proxy if "://" in proxy else f"http://{proxy}", "http")
        if parts is None:
            # The scheme is all that is shown: the rest may hold a password.
            raise InvalidTransportParamsError(
                f"The proxy ({origin}) has the scheme {one_line(proxy.partition('://')[0][:20])!r} or is not a valid "
                "URL; only HTTP proxies are supported. Pass proxy='http://host:port', or proxy=False to use none."
            )
        return Proxy(parts, origin)


# -- proxies ----------------------------------------------------------------------------------------------------------

PROXY_OPTION = "proxy= option"


@attrs.frozen
class Proxy:
    """An HTTP proxy.

    Attributes:
        url: its URL, which may hold a user and password.
        origin: where it was named, for errors: the option, a variable, or the settings of the system.
    """

    url: SplitResult = attrs.field(repr=False)
    origin: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.url.hostname or "", self.url.port or 80

    def __str__(self) -> str:
        return f"proxy {_authority(*self.address)} ({self.origin})"

    @property
    def way_around(self) -> str:
        """What to do instead of using it."""
        no_proxy = "" if self.origin == PROXY_OPTION else "add the host to NO_PROXY or "
        return f"{no_proxy}pass proxy=False to reach the server directly"

    def refusal(self, what: str, status: int, phrase: str) -> str:
        """Return the text of the error for a refusal of the proxy; `what`: what it refused to do."""
        login = f"Put user and password into its URL, http://user:password@{_authority(*self.address)}, or "
        advice = (login if status == 407 else "See the proxy's log, or ") + self.way_around
        return refusal(f"the {self} refused to {what} with", status, phrase=phrase, advice=advice)


class ProxyError(ConnectionError):
    """The proxy could not be used. The text says which one, and what to do.

    Attributes:
        status: what it refused with, or None.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@contextlib.contextmanager
def naming(proxy: Proxy | None) -> Iterator[None]:
    """Around calls of a socket that is connected to `proxy`: its errors become ones that name the proxy."""
    try:
        yield
    except OSError as error:
        # Reasons of an abandoned attempt may be OSErrors by their second base class.
        if proxy is None or isinstance(error, (RTVIError, ProxyError)):
            raise
        text = f"the {proxy} cannot be used: {error}. Check that it is running, or {proxy.way_around}"
        raise ProxyError(text) from error


def _proxy_of_environment(url: SplitResult) -> tuple[str | None, str]:
    """The URL of the proxy, and what names it."""
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    # Elsewhere a proxy may be in the settings of the system.
    if sys.platform not in ("darwin", "win32") and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None, ""  # what follows takes each variable in hand three times, and there is nothing to be found
    import urllib.request  # which imports all of HTTP

    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    # The second form is how NO_PROXY is commonly written for an IPv6 address.
    hosts = (url.netloc.rpartition("@")[2], url.hostname or "")
    if proxy is None or any(map(urllib.request.proxy_bypass, hosts)):
        return None, ""
    wanted = (f"{scheme}_proxy", "all_proxy")
    names = (name for name, value in os.environ.items() if value == proxy and name.lower() in wanted)
    variable = next(names, None)
    return proxy, f"{variable} in the environment" if variable is not None else "settings of the system"


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


def url_fault(text: str, *schemes: str) -> str:
    """What is wrong with a URL that `parse_url()` does not take. It repeats nothing of it: it may hold a key."""
    if text != text.strip() or not text.isprintable():
        return "it has a space or a line break at one end, or a control character in it"
    scheme, separator, _ = text.partition("://")
    if scheme.lower() not in schemes or not separator:
        return f"it has to begin with {' or '.join(f'{name}://' for name in schemes)}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "its host is not valid"
    try:
        port_is_valid = parts.port != 0
    except ValueError:
        port_is_valid = False
    if not port_is_valid:
        return "its port is not a number from 1 to 65535"
    return "its host is not valid" if parts.hostname else "it names no host"


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
        OSError: no address could be reached; with several addresses the message says of each one why.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    signal.raise_if_aborted()
    try:
        # As bytes: for text the first look-up of a process loads all tables of IDNA, and this is ASCII.
        addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    except (UnicodeError, OverflowError) as error:
        raise OSError(f"there can be no host {host!r} with port {port}") from error
    if not addresses:
        raise OSError(f"{host} has no address")
    sock, detach = connect_first(addresses, signal, socket_timeout(signal))
    try:
        _set_options(sock)
        sock.settimeout(socket_timeout(signal))
    except BaseException:
        detach()
        sock.close()
        signal.raise_if_aborted()
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
        OSError: it could not be opened.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    host, port = url.hostname or "", url.port or (443 if url.scheme == "wss" else 80)
    sock, detach = open_tunnel(host, port, network.proxy_for(url.geturl()), signal)
    try:
        if url.scheme == "wss":
            sock.settimeout(socket_timeout(signal))
            sock = start_tls(sock, network.tls(), host)
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, detach


def open_tunnel(host: str, port: int, proxy: Proxy | None, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """A connection as by `open_tcp()`, through `proxy` if there is one.

    Raises:
        ProxyError: the proxy cannot be reached, or refuses.
        OSError, BaseException: as `open_tcp()`.
    """
    if proxy is None:
        return open_tcp(host, port, signal)
    with naming(proxy):
        sock, detach = open_tcp(*proxy.address, signal)
        try:
            _ask_for_tunnel(sock, proxy, _authority(host, port), signal)
        except BaseException:
            detach()
            sock.close()
            raise
        return sock, detach


def _ask_for_tunnel(sock: socket.socket, proxy: Proxy, target: str, signal: AbortSignal) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    authorization = basic_authorization(proxy.url)
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        sock.settimeout(socket_timeout(signal))
        chunk = sock.recv(4096)
        answer += chunk
        check_is_http(answer)
        if not chunk or len(answer) > _MAX_CONNECT_ANSWER_BYTES:
            raise NoHTTPError("its answer to CONNECT is not HTTP")
    status = re.match(rb"HTTP/1\.[01] (\d{3})\b ?([^\r\n]*)", answer)
    if status is None:
        raise NoHTTPError("its answer to CONNECT is not HTTP")
    code = int(status[1])
    if not 200 <= code <= 299:
        phrase = status[2].decode("latin-1")
        raise ProxyError(proxy.refusal(f"connect to {target}", code, phrase), code)
