"""How loud it is at a microphone."""

from __future__ import annotations

from rtvi_sync import DeviceError, RTVIClient, RTVIError
from rtvi_sync.media import AudioLevel, NullSink

SILENCE = -100.0


class Ear:
    """Listens at a microphone, inside its context. It is a client that is never connected.

    Its attributes may be read at any time, on any thread.

    Attributes:
        now, loudest: in dBFS.
        problem: why nothing is heard; None: nothing is wrong.
    """

    def __init__(self, device_id: str) -> None:
        self.now: float = SILENCE
        self.loudest: float = SILENCE
        self.problem: RTVIError | None = None
        self._client = RTVIClient(mic=device_id, speaker=NullSink())
        self._client.on("local_audio_level", self._heard)
        self._client.on("device_error", self._failed)

    def __enter__(self) -> Ear:
        try:
            self._client.init_devices()
        except RTVIError as error:
            self.problem = error
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _heard(self, level: AudioLevel) -> None:
        self.now, self.loudest, self.problem = level.dbfs, max(self.loudest, level.dbfs), None

    def _failed(self, error: DeviceError) -> None:
        self.now, self.problem = SILENCE, error
