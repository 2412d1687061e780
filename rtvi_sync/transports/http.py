"""The one HTTP request that a client makes: POST a JSON document, get one back, bounded in bytes and time."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from ..concurrency.cancel import AbortSignal
from ..errors import RTVIError, StartBotError
from .net import USER_AGENT, Detach, Network, open_tcp, proxy_authorization

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES = 1024 * 1024
MAX_REDIRECTS = 5
_CHUNK_BYTES = 64 * 1024
_DEFAULT_PORTS = {"http": 80, "https": 443}


_ERRORS: tuple[type[Exception], ...] = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of `url`, with the default port filled in."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def post_json(
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: httpx.Client | None = None,
) -> Any:
    """POST `body` as JSON and return the JSON of the answer (an empty answer is ``{}``).

    Redirects 307 and 308 are followed within the origin of `url`; nothing is ever sent to another one.

    Args:
        client: the caller's own; it brings its TLS settings and proxies, and is not closed. A connection of its pool
            that was opened before cannot be abandoned: a thread that waits on it ends with the limit of the attempt.

    Raises:
        StartBotError: no answer, not 2xx, too large, or not JSON.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    watches: list[Detach] = []

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            sock = info["return_value"].get_extra_info("socket")
            if isinstance(sock, socket.socket):
                watches.append(signal.attach(sock))

    try:
        if client is not None:
            return _follow(client, url, body, headers, signal, {"trace": trace})
        # No environment: the proxy is ours to choose, and a .netrc entry must not become an Authorization header.
        with httpx.Client(transport=_Transport(url, network, signal), trust_env=False) as own:
            return _follow(own, url, body, headers, signal, {})
    except _ERRORS as error:
        signal.raise_if_aborted()
        raise StartBotError(f"The request to {_printable(url)} failed: {_reason(error)}") from error
    finally:
        for detach in watches:
            detach()


def _follow(
    client: httpx.Client,
    url: str,
    body: Any,
    headers: Mapping[str, str],
    signal: AbortSignal,
    extensions: dict[str, Any],
) -> Any:
    origin = origin_of(url)
    for _ in range(MAX_REDIRECTS + 1):
        signal.raise_if_aborted()
        request = client.build_request(
            "POST",
            url,
            json=body,
            # Compression could blow a small answer up to any size; these answers gain nothing by it.
            headers={"User-Agent": USER_AGENT, **headers, "Accept-Encoding": "identity"},
            timeout=signal.remaining(),
            extensions=extensions,
        )
        response = client.send(request, stream=True, follow_redirects=False)
        try:
            if not response.is_redirect:
                return _read_answer(response, url, signal)
            target = str(response.url.join(response.headers["location"]))
        finally:
            response.close()
        if response.status_code not in (307, 308) or origin_of(target) != origin:
            raise StartBotError(
                f"{_printable(url)} redirects ({response.status_code}) to {_printable(target)}, which is not followed: "
                "only 307 and 308 within one origin are. Set base_url and endpoints to where the server really is.",
                status=response.status_code,
            )
        url = target
    raise StartBotError(f"{_printable(url)} redirects more than {MAX_REDIRECTS} times", status=response.status_code)


def _read_answer(response: httpx.Response, url: str, signal: AbortSignal) -> Any:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise StartBotError(
            f"{_printable(url)} answered with Content-Encoding {encoding[:40]!r} though 'identity' was asked for",
            status=response.status_code,
        )
    content = bytearray()
    for chunk in response.iter_raw(_CHUNK_BYTES):
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            if response.is_success:
                raise StartBotError(
                    f"{_printable(url)} answered with more than {MAX_BODY_BYTES} bytes", status=response.status_code
                )
            break
    signal.raise_if_aborted()
    try:
        document = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        document = None
    if not response.is_success:
        raise StartBotError(
            f"{_printable(url)} answered {response.status_code}: {_error_text(document, response)}",
            status=response.status_code,
        )
    if document is None:
        raise StartBotError(f"{_printable(url)} did not answer with JSON", status=response.status_code)
    return document


def _error_text(document: Any, response: httpx.Response) -> str:
    if isinstance(document, Mapping):
        for key in ("info", "detail"):
            value = document.get(key)
            if value:
                # Validation errors come as a list of objects.
                text = value if isinstance(value, str) else json.dumps(value)
                return "".join(c if c.isprintable() else " " for c in text[:500])
    return response.reason_phrase or "no reason given"


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "the server does not speak TLS; its URL may have to begin with http://"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _printable(url: str) -> str:
    """`url` without what may be secret: user, password, query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


# -- httpx on sockets that can be abandoned ---------------------------------------------------------------------------


class _Transport(httpx.BaseTransport):
    """httpcore's connection handling over sockets that the attempt's signal can shut down, from the first SYN on.

    httpx's own transport makes its sockets out of reach, so that an abandoned attempt would leave its thread behind
    until the operating system gives up.
    """

    def __init__(self, url: str, network: Network, signal: AbortSignal) -> None:
        proxy = network.proxy_for(url)
        options: dict[str, Any] = {"network_backend": _Backend(signal), "max_connections": 1}
        if url.startswith("https:"):
            options["ssl_context"] = network.tls()
        if proxy is None:
            self._pool = httpcore.ConnectionPool(**options)
        else:
            authorization = proxy_authorization(proxy)
            self._pool = httpcore.HTTPProxy(
                f"http://{proxy.netloc.rpartition('@')[2]}",
                proxy_headers={"Proxy-Authorization": authorization} if authorization else None,
                **options,
            )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_ResponseStream(answer.stream, answer.close),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        self._pool.close()


class _ResponseStream(httpx.SyncByteStream):
    def __init__(self, chunks: Iterable[bytes], close: Callable[[], None]) -> None:
        self._chunks = chunks
        self.close = close  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the signal knows what is left
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            return _Stream(*open_tcp(host, port, self._signal), self._signal)


class _Stream(httpcore.NetworkStream):
    def __init__(self, sock: socket.socket, detach: Detach, signal: AbortSignal) -> None:
        self._sock = sock
        self._detach = detach
        self._signal = signal

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        with _mapped(httpcore.ReadTimeout, httpcore.ReadError):
            self._sock.settimeout(self._signal.remaining())
            return self._sock.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        with _mapped(httpcore.WriteTimeout, httpcore.WriteError):
            self._sock.settimeout(self._signal.remaining())
            self._sock.sendall(buffer)

    def close(self) -> None:
        self._detach()
        self._sock.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            try:
                self._sock.settimeout(self._signal.remaining())
                wrapped = ssl_context.wrap_socket(self._sock, server_hostname=server_hostname)
            except BaseException:
                self.close()
                raise
        return _Stream(wrapped, self._detach, self._signal)

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object":
            return self._sock if isinstance(self._sock, ssl.SSLSocket) else None
        return self._sock if info == "socket" else None


class _mapped:  # noqa: N801 - used as a statement
    """Turns the errors of a socket into the ones that httpcore expects of a backend."""

    def __init__(self, timeout: type[Exception], other: type[Exception]) -> None:
        self._timeout = timeout
        self._other = other

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # Reasons of an abandoned attempt may be OSErrors by their second base class; they pass unchanged.
        if isinstance(error, OSError) and not isinstance(error, RTVIError):
            raise (self._timeout if isinstance(error, TimeoutError) else self._other)(str(error)) from error
