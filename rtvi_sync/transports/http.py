"""The HTTP requests of a client: POST a JSON document, get one or a stream of them, bounded in bytes and time."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import attrs
import httpx

from ..concurrency.abort import AbortSignal
from ..errors import (
    ActionEndpointNotSetError,
    DisconnectedError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    StartBotError,
)
from ..protocol.text import one_line
from . import http_answers
from .failures import failure_text, status_of
from .http_answers import MAX_BODY_BYTES, MAX_ENCODED_BYTES, RequestProfile
from .net import (
    USER_AGENT,
    Detach,
    Network,
    basic_authorization,
    check_headers,
    parse_url,
    printable,
    socket_timeout,
    url_fault,
)

if TYPE_CHECKING:
    from .http_sockets import AbandonableClient

MAX_REDIRECTS = 5
# What is around a body counts as well, such as `100 Continue` without end.
MAX_RECEIVED_BYTES = 2 * MAX_BODY_BYTES
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADERS_WANTED = "Set params.headers to what the server wants to see"
_START_HEADERS_WANTED = "Set params.headers, or the headers of start_bot(), to what the server wants to see"

CONNECT = RequestProfile(
    does="starts the bot",
    advice={
        401: _HEADERS_WANTED,
        403: _HEADERS_WANTED,
        404: "Check the URL of the connect endpoint (a Pipecat runner's start endpoint ends in /start)",
        405: "Check the URL of the connect endpoint",
    },
    refused=StartBotError,
    failed=StartBotError,
    late=StartBotError,
    unusable=StartBotError,
    no_url=StartBotError,
)
START = attrs.evolve(
    CONNECT,
    advice={
        401: _START_HEADERS_WANTED,
        403: _START_HEADERS_WANTED,
        404: "Check the URL of the start endpoint",
        405: "Check the URL of the start endpoint",
    },
)
ACTION = RequestProfile(
    does="takes actions without a session",
    headers={"Accept": "text/event-stream, application/json"},
    advice={
        401: _HEADERS_WANTED,
        403: _HEADERS_WANTED,
        404: "Check base_url and endpoints.action; a server without such an endpoint takes actions in a session only",
        405: "Check base_url and endpoints.action",
    },
    refused=RequestRejectedError,
    failed=DisconnectedError,
    late=RequestTimeoutError,
    unusable=ProtocolError,
    no_url=ActionEndpointNotSetError,
)


class _Requesting(threading.local):
    """Whether this thread is at a request of ours."""

    now = False


_requesting = _Requesting()


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Filter of what httpx and httpcore log: at INFO whole URLs, at DEBUG the headers of answers."""
    if _requesting.now:
        if isinstance(record.args, tuple):
            record.args = tuple(printable(str(a)) if isinstance(a, httpx.URL) else a for a in record.args)
        record.msg = re.sub(
            r"(headers\.\w+ )(?:return_value|exception)=.*", r"\1(hidden)", str(record.msg), flags=re.DOTALL
        )
    return True


for _name in ("httpx", "httpcore.http11", "httpcore.http2"):
    logging.getLogger(_name).addFilter(_hide_secrets)


Origin: TypeAlias = tuple[str, str, int]


def origin_of(url: str, purpose: RequestProfile = CONNECT) -> Origin:
    """Scheme, host and port of `url`, with the default port filled in.

    Raises:
        StartBotError: (or what `purpose` has in its place) it is not an ``http`` or ``https`` URL.
    """
    origin = _origin_of(url)
    if origin is None:
        fault = url_fault(url, *_DEFAULT_PORTS)
        raise purpose.no_url(f"{printable(url)!r} is not the URL of a server: {fault}")
    return origin


def _origin_of(url: str) -> Origin | None:
    parts = parse_url(url, *_DEFAULT_PORTS)
    return (parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]) if parts else None


def post_json(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: httpx.Client | None = None,
    purpose: RequestProfile = CONNECT,
) -> Any:
    """POST `body`, a JSON text, and return the JSON of the answer (an empty answer is ``{}``).

    Redirects 307 and 308 are followed within the origin of `url`; nothing is ever sent to another one.

    Args:
        client: the caller's own; it brings its TLS settings and proxies, and is not closed. An attempt can be abandoned
            once it has opened its connection, and on a connection of its pool that was open before, once the head of
            the answer is there. Before that a thread is left behind: until the limit of the attempt, or for as long as
            the server goes on sending a head, of which httpx takes 100 kB.
        purpose: of the request, which decides what the errors advise.

    Raises:
        StartBotError: no answer, not 2xx, too large, or not JSON.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    exchange = _Exchange(url, purpose, network, signal, client, MAX_RECEIVED_BYTES)
    with exchange:
        response = exchange.post(body, headers)
        return http_answers.read_document(response, exchange.where, purpose, signal)
    raise exchange.failure()


def post_stream(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: httpx.Client | None = None,
) -> Iterator[bytes]:
    """POST `body`, a JSON text, and hand out those of the answer as they come; see `http_answers.read_messages()`.

    The rules of `post_json()` hold. Iterate and close it on one thread.

    Raises:
        RequestRejectedError: the answer is not 2xx; has its `status`.
        DisconnectedError: the server cannot be reached, or broke off.
        RequestTimeoutError: the limit has passed, and nobody has abandoned the attempt.
        ProtocolError: the answer is compressed, has an event that is not base64, or one that is too large.
        ActionEndpointNotSetError: `url` is not one.
        InvalidTransportParamsError, BaseException: as `post_json()`.
    """
    exchange = _Exchange(url, ACTION, network, signal, client, 2 * MAX_ENCODED_BYTES)
    with exchange:
        response = exchange.post(body, headers)
        yield from http_answers.read_messages(response, exchange.where, ACTION, signal, exchange.renew_allowance)
        return
    raise exchange.failure()


class _Exchange:
    """One request and its answer. A context manager: at its end nothing is left of either.

    What httpx raises in it goes no further: `failure()` has to be raised after the block. Inside, it would be the
    context of what is raised, and be shown with secrets in it.
    """

    def __init__(
        self,
        url: str,
        purpose: RequestProfile,
        network: Network,
        signal: AbortSignal,
        client: httpx.Client | None,
        max_received: int,
    ) -> None:
        self._origin = origin_of(url, purpose)
        self._url = url
        self._purpose = purpose
        self._network = network
        self._signal = signal
        self._theirs = client
        self._watch = _SocketTracker(signal) if client is not None else None
        self._max_received = max_received
        self._ours: AbandonableClient | None = None
        self._ends = contextlib.ExitStack()
        self._answered = False
        self._error: Exception | None = None

    @property
    def where(self) -> str:
        """Whom the last request went to, to be shown."""
        return printable(self._url)

    def __enter__(self) -> _Exchange:
        _requesting.now = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            self._ends.close()
        finally:
            _requesting.now = False
            if self._watch is not None:
                self._watch.end()
        if not isinstance(error, (httpx.HTTPError, httpx.InvalidURL, TimeoutError)) or isinstance(error, RTVIError):
            return False
        self._error = error
        return True

    def failure(self) -> BaseException:
        """What is to be raised for what the block raised."""
        if self._signal.reason is not None:
            return self._signal.reason
        purpose, error, self._error = self._purpose, self._error, None
        failed = f"The request to {self.where} failed"
        if isinstance(error, httpx.HTTPStatusError):
            # Raised by a hook of the caller's client; its text has the whole URL, so it is not even kept as the cause.
            answer = error.response
            reason = one_line(f"{answer.status_code} {answer.reason_phrase}")
            return purpose.refused(f"{failed}: {reason}", status=answer.status_code)
        trust = "pass ssl_context=" if self._theirs is None else "make your http_client with verify="
        text, unreadable, _ = str(error).replace(self._url, self.where).partition(": bytearray(")
        reason = one_line(text).rstrip(".") or type(error).__name__
        advice = "See the server's log" if self._answered else "Check the URL, and that the server is running"
        if isinstance(error, httpx.ProxyError):  # of the caller's client
            advice = "Check the proxy that your http_client uses"
        late = self._signal.remaining() == 0.0
        why = failure_text(error, reason, urlsplit(self._url), advice=advice, trust=trust)
        failure = (purpose.late if late else purpose.failed)(f"{failed}: {why}")
        failure.status = status_of(error)
        # h11 repeats the line of the answer that it cannot read, which may be a cookie.
        failure.__cause__ = None if unreadable else error
        return failure

    def renew_allowance(self) -> None:
        """What was received so far was put to use: a stream may be longer than one message."""
        if self._ours is not None:
            self._ours.renew_allowance()

    def post(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send the request, and follow redirects. Returns an answer whose body is to be read.

        Raises:
            RTVIError: of the purpose's.
            InvalidTransportParamsError: a header or the proxy is not valid.
            BaseException: the signal's reason, if the attempt was abandoned.
        """
        check_headers(headers)
        fields = self._fields(headers)
        status = 0
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(body, fields)
            self._answered = True
            if not response.has_redirect_location:
                proxy = self._ours.forwarding_proxy if self._ours is not None else None
                http_answers.check_answer(response, self.where, self._purpose, self._signal, proxy)
                return response
            status = response.status_code
            target = str(response.url.join(response.headers["location"]))
            response.close()
            if status not in (307, 308) or _origin_of(target) != self._origin:
                raise self._purpose.refused(
                    f"{self.where} redirects ({status}) to {printable(target)}, which is not followed: "
                    "only 307 and 308 within one origin are. Set base_url and endpoints to where the server really is.",
                    status=status,
                )
            self._url = target
        raise self._purpose.refused(
            f"{self.where} redirects more than {MAX_REDIRECTS} times. Set base_url and endpoints to where the server "
            "really is.",
            status=status,
        )

    def _fields(self, headers: Mapping[str, str]) -> httpx.Headers:
        # Not a dict, which would send a header twice whose name the caller writes differently.
        fields = httpx.Headers({"User-Agent": USER_AGENT, "Content-Type": "application/json", **self._purpose.headers})
        fields.update(headers)
        # User and password of the URL are for a header, not for whoever logs the URL; the caller's own header goes
        # first.
        authorization = basic_authorization(urlsplit(self._url))
        if authorization is not None:
            fields.setdefault("Authorization", authorization)
        # Compression could blow a small answer up to any size; these answers gain nothing by it.
        fields["Accept-Encoding"] = "identity"
        return fields

    def _send(self, body: bytes, fields: httpx.Headers) -> httpx.Response:
        """One request, whose answer is closed at the end."""
        self._signal.raise_if_aborted()
        watch = self._watch
        client = self._theirs if self._theirs is not None else self._our_client()
        request = client.build_request(
            "POST",
            _without_login(self._url),
            content=body,
            headers=fields,
            timeout=socket_timeout(self._signal),
            extensions={"trace": watch.trace} if watch is not None else {},
        )
        try:
            response = client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            self._signal.raise_if_aborted()
            if watch is None or isinstance(error, (httpx.HTTPError, TimeoutError, RTVIError)):
                raise
            raise self._purpose.failed(
                f"The http_client raised {type(error).__name__}: {one_line(str(error))}"
            ) from error
        self._ends.callback(response.close)
        if watch is not None:
            watch.answered(response)
        return response

    def _our_client(self) -> AbandonableClient:
        if self._ours is None:
            from .http_sockets import AbandonableClient  # the first request pays for httpcore, not the import

            self._ours = AbandonableClient(self._url, self._network, self._signal, self._max_received)
            self._ends.callback(self._ours.close)
        return self._ours


class _SocketTracker:
    """Has the sockets of a caller's client shut down when the attempt is abandoned."""

    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal
        self._ends: list[Detach] = []

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore tells of each step; a new connection is watched from here on."""
        if not event.endswith("connect_tcp.complete"):
            return
        stream = info["return_value"]
        try:
            self._attach(stream)
        except BaseException:
            stream.close()
            raise

    def answered(self, response: httpx.Response) -> None:
        """A connection out of the client's pool is known from the head of the answer on."""
        # One of HTTP/2 carries the answers to others, too.
        if not self._ends and response.http_version != "HTTP/2":
            self._attach(response.extensions.get("network_stream"))

    def _attach(self, stream: Any) -> None:
        sock = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(sock, socket.socket):
            self._ends.append(self._signal.attach(sock))

    def end(self) -> None:
        """The request is over."""
        for detach in self._ends:
            detach()


def _without_login(url: str) -> str:
    parts = urlsplit(str(httpx.URL(url)))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
