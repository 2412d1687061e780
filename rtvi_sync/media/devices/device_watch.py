"""Watches of the microphones and speakers: which there are, and when some are plugged in or unplugged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Latch
from ...concurrency.lifecycle import register_for_fork, start_thread
from ...concurrency.logs import package_logger
from ...concurrency.shield import shielded
from ...errors import DeviceError, MissingExtraError
from ..base import MediaDeviceInfo
from . import probing
from .portaudio_backend import PortAudioBackend

if TYPE_CHECKING:
    import subprocess

logger: logging.Logger = package_logger(__name__)

# Seconds that `close()` waits for the thread, which can hang only in a callback of the application.
_CLOSE_LIMIT = 2.0


class DeviceWatch:
    """Callback with all microphones and speakers: called with the first list, and with each list that differs.

    PortAudio notices changes only when it is initialized again. So a process of its own lists the devices every few
    seconds, one for all watches of this process, while there are any. It ends with this process, however that ends.

    Args:
        backend: of the devices.
        on_change: called on a thread that all watches share.
        interval: seconds between two lists; the shortest of all watches counts.

    Raises:
        NoThreadError: no thread can be started.
    """

    def __init__(
        self,
        backend: PortAudioBackend,
        on_change: Callable[[list[MediaDeviceInfo]], object],
        interval: float = 2.0,
    ) -> None:
        self.backend = backend
        self.interval = interval
        self._on_change = on_change
        self._known: set[MediaDeviceInfo] | None = None
        shielded(lambda: _add(self))

    def close(self) -> None:
        """Stop calling the function. Idempotent; thread-safe, also from within the function."""
        shielded(lambda: _remove(self))

    def update(self, infos: list[MediaDeviceInfo]) -> None:
        """Compare the current list with the previous one, and call the function if it differs."""
        known, self._known = self._known, set(infos)
        if known == self._known:
            return
        try:
            self._on_change(infos)
        except Exception:
            logger.exception("A callback for changed devices failed")


class _Poller:
    """The thread that polls, and the process that lists the devices, from the first watch of a backend to the last."""

    def __init__(self, backend: PortAudioBackend) -> None:
        self._backend = backend
        self.watches: dict[DeviceWatch, None] = {}
        self._stopped = Latch()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        register_for_fork(self)

    def begin(self) -> None:
        self._thread = start_thread("devices", self._run)

    def end(self) -> None:
        self._stopped.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        # The thread may be waiting for an answer.
        if not join_thread(thread, Deadline(probing.EXIT_TIMEOUT)) and (process := self._process) is not None:
            process.kill()
        join_thread(thread, Deadline(_CLOSE_LIMIT))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._poll()
            except DeviceError as error:
                logger.info("Cannot list the devices; trying again: %s", error)
            except (MissingExtraError, OSError) as error:
                logger.warning("Cannot list the devices; new ones are not noticed: %s", error)
                return
            self._stopped.wait(self._interval())

    def _poll(self) -> None:
        """Request a list periodically, until the end or until the process fails."""
        process = self._process = probing.start_process(self._backend.library, "always")
        try:
            while not self._stopped.is_set():
                answer = probing.request_devices(process)
                if self._stopped.is_set():
                    return
                found = probing.parse_answer(self._backend.library, process, answer)
                if found is None:
                    raise OSError("the process that lists the devices sent no list")
                infos = self._backend.add_open_devices(found)
                for watch in list(self.watches):
                    watch.update(infos)
                self._stopped.wait(self._interval())
        finally:
            probing.end_process(process)

    def _interval(self) -> Deadline:
        return Deadline(min((watch.interval for watch in list(self.watches)), default=0.0))

    def after_fork_in_child(self) -> None:
        """Abandon the process, which is the parent's: it ends once all copies of its pipes are closed."""
        global _lock
        _lock = threading.RLock()
        _pollers.pop(self._backend, None)
        if (process := self._process) is not None:
            process.returncode = 0  # set, so that its finalizer does not wait for it in this process
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


# Guards the pollers below and their watches. Any thread may hold it, for a few instructions; re-entrant,
# because a finalizer may run while it is held.
_lock = threading.RLock()
_pollers: dict[PortAudioBackend, _Poller] = {}


def _add(watch: DeviceWatch) -> None:
    with _lock:
        if new := watch.backend not in _pollers:
            _pollers[watch.backend] = _Poller(watch.backend)
        poller = _pollers[watch.backend]
        poller.watches[watch] = None
    if new:
        try:
            poller.begin()
        except RuntimeError:
            _remove(watch)
            raise


def _remove(watch: DeviceWatch) -> None:
    with _lock:
        poller = _pollers.get(watch.backend)
        if poller is None or watch not in poller.watches:
            return
        del poller.watches[watch]
        if poller.watches:
            return
        del _pollers[watch.backend]
    poller.end()
