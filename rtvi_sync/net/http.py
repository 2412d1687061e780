"""HTTP requests, by httpx on sockets of `dial()`: POST a document, read one or a stream of them, within limits.

httpx and httpcore are named in this module alone, which is imported with the first request: the import takes longer
than many sessions take to start. The sockets of httpx's own transport cannot be reached from outside, so an attempt
that is abandoned during a TCP handshake would leave its thread behind until the operating system's timeout.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit
from urllib.request import Request

import attrs
import httpcore
import httpx

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..errors import RTVIError
from ..protocol import envelope
from ..protocol.text import one_line, quoted, raised
from ..protocol.validation import OWN_HEADERS
from .advice import ACTION, CONNECT, START, UPLOAD, Purpose, failure_text, origin_of, refusal, status_of
from .dial import USER_AGENT, Detach, Network, check_is_http, dial_by, socket_timeout
from .proxies import Proxy, naming
from .urls import basic_authorization, check_headers, merged_headers, origin, port_of, printable, server_of

T = TypeVar("T")

MAX_REDIRECTS: Final = 5
# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES: Final = 1024 * 1024
# One message of a stream, or the only one. The largest one seen, a bot's complete config, has some kB.
MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
# Base64 encodes three bytes as four characters; the names of fields and the line ends are added.
MAX_ENCODED_BYTES: Final = MAX_EVENT_BYTES // 3 * 4 + MAX_BODY_BYTES
# Twice the limit of a body, because the bytes around it, such as `100 Continue` without end, are counted as well.
MAX_RECEIVED_BYTES: Final = 2 * MAX_BODY_BYTES
# In bytes, as in browsers.
_MAX_COOKIE = 4096
# In seconds, as for a WebSocket's refusal. The body of a refusal only explains it: later bytes are ignored.
_REASON_TIMEOUT = 1.0
# The memory of a line of an incomplete event beyond its text: each line is a string of its own, however short.
_LINE_BYTES = 64
_SLICE_BYTES = 64 * 1024
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}(?![^;\s])")


class HTTPClient(Protocol):
    """The part of an application's client that the package uses. `httpx.Client` and the client of httpx2 have it."""

    @property
    def build_request(self) -> Callable[..., Any]:
        """The method that makes a request."""

    @property
    def send(self) -> Callable[..., Any]:
        """The method that sends a request."""

    def close(self) -> None:
        """Close its connections. The package never does."""


@attrs.frozen
class HTTPAnswer:
    """The JSON answer to a request.

    Attributes:
        document: The JSON document; ``{}`` for an empty answer.
        url: The URL that has answered, after redirects, with the user and password of the URL that was requested.
        cookies: The cookies that the answers have set; None if there are none.
    """

    document: Any
    url: str = attrs.field(repr=False)
    cookies: CookieJar | None = attrs.field(repr=False)


def post_json(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
    purpose: Purpose = CONNECT,
) -> HTTPAnswer:
    """POST `body`, a JSON text, and return the JSON answer.

    Redirects 307 and 308 are followed within the origin of `url`; nothing is ever sent to another one.

    Args:
        url: The URL of the endpoint.
        body: The JSON text.
        headers: The caller's headers.
        network: The TLS context and the proxy.
        signal: The signal of the attempt.
        client: The caller's client; its TLS settings and proxies apply, and it is not closed. An attempt can be
            abandoned once the client has opened a connection, or, on a pooled connection, once the head of the answer
            has arrived. Before that, an abandoned attempt leaves its thread behind: until the limit of the attempt, or
            for as long as the server goes on sending a head, of which httpx reads 100 kB.
        purpose: Selects the errors of the request and their advice.

    Raises:
        StartBotError: (or the error of `purpose`) No answer, not 2xx, too large, or not JSON.
        InvalidTransportParamsError: A header or the proxy is not valid.
        BaseException: The signal's reason, if the attempt was abandoned.
    """
    exchange = _Exchange(url, purpose, network, signal, client, MAX_RECEIVED_BYTES)
    return _only(exchange.run("POST", body, headers, exchange.document))


def get_json(
    url: str, *, headers: Mapping[str, str], network: Network, signal: AbortSignal, client: HTTPClient | None = None
) -> HTTPAnswer:
    """GET `url` as `post_json()` POSTs to it."""
    exchange = _Exchange(url, START, network, signal, client, MAX_RECEIVED_BYTES)
    return _only(exchange.run("GET", b"", headers, exchange.document))


def post_file(
    url: str,
    name: str,
    content: bytes,
    media_type: str,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
) -> HTTPAnswer:
    """POST a file as a form does, and return the JSON answer. The rules of `post_json()` apply."""
    form = httpx.Request("POST", url, files={"file": (name, content, media_type)})
    fields = merged_headers(headers, {"Content-Type": form.headers["Content-Type"]})
    return post_json(url, form.read(), headers=fields, network=network, signal=signal, client=client, purpose=UPLOAD)


def post_stream(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
) -> Iterator[bytes]:
    """POST `body`, a JSON text, and yield the JSON texts of the answer, each at most `MAX_EVENT_BYTES` long.

    An event stream has one text in each event, in base64; any other answer is one text. The texts are not parsed here,
    because the caller parses them, with limits of its own. The rules of `post_json()` apply. Iterate and close the
    generator on one thread.

    Raises:
        RequestRejectedError: The answer is not 2xx; the error has its `status`.
        DisconnectedError: The server cannot be reached, or the answer broke off.
        RequestTimeoutError: The limit has passed, and the attempt was not abandoned.
        ProtocolError: The answer is compressed, has an event that is not base64, or one that is too large.
        ActionEndpointNotSetError: `url` is not a valid URL.
        InvalidTransportParamsError, BaseException: As for `post_json()`.
    """
    exchange = _Exchange(url, ACTION, network, signal, client, 2 * MAX_ENCODED_BYTES)
    yield from exchange.run("POST", body, headers, exchange.messages)


def _only(parts: Generator[T, None, None]) -> T:
    with contextlib.closing(parts):
        return next(parts)


class _Exchange:
    """One request and its answer: the flow, from top to bottom, is `_answer()`; `run()` turns errors into ours.

    Args:
        url: The URL of the endpoint.
        purpose: The purpose of the request.
        network: The TLS context and the proxy.
        signal: The signal of the attempt.
        client: The caller's client; None: the request is sent on a socket of `dial()`.
        max_received: The limit of all received bytes of a connection.
    """

    def __init__(
        self,
        url: str,
        purpose: Purpose,
        network: Network,
        signal: AbortSignal,
        client: HTTPClient | None,
        max_received: int,
    ) -> None:
        self._origin = origin_of(url, purpose)
        self._url = url
        self._purpose = purpose
        self._network = network
        self._signal = signal
        self._client = client
        self._max_received = max_received
        self._stream: _DialedStream | None = None  # of the connection, unless it is a client's
        self._proxy: Proxy | None = None  # that forwards the request, and may have made its answer
        self._cleanup = contextlib.ExitStack()
        self._is_watched = False  # the signal watches a socket of the client
        self._answered = False
        self._cookies: CookieJar | None = None

    @property
    def _where(self) -> str:
        """The URL of the last request, without secrets."""
        return printable(self._url)

    def run(
        self,
        method: str,
        body: bytes,
        headers: Mapping[str, str],
        read: Callable[[httpx.Response], Iterator[T]],
    ) -> Generator[T, None, None]:
        """Send the request and yield the parts that `read()` makes of the answer.

        Raises:
            RTVIError: An error of the purpose.
            InvalidTransportParamsError: A header or the proxy is not valid.
            BaseException: The signal's reason, if the attempt was abandoned.
        """
        _sending.now = True
        try:
            check_headers(headers, OWN_HEADERS)
            yield from read(self._answer(method, body, self._fields(headers)))
            return
        except RTVIError:
            raise
        except _failures() as error:
            failure = self._failure(error)
        finally:
            try:
                self._cleanup.close()
            finally:
                _sending.now = False
        # Raised here, because inside the block it would have the error of httpx as its context, and be shown with the
        # secrets in it.
        try:
            raise failure
        finally:
            del failure

    def _answer(self, method: str, body: bytes, fields: httpx.Headers) -> httpx.Response:
        """Send the request, follow redirects, and return the answer, whose body can be read."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(method, body, fields)
            self._answered = True
            if "set-cookie" in response.headers:
                self._cookies = self._cookies or CookieJar(_CookiePolicy())
                httpx.Cookies(self._cookies).extract_cookies(response)
            if not response.has_redirect_location:
                break
            self._redirect(response)
        else:
            raise self._purpose.refused(
                f"{self._where} redirects more than {MAX_REDIRECTS} times. Set base_url and endpoints to the "
                "server's final address.",
                status=response.status_code,
            )
        if not response.is_success:
            raise self._purpose.refused(self._refusal(response), status=response.status_code)
        if _is_compressed(response):
            encoding = response.headers["content-encoding"].strip().lower()
            raise self._unusable(
                f"{self._where} answered with Content-Encoding {quoted(encoding, 40)} though 'identity' was "
                "requested. Switch compression off for this endpoint",
                response,
            )
        return response

    # -- sending ------------------------------------------------------------------------------------------------------

    def _fields(self, headers: Mapping[str, str]) -> httpx.Headers:
        # Case-insensitive, unlike a dict, which would send a header twice if the caller spells its name differently.
        fields = httpx.Headers({"User-Agent": USER_AGENT, "Content-Type": "application/json", **self._purpose.headers})
        fields.update(headers)
        # User and password are sent in a header, because the URL may be logged. The caller's header takes precedence.
        authorization = basic_authorization(urlsplit(self._url))
        if authorization is not None:
            fields.setdefault("Authorization", authorization)
        # No compression, because a small compressed answer could expand to any size.
        fields["Accept-Encoding"] = "identity"
        return fields

    def _send(self, method: str, body: bytes, fields: httpx.Headers) -> httpx.Response:
        """Send one request; its answer is closed at the end of the exchange."""
        self._signal.raise_if_aborted()
        # httpx.Client would log the URL of every request, which may hold a password or a key.
        url, limit = _without_login(self._url), socket_timeout(self._signal)
        if self._client is None:
            return self._send_by_dial(httpx.Request(method, url, content=body, headers=fields))
        request = self._client.build_request(
            method,
            url,
            content=body,
            headers=fields.raw,  # httpx2 would change the names of a mapping to lower case
            timeout=limit,
            extensions={"trace": self._trace},
        )
        try:
            response: httpx.Response = self._client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            self._signal.raise_if_aborted()
            if isinstance(error, (*_either("HTTPError"), TimeoutError, RTVIError)):
                raise
            raise self._purpose.failed(f"The http_client raised {raised(error)}") from error
        self._cleanup.callback(response.close)
        # A connection of the client's pool is known when the head of the answer has arrived. One of HTTP/2 is not shut
        # down, because it carries the answers to other requests, too.
        if not self._is_watched and response.http_version != "HTTP/2":
            self._watch(response.extensions.get("network_stream"))
        return response

    def _send_by_dial(self, request: httpx.Request) -> httpx.Response:
        url = urlsplit(str(request.url))
        target, headers = request.url.raw_path, request.headers.raw
        proxy = self._network.proxy_for(self._url)
        self._proxy = proxy if url.scheme == "http" else None  # otherwise it is a tunnel
        if self._proxy is not None:
            target = f"{url.scheme}://{url.netloc}".encode("ascii") + target  # no fragment, which is not sent
            if (authorization := basic_authorization(self._proxy.url)) is not None:
                headers = [(b"Proxy-Authorization", authorization.encode("ascii")), *headers]
        sock, detach = dial_by(proxy, url, self._network, self._signal)
        self._stream = _DialedStream(sock, detach, self._signal, self._proxy, self._max_received)
        self._cleanup.callback(self._stream.close)
        # TLS is beneath the stream, so that to httpcore the connection is a plain one.
        core_url = httpcore.URL(scheme=b"http", host=request.url.raw_host, port=port_of(url), target=target)
        connection = httpcore.HTTP11Connection(core_url.origin, self._stream)
        answer = connection.handle_request(
            httpcore.Request(request.method, core_url, headers=headers, content=request.stream)
        )
        assert isinstance(answer.stream, Iterable)
        response = httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
            request=request,
        )
        self._cleanup.callback(response.close)
        return response

    def _redirect(self, response: httpx.Response) -> None:
        """Make the target of a redirect the URL of the next request.

        Raises:
            RTVIError: It is not followed.
        """
        status = response.status_code
        target = str(response.url.join(response.headers["location"]))
        response.close()
        if self._stream is not None:
            self._stream.close()
        if status not in (307, 308) or origin(target) != self._origin:
            raise self._purpose.refused(
                f"{self._where} redirects ({status}) to {printable(target)}, which is not followed: "
                "only 307 and 308 within one origin are. Set base_url and endpoints to the server's final address.",
                status=status,
            )
        # The login is the caller's: a server chooses no Authorization for the requests that follow.
        login, at, _ = urlsplit(self._url).netloc.rpartition("@")
        parts = urlsplit(target)
        self._url = parts._replace(netloc=f"{login}{at}{server_of(parts)}").geturl()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Watch a new connection of the client. Called by httpcore with each step of the request."""
        if event.endswith("connect_tcp.complete"):
            stream = info["return_value"]
            try:
                self._watch(stream)
            except BaseException:
                stream.close()
                raise

    def _watch(self, stream: Any) -> None:
        """Let the signal shut the socket of the client down."""
        sock = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(sock, socket.socket):
            self._cleanup.callback(self._signal.attach(sock))
            self._is_watched = True

    # -- reading ------------------------------------------------------------------------------------------------------

    def document(self, response: httpx.Response) -> Iterator[HTTPAnswer]:
        """Yield the JSON document of the answer."""
        content = self._read_whole(response, MAX_BODY_BYTES)
        try:
            document = json.loads(content) if content.strip() else {}
            if envelope.is_too_deep(document):
                raise RecursionError
        except RecursionError:
            text = f"{self._where} answered with a document of more than {envelope.MAX_DEPTH} levels"
            raise self._unusable(f"{text}. {self._purpose.check}", response) from None
        except ValueError:
            found = _MEDIA_TYPE.match(response.headers.get("content-type", ""))
            but = f" but with {found[0]}" if found and found[0] != "application/json" else ""
            text = f"{self._where} did not answer with JSON{but}. {self._purpose.check}"
            raise self._unusable(text, response) from None
        yield HTTPAnswer(document, self._url, self._cookies)

    def messages(self, response: httpx.Response) -> Iterator[bytes]:
        """Yield the JSON texts of the answer as they arrive."""
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
            content = self._read_whole(response, MAX_EVENT_BYTES)
            if content.strip():
                yield content
            return
        from httpx_sse import EventSource  # imported on demand, because few applications need it

        body = _EventBody(self._chunks(response), self._too_large(MAX_EVENT_BYTES))
        # A response made here, because httpx would apply the server's character set to the original one: events are
        # UTF-8, and the standard allows a byte order mark.
        stream = httpx.Response(
            200, headers={"Content-Type": "text/event-stream"}, stream=body, default_encoding="utf-8-sig"
        )
        for event in EventSource(stream).iter_sse():
            if self._stream is not None:
                self._stream.received = 0  # a stream may be longer than the limit of one message
            body.event_bytes = 0
            if event.data:  # an event without data only keeps the connection open
                yield self._decoded(event.data, broken_off=body.ended)

    def _decoded(self, data: str, *, broken_off: bool) -> bytes:
        try:
            text = base64.b64decode("".join(data.split()), validate=True)
            if broken_off:
                json.loads(text)
        except (ValueError, RecursionError):
            if broken_off:
                raise self._purpose.failed(f"{self._where} broke off inside an event. See the server's log") from None
            raise self._purpose.unusable(
                f"{self._where} sent an event that is not the base64 of a JSON text: {quoted(data, 40)}. "
                f"{self._purpose.check}"
            ) from None
        if len(text) > MAX_EVENT_BYTES:
            raise self._too_large(MAX_EVENT_BYTES)
        return text

    def _read_whole(self, response: httpx.Response, limit: int) -> bytes:
        content = self._read_up_to(response, limit, Deadline(None))
        if len(content) > limit:
            error = self._too_large(limit)
            error.status = response.status_code
            raise error
        return content

    def _read_up_to(self, response: httpx.Response, limit: int, deadline: Deadline) -> bytes:
        """Return the body, or the start of it: a part that is longer than `limit`, or has arrived by the deadline."""
        content = bytearray()
        for chunk in self._chunks(response):
            content += chunk
            if len(content) > limit or deadline.expired:
                break
        return bytes(content)

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        for chunk in response.iter_bytes():
            self._signal.raise_if_aborted()
            socket_timeout(self._signal)  # raises after the limit, also on a connection that cannot be shut down here
            yield chunk
        self._signal.raise_if_aborted()

    # -- errors -------------------------------------------------------------------------------------------------------

    def _unusable(self, text: str, response: httpx.Response) -> RTVIError:
        return self._purpose.unusable(text, status=response.status_code)

    def _too_large(self, limit: int) -> RTVIError:
        return self._purpose.unusable(f"{self._where} answered with more than {limit} bytes. {self._purpose.check}")

    def _refusal(self, response: httpx.Response) -> str:
        """Return the text of the error for an answer that is not a success."""
        status, proxy = response.status_code, self._proxy
        if proxy is not None and status == 407:
            refused = proxy.refusal("forward it", status, response.reason_phrase)
            return f"The request to {self._where} failed: {refused}"
        return refusal(
            f"{self._where} answered",
            status,
            phrase=response.reason_phrase,
            body=b"" if _is_compressed(response) else self._read_reason(response),
            retry_after=response.headers.get("retry-after"),
            challenge=response.headers.get("www-authenticate"),
            authorization=response.request.headers.get("authorization"),
            scheme=response.url.scheme,
            advice=self._purpose.advice_for(status),
            doubt=proxy.doubt if proxy is not None else "",
        )

    def _read_reason(self, response: httpx.Response) -> bytes:
        """Return the part of a refusal's body that is within the limits and arrives within about 1 s."""
        deadline, content = Deadline(_REASON_TIMEOUT), b""
        if self._stream is not None:
            self._stream.deadline = deadline
        else:
            response.request.extensions.get("timeout", {})["read"] = _REASON_TIMEOUT  # of each read from now on
        # An error is ignored, because the body is optional; an abort is raised below.
        with contextlib.suppress(*_failures()):
            content = self._read_up_to(response, MAX_BODY_BYTES, deadline)
        self._signal.raise_if_aborted()
        return content

    def _failure(self, error: Exception) -> BaseException:
        """Return the error to raise for an error of a library or a socket."""
        if self._signal.reason is not None:
            return self._signal.reason
        failed = f"The request to {self._where} failed"
        if isinstance(error, _either("HTTPStatusError")):
            # Raised by a hook of the caller's client. It is not kept as the cause, because its text has the whole URL.
            answer: httpx.Response = error.response
            reason = one_line(f"{answer.status_code} {answer.reason_phrase}")
            return self._purpose.refused(f"{failed}: {reason}", status=answer.status_code)
        trust = "pass ssl_context=" if self._client is None else "make your http_client with verify="
        text, unreadable, _ = str(error).replace(self._url, self._where).partition(": bytearray(")
        reason = one_line(text).rstrip(".") or type(error).__name__
        advice = "See the server's log" if self._answered else "Check the URL, and that the server is running"
        if isinstance(error, _either("ProxyError")):  # of the caller's client
            advice = "Check the proxy that your http_client uses"
        late = self._signal.remaining() == 0.0 or isinstance(error, _either("TimeoutException"))
        why = failure_text(error, reason, urlsplit(self._url), advice=advice, trust=trust)
        failure = (self._purpose.late if late else self._purpose.failed)(f"{failed}: {why}")
        failure.status = status_of(error)
        # The text of h11 has the line of the answer that it cannot read, which may be a cookie.
        failure.__cause__ = None if unreadable else error
        return failure


# -- httpx and httpcore -----------------------------------------------------------------------------------------------


def _either(name: str) -> tuple[type[Any], ...]:
    """Return the class `name` of httpx, and of httpx2 if the application, which may use its client, has imported it.

    The two have the same interface, and no class in common.
    """
    libraries = httpx, sys.modules.get("httpx2")
    return tuple(getattr(library, name) for library in libraries if library is not None)


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors of a request that failed: of sockets, of httpcore on them, and of clients."""
    core = httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError
    return OSError, *core, *_either("HTTPError"), *_either("InvalidURL")


class _Sending(threading.local):
    """The flag of a thread that is making a request of this package."""

    now = False


_sending = _Sending()


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Remove secrets from the log records of httpx (whole URLs at INFO) and httpcore (answers' headers at DEBUG)."""
    if _sending.now:
        if isinstance(record.args, tuple):
            record.args = tuple(printable(str(a)) if isinstance(a, _either("URL")) else a for a in record.args)
        record.msg = re.sub(
            r"(headers\.\w+ )(?:return_value|exception)=.*", r"\1(hidden)", str(record.msg), flags=re.DOTALL
        )
    return True


for _version in ("", "2"):
    for _name in ("httpx{}", "httpcore{}.http11", "httpcore{}.http2"):
        logging.getLogger(_name.format(_version)).addFilter(_hide_secrets)


class _DialedStream(httpcore.NetworkStream):
    """A socket of `dial()` as httpcore uses it: within the attempt's limit, and a limit of all received bytes.

    The body has a limit of its own. This one also counts the bytes before and around it, such as `100 Continue` without
    end.
    """

    def __init__(
        self, sock: socket.socket, detach: Detach, signal: AbortSignal, proxy: Proxy | None, max_received: int
    ) -> None:
        self._sock = sock
        self._detach = detach
        self._signal = signal
        self._proxy = proxy  # the peer, if requests are forwarded
        self._max_received = max_received
        self._start = b""  # the first 5 received bytes or more
        self.received = 0
        self.deadline = Deadline(None)  # of all reads together, if the attempt does not end before

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Read up to `max_bytes`."""
        with naming(self._proxy):
            limits = (socket_timeout(self._signal), self.deadline.remaining())
            self._sock.settimeout(min((limit for limit in limits if limit is not None), default=None))
            data = self._sock.recv(max_bytes)
            if len(self._start) < 5:
                self._start += data[:5]
                check_is_http(self._start)
        self.received += len(data)
        if self.received > self._max_received:
            raise httpcore.ReadError(f"the server has sent more than {self._max_received} bytes")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        """Write all of `buffer`.

        Raises:
            httpcore.WriteError: It failed, which httpcore ignores: the server may have answered before.
        """
        try:
            with naming(self._proxy):
                self._sock.settimeout(socket_timeout(self._signal))
                self._sock.sendall(buffer)
        except TimeoutError:
            raise
        except OSError as error:
            # An RTVIError is the reason of an abandoned attempt and passes, even if it is also an OSError.
            if isinstance(error, RTVIError):
                raise
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the socket and end the watch over it."""
        self._detach()
        self._sock.close()


class _Body(httpx.SyncByteStream):
    """The body of an answer. The exchange closes its connection."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks


class _EventBody(_Body):
    """The body of an event stream in small slices, up to the limit of an event.

    The parser of events yields all events of a slice before it asks for the next slice, so its caller sets
    `event_bytes` back to 0 at each event.
    """

    def __init__(self, chunks: Iterable[bytes], too_large: RTVIError) -> None:
        super().__init__(chunks)
        self._too_large = too_large
        self.event_bytes = 0  # the estimated memory of the incomplete event
        self.ended = False  # the server has sent the whole body

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            for start in range(0, len(chunk), _SLICE_BYTES):
                part = chunk[start : start + _SLICE_BYTES]
                self.event_bytes += len(part) + _LINE_BYTES * (part.count(b"\n") + part.count(b"\r"))
                yield part
                if self.event_bytes > MAX_ENCODED_BYTES:
                    raise self._too_large
        # A parser drops an event without a blank line behind it, by the standard. The added line makes it deliver such
        # an event, so that a stream that broke off is noticed.
        self.ended = True
        yield b"\n\n"


def _is_compressed(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "").strip().lower() not in ("", "identity")


def _without_login(url: str) -> str:
    parts = urlsplit(str(httpx.URL(url)))
    return parts._replace(netloc=server_of(parts)).geturl()


# -- the cookies of one attempt ---------------------------------------------------------------------------------------


class _CookiePolicy(DefaultCookiePolicy):
    """The rules of browsers for cookies, without those that could not be sent as they are."""

    def set_ok(self, cookie: Cookie, request: Request) -> bool:
        """Return whether a cookie is kept."""
        text = f"{cookie.name}={cookie.value}"
        fits = len(text) <= _MAX_COOKIE and text.isascii() and text.isprintable()
        return fits and super().set_ok(cookie, request)


def with_cookies_of(jar: CookieJar, url: SplitResult, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request to `url`, with the cookies in `jar` for it.

    A cookie in `headers` takes precedence over one of its name in the jar.
    """
    scheme = "https" if url.scheme in ("https", "wss") else "http"  # the cookie jar knows no other
    request = Request(url._replace(scheme=scheme, netloc=server_of(url)).geturl())  # noqa: S310 - not sent
    jar.add_cookie_header(request)
    set_by_server = request.get_header("Cookie", "")
    merged = dict(headers)
    name = next((name for name in merged if name.lower() == "cookie"), "Cookie")
    own = merged.get(name, "")
    taken = {each.partition("=")[0].strip() for each in own.split(";")}
    new = [each for each in set_by_server.split("; ") if each.partition("=")[0] not in taken]
    if any(new):
        merged[name] = "; ".join(filter(None, [own, *new]))
    return merged
