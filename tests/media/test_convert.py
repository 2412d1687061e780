"""Formats of telephones and browsers, against the rules of G.711, and with sessions."""

from __future__ import annotations

import math
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync import DeviceError, RTVIClient, WebSocketTransport
from rtvi_sync.media import BytesSink, BytesSource, CallbackSource, WavSink
from rtvi_sync.media.convert import (
    FrameSink,
    ResamplingSink,
    ResamplingSource,
    decode_alaw,
    decode_mulaw,
    encode_alaw,
    encode_mulaw,
    to_mono,
    to_stereo,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.wavs import tone

ALL = range(-32768, 32768)
CODES = bytes(range(256))


def pcm_of(*samples: int) -> bytes:
    return struct.pack(f"<{len(samples)}h", *samples)


def samples_of(pcm: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(pcm) // 2}h", pcm)


def mulaw_code(sample: int) -> int:
    """Return the code of one sample as ITU-T G.191 computes it, with its arithmetic in place of a table."""
    magnitude = min(((~sample if sample < 0 else sample) >> 2) + 33, 0x1FFF)
    segment = magnitude.bit_length() - 6
    code = ~(segment << 4 | (magnitude >> segment + 1) & 15) & 0x7F
    return code if sample < 0 else code | 0x80


def alaw_code(sample: int) -> int:
    """Return the code of one sample as ITU-T G.191 computes it."""
    magnitude = (~sample if sample < 0 else sample) >> 4
    segment = max(0, magnitude.bit_length() - 4)
    code = magnitude if segment == 0 else segment << 4 | (magnitude >> segment - 1) & 15
    return (code if sample < 0 else code | 0x80) ^ 0x55


LAWS = pytest.mark.parametrize(
    ("encode", "decode", "code", "zeros"),
    [
        pytest.param(encode_mulaw, decode_mulaw, mulaw_code, 2, id="mulaw"),
        pytest.param(encode_alaw, decode_alaw, alaw_code, 0, id="alaw"),
    ],
)
Function = Callable[[bytes], bytes]


@LAWS
def test_every_sample_has_the_code_of_g711(encode: Function, decode: Function, code: Callable[[int], int], zeros: int):
    """The tables and the arithmetic of the standard agree for all 65,536 samples."""
    assert encode(pcm_of(*ALL)) == bytes(map(code, ALL))


@LAWS
def test_a_sample_stays_within_its_interval(encode: Function, decode: Function, code: object, zeros: int):
    """A decoded sample differs by at most half of the interval of the code, or by the standard's clipping."""
    codes = encode(pcm_of(*ALL))
    width = dict.fromkeys(CODES, 0)
    for each in codes:
        width[each] += 1
    for sample, each, back in zip(ALL, codes, samples_of(decode(codes)), strict=True):
        limit = width[each] if abs(sample) > 31_000 or not back else width[each] / 2
        assert abs(back - sample) <= limit


@LAWS
def test_a_code_comes_back(encode: Function, decode: Function, code: object, zeros: int):
    """Audio of a telephone that is decoded and encoded is the same; only the negative zero of µ-law becomes 0."""
    assert sum(code == 0 for code in samples_of(decode(CODES))) == zeros
    assert encode(decode(CODES)) == CODES.replace(b"\x7f", b"\xff" if zeros else b"\x7f")


def test_audioop_decodes_the_same():
    """Python's own decoder, in the versions that have it; its A-law encoder, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip("audioop")
    assert (decode_mulaw(CODES), decode_alaw(CODES)) == (audioop.ulaw2lin(CODES, 2), audioop.alaw2lin(CODES, 2))
    assert encode_alaw(pcm_of(*ALL)) == audioop.lin2alaw(pcm_of(*ALL), 2)


@given(st.lists(st.integers(-32768, 32767)), st.integers(2, 4))
def test_stereo_and_back(values: list[int], channels: int):
    """to_stereo() copies the samples to both channels, and to_mono() returns the mean of any number of channels."""
    pcm = pcm_of(*values)
    stereo = to_stereo(pcm)
    assert samples_of(stereo)[::2] == samples_of(stereo)[1::2] == tuple(values)
    assert to_mono(stereo) == pcm
    assert to_mono(pcm_of(*(value for value in values for _ in range(channels))), channels) == pcm


@pytest.mark.parametrize(
    "view",
    [
        bytearray,
        memoryview,
        lambda pcm: memoryview(pcm).cast("h"),
        lambda pcm: memoryview(to_stereo(pcm)).cast("h")[::2],  # the left channel, whose samples are not adjacent
    ],
)
@pytest.mark.parametrize(
    "function",
    [encode_mulaw, encode_alaw, to_stereo, to_mono, lambda pcm: to_mono(pcm, 1), lambda pcm: to_mono(pcm, 3)],
)
def test_any_buffer_counts_as_its_bytes(function: Function, view: Callable[[bytes], Any]):
    """A view has the samples of its bytes, whatever its items are, and the result is a copy."""
    pcm = pcm_of(*range(-3000, 3000, 500))
    converted = function(view(pcm))
    assert type(converted) is bytes
    assert converted == function(pcm)


@pytest.mark.parametrize("encode", [encode_mulaw, encode_alaw])
def test_half_a_sample_is_refused(encode: Callable[[memoryview], bytes]):
    """The bytes of a view are counted, not its items."""
    with pytest.raises(ValueError, match="an even number of bytes"):
        encode(memoryview(b"abc"))
    assert len(encode(memoryview(bytes(6)).cast("h"))) == 3


def level(pcm: bytes, skip: int = 200) -> float:
    """Return the mean loudness of audio without its first and last samples."""
    inner = samples_of(pcm)[skip:-skip]
    return math.sqrt(sum(sample * sample for sample in inner) / len(inner))


def read_all(source: ResamplingSource, frames: int) -> list[bytes]:
    chunks = []
    while chunk := source.read(frames):
        chunks.append(chunk)
    return chunks


@pytest.mark.parametrize("soxr", [True, False])
def test_a_source_at_another_rate(soxr: bool, monkeypatch: pytest.MonkeyPatch):
    """A source at another rate keeps its duration and loudness, in chunks of at most the requested size."""
    if soxr:
        pytest.importorskip("soxr")
    else:
        monkeypatch.setitem(sys.modules, "soxr", None)
    spoken = tone(1.0, 8_000)
    source = ResamplingSource(BytesSource(spoken, 8_000), 16_000)
    assert source.sample_rate_hz == 16_000
    chunks = read_all(source, 320)
    assert max(map(len, chunks)) == 640
    assert len(b"".join(chunks)) == 2 * 16_000
    assert level(b"".join(chunks)) == pytest.approx(level(spoken), rel=0.02)
    assert source.read(320) == b""
    source.close()
    assert len(source.read(320)) > 0


def test_a_source_of_the_same_rate_is_bit_exact():
    """A source of the same rate is passed on as it is, even if it returns a bytearray."""
    parts: Iterator[Any] = iter((bytearray(b"abcd"), b"ef", b""))
    source = ResamplingSource(CallbackSource(lambda frames: next(parts), 16_000), 16_000)
    assert read_all(source, 1) == [b"ab", b"cd", b"ef"]


@pytest.mark.parametrize("returned", [None, "ab", b"abc"])
def test_a_source_that_is_broken(returned: Any):
    """The mistake of a broken source is reported as without the wrapper, and is not taken for the source's end."""
    source = ResamplingSource(CallbackSource(lambda frames: returned, 8_000), 16_000)
    with pytest.raises((TypeError, ValueError), match=r"^read\(\) "):
        source.read(320)


def test_the_rate_of_the_source_is_read_once():
    """A source may compute it, which may block; after `close()` it may be another one."""
    rates = [8_000, 16_000]

    class Source(BytesSource):
        @property
        def sample_rate_hz(self) -> int:
            return rates.pop(0)

    source = ResamplingSource(Source(bytes(640), 8_000), 16_000)
    assert len(b"".join(read_all(source, 10))) == 1280
    source.close()
    assert len(b"".join(read_all(source, 10))) == 640


def test_a_source_in_a_session():
    """The bot gets a recording of a telephone at the rate of the wrapper, and all of it."""
    spoken = BytesSource(tone(0.5, 8_000), 8_000)
    with EmbeddedBot(transcripts="Hello") as bot:
        with RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=False, speaker=False) as client:
            turn = client.ask(ResamplingSource(spoken, 16_000))
        heard = bot.wait_for_session().audio
    assert turn.user_text == "Hello"
    assert level(heard[: 2 * 8_000]) == pytest.approx(level(spoken.pcm), rel=0.02)


def test_a_sink_at_one_rate():
    """For input at any rate, the inner sink gets one rate: converted, then bit exact, and nothing is missing at the
    end.
    """
    inner = BytesSink()
    sink = ResamplingSink(inner, 8_000)
    for begin in range(0, 48_000, 1_920):  # frames of 40 ms, as bots send them
        sink.write(tone(1.0, 24_000)[begin : begin + 1_920], 24_000)
    sink.write(b"abcd", 8_000)
    sink.close()
    assert inner.sample_rate_hz == 8_000
    assert inner.pcm.endswith(b"abcd")
    assert len(inner.pcm) == 2 * 8_000 + 4
    assert level(inner.pcm) == pytest.approx(level(tone(1.0, 24_000)), rel=0.02)


class Log:
    """A sink that notes how it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        self.calls.append(f"{len(pcm)} bytes")

    def drop(self) -> None:
        self.calls.append("drop")

    def close(self) -> None:
        self.calls.append("close")


def test_a_sink_that_fails_at_the_end_is_closed():
    """A sink that fails at the end is closed, so that its file does not stay open."""

    class Full(Log):
        def write(self, pcm: bytes, sample_rate_hz: int) -> None:
            raise OSError("the disk is full")

    log = Full()
    sink = ResamplingSink(log, 8_000)
    sink.write(pcm_of(*range(10)), 24_000)  # too few for soxr to return one
    with pytest.raises(OSError, match="the disk is full"):
        sink.close()
    assert log.calls == ["close"]


def test_an_interruption_reaches_the_inner_sink():
    """The audio that the converter holds back is discarded with the rest: nothing of it is written afterwards."""
    log = Log()
    sink = ResamplingSink(log, 8_000)
    sink.write(pcm_of(*range(10)), 24_000)  # too few for soxr to return one
    sink.drop()
    sink.close()
    assert log.calls[-2:] == ["drop", "close"]


def test_a_recorder_stays_a_recorder(tmp_path):
    """A wrapped WavSink learns which audio an interruption voids, as it does alone."""
    assert ResamplingSink(WavSink(tmp_path / "call.wav"), 8_000).is_recorder
    assert not ResamplingSink(BytesSink(), 8_000).is_recorder


def test_a_low_rate_is_converted_in_parts() -> None:
    """Audio that grows some hundred times when it is converted, does not do so at once."""
    sizes: list[int] = []

    class Sizes(BytesSink):
        def write(self, pcm: bytes, sample_rate_hz: int) -> None:
            sizes.append(len(pcm))
            super().write(pcm, sample_rate_hz)

    inner = Sizes()
    sink = ResamplingSink(inner, 48_000)
    sink.write(bytes(2 * 20_000), 1_000)
    sink.close()
    assert max(sizes) < 2 * 2 * 48_000
    assert len(inner.pcm) == pytest.approx(20 * 2 * 48_000, rel=0.01)


def test_frames_have_one_size():
    """Frames are whole: first the delay, then audio, its rest filled up with silence, and the delay again."""
    sink = FrameSink(2, 8_000, delay_frames=1)
    silence = bytes(4)
    assert sink.read() == silence
    sink.write(b"abcdef", 8_000)
    assert [sink.read() for _ in range(4)] == [silence, b"abcd", b"ef\0\0", silence]
    sink.write(b"gh", 8_000)
    sink.close()
    assert [sink.read() for _ in range(3)] == [silence, b"gh\0\0", silence]


def test_frames_after_an_interruption():
    """Unread audio is gone."""
    sink = FrameSink(2, 8_000, delay_frames=0)
    sink.write(b"abcdefgh", 8_000)
    assert sink.read() == b"abcd"
    sink.drop()
    assert sink.read() == bytes(4)


def test_frames_that_wait():
    """After the bot's last word, nothing waits when all of it is read."""
    sink = FrameSink(160, 8_000, delay_frames=0)
    sink.write(bytes(480), 8_000)
    sink.close()
    waiting = []
    while sink.waiting_seconds:
        waiting.append(sink.waiting_seconds)
        sink.read()
    assert waiting == [0.03, 0.01]


def test_frames_refuse_what_would_be_wrong():
    """A FrameSink refuses audio at another rate, and audio beyond `max_bytes` that was not read."""
    sink = FrameSink(160, 8_000, max_bytes=4)
    with pytest.raises(DeviceError, match=r"24000 Hz.*ResamplingSink\(sink, 8000\)"):
        sink.write(b"ab", 24_000)
    sink.write(b"abcd", 8_000)
    with pytest.raises(DeviceError, match=r"full \(4 bytes\)"):
        sink.write(b"ef", 8_000)


def test_frames_of_a_session():
    """The bot's voice is whole, at the telephone's rate, between two stretches of silence."""
    frames = FrameSink(160, 8_000)
    voice = tone(0.4, 16_000)
    with EmbeddedBot(transcripts="Hello") as bot:
        speaker = ResamplingSink(frames, 8_000)
        with RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=False, speaker=speaker) as client:
            client.ask(BytesSource(voice, 16_000))
    read = [frames.read() for _ in range(100)]
    assert {len(frame) for frame in read} == {320}
    assert (read[0], read[-1]) == (bytes(320), bytes(320))
    assert level(b"".join(read).strip(b"\0")[:6_000]) == pytest.approx(level(voice), rel=0.05)
