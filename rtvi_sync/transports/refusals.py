"""The meaning of an HTTP answer: whether it is HTTP, and why the server refuses. For requests, WebSockets, proxies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..protocol.envelope import is_too_deep
from ..protocol.text import one_line

# The keys of a refusal's reason: early Pipecat servers use `info`, FastAPI `detail`, many others the last two.
_REASON_KEYS = ("info", "detail", "error", "message")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b")
# How nginx, Apache and Go answer plain HTTP at a port with TLS.
_TLS_REQUIRED = re.compile(rb"HTTP request (was sent )?to (an )?HTTPS|plain HTTP to an SSL-enabled")
_SECONDS = re.compile(r"\d{1,9}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class NoHTTPError(OSError):
    """The error of a peer that does not speak HTTP."""


def check_is_http(received: bytes) -> None:
    """Refuse bytes that cannot be the beginning of an HTTP answer, so that the caller does not wait for the rest.

    Args:
        received: all bytes received so far; empty: the server has closed the connection.

    Raises:
        NoHTTPError: the bytes are the beginning of something else.
        ConnectionError: there are no bytes.
    """
    if not received:
        raise ConnectionAbortedError("the connection was closed without an answer")
    if b"HTTP/".startswith(received[:5]):
        return
    # The bytes are not part of the text, because a server may echo the request, and with it a token.
    if received.startswith(b"\x15\x03"):  # an alert
        raise NoHTTPError("the server there speaks TLS, not plain HTTP")
    does = "speaks SSH, not HTTP" if received.startswith(b"SSH-") else "does not speak HTTP"
    raise NoHTTPError(f"the server there {does}")


def without_interim_answers(received: bytes) -> bytes:
    """Return what follows the interim answers (1xx, such as 100 Continue) that `received` starts with.

    101 is none of these: it is the answer to an upgrade.
    """
    while _INTERIM.match(received) and b"\r\n\r\n" in received:
        received = received.partition(b"\r\n\r\n")[2]
    return received


def refusal(
    what: str,
    status: int,
    *,
    phrase: str = "",
    body: bytes = b"",
    retry_after: str | None = None,
    challenge: str | None = None,
    authorization: str | None = None,
    scheme: str = "",
    advice: str = "",
    doubt: str = "",
) -> str:
    """Return the text of the error for a refusal: what failed, why, and what to do next.

    Args:
        what: the beginning of the text, as in "http://host/connect answered".
        status: the status of the answer.
        phrase: its reason phrase; "": use the standard phrase.
        body: its body; the reason in a JSON body takes precedence over the phrase.
        retry_after: the value of its header Retry-After.
        challenge: the value of its header WWW-Authenticate.
        authorization: the value of the request's header Authorization.
        scheme: of the URL.
        advice: a sentence, without its period, unless the answer itself tells what to do.
        doubt: a sentence that follows the advice, without its period.
    """
    if status == 400 and scheme in ("http", "ws") and _TLS_REQUIRED.search(body):
        advice = f"The port speaks TLS: use {scheme}s://"
    elif status == 401 and (challenge or "").lower().startswith("basic"):
        advice = (
            "The server does not accept the user and password that were sent (HTTP Basic): check them, and escape "
            "special characters in a URL (%40 for @)"
            if (authorization or "").lower().startswith("basic ")
            else f"The server requires a user and a password (HTTP Basic): put them into its URL, {scheme}://USER:"
            "PASSWORD@HOST, or pass headers={'Authorization': 'Basic ...'}"
        )
    reason = one_line(_reason(body) or phrase or _standard_phrase(status)).strip().rstrip(".") or "no reason given"
    retry = _when_to_retry(retry_after or "") or ("Try again later" if status in (429, 503) else "")
    sentences = [f"{what} {status}: {reason}", retry, advice, doubt]
    return ". ".join(filter(None, sentences))


def _standard_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _when_to_retry(value: str) -> str:
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return f"Try again in {int(value)} s"
    return f"Try again after {value}" if _HTTP_DATE.fullmatch(value) else ""


def _reason(body: bytes) -> str | None:
    """Return the reason in a JSON body, or None."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, Mapping) or is_too_deep(document):
        return None
    values = [document[key] for key in _REASON_KEYS if document.get(key)]
    readable = next(filter(None, map(_readable, values)), None)
    structure = next((value for value in values if isinstance(value, (dict, list))), None)
    return readable or (json.dumps(structure) if structure is not None else None)


def _readable(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):  # such as {"error": {"message": ..., "code": ...}}
        return next((value[key] for key in reversed(_REASON_KEYS) if isinstance(value.get(key), str)), None)
    return _validation_errors(value)


def _validation_errors(value: Any) -> str | None:
    """Return the messages of a FastAPI server's 422, without the rejected values, which may be secret."""
    if not isinstance(value, list) or not all(isinstance(e, Mapping) and isinstance(e.get("msg"), str) for e in value):
        return None
    return "; ".join(f"{_path(e.get('loc'))}{e['msg']}" for e in value)


def _path(loc: Any) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""
