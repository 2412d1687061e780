"""An asyncio loop on one thread of the process, for libraries that need one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from .clock import monotonic
from .deadline import Deadline, join_thread
from .descriptors import Mark, TooManySocketsError, closed_error, keep_open, make_selector
from .future import Future
from .latch import sleepless
from .lifecycle import fork_generation, register_for_fork, register_idle, start_thread
from .lock import new_lock
from .logs import package_logger
from .pool_task import PoolTask

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

# An unused loop is kept for this many seconds, for the next session.
IDLE_TIMEOUT = 5.0
# Tasks that a library has left behind get this many seconds to end when the loop does.
_LEFTOVER_TIMEOUT = 1.0

# The parent's loops, in forked children. Their finalizers would change the selector that the parent waits in.
_inherited: list[asyncio.AbstractEventLoop] = []


class Scope:
    """The tasks and connections that a library starts for one purpose, so that they can be ended together.

    It is used on the loop's thread only.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._transports: list[asyncio.BaseTransport] = []

    def enter(self) -> None:
        """Add the calling task to this scope, with every task and connection that it starts later, directly or not."""
        _scope.set(self)
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._add_task(task)

    def _add_task(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it has ended."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add_transport(self, transport: asyncio.BaseTransport) -> None:
        """Keep a connection."""
        self._transports.append(transport)

    async def close(self, timeout: float) -> None:
        """Cancel the tasks, wait for their end, up to `timeout` seconds, and close the connections."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        for transport in self._transports:
            transport.close()
        self._transports.clear()


_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)


class _Loop(asyncio.SelectorEventLoop):
    """A loop that runs blocking calls on threads of this package, and adds tasks and connections to their `Scope`.

    asyncio's own threads are not used: the interpreter joins them at exit, and a look-up of a name may take long.
    """

    def time(self) -> float:
        """Return the seconds of the clock of all limits, which also wakes the loop."""
        return monotonic()

    def create_task(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Start a task."""
        task = super().create_task(*args, **kwargs)
        if (scope := _scope.get()) is not None:
            scope._add_task(task)
        return task

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Open a UDP socket."""
        return _noted(await super().create_datagram_endpoint(*args, **kwargs))

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Open a TCP connection."""
        return _noted(await super().create_connection(*args, **kwargs))

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run `func(*args)` on another thread; no executor is used."""
        del executor
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(func(*args))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                outcome.set_exception(error)

        PoolTask("blocking", run).start()
        return asyncio.wrap_future(outcome, loop=self)

    def mark(self) -> Mark:
        """Return the mark of the socket that wakes the loop."""
        return Mark(self._csock)  # type: ignore[attr-defined]

    def forget_descriptors(self) -> None:
        """Never close the descriptors. The application has, and other files may use their numbers. Any thread."""
        keep_open(self)
        transports = [reference() for reference in self._transports.valuerefs()]  # type: ignore[attr-defined]
        sockets = [transport._sock for transport in transports if transport is not None]
        for each in (self._csock, self._ssock, *sockets):  # type: ignore[attr-defined]
            each.detach()


def _noted(made: tuple[asyncio.BaseTransport, Any]) -> tuple[asyncio.BaseTransport, Any]:
    if (scope := _scope.get()) is not None:
        scope._add_transport(made[0])
    return made


class LoopThread:
    """The asyncio loop of the process and its thread. Made by `acquire_loop()`.

    Its methods may be called on any thread, and do not block.
    """

    def __init__(self) -> None:
        self._selector = make_selector()
        self._loop = _Loop(self._selector)
        self._loop.set_exception_handler(_log_failure)
        self._mark = self._loop.mark()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds them weakly; used on its thread only
        #: Called, on any thread, if the application closes the loop's descriptors. The loop then runs nothing more.
        self.on_loss: set[Callable[[], object]] = set()
        # These three are guarded by the lock of the only `_Slot`.
        self.users: int = 0
        self.unused_since: float = 0.0
        self.is_lost: bool = False  # the application has closed the descriptors, as far as `detect_loss()` knows
        self._generation = fork_generation()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. It first runs the calls that the loop was given before.

        Raises:
            RuntimeError: the process cannot start more threads.
        """
        try:
            self._thread = start_thread("loop", self._run)
        except BaseException:
            self._loop.close()
            raise

    @property
    def is_current(self) -> bool:
        """True on the loop's own thread."""
        return threading.current_thread() is self._thread

    @property
    def thread(self) -> threading.Thread:
        """The thread, once it was started."""
        assert self._thread is not None
        return self._thread

    def call(self, function: Callable[..., object], *args: Any) -> bool:
        """Call `function(*args)` on the loop's thread; return False, without effect, once the loop has ended."""
        if self.is_lost:
            return False
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False
        return True

    def call_later(self, seconds: float, function: Callable[[], object]) -> Callable[[], None]:
        """Call `function()` in `seconds`, and return a function that cancels the call. All on the loop's thread."""
        return self._loop.call_later(seconds, function).cancel

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, and return the future of its result."""
        future: Future[T] = Future()

        async def main() -> None:
            try:
                future.resolve(await work)
            except BaseException as error:  # noqa: BLE001 - it is raised to the thread that waits
                future.reject(error)

        def start() -> None:
            task = self._loop.create_task(main())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        is_lost = self.detect_loss()
        if not self.call(start):
            work.close()
            future.reject(closed_error() if is_lost else RuntimeError("The asyncio loop has ended"))
        return future

    def detect_loss(self) -> bool:
        """Check whether the application has closed the loop's descriptors, and abandon the loop if so.

        Its thread may block for good. If a timer wakes it, it ends.

        Returns:
            `is_lost`.
        """
        if not (self.is_lost or self._loop.is_closed()) and self._mark.is_gone:
            self._abandon()
        return self.is_lost

    def _abandon(self) -> None:
        if _slot.lose(self):
            self._loop.stop()
            self._loop.forget_descriptors()
            for tell in [*self.on_loss]:
                tell()

    def release(self) -> None:
        """Remove one user. If the loop stays unused for `IDLE_TIMEOUT`, its thread ends."""
        if self._generation == fork_generation() and _slot.leave(self):
            self.call(self._check_later, IDLE_TIMEOUT)

    def _check_later(self, seconds: float) -> None:
        self.call_later(seconds, lambda: _slot.retire_unused(self))

    def retire(self) -> None:
        """End the thread of a loop without users. Does not wait."""
        self.call(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        me = threading.get_ident()
        sleepless.add(me)
        try:
            self._loop.run_forever()
            if self.is_lost:
                return
            leftover = asyncio.all_tasks(self._loop)
            for task in leftover:
                task.cancel()
            if leftover:
                self._loop.run_until_complete(asyncio.wait(leftover, timeout=_LEFTOVER_TIMEOUT))
            self._loop.run_until_complete(asyncio.sleep(0))  # a round in which closed transports close their sockets
            self._loop.close()
        except OSError:
            logger.debug("The asyncio loop has lost its selector", exc_info=True)
        finally:
            if not self._loop.is_closed():
                self._abandon()
            sleepless.discard(me)
            asyncio.set_event_loop(None)

    def abandon_in_child(self) -> None:
        """Close the descriptors that a forked child has inherited.

        Each number is given to another file, because the objects that own it will close it again. The numbers are
        still the loop's: before the fork, `_Slot.stop_idle_threads()` has dropped a loop that lost them.
        """
        self.is_lost = True
        _inherited.append(self._loop)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            numbers = [key.fd for key in self._selector.get_map().values()]
            if isinstance(self._selector, getattr(selectors, "EpollSelector", ())):
                numbers.append(self._selector.fileno())
            for number in numbers:
                os.dup2(null, number, inheritable=False)
        finally:
            os.close(null)


class _Slot:
    """The place of the current loop."""

    def __init__(self) -> None:
        # Guards `_current` and the `users` of every loop. Any thread may hold it, for a few assignments. Re-entrant,
        # because a finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._current: LoopThread | None = None
        register_for_fork(self)
        register_idle(self)

    def enter(self) -> LoopThread:
        """Return the current loop, or a new one, with one user more."""
        if (current := self._current) is not None:
            current.detect_loss()
        with self._lock:
            is_new = self._current is None
            loop = self._current = self._current or LoopThread()
            loop.users += 1
        if is_new:  # outside of the lock; others that need the loop at this moment have it already
            try:
                loop.start()
            except BaseException:
                with self._lock:
                    loop.users -= 1
                    if self._current is loop:
                        self._current = None
                raise
        return loop

    def leave(self, loop: LoopThread) -> bool:
        """Remove one user; return True if it was the last one."""
        with self._lock:
            loop.users -= 1
            loop.unused_since = monotonic()
            return not loop.users

    def lose(self, loop: LoopThread) -> bool:
        """Forget `loop`, whose descriptors are closed; return False if it is lost already."""
        with self._lock:
            known, loop.is_lost = loop.is_lost, True
            if self._current is loop:
                self._current = None
            return not known

    def retire_unused(self, loop: LoopThread) -> None:
        """End `loop` if it was unused for `IDLE_TIMEOUT`. If it was used since, a later check follows."""
        with self._lock:
            if loop.users or monotonic() < loop.unused_since + IDLE_TIMEOUT or self._current is not loop:
                return
            self._current = None  # it never becomes current again: the next session must not get a loop that ends
        loop.retire()

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """End the current loop if it has no users."""
        if (current := self._current) is not None:
            current.detect_loss()  # without waiting for a thread that may block for good
        with self._lock:
            loop = self._current
            if loop is None or loop.users:
                return
            self._current = None
        loop.retire()
        if not loop.is_current:
            join_thread(loop.thread, deadline)

    def after_fork_in_child(self) -> None:
        """Forget the loop, whose thread does not exist in the child."""
        self._lock = new_lock()
        loop, self._current = self._current, None
        if loop is not None:
            loop.abandon_in_child()


_slot = _Slot()


def acquire_loop() -> LoopThread:
    """Return the loop of this process, with one user more. Pair it with `LoopThread.release()`."""
    return _slot.enter()


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that a library did not handle. asyncio would log an error even for a connection that has ended."""
    error = context.get("exception")
    if isinstance(error, TooManySocketsError):
        logger.warning("A WebRTC connection does not open: %s", error)
        return
    logger.debug("A task failed: %s", context.get("message"), exc_info=error)
