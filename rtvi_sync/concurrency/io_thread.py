"""One selector thread for all sockets of the process."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .lifecycle import register_for_fork, start_thread

logger = logging.getLogger(__name__)


class Channel(Protocol):
    """A non-blocking socket that the io thread serves. Every method is called on the io thread and must not block."""

    def fileno(self) -> int:
        """The descriptor to watch."""

    def on_readable(self) -> None:
        """There is something to read."""

    def on_writable(self) -> None:
        """There is room to write; called while `watch_writes` is on."""

    def on_failure(self, error: BaseException) -> None:
        """A method of this channel raised, or its descriptor went bad: end it."""


class Timer:
    """A call that the io thread makes later. `cancel()` may be called on any thread."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Do not make the call, unless it is being made right now."""
        self._call = None


class IOThread:
    """Waits for the readiness of all channels, runs commands of other threads and timers.

    The selector belongs to the thread alone: other threads change it by `call()`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._commands: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_numbers = itertools.count()
        self._closing = False
        register_for_fork(self)
        self.thread = start_thread("io", self._run)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def call(self, command: Callable[[], object]) -> None:
        """Run `command()` on the io thread, soon and in order. Never blocks, takes no lock: a finalizer may call it."""
        self._commands.append(command)
        if not self.is_current:
            # A full pipe means that the thread is awake already; a closed one, that it has ended.
            with contextlib.suppress(OSError):
                self._wake_writer.send(b"\0")

    @property
    def is_current(self) -> bool:
        """True on the io thread."""
        return threading.get_ident() == self.thread.ident

    def close(self) -> None:
        """Let the thread end once it has run the commands that were given before."""
        self.call(self._stop)

    # -- io thread only -----------------------------------------------------------------------------------------------

    def register(self, channel: Channel) -> None:
        """Watch `channel` for readability."""
        self._selector.register(channel.fileno(), selectors.EVENT_READ, channel)

    def watch_writes(self, channel: Channel, enabled: bool) -> None:
        """Watch `channel` for room to write too, or no longer."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if enabled else 0)
        self._selector.modify(channel.fileno(), events, channel)

    def unregister(self, channel: Channel) -> None:
        """Watch `channel` no longer. Must come before its descriptor is closed."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel.fileno())

    def call_later(self, delay: float, call: Callable[[], object]) -> Timer:
        """Make `call()` on the io thread in `delay` seconds."""
        timer = Timer(call)
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._timer_numbers), timer))
        return timer

    def _stop(self) -> None:
        self._closing = True

    def _run(self) -> None:
        try:
            while not (self._closing and not self._commands):
                for key, events in self._select():
                    if key.data is None:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_reader.recv(4096)
                    else:
                        self._serve(key.data, events)
                self._run_commands()
                self._run_timers()
        finally:
            self._selector.close()
            self._wake_reader.close()
            self._wake_writer.close()

    def _select(self) -> list[tuple[selectors.SelectorKey, int]]:
        timeout = None
        while self._timers and self._timers[0][2]._call is None:
            heapq.heappop(self._timers)
        if self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        if self._commands:
            timeout = 0.0
        try:
            return self._selector.select(timeout)
        except (OSError, ValueError) as error:
            self._drop_bad_descriptors(error)
            return []

    def _drop_bad_descriptors(self, error: BaseException) -> None:
        """Somebody closed a descriptor that is not his (a daemonizing program, say): fail its channel, go on."""
        for key in list(self._selector.get_map().values()):
            try:
                socket.close(socket.dup(key.fd))
            except OSError:
                with contextlib.suppress(KeyError, ValueError, OSError):
                    self._selector.unregister(key.fd)
                if key.data is not None:
                    self._guard(key.data, lambda channel=key.data: channel.on_failure(error))  # type: ignore[misc]

    def _serve(self, channel: Channel, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._guard(channel, channel.on_writable)
        if events & selectors.EVENT_READ:
            self._guard(channel, channel.on_readable)

    def _guard(self, channel: Channel, call: Callable[[], object]) -> None:
        """No channel can end the thread that serves the others."""
        try:
            call()
        except Exception as error:
            logger.exception("Serving a connection failed; it is closed")
            try:
                channel.on_failure(error)
            except Exception:
                logger.exception("Closing a failed connection failed")

    def _run_commands(self) -> None:
        # Only those that are there now: a command that queues another one must not starve the sockets.
        for _ in range(len(self._commands)):
            self._run_call(self._commands.popleft())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            call = heapq.heappop(self._timers)[2]._call
            if call is not None:
                self._run_call(call)

    def _run_call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            logger.exception("A command of the io thread failed")

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors. No unregister(): the epoll instance is shared with the parent."""
        for close in (self._selector.close, self._wake_reader.close, self._wake_writer.close):
            with contextlib.suppress(OSError):
                close()
