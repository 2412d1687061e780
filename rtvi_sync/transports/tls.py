"""TLS: whom to trust, and what to say when the other side is not to be trusted."""

from __future__ import annotations

import functools
import logging
import os
import socket
import ssl
import traceback
from typing import Any

from ..concurrency.lifecycle import what_to_do

logger: logging.Logger = logging.getLogger(__name__)

# What OpenSSL calls the errors of a certificate that no authority could help, and what to do about each.
_ADVICE = {
    9: "Check this machine's clock, and from when on the server's certificate is valid",
    10: "The server needs a new one; check this machine's clock, too",
    62: "Use a name that the certificate has, or give the server one that has this name",
    64: "Use a name that the certificate has, or give the server one that has this address",
}
# What OpenSSL makes of an answer that is not TLS; the last one of a server that echoes.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")


class NoTLSError(OSError):
    """The server does not speak TLS."""


@functools.cache
def default_context() -> ssl.SSLContext:
    """The context of whoever brings none: certificates and host names are checked, TLS is 1.2 or later."""
    # Loading the certificate authorities takes tens of milliseconds: once per process, and only when TLS is used.
    # The variables are those that OpenSSL, httpx and others know.
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    else:
        import certifi  # finds its file by importlib.resources, which imports much

        context = ssl.create_default_context(cafile=certifi.where())
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    return context


def warn_if_unverified(context: ssl.SSLContext) -> None:
    """Log it if a context of the caller's lets anybody pass for the server."""
    if context.verify_mode is ssl.CERT_NONE or not context.check_hostname:
        logger.warning(
            "The ssl_context given to this client does not verify %s: whoever is on the line can read and change all "
            "of it, tokens included. For an authority of your own use ssl.create_default_context(cafile=...)",
            "certificates" if context.verify_mode is ssl.CERT_NONE else "whose certificate it gets",
        )


def wrap_socket(sock: socket.socket, context: ssl.SSLContext, **options: Any) -> ssl.SSLSocket:
    """`context.wrap_socket()`; when that fails, `sock` is closed.

    Before Python 3.13 it leaves the descriptor to the garbage collector if the peer has reset the connection meanwhile.

    Raises:
        OSError: of the connection, or of the handshake.
    """
    try:
        return context.wrap_socket(sock, **options)
    except OSError as error:
        sock.close()
        # The TLS socket that was being made has taken the descriptor over, and nobody else knows it.
        for frame, _ in traceback.walk_tb(error.__traceback__):
            orphan = frame.f_locals.get("self")
            if isinstance(orphan, ssl.SSLSocket):
                orphan.close()
        raise


def start_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """Wrap `sock` in TLS, within the time-out that is set on it; `host` is what the certificate has to be for.

    Raises:
        NoTLSError: the server does not speak it.
        OSError: it failed otherwise.
    """
    try:
        return wrap_socket(sock, context, server_hostname=host)
    except (ssl.SSLEOFError, ConnectionError) as error:
        # Whoever can break a connection must not get anybody to try without TLS: no word of that here.
        raise ConnectionError("the server hung up during the TLS handshake") from error
    except ssl.SSLError as error:
        if error.reason not in _NOT_TLS:
            raise
        raise NoTLSError(f"the server does not speak TLS ({error.reason})") from error


def explain(error: BaseException | None, *, trust: str = "pass ssl_context=") -> str | None:
    """What a failure of TLS, or for want of descriptors, means and what to do; None if neither `error` nor its causes
    are one.

    Args:
        trust: where the caller says whom to trust.
    """
    while error is not None and (not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)):
        advice = what_to_do(error) if isinstance(error, OSError) else None
        if advice is not None:
            return f"{error}. {advice}"
        error = error.__cause__ or error.__context__  # httpcore raises `from None`
    if error is None:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _ADVICE.get(
            error.verify_code,
            f"If its authority is your own, trust that: {trust}ssl.create_default_context(cafile=...)",
        )
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}. {advice}"
    reason = error.reason or ""
    if reason.endswith(("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")):
        return "it speaks no version of TLS that is taken here; without an ssl_context of yours these are 1.2 and later"
    if "ALERT" in reason:
        return (
            f"it has refused TLS with this client ({reason.replace('_', ' ').lower()}). If it wants a certificate of "
            f"yours, load it into the context: {trust}context, after context.load_cert_chain(...)"
        )
    return None
