"""The I/O thread: one selector thread for all sockets of the process.

"I/O thread" is a role that threads swap (leader/followers). The thread that has read events may run their handlers
itself, while another thread takes its role and continues to read.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import math
import select
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .clock import monotonic
from .descriptors import DONT_WAIT, Mark, TooManySocketsError, closed_error, keep_open, make_selector
from .latch import sleepless
from .lifecycle import register_for_fork, start_thread
from .logs import package_logger
from .timer_thread import Scheduler

logger: logging.Logger = package_logger(__name__)

# Selectors whose timeout is in whole milliseconds. select() is exact, but takes only descriptors below this number.
_IN_MILLISECONDS: tuple[type, ...] = tuple(filter(None, [getattr(selectors, "EpollSelector", None)]))
_MOST_DESCRIPTORS = 1024
# The errors of a selector that cannot watch another socket. The socket is not at fault.
_NO_ROOM = (errno.ENOSPC, errno.ENOMEM)
# The thread wakes at this interval, in seconds, to find out whether the application has closed its descriptors: nothing
# can wake a thread that waits in a selector which was closed.
_CHECK_INTERVAL = 5.0


class Channel(Protocol):
    """A non-blocking socket that the I/O thread serves. Every method is called on the I/O thread and must not block.

    A channel may be called again after it was unregistered, if it was ready at the same time as the channel whose
    method unregistered it.
    """

    def fileno(self) -> int:
        """Return the descriptor to watch."""

    def on_readable(self) -> None:
        """Read. Called when the socket is readable."""

    def on_writable(self) -> None:
        """Write. Called when the socket is writable, while `watch_writes()` is on."""

    def on_failure(self, error: BaseException) -> None:
        """End the channel, because one of its methods raised or the I/O thread ends."""


class Followers(Protocol):
    """Threads that can take the role of the I/O thread."""

    def promote(self) -> bool:
        """Give the role to another thread, if there is other work than reading. On the I/O thread.

        Returns:
            True if another thread is the I/O thread now. Then the caller continues with `work()`.
        """

    def work(self) -> None:
        """Do the work of the followers until there is none. On a thread that was the I/O thread."""

    def detach(self) -> None:
        """Stop swapping roles, because the I/O thread ends. On the I/O thread."""


class Timer:
    """A call that the I/O thread makes later. `cancel()` may be called on any thread."""

    __slots__ = ("call", "channel")

    def __init__(self, call: Callable[[], object], channel: Channel | None) -> None:
        self.call: Callable[[], object] | None = call
        self.channel: Channel | None = channel

    def cancel(self) -> None:
        """Cancel the call, unless it has started, and release its references: the timer stays until it is due."""
        self.call = self.channel = None


class _Waker(socket.socket):
    """The writing end of a pair of sockets that wakes the I/O thread.

    It is closed when no thread refers to it any more. If it were closed earlier, its number could be reused by the time
    a thread writes to it; and a signal handler could run on a thread that holds a lock against that.
    """

    __del__ = socket.socket.close


class IOThread:
    """The selector of all channels, with the commands of other threads and the timers.

    Only the I/O thread uses the selector; other threads change it by `call()`.
    """

    def __init__(self) -> None:
        self._commands: deque[tuple[Callable[[], object], Channel | None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_numbers = itertools.count()
        self._closing = False
        self._waiting = False  # the thread blocks, or is about to: it has checked its work
        self._selector_failed = False  # the application has closed it
        #: True once `detect_loss()` has found that the application has closed all descriptors.
        self.is_lost: bool = False
        self._open()
        #: Steps at given times on this thread, exact to the microsecond.
        self.scheduler: Scheduler = Scheduler(self._wake, lambda: self.will_recheck)
        #: The threads that can take the role; and whether one must take it before the next select().
        self.followers: Followers | None = None
        self.promotion_requested: bool = False
        self._ident: int | None = None  # of `thread`
        #: The seconds for which the thread was idle before its current work.
        self.idle_time: float = 0.0
        #: The thread has ended, or is about to: it will not run any further commands.
        self.ended: bool = False
        #: Called on this thread when it ends, after `Channel.on_failure()`, with the reason.
        self.on_end: set[Callable[[BaseException], object]] = set()
        self._check_descriptors()
        register_for_fork(self)
        try:
            #: The thread that has the role now.
            self.thread: threading.Thread = start_thread("worker", self._run)
        except RuntimeError:  # there is no thread
            self._close()
            raise
        except BaseException:  # Ctrl-C: the thread runs, and nothing will use it
            self._closing = True
            self._wake()
            raise

    # -- any thread ---------------------------------------------------------------------------------------------------

    def call(self, command: Callable[[], object], channel: Channel | None = None) -> None:
        """Run `command()` on the I/O thread, in the order of the calls. Never blocks; a finalizer may call it.

        Args:
            command: an exception that it raises is logged.
            channel: the channel that is ended if `command` raises.
        """
        self._commands.append((command, channel))
        if not self.will_recheck:
            self._wake()

    def _wake(self) -> None:
        waker = self._waker
        if waker is not None:
            # If the buffer is full, the thread is awake already; if the descriptor is gone, see `_check_descriptors()`.
            try:  # noqa: SIM105 - suppress() takes longer than the rest
                waker.send(b"\0")
            except OSError:
                pass

    def detect_loss(self) -> bool:
        """Check whether the application has closed the descriptors of the process, including those that channels use.

        If so, drop them: the numbers may belong to other files, and must not be closed. The thread ends by itself, but
        may take a while.

        Returns:
            `is_lost`.
        """
        waker = self._waker  # referred to here, so that this package does not close it during the check
        if waker is not None and not self.is_lost and self._mark.is_gone:
            # Before the flag is set: a thread that sees the loss may call _wake(), which must write nowhere.
            waker.detach()
            self._wake_reader.detach()
            self.is_lost = True
        return self.is_lost

    @property
    def is_current(self) -> bool:
        """True on the I/O thread."""
        return threading.get_ident() == self._ident

    @property
    def will_recheck(self) -> bool:
        """True on the I/O thread, which checks for new work before select(); False in a finalizer after that check."""
        return threading.get_ident() == self._ident and not self._waiting

    def close(self) -> None:
        """End the thread once it has run the commands that were given before. Does not wait."""
        self.call(self._stop)

    # -- I/O thread only ----------------------------------------------------------------------------------------------

    def set_thread(self, thread: threading.Thread) -> None:
        """Give the role to `thread`, which must call `serve()`; the caller must leave it."""
        self.thread, self._ident = thread, thread.ident

    def serve(self) -> bool:
        """Serve the channels until another thread has the role (True), or until the thread ends (False)."""
        me = threading.get_ident()
        sleepless.add(me)
        try:
            if self._serve_until_closed():
                return True
            self._end_all()
        except BaseException:
            self._end_all()
            raise
        finally:
            sleepless.discard(me)
        return False

    def register(self, channel: Channel) -> None:
        """Watch `channel` for readability.

        Raises:
            TooManySocketsError: the system refuses to watch it; other channels are served as before.
        """
        if (key := self._selector.get_map().get(channel.fileno())) is not None:
            # The application has closed the descriptor of another channel, and the new socket got its number.
            self._selector.unregister(channel.fileno())
            self._register(channel)
            self._run_end(key.data.on_failure, closed_error())
        else:
            self._register(channel)

    def _register(self, channel: Channel) -> None:
        try:
            self._selector.register(channel.fileno(), selectors.EVENT_READ, channel)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise TooManySocketsError(
                f"The system watches no more than {len(self._selector.get_map())} sockets: {error}. End other "
                "sessions, distribute them over several processes, or raise its limit (on Linux sysctl "
                "fs.epoll.max_user_watches)"
            ) from error

    def watch_writes(self, channel: Channel, enabled: bool) -> None:
        """Start or stop watching `channel` for writability."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if enabled else 0)
        self._selector.modify(channel.fileno(), events, channel)

    def unregister(self, channel: Channel) -> bool:
        """Stop watching `channel`. Call it before the descriptor is closed.

        Returns:
            False if the number may be another file's, because the application has closed the descriptor: it must not be
            closed.
        """
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            if self._selector.get_key(channel.fileno()).data is not channel:
                return False
            self._selector.unregister(channel.fileno())
        return not self.detect_loss()

    def call_later(self, delay: float, call: Callable[[], object], channel: Channel | None = None) -> Timer:
        """Call `call()` on the I/O thread in `delay` seconds. `channel` is as in `call()`."""
        timer = Timer(call, channel)
        heapq.heappush(self._timers, (monotonic() + delay, next(self._timer_numbers), timer))
        return timer

    def _stop(self) -> None:
        self._closing = True

    def _run(self) -> None:
        self._ident = threading.get_ident()
        if self.serve() and self.followers is not None:
            self.followers.work()

    def _check_descriptors(self) -> None:
        self.detect_loss()
        self.call_later(_CHECK_INTERVAL, self._check_descriptors)

    def _serve_until_closed(self) -> bool:
        while not (self.is_lost or self._selector_failed or (self._closing and not self._commands)):
            next_timer = self._run_timers()
            if self.scheduler.next_due < math.inf and self.scheduler.wants_run:  # often there is no step at all
                self.scheduler.run_due()
            self._serve_ready(next_timer)
            for _ in range(len(self._commands)):  # not the commands that these queue, which would starve the sockets
                self._run_call(*self._commands.popleft())
            if self.promotion_requested and self.followers is not None and self.followers.promote():
                return True
        return False

    def _end_all(self) -> None:
        self.ended = True  # first: a channel may start something new when it learns of the end
        if self.followers is not None:
            self.followers.detach()
        self.scheduler.close()
        left = [key.data for key in (self._selector.get_map() or {}).values() if key.data is not None]  # None: closed
        left += [channel for _, channel in self._commands if channel is not None]  # not registered yet
        self._close()
        is_failure = self.is_lost or self._selector_failed
        for end in (*(channel.on_failure for channel in left), *self.on_end):
            self._run_end(end, closed_error() if is_failure else RuntimeError("The I/O thread has ended"))

    def _serve_ready(self, next_timer: float) -> None:
        # A method, so that a thread that blocks keeps no reference to a channel that it has served.
        self._waiting = True
        now = monotonic()
        try:
            is_urgent = self._commands or self.promotion_requested
            ready = self._selector.select(0.0) if is_urgent else self._select(next_timer, now)
        except (OSError, ValueError):
            self._selector_failed = True
            return
        finally:
            self._waiting = False
        self.idle_time = monotonic() - now
        for key, events in ready:
            channel = key.data
            if channel is None:
                with contextlib.suppress(OSError):
                    self._wake_reader.recv(4096, DONT_WAIT)
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    channel.on_writable()
                if events & selectors.EVENT_READ:
                    channel.on_readable()
            except BaseException as error:  # noqa: BLE001 - as in _run_call()
                self._fail(channel, error)

    def _select(self, next_timer: float, now: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Block until a channel is ready, or the next timer or the next step of the scheduler is due."""
        selector, next_step = self._selector, self.scheduler.next_due
        remaining = min(next_step, next_timer) - now
        if next_step < next_timer and remaining > 0 and isinstance(selector, _IN_MILLISECONDS):
            # Beyond the numbers that select() takes the step is late by up to 1 ms.
            number = selector.fileno()
            if number < _MOST_DESCRIPTORS:
                if not select.select((number,), (), (), remaining)[0]:
                    return []
                remaining = 0.0
        return selector.select(max(0.0, remaining))

    def _run_timers(self) -> float:
        """Run the timers that are due; return the time of the next one, infinity if there is none."""
        now = monotonic()
        while self._timers:
            due, _, timer = self._timers[0]
            if due > now and timer.call is not None:
                return due
            heapq.heappop(self._timers)
            call, channel = timer.call, timer.channel  # read once, because another thread may cancel it at any time
            if call is not None:
                self._run_call(call, channel)
        return math.inf

    def _run_call(self, call: Callable[[], object], channel: Channel | None) -> None:
        """Run a command or timer, so that an exception in it does not end the thread."""
        try:
            call()
        except BaseException as error:  # SystemExit too, because all sessions use the thread
            if channel is None:
                logger.exception("A command of the I/O thread failed")
            else:
                self._fail(channel, error)

    def _fail(self, channel: Channel, error: BaseException) -> None:
        if self.detect_loss():
            error = closed_error()
        else:
            logger.error("Serving a connection failed; it is closed", exc_info=error)
        self._run_end(channel.on_failure, error)

    def _run_end(self, end: Callable[[BaseException], object], error: BaseException) -> None:
        try:
            end(error)
        except BaseException:
            logger.exception("Closing a failed connection failed")

    # -- descriptors --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        with contextlib.ExitStack() as undo:
            self._selector = undo.enter_context(make_selector())
            self._wake_reader, writer = socket.socketpair()
            undo.callback(self._wake_reader.close)
            waker = _Waker(fileno=writer.detach())
            self._wake_reader.setblocking(False)
            waker.setblocking(False)
            self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
            undo.pop_all()
        self._waker: _Waker | None = waker
        self._mark = Mark(waker)

    def _close(self) -> None:
        is_lost, self._waker = self.detect_loss(), None
        if is_lost or self._selector_failed:
            keep_open(vars(self._selector).get("_selector"))  # its number may be another file's
        else:
            self._selector.close()
        if not is_lost:
            with contextlib.suppress(OSError):  # the application is about to close all
                self._wake_reader.close()

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors. They stay registered, because the parent shares the epoll instance."""
        sleepless.clear()  # of threads of the parent, whose identities others may get here
        self.on_end.clear()  # gevent copies the greenlet of this thread into the child, where it ends
        waker = self._waker
        self._close()
        if waker is not None:
            waker.close()  # a thread of the parent may still refer to it, and it does not exist here
