"""httpx on sockets that can be abandoned.

The sockets of httpx's own transport cannot be reached from outside, so an attempt that is abandoned during a TCP
handshake would leave its thread behind until the operating system's timeout. This module is imported with the first
request, because it imports httpcore, a large part of what `import httpx` defers.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..errors import RTVIError
from .net import Detach, Network, Proxy, basic_authorization, naming, open_tunnel, socket_timeout
from .refusals import check_is_http
from .tls import start_tls

_CORE_ERRORS: tuple[type[Exception], ...] = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


class AbandonableClient:
    """The part of `httpx.Client` that one request needs.

    `httpx.Client` logs the URL of every request, and a URL may hold a password or a key; it also reads .netrc and the
    environment.

    Args:
        url: connections go to its origin only.
        network: TLS and proxy.
        signal: shuts the sockets down if the attempt is abandoned.
        max_received: limit of all received bytes.
    """

    def __init__(self, url: str, network: Network, signal: AbortSignal, max_received: int) -> None:
        self._budget = _Budget(max_received)
        proxy = network.proxy_for(url)
        tls = urlsplit(url).scheme == "https"
        #: The proxy that forwards plain requests, and may have made their answers.
        self.forwarding_proxy: Proxy | None = None if tls else proxy
        self._transport = _Transport(network.tls() if tls else None, proxy, signal, self._budget)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def renew_budget(self) -> None:
        """Set the count of received bytes back to 0."""
        self._budget.received = 0

    def limit_reads(self, deadline: Deadline) -> None:
        """Let all reads together last until `deadline`, if the attempt does not end before."""
        self._budget.deadline = deadline

    def build_request(
        self,
        method: str,
        url: str,
        *,
        content: bytes,
        headers: list[tuple[bytes, bytes]],
        timeout: float | None,
        extensions: dict[str, Any],
    ) -> httpx.Request:
        """Return a request as `httpx.Client.build_request()` does."""
        limits = {**extensions, "timeout": httpx.Timeout(timeout).as_dict()}
        return httpx.Request(method, url, content=content, headers=headers, extensions=limits)

    def send(self, request: httpx.Request, *, stream: bool, follow_redirects: bool) -> httpx.Response:
        """Send a request as `httpx.Client.send()` does, with the answer's body unread and no redirect followed."""
        assert stream
        assert not follow_redirects
        response = self._transport.handle_request(request)
        response.request = request
        return response


class _Budget:
    """The limit of all bytes that a server may send, and of the time that it may take beside the attempt's.

    The body has a limit of its own. This one also counts the bytes before and around it, such as `100 Continue` without
    end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.received = 0
        self.deadline = Deadline(None)

    def use(self, size: int) -> None:
        """Count received bytes; raise if the limit is exceeded."""
        self.received += size
        if self.received > self._limit:
            raise httpcore.ReadError(f"the server has sent more than {self._limit} bytes")


class _Transport(httpx.BaseTransport):
    """httpcore's connection handling over sockets that the attempt's signal can shut down, from the first SYN on."""

    def __init__(self, tls: ssl.SSLContext | None, proxy: Proxy | None, signal: AbortSignal, budget: _Budget) -> None:
        backend = _Backend(signal, budget, proxy, forwards=tls is None)
        self._forwarded = tls is None and proxy is not None
        options: dict[str, Any] = {"network_backend": backend, "max_connections": 1, "ssl_context": tls}
        if tls is not None or proxy is None:
            self._pool = httpcore.ConnectionPool(**options)  # the backend opens the tunnel through the proxy
        else:
            authorization = basic_authorization(proxy.url)
            self._pool = httpcore.HTTPProxy(
                f"http://{proxy.url.netloc.rpartition('@')[2]}",
                proxy_headers={"Proxy-Authorization": authorization} if authorization else None,
                **options,
            )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its answer with the body unread."""
        host = request.url.raw_host
        if self._forwarded and b":" in host:
            host = b"[" + host + b"]"  # httpcore puts it into the URL for the proxy as it is
        core_request = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx_errors():
            answer = self._pool.handle_request(core_request)
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_ResponseStream(answer.stream, answer.close),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class _ResponseStream(httpx.SyncByteStream):
    def __init__(self, chunks: Iterable[bytes], close: Callable[[], None]) -> None:
        self._chunks = chunks
        self.close = close  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx_errors():
            yield from self._chunks


@contextlib.contextmanager
def _as_httpx_errors() -> Iterator[None]:
    try:
        yield
    except _CORE_ERRORS as error:
        raise httpx.TransportError(str(error)) from error


class _Backend(httpcore.NetworkBackend):
    """The source of httpcore's connections: to the server, or to the proxy that forwards requests to it."""

    def __init__(self, signal: AbortSignal, budget: _Budget, proxy: Proxy | None, *, forwards: bool) -> None:
        self._signal = signal
        self._budget = budget
        self._tunnel = None if forwards else proxy
        self._forwarding = proxy if forwards else None

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the signal has the remaining time
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Open a connection, through a tunnel if there is a proxy that does not forward."""
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError), naming(self._forwarding):
            opened = open_tunnel(host, port, self._tunnel, self._signal)
        return _SocketStream(*opened, self._signal, self._budget, self._forwarding)


class _SocketStream(httpcore.NetworkStream):
    def __init__(
        self,
        sock: socket.socket,
        detach: Detach,
        signal: AbortSignal,
        budget: _Budget,
        proxy: Proxy | None = None,
    ) -> None:
        self._sock = sock
        self._detach = detach
        self._signal = signal
        self._budget = budget
        self._proxy = proxy  # the peer, if requests are forwarded
        self._begin = b""  # the first 5 received bytes or more

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Read up to `max_bytes`, within the attempt's limit and the budget."""
        with _mapped(httpcore.ReadTimeout, httpcore.ReadError), naming(self._proxy):
            limits = (socket_timeout(self._signal), self._budget.deadline.remaining())
            self._sock.settimeout(min((limit for limit in limits if limit is not None), default=None))
            data = self._sock.recv(max_bytes)
            if len(self._begin) < 5:
                self._begin += data[:5]
                check_is_http(self._begin)
        self._budget.use(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Write all of `buffer`, within the attempt's limit."""
        with _mapped(httpcore.WriteTimeout, httpcore.WriteError), naming(self._proxy):
            self._sock.settimeout(socket_timeout(self._signal))
            self._sock.sendall(buffer)

    def close(self) -> None:
        """Close the socket and end the watch over it."""
        self._detach()
        self._sock.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Return a stream that wraps this one in TLS."""
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            try:
                self._sock.settimeout(socket_timeout(self._signal))
                wrapped = start_tls(self._sock, ssl_context, server_hostname or "")
            except BaseException:
                self.close()
                raise
        return _SocketStream(wrapped, self._detach, self._signal, self._budget)

    def get_extra_info(self, info: str) -> Any:
        """Return the TLS object or the socket."""
        if info == "ssl_object":
            return self._sock if isinstance(self._sock, ssl.SSLSocket) else None
        return self._sock if info == "socket" else None


class _mapped:  # noqa: N801 - used as a statement
    """A context manager that turns the errors of a socket into those that httpcore expects of a backend."""

    def __init__(self, timeout: type[Exception], other: type[Exception]) -> None:
        self._timeout = timeout
        self._other = other

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # An RTVIError is the reason of an abandoned attempt and passes unchanged, also if it is an OSError, too.
        if isinstance(error, OSError) and not isinstance(error, RTVIError):
            raise (self._timeout if isinstance(error, TimeoutError) else self._other)(str(error)) from error
