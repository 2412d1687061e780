"""Audio files, from bytes to PCM: WAV by this package, other formats and encodings by soundfile."""

from __future__ import annotations

import array
import io
from typing import Any

from ..errors import MissingExtraError
from . import pcm as pcm_tools

MAX_PCM_BYTES = 256 * 1024 * 1024

# The first bytes of other audio files, which are named in the error if soundfile is not installed.
_FORMATS = {
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"FORM": "AIFF",
    b".snd": "AU",
    b"caff": "CAF",
    b"RF64": "RF64",
}


def decode(data: bytes, name: str = "The audio file") -> tuple[bytes, int]:
    """Decode an audio file.

    Args:
        data: the whole file.
        name: of the file, for the warning that it is truncated.

    Returns:
        Mono PCM, and its sample rate in Hz.

    Raises:
        ValueError: it is no audio file, a damaged one, or one without audio.
        MissingExtraError: only soundfile can read it, and that is not installed.
    """
    pcm, rate = _decode(data, name)
    if not pcm:
        raise ValueError("it has no audio; if it was written to a pipe, write it to a file")
    return pcm, rate


def _decode(data: bytes, name: str) -> tuple[bytes, int]:
    try:
        return pcm_tools.parse_wav(data, name)
    except pcm_tools.OtherEncodingError as error:
        return _decode_by_soundfile(data, str(error))
    except ValueError:
        what = next((what for begin, what in _FORMATS.items() if data.startswith(begin)), None)
        if what is None and not _is_mpeg_layer_3(data):
            raise
        return _decode_by_soundfile(data, what or "MP3")


def _is_mpeg_layer_3(data: bytes) -> bool:
    """Tell whether a file without a tag begins with a frame of MP3: eleven bits of sync, and the bits of its layer."""
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2


def _decode_by_soundfile(data: bytes, what: str) -> tuple[bytes, int]:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: it is installed without the library that it needs
        raise MissingExtraError(
            f"Reading a file of {what}", "files", hint="or convert it: ffmpeg -i IN -c:a pcm_s16le OUT.wav"
        ) from error
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return _read(file)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"libsndfile cannot read this file of {what}: {error.error_string.rstrip('.')}") from None


def _read(file: Any) -> tuple[bytes, int]:
    rate, channels = file.samplerate, file.channels
    if not (pcm_tools.is_rate(rate) and 1 <= channels <= pcm_tools.MAX_CHANNELS):
        raise ValueError(f"{channels} channels at {rate} Hz are not supported")
    chunks: list[bytes] = []
    size = 0
    # In chunks, because a compressed file can be far larger than the memory, and need not say how long it is.
    while chunk := bytes(file.buffer_read(rate, "float32")):
        chunks.append(pcm_tools.to_mono(pcm_tools.pcm_of_floats(array.array("f", chunk)), channels))
        size += len(chunks[-1])
        if size > MAX_PCM_BYTES:
            raise ValueError(f"it has more than {MAX_PCM_BYTES >> 20} MiB of audio; split it")
    return b"".join(chunks), rate
