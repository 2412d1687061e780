"""The data of media events, and the publisher of events."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import attrs

from ..errors import DeviceError
from ..events import RTVIEvent
from ..protocol.record import Record
from .base import AudioSink
from .tracks import AudioTrack, VideoTrack


@attrs.frozen(kw_only=True, eq=False, repr=False)
class DeviceStatus(Record):
    """The status of one kind of device.

    Attributes:
        state: "uninitialized" until `init_devices()` or `connect()`, then "initializing", then "granted" or "error".
        error: The failure, in the state "error".
    """

    state: Literal["uninitialized", "initializing", "granted", "error"] = "uninitialized"
    error: DeviceError | None = None

    @property
    def reason(self) -> str | None:
        """The error's type: "not-found", "in-use", "permissions" or "unknown"; None without an error."""
        return self.error.type if self.error is not None else None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MediaState(Record):
    """The status of all devices; the data of `media_state_updated`."""

    mic: DeviceStatus = DeviceStatus()
    cam: DeviceStatus = DeviceStatus()
    speaker: DeviceStatus = DeviceStatus()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AudioLevel(Record):
    """An audio level; the data of `local_audio_level` and `remote_audio_level`.

    Attributes:
        level: Root mean square, 0.0 (silence) to 1.0 (full scale).
        dbfs: The same in decibels relative to full scale: 0.0 or less; -100.0 for silence.
    """

    level: float
    dbfs: float


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AudioDroppedData(Record):
    """A loss of the bot's audio at a sink or speaker; the data of `audio_dropped`.

    The event is published once at the start of each run of losses. It is published again for audio that a sink has
    not taken when the session ends or the sink is replaced. `stats().speaker_dropped_seconds` counts all losses.

    Attributes:
        seconds (seconds): Audio lost in this run so far; at the end, the audio that is dropped then.
        sink: The sink that was given to the client, a device's id, or None for the default device.
    """

    seconds: float
    sink: AudioSink | str | None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Participant(Record):
    """The participant that a track belongs to.

    Attributes:
        id: "local" or "bot".
        name: Display name.
        local: True for the user of this client.
    """

    id: str
    name: str
    local: bool


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TrackData(Record):
    """A track and its participant; the data of `track_started`, `track_stopped` and their screen counterparts."""

    track: AudioTrack | VideoTrack
    participant: Participant


class Publisher(Protocol):
    """A publisher of events; any thread may call it, and no method blocks or raises."""

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_`."""

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_` by name, and not only to all events."""

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Publish an event."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Publish an event in place of the undelivered events of this type."""
