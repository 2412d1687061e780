"""What the events of devices and tracks carry."""

from __future__ import annotations

from typing import Literal

import attrs

from ..errors import DeviceError
from .base import AudioSink
from .tracks import AudioTrack, VideoTrack


@attrs.frozen(kw_only=True)
class DeviceStatus:
    """How it stands with one kind of device.

    Attributes:
        state: "uninitialized" until `init_devices()` or `connect()`, then "initializing", then "granted" or "error".
        error: what went wrong, in the state "error".
    """

    state: Literal["uninitialized", "initializing", "granted", "error"] = "uninitialized"
    error: DeviceError | None = None

    @property
    def reason(self) -> str | None:
        """The kind of the error: "not-found", "in-use", "permissions" or "unknown"."""
        return self.error.type if self.error is not None else None


@attrs.frozen(kw_only=True)
class MediaState:
    """How it stands with the devices; the data of `media_state_updated`."""

    mic: DeviceStatus = DeviceStatus()
    cam: DeviceStatus = DeviceStatus()
    speaker: DeviceStatus = DeviceStatus()


@attrs.frozen(kw_only=True)
class AudioLevel:
    """How loud it is; the data of `local_audio_level` and `remote_audio_level`.

    Attributes:
        level: root mean square, 0.0 (silence) to 1.0 (the loudest there can be).
        dbfs: the same in decibels relative to the loudest: 0.0, or less; -100.0 for silence.
    """

    level: float
    dbfs: float


@attrs.frozen(kw_only=True)
class AudioDroppedData:
    """Audio of the bot that a sink or speaker did not get; the data of `audio_dropped`.

    The event comes once for each run of losses, when it begins; `stats().speaker_dropped_seconds` counts all of it.

    Attributes:
        seconds: how much was lost by then in this run.
        sink: the sink, as given to the client; a device's id; or None for the default device.
    """

    seconds: float
    sink: AudioSink | str | None


@attrs.frozen(kw_only=True)
class Participant:
    """Who has a track.

    Attributes:
        id: "local" or "bot".
        name: for humans.
        local: whether it is the user of this client.
    """

    id: str
    name: str
    local: bool


@attrs.frozen(kw_only=True)
class TrackData:
    """The data of `track_started`, `track_stopped`, and of the two of the screen's tracks."""

    track: AudioTrack | VideoTrack
    participant: Participant
