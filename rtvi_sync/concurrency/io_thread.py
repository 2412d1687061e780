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

from .gate import forget_sleepless, sleepless
from .lifecycle import register_for_fork, start_thread

logger: logging.Logger = logging.getLogger(__name__)


class Channel(Protocol):
    """A non-blocking socket that the io thread serves. Every method is called on the io thread and must not block.

    A channel may be called once more after it was unregistered, if it was ready at the same time as whoever did that.
    """

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

    __slots__ = ("call", "channel")

    def __init__(self, call: Callable[[], object], channel: Channel | None) -> None:
        self.call: Callable[[], object] | None = call
        self.channel: Channel | None = channel

    def cancel(self) -> None:
        """Do not make the call, unless it is being made right now."""
        self.call = None


class _Waker(socket.socket):
    """The writing end of a pair of sockets that wakes the io thread.

    It is closed when the last thread that writes to it has let go of it. Sooner, its number could be somebody else's by
    the time it is written to; and a lock against that is one that a thread would hold while a signal handler strikes
    it.
    """

    def wake(self) -> None:
        """Wake the io thread. Never blocks."""
        # A full pipe means that the thread is awake already; a closed one, that it has ended.
        with contextlib.suppress(OSError):
            self.send(b"\0")

    def __del__(self) -> None:
        self.close()


class IOThread:
    """Waits for the readiness of all channels, runs commands of other threads and timers.

    The selector belongs to the thread alone: other threads change it by `call()`.
    """

    def __init__(self) -> None:
        self._commands: deque[tuple[Callable[[], object], Channel | None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_numbers = itertools.count()
        self._closing = False
        self._open()
        register_for_fork(self)
        try:
            self.thread: threading.Thread = start_thread("io", self._run)
        except BaseException:  # there is no thread
            self._close()
            raise

    # -- any thread ---------------------------------------------------------------------------------------------------

    def call(self, command: Callable[[], object], channel: Channel | None = None) -> None:
        """Run `command()` on the io thread, soon and in order. Never blocks; a finalizer may call it.

        Args:
            command: what it raises is logged.
            channel: whose command it is: it is ended if `command` raises.
        """
        self._commands.append((command, channel))
        if not self.is_current:
            waker = self._waker
            if waker is not None:
                waker.wake()

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

    def call_later(self, delay: float, call: Callable[[], object], channel: Channel | None = None) -> Timer:
        """Make `call()` on the io thread in `delay` seconds. `channel` as in `call()`."""
        timer = Timer(call, channel)
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._timer_numbers), timer))
        return timer

    def _stop(self) -> None:
        self._closing = True

    @sleepless()
    def _run(self) -> None:
        try:
            while not (self._closing and not self._commands):
                for key, events in self._select():
                    if key.data is None:
                        with contextlib.suppress(OSError):
                            self._wake_reader.recv(4096)
                    else:
                        self._serve(key.data, events)
                self._run_commands()
                self._run_timers()
        finally:
            left = self._channels()
            self._close()
            for key in left:
                self._end(key.data, RuntimeError("The io thread has ended"))

    def _select(self) -> list[tuple[selectors.SelectorKey, int]]:
        timeout = None
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        if self._commands:
            timeout = 0.0
        try:
            return self._selector.select(timeout)
        except (OSError, ValueError) as error:
            self._start_over(error)
            return []

    def _start_over(self, error: BaseException) -> None:
        """Somebody closed a descriptor that is not his (a daemonizing program, say): fail its channel, go on."""
        channels = self._channels()
        self._close()
        self._open()
        for key in channels:
            try:
                socket.close(socket.dup(key.fd))  # not every selector looks at what it is given
                self._selector.register(key.fd, key.events, key.data)
            except OSError:
                self._end(key.data, error)

    def _channels(self) -> list[selectors.SelectorKey]:
        return [key for key in self._selector.get_map().values() if key.data is not None]

    def _serve(self, channel: Channel, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._run_call(channel.on_writable, channel)
        if events & selectors.EVENT_READ:
            self._run_call(channel.on_readable, channel)

    def _run_commands(self) -> None:
        # Only those that are there now: a command that queues another one must not starve the sockets.
        for _ in range(len(self._commands)):
            self._run_call(*self._commands.popleft())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                self._run_call(timer.call, timer.channel)

    def _run_call(self, call: Callable[[], object], channel: Channel | None) -> None:
        """No channel, command or timer can end the thread that serves the others."""
        try:
            call()
        except BaseException as error:  # an exit too: the thread is everybody's
            if channel is None:
                logger.exception("A command of the io thread failed")
            else:
                logger.exception("Serving a connection failed; it is closed")
                self._end(channel, error)

    def _end(self, channel: Channel, error: BaseException) -> None:
        try:
            channel.on_failure(error)
        except BaseException:
            logger.exception("Closing a failed connection failed")

    # -- descriptors --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        with contextlib.ExitStack() as undo:
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._wake_reader, writer = socket.socketpair()
            undo.callback(self._wake_reader.close)
            waker = _Waker(fileno=writer.detach())
            self._wake_reader.setblocking(False)
            waker.setblocking(False)
            self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
            undo.pop_all()
        self._waker: _Waker | None = waker

    def _close(self) -> None:
        self._waker = None
        for thing in (self._selector, self._wake_reader):
            with contextlib.suppress(OSError):
                thing.close()

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors. No unregister(): the epoll instance is shared with the parent."""
        forget_sleepless()
        if self._waker is not None:
            self._waker.close()  # a thread that was writing to it does not exist here
        self._close()
