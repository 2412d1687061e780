"""Arithmetic on PCM, and the WAV container, with the standard library only.

PCM is signed 16-bit little endian, mono unless said otherwise.
"""

from __future__ import annotations

import array
import logging
import math
import struct
import sys
from collections.abc import Iterable, Iterator

from ..concurrency.logs import package_logger
from ..protocol.validation import BYTES, COUNT, Rule, integer
from .g711 import alaw, mulaw

logger: logging.Logger = package_logger(__name__)

MIN_RATE_HZ = 1_000
MAX_RATE_HZ = 384_000
MAX_CHANNELS = 32
WAV_HEADER_BYTES = 44
# The limit follows from the 32-bit sizes in a WAV header.
MAX_WAV_DATA_BYTES = 0xFFFFFFFF - WAV_HEADER_BYTES

_FORMAT_PCM, _FORMAT_FLOAT, _FORMAT_ALAW, _FORMAT_MULAW, _FORMAT_EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
# Tools that write to a pipe put a size from here on into the header, because they do not know it yet.
STREAMED_BYTES = 0x7F000000
# The bytes that a sample may have.
_WIDTHS = {_FORMAT_PCM: (1, 2, 3, 4), _FORMAT_FLOAT: (4, 8), _FORMAT_ALAW: (1,), _FORMAT_MULAW: (1,)}
_NAMES = {1: "PCM", 2: "ADPCM", 3: "floating point", 6: "A-law", 7: "µ-law", 17: "IMA ADPCM", 49: "GSM 6.10", 85: "MP3"}
# The usual rate of speech recognition. Pipecat's bots assume it for audio over WebSocket by default, and do not convert
# other rates: they then misjudge the length of pauses, and bots of Pipecat 0.0.73 lag more and more.
MICROPHONE_RATE_HZ = 16_000
# Converts unsigned bytes to signed ones by flipping the high bit.
_FLIP_SIGN = bytes(value ^ 0x80 for value in range(256))


# If more than this many seconds of audio follow the chunk that is read, a warning reports it. Less may be padding.
_UNREAD_SECONDS = 0.1
# Frames of a piece of audio whose levels are compared to find channels that cancel each other.
_COMPARED_FRAMES = 2_000
# RMS, of 32768, below which channels are silent rather than cancelled.
_SILENT = 30.0


class OtherFormatError(ValueError):
    """A file that is no WAV file, or holds compressed samples. Its text completes "it is ..."."""


class Mixer:
    """Mixes the interleaved channels of a recording to mono, and notes whether they cancel each other.

    Args:
        channels: number of channels.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._compared = 0
        self._separate = 0  # the energy of the channels, each by itself
        self._together = 0  # the energy of their sum

    def mix(self, pcm: bytes) -> bytes:
        """Return the mean of the channels; see `to_mono()`."""
        if self._channels > 1:
            self._compare(pcm)
        return to_mono(pcm, self._channels)

    @property
    def cancels(self) -> bool:
        """True if the mean is 13 dB softer than the mean of independent channels of the same levels."""
        is_audible = self._separate > _SILENT**2 * self._channels * self._compared
        return is_audible and self._together < 0.05 * self._separate

    def _compare(self, pcm: bytes) -> None:
        size = 2 * self._channels
        step = size * max(1, len(pcm) // size // _COMPARED_FRAMES)
        for at in range(0, len(pcm) - size + 1, step):
            frame = struct.unpack_from(f"<{self._channels}h", pcm, at)
            self._separate += sum(sample * sample for sample in frame)
            self._together += sum(frame) ** 2
            self._compared += 1


def counted(channels: int) -> str:
    """Return a number of channels in words."""
    return f"{channels} channel{'' if channels == 1 else 's'}"


def silence(frames: int) -> bytes:
    """Return `frames` samples of silence."""
    return bytes(2 * frames)


#: Rule for a valid sample rate.
RATE = integer(MIN_RATE_HZ, MAX_RATE_HZ)
SAMPLES = Rule("16-bit samples, an even number of bytes", BYTES.has_type, lambda pcm: memoryview(pcm).nbytes % 2 == 0)


def is_rate(rate_hz: object) -> bool:
    """Return whether the package supports this sample rate."""
    return isinstance(rate_hz, int) and MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ


def check_rate(rate_hz: int) -> int:
    """Return the sample rate; raise `TypeError` or `ValueError` if it is not valid."""
    RATE.check(sample_rate_hz=rate_hz)
    return rate_hz


def checked_audio(pcm: bytes | bytearray | memoryview, sample_rate_hz: int) -> bytes:
    """Return a frame of audio as bytes; raise `TypeError` or `ValueError` if it or its rate is not valid.

    The rules are applied to unusual values only, because this runs for each frame that a session sends.
    """
    if type(pcm) is not bytes or len(pcm) % 2:
        SAMPLES.check(pcm=pcm)
        pcm = bytes(pcm)  # a buffer may be used again, and the length of a memoryview need not be in bytes
    if type(sample_rate_hz) is not int or not MIN_RATE_HZ <= sample_rate_hz <= MAX_RATE_HZ:
        RATE.check(sample_rate_hz=sample_rate_hz)
    return pcm


def to_mono(pcm: bytes | bytearray | memoryview, channels: int = 2) -> bytes:
    """Return the mean of interleaved channels, without an incomplete last frame."""
    BYTES.check(pcm=pcm)
    COUNT.check(channels=channels)
    pcm = bytes(pcm)  # the length of a memoryview need not be in bytes
    if channels == 1:
        return pcm[: len(pcm) - len(pcm) % 2]
    if channels == 2:
        return _mean_of_pairs(memoryview(pcm)[: len(pcm) - len(pcm) % 4])
    samples = array.array("h")
    # A memoryview saves one copy of audio that may have megabytes.
    samples.frombytes(memoryview(pcm)[: len(pcm) - len(pcm) % (2 * channels)])
    _swap_on_big_endian(samples)
    tracks = [memoryview(samples)[channel::channels] for channel in range(channels)]
    mono = array.array("h", (sum(frame) // channels for frame in zip(*tracks, strict=True)))
    _swap_on_big_endian(mono)
    return mono.tobytes()


def _mean_of_pairs(pcm: memoryview) -> bytes:
    """Return the mean of two channels as `to_mono()`, ten times as fast.

    All samples are one integer, whose arithmetic is C's: the sum of a pair has room in the 32 bits of the pair.
    """
    count = len(pcm) // 4
    low, sign = (int.from_bytes(pair * count, "little") for pair in (b"\xff\xff\0\0", b"\0\x80\0\x80"))
    samples = int.from_bytes(pcm, "little") ^ sign  # from 0 to 65535, so that no sum is negative
    mean = (((samples & low) + (samples >> 16 & low)) >> 1 & low) ^ (sign & low)
    return memoryview(mean.to_bytes(4 * count, "little")).cast("H")[::2].tobytes()


def to_stereo(pcm: bytes | bytearray | memoryview) -> bytes:
    """Return two interleaved channels with the same samples, without an incomplete last sample."""
    BYTES.check(pcm=pcm)
    pcm = bytes(pcm)
    samples = array.array("h", pcm[: len(pcm) - len(pcm) % 2])
    both = array.array("h", bytes(4 * len(samples)))
    both[0::2] = both[1::2] = samples
    return both.tobytes()


def to_mono_soon(pcm: bytes, channels: int, rate_hz: int) -> bytes:
    """Mix channels to mono; of more than 1 s, whose mixing takes long, return only the first channel."""
    return (to_mono if len(pcm) <= 2 * channels * rate_hz else first_channel)(pcm, channels)


def first_channel(pcm: bytes, channels: int) -> bytes:
    """Return the first of interleaved channels, without an incomplete last frame."""
    samples = memoryview(pcm)[: len(pcm) - len(pcm) % (2 * channels)].cast("h")
    return samples[::channels].tobytes()


def scaled(pcm: bytes, volume: float) -> bytes:
    """Return the samples at a volume from 0.0 (silence) to 1.0 (unchanged)."""
    factor = round(min(max(volume, 0.0), 1.0) * 65536)
    if factor == 65536:
        return pcm
    return bytes_of([(sample * factor + 32768) >> 16 for sample in samples_of(pcm)])


def samples_from_source(data: object) -> bytes:
    """Return the result of a source's `read()` as bytes.

    Raises:
        TypeError: the result is no bytes-like object.
        ValueError: the number of bytes is odd.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"read() of an AudioSource returns bytes, not {type(data).__name__}")
    pcm = bytes(data)  # the length of a memoryview need not be in bytes
    if len(pcm) % 2:
        raise ValueError(f"read() returned {len(pcm)} bytes; a sample has 2, so the number must be even")
    return pcm


def samples_of(pcm: bytes | bytearray | memoryview) -> array.array[int]:
    """Return the samples as numbers."""
    samples = array.array("h", bytes(pcm))  # of a memoryview it would take the items
    _swap_on_big_endian(samples)
    return samples


def bytes_of(samples: Iterable[int]) -> bytes:
    """Return numbers from -32768 to 32767 as PCM."""
    pcm = array.array("h", samples)
    _swap_on_big_endian(pcm)
    return pcm.tobytes()


def pcm_of_floats(samples: array.array[float]) -> bytes:
    """Return samples from -1.0 to 1.0 as PCM. Louder samples are clipped, and NaN is silent."""
    try:
        import numpy as np
    except ImportError:
        return bytes_of(
            0 if math.isnan(sample) else round(min(32767.0, max(-32768.0, 32768.0 * sample))) for sample in samples
        )
    # Twenty times as fast: minutes of music would keep the GIL for seconds, beside the audio of all sessions.
    scaled = np.nan_to_num(np.asarray(samples))
    np.clip(scaled, -1.0, 1.0, out=scaled)
    scaled *= 32768.0
    np.minimum(np.rint(scaled, out=scaled), 32767.0, out=scaled)
    pcm: bytes = scaled.astype("<i2").tobytes()
    return pcm


def rms(pcm: bytes, step: int = 1) -> float:
    """Return the root mean square of samples, 0 to 32768; an incomplete last sample is ignored.

    Args:
        pcm: the samples.
        step: 1 measures all samples, 2 every second one, and so on.
    """
    samples = array.array("h", pcm[: len(pcm) - len(pcm) % 2])[::step]
    _swap_on_big_endian(samples)
    return math.hypot(*samples) / math.sqrt(max(1, len(samples)))


def parse_wav(data: bytes, name: str = "The audio file") -> tuple[bytes, int]:
    """Read a WAV file of PCM of 8 to 32 bits, floating point of 32 or 64, µ-law or A-law, with any number of channels.

    A size beyond the end of the data, as in streamed or truncated files, means "up to the end". So does audio of size 0
    in a file whose own size is wrong as well. A warning is logged if the file is truncated, if only a part of it is
    read, or if its channels cancel each other.

    Args:
        data: the whole file.
        name: name of the file, for the warnings.

    Returns:
        Mono PCM (bit exact for 16-bit mono; the upper 16 bits of wider samples; the mean of several channels) and its
        sample rate in Hz.

    Raises:
        OtherFormatError: the data is no WAV file, or its samples are compressed.
        ValueError: the file cannot be used; the message says why.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise OtherFormatError("not a WAV file")
    layout: tuple[int, int, int, int] | None = None
    chunks = wav_chunks(data)
    for chunk, size, body in chunks:
        if chunk == b"fmt ":
            layout = _layout(body)
        elif chunk == b"data":
            if layout is None:
                break
            kind, channels, rate, width = layout
            second = channels * width * rate
            complete = body[: len(body) - len(body) % (channels * width)]
            if is_cut(body, size):
                warn_truncated(name, len(body) / second, size / second)
            elif (unread := _unread(chunks)) >= _UNREAD_SECONDS * second:
                warn_unread(name, unread)
            mixer = Mixer(channels)
            pcm = mixer.mix(_decoded(kind, complete, width))
            warn_cancelled(name, mixer)
            return pcm, rate
    raise ValueError("it is damaged: no format followed by audio data in it")


def warn_truncated(name: str, seconds: float, whole: float) -> None:
    """Log a warning about a truncated file. `whole`: the seconds of the complete file, 0.0 if unknown."""
    of = f"of the {whole:.2f} s of audio in its header" if whole else "of audio before its end"
    logger.warning("%s is truncated: it has %.2f s %s", name, seconds, of)


def warn_unread(name: str, size: int) -> None:
    """Log a warning about a file of which `size` bytes are not read."""
    logger.warning(
        "Only a part of %s is read: %d bytes follow the audio that its header describes. If they are audio, because "
        "files were joined or a recording was broken off, save the parts as files of their own",
        f"{name[0].lower()}{name[1:]}",
        size,
    )


def warn_cancelled(name: str, mixer: Mixer) -> None:
    """Log a warning if the channels cancelled each other."""
    if mixer.cancels:
        logger.warning(
            "The channels of %s cancel each other: mixed to mono, nearly nothing is left. Keep one of them: "
            'ffmpeg -i IN -af "pan=mono|c0=c0" -c:a pcm_s16le OUT.wav',
            f"{name[0].lower()}{name[1:]}",
        )


def is_cut(body: bytes, size: int) -> bool:
    """Return whether a chunk is shorter than its stated size, unless that is the size of a stream."""
    return len(body) < size < STREAMED_BYTES


def wav_header(rate_hz: int, data_bytes: int, channels: int = 1) -> bytes:
    """Return the 44 bytes of a WAV file before `data_bytes` of PCM."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", WAV_HEADER_BYTES - 8 + data_bytes, b"WAVE"),
        *(b"fmt ", 16, _FORMAT_PCM, channels, rate_hz, 2 * channels * rate_hz, 2 * channels, 16),
        *(b"data", data_bytes),
    )


def wav_chunks(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield the name, the size by its header and the bytes of each chunk of a RIFF file."""
    position = 12
    if len(data) < position:
        return
    (file_size,) = struct.unpack_from("<I", data, 4)
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        if name == b"data" and not size and file_size + 8 != len(data):
            size = len(data) - position - 8
        yield name, size, data[position + 8 : position + 8 + size]
        position += 8 + size + size % 2


def _unread(rest: Iterator[tuple[bytes, int, bytes]]) -> int:
    """Return the number of bytes that follow the audio and are no chunks of other data."""
    unread = 0
    for name, size, body in rest:
        if unread or name in (b"data", b"RIFF") or size > len(body) or min(name) < 32 or max(name) > 126:
            unread += 8 + len(body)
    return unread


def _layout(body: bytes) -> tuple[int, int, int, int]:
    """Return format, channels, rate and bytes per sample, from a format chunk."""
    if len(body) < 16:
        raise ValueError("it is damaged: its format chunk is too short")
    kind, channels, rate, bytes_per_second, block, bits = struct.unpack_from("<HHIIHH", body)
    if kind == _FORMAT_EXTENSIBLE and len(body) >= 26:
        (kind,) = struct.unpack_from("<H", body, 24)
    if kind not in _WIDTHS:
        raise OtherFormatError(f"a WAV file of {_NAMES.get(kind, f'format {kind}')}")
    width = (bits + 7) // 8
    if block and channels and block != channels * width:
        # Samples may have fewer bits than the bytes that hold them; telephone samples always have one byte.
        held, rest = divmod(block, channels)
        is_held = 8 < bits <= 8 * held and bytes_per_second == rate * block if kind == _FORMAT_PCM else held == 1
        if rest or not is_held:
            raise ValueError(
                f"its header contradicts itself: {counted(channels)} of {bits} bits, in blocks of {block} bytes"
            )
        width = held
    if not (1 <= channels <= MAX_CHANNELS and width in _WIDTHS[kind] and is_rate(rate)):
        audio = f"{_NAMES[kind]} (format {kind}) with {counted(channels)} of {bits} bits at {rate} Hz"
        raise ValueError(f"{audio} is not supported")
    return kind, channels, rate, width


def _decoded(kind: int, data: bytes, width: int) -> bytes:
    if kind == _FORMAT_FLOAT:
        return _from_floats(data, width)
    if kind == _FORMAT_PCM:
        return _to_16_bit(data, width)
    return (mulaw() if kind == _FORMAT_MULAW else alaw()).decode(data)


def _to_16_bit(data: bytes, width: int) -> bytes:
    """Return the upper 16 bits of little-endian samples of `width` bytes; in WAV 8-bit samples are unsigned."""
    if width == 2:
        return data
    result = bytearray(2 * (len(data) // width))
    if width == 1:
        result[1::2] = data.translate(_FLIP_SIGN)
    else:
        result[0::2] = data[width - 2 :: width]
        result[1::2] = data[width - 1 :: width]
    return bytes(result)


def _from_floats(data: bytes, width: int) -> bytes:
    samples = array.array("f" if width == 4 else "d", data)
    _swap_on_big_endian(samples)
    return pcm_of_floats(samples)


def _swap_on_big_endian(samples: array.array[int] | array.array[float]) -> None:
    if sys.byteorder == "big":
        samples.byteswap()
