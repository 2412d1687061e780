"""The meaning of errors and refusals of a server, and advice about them: the one table, and the texts made of it."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult

import attrs

from ..concurrency.lifecycle import what_to_do
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
from ..protocol.envelope import is_too_deep
from ..protocol.record import Record
from ..protocol.text import one_line
from .urls import Origin, is_private_host, origin, printable, url_fault

# -- the table: by purpose of a request and status of the refusal, the advice -----------------------------------------

_HEADERS_REQUIRED = "Set params.headers to the headers that the server requires"
_START_HEADERS_REQUIRED = (
    "Set headers= of connect(url) or start_bot(), or params.headers, to those that the server requires"
)
_RUNNER_START = "(a Pipecat runner's start endpoint ends in /start)"
_ITS_HEADERS = "Pass headers= that the server requires"
_OTHER_FORM = "The server expects another form of the request: check its request_data"
_WRONG_PATH = (
    "Check the path of the URL (ws_url), or pass the http:// URL of the server. Or a proxy in front does not pass "
    "WebSockets on"
)
_REDIRECT = "Redirects are not followed: set ws_url to the bot's final address"
_LOGIN_ADVICE = (
    "Otherwise the token may be missing, wrong, expired, or used before (Pipecat's are good for one connection): get a "
    "new one from the server"
)


def _same_as_refused(purpose: Purpose) -> type[RTVIError]:
    return purpose.refused


_REFUSED = attrs.Factory(_same_as_refused, takes_self=True)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Purpose(Record):
    """The purpose of a request: its errors, and the advice by status of a refusal.

    Attributes:
        does: The endpoint's purpose, as in "the endpoint that ...".
        headers: Sent unless the caller has set a header of that name.
        advice: By status, a sentence of advice.
        other: The advice for other statuses; from 500 on, the advice is to read the server's log.
        refused: The class of the error if the server refuses.
        failed: The class of the error if the server cannot be reached, or the answer broke off.
        late: The class of the error if the limit has passed.
        unusable: The class of the error if the answer is not valid.
        no_url: The class of the error if the endpoint's URL is not valid.
    """

    does: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    advice: Mapping[int, str]
    other: str = ""
    refused: type[RTVIError]
    failed: type[RTVIError] = _REFUSED
    late: type[RTVIError] = _REFUSED
    unusable: type[RTVIError] = _REFUSED
    no_url: type[RTVIError] = _REFUSED

    def advice_for(self, status: int) -> str:
        """Return the advice about a refusal; "" if there is none."""
        return self.advice.get(status, "See the server's log" if status >= 500 else self.other)

    @property
    def check(self) -> str:
        """The advice for an answer that is not valid."""
        return f"Check that its URL is the endpoint that {self.does}"


CONNECT = Purpose(
    does=f"starts the bot {_RUNNER_START}",
    advice={
        401: _HEADERS_REQUIRED,
        403: _HEADERS_REQUIRED,
        # 501: of a web server that takes no POST
        **dict.fromkeys((404, 405, 501), f"Check the URL of the connect endpoint {_RUNNER_START}"),
        422: _OTHER_FORM,
    },
    refused=StartBotError,
)
START = Purpose(
    does="starts the bot",
    advice={
        401: _START_HEADERS_REQUIRED,
        403: _START_HEADERS_REQUIRED,
        **dict.fromkeys((404, 405, 501), "Check the URL of the start endpoint"),
        422: _OTHER_FORM,
    },
    refused=StartBotError,
)
OFFER = Purpose(
    does="takes the offer (in Pipecat it ends in /api/offer)",
    advice={
        400: "The bot may serve one client at a time (ConnectionMode.SINGLE), and have one: end that session",
        401: _ITS_HEADERS,
        403: _ITS_HEADERS,
        404: "Check the URL (in Pipecat it ends in /start or in /api/offer); a session "
        "from /start ends if no client connects to it",
        405: "Check the URL of the offer (in Pipecat it ends in /api/offer)",
        422: "The server expects another form of the offer than Pipecat's: check webrtc_url",
    },
    refused=TransportStartError,
    no_url=InvalidTransportParamsError,
)
ACTION = Purpose(
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
UPLOAD = Purpose(
    does="takes files for the bot",
    advice={
        401: _HEADERS_REQUIRED,
        403: _HEADERS_REQUIRED,
        404: "The server no longer knows the session: connect again",
        413: "Put the file where the bot can read it, and send its URL",
    },
    refused=RequestRejectedError,
    late=RequestTimeoutError,
    unusable=ProtocolError,
)
WEBSOCKET = Purpose(
    does="is the bot's WebSocket",
    advice={
        **dict.fromkeys((200, 404, 405, 426), _WRONG_PATH),
        **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECT),
        401: "The token may be missing or wrong: pass the one that the server issued for this session",
        # Pipecat's servers refuse a path that they do not have with 403, too.
        403: f"Check the path of the URL: a Pipecat bot's is /ws or /ws-client. {_LOGIN_ADVICE}",
        429: "",
    },
    other="Check ws_url",
    refused=TransportStartError,
)
# Statuses that a WebSocket's wrong path may have.
_OF_PATH = (200, 400, 403, 404, 405, 426)


def websocket_advice(status: int, url: SplitResult, server: str) -> str:
    """Return the advice about a refusal of a WebSocket.

    Args:
        status: The status of the refusal.
        url: The URL of the WebSocket.
        server: The value of the answer's header Server.
    """
    if status in _OF_PATH and not url.path.strip("/"):
        example = printable(url._replace(path="/ws", query="").geturl())
        no_path = f"The URL has no path: the WebSocket of a Pipecat bot is at /ws or at /ws-client, such as {example}"
        return f"{no_path}. {_LOGIN_ADVICE}" if status == 403 else no_path
    if status in _OF_PATH and status != 403 and server.lower().startswith("nginx"):
        return (
            "Check the path of the URL (ws_url), or let its location in nginx pass WebSockets on "
            "(proxy_http_version 1.1, and proxy_set_header for Upgrade and Connection)"
        )
    return WEBSOCKET.advice_for(status)


def origin_of(url: str, purpose: Purpose = CONNECT) -> Origin:
    """Return the scheme, host and port of `url`, with the default port filled in.

    Raises:
        StartBotError: (or `purpose.no_url`) `url` is not an ``http`` or ``https`` URL.
    """
    found = origin(url)
    if found is None:
        raise purpose.no_url(f"{printable(url)!r} is not the URL of a server: {url_fault(url, 'http', 'https')}")
    return found


# -- refusals ---------------------------------------------------------------------------------------------------------

# The keys of a refusal's reason: early Pipecat servers use `info`, FastAPI `detail`, many others the last two.
_REASON_KEYS = ("info", "detail", "error", "message")
# The answers of nginx, Apache and Go to plain HTTP at a port with TLS.
_TLS_REQUIRED = rb"HTTP request (was sent )?to (an )?HTTPS|plain HTTP to an SSL-enabled"
_SECONDS = r"\d{1,9}"
_HTTP_DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"


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
    """Return the text of the error for a refusal: the failed request, the reason, and the advice.

    Args:
        what: The start of the text, as in "http://host/connect answered".
        status: The status of the answer.
        phrase: Its reason phrase; "": use the standard phrase.
        body: Its body; the reason in a JSON body takes precedence over the phrase.
        retry_after: The value of its header Retry-After.
        challenge: The value of its header WWW-Authenticate.
        authorization: The value of the request's header Authorization.
        scheme: The scheme of the URL.
        advice: A sentence, without its period, unless the answer itself gives advice.
        doubt: A sentence that follows the advice, without its period.
    """
    if status == 400 and scheme in ("http", "ws") and re.search(_TLS_REQUIRED, body):
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
    retry = _when_to_retry((retry_after or "").strip()) or ("Try again later" if status in (429, 503) else "")
    sentences = [f"{what} {status}: {reason}", retry, advice, doubt]
    return ". ".join(filter(None, sentences))


def _standard_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _when_to_retry(value: str) -> str:
    if re.fullmatch(_SECONDS, value):
        return f"Try again in {int(value)} s"
    return f"Try again after {value}" if re.fullmatch(_HTTP_DATE, value) else ""


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
    # A FastAPI server's 422 has a list. The values that it has rejected may be secret, so they are left out.
    if not isinstance(value, list) or not all(isinstance(e, Mapping) and isinstance(e.get("msg"), str) for e in value):
        return None
    return "; ".join(f"{_path(e.get('loc'))}{e['msg']}" for e in value)


def _path(loc: Any) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""


# -- failures ---------------------------------------------------------------------------------------------------------


class NoTLSError(OSError):
    """The error of a server that does not speak TLS."""


class NoHTTPError(OSError):
    """The error of a peer that does not speak HTTP."""


class ProxyError(ConnectionError):
    """The error of a proxy that cannot be used. The text names the proxy and gives advice.

    Attributes:
        status: The status of its refusal, or None.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


# How a TLS server may react to plain text, other than by an alert.
_HANG_UPS = (ConnectionAbortedError, ConnectionResetError, BrokenPipeError)
# By OpenSSL's verify code: the advice about certificate errors that a different authority would not solve.
_CERTIFICATES = {
    9: "Check this machine's clock, and from when on the server's certificate is valid",
    10: "The server needs a new one; check this machine's clock, too",
    62: "Use a name that the certificate has, or give the server one that has this name",
    64: "Use a name that the certificate has, or give the server one that has this address",
}


def failure_text(
    error: BaseException | None, reason: str, url: SplitResult, *, advice: str, trust: str = "pass ssl_context="
) -> str:
    """Return the reason why a server cannot be reached, and advice.

    Args:
        error: The exception; its causes are examined, too.
        reason: Its text, used if no better explanation is known.
        url: The address of the server.
        advice: The advice that goes with `reason`.
        trust: How the caller sets the trusted authorities, as the start of an argument.
    """
    causes = [*_causes(error)]
    for cause in causes:
        if isinstance(cause, ProxyError):
            return str(cause)
    secure = url.scheme in ("https", "wss")
    if any(isinstance(cause, NoTLSError) for cause in causes):
        # On the internet an attacker may have sent this answer, to make the client send its secrets in plain text.
        advice = _without_tls(url) if is_private_host(url.hostname or "") else "Check the URL, its host and port"
    elif not secure and any(isinstance(cause, (NoHTTPError, *_HANG_UPS)) for cause in causes):
        advice = f"Check the URL, its host and port; a server with TLS needs {url.scheme}s://"
    return explain(error, trust=trust) or f"{reason}. {advice}"


def explain(error: BaseException | None, *, trust: str = "pass ssl_context=") -> str | None:
    """Return the meaning of a TLS failure, or of a shortage of descriptors, with advice; None for other errors.

    Args:
        error, trust: As in `failure_text()`.
    """
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            break
        if isinstance(cause, OSError) and (advice := what_to_do(cause)) is not None:
            return f"{cause}. {advice}"
    else:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = _CERTIFICATES.get(
            cause.verify_code,
            f"If its authority is your own, trust that: {trust}ssl.create_default_context(cafile=...)",
        )
        return f"its certificate is not trusted: {cause.verify_message.rstrip('.')}. {advice}"
    reason = cause.reason or ""
    if reason.endswith(("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")):
        return "it speaks no version of TLS that is accepted here; the default ssl_context accepts 1.2 and later"
    if "ALERT" in reason:
        return (
            f"it has refused TLS with this client ({reason.replace('_', ' ').lower()}). If it requires a client "
            f"certificate, load one into the context: {trust}context, after context.load_cert_chain(...)"
        )
    return None


def hung_up(error: BaseException) -> bool:
    """Return whether the server has ended the connection without an answer."""
    return any(isinstance(cause, _HANG_UPS) for cause in _causes(error))


def is_of_tls(error: BaseException) -> bool:
    """Return whether TLS has failed: the server has none, or its certificate or its versions are not accepted."""
    return any(isinstance(cause, (NoTLSError, ssl.SSLError)) for cause in _causes(error))


def status_of(error: BaseException | None) -> int | None:
    """Return the status of a proxy's refusal; None if `error` is not the refusal of a proxy."""
    return next((cause.status for cause in _causes(error) if isinstance(cause, ProxyError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # the context, because httpcore raises `from None`


def _without_tls(url: SplitResult) -> str:
    plain = printable(url._replace(scheme=url.scheme[:-1]).geturl())
    if url.scheme == "https":
        return f"If it is meant to have none, use {plain}"
    return (
        f"If it is meant to have none, use {plain!r}: Pipecat's runner advertises wss:// whenever its --host is not "
        "'localhost'"
    )
