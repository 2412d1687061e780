"""PCM conversion and the WAV container."""

from __future__ import annotations

import array
import io
import math
import random
import struct
import sys
import wave

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.media import pcm

pytestmark = pytest.mark.inside


def wav(channels: int, width: int, rate: int, data: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(data)
    return file.getvalue()


def samples(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}h", *values)


@given(st.lists(st.integers(-32768, 32767)))
def test_16_bit_mono_is_bit_exact(values):
    """A 16-bit mono file is read byte for byte."""
    data = samples(*values)
    assert pcm.parse_wav(wav(1, 2, 16000, data)) == (data, 16000)


@given(st.lists(st.integers(-32768, 32767)), st.sampled_from([1, 3, 4]))
def test_other_widths_keep_the_upper_bits(values, width):
    """8, 24 and 32-bit samples become the 16-bit ones of the same value."""
    if width == 1:
        data = bytes((value >> 8) + 128 for value in values)
        expected = [value >> 8 << 8 for value in values]
    else:
        data = b"".join(bytes([0xA5] * (width - 2)) + struct.pack("<h", value) for value in values)
        expected = values
    assert pcm.parse_wav(wav(1, width, 8000, data)) == (samples(*expected), 8000)


@given(st.lists(st.tuples(*[st.integers(-32768, 32767)] * 2)))
def test_stereo_becomes_the_mean(frames):
    """Two channels are averaged, without overflow at the extremes."""
    data = b"".join(samples(*frame) for frame in frames)
    mono = samples(*((left + right) // 2 for left, right in frames))
    assert pcm.parse_wav(wav(2, 2, 44100, data)) == (mono, 44100)
    assert pcm.to_mono(data, 2) == mono


def test_more_channels_and_incomplete_frames():
    """Any number of channels is averaged, and an incomplete last frame is cut off."""
    assert pcm.to_mono(samples(3, 6, 9, -3, -6, -9) + b"\1\2\3", 3) == samples(6, -6)
    assert pcm.to_mono(b"\1\2\3", 1) == b"\1\2"


def test_the_first_channel():
    """The first of interleaved channels is returned, without an incomplete last frame."""
    assert pcm.first_channel(samples(3, 6, 9, -3, -6, -9) + b"\1\2\3", 3) == samples(3, -3)
    assert pcm.first_channel(b"\1\2\3", 1) == b"\1\2"


def test_chunks_that_are_not_audio_are_skipped():
    """Other chunks, also of odd size, may precede and follow format and data."""
    plain = wav(1, 2, 16000, samples(1, 2, 3))
    info = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    assert pcm.parse_wav(plain[:12] + info + plain[12:36] + info + plain[36:] + info)[0] == samples(1, 2, 3)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 1000])
def test_a_size_beyond_the_end_means_up_to_the_end(size):
    """Streamed or truncated files are read up to their end."""
    plain = wav(1, 2, 16000, samples(1, 2, 3))
    assert pcm.parse_wav(plain[:40] + struct.pack("<I", size) + plain[44:] + b"\7")[0] == samples(1, 2, 3)


@pytest.mark.parametrize("riff_size", [0, 36, 0xFFFFFFFF])
def test_no_size_means_up_to_the_end(riff_size):
    """A file that was written to a pipe, without sizes, is read up to its end."""
    plain = wav(1, 2, 16000, samples(1, 2, 3))
    streamed = plain[:4] + struct.pack("<I", riff_size) + plain[8:40] + bytes(4) + plain[44:]
    assert pcm.parse_wav(streamed)[0] == samples(1, 2, 3)


def test_no_samples():
    """In a complete file, data after an empty chunk of audio is not audio."""
    chunks = wav(1, 2, 16000, b"")[12:] + b"LIST" + struct.pack("<I", 4) + b"abcd"
    assert pcm.parse_wav(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)[0] == b""


@pytest.fixture(params=[True, False])
def numpy(request, monkeypatch):
    """Numpy is installed, or not."""
    if request.param:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setitem(sys.modules, "numpy", None)


@pytest.mark.parametrize(("code", "width"), [("f", 4), ("d", 8)])
@pytest.mark.usefixtures("numpy")
def test_floating_point(code, width):
    """Samples from -1 to 1 get the range of 16 bits, and louder ones are clipped."""
    values = (0.0, 1 / 32768, -1.0, 0.5, 12345 / 32768, 1.0, 1.5, -7.0, math.inf, -math.inf)
    body = struct.pack(f"<{len(values)}{code}", *values)
    data = riff((b"fmt ", form(kind=3, bits=8 * width)), (b"data", body + b"\1"))
    expected = (0, 1, -32768, 16384, 12345, 32767, 32767, -32768, 32767, -32768)
    assert pcm.parse_wav(data) == (samples(*expected), 16000)
    stereo = riff((b"fmt ", form(kind=3, channels=2, bits=8 * width)), (b"data", body))
    assert pcm.parse_wav(stereo)[0] == samples(0, -8192, 22556, -1, -1)


@pytest.mark.usefixtures("numpy")
def test_floating_point_that_is_no_number():
    """A damaged sample is silent, not a click."""
    body = struct.pack("<3f", math.nan, 0.25, -math.nan)
    assert pcm.parse_wav(riff((b"fmt ", form(kind=3, bits=32)), (b"data", body)))[0] == samples(0, 8192, 0)


def test_floating_point_with_numpy_and_without(monkeypatch):
    """The samples are the same to the bit, those halfway between two as well."""
    pytest.importorskip("numpy")
    rng = random.Random(1)
    values = array.array("d", (rng.uniform(-1.1, 1.1) for _ in range(5000)))
    values.extend((number + 0.5) / 32768 for number in range(-32768, 32768, 7))
    fast = pcm.pcm_of_floats(values)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert pcm.pcm_of_floats(values) == fast


def test_the_extensible_format():
    """24-bit files as most tools write them, with the extensible format chunk, are read."""
    guid = struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    form = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 48000, 144000, 3, 24, 22, 24, 4) + guid
    body = b"\x55" + samples(258)
    data = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", 3) + body
    assert pcm.parse_wav(data) == (samples(258), 48000)


def form(kind: int = 1, channels: int = 1, rate: int = 16000, bits: int = 16) -> bytes:
    return struct.pack("<HHIIHH", kind, channels, rate, 0, 0, bits)


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    return b"RIFF\0\0\0\0WAVE" + b"".join(name + struct.pack("<I", len(body)) + body for name, body in chunks)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a WAV file"),
        (b"ID3\4" * 20, "not a WAV file"),
        (riff(), "damaged"),
        (riff((b"data", b"")), "damaged"),
        (riff((b"fmt ", form()[:10]), (b"data", b"")), "too short"),
        (riff((b"fmt ", form(kind=3, bits=16)), (b"data", b"")), "16 bits"),
        (riff((b"fmt ", form(kind=7, bits=16)), (b"data", b"")), "16 bits"),
        (riff((b"fmt ", form(kind=2, bits=8)), (b"data", b"")), "ADPCM"),
        (riff((b"fmt ", form(kind=99, bits=8)), (b"data", b"")), "format 99"),
        (riff((b"fmt ", form(channels=0)), (b"data", b"")), "0 channels"),
        (riff((b"fmt ", form(bits=0)), (b"data", b"")), "0 bits"),
        (riff((b"fmt ", form(bits=64)), (b"data", b"")), "64 bits"),
        (riff((b"fmt ", form(rate=0)), (b"data", b"")), "at 0 Hz"),
    ],
)
def test_what_cannot_be_read_is_named(data, message):
    """A file that is no PCM WAV file is refused with a reason, and with an advice if there is one."""
    with pytest.raises(ValueError, match=message):
        pcm.parse_wav(data)


@given(st.binary())
def test_any_bytes_end_in_a_value_error_or_in_pcm(data):
    """Damaged files never cause another exception."""
    for candidate in (data, b"RIFF\0\0\0\0WAVE" + data, riff((b"fmt ", form()), (b"data", data)) + data):
        try:
            result, rate = pcm.parse_wav(candidate)
        except ValueError:
            continue
        assert len(result) % 2 == 0
        assert pcm.is_rate(rate)


def test_the_header_is_what_the_standard_library_reads():
    """The header describes 3 mono frames of 6 bytes, or 2 stereo frames of 8 bytes."""
    with wave.open(io.BytesIO(pcm.wav_header(24000, 6) + samples(1, 2, 3))) as reader:
        assert reader.getparams()[:4] == (1, 2, 24000, 3)
        assert reader.readframes(10) == samples(1, 2, 3)
    with wave.open(io.BytesIO(pcm.wav_header(24000, 8, channels=2) + samples(1, 2, 3, 4))) as reader:
        assert reader.getparams()[:4] == (2, 2, 24000, 2)
        assert reader.readframes(10) == samples(1, 2, 3, 4)


@given(st.lists(st.integers(-32768, 32767), max_size=50), st.binary(max_size=1))
def test_rms(values, rest):
    """The root mean square ignores an incomplete last sample and is 0 without samples."""
    expected = (sum(value * value for value in values) / max(1, len(values))) ** 0.5
    assert pcm.rms(samples(*values) + rest) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [0, -1, 999, 384001, 16000.0, "16000", None, True])
def test_impossible_rates(rate):
    """An invalid sample rate raises, and the message names the valid ones."""
    with pytest.raises((TypeError, ValueError), match="sample_rate_hz must be an integer from 1000 to 384000"):
        pcm.check_rate(rate)


@given(st.lists(st.tuples(st.integers(-32768, 32767), st.integers(-32768, 32767))), st.integers(0, 3))
def test_the_mean_of_two_channels(pairs, more):
    """The mean of two channels is taken pair by pair and rounded down; an incomplete last pair is left out."""
    data = samples(*(value for pair in pairs for value in pair)) + b"\x7f" * more
    assert pcm.to_mono(data) == samples(*(sum(pair) // 2 for pair in pairs))


def test_a_frame_of_audio():
    """Bytes stay the same object; a buffer becomes bytes, which a later change of it does not reach."""
    frame = b"ab" * 160
    assert pcm.checked_audio(frame, 16_000) is frame
    assert pcm.checked_audio(b"", pcm.MIN_RATE_HZ) == b""
    buffer = bytearray(frame)
    checked = pcm.checked_audio(memoryview(buffer).cast("h"), pcm.MAX_RATE_HZ)
    buffer[0] = 0
    assert checked == frame
    with pytest.raises(ValueError, match="pcm must be 16-bit samples, an even number of bytes"):
        pcm.checked_audio(b"abc", 16_000)
    with pytest.raises(ValueError, match="sample_rate_hz must be an integer from 1000 to 384000, not 0"):
        pcm.checked_audio(frame, 0)
