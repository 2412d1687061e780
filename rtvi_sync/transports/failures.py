"""Error texts for a server that cannot be reached, with advice; the same for requests and WebSockets."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult

from .net import ProxyError, is_private_host, printable
from .refusals import NoHTTPError
from .tls import NoTLSError, explain

# How a TLS server may react to plain text, other than by an alert.
_HANG_UPS = (ConnectionAbortedError, ConnectionResetError, BrokenPipeError)


def failure_text(
    error: BaseException | None, reason: str, url: SplitResult, *, advice: str, trust: str = "pass ssl_context="
) -> str:
    """Return what failed, and what to do next.

    Args:
        error: the exception.
        reason: its text, used if no better explanation is known.
        url: the address that was to be reached.
        advice: what to do, used with `reason`.
        trust: how the caller sets the trusted authorities, as the beginning of an argument.
    """
    causes = [*_causes(error)]
    for cause in causes:
        if isinstance(cause, ProxyError):
            return str(cause)
    secure = url.scheme in ("https", "wss")
    if any(isinstance(cause, NoTLSError) for cause in causes):
        # On the internet an attacker may have sent this answer, to make the client send its secrets in plain text.
        advice = _without_tls(url) if is_private_host(url.hostname or "") else advice
    elif not secure and any(isinstance(cause, (NoHTTPError, *_HANG_UPS)) for cause in causes):
        advice = f"Check the URL, its host and port; a server with TLS needs {url.scheme}s://"
    return explain(error, trust=trust) or f"{reason}. {advice}"


def hung_up(error: BaseException) -> bool:
    """Tell whether the server has ended the connection without an answer."""
    return any(isinstance(cause, _HANG_UPS) for cause in _causes(error))


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
        return f"If the server has no TLS, use {plain}"
    return (
        "Pipecat's runner advertises wss:// whenever its --host is not 'localhost': connect to the plain address, "
        f"{plain!r}"
    )
