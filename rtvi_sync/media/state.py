"""The data of the events about devices and tracks."""

from __future__ import annotations

from typing import Literal

import attrs

from ..errors import DeviceError
from .base import AudioSink
from .tracks import AudioTrack, VideoTrack


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

    The event is published once for each run of losses, when it begins, and once more for what a sink has not taken at
    the end of the session, or after it was replaced. `stats().speaker_dropped_seconds` counts all losses.

    Attributes:
        seconds: audio lost in this run when the event was published; at the end, what is dropped then.
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
