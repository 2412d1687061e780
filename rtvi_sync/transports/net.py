"""Opening TCP and TLS connections: one way for HTTP and WebSocket, every step of which can be abandoned."""

from __future__ import annotations

import base64
import functools
import socket
import ssl
import urllib.request
from collections.abc import Callable
from urllib.parse import SplitResult, unquote, urlsplit

import attrs
import httpx

from .._version import __version__
from ..concurrency.cancel import AbortSignal
from ..errors import InvalidTransportParamsError, TransportStartError

USER_AGENT = f"rtvi_sync/{__version__}"

# Real answers to CONNECT have a few hundred bytes.
_MAX_CONNECT_ANSWER_BYTES = 64 * 1024


@functools.cache
def _default_ssl_context() -> ssl.SSLContext:
    # Loading the certificate authorities takes tens of milliseconds: once per process, and only when TLS is used.
    return httpx.create_ssl_context()


@attrs.frozen(kw_only=True)
class Network:
    """How this client reaches the network, for HTTP and WebSocket alike.

    Attributes:
        ssl_context: for `https` and `wss`; None: the default one of httpx (certifi, or SSL_CERT_FILE / SSL_CERT_DIR).
        proxy: URL of an HTTP proxy; None: what the environment says (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY);
            False: none at all.
    """

    ssl_context: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    proxy: str | bool | None = attrs.field(default=None, repr=False)  # it may hold a password

    def tls(self) -> ssl.SSLContext:
        return self.ssl_context if self.ssl_context is not None else _default_ssl_context()

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
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.scheme != "http" or parts.hostname is None:
            raise InvalidTransportParamsError(
                f"The proxy has the scheme {parts.scheme!r}; only HTTP proxies are supported. "
                "Pass proxy='http://host:port', or proxy=False to use none."
            )
        return parts


def _proxy_of_environment(url: SplitResult) -> str | None:
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    if urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")


def proxy_authorization(proxy: SplitResult) -> str | None:
    """The value of Proxy-Authorization for the user and password in a proxy's URL."""
    if proxy.username is None:
        return None
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()


Detach = Callable[[], None]


def open_tcp(host: str, port: int, signal: AbortSignal) -> tuple[socket.socket, Detach]:
    """A TCP connection, and the function that ends the watch of `signal` over it.

    The name look-up cannot be abandoned: a thread that hangs in it ends with it, and finds out then.

    Raises:
        OSError: no address could be reached.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    signal.raise_if_aborted()
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for tried, (family, type_, proto, _, address) in enumerate(addresses):
        sock = socket.socket(family, type_, proto)
        try:
            detach = signal.attach(sock)
        except BaseException:
            sock.close()
            raise
        try:
            remaining = signal.remaining()
            # A silent first address must leave time for the others.
            sock.settimeout(None if remaining is None else max(remaining / (len(addresses) - tried), 0.001))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock, detach
        except OSError as error:
            failure = error
            detach()
            sock.close()
            signal.raise_if_aborted()
    raise failure if failure is not None else OSError(f"{host} has no address")


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
            sock.settimeout(signal.remaining())
            sock = network.tls().wrap_socket(sock, server_hostname=host)
    except BaseException:
        detach()
        sock.close()
        raise
    return sock, detach


def _tunnel(sock: socket.socket, proxy: SplitResult, host: str, port: int, signal: AbortSignal) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"User-Agent: {USER_AGENT}"]
    authorization = proxy_authorization(proxy)
    if authorization is not None:
        lines.append(f"Proxy-Authorization: {authorization}")
    sock.settimeout(signal.remaining())
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        sock.settimeout(signal.remaining())
        chunk = sock.recv(4096)
        answer += chunk
        if not chunk or len(answer) > _MAX_CONNECT_ANSWER_BYTES:
            raise TransportStartError(f"The proxy {proxy.hostname}:{proxy.port} did not answer CONNECT with HTTP")
    status = answer.split(b"\r\n", 1)[0].split(b" ", 2)[1:2]
    if status != [b"200"]:
        code = status[0].decode("latin-1") if status else "no status"
        raise TransportStartError(
            f"The proxy {proxy.hostname}:{proxy.port} refused to connect to {target}: {code}",
            status=int(code) if code.isdigit() else None,
        )
