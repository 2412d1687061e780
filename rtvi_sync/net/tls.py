"""TLS: the trusted authorities, the handshake, and reads and writes that see only their own errors."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import ssl
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from ..concurrency.lifecycle import what_to_do
from ..concurrency.logs import package_logger
from ..errors import InvalidTransportParamsError
from ..protocol.text import one_line
from .advice import NoTLSError

logger: logging.Logger = package_logger(__name__)

A = TypeVar("A")
T = TypeVar("T")

#: The errors of a socket that takes, or has, no bytes now.
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# OpenSSL's reasons for an answer that is not TLS; the last one for a server that echoes.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")


@functools.cache
def default_context() -> ssl.SSLContext:
    """Return the default context, which checks certificates and host names and takes TLS 1.2 or later.

    Raises:
        InvalidTransportParamsError: SSL_CERT_FILE or SSL_CERT_DIR names no usable file or folder.
    """
    # Cached and made on demand, because loading the certificate authorities takes tens of milliseconds.
    # OpenSSL, httpx and others use the same two variables.
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    # OpenSSL would trust no one and say nothing.
    if folder and not file and not any(map(os.path.isdir, folder.split(os.pathsep))):
        raise _unusable("SSL_CERT_DIR", folder, "there is no such directory")
    if file or folder:
        try:
            context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        except OSError as error:
            # Not passed on, because around this call an OSError means that the server cannot be reached.
            if file and what_to_do(error) is None:
                raise _unusable("SSL_CERT_FILE", file, error.strerror or str(error)) from error
            raise
    else:
        import certifi  # imported on demand, because it finds its file by importlib.resources, which imports much

        context = ssl.create_default_context(cafile=certifi.where())
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    return context


def _unusable(variable: str, value: str, why: str) -> InvalidTransportParamsError:
    return InvalidTransportParamsError(
        f"{variable} ({one_line(value)}) cannot be used: {why}; correct it, unset it, or pass ssl_context="
    )


def warn_if_unverified(context: ssl.SSLContext) -> None:
    """Log a warning if the caller's context accepts any peer as the server."""
    if context.verify_mode is ssl.CERT_NONE or not context.check_hostname:
        logger.warning(
            "The ssl_context given to this client does not verify %s: an attacker on the network can read and change "
            "all data, tokens included. For an authority of your own use ssl.create_default_context(cafile=...)",
            "certificates" if context.verify_mode is ssl.CERT_NONE else "whose certificate it gets",
        )


def wrap_socket(sock: socket.socket, context: ssl.SSLContext, **options: Any) -> ssl.SSLSocket:
    """Call `context.wrap_socket()`, and close `sock` if it fails.

    Before Python 3.13 `wrap_socket()` leaves the descriptor to the garbage collector if the peer has already reset the
    connection.

    Raises:
        OSError: the connection or the handshake failed.
    """
    try:
        return context.wrap_socket(sock, **options)
    except OSError as error:
        sock.close()
        # The unfinished TLS socket owns the descriptor, and only the frames of the traceback refer to it.
        for frame, _ in traceback.walk_tb(error.__traceback__):
            orphan = frame.f_locals.get("self")
            if isinstance(orphan, ssl.SSLSocket):
                orphan.close()
        raise


def start_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """Wrap `sock` in TLS, within its timeout, and require a certificate for `host`.

    Raises:
        NoTLSError: the server does not speak TLS.
        OSError: the handshake failed otherwise.
    """
    try:
        return wrap_socket(sock, context, server_hostname=host)
    except (ssl.SSLEOFError, ConnectionError) as error:
        # The text does not suggest plain text, because an attacker who breaks connections could provoke that advice.
        raise ConnectionError("the server hung up during the TLS handshake") from error
    except ssl.SSLError as error:
        if error.reason not in _NOT_TLS:
            raise
        raise NoTLSError(f"the server does not speak TLS ({error.reason})") from error


def by_itself(call: Callable[[A], T], argument: A) -> T:
    """Return `call(argument)`: a non-blocking read or write of a TLS socket that sees only the errors of that socket.

    OpenSSL has a queue of errors for each thread. CPython doesn't clear it after a failure or before a call, and a call
    that would block then raises the error of another connection: https://github.com/python/cpython/issues/148594

    Raises:
        OSError: this connection has failed, or one of `WOULD_BLOCK`. The queue is left empty, so only a failure outside
            this function, in another library on the thread, could take the place of a connection's own error.
    """
    try:
        return call(argument)
    except WOULD_BLOCK:
        raise
    except OSError as error:
        _forget_errors()
        try:
            if result := call(argument):
                return result
        except WOULD_BLOCK:
            raise
        except OSError:
            _forget_errors()
        raise error from None


def _forget_errors() -> None:
    """Clear OpenSSL's queue of errors of this thread."""
    with contextlib.suppress(ssl.SSLError):
        _any_context().set_ciphers("none of them")  # CPython clears it when OpenSSL knows none of the ciphers


@functools.cache
def _any_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
