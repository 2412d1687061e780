"""Audio files of all kinds, some of them by soundfile."""

from __future__ import annotations

import array
import io
import math
import struct
import sys
import types

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import WavSource, audio_files
from rtvi_sync.media.audio_files import decode
from rtvi_sync.media.pcm import wav_header
from tests.support.wavs import compressed_wav

RATE = 16_000
TONE = struct.pack(f"<{RATE}h", *(round(8000 * math.sin(0.2 * index)) for index in range(RATE)))


def written(pcm: bytes, channels: int = 1, **options: str) -> bytes:
    """Return what soundfile makes of this audio."""
    soundfile = pytest.importorskip("soundfile", reason="the extra `files` installs it")
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, channels, **options) as sound:
        if sound.subtype in ("FLOAT", "DOUBLE"):  # soundfile does not scale integers for these
            floats = array.array("f", (value / 32768 for value in array.array("h", pcm)))
            sound.buffer_write(floats.tobytes(), "float32")
        else:
            sound.buffer_write(pcm, "int16")
    return file.getvalue()


def loudness(pcm: bytes) -> float:
    """Return the root mean square of samples."""
    values = array.array("h", pcm)
    return math.hypot(*values) / math.sqrt(len(values))


def test_plain_wav_needs_nothing(monkeypatch):
    """WAV files of PCM are read without soundfile; so are those below whose samples are not PCM."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert decode(wav_header(RATE, len(TONE)) + TONE) == (TONE, RATE)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        *(("WAV", subtype) for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")),
        *(("WAV", subtype) for subtype in ("IMA_ADPCM", "MS_ADPCM")),
        *(("WAVEX", subtype) for subtype in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "ALAW")),
        *(("FLAC", subtype) for subtype in ("PCM_16", "PCM_24")),
        *(("AIFF", subtype) for subtype in ("PCM_16", "FLOAT")),
        *(("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("CAF", "PCM_16"), ("RF64", "PCM_16")),
        ("AU", "ULAW"),
    ],
)
def test_formats(format, subtype):
    """Each is read at its own rate and as loud as it was written; what loses nothing is bit exact."""
    pcm, rate = decode(written(TONE, format=format, subtype=subtype))
    assert rate == RATE
    assert len(pcm) == pytest.approx(len(TONE), rel=0.2)
    assert loudness(pcm) == pytest.approx(loudness(TONE), rel=0.15)
    if subtype in ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        assert pcm == TONE


@pytest.mark.parametrize("format", ["WAV", "FLAC", "AIFF"])
def test_channels_are_mixed(format):
    """Of several channels the mean is sent, as from a WAV file."""
    stereo = b"".join(struct.pack("<2h", 100 * index, -100 * index + 20) for index in range(50))
    assert decode(written(stereo, 2, format=format, subtype="PCM_16")) == (struct.pack("<h", 10) * 50, RATE)


def test_logarithmic_samples(monkeypatch):
    """The loudest and the softest codes have the values of G.711; soundfile is not needed."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert decode(compressed_wav(7, bytes([0xFF, 0x80, 0x00])))[0] == struct.pack("<3h", 0, 32124, -32124)
    assert decode(compressed_wav(6, bytes([0xD5, 0xAA, 0x2A])))[0] == struct.pack("<3h", 8, 32256, -32256)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (compressed_wav(2, b"abc"), "ADPCM"),
        (compressed_wav(99, b"abc"), "WAV format 99"),
        (b"fLaC\0\0", "FLAC"),
        (b"OggS\0\2", "Ogg"),
        (b"ID3\4\0", "MP3"),
        (b"\xff\xfb\x90\x64", "MP3"),
        (b"\xff\xe3\x18\xc4", "MP3"),  # MPEG 2.5, of 8 to 12 kHz
    ],
)
@pytest.mark.parametrize("missing", [None, "its library"])
def test_without_soundfile(data, what, missing, monkeypatch, tmp_path):
    """One line says what the file holds, what reads it, and what else can be done."""
    if missing is None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    else:
        monkeypatch.delitem(sys.modules, "soundfile", raising=False)
        finder = types.SimpleNamespace(find_spec=lambda *_: (_ for _ in ()).throw(OSError("libsndfile not found")))
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(MissingExtraError, match=rf"a file of {what} needs .*rtvi_sync\[files\].*ffmpeg") as caught:
        decode(data)
    assert caught.value.extra == "files"
    assert "\n" not in str(caught.value)
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(MissingExtraError, match=what):
        WavSource(tmp_path / "a.wav")


def test_aac_is_not_taken_for_mp3():
    """A frame of ADTS begins with the same bits of sync, and has no layer."""
    for begin in b"\xff\xf1\x50\x80", b"\xff\xf9\x50\x80":
        with pytest.raises(ValueError, match="not a WAV file"):
            decode(begin)


def test_files_that_are_damaged(tmp_path):
    """A file that libsndfile refuses is refused with its reason."""
    pytest.importorskip("soundfile", reason="the extra `files` installs it")
    (tmp_path / "a.flac").write_bytes(b"fLaC" + bytes(50))
    with pytest.raises(DeviceError, match=r"Cannot use the audio file .*a\.flac: libsndfile cannot read .* FLAC: "):
        WavSource(tmp_path / "a.flac")


def test_a_file_that_is_truncated(tmp_path, caplog):
    """It is read up to its end, and a warning names it and both lengths."""
    (tmp_path / "a.wav").write_bytes(wav_header(RATE, 3 * len(TONE)) + TONE)
    assert WavSource(tmp_path / "a.wav").read(2 * RATE) == TONE
    (record,) = caplog.records
    path = tmp_path / "a.wav"
    told = f"The audio file {path} is truncated: it has 1.00 s of the 3.00 s of audio in its header"
    assert (record.name, record.levelname, record.getMessage()) == ("rtvi_sync.media.pcm", "WARNING", told)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_file_from_a_pipe(size, caplog):
    """ffmpeg and sox write these sizes where they cannot return to the header; the audio goes up to the end."""
    assert decode(wav_header(RATE, 0)[:-4] + struct.pack("<I", size) + TONE) == (TONE, RATE)
    assert not caplog.records
    pytest.importorskip("soundfile", reason="the extra `files` installs it")
    compressed = compressed_wav(7, bytes([0xFF, 0x80, 0x00]))
    streamed = compressed.replace(struct.pack("<4sI", b"data", 3), struct.pack("<4sI", b"data", size))
    assert decode(streamed) == decode(compressed)


@pytest.mark.parametrize("format", ["WAV", "AIFF"])
def test_a_file_without_audio(format, tmp_path):
    """It is refused, because a bot would wait for the question."""
    (tmp_path / "a.wav").write_bytes(wav_header(RATE, 0) if format == "WAV" else written(b"", format=format))
    with pytest.raises(DeviceError, match=r"^Cannot use the audio file .*a\.wav: it has no audio; [^\n]*pipe"):
        WavSource(tmp_path / "a.wav")


def test_samples_that_are_no_numbers():
    """libsndfile passes them on; they are silent."""
    soundfile = pytest.importorskip("soundfile", reason="the extra `files` installs it")
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, format="AIFF", subtype="FLOAT") as sound:
        sound.buffer_write(struct.pack("=4f", math.nan, 0.25, math.inf, -math.inf), "float32")
    assert decode(file.getvalue())[0] == struct.pack("<4h", 0, 8192, 32767, -32768)


def test_a_long_file_is_refused(monkeypatch):
    """A small file may hold more audio than a source keeps in memory."""
    data = written(bytes(10 * 2 * RATE), format="FLAC", subtype="PCM_16")
    assert len(data) < 100_000
    monkeypatch.setattr(audio_files, "MAX_PCM_BYTES", 100_000)
    with pytest.raises(ValueError, match="more than 0 MiB"):
        decode(data)


def test_a_rate_that_no_session_has():
    """It is refused, as in a WAV file of PCM."""
    soundfile = pytest.importorskip("soundfile", reason="the extra `files` installs it")
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 500, 1, format="AIFF", subtype="PCM_16") as sound:
        sound.buffer_write(b"ab", "int16")
    with pytest.raises(ValueError, match="500 Hz"):
        decode(file.getvalue())
