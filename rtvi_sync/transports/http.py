"""The one HTTP request that a client makes: POST a JSON document, get one back, bounded in bytes and time."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from ..concurrency.cancel import AbortSignal
from ..errors import StartBotError
from .net import USER_AGENT, Detach, Network

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES = 1024 * 1024
MAX_REDIRECTS = 5
_CHUNK_BYTES = 64 * 1024
_DEFAULT_PORTS = {"http": 80, "https": 443}


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
        from .http_sockets import AbandonableTransport  # the first request pays for httpcore, not the import

        # No environment: the proxy is ours to choose, and a .netrc entry must not become an Authorization header.
        with httpx.Client(transport=AbandonableTransport(url, network, signal), trust_env=False) as own:
            return _follow(own, url, body, headers, signal, {})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
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
