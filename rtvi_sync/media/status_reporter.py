"""What a client's devices are doing, and who is told of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..errors import DeviceError
from ..events import RTVIEvent
from .base import AudioSink, MediaDeviceInfo
from .event_sink import EventSink, NullEventSink
from .kinds import Kind, is_device
from .state import AudioDroppedData, DeviceStatus, MediaState

logger: logging.Logger = logging.getLogger(__name__)

_UPDATED: dict[Kind, RTVIEvent] = {
    "mic": RTVIEvent.MIC_UPDATED,
    "speaker": RTVIEvent.SPEAKER_UPDATED,
    "cam": RTVIEvent.CAM_UPDATED,
}
_WITHOUT_SOUND = (
    "Without one pass mic= and speaker= objects of rtvi_sync.media, such as WavSource and WavSink, or enable_mic=False "
    "and speaker=NullSink() for no audio at all"
)
_WITHOUT_PICTURES = "Without one pass cam=FileVideoSource(path) of rtvi_sync.media, or leave the camera off"


class DeviceStatusReporter:
    """Remembers how it stands with each device, and tells of changes. Every method may be called on any thread.

    Attributes:
        event_sink: where events go to.
    """

    def __init__(self) -> None:
        self.event_sink: EventSink = NullEventSink()
        # Changed in single steps.
        self._infos: dict[Kind, MediaDeviceInfo] = {}
        self._statuses: dict[Kind, DeviceStatus] = {}

    def selected(self, kind: Kind) -> MediaDeviceInfo | None:
        """The device in use, or the one to be opened; None: the default, which was not opened yet, or an object."""
        return self._infos.get(kind)

    @property
    def state(self) -> MediaState:
        """How it stands with the devices."""
        return MediaState(**self._statuses.copy())

    def status(self, kind: Kind, status: DeviceStatus) -> None:
        """It stands so with a device."""
        if kind != "screen" and self._statuses.get(kind) != status:
            self._statuses[kind] = status
            self.event_sink.event(RTVIEvent.MEDIA_STATE_UPDATED, self.state)

    def chosen(self, kind: Kind, info: MediaDeviceInfo | None) -> None:
        """A device is in use, or will be when one is needed; None: no device, but an object of the program's."""
        if self._infos.get(kind) == info:
            return
        if info is None:
            self._infos.pop(kind, None)  # another thread may have been faster
        else:
            self._infos[kind] = info
            self.event_sink.event(_UPDATED[kind], info)

    def opened(self, kind: Kind, info: MediaDeviceInfo) -> None:
        """A device works, for the first time or again."""
        self.chosen(kind, info)
        self.status(kind, DeviceStatus(state="granted"))

    def failed(self, kind: Kind, error: DeviceError) -> None:
        """A device, source or sink does not work any more."""
        self.status(kind, DeviceStatus(state="error", error=error))
        self.event_sink.event(RTVIEvent.SCREEN_SHARE_ERROR if kind == "screen" else RTVIEvent.DEVICE_ERROR, error)

    def audio_dropped(self, sink: AudioSink | str | None, seconds: float, why: str) -> None:
        """Audio of the bot is lost, or a run of losses begins.

        Args:
            sink: which did not take it; a device's id, or None for the default device.
            seconds: so far.
            why: clause about the sink, for the log.
        """
        name = f"the speaker {sink or 'by default'!r}" if is_device(sink) else type(sink).__name__
        logger.warning("Dropped %.2f s of the bot's audio that waited for %s: %s", seconds, name, why)
        self.event_sink.event(RTVIEvent.AUDIO_DROPPED, AudioDroppedData(seconds=seconds, sink=sink))

    def missing(self, errors: Mapping[Kind, DeviceError]) -> None:
        """There are no default devices of these kinds. Told at once of all."""
        if not errors:
            return
        first = next(iter(errors.values()))
        reasons = ". ".join(dict.fromkeys(map(str, errors.values())))
        advice = _WITHOUT_PICTURES if list(errors) == ["cam"] else _WITHOUT_SOUND
        error = DeviceError(
            f"No {' and no '.join(errors)}: {reasons}. {advice}",
            devices=tuple(errors),
            type=first.type,
            details=first.details,
        )
        logger.warning("%s. The session goes on without", error)
        self.event_sink.event(RTVIEvent.DEVICE_ERROR, error)
