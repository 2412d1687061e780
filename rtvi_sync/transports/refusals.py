"""What an HTTP answer says: whether it is one, and why the server refuses. For requests, WebSockets and proxies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..protocol.envelope import is_too_deep
from ..protocol.text import one_line

# Where servers put their reason: Pipecat's first ones in `info`, FastAPI in `detail`, many others in the last two.
_REASON_KEYS = ("info", "detail", "error", "message")
_SECONDS = re.compile(r"\d{1,9}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class NoHTTPError(OSError):
    """The other side does not speak HTTP."""


def check_is_http(received: bytes) -> None:
    """Refuse what cannot be the beginning of an HTTP answer, so that the rest of it is not waited for.

    Args:
        received: all that was received so far; empty: the server has closed the connection.

    Raises:
        NoHTTPError: it is the beginning of something else.
        ConnectionError: it is empty.
    """
    if not received:
        raise ConnectionAbortedError("the connection was closed without an answer")
    if b"HTTP/".startswith(received[:5]):
        return
    # The bytes themselves are not shown: a server that echoes would have a token of the request shown.
    if received.startswith(b"\x15\x03"):  # an alert
        raise NoHTTPError("what answers there speaks TLS, not plain HTTP")
    does = "speaks SSH, not HTTP" if received.startswith(b"SSH-") else "does not speak HTTP"
    raise NoHTTPError(f"what answers there {does}")


def refusal(
    what: str,
    status: int,
    *,
    phrase: str = "",
    body: bytes = b"",
    retry_after: str | None = None,
    advice: str = "",
) -> str:
    """Return the text of the error for a refusal: what failed, why, and what to do next.

    Args:
        what: who answered what, as in "http://host/connect answered".
        status: of the answer.
        phrase: its reason phrase; the standard one if it has none.
        body: of the answer; the reason in its JSON counts for more than the phrase.
        retry_after: the value of its header Retry-After.
        advice: a sentence, without its period.
    """
    reason = one_line(_reason(body) or phrase or _standard_phrase(status)).strip().rstrip(".") or "no reason given"
    retry = _when_to_retry(retry_after or "") or ("Try again later" if status in (429, 503) else "")
    sentences = [f"{what} {status}: {reason}", retry, advice]
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
    """Return the reason in a JSON body; None if it has none."""
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
    if isinstance(value, Mapping):  # as in {"error": {"message": ..., "code": ...}}
        return next((value[key] for key in reversed(_REASON_KEYS) if isinstance(value.get(key), str)), None)
    return _validation_errors(value)


def _validation_errors(value: Any) -> str | None:
    """The messages of a FastAPI server's 422. They come with the values they are about, which are not to be shown."""
    if not isinstance(value, list) or not all(isinstance(e, Mapping) and isinstance(e.get("msg"), str) for e in value):
        return None
    return "; ".join(f"{_path(e.get('loc'))}{e['msg']}" for e in value)


def _path(loc: Any) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""
