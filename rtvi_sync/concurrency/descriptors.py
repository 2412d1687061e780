"""Descriptors that the application may close although the package still uses them.

`os.closerange()`, and libraries that daemonize a process, close every descriptor from 3 on. The number of a closed
descriptor is soon reused for another file; a write to that number, or a close of it, then affects that file.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import selectors
import socket
import stat
import sys
import weakref
from typing import Any, NoReturn, Protocol

from ..errors import DisconnectedError
from .clock import monotonic

#: For `recv()` of a non-blocking socket, whose number may be reused for a blocking one of the application.
DONT_WAIT: int = getattr(socket, "MSG_DONTWAIT", 0)
# SO_COOKIE: a number of each socket, which no other socket of the system gets. Its look-up keeps the GIL, and `fstat()`
# does not: other threads would get it before each message that is sent.
_COOKIE_OPTION = 57


class _HasFileno(Protocol):
    def fileno(self) -> int:
        """Return the descriptor."""


class DescriptorGuard:
    """A check that a descriptor is still the one that a socket or file was made with.

    Any thread may use it. It does not keep the socket or file alive.
    """

    __slots__ = ("_checked_at", "_cookie", "_identity", "_number", "_opened")

    def __init__(self, opened: _HasFileno) -> None:
        self._number = opened.fileno()
        self._cookie = _cookie(opened)
        self._opened: weakref.ref[Any] = weakref.ref(opened)  # a socket if there is a cookie
        self._identity = _identity(self._number)
        self._checked_at = -math.inf

    @property
    def intact(self) -> bool:
        """False if the descriptor was closed; its number may be reused for another file."""
        opened = self._opened() if self._cookie is not None else None
        if opened is None:
            intact = _identity(self._number) == self._identity
        else:  # without _cookie(), because each frame that is sent passes here
            try:
                intact = opened.getsockopt(socket.SOL_SOCKET, _COOKIE_OPTION, 8) == self._cookie
            except OSError:
                intact = False
        self._checked_at = monotonic() if intact else -math.inf
        return intact

    def intact_within(self, seconds: float) -> bool:
        """Return `intact`, from a check that is at most `seconds` old."""
        return monotonic() - self._checked_at < seconds or self.intact

    def close(self, sock: socket.socket) -> None:
        """Close `sock`; if its number may be reused for another file, only forget the number."""
        if self.intact:
            sock.close()
        else:
            sock.detach()


def _cookie(opened: _HasFileno) -> bytes | None:
    """Return what tells a socket from all others; None if its descriptor is not that of a socket, or not on Linux."""
    if sys.platform == "linux" and isinstance(opened, socket.socket):
        try:
            return opened.getsockopt(socket.SOL_SOCKET, _COOKIE_OPTION, 8)
        except OSError:
            pass
    return None


def _identity(number: int) -> tuple[int, int, int] | None:
    if os.name == "nt":
        return None  # sockets have no descriptor that os.closerange() could close
    try:
        found = os.fstat(number)
    except OSError:
        return (-1, -1, -1)
    return stat.S_IFMT(found.st_mode), found.st_dev, found.st_ino  # the permissions of a file may change


class _Abandoned:
    """The replacement of the object in a selector that blocks: each use of it fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class TooManySocketsError(OSError):
    """The system refuses to watch one more socket beside those that it watches. The text says what to do."""


class _SelectSelector(selectors.SelectSelector):
    """select(), which takes any socket, and one too many makes each later wait fail: that one is refused here."""

    def register(self, *args: Any, **kwargs: Any) -> selectors.SelectorKey:
        """Watch a socket.

        Raises:
            TooManySocketsError: select() cannot wait for it beside the others.
        """
        key = super().register(*args, **kwargs)
        try:
            self.select(0)
        except ValueError as error:
            self.unregister(key.fileobj)
            raise TooManySocketsError(
                f"select(), the only function of this system that waits for sockets, does not take one more beside "
                f"{len(self.get_map())}: {error}. End other sessions, or distribute them over several processes"
            ) from error
        except OSError:  # the application has closed a descriptor: the next wait says so
            pass
        return key


def make_selector() -> selectors.DefaultSelector:
    """Return a selector of the kind that suits this system best."""
    kind: type = selectors.DefaultSelector
    made: selectors.DefaultSelector = (_SelectSelector if kind is selectors.SelectSelector else kind)()
    return made


def abandon(selector: selectors.BaseSelector) -> None:
    """Leave a selector open whose number may be reused for another file. A thread may still block in it.

    A thread that is about to block in it gets an OSError instead.
    """
    keep_open(vars(selector).get("_selector"))
    vars(selector)["_selector"] = _Abandoned()


def keep_open(opened: object) -> None:
    """Keep a file object whose number may be reused until the process ends, so that the number is not closed.

    `io.FileIO`, `select.epoll` and `select.kqueue` close their number when they are collected, which cannot be turned
    off. The object outlives the collection of the modules' globals at the end of the interpreter.
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


class Waker(socket.socket):
    """The writing end of a pair of sockets that wakes the I/O thread.

    It is closed when no thread refers to it any more. If it were closed earlier, its number could be reused by the time
    a thread writes to it; and a signal handler could run on a thread that holds a lock against that.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._guard = DescriptorGuard(self)

    @property
    def intact(self) -> bool:
        """False if the application has closed the descriptor."""
        return self._guard.intact

    def wake(self) -> bool:
        """Wake the I/O thread; return False if the application has closed the descriptor. Never blocks."""
        if not self.intact:
            return False
        # If the buffer is full, the thread is awake already; if the socket is closed, the thread has ended.
        with contextlib.suppress(OSError):
            self.send(b"\0")
        return True

    def release(self) -> None:
        """Close the descriptor."""
        self._guard.close(self)

    __del__ = release
