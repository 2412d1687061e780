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

from .descriptors import DONT_WAIT, DescriptorGuard, abandon, closed_error
from .latch import forget_sleepless, sleepless
from .lifecycle import register_for_fork, start_thread
from .timer_thread import Scheduler

logger: logging.Logger = logging.getLogger(__name__)

# Selectors that wait for whole milliseconds, and what select() can watch, which is more exact.
_IN_MILLISECONDS: tuple[type, ...] = tuple(filter(None, [getattr(selectors, "EpollSelector", None)]))
_MOST_DESCRIPTORS = 1024
# How often a thread that timers wake looks whether its own descriptors are still there, in seconds.
_CHECK_INTERVAL = 0.5


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

    @property
    def intact(self) -> bool:
        """False if the application has closed the descriptor."""


class Followers(Protocol):
    """Threads that can take the io thread's place."""

    def promote(self) -> bool:
        """On the io thread, which wanted relief: see to what there is to do but to read.

        Returns:
            True: another thread has its place now, and this one is to `work()`.
        """

    def work(self) -> None:
        """On a thread that was the io thread: be one of the others until there is nothing to do."""

    def replace(self, thread: threading.Thread) -> None:
        """On `thread`, which has taken the io thread's place: the one that had it sleeps and cannot be woken."""

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

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._guard = DescriptorGuard(self)

    @property
    def intact(self) -> bool:
        """False if the application has closed the descriptor."""
        return self._guard.intact

    def wake(self) -> bool:
        """Wake the io thread. Never blocks. False: the application has closed the descriptor."""
        if not self.intact:
            return False
        # A full pipe means that the thread is awake already; a closed one, that it has ended.
        with contextlib.suppress(OSError):
            self.send(b"\0")
        return True

    def release(self) -> None:
        """Close the descriptor."""
        self._guard.close(self)

    __del__ = release


class _ReplacedError(Exception):
    """Another thread has taken the io thread's place while it waited."""


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
        # Which thread goes on after the wait, under the key 0. Not an attribute, because `setdefault()` is one step.
        self._turn: dict[int, int] = {}
        self._open()
        #: What happens at given times on this thread, to the microsecond.
        self.schedule: Scheduler = Scheduler(self._wake, lambda: self.looks_again)
        #: Who can take its place; and whether that is to happen before it waits again.
        self.reserve: Followers | None = None
        self.promotion_requested: bool = False
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
        turn, waker = self._turn, self._waker
        if waker is not None and not waker.wake():
            self._start_replacement(turn)

    def check(self) -> None:
        """Have the thread replaced if it sleeps on descriptors that the application has closed."""
        turn, waker = self._turn, self._waker
        if waker is not None and not waker.intact:
            self._start_replacement(turn)

    def _start_replacement(self, turn: dict[int, int]) -> None:
        """Start a thread that goes on if the io thread waits in `turn`. A thread that is awake finds out by itself.

        `turn` was read before the waker: if the thread has gone on since, its turn is over.
        """
        if self._waits:
            with contextlib.suppress(RuntimeError):  # there is no thread: the next call tries again
                start_thread("io", self._replace, turn)

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
        """Be the io thread, until it is handed over (True), or closed or replaced (False)."""
        handed_over = replaced = False
        with sleepless():
            try:
                handed_over = self._serve_in_turn()
            except _ReplacedError:
                replaced = True
            finally:
                if not handed_over and not replaced:
                    if self.reserve is not None:
                        self.reserve.dismiss()
                    self._end_all()
        return handed_over

    def register(self, channel: Channel) -> None:
        """Watch `channel` for readability."""
        if channel.fileno() in self._selector.get_map():
            self._start_over()  # whose number it was has lost it, and the selector has not told
        self._selector.register(channel.fileno(), selectors.EVENT_READ, channel)

    def watch_writes(self, channel: Channel, enabled: bool) -> None:
        """Watch `channel` for room to write too, or no longer."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if enabled else 0)
        self._selector.modify(channel.fileno(), events, channel)

    def unregister(self, channel: Channel) -> None:
        """Watch `channel` no longer. Must come before its descriptor is closed."""
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            if self._selector.get_key(channel.fileno()).data is channel:  # else it has lost the number to another one
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

    def _replace(self, turn: dict[int, int]) -> None:
        """Take the place of the io thread, which waits in a selector that the application has closed.

        Nothing can wake that thread, as the descriptors that it waits for are gone. It owns nothing, and leaves if it
        wakes at the time of a timer.
        """
        if turn.setdefault(0, threading.get_ident()) != threading.get_ident():
            return  # it has woken
        thread = threading.current_thread()
        self.hand_over(thread)
        if self.reserve is not None:
            self.reserve.replace(thread)
        self._start_over(broken=True)
        self._run()

    def _serve_in_turn(self) -> bool:
        while not (self._closing and not self._commands):
            next_timer = self._run_timers()
            if self.schedule.next_due < math.inf:
                self.schedule.run_due()
            self._serve_ready(next_timer)
            self._run_commands()
            if self.promotion_requested and self.reserve is not None and self.reserve.promote():
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
        turn = self._turn = {}
        try:
            self._waits = True
            is_urgent = self._commands or self.promotion_requested
            ready = self._selector.select(0.0) if is_urgent else self._select(next_timer)
            broken = False
        except (OSError, ValueError):
            broken = True
        if turn.setdefault(0, threading.get_ident()) != threading.get_ident():
            raise _ReplacedError
        self._waits = False
        if broken:
            self._start_over(broken=True)
            return
        if not ready and not self._guard.intact_within(_CHECK_INTERVAL):
            self._start_over()
            return
        self.rested = time.monotonic() - self._looked_at
        for key, events in ready:
            channel = key.data
            if channel is None:
                self._read_wake_up()
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    channel.on_writable()
                if events & selectors.EVENT_READ:
                    channel.on_readable()
            except BaseException as error:  # noqa: BLE001 - as in _run_call()
                self._fail(channel, error)

    def _read_wake_up(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_reader.recv(4096, DONT_WAIT)

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

    def _start_over(self, *, broken: bool = False) -> None:
        """The application has closed descriptors that are not its own: end their channels, serve the others."""
        channels = self._channels()
        self._close(broken=broken)
        try:
            self._open()
        except BaseException as error:
            for key in channels:
                self._end(key.data, error)
            raise
        for key in channels:
            try:
                if not key.data.intact:
                    raise closed_error()
                self._selector.register(key.fd, key.events, key.data)
            except OSError as error:
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
        if not channel.intact:
            error = closed_error()
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
            waker = _Waker(writer.detach())
            self._wake_reader.setblocking(False)
            waker.setblocking(False)
            self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
            undo.pop_all()
        self._waker: _Waker | None = waker
        self._guard = DescriptorGuard(self._wake_reader)

    def _close(self, *, broken: bool = False) -> None:
        self._waker = None
        with contextlib.suppress(OSError):
            if broken or not self._guard.intact:
                abandon(self._selector)
            else:
                self._selector.close()
        with contextlib.suppress(OSError):
            self._guard.close(self._wake_reader)

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors. No unregister(): the epoll instance is shared with the parent."""
        forget_sleepless()
        if self._waker is not None:
            self._waker.release()  # a thread that was writing to it does not exist here
        self._close()
