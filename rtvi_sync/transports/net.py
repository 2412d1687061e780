"""TCP and TLS connections for HTTP and WebSocket; every step of opening one can be abandoned."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import re
import socket
import ssl
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from .._version import __version__
from ..concurrency.abort import AbortSignal
from ..errors import InvalidTransportParamsError, RTVIError
from ..protocol.validation import headers_fault
from .happy_eyeballs import Detach as Detach
from .happy_eyeballs import connect_first
from .refusals import NoHTTPError, check_is_http, refusal, without_interim_answers
from .tls import default_context, start_tls, warn_if_unverified


class HTTPClient(Protocol):
    """The part of an application's own client that the package uses: `httpx.Client` has it, and that of httpx2."""

    @property
    def build_request(self) -> Callable[..., Any]:
        """The method that makes a request."""

    @property
    def send(self) -> Callable[..., Any]:
        """The method that sends one."""

    def close(self) -> None:
        """Close its connections. The package never does."""


USER_AGENT = f"rtvi_sync/{__version__}"

# A bound, because a proxy may send without end; real answers to CONNECT have a few hundred bytes.
_MAX_CONNECT_ANSWER_BYTES = 64 * 1024
# In seconds. The largest socket timeout that every platform accepts.
_MAX_TIMEOUT = 1e6
# In seconds. The owner of an attempt abandons it when its limit has passed, which wakes the socket with a reason. The
# socket's own timeout is this much later, so it only applies without an owner, or where shutdown() wakes no thread.
_GRACE = 1.0
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_DEFAULT_PORTS = {"http": 80, "https": 443}
# In NO_PROXY: a name, an address or a block, and a port; an address of IPv6 has a port only behind brackets.
_NO_PROXY_ENTRY = re.compile(
    r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^\[\]/:]*|[^\[\]/]*:[^\[\]/]*:[^\[\]/]*))(?P<bits>/\d+)?(?::(?P<port>\d+))?"
)
# A URL that httpx would not change, as most are: importing httpx takes longer than many sessions take to begin.
_PLAIN_URL = re.compile(
    rf"[a-z]+://(?:[0-9.]*[a-z_-][0-9a-z._-]*|{_OCTET}(?:\.{_OCTET}){{3}})"  # a number is not a host name
    r"(?::(?!(?:80|443)(?:[/?]|\Z))[1-9]\d{0,4})?"  # httpx leaves out the port that is the default one
    r"(?:/(?!\.)[0-9A-Za-z_~-][0-9A-Za-z._~-]*)*/?(?:\?[0-9A-Za-z._~=&-]+)?",
    re.ASCII,
)
_MAX_PLAIN_URL = 2048
# A host name in its ASCII form, or an IPv6 address.
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f]*:[0-9a-f:.]+(%[0-9a-z._-]+)?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19})://")
_SECRET = re.compile(r"/(sessions|ws-client|ws)/[^/]+")  # in a path, what stands after one of these


@attrs.frozen(kw_only=True)
class Network:
    """The client's network settings, for HTTP and WebSocket alike.

    Attributes:
        ssl_context: for `https` and `wss`; None: one that trusts the authorities of certifi, or of SSL_CERT_FILE or
            SSL_CERT_DIR.
        proxy: URL of an HTTP proxy; None: the proxy of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY);
            False: no proxy.
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
        if self.proxy is False:
            return None
        given = self.proxy if isinstance(self.proxy, str) else None
        proxy, origin = _proxy_of_environment(urlsplit(url)) if given is None else (given, PROXY_OPTION)
        if not proxy:
            return None
        parts = parse_url(proxy if "://" in proxy else f"http://{proxy}", "http")
        # A password with one of /?# in it, not escaped, may look like a port and what follows it.
        if parts is None or "@" in parts.path + parts.query + parts.fragment:
            # Only a scheme is shown, because the rest may hold a password.
            scheme = _SCHEME.match(proxy)
            if scheme is not None and scheme[1].lower() != "http":
                fault = f"has the scheme {scheme[1]!r}"
            else:
                fault = "is not a valid URL (in a password special characters are escaped, such as # as %23)"
            raise InvalidTransportParamsError(
                f"The proxy ({origin}) {fault}; only HTTP proxies are supported. Pass proxy='http://host:port', or "
                "proxy=False to use none."
            )
        return Proxy(parts, origin)

    def forwarding_proxy_for(self, url: str) -> Proxy | None:
        """Return the proxy that forwards requests to `url`, as it does without TLS, and may make their answers."""
        return self.proxy_for(url) if urlsplit(url).scheme == "http" else None


# -- proxies ----------------------------------------------------------------------------------------------------------

PROXY_OPTION = "proxy= option"


@attrs.frozen
class Proxy:
    """An HTTP proxy.

    Attributes:
        url: its URL, which may hold a user and password.
        origin: where it is set, for error texts: the option, a variable, or the settings of the system.
    """

    url: SplitResult = attrs.field(repr=False)
    origin: str

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and the port."""
        return self.url.hostname or "", self.url.port or 80

    def __str__(self) -> str:
        return f"proxy {authority(*self.address)} ({self.origin})"

    @property
    def alternative(self) -> str:
        """Return the advice how to connect without the proxy."""
        no_proxy = "" if self.origin == PROXY_OPTION else "add the host to NO_PROXY or "
        return f"{no_proxy}pass proxy=False to reach the server directly"

    @property
    def doubt(self) -> str:
        """Return the advice for a refusal that may be that of the server, or of this proxy, which has forwarded it."""
        return f"If the {self} has refused it, {self.alternative}"

    def refusal(self, what: str, status: int, phrase: str) -> str:
        """Return the text of the error for the proxy's refusal to do `what`."""
        login = f"Put user and password into its URL, http://user:password@{authority(*self.address)}, or "
        advice = (login if status == 407 else "See the proxy's log, or ") + self.alternative
        return refusal(f"the {self} refused to {what} with", status, phrase=phrase, advice=advice)


class ProxyError(ConnectionError):
    """The error of a proxy that cannot be used. The text names the proxy and says what to do.

    Attributes:
        status: the status of its refusal, or None.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@contextlib.contextmanager
def naming(proxy: Proxy | None) -> Iterator[None]:
    """Turn the errors of a socket that is connected to `proxy` into ones that name the proxy."""
    try:
        yield
    except OSError as error:
        # An RTVIError is the reason of an abandoned attempt, and may be an OSError by its second base class.
        if proxy is None or isinstance(error, (RTVIError, ProxyError)):
            raise
        text = f"the {proxy} cannot be used: {error}. Check that it is running, or {proxy.alternative}"
        raise ProxyError(text) from error


def _proxy_of_environment(url: SplitResult) -> tuple[str | None, str]:
    """Return the URL of the proxy for `url`, or None, and the setting that it comes from."""
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    # On these two platforms a proxy may be in the settings of the system. On others, without a variable, the look-up
    # below would find nothing and go through the environment three times.
    if sys.platform not in ("darwin", "win32") and "_proxy" not in " ".join(os.environ).lower():
        return None, ""
    import urllib.request  # imported on demand, because it imports all of HTTP

    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    host = url.hostname or ""
    if proxy is None or needs_no_proxy(host, url.port or _DEFAULT_PORTS[scheme], proxies.get("no", "")):
        return None, ""
    if "no" not in proxies and sys.platform in ("darwin", "win32") and urllib.request.proxy_bypass(host):
        return None, ""  # by the exceptions in the settings of the system
    wanted = (f"{scheme}_proxy", "all_proxy")
    names = (name for name, value in os.environ.items() if value == proxy and name.lower() in wanted)
    variable = next(names, None)
    return proxy, f"{variable} in the environment" if variable is not None else "settings of the system"


def needs_no_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY exempts a server, by the rules of curl.

    The list is `*`, or its entries are separated by commas or blanks: a name, which also stands for all names below it,
    an address, or a block of addresses such as 127.0.0.0/8. Beyond curl's rules an entry may have a port, as those of
    Python's urllib and of Go.

    Args:
        host: name or address, without brackets.
        port: of the server.
        no_proxy: the value of the variable.
    """
    if no_proxy.strip() == "*":
        return True
    name = host.lower().removesuffix(".")
    address = _address(name)
    for entry in no_proxy.lower().replace(",", " ").split():
        found = _NO_PROXY_ENTRY.fullmatch(entry)
        if found is None or (found["port"] or str(port)) != str(port):
            continue
        exempt = (found["bracketed"] or found["plain"]) + (found["bits"] or "")
        if address is None:
            exempt = exempt.removesuffix(".").removeprefix(".")
            if exempt and (name == exempt or name.endswith(f".{exempt}")):
                return True
        else:
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(exempt, strict=False):
                    return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- URLs and headers -------------------------------------------------------------------------------------------------


def parse_url(text: str, *schemes: str) -> SplitResult | None:
    """Return the parts of a URL of one of `schemes`, in their ASCII form; None if the URL is not valid."""
    try:
        if text != text.strip():  # httpx would take a blank at the end, where one was pasted, for a part of the path
            return None
        parts = urlsplit(text)  # raises for some hosts that httpx accepts
        if len(text) > _MAX_PLAIN_URL or not _PLAIN_URL.fullmatch(text) or "xn--" in text:
            parts = urlsplit(_normalized(text))
        valid = parts.scheme in schemes and _HOST.fullmatch(parts.hostname or "") and parts.port != 0
        return parts if valid else None
    except ValueError:
        return None


#: The scheme, host and port of a server.
Origin: TypeAlias = tuple[str, str, int]


def origin(url: str) -> Origin | None:
    """Return the origin of an ``http`` or ``https`` URL, with the default port filled in; None if it is no such URL."""
    parts = parse_url(url, "http", "https")
    return (parts.scheme, parts.hostname or "", port_of(parts)) if parts else None


def port_of(url: SplitResult) -> int:
    """Return the port of a valid URL, or the default one of its scheme."""
    return url.port or (443 if url.scheme in ("https", "wss") else 80)


def url_fault(text: str, *schemes: str) -> str:
    """Return the fault of a URL that `parse_url()` refuses, without any part of the URL, which may hold a key."""
    if text != text.strip() or not text.isprintable():
        return "it has a space or a line break at one end, or a control character in it"
    scheme, separator, _ = text.partition("://")
    allowed = " or ".join(f"{name}://" for name in schemes)
    if not separator:
        return f"it has no scheme; put {allowed} before it"
    if scheme.lower() not in schemes:
        return f"it has to begin with {allowed}"
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
        normalized = httpx.URL(url)
        normalized.host  # noqa: B018 - raises a ValueError for "xn--" before what is no name
        return str(normalized)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None


def printable(url: str) -> str:
    """Return `url` without its user, password, query and fragment, which may be secret; a placeholder for a non-URL.

    Two parts of Pipecat's paths are left out, too, because they let their holder in: the name of a session, as in
    ``/sessions/NAME/api/offer``, and the token in ``/ws-client/TOKEN`` and ``/ws/TOKEN``.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a number, which may be a part of a password
    except ValueError:
        return "(not a URL)"
    netloc, path = parts.netloc.rpartition("@")[2], parts.path
    if not netloc:
        path = path.rpartition("@")[2]  # without a valid scheme, the path has the user and password
    elif ":" in parts.netloc:  # the port may be the beginning of a password that has one of /?# in it
        if "@" in f"{parts.query}#{parts.fragment}".partition("=")[0]:
            return "(not a URL)"
        if re.search("[^/]@", path):  # but /@name is a path
            host, slash, path = path.rpartition("@")[2].partition("/")
            netloc, path = f"...@{host}", slash + path
    path = _SECRET.sub(r"/\1/...", path)
    shown = parts._replace(netloc=netloc, path=path, query="", fragment="").geturl()[:200]
    return "".join(c if c.isprintable() else "?" for c in shown)


def is_private_host(host: str) -> bool:
    """Tell whether `host` is this machine or a private address, as far as is known without a name look-up."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def basic_authorization(url: SplitResult) -> str | None:
    """Return the value of (Proxy-)Authorization for the user and password in a URL; None if it has none."""
    if url.username is None:
        return None
    credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()


def check_headers(headers: Mapping[str, str], own: Collection[str] = ()) -> None:
    """Refuse headers that could inject others. The libraries would show the value, which may be secret.

    Args:
        headers: by name.
        own: the names, in lower case, that the request has already.

    Raises:
        InvalidTransportParamsError: a name or value is not valid, the name is one of `own`, or there are too many.
    """
    if fault := headers_fault(headers, own):
        raise InvalidTransportParamsError(f"The request cannot be sent: {fault}")


def merged_headers(*headers: Mapping[str, str]) -> dict[str, str]:
    """Return all headers; of those with one name, in whatever case, the last."""
    merged = {name.lower(): (name, value) for each in headers for name, value in each.items()}
    return dict(merged.values())


# -- connections ------------------------------------------------------------------------------------------------------


def socket_timeout(signal: AbortSignal) -> float | None:
    """Return how long the next call of a socket may block, in seconds; None: no limit.

    Raises:
        TimeoutError: the limit has passed, and the attempt was not abandoned.
        BaseException: the signal's reason, if the attempt was abandoned at its limit.
    """
    remaining, grace = signal.remaining(), _GRACE if signal.is_supervised else 0.0
    if remaining == 0.0:
        signal.wait(grace)
        signal.raise_if_aborted()
        raise TimeoutError("timed out")
    return None if remaining is None else min(remaining + grace, _MAX_TIMEOUT)


def open_tcp(host: str, port: int, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """Open a TCP connection; return it and the function that ends the watch of `signal` over it.

    The name look-up cannot be abandoned: the abort takes effect when the look-up has returned.

    Raises:
        OSError: no address could be reached; with several addresses the message has the reason of each one.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    signal.raise_if_aborted()
    try:
        # Passed as bytes, because the first look-up of a str in a process loads all IDNA tables, and this is ASCII.
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
    # Keep-alive, because a client that sends nothing would never notice the loss of the network.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def open_stream(url: SplitResult, network: Network, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """Open a connection to the server of a ``ws`` or ``wss`` URL, through the proxy if there is one, with TLS for wss.

    Raises:
        OSError: the connection could not be opened.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    host = url.hostname or ""
    sock, detach = open_tunnel(host, port_of(url), network.proxy_for(url.geturl()), signal)
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
    """Open a connection as `open_tcp()`, through `proxy` if there is one.

    Raises:
        ProxyError: the proxy cannot be reached, or refuses.
        OSError, BaseException: as `open_tcp()`.
    """
    if proxy is None:
        return open_tcp(host, port, signal)
    with naming(proxy):
        sock, detach = open_tcp(*proxy.address, signal)
        try:
            _request_tunnel(sock, proxy, authority(host, port), signal)
        except BaseException:
            detach()
            sock.close()
            raise
        return sock, detach


def _request_tunnel(sock: socket.socket, proxy: Proxy, target: str, signal: AbortSignal) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    authorization = basic_authorization(proxy.url)
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    answer, size = b"", 0
    while b"\r\n\r\n" not in answer:
        sock.settimeout(socket_timeout(signal))
        chunk = sock.recv(4096)
        size += len(chunk)
        answer += chunk
        check_is_http(answer)
        answer = without_interim_answers(answer)
        if not chunk or size > _MAX_CONNECT_ANSWER_BYTES:
            raise NoHTTPError("its answer to CONNECT is not HTTP")
    status = re.match(rb"HTTP/1\.[01] (\d{3})\b ?([^\r\n]*)", answer)
    if status is None:
        raise NoHTTPError("its answer to CONNECT is not HTTP")
    code = int(status[1])
    if not 200 <= code <= 299:
        phrase = status[2].decode("latin-1")
        raise ProxyError(proxy.refusal(f"connect to {target}", code, phrase), code)
