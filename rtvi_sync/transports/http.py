"""The one HTTP request that a client makes: POST a JSON document, get one back, bounded in bytes and time."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from ..concurrency.cancel import AbortSignal
from ..errors import RTVIError, StartBotError
from ..protocol import envelope
from ..protocol.text import one_line
from .net import USER_AGENT, Detach, Network, basic_authorization, check_headers, parse_url, printable, socket_timeout
from .tls import explain

if TYPE_CHECKING:
    from .http_sockets import AbandonableClient

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES = 1024 * 1024
MAX_REDIRECTS = 5
_ADVICE = {
    401: ". Set params.headers to what the server wants to see",
    403: ". Set params.headers to what the server wants to see",
    404: ". Check base_url and endpoints.connect (Pipecat's runner has only /start: use start_bot_and_connect())",
    405: ". Check base_url and endpoints.connect",
}
_DEFAULT_PORTS = {"http": 80, "https": 443}


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


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `url`, with the default port filled in.

    Raises:
        StartBotError: it is not an ``http`` or ``https`` URL.
    """
    parts = parse_url(url, *_DEFAULT_PORTS)
    if parts is None:
        raise StartBotError(f"{printable(url)!r} is not the URL of a server: it has to begin with http:// or https://")
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


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
        client: the caller's own; it brings its TLS settings and proxies, and is not closed. An attempt can be abandoned
            once it has opened its connection, and on a connection of its pool that was open before, once the head of
            the answer is there. Before that a thread is left behind: until the limit of the attempt, or for as long as
            the server goes on sending a head, of which httpx takes 100 kB.

    Raises:
        StartBotError: no answer, not 2xx, too large, or not JSON.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    origin_of(url)
    check_headers(headers)
    outcome = _request(url, body, headers, network, signal, client)
    if isinstance(outcome, StartBotError):
        raise outcome
    return outcome


def _request(
    url: str,
    body: Any,
    headers: Mapping[str, str],
    network: Network,
    signal: AbortSignal,
    client: httpx.Client | None,
) -> Any:
    """The document; or, if httpx failed, the error to raise, which outside of `except` has no cause but its own."""
    watch = _Watch(signal)
    _requesting.now = True
    try:
        if client is not None:
            return _follow(client, url, body, headers, signal, watch)
        from .http_sockets import AbandonableClient  # the first request pays for httpcore, not the import

        with AbandonableClient(url, network, signal) as own:
            return _follow(own, url, body, headers, signal, None)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        signal.raise_if_aborted()
        return _failure(url, error, client)
    finally:
        _requesting.now = False
        watch.end()


def _failure(url: str, error: Exception, client: httpx.Client | None) -> StartBotError:
    failed = f"The request to {printable(url)} failed"
    if isinstance(error, httpx.HTTPStatusError):
        # Raised by a hook of the caller's client; its text has the whole URL, so it is not even kept as the cause.
        answer = error.response
        return StartBotError(
            f"{failed}: {one_line(f'{answer.status_code} {answer.reason_phrase}')}", status=answer.status_code
        )
    trust = "pass ssl_context=" if client is None else "make your http_client with verify="
    text, unreadable, _ = str(error).replace(url, printable(url)).partition(": bytearray(")
    reason = one_line(text) or type(error).__name__
    failure = StartBotError(
        f"{failed}: {explain(error, trust=trust) or f'{reason}. Check the URL, and that the server is running'}"
    )
    # h11 repeats the line of the answer that it cannot read, which may be a cookie.
    failure.__cause__ = None if unreadable else error
    return failure


class _Watch:
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


def _follow(
    client: httpx.Client | AbandonableClient,
    url: str,
    body: Any,
    headers: Mapping[str, str],
    signal: AbortSignal,
    watch: _Watch | None,
) -> Any:
    origin = origin_of(url)
    # Not a dict, which would send a header twice whose name the caller writes differently.
    fields = httpx.Headers({"User-Agent": USER_AGENT})
    fields.update(headers)
    # User and password of the URL are for a header, not for whoever logs the URL; the caller's own header goes first.
    authorization = basic_authorization(urlsplit(url))
    if authorization is not None:
        fields.setdefault("Authorization", authorization)
    # Compression could blow a small answer up to any size; these answers gain nothing by it.
    fields["Accept-Encoding"] = "identity"
    status = 0
    for _ in range(MAX_REDIRECTS + 1):
        signal.raise_if_aborted()
        extensions = {"trace": watch.trace} if watch is not None else {}
        request = client.build_request(
            "POST",
            _without_login(url),
            json=body,
            headers=fields,
            timeout=socket_timeout(signal),
            extensions=extensions,
        )
        try:
            response = client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            signal.raise_if_aborted()
            if watch is None or isinstance(error, (httpx.HTTPError, TimeoutError, RTVIError)):
                raise
            raise StartBotError(f"The http_client raised {type(error).__name__}: {one_line(str(error))}") from error
        try:
            if watch is not None:
                watch.answered(response)
            if not response.has_redirect_location:
                return _read_answer(response, url, signal)
            status = response.status_code
            target = str(response.url.join(response.headers["location"]))
        finally:
            response.close()
        if status not in (307, 308) or not target.startswith(("http:", "https:")) or origin_of(target) != origin:
            raise StartBotError(
                f"{printable(url)} redirects ({status}) to {printable(target)}, which is not followed: "
                "only 307 and 308 within one origin are. Set base_url and endpoints to where the server really is.",
                status=status,
            )
        url = target
    raise StartBotError(f"{printable(url)} redirects more than {MAX_REDIRECTS} times", status=status)


def _without_login(url: str) -> str:
    parts = urlsplit(str(httpx.URL(url)))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _read_answer(response: httpx.Response, url: str, signal: AbortSignal) -> Any:
    where, status = printable(url), response.status_code
    encoding = response.headers.get("content-encoding", "").strip().lower()
    compressed = encoding not in ("", "identity")
    content = b"" if compressed else _read_body(response, signal)
    if not response.is_success:
        reason = _error_text(content) or response.reason_phrase or httpx.codes.get_reason_phrase(status)
        raise StartBotError(
            f"{where} answered {status}: {one_line(reason) or 'no reason given'}{_ADVICE.get(status, '')}",
            status=status,
        )
    if compressed:
        raise StartBotError(
            f"{where} answered with Content-Encoding {encoding[:40]!r} though 'identity' was asked for", status=status
        )
    if len(content) > MAX_BODY_BYTES:
        raise StartBotError(
            f"{where} answered with more than {MAX_BODY_BYTES} bytes; is it the endpoint that starts the bot?",
            status=status,
        )
    try:
        document = json.loads(content) if content.strip() else {}
        if envelope.is_too_deep(document):
            raise ValueError
    except (ValueError, RecursionError):
        raise StartBotError(
            f"{where} did not answer with JSON; is it the endpoint that starts the bot?", status=status
        ) from None
    return document


def _read_body(response: httpx.Response, signal: AbortSignal) -> bytes:
    """The body, or so much of it that it is seen to be too large."""
    content = bytearray()
    for chunk in response.iter_bytes():
        signal.raise_if_aborted()
        socket_timeout(signal)  # the limit is one for all bytes, also on a connection that we cannot shut down
        content += chunk
        if len(content) > MAX_BODY_BYTES:
            break
    signal.raise_if_aborted()
    return bytes(content)


def _error_text(content: bytes) -> str | None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    for key in ("info", "detail"):
        value = document.get(key) if isinstance(document, Mapping) else None
        if value:
            return _validation_errors(value) or (value if isinstance(value, str) else json.dumps(value))
    return None


def _validation_errors(value: Any) -> str | None:
    """The messages of a FastAPI server's 422. They come with the values they are about, which are not to be shown."""
    if not isinstance(value, list) or not all(isinstance(e, Mapping) and isinstance(e.get("msg"), str) for e in value):
        return None
    return "; ".join(f"{_path(e.get('loc'))}{e['msg']}" for e in value)


def _path(loc: Any) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""
