"""The answer to a POST, read within limits: a JSON document, a stream of events, or a refusal."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import httpx

from ..concurrency.abort import AbortSignal
from ..concurrency.deadline import Deadline
from ..errors import RTVIError
from ..protocol import envelope
from ..protocol.text import quoted
from .net import socket_timeout
from .refusals import refusal

if TYPE_CHECKING:
    from .http_sockets import AbandonableClient

# A connect endpoint answers with a URL and a token; an iceConfig may add a few kB.
MAX_BODY_BYTES: Final = 1024 * 1024
# One message of a stream, or the only one. The largest one seen, a bot's complete config, has some kB.
MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
# Base64 encodes three bytes as four characters; the names of fields and the line ends are added.
MAX_ENCODED_BYTES: Final = MAX_EVENT_BYTES // 3 * 4 + MAX_BODY_BYTES
# In seconds, as for a WebSocket's refusal. The body of a refusal only explains it: what comes later is ignored.
_REASON_TIMEOUT = 1.0
# The memory of a line of an incomplete event beyond its text: each line is a string of its own, however short.
_LINE_BYTES = 64
_SLICE_BYTES = 64 * 1024
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}(?![^;\s])")


@attrs.frozen(kw_only=True)
class RequestProfile:
    """The purpose of a request: its errors, and their advice.

    Attributes:
        does: what the endpoint does, as in "the endpoint that ...".
        headers: sent unless the caller has one of that name.
        advice: by status of a refusal, a sentence that says what to do; 500 and above have a default.
        refused: raised if the server refuses.
        failed: raised if the server cannot be reached, or the answer broke off.
        late: raised if the limit has passed.
        unusable: raised if the answer is not valid.
        no_url: raised if the endpoint's URL is not valid.
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
        """Return the advice for an answer that is not valid."""
        return f"Check that its URL is the endpoint that {self.does}"


def either(name: str) -> tuple[type[Any], ...]:
    """Return the class `name` of httpx, and that of httpx2 if the application, whose client it may be, has imported it.

    The two have the same interface, and no class in common.
    """
    libraries = httpx, sys.modules.get("httpx2")
    return tuple(getattr(library, name) for library in libraries if library is not None)


def check_answer(
    response: httpx.Response,
    where: str,
    profile: RequestProfile,
    signal: AbortSignal,
    client: AbandonableClient | None,
) -> None:
    """Refuse an answer that is not a success, or is compressed.

    Args:
        response: the answer, with its body unread.
        where: the URL without secrets.
        profile: of the request.
        signal: of the attempt.
        client: has sent the request; None: the caller's own has.

    Raises:
        RTVIError: the server refuses, or has compressed its answer.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    status = response.status_code
    encoding = response.headers.get("content-encoding", "").strip().lower()
    compressed = encoding not in ("", "identity")
    if not response.is_success:
        proxy = client.forwarding_proxy if client is not None else None  # which may have made the answer
        if proxy is not None and status == 407:
            text = proxy.refusal("forward it", status, response.reason_phrase)
            raise profile.refused(f"The request to {where} failed: {text}", status=status)
        text = refusal(
            f"{where} answered",
            status,
            phrase=response.reason_phrase,
            body=b"" if compressed else _read_reason(response, signal, client),
            retry_after=response.headers.get("retry-after"),
            challenge=response.headers.get("www-authenticate"),
            authorization=response.request.headers.get("authorization"),
            scheme=response.url.scheme,
            advice=profile.advice.get(status, "See the server's log" if status >= 500 else ""),
            doubt=proxy.doubt if proxy is not None else "",
        )
        raise profile.refused(text, status=status)
    if compressed:
        raise profile.unusable(
            f"{where} answered with Content-Encoding {quoted(encoding, 40)} though 'identity' was requested. "
            "Switch compression off for this endpoint",
            status=status,
        )


def read_document(response: httpx.Response, where: str, profile: RequestProfile, signal: AbortSignal) -> Any:
    """Return the JSON document of the answer; an empty answer is ``{}``.

    Raises:
        RTVIError: the answer is too large, or not JSON.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    content = _read_whole(response, MAX_BODY_BYTES, where, profile, signal)
    try:
        document = json.loads(content) if content.strip() else {}
        if envelope.is_too_deep(document):
            raise RecursionError
    except RecursionError:
        text = f"{where} answered with a document of more than {envelope.MAX_DEPTH} levels. {profile.check}"
        raise profile.unusable(text, status=response.status_code) from None
    except ValueError:
        found = _MEDIA_TYPE.match(response.headers.get("content-type", ""))
        but = f" but with {found[0]}" if found and found[0] != "application/json" else ""
        text = f"{where} did not answer with JSON{but}. {profile.check}"
        raise profile.unusable(text, status=response.status_code) from None
    return document


def read_messages(
    response: httpx.Response, where: str, profile: RequestProfile, signal: AbortSignal, on_event: Callable[[], object]
) -> Iterator[bytes]:
    """Yield the JSON texts of the answer, each at most `MAX_EVENT_BYTES` long, as they arrive.

    An event stream has one text in each event, in base64; any other answer is one text. The texts are not parsed here,
    because the caller parses them, with limits of its own.

    Args:
        response: the answer, with its body unread.
        where: the URL without secrets.
        profile: of the request.
        signal: of the attempt.
        on_event: called for each complete event.

    Raises:
        RTVIError: an event is too large, or not base64; the stream broke off inside one.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
        content = _read_whole(response, MAX_EVENT_BYTES, where, profile, signal)
        if content.strip():
            yield content
        return
    from httpx_sse import EventSource  # imported on demand, because few applications need it

    body = _BoundedBody(response, where, profile, signal)
    # A response made here, because httpx would apply the server's character set to the original one: events are UTF-8,
    # and the standard allows a byte order mark.
    stream = httpx.Response(
        200, headers={"Content-Type": "text/event-stream"}, stream=body, default_encoding="utf-8-sig"
    )
    for event in EventSource(stream).iter_sse():
        on_event()
        body.event_bytes = 0
        if event.data:  # an event without data only keeps the connection open
            yield _decode(event.data, where, profile, broken_off=body.ended)


def _decode(data: str, where: str, profile: RequestProfile, *, broken_off: bool) -> bytes:
    try:
        text = base64.b64decode("".join(data.split()), validate=True)
        if broken_off:
            json.loads(text)
    except (ValueError, RecursionError):
        if broken_off:
            raise profile.failed(f"{where} broke off inside an event. See the server's log") from None
        raise profile.unusable(
            f"{where} sent an event that is not the base64 of a JSON text: {quoted(data, 40)}. {profile.check}"
        ) from None
    if len(text) > MAX_EVENT_BYTES:
        raise _too_large(where, MAX_EVENT_BYTES, profile)
    return text


class _BoundedBody(httpx.SyncByteStream):
    """The body in small slices, up to the limit of an event.

    The parser of events yields all events of a slice before it asks for the next slice, so its caller sets
    `event_bytes` back to 0 at each event.
    """

    def __init__(self, response: httpx.Response, where: str, profile: RequestProfile, signal: AbortSignal) -> None:
        self._response = response
        self._where = where
        self._profile = profile
        self._signal = signal
        #: The estimated memory of the incomplete event, in bytes.
        self.event_bytes = 0
        #: True when the server has sent the whole body.
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in _chunks(self._response, self._signal):
            for start in range(0, len(chunk), _SLICE_BYTES):
                part = chunk[start : start + _SLICE_BYTES]
                self.event_bytes += len(part) + _LINE_BYTES * (part.count(b"\n") + part.count(b"\r"))
                yield part
                if self.event_bytes > MAX_ENCODED_BYTES:
                    raise _too_large(self._where, MAX_EVENT_BYTES, self._profile)
        # A parser drops an event without a blank line behind it, by the standard. The added line makes it deliver such
        # an event, so that a stream that broke off is noticed.
        self.ended = True
        yield b"\n\n"


def _too_large(where: str, limit: int, profile: RequestProfile) -> RTVIError:
    return profile.unusable(f"{where} answered with more than {limit} bytes. {profile.check}")


def _read_whole(
    response: httpx.Response, limit: int, where: str, profile: RequestProfile, signal: AbortSignal
) -> bytes:
    content = _read_body(response, limit, signal)
    if len(content) > limit:
        error = _too_large(where, limit, profile)
        error.status = response.status_code
        raise error
    return content


def _read_reason(response: httpx.Response, signal: AbortSignal, client: AbandonableClient | None) -> bytes:
    """Return the body of a refusal, as far as it is short and arrives within about 1 s."""
    deadline = Deadline(_REASON_TIMEOUT)
    if client is not None:
        client.limit_reads(deadline)
    else:
        response.request.extensions.get("timeout", {})["read"] = _REASON_TIMEOUT  # of each read from now on
    content = bytearray()
    # An error is ignored, because the body is optional; if it comes from an abort, that is raised.
    with contextlib.suppress(*either("HTTPError"), TimeoutError):
        for chunk in _chunks(response, signal):
            content += chunk
            if len(content) > MAX_BODY_BYTES or deadline.expired:
                break
    signal.raise_if_aborted()
    return bytes(content)


def _read_body(response: httpx.Response, limit: int, signal: AbortSignal) -> bytes:
    """Return the body, or a part of it that is longer than `limit`."""
    content = bytearray()
    for chunk in _chunks(response, signal):
        content += chunk
        if len(content) > limit:
            break
    return bytes(content)


def _chunks(response: httpx.Response, signal: AbortSignal) -> Iterator[bytes]:
    for chunk in response.iter_bytes():
        signal.raise_if_aborted()
        socket_timeout(signal)  # raises after the attempt's limit, also on a connection that cannot be shut down here
        yield chunk
    signal.raise_if_aborted()
