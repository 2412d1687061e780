"""The status of a client's devices: the events that report it, their data, and the sink that publishes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import attrs

from ..concurrency.logs import package_logger
from ..errors import DeviceError, fresh_copy
from ..events import RTVIEvent
from .base import AudioSink, MediaDeviceInfo
from .kinds import Kind, is_device
from .tracks import AudioTrack, VideoTrack

logger: logging.Logger = package_logger(__name__)

_UPDATED: dict[Kind, RTVIEvent] = {
    "mic": RTVIEvent.MIC_UPDATED,
    "speaker": RTVIEvent.SPEAKER_UPDATED,
    "cam": RTVIEvent.CAM_UPDATED,
}
_ADVICE_AUDIO = (
    "Without one pass mic= and speaker= objects of rtvi_sync.media, such as WavSource and WavSink, or mic=False "
    "and speaker=False for no audio at all"
)
_ADVICE_VIDEO = "Without one pass cam=FileVideoSource(path) of rtvi_sync.media, or leave the camera off"


@attrs.frozen(kw_only=True)
class DeviceStatus:
    """The status of one kind of device.

    Attributes:
        state: "uninitialized" until `init_devices()` or `connect()`, then "initializing", then "granted" or "error".
        error: the failure, in the state "error".
    """

    state: Literal["uninitialized", "initializing", "granted", "error"] = "uninitialized"
    error: DeviceError | None = None

    @property
    def reason(self) -> str | None:
        """Return the error's type: "not-found", "in-use", "permissions" or "unknown"; None without an error."""
        return self.error.type if self.error is not None else None


@attrs.frozen(kw_only=True)
class MediaState:
    """The status of all devices; the data of `media_state_updated`."""

    mic: DeviceStatus = DeviceStatus()
    cam: DeviceStatus = DeviceStatus()
    speaker: DeviceStatus = DeviceStatus()


@attrs.frozen(kw_only=True)
class AudioLevel:
    """An audio level; the data of `local_audio_level` and `remote_audio_level`.

    Attributes:
        level: root mean square, 0.0 (silence) to 1.0 (full scale).
        dbfs: the same in decibels relative to full scale: 0.0 or less; -100.0 for silence.
    """

    level: float
    dbfs: float


@attrs.frozen(kw_only=True)
class AudioDroppedData:
    """A loss of the bot's audio at a sink or speaker; the data of `audio_dropped`.

    The event is published once at the start of each run of losses. It is published once more for audio that a sink has
    not taken when the session ends or the sink is replaced. `stats().speaker_dropped_seconds` counts all losses.

    Attributes:
        seconds: Audio lost in this run so far; at the end, the audio that is dropped then.
        sink: the sink that was given to the client, a device's id, or None for the default device.
    """

    seconds: float
    sink: AudioSink | str | None


@attrs.frozen(kw_only=True)
class Participant:
    """The participant that a track belongs to.

    Attributes:
        id: "local" or "bot".
        name: display name.
        local: whether it is the user of this client.
    """

    id: str
    name: str
    local: bool


@attrs.frozen(kw_only=True)
class TrackData:
    """A track and its participant; the data of `track_started`, `track_stopped` and their screen counterparts."""

    track: AudioTrack | VideoTrack
    participant: Participant


class EventSink(Protocol):
    """A publisher of events; any thread may call it, and no method blocks or raises."""

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_`."""

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_` by name, and not only to all events."""

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Publish an event."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Publish an event in place of the undelivered events of this type."""


class NullEventSink:
    """The event sink between two sessions: it discards all events."""

    def has_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Discard the event."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Discard the event."""


class DeviceStatusReporter:
    """A record of each device's status, which publishes changes as events; any thread may call every method.

    Attributes:
        event_sink: publishes the events.
    """

    def __init__(self) -> None:
        self.event_sink: EventSink = NullEventSink()
        # Both dicts are changed by single operations, which are atomic, so they need no lock.
        self._infos: dict[Kind, MediaDeviceInfo] = {}
        self._statuses: dict[Kind, DeviceStatus] = {}
        self._warned = ""  # the last warning about missing devices

    def selected(self, kind: Kind) -> MediaDeviceInfo | None:
        """Return the device in use, or the one to be opened; None: an unopened default device, or an object."""
        return self._infos.get(kind)

    @property
    def state(self) -> MediaState:
        """Return the status of all devices."""
        return MediaState(**self._statuses.copy())

    def status(self, kind: Kind, status: DeviceStatus) -> None:
        """Record a device's status and publish `media_state_updated` if it changed."""
        if kind != "screen" and self._statuses.get(kind) != status:
            self._statuses[kind] = status
            self.event_sink.event(RTVIEvent.MEDIA_STATE_UPDATED, self.state)

    def chosen(self, kind: Kind, info: MediaDeviceInfo | None) -> None:
        """Record the selected device and publish the change; None: an object of the application, not a device."""
        if self._infos.get(kind) == info:
            return
        if info is None:
            self._infos.pop(kind, None)  # another thread may have removed it since the comparison
        else:
            self._infos[kind] = info
            self.event_sink.event(_UPDATED[kind], info)

    def opened(self, kind: Kind, info: MediaDeviceInfo) -> None:
        """Record that a device works, for the first time or again."""
        self._warned = ""
        self.chosen(kind, info)
        self.status(kind, DeviceStatus(state="granted"))

    def error(self, kind: Kind, error: DeviceError) -> None:
        """Record that a device, source or sink cannot be used."""
        # As a copy: the error's frames keep the client, and the object that ends a dropped client's devices keeps this.
        self.status(kind, DeviceStatus(state="error", error=fresh_copy(error)))

    def failed(self, kind: Kind, error: DeviceError) -> None:
        """Record and publish the failure of a device, source or sink."""
        self.error(kind, error)
        self.event_sink.event(RTVIEvent.SCREEN_SHARE_ERROR if kind == "screen" else RTVIEvent.DEVICE_ERROR, error)

    def audio_dropped(self, sink: AudioSink | str | None, seconds: float, why: str) -> None:
        """Log and publish a loss of the bot's audio, or the start of a run of losses.

        Args:
            sink: The sink that did not take it; a device's id, or None for the default device.
            seconds: Audio lost so far.
            why: A clause about the sink, for the log.
        """
        name = f"the speaker {sink or 'by default'!r}" if is_device(sink) else type(sink).__name__
        logger.warning("Dropped %.2f s of the bot's audio that waited for %s: %s", seconds, name, why)
        self.event_sink.event(RTVIEvent.AUDIO_DROPPED, AudioDroppedData(seconds=seconds, sink=sink))

    def missing(self, errors: Mapping[Kind, DeviceError]) -> None:
        """Publish, as one error, that there are no default devices of these kinds.

        It is logged once while nothing changes: one `connect()` may try several transports, and a kiosk has many
        sessions.
        """
        if not errors:
            return
        first = next(iter(errors.values()))
        reasons = ". ".join(dict.fromkeys(map(str, errors.values())))
        advice = _ADVICE_VIDEO if list(errors) == ["cam"] else _ADVICE_AUDIO
        error = DeviceError(
            f"No {' and no '.join(errors)}: {reasons}. {advice}",
            devices=tuple(errors),
            type=first.type,
            details=first.details,
        )
        if str(error) != self._warned:
            self._warned = str(error)
            logger.warning("%s. The session continues without %s", error, "it" if len(errors) == 1 else "them")
        self.event_sink.event(RTVIEvent.DEVICE_ERROR, error)
