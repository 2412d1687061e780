"""Descriptors that the application may close although the package still uses them.

`os.closerange()`, and libraries that make a daemon of a process, close every descriptor from 3 on. The number of a
closed descriptor soon belongs to another file, and what is written to that number, or closed, is then that file.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import stat
import time
from typing import NoReturn, Protocol

from ..errors import DisconnectedError

#: For `recv()` of a non-blocking socket, whose number may by now belong to a blocking one of the application.
DONT_WAIT: int = getattr(socket, "MSG_DONTWAIT", 0)


class _HasFileno(Protocol):
    def fileno(self) -> int:
        """The descriptor."""


class DescriptorGuard:
    """Tells whether a descriptor is still the one that a socket or file was made with.

    Any thread may use it. It does not keep the socket or file alive.
    """

    __slots__ = ("_checked_at", "_identity", "_number")

    def __init__(self, opened: _HasFileno) -> None:
        self._number = opened.fileno()
        self._identity = _identity(self._number)
        self._checked_at = -math.inf

    @property
    def intact(self) -> bool:
        """False if the descriptor was closed; its number may belong to another file."""
        intact = _identity(self._number) == self._identity
        self._checked_at = time.monotonic() if intact else -math.inf
        return intact

    def intact_within(self, seconds: float) -> bool:
        """As `intact`, from a check that is at most so old."""
        return time.monotonic() - self._checked_at < seconds or self.intact

    def close(self, sock: socket.socket) -> None:
        """Close `sock`; if its number may belong to another file, only forget the number."""
        if self.intact:
            sock.close()
        else:
            sock.detach()


def _identity(number: int) -> tuple[int, int, int] | None:
    if os.name == "nt":
        return None  # sockets have no descriptor that os.closerange() could close
    try:
        found = os.fstat(number)
    except OSError:
        return (-1, -1, -1)
    return stat.S_IFMT(found.st_mode), found.st_dev, found.st_ino  # the permissions of a file may change


class _Abandoned:
    """What a selector has in place of the object that waits: each use of it fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def abandon(selector: selectors.BaseSelector) -> None:
    """Leave a selector as it is whose number may belong to another file. A thread may still wait in it.

    A thread that is about to wait in it gets an OSError instead.
    """
    keep_open(vars(selector).get("_selector"))
    vars(selector)["_selector"] = _Abandoned()


def keep_open(opened: object) -> None:
    """Keep a file whose number may belong to another file until the process ends, so that the number is not closed.

    `io.FileIO`, `select.epoll` and `select.kqueue` close their number when they are collected, and cannot be told not
    to. What is kept is kept past the point at which the interpreter collects what modules hold.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))


def closed_error() -> DisconnectedError:
    """Make the error for a session whose descriptor the application has closed."""
    return DisconnectedError(
        "The application has closed the session's descriptor, as os.closerange() and libraries that daemonize the "
        "process do. Daemonize the process first, then connect",
        initiator="network",
    )
