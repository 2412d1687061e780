"""The level of a microphone."""

from __future__ import annotations

from rtvi_sync import DeviceError, RTVIClient, RTVIError
from rtvi_sync.media import AudioLevel, NullSink

SILENCE_DBFS = -100.0


class MicLevelMonitor:
    """Measures the level of a microphone inside its context, by a client that is never connected.

    Its attributes may be read at any time, on any thread.

    Attributes:
        current_dbfs, loudest_dbfs: the latest level and the peak.
        problem: the error of the microphone; None: there is none.
    """

    def __init__(self, device_id: str) -> None:
        self.current_dbfs: float = SILENCE_DBFS
        self.loudest_dbfs: float = SILENCE_DBFS
        self.problem: RTVIError | None = None
        self._client = RTVIClient(mic=device_id, speaker=NullSink())
        self._client.on("local_audio_level", self._on_level)
        self._client.on("device_error", self._on_device_error)

    def __enter__(self) -> MicLevelMonitor:
        try:
            self._client.init_devices()
        except RTVIError as error:
            self.problem = error
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _on_level(self, level: AudioLevel) -> None:
        self.current_dbfs = level.dbfs
        self.loudest_dbfs = max(self.loudest_dbfs, level.dbfs)
        self.problem = None

    def _on_device_error(self, error: DeviceError) -> None:
        self.current_dbfs, self.problem = SILENCE_DBFS, error
