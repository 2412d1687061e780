"""What a server answers to a POST, read within limits: a JSON document, a stream of events, or why it refuses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import httpx

from ..concurrency.abort import AbortSignal
from ..errors import RTVIError
from ..protocol import envelope
from ..protocol.text import one_line
from .net import Proxy, socket_timeout
from .refusals import refusal

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES: Final = 1024 * 1024
# One message of a stream, or the only one. The largest seen, a bot's whole config, has some kB.
MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
# Base64 makes four characters of three bytes; names of fields and line ends come on top.
MAX_ENCODED_BYTES: Final = MAX_EVENT_BYTES // 3 * 4 + MAX_BODY_BYTES
# What becomes of a line while its event is not complete: a string of its own, however short.
_LINE_BYTES = 64
_PIECE_BYTES = 64 * 1024
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}(?![^;\s])")


@attrs.frozen(kw_only=True)
class RequestProfile:
    """What a request is for: what its errors are, and what they advise.

    Attributes:
        does: what the endpoint does, as in "the endpoint that ...".
        headers: sent where the caller has none of that name.
        advice: by status of a refusal, a sentence that says what to do; 500 and above have one anyway.
        refused: the server says no.
        failed: it could not be reached, or broke off.
        late: the limit has passed.
        unusable: the answer is not what it should be.
        no_url: the endpoint's URL is none.
    """

    does: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    advice: Mapping[int, str]
    refused: type[RTVIError]
    failed: type[RTVIError]
    late: type[RTVIError]
    unusable: type[RTVIError]
    no_url: type[RTVIError]

    @property
    def check(self) -> str:
        """What to do about an answer that makes no sense."""
        return f"Check that its URL is the endpoint that {self.does}"


def check_answer(
    response: httpx.Response, where: str, purpose: RequestProfile, signal: AbortSignal, proxy: Proxy | None = None
) -> None:
    """Let pass what may be read.

    Args:
        proxy: the one that has forwarded the answer, and may have made it.

    Raises:
        RTVIError: the server refuses, or has compressed its answer.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    status = response.status_code
    encoding = response.headers.get("content-encoding", "").strip().lower()
    compressed = encoding not in ("", "identity")
    if not response.is_success:
        if proxy is not None and status == 407:
            text = proxy.refusal("forward it", status, response.reason_phrase)
            raise purpose.refused(f"The request to {where} failed: {text}", status=status)
        advice = purpose.advice.get(status, "See the server's log" if status >= 500 else "")
        if proxy is not None:
            advice = f"{advice}. " * bool(advice) + f"If it is the {proxy} that refuses, {proxy.way_around}"
        text = refusal(
            f"{where} answered",
            status,
            phrase=response.reason_phrase,
            body=b"" if compressed else _read_body(response, MAX_BODY_BYTES, signal),
            retry_after=response.headers.get("retry-after"),
            advice=advice,
        )
        raise purpose.refused(text, status=status)
    if compressed:
        raise purpose.unusable(
            f"{where} answered with Content-Encoding {encoding[:40]!r} though 'identity' was asked for", status=status
        )


def read_document(response: httpx.Response, where: str, purpose: RequestProfile, signal: AbortSignal) -> Any:
    """The JSON of the answer; an empty answer is ``{}``.

    Raises:
        RTVIError: it is too large, or not JSON.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    content = _read_whole(response, MAX_BODY_BYTES, where, purpose, signal)
    try:
        document = json.loads(content) if content.strip() else {}
        if envelope.is_too_deep(document):
            raise ValueError
    except (ValueError, RecursionError):
        found = _MEDIA_TYPE.match(response.headers.get("content-type", ""))
        but = f" but with {found[0]}" if found and found[0] != "application/json" else ""
        text = f"{where} did not answer with JSON{but}. {purpose.check}"
        raise purpose.unusable(text, status=response.status_code) from None
    return document


def read_messages(
    response: httpx.Response, where: str, purpose: RequestProfile, signal: AbortSignal, taken: Callable[[], object]
) -> Iterator[bytes]:
    """The JSON texts that the answer consists of, each at most `MAX_EVENT_BYTES` long, as they come.

    An event stream has one in each event, in base64; anything else is one as a whole. Whether it is JSON is not looked
    at: that is the reader's business, who has limits of his own.

    Args:
        taken: called with each event that has come as a whole.

    Raises:
        RTVIError: an event is too large, or not base64; the stream broke off in the midst of one.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
        content = _read_whole(response, MAX_EVENT_BYTES, where, purpose, signal)
        if content.strip():
            yield content
        return
    from httpx_sse import EventSource  # few programs ever come here

    pieces = _Pieces(response, where, purpose, signal)
    # One of ours, because whatever character set the server names would be applied: events are UTF-8, and the standard
    # allows them a byte order mark.
    stream = httpx.Response(
        200, headers={"Content-Type": "text/event-stream"}, stream=pieces, default_encoding="utf-8-sig"
    )
    for event in EventSource(stream).iter_sse():
        taken()
        pieces.estimated_size = 0
        if event.data:  # others keep the line open
            yield _decode(event.data, where, purpose, broken_off=pieces.ended)


def _decode(data: str, where: str, purpose: RequestProfile, *, broken_off: bool) -> bytes:
    try:
        text = base64.b64decode("".join(data.split()), validate=True)
        if broken_off:
            json.loads(text)
    except (ValueError, RecursionError):
        if broken_off:
            raise purpose.failed(f"{where} broke off in the midst of an event. See the server's log") from None
        raise purpose.unusable(
            f"{where} sent an event that is not the base64 of a JSON text: {one_line(data[:40])!r}. {purpose.check}"
        ) from None
    if len(text) > MAX_EVENT_BYTES:
        raise _too_large(where, MAX_EVENT_BYTES, purpose)
    return text


class _Pieces(httpx.SyncByteStream):
    """The body in small pieces, as long as an event does not become too large.

    The parser of events hands out what it has found in a piece before it asks for the next one, so whoever takes an
    event may set `weight` back to 0.
    """

    def __init__(self, response: httpx.Response, where: str, purpose: RequestProfile, signal: AbortSignal) -> None:
        self._response = response
        self._where = where
        self._purpose = purpose
        self._signal = signal
        #: About how many bytes the event takes that is not complete yet.
        self.estimated_size = 0
        #: The server has sent all.
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in _chunks(self._response, self._signal):
            for start in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk[start : start + _PIECE_BYTES]
                self.estimated_size += len(piece) + _LINE_BYTES * (piece.count(b"\n") + piece.count(b"\r"))
                yield piece
                if self.estimated_size > MAX_ENCODED_BYTES:
                    raise _too_large(self._where, MAX_EVENT_BYTES, self._purpose)
        # By the standard an event without the blank line behind it is dropped; here it would go unnoticed that it was
        # cut off.
        self.ended = True
        yield b"\n\n"


def _too_large(where: str, limit: int, purpose: RequestProfile) -> RTVIError:
    return purpose.unusable(f"{where} answered with more than {limit} bytes. {purpose.check}")


def _read_whole(
    response: httpx.Response, limit: int, where: str, purpose: RequestProfile, signal: AbortSignal
) -> bytes:
    content = _read_body(response, limit, signal)
    if len(content) > limit:
        error = _too_large(where, limit, purpose)
        error.status = response.status_code
        raise error
    return content


def _read_body(response: httpx.Response, limit: int, signal: AbortSignal) -> bytes:
    """The body, or so much of it that it is seen to be larger than `limit`."""
    content = bytearray()
    for chunk in _chunks(response, signal):
        content += chunk
        if len(content) > limit:
            break
    return bytes(content)


def _chunks(response: httpx.Response, signal: AbortSignal) -> Iterator[bytes]:
    for chunk in response.iter_bytes():
        signal.raise_if_aborted()
        socket_timeout(signal)  # the limit is one for all bytes, also on a connection that we cannot shut down
        yield chunk
    signal.raise_if_aborted()
