"""Audio files. Read: WAV by this package, other formats and encodings by soundfile. Written: WAV."""

from __future__ import annotations

import array
import contextlib
import io
import os
import re
import stat
import struct
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final

from ..errors import MissingExtraError
from . import pcm as pcm_tools

#: The name endings of audio files, and of files with pictures.
AUDIO_SUFFIXES: Final = (
    *(".aac", ".aif", ".aiff", ".flac", ".m4a", ".mp3", ".oga", ".ogg", ".opus", ".pcm", ".raw", ".wav"),
)
PICTURE_SUFFIXES: Final = (
    *(".avi", ".gif", ".jpeg", ".jpg", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".png", ".webm"),
)

MAX_PCM_BYTES = 256 * 1024 * 1024

_CONVERSION = "convert it: ffmpeg -i IN -c:a pcm_s16le OUT.wav"
# The bytes before the first chunk of a WAV or AIFF file. Those before the audio of other formats are more.
_SHORTEST_HEAD = 12
# Reads per second of audio. If a read of a damaged file fails, the audio of that read is lost.
_READS_PER_SECOND = 20
# A file that claims this number of frames, or more, does not know its length.
_UNKNOWN_FRAMES = 1 << 62
# Share of a second that the end of a complete file may lack, because encoders count differently.
_TOLERANCE = 0.1
# The formats whose files are sometimes joined; libsndfile reads the first one only.
_JOINED_FORMATS = ("FLAC", "OGG", "MP3")
# Bytes behind the audio of such a file that are no tags.
_UNREAD_BYTES = 2048
# libsndfile's notes on a file that ends too early, without an error: the size of the audio, or a sentence.
_SIZE_NOTE = r"(?:data|SSND|riff|Data Size)\s*: (\d+) \(should be (\d+)\)"
_TRUNCATION_NOTE = r"ended unexpectedly|truncated"
# The start of an MP3 frame: the bits of sync, the version, layer III, a bit rate, a sample rate, and the channels.
_MP3_FRAME = rb"(?s:\xff[\xe2\xe3\xf2\xf3\xfa\xfb][\x10-\xef].)"
_MP3_RATES_HZ = (44_100, 48_000, 32_000)


def check_wav_name(path: str | os.PathLike[str]) -> None:
    """Raise `ValueError` if a WAV file would have the name of a file of another format."""
    suffix = PurePath(path).suffix.lower()
    if suffix in AUDIO_SUFFIXES + PICTURE_SUFFIXES and suffix != ".wav":
        shown = os.fspath(path)[:200]
        raise ValueError(f"A WAV file would be written, but {shown} is the name of another format: end it in .wav")


def write_wav(path: str | os.PathLike[str], pcm: bytes | bytearray, rate_hz: int, channels: int = 1) -> None:
    """Write a WAV file. If the disk is full, a shorter valid file remains, or none.

    Raises:
        OSError: not all could be written; the error names the file.
    """

    def shorten(file: io.FileIO, written: int) -> None:
        size = written - pcm_tools.WAV_HEADER_BYTES
        if size < 0:
            remove_part(file)
            return
        size -= size % (2 * channels)
        file.truncate(pcm_tools.WAV_HEADER_BYTES + size)
        file.seek(0)
        file.write(pcm_tools.wav_header(rate_hz, size, channels))

    write_file(path, pcm_tools.wav_header(rate_hz, len(pcm), channels), pcm, shorten=shorten)


def write_file(
    path: str | os.PathLike[str],
    *parts: bytes | bytearray,
    shorten: Callable[[io.FileIO, int], None] = lambda file, _: remove_part(file),
    mode: int = 0o666,
) -> None:
    """Write a file.

    Args:
        path: the file, which is overwritten.
        parts: the content.
        shorten: called with the file and the number of bytes in it if the disk is full. By default the file is removed.
        mode: the permissions of a new file, less the umask.

    Raises:
        OSError: not all could be written; the error names the file.
    """
    written = 0
    try:
        with io.FileIO(os.fspath(path), "w", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            try:
                for part in parts:
                    view = memoryview(part)
                    while view:
                        count = file.write(view)
                        written += count
                        view = view[count:]
            except OSError:
                with contextlib.suppress(OSError):
                    shorten(file, written)
                raise
    except OSError as error:
        error.filename = os.fspath(path)  # an error of a write has none
        raise


def remove_part(file: io.FileIO) -> None:
    """Remove a file that is of no use, because a part of it is missing; a device or pipe is left as it is."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        os.unlink(os.path.realpath(str(file.name)))


def decode(data: bytes, name: str = "The audio file") -> tuple[bytes, int]:
    """Decode an audio file.

    A truncated file is read as far as possible. A warning is logged if the file is truncated, if only a part of it is
    read, or if its channels cancel each other when they are mixed.

    Args:
        data: the whole file.
        name: name of the file, for the warnings.

    Returns:
        Mono PCM, and its sample rate in Hz.

    Raises:
        ValueError: the data is no audio file, is damaged, or has no audio.
        MissingExtraError: the file is no WAV file of plain samples, and soundfile is not installed.
    """
    if not data:
        raise ValueError("it is empty")
    if len(data) < _SHORTEST_HEAD:
        raise ValueError(f"it is too short for an audio file: {len(data)} of at least {_SHORTEST_HEAD} bytes")
    try:
        pcm, rate = pcm_tools.parse_wav(data, name)
    except pcm_tools.OtherFormatError as error:
        pcm, rate = _decode_by_soundfile(data, str(error), name)
    except ValueError as error:
        raise ValueError(f"{error}; {_CONVERSION}") from None
    if not pcm:
        raise ValueError("it has no audio; if it was written to a pipe, write it to a file")
    return pcm, rate


def _decode_by_soundfile(data: bytes, what: str, name: str) -> tuple[bytes, int]:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: it is installed without the library that it needs
        feature = f"{name} is {what}. Reading other formats than plain WAV"
        raise MissingExtraError(feature, "files", hint=f"or {_CONVERSION}") from error
    data, is_cut = _mp3_in_wav(data)
    counted = _with_frame_count(data)
    opened = io.BytesIO(counted)
    try:
        file = soundfile.SoundFile(opened)
    except Exception as error:  # any error means that the file cannot be read
        raise _unreadable(what, error) from error
    with file:
        pcm, failed = _read(file, what, name)
        rate, notes = file.samplerate, file.extra_info
        seconds = len(pcm) / 2 / rate
        whole = file.frames / rate if counted is data and file.frames < _UNKNOWN_FRAMES else 0.0
        is_short = seconds + _TOLERANCE < whole
        sizes = [(int(size), int(there)) for size, there in re.findall(_SIZE_NOTE, notes)]
    is_cut = is_cut or failed or re.search(_TRUNCATION_NOTE, notes) is not None
    is_cut = is_cut or any(there < size < pcm_tools.STREAMED_BYTES for size, there in sizes)
    if is_cut and not pcm:
        raise ValueError("it is truncated before its first audio; get the whole file")
    if is_cut or is_short:
        pcm_tools.warn_truncated(name, seconds, whole if is_short else 0.0)
    elif file.format in _JOINED_FORMATS and (unread := len(counted) - opened.tell()) > _UNREAD_BYTES:
        pcm_tools.warn_unread(name, unread)
    return pcm, rate


def _read(file: Any, what: str, name: str) -> tuple[bytes, bool]:
    """Return the audio of a file as mono PCM, and whether the decoder has failed after some of it."""
    rate, channels = file.samplerate, file.channels
    if not (pcm_tools.is_rate(rate) and 1 <= channels <= pcm_tools.MAX_CHANNELS):
        raise ValueError(f"audio of {pcm_tools.counted(channels)} at {rate} Hz is not supported; {_CONVERSION}")
    # Otherwise soundfile seeks to its current position after each read, after which an MP3 decoder makes a click.
    file.seekable = lambda: False
    mixer = pcm_tools.Mixer(channels)
    parts: list[bytes] = []
    size = 0
    block = bytearray()
    buffer = bytearray(4 * channels * -(-rate // _READS_PER_SECOND))
    failed = False
    # In parts, because a compressed file can be far larger than the memory, and need not state its length.
    while True:
        try:
            # Not `buffer_read()`, which asserts that the file has as many frames as it states.
            frames = file.buffer_read_into(buffer, "float32")
        except Exception as error:
            if not parts and not block:
                raise _unreadable(what, error) from error
            frames, failed = 0, True
        block += memoryview(buffer)[: 4 * channels * frames]
        if len(block) >= 4 * channels * rate or not frames:
            parts.append(mixer.mix(pcm_tools.pcm_of_floats(array.array("f", bytes(block)))))
            size += len(parts[-1])
            block.clear()
        if size > MAX_PCM_BYTES:
            raise ValueError(f"it has more than {MAX_PCM_BYTES >> 20} MiB of audio; split it")
        if not frames:
            pcm_tools.warn_cancelled(name, mixer)
            return b"".join(parts), failed


def _mp3_in_wav(data: bytes) -> tuple[bytes, bool]:
    """Return the MP3 in a WAV file, which libsndfile reads incompletely, and whether it is cut off; or the data."""
    kind = b""
    for chunk, size, body in pcm_tools.wav_chunks(data) if data.startswith(b"RIFF") else ():
        if chunk == b"fmt ":
            kind = body[:2]
        elif chunk == b"data" and kind == b"\x55\0":
            return body, pcm_tools.is_cut(body, size)
    return data, False


def _with_frame_count(data: bytes) -> bytes:
    """Return an MP3 file without a frame count with one that is too large; other data unchanged.

    Without the count, libsndfile derives the length from the bit rate of the first frame, and reads no further: a
    fifth of the file if that frame is silent.
    """
    start = 0
    if data.startswith(b"ID3") and len(data) > 10:
        size = 0
        for byte in data[6:10]:
            size = size << 7 | byte & 0x7F
        start = 10 + size
    frame = data[start : start + 64]
    if re.match(_MP3_FRAME, frame) is None or frame[2] & 0x0C == 0x0C or b"Xing" in frame or b"Info" in frame:
        return data
    # A frame of 64 kbit/s, which has room for the fields. Its version, sample rate and channels match the file's.
    is_version_1 = bool(frame[1] & 0x08)
    is_mono = frame[3] & 0xC0 == 0xC0
    rate = _MP3_RATES_HZ[frame[2] >> 2 & 3] >> (0 if is_version_1 else 1 if frame[1] & 0x10 else 2)
    header = bytes([0xFF, frame[1] | 1, (0x50 if is_version_1 else 0x80) | frame[2] & 0x0C, frame[3]])
    side = bytes((17 if is_mono else 32) if is_version_1 else (9 if is_mono else 17))
    fields = struct.pack(">4sII", b"Info", 1, len(data))
    return (header + side + fields).ljust((144 if is_version_1 else 72) * 64_000 // rate, b"\0") + data[start:]


def _unreadable(what: str, error: Exception) -> ValueError:
    """Return the error for a file that the decoder cannot read."""
    reason = getattr(error, "error_string", None) or repr(error)
    reason = reason.removeprefix("Error : ").rstrip(".")
    return ValueError(f"it is {what}, and libsndfile cannot read it: {reason}; {_CONVERSION}")
