"""How threads start, and how live objects end when the process forks or exits."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import errno
import gc
import itertools
import logging
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Protocol

from ..errors import RTVIError
from .deadline import Deadline, on_main_thread
from .latch import Latch
from .lock import new_lock
from .logs import package_logger

logger: logging.Logger = package_logger(__name__)

# The interpreter's exit waits up to this many seconds for all live sessions together.
EXIT_LIMIT = 5.0
#: If the system cannot start a thread, the start is tried again after this many seconds.
NO_THREAD_PAUSE = 0.1
# Idle threads get this many seconds to end. They end at once, unless the machine is very busy.
_IDLE_LIMIT = 1.0

_numbers = itertools.count(1)
_generation = 0
_hooked_generation: int | None = None
_forking_thread: int | None = None
_never = threading.Event()


class ForkAware(Protocol):
    """An object with descriptors or locks that a forked child must drop."""

    def after_fork_in_child(self) -> None:
        """Close inherited descriptors (close, never shutdown: the connection is the parent's) and renew locks."""


class ExitAware(Protocol):
    """An object that stays live until the interpreter exits."""

    def at_exit(self, deadline: Deadline) -> None:
        """End on the calling thread, before `deadline`."""


class Idle(Protocol):
    """An object that keeps idle threads for a while."""

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """End the idle threads, and wait for them until `deadline`."""


# Guards the three sets, which cannot be iterated while another thread changes them. Any thread may hold it, for one set
# operation. Re-entrant, because a finalizer may register or unregister an object during one.
_lock = new_lock()
_fork_aware: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_exit_aware: weakref.WeakSet[ExitAware] = weakref.WeakSet()
_exit_last: weakref.WeakSet[ExitAware] = weakref.WeakSet()
_idle: list[Idle] = []  # filled at import


class NoThreadError(RTVIError, RuntimeError):
    """No thread can be started: the interpreter is shutting down, or the process has reached a limit."""


def _no_thread(error: RuntimeError) -> NoThreadError:
    return NoThreadError(f"{error}. End other threads of this process, or raise its limit of threads (ulimit -u)")


class system_failures_as(contextlib.ContextDecorator):  # noqa: N801 - a clause of `with`
    """Convert an error of the system in the block (no thread, no descriptor, any OSError) to the error of `kind`.

    Errors of this package pass unchanged, though some are an OSError too. Also a decorator.

    Args:
        kind: makes the error from its message.
        failed: the failed operation, which starts the message.
    """

    def __init__(self, kind: Callable[[str], RTVIError], failed: str) -> None:
        self._kind = kind
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, NoThreadError):
            raise self._kind(f"{self._failed}: {error}") from error
        if isinstance(error, OSError) and not isinstance(error, RTVIError):
            advice = what_to_do(error) or "Check the resources of the system"
            raise self._kind(f"{self._failed}: {error}. {advice}") from error


def what_to_do(error: OSError) -> str | None:
    """Return the advice for an error that means that no descriptor is left; None for any other error."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Close files and connections that are not needed, or raise the limit of open files (ulimit -n)"
    return None


def start_thread(role: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread named ``rtvi-<role>-<n>``. All threads of this package are started here.

    They are daemons, because no thread of a library may keep the interpreter from exiting. If Ctrl-C interrupts this
    function, the thread may still run.

    Raises:
        NoThreadError
    """
    if sys.is_finalizing():
        raise NoThreadError("The interpreter is shutting down")  # before Python 3.12 start() blocks for ever
    name = f"rtvi-{role}-{next(_numbers)}"
    thread = threading.Thread(
        target=_run, args=(_generation, threading.get_native_id(), target, *args), name=name, daemon=True
    )
    failures: list[BaseException] = []
    started = Latch()

    def start() -> None:
        try:
            thread.start()
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            failures.append(error)
        finally:
            started.set()

    if not on_main_thread():
        start()
    else:
        # `Thread.start()` waits for an Event that the new thread sets. Ctrl-C may leave the Event's mutex locked, and
        # then the new thread blocks on it for ever. Only the main thread is interrupted by signals, so another thread
        # makes the call.
        try:
            _thread.start_new_thread(start, ())
        except RuntimeError as error:
            raise _no_thread(error) from error
        started.wait(Deadline(None))
    if not failures:
        return thread
    if isinstance(failures[0], RuntimeError):
        raise _no_thread(failures[0]) from failures.pop()
    raise failures.pop()


def name_thread(role: str) -> None:
    """Name the calling thread, which `start_thread()` started, ``rtvi-<role>-<n>``. It keeps its number."""
    thread = threading.current_thread()
    thread.name = f"rtvi-{role}-{thread.name.rpartition('-')[2]}"


def _run(generation: int, starter: int, target: Callable[..., object], *args: Any) -> None:
    """Run `target` on a thread of this package; in a child process, never end.

    In a forked child only the thread that forked exists. Greenlets, which replace threads under gevent, are copied: the
    objects that such a copy uses are closed, and it must not end, because `threading` does not know it. Greenlets run
    on the thread `starter` that started them.
    """
    try:
        target(*args)
    except BaseException:
        if not _copied(generation):
            raise
    if _copied(generation):
        _never.wait()
    if threading.get_native_id() != starter:
        _refuse_signals()


def _refuse_signals() -> None:
    """Block all signals on the calling thread, which is about to end.

    The thread may exist for a while after it was joined, and must not receive signals that the main thread blocks by
    then. They are not blocked earlier, because a process that a handler starts inherits the thread's signal mask.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _copied(generation: int) -> bool:
    return generation != _generation and threading.get_ident() != _forking_thread


def is_exiting() -> bool:
    """Return whether the interpreter shuts down: it refuses new threads, or is about to."""
    main = threading.main_thread()
    # Before Python 3.13 not by is_alive(): if Ctrl-C interrupts that method, it marks the main thread as ended for good
    # (the handler of bpo-45274 in `Thread._wait_for_tstate_lock()`).
    has_ended = getattr(main, "_is_stopped", None)
    return sys.is_finalizing() or (not main.is_alive() if has_ended is None else bool(has_ended))


def fork_generation() -> int:
    """Return the number of forks between this process and the one that imported the package.

    An object that stores the number when it is made can tell later whether it belongs to this process.
    """
    return _generation


def register_for_fork(thing: ForkAware) -> None:
    """Call `thing.after_fork_in_child()` in each forked child. `thing` is held weakly."""
    with _lock:
        _fork_aware.add(thing)


def register_for_exit(thing: ExitAware, *, last: bool = False) -> None:
    """Call `thing.at_exit()` when the interpreter exits, or a child of multiprocessing or Celery ends. Held weakly.

    Args:
        thing: the object that ends.
        last: True to end it after all others.
    """
    with _lock:
        (_exit_last if last else _exit_aware).add(thing)
    _hook_multiprocessing()
    _hook_celery()


def register_idle(thing: Idle) -> None:
    """Call `thing.stop_idle_threads()` before each fork, and at exit once the sessions have ended."""
    _idle.append(thing)


def stop_idle_threads() -> None:
    """End all idle threads of the package."""
    deadline = Deadline(_IDLE_LIMIT)
    for thing in _idle:
        thing.stop_idle_threads(deadline)


def unregister_for_exit(thing: ExitAware) -> None:
    """Undo `register_for_exit()`, because `thing` has ended."""
    with _lock:
        _exit_aware.discard(thing)
        _exit_last.discard(thing)


def live_objects() -> list[ExitAware]:
    """Return the live objects, whose `at_exit()` would be called at exit."""
    with _lock:
        return [*_exit_aware]


def log_stack_of(threads: Iterable[threading.Thread], what: str) -> None:
    """Log the stacks of `threads`, which were still running when a time limit passed."""
    threads = list(threads)
    frames = _current_frames() if threads else {}
    for thread in threads:
        frame = frames.get(thread.ident) if thread.ident is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(it has just ended)\n"
        logger.warning("%s: thread %s is still running:\n%s", what, thread.name, stack)


def _current_frames() -> dict[int, FrameType]:
    # Before CPython 3.12 a garbage collection inside this call deadlocks the process (gh-106883).
    enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if enabled:
            gc.enable()


def _after_fork_in_child() -> None:
    global _generation, _forking_thread, _lock
    _generation += 1
    _forking_thread = threading.get_ident()
    # No lock is acquired here: a thread that held it at the fork does not exist in the child.
    _lock = new_lock()
    for thing in list(_fork_aware):
        try:
            thing.after_fork_in_child()
        except Exception:
            logger.exception("Releasing the resources that a forked process inherited failed")
    _exit_aware.clear()
    _exit_last.clear()


def _hook_multiprocessing() -> None:
    """Register the exit in a child of multiprocessing, which skips `atexit` (`os._exit()`) but runs its finalizers."""
    global _hooked_generation
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None or _hooked_generation == _generation:
        return
    _hooked_generation = _generation
    # The priority puts it before other finalizers, because handlers may still use queues and managers that these end.
    sys.modules["multiprocessing.util"].Finalize(None, _at_exit_of_child, exitpriority=100)


def _at_exit_of_child() -> None:
    # Before Python 3.13 finalizers run while threads that the child will join still run. Then their sessions end with
    # the process, which the bot notices too.
    if all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate()):
        _at_exit()


def _hook_celery() -> None:
    """Register the exit in a child of Celery, which skips `atexit` (`os._exit()`) but sends a signal of Celery before.

    The threads must end, too. Celery's parent answers the child's last message with SIGTERM, which the child's main
    thread blocks until it has released the message's lock. If any other thread receives SIGTERM, the lock stays locked,
    and all later children block on it for ever (billiard 4.3, `Worker._do_exit`).
    """
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_at_exit_of_celery, weak=False, dispatch_uid=__name__)


def _at_exit_of_celery(**_: object) -> None:
    _at_exit()


def _at_exit() -> None:
    with _lock:
        live = [*_exit_aware, *_exit_last]
    deadline = Deadline(EXIT_LIMIT)  # shared, so that the exit does not take longer with more sessions
    for thing in live:
        try:
            thing.at_exit(deadline)
        except Exception:
            logger.exception("Ending a live session at exit failed")
    stop_idle_threads()


if hasattr(os, "register_at_fork"):
    # A process without sessions must have no threads, because from Python 3.12 on a fork with threads warns.
    os.register_at_fork(before=stop_idle_threads, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
