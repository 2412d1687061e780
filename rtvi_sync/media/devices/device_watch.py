"""Tells which microphones and speakers there are, and when some are plugged in or pulled out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Latch
from ...concurrency.lifecycle import register_for_fork, start_thread
from ...concurrency.shield import shielded
from ...errors import DeviceError, MissingExtraError
from ..base import MediaDeviceInfo
from . import probing
from .pyaudio_backend import backend

if TYPE_CHECKING:
    import subprocess

logger: logging.Logger = logging.getLogger(__name__)

# How long `close()` waits for the thread, in seconds. It hangs in nothing but functions of the user's.
_CLOSE_LIMIT = 2.0


class DeviceWatch:
    """Calls a function with all microphones and speakers: those there are at first, and whenever there are others.

    PortAudio notices only by beginning anew. So a process of its own lists them every few seconds, one for all watches
    of this process, while there are any. It ends with this process, however that ends.

    Args:
        on_change: called on a thread that all watches share.
        interval: seconds between two looks; the shortest of all watches counts.

    Raises:
        NoThreadError: no thread can be started.
    """

    def __init__(self, on_change: Callable[[list[MediaDeviceInfo]], object], interval: float = 2.0) -> None:
        self.interval = interval
        self._on_change = on_change
        self._known: set[MediaDeviceInfo] | None = None
        shielded(lambda: _add(self))

    def close(self) -> None:
        """Call the function no more. Idempotent; any thread may call it, the one that calls the function too."""
        shielded(lambda: _remove(self))

    def show(self, infos: list[MediaDeviceInfo]) -> None:
        """Called with what there is now."""
        known, self._known = self._known, set(infos)
        if known == self._known:
            return
        try:
            self._on_change(infos)
        except Exception:
            logger.exception("A function that is told of new devices failed")


class _Lookout:
    """The thread that looks, and the process that it asks, from the first watch to the last."""

    def __init__(self) -> None:
        self.watches: dict[DeviceWatch, None] = {}
        self._over = Latch()
        self._prober: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        register_for_fork(self)

    def begin(self) -> None:
        self._thread = start_thread("devices", self._run)

    def end(self) -> None:
        self._over.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        # It may be waiting for an answer.
        if not join_thread(thread, Deadline(probing.PATIENCE)) and (prober := self._prober) is not None:
            prober.kill()
        join_thread(thread, Deadline(_CLOSE_LIMIT))

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._look_on()
            except DeviceError as error:
                logger.info("Looking for new devices failed, and will be tried again: %s", error)
            except (MissingExtraError, OSError) as error:
                logger.warning("New devices will not be noticed: %s", error)
                return
            self._over.wait(self._interval())

    def _look_on(self) -> None:
        """Ask again and again, until it is over or the process fails."""
        prober = self._prober = probing.start("always")
        try:
            while not self._over.is_set():
                answer = probing.ask(prober)
                if self._over.is_set():
                    return
                found = probing.answer_of(prober, answer)
                if found is None:
                    raise OSError("the process that lists the devices does not answer as it should")
                infos = backend().with_open(found)
                for watch in list(self.watches):
                    watch.show(infos)
                self._over.wait(self._interval())
        finally:
            probing.end(prober)

    def _interval(self) -> Deadline:
        return Deadline(min((watch.interval for watch in list(self.watches)), default=0.0))

    def after_fork_in_child(self) -> None:
        """The process is the parent's: it ends when nobody has the other end of its pipe any more."""
        global _lock, _lookout
        _lock, _lookout = threading.RLock(), None
        if (prober := self._prober) is not None:
            prober.returncode = 0  # or its finalizer would look for it here
            for pipe in (prober.stdin, prober.stdout):
                if pipe is not None:
                    pipe.close()


# Guards the field below and the watches of what is in it. Any thread may hold it, for a few instructions; re-entrant,
# because a finalizer may come in between.
_lock = threading.RLock()
_lookout: _Lookout | None = None


def _add(watch: DeviceWatch) -> None:
    global _lookout
    with _lock:
        new = _lookout is None
        lookout = _lookout = _lookout or _Lookout()
        lookout.watches[watch] = None
    if new:
        try:
            lookout.begin()
        except RuntimeError:
            _remove(watch)
            raise


def _remove(watch: DeviceWatch) -> None:
    global _lookout
    with _lock:
        lookout = _lookout
        if lookout is None or watch not in lookout.watches:
            return
        del lookout.watches[watch]
        if lookout.watches:
            return
        _lookout = None
    lookout.end()
