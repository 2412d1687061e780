"""The audio of one side of a turn."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.shield import shielded
from ..errors import DeviceError, UsageError
from ..protocol.record import Record
from ..protocol.validation import PATH
from .audio_files import check_wav_name, write_wav
from .base import AudioFrame
from .devices.backend import audio_backend
from .devices.device import END_TIMEOUT, OPEN_TIMEOUT, await_opening
from .pcm import wav_header
from .resample import RateConverter

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TurnAudio(Record):
    """The audio of one side in a turn. Falsy if it is empty.

    Attributes:
        pcm: Signed 16-bit little endian samples, mono.
        sample_rate_hz (hertz): Sample rate of the first frame, to which other frames were converted. 0 if there is no
            audio.
        truncated: True if audio is missing: the bot's audio beyond `max_turn_audio`, the user's audio more than a
            minute before its end, or audio that was dropped because a handler was too slow.
    """

    pcm: bytes = attrs.field(default=b"", repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate_hz: int = 0
    truncated: bool = False

    def __bool__(self) -> bool:
        return bool(self.pcm)

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.pcm) / 2 / self.sample_rate_hz if self.sample_rate_hz else 0.0

    @property
    def wav(self) -> bytes:
        """The audio as the bytes of a WAV file."""
        return wav_header(self.sample_rate_hz or 16_000, len(self.pcm)) + self.pcm

    def _repr_html_(self) -> str | None:
        """Return the value of a cell for a notebook: a player. None, for the repr, if there is no audio."""
        if not self:
            return None
        return f'<audio controls src="data:audio/wav;base64,{base64.b64encode(self.wav).decode()}"></audio>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a WAV file. If the disk is full, the file has the first part of the audio.

        Raises:
            ValueError: The name has the ending of another format, such as ``answer.mp3``.
            UsageError: There is no audio.
            OSError: The file cannot be written.
        """
        PATH.check(path=path)
        check_wav_name(path)
        if not self:
            why = (
                "all of it was dropped. Raise max_turn_audio, and let handlers return sooner"
                if self.truncated
                else "this side of the turn was not heard. It was typed or not spoken, or the transport carries no "
                "audio. Check first: `if turn.audio:`"
            )
            raise UsageError(f"There is no audio to save in {os.fspath(path)[:200]}: {why}")
        write_wav(path, self.pcm, self.sample_rate_hz)

    def play(self) -> None:
        """Play the audio on the default loudspeaker, and return when it was played. Any thread may call it.

        Ctrl-C stops it. Each call opens the loudspeaker again, beside a client's own.

        Raises:
            MissingExtraError: No library for it is installed; the extra `sounddevice` installs one.
            DeviceError: There is no loudspeaker, or it failed.
        """
        if self:
            stop = Latch()
            shielded(partial(self._play, stop), on_interrupt=stop.set)

    def _play(self, stop: Latch) -> None:
        from .devices.speaker import DeviceSpeaker  # most turns are not played

        errors: list[DeviceError] = []

        def failed(error: DeviceError) -> None:
            errors.append(error)
            stop.set()

        speaker = DeviceSpeaker(
            audio_backend(),
            None,
            volume=lambda: 1.0,
            report=failed,
            opened=lambda _: None,
            sample_rate_hz=self.sample_rate_hz,
            queue_seconds=math.inf,
        )
        await_opening(speaker, Deadline(OPEN_TIMEOUT))
        speaker.write(self.pcm, self.sample_rate_hz)
        speaker.play_out(stop)
        speaker.interrupt()
        speaker.halt()
        speaker.join(Deadline(END_TIMEOUT))
        if errors:
            raise errors[0]

    def to_numpy(self) -> NDArray[numpy.int16]:
        """Return the samples as a read-only array of shape (samples, 1).

        Raises:
            MissingExtraError: numpy is not installed; the extras `resample` and `notebook` install it.
        """
        return AudioFrame(pcm=self.pcm, sample_rate_hz=self.sample_rate_hz, timestamp=0.0).to_numpy()


def turn_audio_of(frames: Sequence[AudioFrame], max_seconds: float = math.inf, *, truncated: bool = False) -> TurnAudio:
    """Join the frames of one side of a turn, up to `max_seconds`."""
    if not frames:
        return TurnAudio(truncated=truncated)
    rate = frames[0].sample_rate_hz
    most = 2 * max_seconds * rate
    parts: list[bytes] = []
    size = 0
    for part in _at_rate(frames, rate):
        parts.append(part)
        size += len(part)
        if size > most:  # here, because audio of a low rate grows up to some hundred times when it is converted
            break
    pcm = b"".join(parts) if size <= most else b"".join(parts)[: 2 * int(max_seconds * rate)]
    return TurnAudio(pcm=pcm, sample_rate_hz=rate if pcm else 0, truncated=truncated or len(pcm) < size)


def _at_rate(frames: Iterable[AudioFrame], rate: int) -> Iterator[bytes]:
    """Yield the audio of the frames in parts, by one converter, which makes no click where two frames meet."""
    converter = RateConverter(rate)
    for frame in frames:
        yield from converter.convert_in_parts(frame.pcm, frame.sample_rate_hz)
    yield converter.finish()
