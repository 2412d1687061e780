"""Selectors, and how a thread notices that the application has closed all descriptors of the process.

`os.closerange()`, and libraries that daemonize a process, close every descriptor from 3 on. The number of a closed
descriptor is soon reused for another file; a write to that number, or a close of it, then affects that file.
"""

from __future__ import annotations

import io
import os
import selectors
import socket
from typing import Any

from ..errors import DisconnectedError

#: For `recv()` of a non-blocking socket: once the application has closed it, a blocking socket may get its number.
DONT_WAIT: int = getattr(socket, "MSG_DONTWAIT", 0)


class Mark:
    """A record of the descriptor of a socket or file, to find out later whether the application has closed it.

    It does not keep the descriptor open. Ask only while this package has not closed it itself.
    """

    __slots__ = ("_number", "_place")

    def __init__(self, opened: socket.socket | io.FileIO) -> None:
        self._number = opened.fileno()
        self._place = _place(self._number)

    @property
    def is_gone(self) -> bool:
        """True if the descriptor was closed; its number may be reused for another file."""
        return _place(self._number) != self._place


def _place(number: int) -> tuple[int, int] | None:
    if os.name == "nt":
        return None  # sockets have no descriptor that os.closerange() could close
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class TooManySocketsError(OSError):
    """The system refuses to watch another socket. The text says how to fix it."""


class _SelectSelector(selectors.SelectSelector):
    """A select() that refuses a socket it cannot wait for. Plain select() would accept it, and fail in each wait."""

    def register(self, *args: Any, **kwargs: Any) -> selectors.SelectorKey:
        """Watch a socket.

        Raises:
            TooManySocketsError: select() cannot wait for another socket.
        """
        key = super().register(*args, **kwargs)
        try:
            self.select(0)
        except ValueError as error:
            self.unregister(key.fileobj)
            raise TooManySocketsError(
                "select(), the only function of this system that waits for sockets, takes no more than "
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


def keep_open(opened: object) -> None:
    """Keep a file object whose number may be reused until the process ends, so that the number is not closed.

    `select.epoll` and `select.kqueue` close their number when they are collected, which cannot be turned off. The
    object outlives the collection of the modules' globals at the end of the interpreter.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(opened))


def closed_error() -> DisconnectedError:
    """Return the error for a session whose descriptors the application has closed."""
    return DisconnectedError(
        "The application has closed the session's descriptor, as os.closerange() and libraries that daemonize the "
        "process do. Daemonize the process first, then connect",
        initiator="network",
    )
