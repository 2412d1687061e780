"""Tells the program which devices there are, and of those that come and go, while it listens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...concurrency.deadline import Deadline, join_thread
from ...concurrency.latch import Latch
from ...concurrency.lifecycle import NoThreadError, start_thread
from ...errors import DeviceError, MissingExtraError
from ...events import RTVIEvent
from ..base import MediaDeviceInfo
from ..status_reporter import DeviceStatusReporter
from .backend import cameras

if TYPE_CHECKING:
    from .device_watch import DeviceWatch

logger: logging.Logger = logging.getLogger(__name__)

_SOUND_EVENTS = {
    "audioinput": RTVIEvent.AVAILABLE_MICS_UPDATED,
    "audiooutput": RTVIEvent.AVAILABLE_SPEAKERS_UPDATED,
}
# How often the cameras are looked at, in seconds.
_INTERVAL = 2.0
_CLOSE_LIMIT = 1.0


class HotPlug:
    """Fires `available_mics_updated`, `available_speakers_updated` and `available_cams_updated`.

    Each comes once for what there is at first: a program that began to listen and lists the devices itself would not
    know of one that was plugged in between the two.

    Args:
        status_reporter: has the event_sink where events go to. Nothing is looked at before somebody listens to one of
            them by its name.
    """

    def __init__(self, status_reporter: DeviceStatusReporter) -> None:
        self._status_reporter = status_reporter
        # Guards the fields below. The timer thread's thread and the one that closes hold it, for an assignment;
        # re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        self._closed = False
        self._sound: DeviceWatch | None = None
        self._cameras: CameraWatch | None = None

    def look(self) -> None:
        """See whether somebody listens now. On one thread at a time; does not block."""
        asked_for = self._status_reporter.event_sink.has_explicit_listener
        try:
            if self._sound is None and any(map(asked_for, _SOUND_EVENTS.values())):
                from .device_watch import DeviceWatch  # and with it all that PyAudio takes

                self._keep("_sound", DeviceWatch(_Told(self._status_reporter)))
            if self._cameras is None and asked_for(RTVIEvent.AVAILABLE_CAMS_UPDATED):
                self._keep("_cameras", CameraWatch(self._cameras_changed))
        except NoThreadError as error:
            logger.debug("New devices are not noticed: %s", error)

    def close(self) -> None:
        """Look no more. Idempotent."""
        with self._lock:
            self._closed = True
            watches = self._sound, self._cameras
        for watch in watches:
            if watch is not None:
                watch.close()

    def _keep(self, where: str, watch: DeviceWatch | CameraWatch) -> None:
        with self._lock:
            setattr(self, where, watch)
            closed = self._closed
        if closed:
            watch.close()

    def _cameras_changed(self, infos: list[MediaDeviceInfo]) -> None:
        self._status_reporter.event_sink.event(RTVIEvent.AVAILABLE_CAMS_UPDATED, infos)


class _Told:
    """Finds out which of the two lists has changed. Called on the thread of the watch."""

    def __init__(self, status_reporter: DeviceStatusReporter) -> None:
        self._status_reporter = status_reporter
        self._known: dict[str, list[MediaDeviceInfo]] = {}

    def __call__(self, infos: list[MediaDeviceInfo]) -> None:
        for kind, event in _SOUND_EVENTS.items():
            there = [info for info in infos if info.kind == kind]
            if self._known.get(kind) != there:
                self._known[kind] = there
                self._status_reporter.event_sink.event(event, there)


class CameraWatch:
    """Calls a function with all cameras: those there are at first, and whenever there are others.

    Args:
        on_change: called on a thread of the watch; must not block.
        look: finds the cameras.
        interval: seconds between two looks.

    Raises:
        NoThreadError: no thread can be started.
    """

    def __init__(
        self,
        on_change: Callable[[list[MediaDeviceInfo]], None],
        look: Callable[[], list[MediaDeviceInfo]] = cameras,
        interval: float = _INTERVAL,
    ) -> None:
        self._on_change = on_change
        self._look = look
        self._interval = interval
        self._over = Latch()
        self._thread = start_thread("devices", self._run)

    def close(self) -> None:
        """Call the function no more. Idempotent."""
        self._over.set()
        if self._thread is not threading.current_thread():
            join_thread(self._thread, Deadline(_CLOSE_LIMIT))

    def _run(self) -> None:
        known: list[MediaDeviceInfo] | None = None
        while not self._over.is_set():
            try:
                there = self._look()
            except (DeviceError, MissingExtraError) as error:
                logger.warning("New cameras will not be noticed: %s", error)
                return
            if self._over.is_set():
                return
            if there != known:
                self._on_change(there)
            known = there
            self._over.wait(Deadline(self._interval))
