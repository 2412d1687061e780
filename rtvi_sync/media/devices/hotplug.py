"""Events about devices that are plugged in or unplugged, while the application listens to them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Latch
from ...concurrency.lifecycle import NoThreadError, start_thread
from ...concurrency.logs import package_logger
from ...errors import DeviceError, MissingExtraError
from ...events import RTVIEvent
from ..base import MediaDeviceInfo
from ..status import Publisher
from .backend import AudioBackend, cameras

if TYPE_CHECKING:
    from .device_watch import DeviceWatch

logger: logging.Logger = package_logger(__name__)

_AUDIO_EVENTS = {
    "audioinput": RTVIEvent.AVAILABLE_MICS_UPDATED,
    "audiooutput": RTVIEvent.AVAILABLE_SPEAKERS_UPDATED,
}
# Seconds between two lists of a `ListWatch`.
_INTERVAL = 2.0
_CLOSE_LIMIT = 1.0


class HotPlug:
    """Source of `available_mics_updated`, `available_speakers_updated` and `available_cams_updated`.

    Each is published once with the first list: an application that begins to listen and lists the devices itself would
    miss a device that was plugged in between the two.

    Args:
        publish: publishes an event; called on the thread of a watch.
        backend: returns the backend of the machine's audio devices.
    """

    def __init__(self, publish: Callable[[RTVIEvent, Any], None], backend: Callable[[], AudioBackend]) -> None:
        self._publish = publish
        self._backend = backend
        # Guards the fields below. The timer thread and the thread that closes hold it for an assignment; re-entrant,
        # because a finalizer may run while it is held.
        self._lock = threading.RLock()
        self._closed = False
        self._audio: DeviceWatch | ListWatch | None = None
        self._cameras: ListWatch | None = None

    def look(self, publisher: Publisher | None) -> None:
        """Start the watches whose events have a listener by their name. Called on one thread at a time; does not block.

        Args:
            publisher: knows the listeners; None: there are none.
        """
        if publisher is None:
            return
        has_listener = publisher.has_explicit_listener
        try:
            if self._audio is None and any(map(has_listener, _AUDIO_EVENTS.values())):
                self._store("_audio", self._watch_audio())
            if self._cameras is None and has_listener(RTVIEvent.AVAILABLE_CAMS_UPDATED):
                self._store("_cameras", ListWatch(self._cameras_changed, cameras))
        except NoThreadError as error:
            logger.debug("Cannot watch for new devices: %s", error)

    def close(self) -> None:
        """Stop all watches. Idempotent."""
        with self._lock:
            self._closed = True
            watches = self._audio, self._cameras
        for watch in watches:
            if watch is not None:
                watch.close()

    def _watch_audio(self) -> DeviceWatch | ListWatch:
        # Imported here, because it imports all that PortAudio needs.
        from .device_watch import DeviceWatch
        from .portaudio_backend import PortAudioBackend

        backend, on_change = self._backend(), _AudioDeviceEvents(self._publish)
        if isinstance(backend, PortAudioBackend):
            return DeviceWatch(backend, on_change)
        return ListWatch(on_change, backend.devices)

    def _store(self, where: str, watch: DeviceWatch | ListWatch) -> None:
        with self._lock:
            setattr(self, where, watch)
            closed = self._closed
        if closed:
            watch.close()

    def _cameras_changed(self, infos: list[MediaDeviceInfo]) -> None:
        self._publish(RTVIEvent.AVAILABLE_CAMS_UPDATED, infos)


class _AudioDeviceEvents:
    """Callback that publishes the list that has changed, of microphones or speakers. Called on the watch's thread."""

    def __init__(self, publish: Callable[[RTVIEvent, Any], None]) -> None:
        self._publish = publish
        self._known: dict[str, list[MediaDeviceInfo]] = {}

    def __call__(self, infos: list[MediaDeviceInfo]) -> None:
        for kind, event in _AUDIO_EVENTS.items():
            present = [info for info in infos if info.kind == kind]
            if self._known.get(kind) != present:
                self._known[kind] = present
                self._publish(event, present)


class ListWatch:
    """Callback with all devices that a function lists: called with the first list, and with each list that differs.

    Args:
        on_change: called on a thread of the watch; must not block.
        list_devices: returns the devices.
        interval: seconds between two lists.

    Raises:
        NoThreadError: no thread can be started.
    """

    def __init__(
        self,
        on_change: Callable[[list[MediaDeviceInfo]], None],
        list_devices: Callable[[], list[MediaDeviceInfo]],
        interval: float = _INTERVAL,
    ) -> None:
        self._on_change = on_change
        self._list_devices = list_devices
        self._interval = interval
        self._stopped = Latch()
        self._thread = start_thread("devices", self._run)

    def close(self) -> None:
        """Stop calling the function. Idempotent."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            join_thread(self._thread, Deadline(_CLOSE_LIMIT))

    def _run(self) -> None:
        known: list[MediaDeviceInfo] | None = None
        works = True
        while not self._stopped.is_set():
            try:
                present = self._list_devices()
                works = True
            except MissingExtraError as error:
                logger.warning("Cannot list the devices; new ones are not noticed: %s", error)
                return
            except Exception as error:  # a backend may be the application's
                if works:
                    logger.warning(
                        "Cannot list the devices; trying again: %s", error, exc_info=not isinstance(error, DeviceError)
                    )
                works = False
            if self._stopped.is_set():
                return
            if works and present != known:
                self._on_change(present)
                known = present
            self._stopped.wait(Deadline(self._interval))
