"""The one HTTP request that a client makes: POST a JSON document, get one back, bounded in bytes and time."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx

from ..concurrency.cancel import AbortSignal
from ..errors import StartBotError
from .net import USER_AGENT, Detach, Network, check_headers, parse_url, printable, socket_timeout

if TYPE_CHECKING:
    from .http_sockets import AbandonableClient

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES = 1024 * 1024
MAX_REDIRECTS = 5
_MAX_ERROR_TEXT = 500
_ADVICE = {
    401: ". Set params.headers to what the server wants to see",
    403: ". Set params.headers to what the server wants to see",
    404: ". Check base_url and endpoints.connect (Pipecat's runner has only /start: use start_bot_and_connect())",
    405: ". Check base_url and endpoints.connect",
}
_DEFAULT_PORTS = {"http": 80, "https": 443}


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
            once it has opened its connection; while it opens one, and on a connection of its pool that was open
            before, a thread is left behind until the limit of the attempt.

    Raises:
        StartBotError: no answer, not 2xx, too large, or not JSON.
        InvalidTransportParamsError: a header or the proxy is not valid.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    origin_of(url)
    check_headers(headers)
    watches: list[Detach] = []

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if not event.endswith("connect_tcp.complete"):
            return
        stream = info["return_value"]
        sock = stream.get_extra_info("socket")
        if isinstance(sock, socket.socket):
            try:
                watches.append(signal.attach(sock))
            except BaseException:
                stream.close()
                raise

    try:
        if client is not None:
            return _follow(client, url, body, headers, signal, {"trace": trace})
        from .http_sockets import AbandonableClient  # the first request pays for httpcore, not the import

        with AbandonableClient(url, network, signal) as own:
            return _follow(own, url, body, headers, signal, {})
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        signal.raise_if_aborted()
        raise StartBotError(
            f"The request to {printable(url)} failed: {_reason(error, url)}. "
            "Check the URL, and that the server is running"
        ) from error
    finally:
        for detach in watches:
            detach()


def _follow(
    client: httpx.Client | AbandonableClient,
    url: str,
    body: Any,
    headers: Mapping[str, str],
    signal: AbortSignal,
    extensions: dict[str, Any],
) -> Any:
    origin = origin_of(url)
    # Not a dict, which would send a header twice whose name the caller writes differently.
    fields = httpx.Headers({"User-Agent": USER_AGENT})
    fields.update(headers)
    # Compression could blow a small answer up to any size; these answers gain nothing by it.
    fields["Accept-Encoding"] = "identity"
    status = 0
    for _ in range(MAX_REDIRECTS + 1):
        signal.raise_if_aborted()
        request = client.build_request(
            "POST", url, json=body, headers=fields, timeout=socket_timeout(signal), extensions=extensions
        )
        response = client.send(request, stream=True, follow_redirects=False)
        try:
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


def _read_answer(response: httpx.Response, url: str, signal: AbortSignal) -> Any:
    where, status = printable(url), response.status_code
    encoding = response.headers.get("content-encoding", "").strip().lower()
    compressed = encoding not in ("", "identity")
    content = b"" if compressed else _read_body(response, signal)
    if not response.is_success:
        reason = _error_text(content) or response.reason_phrase or httpx.codes.get_reason_phrase(status)
        raise StartBotError(
            f"{where} answered {status}: {reason or 'no reason given'}{_ADVICE.get(status, '')}", status=status
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
        return json.loads(content) if content.strip() else {}
    except (ValueError, RecursionError):
        raise StartBotError(
            f"{where} did not answer with JSON; is it the endpoint that starts the bot?", status=status
        ) from None


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
            text = _validation_errors(value) or (value if isinstance(value, str) else json.dumps(value))
            return "".join(c if c.isprintable() else " " for c in text[:_MAX_ERROR_TEXT])
    return None


def _validation_errors(value: Any) -> str | None:
    """The messages of a FastAPI server's 422. They come with the values they are about, which are not to be shown."""
    if not isinstance(value, list) or not all(isinstance(e, Mapping) and isinstance(e.get("msg"), str) for e in value):
        return None
    return "; ".join(f"{_path(e.get('loc'))}{e['msg']}" for e in value)


def _path(loc: Any) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""


def _reason(error: Exception, url: str) -> str:
    return (str(error) or type(error).__name__).replace(url, printable(url))[:_MAX_ERROR_TEXT]
