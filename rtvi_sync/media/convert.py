"""Formats of telephones and browsers: other sample rates, µ-law and A-law, stereo, and frames of a fixed size.

PCM is signed 16-bit little endian, mono unless said otherwise. Nothing here needs a library; with the extra `resample`
other sample rates are made by soxr, and without it by linear interpolation, which distorts speech audibly.
"""

from __future__ import annotations

from typing import Final

from ..concurrency.lock import new_lock
from ..errors import DeviceError
from ..protocol.validation import BYTES, COUNT, COUNT_OR_ZERO, Rule
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource
from .g711 import alaw, mulaw
from .kinds import is_sink, is_source
from .leases import lease_key_of
from .pcm import to_mono, to_stereo
from .resample import RateConverter

__all__ = [
    "FrameSink",
    "ResamplingSink",
    "ResamplingSource",
    "decode_alaw",
    "decode_mulaw",
    "encode_alaw",
    "encode_mulaw",
    "to_mono",
    "to_stereo",
]

_SOURCE: Final = Rule("an AudioSource such as WavSource(path)", is_source)
_SINK: Final = Rule("an AudioSink such as WavSink(path)", is_sink)


# -- µ-law and A-law --------------------------------------------------------------------------------------------------


def encode_mulaw(pcm: bytes | bytearray | memoryview) -> bytes:
    """Return PCM as µ-law (G.711, PCMU), one byte a sample.

    Raises:
        ValueError: The number of bytes is odd.
    """
    pcm_tools.SAMPLES.check(pcm=pcm)
    return mulaw().encode(pcm_tools.samples_of(pcm))


def decode_mulaw(data: bytes | bytearray | memoryview) -> bytes:
    """Return µ-law (G.711, PCMU) as PCM."""
    BYTES.check(data=data)
    return mulaw().decode(bytes(data))


def encode_alaw(pcm: bytes | bytearray | memoryview) -> bytes:
    """Return PCM as A-law (G.711, PCMA), one byte a sample.

    Raises:
        ValueError: The number of bytes is odd.
    """
    pcm_tools.SAMPLES.check(pcm=pcm)
    return alaw().encode(pcm_tools.samples_of(pcm))


def decode_alaw(data: bytes | bytearray | memoryview) -> bytes:
    """Return A-law (G.711, PCMA) as PCM."""
    BYTES.check(data=data)
    return alaw().decode(bytes(data))


# -- sample rates -----------------------------------------------------------------------------------------------------


class SourceWrapper:
    """The base class of sources that read another source, which `source` returns. They end and are closed with it.

    Like every source of the application, they are read on a thread of their own.

    Args:
        source: the source to read, which is closed with this one. One session at a time uses it, with or without this
            one.
    """

    def __init__(self, source: AudioSource) -> None:
        _SOURCE.check(source=source)
        self._source = source
        self._source_rate: int | None = None  # read once per session

    @property
    def source(self) -> AudioSource:
        """The source that this one reads."""
        return self._source

    @property
    def lease_key(self) -> object:
        """The key of the wrapped source, because its session reads it."""
        return lease_key_of(self._source)

    def close(self) -> None:
        """Close the source, which may be read again."""
        self._source_rate = None
        self._source.close()

    def _rate_of_source(self) -> int:
        """Return the rate of the source, which must be valid."""
        self._source_rate = self._source_rate or pcm_tools.check_rate(self._source.sample_rate_hz)
        return self._source_rate


def origin_of(source: AudioSource) -> AudioSource:
    """Return the source whose audio is sent: the source itself, or the source inside its wrappers."""
    while isinstance(source, SourceWrapper):
        source = source.source
    return source


class ResamplingSource(SourceWrapper):
    """A source that reads another source and returns its audio at another sample rate.

    It ends, is closed and is read again as that source. Like every source of the application it is read on a thread of
    its own, except for a `PushSource`, which needs none.

    Args:
        source: The source to read, which is closed with this one. One session at a time uses it, with or without this
            one.
        sample_rate_hz (hertz): Sample rate that the bot gets.
    """

    def __init__(self, source: AudioSource, sample_rate_hz: int) -> None:
        super().__init__(source)
        self._converter = RateConverter(pcm_tools.check_rate(sample_rate_hz))
        self._ready = b""
        self._ended = False

    def __repr__(self) -> str:
        return f"ResamplingSource({self._source!r}, {self._converter.to_hz})"

    @property
    def source(self) -> AudioSource:
        """The source that this one reads, which is no `ResamplingSource`."""
        return self._source.source if type(self._source) is ResamplingSource else self._source

    @property
    def sample_rate_hz(self) -> int:
        """The rate that the bot gets."""
        return self._converter.to_hz

    def read(self, frames: int) -> bytes:
        """Return up to `frames` samples at the new rate; `b""` after the last."""
        COUNT.check(frames=frames)
        rate = self._rate_of_source()
        while not self._ready and not self._ended:
            pcm = pcm_tools.samples_from_source(self._source.read(-(-frames * rate // self._converter.to_hz)))
            self._ended = not pcm
            self._ready = self._converter.convert(pcm, rate) if pcm else self._converter.finish()
        pcm, self._ready = self._ready[: 2 * frames], self._ready[2 * frames :]
        return pcm

    def close(self) -> None:
        """Close the source, which may be read again."""
        self._converter.reset()
        self._ready, self._ended = b"", False
        super().close()


class ResamplingSink:
    """A sink that passes the bot's audio on to another sink, at one sample rate, for any rate of the bot.

    Audio of that rate passes bit exact. Other audio is up to 40 ms late, or 60 from 16 to 8 kHz. Its last samples
    follow with the next audio, or at the end of the session.

    Args:
        sink: The sink to write to, which is dropped and closed with this one. One session at a time uses it, with or
            without this one.
        sample_rate_hz (hertz): Sample rate of the audio that the sink gets.
    """

    def __init__(self, sink: AudioSink, sample_rate_hz: int) -> None:
        _SINK.check(sink=sink)
        self._sink = sink
        self._converter = RateConverter(pcm_tools.check_rate(sample_rate_hz))
        #: As the sink's: a recorder also gets audio that an interruption cancels; see `AudioSink`.
        self.is_recorder: bool = getattr(sink, "is_recorder", False) is True

    def __repr__(self) -> str:
        return f"ResamplingSink({self._sink!r}, {self._converter.to_hz})"

    @property
    def lease_key(self) -> object:
        """The key of the wrapped sink, because its session writes to it."""
        return lease_key_of(self._sink)

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Write the converted audio."""
        for part in self._converter.convert_in_parts(pcm, sample_rate_hz):
            self._write(part)

    def drop(self) -> None:
        """Discard the samples that are held back, and have the sink discard its unplayed audio."""
        self._converter.reset()
        self._sink.drop()

    def close(self) -> None:
        """Write the samples that are held back, and close the sink."""
        try:
            self._write(self._converter.finish())
        finally:
            self._sink.close()

    def _write(self, pcm: bytes) -> None:
        if pcm:
            self._sink.write(pcm, self._converter.to_hz)


# -- frames of a fixed size -------------------------------------------------------------------------------------------


class FrameSink:
    """A sink for an output that takes one frame of a fixed size at fixed times, as RTP and sound cards do.

    The output's thread calls `read()`. If the bot is silent, or its audio is late, the frame is silence. When the bot
    starts speaking, `delay_frames` more frames are silence, so that audio that arrives a little late leaves no gap. An
    interruption discards the audio that was not read yet.

    Args:
        frame_size: Samples in a frame; 160 are 20 ms at 8 kHz.
        sample_rate_hz (hertz): Sample rate of the output. For a bot of another rate use
            `ResamplingSink(sink, sample_rate_hz)`.
        delay_frames: Frames of silence before the bot's speech.
        max_bytes (bytes): Limit of the unread audio; beyond it the sink ends with a `device_error`.
    """

    def __init__(
        self, frame_size: int, sample_rate_hz: int, *, delay_frames: int = 2, max_bytes: int = 16 * 1024 * 1024
    ) -> None:
        COUNT.check(frame_size=frame_size, max_bytes=max_bytes)
        COUNT_OR_ZERO.check(delay_frames=delay_frames)
        self._frame_bytes = 2 * frame_size
        self._rate = pcm_tools.check_rate(sample_rate_hz)
        self._delay_frames = self._delay_left = delay_frames
        self._max_bytes = max_bytes
        # Guards `_waiting`, which the session's thread and the output's hold for a moment.
        self._lock = new_lock()
        self._waiting = bytearray()

    @property
    def waiting_seconds(self) -> float:
        """The seconds of the bot's audio that wait to be read; 0.0 if all was read."""
        return len(self._waiting) / (2 * self._rate)

    def read(self) -> bytes:
        """Return the next frame; does not block. One thread at a time may call it."""
        with self._lock:
            if self._waiting and not self._delay_left:
                frame = bytes(self._waiting[: self._frame_bytes])
                del self._waiting[: self._frame_bytes]
                return frame.ljust(self._frame_bytes, b"\0")
            self._delay_left = self._delay_left - 1 if self._waiting else self._delay_frames
        return bytes(self._frame_bytes)

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append the audio.

        Raises:
            DeviceError: It has another rate, or the sink is full.
        """
        if sample_rate_hz != self._rate:
            raise DeviceError(
                f"The bot's audio has {sample_rate_hz} Hz and this FrameSink {self._rate} Hz; give the client a "
                f"ResamplingSink(sink, {self._rate})",
                devices=("speaker",),
            )
        with self._lock:
            if len(self._waiting) + len(pcm) > self._max_bytes:
                raise DeviceError(
                    f"This FrameSink is full ({self._max_bytes} bytes); call read() for each frame of the output",
                    devices=("speaker",),
                )
            self._waiting += pcm

    def drop(self) -> None:
        """Discard the audio that was not read yet."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Do nothing: the rest can still be read."""
