"""One selector thread for all sockets of the process.

It is not always the same thread. One that has read events may run their handlers itself, while another one reads on in
its place. "The io thread" is the one that has this place.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .gate import forget_sleepless, sleepless
from .lifecycle import register_for_fork, start_thread
from .pacer import Schedule

logger: logging.Logger = logging.getLogger(__name__)

# Selectors that wait for whole milliseconds, and what select() can watch, which is more exact.
_IN_MILLISECONDS: tuple[type, ...] = tuple(filter(None, [getattr(selectors, "EpollSelector", None)]))
_MOST_DESCRIPTORS = 1024


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


class Reserve(Protocol):
    """Threads that can take the io thread's place."""

    def relieve(self) -> bool:
        """On the io thread, which wanted relief: see to what there is to do but to read.

        Returns:
            True: another thread has its place now, and this one is to `work()`.
        """

    def work(self) -> None:
        """On a thread that was the io thread: be one of the others until there is nothing to do."""

    def dismiss(self) -> None:
        """On the io thread, which ends: its place is nobody's any more."""


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
        self._waits = False  # or is about to: it has looked at what there is to do
        self._open()
        #: What happens at given times on this thread, to the microsecond.
        self.schedule: Schedule = Schedule(self._wake, lambda: self.looks_again)
        #: Who can take its place; and whether that is to happen before it waits again.
        self.reserve: Reserve | None = None
        self.relief_wanted: bool = False
        self._ident: int | None = None  # of that thread
        #: For how many seconds there was nothing to do before what is done now.
        self.rested: float = 0.0
        self._looked_at = 0.0
        register_for_fork(self)
        try:
            #: The thread that is here now.
            self.thread: threading.Thread = start_thread("io", self._run)
        except RuntimeError:  # there is no thread
            self._close()
            raise
        except BaseException:  # it has begun, for nobody: this one was struck while it waited for that
            self._closing = True
            if self._waker is not None:
                self._waker.wake()
            raise

    # -- any thread ---------------------------------------------------------------------------------------------------

    def call(self, command: Callable[[], object], channel: Channel | None = None) -> None:
        """Run `command()` on the io thread, soon and in order. Never blocks; a finalizer may call it.

        Args:
            command: what it raises is logged.
            channel: whose command it is: it is ended if `command` raises.
        """
        self._commands.append((command, channel))
        if not self.looks_again:
            self._wake()

    def _wake(self) -> None:
        waker = self._waker
        if waker is not None:
            waker.wake()

    @property
    def is_current(self) -> bool:
        """True on the io thread."""
        return threading.get_ident() == self._ident

    @property
    def looks_again(self) -> bool:
        """True on the io thread, unless a finalizer runs there just before it waits: it looks for more to do first."""
        return threading.get_ident() == self._ident and not self._waits

    def close(self) -> None:
        """Let the thread end once it has run the commands that were given before."""
        self.call(self._stop)

    # -- io thread only -----------------------------------------------------------------------------------------------

    def hand_over(self, thread: threading.Thread) -> None:
        """From now on `thread` is the io thread; it calls `serve()`, and this one leaves it."""
        self.thread, self._ident = thread, thread.ident

    def serve(self) -> bool:
        """Be the io thread, until it is handed over (True) or closed (False)."""
        handed_over = False
        with sleepless():
            try:
                handed_over = self._serve_in_turn()
            finally:
                if not handed_over:
                    if self.reserve is not None:
                        self.reserve.dismiss()
                    self._end_all()
        return handed_over

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

    def _run(self) -> None:
        self._ident = threading.get_ident()
        if self.serve() and self.reserve is not None:
            self.reserve.work()

    def _serve_in_turn(self) -> bool:
        while not (self._closing and not self._commands):
            next_timer = self._run_timers()
            if self.schedule.next_due < math.inf:
                self.schedule.run_due()
            self._serve_ready(next_timer)
            self._run_commands()
            if self.relief_wanted and self.reserve is not None and self.reserve.relieve():
                return True
        return False

    def _end_all(self) -> None:
        self.schedule.close()
        left = self._channels()
        self._close()
        for key in left:
            self._end(key.data, RuntimeError("The io thread has ended"))

    def _serve_ready(self, next_timer: float) -> None:
        # A method, so that a thread that waits holds nothing of whom it has served.
        try:
            self._waits = True
            at_once = self._commands or self.relief_wanted
            ready = self._selector.select(0.0) if at_once else self._select(next_timer)
        except (OSError, ValueError) as error:
            self._start_over(error)
            return
        finally:
            self._waits = False
        self.rested = time.monotonic() - self._looked_at
        for key, events in ready:
            channel = key.data
            if channel is None:
                with contextlib.suppress(OSError):
                    self._wake_reader.recv(4096)
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    channel.on_writable()
                if events & selectors.EVENT_READ:
                    channel.on_readable()
            except BaseException as error:  # noqa: BLE001 - as in _run_call()
                self._fail(channel, error)

    def _select(self, next_timer: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until a channel is ready, or the next timer or the next step of the schedule is due."""
        moment = self.schedule.next_due
        if next_timer == moment == math.inf:
            return self._selector.select(None)
        remaining = min(moment, next_timer) - time.monotonic()
        if next_timer <= moment:
            return self._selector.select(max(0.0, remaining))
        if isinstance(self._selector, _IN_MILLISECONDS):
            whole = math.floor(remaining * 1000)
            if whole > 0:
                ready = self._selector.select((whole - 0.5) / 1000)  # it is rounded up
                if ready:
                    return ready
                remaining = moment - time.monotonic()
            # Descriptors of higher numbers select() cannot watch: then it is late by a millisecond at most.
            if remaining > 0 and self._selector.fileno() < _MOST_DESCRIPTORS:
                select.select([self._selector], (), (), remaining)
                remaining = 0.0
        return self._selector.select(max(0.0, remaining))

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

    def _run_commands(self) -> None:
        # Only those that are there now: a command that queues another one must not starve the sockets.
        for _ in range(len(self._commands)):
            self._run_call(*self._commands.popleft())

    def _run_timers(self) -> float:
        """Run what is due; returns when the next is, infinity if there is none."""
        self._looked_at = now = time.monotonic()
        while self._timers:
            due, _, timer = self._timers[0]
            if due > now and timer.call is not None:
                return due
            heapq.heappop(self._timers)
            if timer.call is not None:
                self._run_call(timer.call, timer.channel)
        return math.inf

    def _run_call(self, call: Callable[[], object], channel: Channel | None) -> None:
        """No channel, command or timer can end the thread that serves the others."""
        try:
            call()
        except BaseException as error:  # an exit too: the thread is everybody's
            if channel is None:
                logger.exception("A command of the io thread failed")
            else:
                self._fail(channel, error)

    def _fail(self, channel: Channel, error: BaseException) -> None:
        logger.error("Serving a connection failed; it is closed", exc_info=error)
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
