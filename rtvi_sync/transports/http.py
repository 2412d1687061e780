"""The client's HTTP requests: POST a JSON document, read one or a stream of them, bounded in bytes and time."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
import httpx

from ..concurrency.abort import AbortSignal
from ..errors import (
    ActionEndpointNotSetError,
    DisconnectedError,
    InvalidTransportParamsError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    StartBotError,
    TransportStartError,
)
from ..protocol.text import one_line, raised
from ..protocol.validation import OWN_HEADERS
from . import http_answers
from .auth_bundle import upload_url
from .base import StartRequest
from .failures import failure_text, status_of
from .http_answers import MAX_BODY_BYTES, MAX_ENCODED_BYTES, RequestProfile, either
from .net import (
    USER_AGENT,
    Detach,
    HTTPClient,
    Network,
    Origin,
    basic_authorization,
    check_headers,
    merged_headers,
    origin,
    printable,
    socket_timeout,
    url_fault,
)

if TYPE_CHECKING:
    import urllib.request

    from .http_sockets import AbandonableClient

MAX_REDIRECTS = 5
# In bytes, as in browsers.
_MAX_COOKIE = 4096
# Twice the limit of a body, because the bytes around it, such as `100 Continue` without end, are counted as well.
MAX_RECEIVED_BYTES = 2 * MAX_BODY_BYTES
_WRONG_URL = (404, 405, 501)  # 501: of a web server that takes no POST
_RUNNER_START = "(a Pipecat runner's start endpoint ends in /start)"
_HEADERS_REQUIRED = "Set params.headers to the headers that the server requires"
_START_HEADERS_REQUIRED = "Set headers= of connect(url) or start_bot(), or params.headers, to what the server requires"

CONNECT = RequestProfile(
    does=f"starts the bot {_RUNNER_START}",
    advice={
        401: _HEADERS_REQUIRED,
        403: _HEADERS_REQUIRED,
        **dict.fromkeys(_WRONG_URL, f"Check the URL of the connect endpoint {_RUNNER_START}"),
    },
    refused=StartBotError,
    failed=StartBotError,
    late=StartBotError,
    unusable=StartBotError,
    no_url=StartBotError,
)
START = attrs.evolve(
    CONNECT,
    does="starts the bot",
    advice={
        401: _START_HEADERS_REQUIRED,
        403: _START_HEADERS_REQUIRED,
        **dict.fromkeys(_WRONG_URL, "Check the URL of the start endpoint"),
    },
)
OFFER = RequestProfile(
    does="takes the offer (in Pipecat it ends in /api/offer)",
    advice={
        400: "The bot may serve one client at a time (ConnectionMode.SINGLE), and have one: end that session",
        401: "Pass headers= that the server requires",
        403: "Pass headers= that the server requires",
        404: "Check the URL (in Pipecat it ends in /start or in /api/offer); a session that "
        "/start has begun ends if nobody connects to it",
        405: "Check the URL of the offer (in Pipecat it ends in /api/offer)",
        422: "The server expects another form of the offer than Pipecat's: check webrtc_url",
    },
    refused=TransportStartError,
    failed=TransportStartError,
    late=TransportStartError,
    unusable=TransportStartError,
    no_url=InvalidTransportParamsError,
)
ACTION = RequestProfile(
    does="takes actions without a session",
    headers={"Accept": "text/event-stream, application/json"},
    advice={
        401: _HEADERS_REQUIRED,
        403: _HEADERS_REQUIRED,
        404: "Check base_url and endpoints.action; a server without such an endpoint takes actions in a session only",
        405: "Check base_url and endpoints.action",
    },
    refused=RequestRejectedError,
    failed=DisconnectedError,
    late=RequestTimeoutError,
    unusable=ProtocolError,
    no_url=ActionEndpointNotSetError,
)


UPLOAD = RequestProfile(
    does="takes files for the bot",
    advice={
        401: _HEADERS_REQUIRED,
        403: _HEADERS_REQUIRED,
        404: "The server does not know the session any more: connect again",
        413: "Put the file where the bot can read it, and send its URL",
    },
    refused=RequestRejectedError,
    failed=RequestRejectedError,
    late=RequestTimeoutError,
    unusable=ProtocolError,
    no_url=RequestRejectedError,
)


class _RequestState(threading.local):
    """The flag of a thread that is making a request of this package."""

    now = False


_request_state = _RequestState()


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Remove secrets from the log records of httpx (whole URLs at INFO) and httpcore (answers' headers at DEBUG)."""
    if _request_state.now:
        if isinstance(record.args, tuple):
            record.args = tuple(printable(str(a)) if isinstance(a, either("URL")) else a for a in record.args)
        record.msg = re.sub(
            r"(headers\.\w+ )(?:return_value|exception)=.*", r"\1(hidden)", str(record.msg), flags=re.DOTALL
        )
    return True


for _version in ("", "2"):
    for _name in ("httpx{}", "httpcore{}.http11", "httpcore{}.http2"):
        logging.getLogger(_name.format(_version)).addFilter(_hide_secrets)


def origin_of(url: str, profile: RequestProfile = CONNECT) -> Origin:
    """Return the scheme, host and port of `url`, with the default port filled in.

    Raises:
        StartBotError: (or `profile.no_url`) `url` is not an ``http`` or ``https`` URL.
    """
    found = origin(url)
    if found is None:
        raise profile.no_url(f"{printable(url)!r} is not the URL of a server: {url_fault(url, 'http', 'https')}")
    return found


def post_json(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
    profile: RequestProfile = CONNECT,
) -> Any:
    """POST `body`, a JSON text, and return the JSON of the answer (an empty answer is ``{}``).

    Redirects 307 and 308 are followed within the origin of `url`; nothing is ever sent to another one.

    Args:
        client: the caller's client; its TLS settings and proxies apply, and it is not closed. An attempt can be
            abandoned once the client has opened a connection, or, on a pooled connection, once the head of the answer
            has arrived. Before that, an abandoned attempt leaves its thread behind: until the limit of the attempt, or
            for as long as the server goes on sending a head, of which httpx reads 100 kB.
        profile: selects the errors of the request and their advice.

    Raises:
        StartBotError: (or the error of `profile`) no answer, not 2xx, too large, or not JSON.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    exchange = _Exchange(url, profile, network, signal, client, MAX_RECEIVED_BYTES)
    with exchange:
        response = exchange.request("POST", body, headers)
        return http_answers.read_document(response, exchange.where, profile, signal)
    raise exchange.failure()


def post_start(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
    profile: RequestProfile = START,
) -> tuple[Any, StartRequest]:
    """POST `body` as `post_json()`; return the JSON of the answer, and the request that it answers.

    The URL of that request is the last one, if there were redirects, with the user and password of `url`.
    """
    exchange = _Exchange(url, profile, network, signal, client, MAX_RECEIVED_BYTES)
    with exchange:
        response = exchange.request("POST", body, headers)
        document = http_answers.read_document(response, exchange.where, profile, signal)
        answered = _with_login_of(url, exchange.url)
        named = upload_url(document)
        return document, StartRequest(url=answered, headers=headers, cookies=exchange.cookies, upload_url=named)
    raise exchange.failure()


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
) -> Any:
    """POST a file as a form does, and return the JSON of the answer. The rules of `post_json()` apply."""
    form = httpx.Request("POST", url, files={"file": (name, content, media_type)})
    fields = merged_headers(headers, {"Content-Type": form.headers["Content-Type"]})
    return post_json(url, form.read(), headers=fields, network=network, signal=signal, client=client, profile=UPLOAD)


def get_json(
    url: str,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
) -> Any:
    """GET `url` as `post_json()` POSTs to it."""
    exchange = _Exchange(url, START, network, signal, client, MAX_RECEIVED_BYTES)
    with exchange:
        response = exchange.request("GET", b"", headers)
        return http_answers.read_document(response, exchange.where, START, signal)
    raise exchange.failure()


def post_stream(
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: HTTPClient | None = None,
) -> Iterator[bytes]:
    """POST `body`, a JSON text, and yield the JSON texts of the answer; see `http_answers.read_messages()`.

    The rules of `post_json()` apply. Iterate and close the generator on one thread.

    Raises:
        RequestRejectedError: the answer is not 2xx; the error has its `status`.
        DisconnectedError: the server cannot be reached, or the answer broke off.
        RequestTimeoutError: the limit has passed, and the attempt was not abandoned.
        ProtocolError: the answer is compressed, has an event that is not base64, or one that is too large.
        ActionEndpointNotSetError: `url` is not a valid URL.
        InvalidTransportParamsError, BaseException: as `post_json()`.
    """
    exchange = _Exchange(url, ACTION, network, signal, client, 2 * MAX_ENCODED_BYTES)
    with exchange:
        response = exchange.request("POST", body, headers)
        yield from http_answers.read_messages(response, exchange.where, ACTION, signal, exchange.renew_budget)
        return
    raise exchange.failure()


class _Exchange:
    """One request and its answer; a context manager that closes both at its end.

    It suppresses the errors of httpx: the caller must raise `failure()` after the block. Raised inside, the new error
    would have the one of httpx as its context, and be shown with the secrets in it.
    """

    def __init__(
        self,
        url: str,
        profile: RequestProfile,
        network: Network,
        signal: AbortSignal,
        client: HTTPClient | None,
        max_received: int,
    ) -> None:
        self._origin = origin_of(url, profile)
        self._url = url
        self._profile = profile
        self._network = network
        self._signal = signal
        self._given_client = client
        self._tracker = _SocketTracker(signal) if client is not None else None
        self._max_received = max_received
        self._own_client: AbandonableClient | None = None
        self._cleanup = contextlib.ExitStack()
        self._answered = False
        #: That the answers have set; None: there are none.
        self.cookies: CookieJar | None = None
        self._error: Exception | None = None

    @property
    def url(self) -> str:
        """Return the URL of the last request."""
        return self._url

    @property
    def where(self) -> str:
        """Return it without secrets."""
        return printable(self._url)

    def __enter__(self) -> _Exchange:
        _request_state.now = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            self._cleanup.close()
        finally:
            _request_state.now = False
            if self._tracker is not None:
                self._tracker.end()
        expected = *either("HTTPError"), *either("InvalidURL"), TimeoutError
        if not isinstance(error, Exception) or not isinstance(error, expected) or isinstance(error, RTVIError):
            return False
        self._error = error
        return True

    def failure(self) -> BaseException:
        """Return the error to raise for the suppressed error of the block."""
        if self._signal.reason is not None:
            return self._signal.reason
        profile, error, self._error = self._profile, self._error, None
        failed = f"The request to {self.where} failed"
        if isinstance(error, either("HTTPStatusError")):
            # Raised by a hook of the caller's client. It is not kept as the cause, because its text has the whole URL.
            answer: httpx.Response = error.response
            reason = one_line(f"{answer.status_code} {answer.reason_phrase}")
            return profile.refused(f"{failed}: {reason}", status=answer.status_code)
        trust = "pass ssl_context=" if self._given_client is None else "make your http_client with verify="
        text, unreadable, _ = str(error).replace(self._url, self.where).partition(": bytearray(")
        reason = one_line(text).rstrip(".") or type(error).__name__
        advice = "See the server's log" if self._answered else "Check the URL, and that the server is running"
        if isinstance(error, either("ProxyError")):  # of the caller's client
            advice = "Check the proxy that your http_client uses"
        late = self._signal.remaining() == 0.0
        why = failure_text(error, reason, urlsplit(self._url), advice=advice, trust=trust)
        failure = (profile.late if late else profile.failed)(f"{failed}: {why}")
        failure.status = status_of(error)
        # The text of h11 has the line of the answer that it cannot read, which may be a cookie.
        failure.__cause__ = None if unreadable else error
        return failure

    def renew_budget(self) -> None:
        """Reset the count of received bytes, because a stream may be longer than the limit of one message."""
        if self._own_client is not None:
            self._own_client.renew_budget()

    def request(self, method: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send the request, follow redirects, and return the answer with its body unread.

        Raises:
            RTVIError: an error of the profile.
            InvalidTransportParamsError: a header or the proxy is not valid.
            BaseException: the signal's reason, if the attempt was abandoned.
        """
        check_headers(headers, OWN_HEADERS)
        fields = self._fields(headers)
        status = 0
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(method, body, fields)
            self._answered = True
            if "set-cookie" in response.headers:
                self.cookies = self.cookies or CookieJar(_CookiePolicy())
                httpx.Cookies(self.cookies).extract_cookies(response)
            if not response.has_redirect_location:
                http_answers.check_answer(response, self.where, self._profile, self._signal, self._own_client)
                return response
            status = response.status_code
            target = str(response.url.join(response.headers["location"]))
            response.close()
            if status not in (307, 308) or origin(target) != self._origin:
                raise self._profile.refused(
                    f"{self.where} redirects ({status}) to {printable(target)}, which is not followed: "
                    "only 307 and 308 within one origin are. Set base_url and endpoints to the server's final address.",
                    status=status,
                )
            self._url = target
        raise self._profile.refused(
            f"{self.where} redirects more than {MAX_REDIRECTS} times. Set base_url and endpoints to the server's final "
            "address.",
            status=status,
        )

    def _fields(self, headers: Mapping[str, str]) -> httpx.Headers:
        # Case-insensitive, unlike a dict, which would send a header twice if the caller spells its name differently.
        fields = httpx.Headers({"User-Agent": USER_AGENT, "Content-Type": "application/json", **self._profile.headers})
        fields.update(headers)
        # User and password are sent in a header, because the URL may be logged. The caller's header takes precedence.
        authorization = basic_authorization(urlsplit(self._url))
        if authorization is not None:
            fields.setdefault("Authorization", authorization)
        # No compression, because a small compressed answer could expand to any size.
        fields["Accept-Encoding"] = "identity"
        return fields

    def _send(self, method: str, body: bytes, fields: httpx.Headers) -> httpx.Response:
        """Send one request; its answer is closed at the end of the block."""
        self._signal.raise_if_aborted()
        tracker = self._tracker
        client = self._given_client if self._given_client is not None else self._connect_own_client()
        request = client.build_request(
            method,
            _without_login(self._url),
            content=body,
            headers=fields.raw,  # httpx2 would change the names of a mapping to lower case
            timeout=socket_timeout(self._signal),
            extensions={"trace": tracker.trace} if tracker is not None else {},
        )
        try:
            response = client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            self._signal.raise_if_aborted()
            if tracker is None or isinstance(error, (*either("HTTPError"), TimeoutError, RTVIError)):
                raise
            raise self._profile.failed(f"The http_client raised {raised(error)}") from error
        self._cleanup.callback(response.close)
        if tracker is not None:
            tracker.answered(response)
        return response

    def _connect_own_client(self) -> AbandonableClient:
        if self._own_client is None:
            from .http_sockets import AbandonableClient  # imported on demand, because it imports httpcore

            self._own_client = AbandonableClient(self._url, self._network, self._signal, self._max_received)
            self._cleanup.callback(self._own_client.close)
        return self._own_client


class _CookiePolicy(DefaultCookiePolicy):
    """The rules of browsers for cookies, of which those are left out that could not be sent as they are."""

    def set_ok(self, cookie: Cookie, request: urllib.request.Request) -> bool:
        """Tell whether a cookie is kept."""
        text = f"{cookie.name}={cookie.value}"
        fits = len(text) <= _MAX_COOKIE and text.isascii() and text.isprintable()
        return fits and super().set_ok(cookie, request)


class _SocketTracker:
    """The sockets of a caller's client, which are shut down when the attempt is abandoned."""

    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal
        self._cleanup: list[Detach] = []

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Watch a new connection. Called by httpcore with each step of the request."""
        if not event.endswith("connect_tcp.complete"):
            return
        stream = info["return_value"]
        try:
            self._attach(stream)
        except BaseException:
            stream.close()
            raise

    def answered(self, response: httpx.Response) -> None:
        """Watch a connection of the client's pool, which is known when the head of the answer has arrived."""
        # An HTTP/2 connection is not shut down, because it carries the answers to other requests, too.
        if not self._cleanup and response.http_version != "HTTP/2":
            self._attach(response.extensions.get("network_stream"))

    def _attach(self, stream: Any) -> None:
        sock = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(sock, socket.socket):
            self._cleanup.append(self._signal.attach(sock))

    def end(self) -> None:
        """Watch the sockets no more."""
        for detach in self._cleanup:
            detach()


def _with_login_of(given: str, url: str) -> str:
    if url == given:
        return url
    parts, (login, at, _) = urlsplit(_without_login(url)), urlsplit(given).netloc.rpartition("@")
    return parts._replace(netloc=f"{login}{at}{parts.netloc}").geturl()


def _without_login(url: str) -> str:
    parts = urlsplit(str(httpx.URL(url)))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
