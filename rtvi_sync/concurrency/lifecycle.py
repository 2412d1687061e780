"""Where threads begin, and what happens to everything live when the process forks or exits."""

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
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Protocol

from ..errors import RTVIError
from .deadline import Deadline, on_main_thread
from .latch import Latch

logger: logging.Logger = logging.getLogger(__name__)

# How long the exit of the interpreter waits for all live sessions together, in seconds.
EXIT_LIMIT = 5.0
#: Where the system has no thread to give, it is asked again after so many seconds.
NO_THREAD_PAUSE = 0.1
# Threads that have nothing to do leave at once, unless the machine is very busy.
_IDLE_LIMIT = 1.0

_numbers = itertools.count(1)
_generation = 0
_hooked_generation: int | None = None
_forking_thread: int | None = None
_never = threading.Event()


class ForkAware(Protocol):
    """Holds descriptors or locks that a forked child must drop."""

    def after_fork_in_child(self) -> None:
        """Close inherited descriptors (close, never shutdown: the connection is the parent's) and renew locks."""


class ExitAware(Protocol):
    """Is live until it is told that the interpreter exits."""

    def at_exit(self, deadline: Deadline) -> None:
        """End before `deadline` on the calling thread."""


class Idle(Protocol):
    """Keeps threads for a while for which there is nothing to do now."""

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """Let them leave, and wait for it, no longer than `deadline`."""


# Guards the two sets, which cannot be walked while another thread changes them. Any thread may hold it, for one set
# operation; re-entrant, because a finalizer may begin or end something in the midst of one.
_lock = threading.RLock()
_fork_aware: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_exit_aware: weakref.WeakSet[ExitAware] = weakref.WeakSet()
_idle: list[Idle] = []  # filled at import


class NoThreadError(RTVIError, RuntimeError):
    """No thread can be started: the interpreter is shutting down, or the system has none left."""


def _no_thread(error: RuntimeError) -> NoThreadError:
    return NoThreadError(f"{error}. End other threads of this process, or raise its limit of threads (ulimit -u)")


@contextlib.contextmanager
def system_failures_as(kind: Callable[[str], RTVIError], failed: str) -> Iterator[None]:
    """Raise an error of the caller's choice if the system refuses a thread, a descriptor or anything else in the block.

    Errors of this package pass, though some are an OSError too. Also a decorator.

    Args:
        kind: makes the error from its message.
        failed: what failed, as the beginning of the message.
    """
    try:
        yield
    except NoThreadError as error:
        raise kind(f"{failed}: {error}") from error
    except OSError as error:
        if isinstance(error, RTVIError):
            raise
        raise kind(f"{failed}: {error}. {what_to_do(error) or 'See what the system lacks'}") from error


def what_to_do(error: OSError) -> str | None:
    """What helps if the process, or the system, has no descriptor left; None if that is not what is wrong."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Close files and connections that are not needed, or raise the limit of open files (ulimit -n)"
    return None


def start_thread(role: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a daemon thread named ``rtvi-<role>-<n>``; the one place where threads of this package begin.

    Daemons, because no thread of a library may keep the interpreter from exiting. Ctrl-C may keep this from returning,
    and not the thread from running.

    Raises:
        NoThreadError
    """
    if sys.is_finalizing():
        raise NoThreadError("The interpreter is shutting down")  # before Python 3.12 it waits for ever for the thread
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
        # `Thread.start()` waits for an Event of the new thread's: Ctrl-C may leave its mutex locked, and then the new
        # thread waits for it for ever. So the main thread, the only one that signals strike, has it called elsewhere.
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
    """What a thread does: `target`, and no end in a child process.

    A fork leaves a child no thread but the one that forked. Greenlets, which gevent puts in the place of threads, are
    copied: such a one finds what it works with closed, and may not end either, because `threading` does not know it.
    They run on the thread `starter` that started them.
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
    """Have the system give no signal to the calling thread, which is about to leave.

    It may be there for a while after it has been joined, and must not let in what the main thread blocks meanwhile. Not
    earlier: programs that a handler starts inherit what its thread blocks.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _copied(generation: int) -> bool:
    return generation != _generation and threading.get_ident() != _forking_thread


def is_exiting() -> bool:
    """True when the interpreter shuts down: new threads are refused soon, or already."""
    return sys.is_finalizing() or not threading.main_thread().is_alive()


def fork_generation() -> int:
    """How many forks lie between this process and the one that imported the package.

    An object that remembers the number it was made with knows whether it belongs to this process.
    """
    return _generation


def register_for_fork(thing: ForkAware) -> None:
    """Tell `thing`, held weakly, when it finds itself in a forked child."""
    with _lock:
        _fork_aware.add(thing)


def register_for_exit(thing: ExitAware) -> None:
    """Tell `thing`, held weakly, when the interpreter exits, or a child of multiprocessing or Celery ends."""
    with _lock:
        _exit_aware.add(thing)
    _hook_multiprocessing()
    _hook_celery()


def register_idle(thing: Idle) -> None:
    """Tell `thing` before the process forks, and at exit, when the sessions have ended."""
    _idle.append(thing)


def send_idle_home() -> None:
    """Let all threads leave that only wait for something to do."""
    deadline = Deadline(_IDLE_LIMIT)
    for thing in _idle:
        thing.stop_idle_threads(deadline)


def unregister_for_exit(thing: ExitAware) -> None:
    """`thing` has ended; it need not be told of the exit."""
    with _lock:
        _exit_aware.discard(thing)


def log_stack_of(threads: Iterable[threading.Thread], what: str) -> None:
    """Log where `threads` are, for a limit that passed while they were still running."""
    threads = list(threads)
    frames = _current_frames() if threads else {}
    for thread in threads:
        frame = frames.get(thread.ident) if thread.ident is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(it has just ended)\n"
        logger.warning("%s: thread %s is still running:\n%s", what, thread.name, stack)


def _current_frames() -> dict[int, FrameType]:
    # Before CPython 3.12 a garbage collection inside this call never returns and stops the whole process (gh-106883).
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
    # No lock is taken here: another thread may have held it at the fork and does not exist any more.
    _lock = threading.RLock()
    for thing in list(_fork_aware):
        try:
            thing.after_fork_in_child()
        except Exception:
            logger.exception("Freeing what a forked process inherited failed")
    _exit_aware.clear()


def _hook_multiprocessing() -> None:
    """In a child of multiprocessing: it leaves by `os._exit()`, past `atexit`, but runs its finalizers before."""
    global _hooked_generation
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None or _hooked_generation == _generation:
        return
    _hooked_generation = _generation
    # Before everybody else's: handlers may put what they still hear into queues and managers, which end by finalizers.
    sys.modules["multiprocessing.util"].Finalize(None, _at_exit_of_child, exitpriority=100)


def _at_exit_of_child() -> None:
    # Before Python 3.13 finalizers run while threads that the child will wait for are still at work. Their sessions end
    # with the process then, which the bot notices too.
    if all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate()):
        _at_exit()


def _hook_celery() -> None:
    """In a child of Celery's: it leaves by `os._exit()`, past `atexit`, but sends a signal before.

    Its threads matter as well. Celery's parent answers the child's last message by SIGTERM, which the child's main
    thread blocks until the message's lock is free. Any other thread lets it in: then the lock stays locked, and all
    children to come wait for it for ever (billiard 4.3, `Worker._do_exit`).
    """
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_at_exit_of_celery, weak=False, dispatch_uid=__name__)


def _at_exit_of_celery(**_: object) -> None:
    _at_exit()


def _at_exit() -> None:
    with _lock:
        live = list(_exit_aware)
    deadline = Deadline(EXIT_LIMIT)  # one for all: the exit of a program does not grow with its sessions
    for thing in live:
        try:
            thing.at_exit(deadline)
        except Exception:
            logger.exception("Ending a live session at exit failed")
    send_idle_home()


if hasattr(os, "register_at_fork"):
    # A process in which nothing is going on is to have no thread: from Python 3.12 on a fork warns of any.
    os.register_at_fork(before=send_idle_home, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
