"""Events about devices that are plugged in or unplugged, while the application listens to them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import NoThreadError, register_for_fork, start_thread
from ...concurrency.lock import new_lock
from ...concurrency.logs import package_logger
from ...concurrency.shield import shielded
from ...errors import DeviceError, MissingExtraError
from ...events import RTVIEvent
from ..base import MediaDeviceInfo
from ..status import Publisher
from .backend import AudioBackend, cameras
from .probing import EXIT_TIMEOUT, Prober

logger: logging.Logger = package_logger(__name__)

_EVENTS = {
    "audioinput": RTVIEvent.AVAILABLE_MICS_UPDATED,
    "audiooutput": RTVIEvent.AVAILABLE_SPEAKERS_UPDATED,
    "videoinput": RTVIEvent.AVAILABLE_CAMS_UPDATED,
}
# The kinds that one function lists together, and their events.
_AUDIO, _CAMERAS = ("audioinput", "audiooutput"), ("videoinput",)
_WATCHED = {kinds: tuple(_EVENTS[kind] for kind in kinds) for kinds in (_AUDIO, _CAMERAS)}
# Seconds between two lists.
_INTERVAL = 2.0
# Seconds that `close()` waits for a thread, which can hang only in code of the application, or in OpenCV.
_CLOSE_LIMIT = 1.0

ListDevices = Callable[[], "list[MediaDeviceInfo] | None"]


class HotPlug:
    """Source of `available_mics_updated`, `available_speakers_updated` and `available_cams_updated`.

    Each is published once with the first list: an application that starts to listen and lists the devices itself would
    miss a device that was plugged in between the two.

    Args:
        publish: publishes an event; called on the thread of a watch.
        backend: returns the backend of the machine's audio devices.
    """

    def __init__(self, publish: Callable[[RTVIEvent, Any], None], backend: Callable[[], AudioBackend]) -> None:
        self._publish = publish
        self._backend = backend
        # Guards the next two fields. The timer thread and the thread that closes hold it for an assignment; re-entrant,
        # because a finalizer may run while it is held.
        self._lock = new_lock()
        self._closed = False
        self._watches: dict[tuple[str, ...], DeviceWatch] = {}
        self._known: dict[str, list[MediaDeviceInfo]] = {}  # by kind; each is used by one thread

    def look(self, publisher: Publisher | None) -> None:
        """Start the watches whose events have a listener by their name. Called on one thread at a time; does not block.

        Args:
            publisher: knows the listeners; None: no listeners.
        """
        if publisher is None:
            return
        for kinds, events in _WATCHED.items():
            if kinds not in self._watches and any(map(publisher.has_explicit_listener, events)):
                self._watch(kinds)

    def close(self) -> None:
        """Stop all watches. Idempotent."""
        with self._lock:
            self._closed = True
            watches = [*self._watches.values()]
        for watch in watches:
            watch.close()

    def _watch(self, kinds: tuple[str, ...]) -> None:
        try:
            watch = DeviceWatch(partial(self._changed, kinds), self._lister_of_audio() if kinds is _AUDIO else cameras)
        except NoThreadError as error:
            logger.debug("Cannot watch for new devices: %s", error)
            return
        with self._lock:
            self._watches[kinds] = watch
            closed = self._closed
        if closed:
            watch.close()

    def _lister_of_audio(self) -> ListDevices:
        # Imported here, because it imports all that PortAudio needs.
        from .portaudio_backend import PortAudioBackend

        backend = self._backend()
        return backend.prober() if isinstance(backend, PortAudioBackend) else backend.devices

    def _changed(self, kinds: tuple[str, ...], infos: list[MediaDeviceInfo]) -> None:
        """Publish the lists that have changed. Called on the thread of a watch."""
        for kind in kinds:
            present = [info for info in infos if info.kind == kind]
            if self._known.get(kind) != present:
                self._known[kind] = present
                self._publish(_EVENTS[kind], present)


class DeviceWatch:
    """Callback with all devices that a function lists: called with the first list, and with each list that differs.

    One thread polls for all watches of equal functions, while there are any.

    Args:
        on_change: called on that thread; must not block.
        list_devices: returns the devices; None, once it has logged why: they will never be listed.
        interval: seconds between two lists; the shortest of all watches counts.

    Raises:
        NoThreadError: no thread can be started.
    """

    def __init__(
        self,
        on_change: Callable[[list[MediaDeviceInfo]], object],
        list_devices: ListDevices,
        interval: float = _INTERVAL,
    ) -> None:
        self._on_change = on_change
        self.list_devices = list_devices
        self.interval = interval
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
    """The thread that lists devices by one function, from its first watch to its last."""

    def __init__(self, list_devices: ListDevices) -> None:
        self._list_devices = list_devices
        self.watches: dict[DeviceWatch, None] = {}
        self._changed = Notifier()  # notified when there is something to do at once
        self._is_due = True
        self._stopped = False
        self._thread: threading.Thread | None = None
        register_for_fork(self)

    def start(self) -> None:
        self._thread = start_thread("devices", self._run)

    def poll_soon(self) -> None:
        self._is_due = True
        self._changed.notify_all()

    def end(self) -> None:
        self._stopped = True
        self._changed.notify_all()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        # The thread may be waiting for an answer of the process that lists the devices.
        if isinstance(self._list_devices, Prober) and not join_thread(thread, Deadline(EXIT_TIMEOUT)):
            self._list_devices.kill()
        join_thread(thread, Deadline(_CLOSE_LIMIT))

    def _run(self) -> None:
        try:
            self._poll()
        finally:
            if isinstance(self._list_devices, Prober):
                self._list_devices.close()

    def _poll(self) -> None:
        works = True
        while not self._stopped:
            self._is_due = False
            try:
                infos = self._list_devices()
                works = True
            except MissingExtraError as error:
                logger.warning("Cannot list the devices; new ones are not noticed: %s", error)
                return
            except BaseException as error:  # a backend may be the application's
                if works:
                    trace = not isinstance(error, DeviceError)
                    logger.warning("Cannot list the devices; trying again: %s", error, exc_info=trace)
                works = False
            if works and infos is None:
                return
            if works and infos is not None and not self._stopped:
                for watch in list(self.watches):
                    watch.update(infos)
            interval = min((watch.interval for watch in list(self.watches)), default=0.0)
            self._changed.wait_for(lambda: self._stopped or self._is_due, Deadline(interval))

    def after_fork_in_child(self) -> None:
        """Abandon the process, which is the parent's."""
        global _lock
        _lock = new_lock()
        _pollers.pop(self._list_devices, None)
        if isinstance(self._list_devices, Prober):
            self._list_devices.abandon()


# Guards the pollers below and their watches. Any thread may hold it, for a few instructions; re-entrant,
# because a finalizer may run while it is held.
_lock = new_lock()
_pollers: dict[ListDevices, _Poller] = {}


def _add(watch: DeviceWatch) -> None:
    with _lock:
        if new := watch.list_devices not in _pollers:
            _pollers[watch.list_devices] = _Poller(watch.list_devices)
        poller = _pollers[watch.list_devices]
        poller.watches[watch] = None
    if not new:
        poller.poll_soon()
        return
    try:
        poller.start()
    except RuntimeError:
        _remove(watch)
        raise


def _remove(watch: DeviceWatch) -> None:
    with _lock:
        poller = _pollers.get(watch.list_devices)
        if poller is None or watch not in poller.watches:
            return
        del poller.watches[watch]
        if poller.watches:
            return
        del _pollers[watch.list_devices]
    poller.end()
