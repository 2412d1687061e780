"""Why a server could not be talked to, and what to do about it: one text for requests and WebSockets."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult

from .net import ProxyError, is_nearby, printable
from .refusals import NoHTTPError
from .tls import NoTLSError, explain

# What a server with TLS may do when it is spoken to without, besides an alert.
_HANG_UPS = (ConnectionAbortedError, ConnectionResetError, BrokenPipeError)


def failure_text(
    error: BaseException | None, reason: str, url: SplitResult, *, advice: str, trust: str = "pass ssl_context="
) -> str:
    """Return what went wrong, and what to do next.

    Args:
        error: what was raised.
        reason: its text, for errors that explain nothing better.
        url: what was to be reached.
        advice: for those errors.
        trust: where the caller says whom to trust.
    """
    causes = [*_causes(error)]
    for cause in causes:
        if isinstance(cause, ProxyError):
            return str(cause)
    secure = url.scheme in ("https", "wss")
    if any(isinstance(cause, NoTLSError) for cause in causes):
        # Elsewhere an attacker on the line may have answered so, in order to be sent the secrets in plain text.
        advice = _without_tls(url) if is_nearby(url.hostname or "") else advice
    elif not secure and any(isinstance(cause, (NoHTTPError, *_HANG_UPS)) for cause in causes):
        advice = f"Check the URL, its host and port; a server with TLS needs {url.scheme}s://"
    return explain(error, trust=trust) or f"{reason}. {advice}"


def status_of(error: BaseException | None) -> int | None:
    """Return the status that a proxy refused with; None if `error` is not the refusal of one."""
    return next((cause.status for cause in _causes(error) if isinstance(cause, ProxyError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # httpcore raises `from None`


def _without_tls(url: SplitResult) -> str:
    plain = printable(url._replace(scheme=url.scheme[:-1]).geturl())
    if url.scheme == "https":
        return f"If the server has no TLS, use {plain}"
    return (
        "Pipecat's runner advertises wss:// whenever its --host is not 'localhost': pass the plain address, "
        f"WebSocketTransport(ws_url={plain!r})"
    )
