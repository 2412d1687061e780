"""Audio files of all kinds, some of them by soundfile."""

from __future__ import annotations

import array
import functools
import io
import math
import random
import re
import struct
import sys
import types

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import WavSource, audio_files
from rtvi_sync.media.audio_files import decode
from rtvi_sync.media.pcm import wav_header
from tests.support.wavs import compressed_wav

pytestmark = pytest.mark.inside

RATE = 16_000
TONE = struct.pack(f"<{RATE}h", *(round(8000 * math.sin(0.2 * index)) for index in range(RATE)))


def written(pcm: bytes, channels: int = 1, **options: str) -> bytes:
    """Return soundfile's encoding of this audio."""
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
        *(("WAV", subtype) for subtype in ("IMA_ADPCM", "MS_ADPCM", "GSM610")),
        *(("WAVEX", subtype) for subtype in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "ALAW")),
        *(("FLAC", subtype) for subtype in ("PCM_16", "PCM_24")),
        *(("AIFF", subtype) for subtype in ("PCM_16", "FLOAT")),
        *(("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("CAF", "PCM_16"), ("RF64", "PCM_16")),
        *(("AU", "ULAW"), ("VOC", "PCM_16"), ("W64", "PCM_16"), ("NIST", "PCM_16"), ("PAF", "PCM_16")),
    ],
)
def test_formats(format, subtype, caplog):
    """Each format is read at its own rate and level; lossless ones are bit exact."""
    pcm, rate = decode(written(TONE, format=format, subtype=subtype))
    assert rate == RATE
    assert not caplog.records
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
        (compressed_wav(2, b"abc"), "a WAV file of ADPCM"),
        (compressed_wav(49, b"abc"), "a WAV file of GSM 6.10"),
        (compressed_wav(99, b"abc"), "a WAV file of format 99"),
        (b"fLaC".ljust(12, b"\0"), "not a WAV file"),
        (b"Creative Voice File", "not a WAV file"),
    ],
)
@pytest.mark.parametrize("missing", [None, "its library"])
def test_without_soundfile(data, what, missing, monkeypatch, tmp_path):
    """One line names the file, then its format, then the package that reads it, and the alternatives."""
    if missing is None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    else:
        monkeypatch.delitem(sys.modules, "soundfile", raising=False)
        finder = types.SimpleNamespace(find_spec=lambda *_: (_ for _ in ()).throw(OSError("libsndfile not found")))
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(MissingExtraError, match=rf"^The audio file is {what}\. .* needs .*\[files\].*ffmpeg") as caught:
        decode(data)
    assert caught.value.extra == "files"
    assert "\n" not in str(caught.value)
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(MissingExtraError, match=rf"^The audio file .*a\.wav'? is {what}\. "):
        WavSource(tmp_path / "a.wav")


@pytest.mark.parametrize(
    "data", [b"fLaC" + bytes(50), b"\xff\xf1\x50\x80" + bytes(8), b"<html></html>", compressed_wav(69, b"abc")]
)
def test_files_that_nothing_reads(data, tmp_path):
    """The error names the file and the reason of libsndfile, and the command that converts it."""
    pytest.importorskip("soundfile", reason="the extra `files` installs it")
    (tmp_path / "a.flac").write_bytes(data)
    told = r"^Cannot use the audio file .*a\.flac: it is [^\n]*, and libsndfile cannot read it: [^\n]*ffmpeg -i IN "
    with pytest.raises(DeviceError, match=told):
        WavSource(tmp_path / "a.flac")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"RIFF\0\0\0\0", "too short for an audio file: 8 of at least 12 bytes"),
        (b"RIFF\4\0\0\0WAVE", "damaged.* ffmpeg -i IN -c:a pcm_s16le OUT.wav"),
    ],
)
def test_files_that_are_damaged(data, reason, tmp_path):
    """Damaged files that are refused without a decoder cause an error that names the file, too."""
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(DeviceError, match=rf"^Cannot use the audio file .*a\.wav: it is {reason}"):
        WavSource(tmp_path / "a.wav")


class OtherDecoder:
    """A decoder that fails as no decoder should."""

    samplerate, channels, frames, format, extra_info = RATE, 1, 10 * RATE, "FLAC", ""

    def __init__(self, opened: io.BytesIO, good_reads: int) -> None:
        self.good_reads = good_reads
        if good_reads < 0:
            raise TypeError("no idea")

    def __enter__(self) -> OtherDecoder:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def buffer_read_into(self, buffer: bytearray, _: str) -> int:
        self.good_reads -= 1
        assert self.good_reads >= 0
        return len(buffer) // 4


@pytest.mark.parametrize("good_reads", [-1, 0, 30])
def test_a_decoder_that_fails_in_its_own_way(good_reads, tmp_path, monkeypatch, caplog):
    """Whatever it raises, the audio before that is read, with a warning; without any the error names the file."""
    opened = functools.partial(OtherDecoder, good_reads=good_reads)
    monkeypatch.setitem(sys.modules, "soundfile", types.SimpleNamespace(SoundFile=opened))
    (tmp_path / "a.flac").write_bytes(b"fLaC" + bytes(8))
    if good_reads > 0:
        assert WavSource(tmp_path / "a.flac").total_frames == 30 * RATE // 20
        assert [record.getMessage() for record in caplog.records] == [
            f"The audio file {tmp_path / 'a.flac'} is truncated: it has 1.50 s of the 10.00 s of audio in its header"
        ]
        return
    with pytest.raises(DeviceError, match=r"^Cannot use the audio file .*a\.flac: .*ffmpeg"):
        WavSource(tmp_path / "a.flac")


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a WAV file of these chunks."""
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(chunk)) + chunk for name, chunk in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.fixture(scope="module")
def streamed_mp3():
    """Return MP3 as services stream it: it has no length, and its bit rate differs from its first frame's."""
    tone = struct.pack(f"<{5 * RATE}h", *(round(8000 * math.sin(0.2 * index)) for index in range(5 * RATE)))
    data = written(bytes(2 * RATE) + tone, format="MP3", subtype="MPEG_LAYER_III")
    return data.replace(b"Xing", bytes(4)).replace(b"Info", bytes(4))


@pytest.mark.parametrize("begin", [b"", b"ID3\3\0\0\0\0\1\x0a" + bytes(138)])
def test_mp3_without_its_length(begin, streamed_mp3, caplog):
    """An MP3 file without its length is read to its end, whatever the bit rate of its first frame suggests."""
    pcm, rate = decode(begin + streamed_mp3)
    assert rate == RATE
    assert len(pcm) == pytest.approx(6 * len(TONE), abs=0.2 * len(TONE))
    assert loudness(pcm[-len(TONE) :]) == pytest.approx(loudness(TONE), rel=0.15)
    assert not caplog.records
    cut, _ = decode(begin + streamed_mp3[: len(streamed_mp3) // 2])
    assert 2 * len(TONE) < len(cut) < len(pcm)
    assert cut[: len(TONE)] == pcm[: len(TONE)]


def test_mp3_has_no_clicks(streamed_mp3):
    """A steady tone is steady where one read of the file ends and the next starts."""
    pcm, _ = decode(streamed_mp3)
    tone = array.array("h", pcm[2 * len(TONE) : 5 * len(TONE)])
    assert max(abs(tone[at - 1] + tone[at + 1] - 2 * math.cos(0.2) * tone[at]) for at in range(1, len(tone) - 1)) < 200


def test_mp3_in_a_wav_file(streamed_mp3, caplog):
    """MP3 in a WAV file is read as an MP3 file is; a truncated one is read as far as possible, with a warning."""
    form = struct.pack("<HHIIHHHHIHHH", 85, 1, RATE, 4000, 1, 0, 12, 1, 0, 144, 1, 0)
    data = riff((b"fmt ", form), (b"data", streamed_mp3))
    assert decode(data) == decode(streamed_mp3)
    assert not caplog.records
    pcm, _ = decode(data[: len(data) // 2])
    assert len(pcm) > 2 * len(TONE)
    (record,) = caplog.records
    assert " is truncated: it has " in record.getMessage()


@pytest.mark.parametrize(
    ("format", "subtype"), [("WAV", "PCM_16"), ("WAV", "GSM610"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")]
)
def test_downloads_that_broke_off_in_the_header(format, subtype, tmp_path):
    """However little there is of a file, the error names it."""
    whole = written(TONE, format=format, subtype=subtype)
    path = tmp_path / "a"
    for size in range(20):
        path.write_bytes(whole[:size])
        with pytest.raises(DeviceError, match=rf"^Cannot use the audio file {path}: "):
            WavSource(path)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        *(("WAV", "GSM610"), ("WAV", "IMA_ADPCM"), ("FLAC", "PCM_16"), ("AIFF", "PCM_16"), ("AU", "PCM_16")),
        *(("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("VOC", "PCM_16"), ("W64", "PCM_16")),
    ],
)
def test_downloads_that_broke_off(format, subtype, tmp_path, caplog):
    """The existing part of the audio is read, and one warning names the file."""
    noise = random.Random(1).randbytes(10 * RATE)
    data = written(noise, format=format, subtype=subtype)
    path = tmp_path / "a.audio"
    path.write_bytes(data[: len(data) * 7 // 10])
    assert 2 * RATE < (WavSource(path).total_frames or 0) < 4 * RATE
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"The audio file {path} is truncated: it has ")


def test_a_download_without_any_audio():
    """A file that ends before its first audio is refused with that reason."""
    data = written(TONE, format="OGG", subtype="VORBIS")
    with pytest.raises(ValueError, match="it is truncated before its first audio"):
        decode(data[: len(data) * 9 // 10])


@pytest.mark.parametrize(
    ("format", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
)
def test_files_that_were_joined(format, subtype, tmp_path, caplog):
    """If files were joined, the first one is read, and a warning says so."""
    data = written(TONE, format=format, subtype=subtype)
    path = tmp_path / "a.audio"
    path.write_bytes(data + data)
    assert WavSource(path).total_frames == pytest.approx(RATE, rel=0.2)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"Only a part of the audio file {path} is read: ")


def test_a_header_that_counts_too_little(caplog):
    """The header of a recording that was killed may lack its end; data that other programs append is no audio."""
    assert decode(wav_header(RATE, RATE) + TONE)[0] == TONE[:RATE]
    (record,) = caplog.records
    assert f"{RATE} bytes follow the audio" in record.getMessage()
    caplog.clear()
    plain = wav_header(RATE, len(TONE)) + TONE
    assert decode(plain + b"LIST" + struct.pack("<I", 20_000) + bytes(20_000) + b"TAG" + bytes(125))[0] == TONE
    assert not caplog.records


def pcm_wav(channels: int, bits: int, block: int, data: bytes, kind: int = 1, per_second: int = 0) -> bytes:
    """Return a WAV file whose header has these fields."""
    form = struct.pack("<HHIIHH", kind, channels, RATE, per_second or RATE * block, block, bits)
    return riff((b"fmt ", form), (b"data", data))


SPEECH = array.array("h", TONE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (pcm_wav(1, 24, 4, b"".join(struct.pack("<i", value << 16) for value in SPEECH)), TONE),
        (pcm_wav(2, 20, 8, b"".join(struct.pack("<2i", value << 16, value << 16) for value in SPEECH)), TONE),
        (pcm_wav(1, 12, 2, TONE), TONE),
        (pcm_wav(1, 16, 1, b"\xff\x80\x00", kind=7), struct.pack("<3h", 0, 32124, -32124)),
        (pcm_wav(1, 0, 1, b"\xff\x80\x00", kind=7), struct.pack("<3h", 0, 32124, -32124)),
    ],
)
def test_samples_with_fewer_bits_than_they_take(data, expected):
    """The size of a block says how many bytes a sample has."""
    assert decode(data) == (expected, RATE)


@pytest.mark.parametrize(
    "data",
    [
        pcm_wav(1, 8, 2, TONE),
        pcm_wav(2, 16, 2, TONE),
        pcm_wav(1, 32, 2, TONE),
        pcm_wav(1, 16, 3, TONE, per_second=2 * RATE),
        pcm_wav(1, 16, 4, TONE, per_second=2 * RATE),
        pcm_wav(2, 16, 5, TONE),
        pcm_wav(1, 32, 8, TONE, kind=3),
        pcm_wav(1, 8, 2, TONE, kind=7),
    ],
)
def test_headers_that_contradict_themselves(data):
    """A file whose header contradicts itself is refused, because a bot would hear noise."""
    with pytest.raises(ValueError, match=r"header contradicts itself: \d channels? of .* bits, in blocks of .*ffmpeg"):
        decode(data)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (pcm_wav(1, 16, 2, TONE, kind=3), "floating point (format 3) with 1 channel of 16 bits"),
        (pcm_wav(33, 16, 66, TONE), "PCM (format 1) with 33 channels of 16 bits"),
    ],
)
def test_formats_that_are_not_supported(data, told):
    """The error names the format and its number."""
    with pytest.raises(ValueError, match=re.escape(f"{told} at {RATE} Hz is not supported")):
        decode(data)


@pytest.mark.parametrize("format", ["WAV", "FLAC"])
def test_channels_that_cancel_each_other(format, caplog):
    """A warning says that the mean of the channels is silent; other stereo gives none."""
    frames = [(value, -value) for value in SPEECH]
    decode(written(b"".join(struct.pack("<2h", *frame) for frame in frames), 2, format=format, subtype="PCM_16"))
    (record,) = caplog.records
    assert record.getMessage().startswith("The channels of the audio file cancel each other: ")
    caplog.clear()
    shifted = [value for value, _ in frames[8:] + frames[:8]]  # half a period apart, but for a tenth
    for right in ([value for value, _ in frames], [0] * len(frames), shifted):
        pairs = zip((value for value, _ in frames), right, strict=True)
        decode(written(b"".join(struct.pack("<2h", *pair) for pair in pairs), 2, format=format, subtype="PCM_16"))
    decode(written(bytes(len(TONE)), 2, format=format, subtype="PCM_16"))
    assert not caplog.records


def test_a_file_that_is_truncated(tmp_path, caplog):
    """A truncated file is read up to its end, and a warning names it and both lengths."""
    (tmp_path / "a.wav").write_bytes(wav_header(RATE, 3 * len(TONE)) + TONE)
    assert WavSource(tmp_path / "a.wav").read(2 * RATE) == TONE
    (record,) = caplog.records
    path = tmp_path / "a.wav"
    told = f"The audio file {path} is truncated: it has 1.00 s of the 3.00 s of audio in its header"
    assert (record.name, record.levelname, record.getMessage()) == ("rtvi_sync.media.pcm", "WARNING", told)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_file_from_a_pipe(size, caplog):
    """A file with the sizes that ffmpeg and sox write to a pipe is read up to its end."""
    assert decode(wav_header(RATE, 0)[:-4] + struct.pack("<I", size) + TONE) == (TONE, RATE)
    assert not caplog.records
    pytest.importorskip("soundfile", reason="the extra `files` installs it")
    compressed = compressed_wav(7, bytes([0xFF, 0x80, 0x00]))
    streamed = compressed.replace(struct.pack("<4sI", b"data", 3), struct.pack("<4sI", b"data", size))
    assert decode(streamed) == decode(compressed)


@pytest.mark.parametrize("format", ["WAV", "AIFF"])
def test_a_file_without_audio(format, tmp_path):
    """A file without audio is refused, because a bot would wait for the question."""
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
    """A rate that no session can have is refused, as in a WAV file of PCM."""
    soundfile = pytest.importorskip("soundfile", reason="the extra `files` installs it")
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 500, 1, format="AIFF", subtype="PCM_16") as sound:
        sound.buffer_write(b"ab", "int16")
    with pytest.raises(ValueError, match="500 Hz"):
        decode(file.getvalue())
