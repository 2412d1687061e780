"""The fast reader and writer of frames, compared with the slow ones."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError
from rtvi_sync.protocol import frames
from rtvi_sync.protocol.audio_frames import AudioFrameTemplate, encode_audio
from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.protocol.wire import read_frame

pytestmark = pytest.mark.inside

PCM = bytes(range(256))

audio = st.builds(
    AudioRawFrame,
    audio=st.binary(max_size=200),
    sample_rate=st.sampled_from([0, 8_000, 16_000, 2**32 - 1]),
    num_channels=st.sampled_from([0, 1, 2, 300]),
    id=st.sampled_from([0, 1, 127, 128, 2**63, 2**64 - 1]),
    name=st.text(max_size=5) | st.sampled_from(["A#9", "B#10", "\x1a", "abc "]),
    pts=st.none() | st.integers(0, 2**64 - 1),
)


def learned(frame: AudioRawFrame) -> AudioFrameTemplate:
    """Return a template that was updated with this frame."""
    usual = AudioFrameTemplate()
    usual.update(frames.encode(frame), frame.audio, frame.sample_rate, frame.num_channels)
    return usual


def by_usual(usual: AudioFrameTemplate, data: bytes) -> tuple[bytes, int, int] | None:
    """Return the result of the template."""
    found = usual.match(data)
    return None if found is None else (found[1], usual.sample_rate, usual.num_channels)


def the_slow_way(data: bytes) -> tuple[str | None, Any]:
    """Return the result of `read_frame()`."""
    try:
        kind, fields = read_frame(data)
    except ProtocolError:
        return None, None
    return kind, tuple(fields[name] for name in ("audio", "sample_rate", "num_channels") if name in fields)


def test_the_frames_of_a_bot_are_read() -> None:
    """Frames that differ only in number, name and samples are read as by the slow reader, in any quantity."""
    usual, long_way = AudioFrameTemplate(), 0
    for number in range(2000):
        pcm = number.to_bytes(2, "little") * 320
        data = frames.encode(
            AudioRawFrame(audio=pcm, sample_rate=24_000, id=5 * number + 1, name=f"OutputAudioRawFrame#{number}")
        )
        read = by_usual(usual, data)
        if read is None:
            long_way += 1
            read = the_slow_way(data)[1]
            usual.update(data, *read)
        assert read == (pcm, 24_000, 1)
    assert long_way < 400
    assert usual.seconds == pytest.approx(320 / 24_000)


def test_a_frame_without_id_and_name_is_read() -> None:
    """A bot that numbers nothing is read from its second frame on."""
    usual = learned(AudioRawFrame(audio=PCM, sample_rate=16_000))

    assert by_usual(usual, encode_audio(PCM[::-1], 16_000)) == (PCM[::-1], 16_000, 1)
    assert by_usual(usual, encode_audio(PCM[2:], 16_000)) is None
    assert by_usual(usual, encode_audio(PCM, 24_000)) is None


@given(audio, st.data())
def test_what_matches_is_read_as_the_slow_way(frame: AudioRawFrame, data: st.DataObject) -> None:
    """After any learned frame, and for any data, broken or not, a match equals the slow reader's result."""
    usual = learned(frame)
    alike = data.draw(
        st.builds(
            attrs.evolve,
            st.just(frame),
            id=st.integers(0, 2**64 - 1),
            name=st.text(min_size=len(frame.name), max_size=len(frame.name)),
            audio=st.binary(min_size=len(frame.audio), max_size=len(frame.audio)),
        )
    )
    wire = bytearray(frames.encode(alike))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, min(len(wire), 30) - 1)) if wire else 0
        wire[at : at + 1] = data.draw(st.binary(max_size=2))

    read = by_usual(usual, bytes(wire))

    if read is not None:
        assert the_slow_way(bytes(wire)) == ("audio", read)


@given(st.lists(st.binary(max_size=12), max_size=6), st.binary(min_size=1, max_size=4))
def test_nothing_odd_is_learned(parts: list[bytes], pcm: bytes) -> None:
    """A frame that is put together in an unusual way is not learned, or its like is read as the slow way reads it."""
    inner = b"".join([b"\x1a", bytes([len(pcm)]), pcm, b"\x20\x05\x28\x01"])
    wire = b"".join([b"\x12", bytes([len(inner)]), inner, *parts])
    kind, content = the_slow_way(wire)
    usual = AudioFrameTemplate()
    if kind == "audio":
        usual.update(wire, *content)
    other = wire.replace(pcm, bytes(len(pcm)))

    read = by_usual(usual, other)

    if read is not None:
        assert the_slow_way(other) == ("audio", read)


def test_a_name_that_is_not_what_it_seems() -> None:
    """Where the name ends is told by its length, not by its letters."""
    inner = b"\x12\x03abc" + b"\x20\x41" + b"\x1a\x02xy" + b"\x20\x05\x28\x01"
    wire = b"\x12" + bytes([len(inner)]) + inner
    kind, content = the_slow_way(wire)
    assert (kind, content) == ("audio", (b"xy", 5, 1))
    usual = AudioFrameTemplate()

    usual.update(wire, *content)

    assert usual.match(wire) is None


def test_who_sends_something_else_each_time_is_not_learned_each_time() -> None:
    """To learn takes long, so a server cannot have it done for each of its frames."""
    usual, learned_of = AudioFrameTemplate(), 0
    for size in range(1, 1000):
        data = encode_audio(bytes(size), 16_000)
        usual.update(data, bytes(size), 16_000, 1)
        learned_of += usual.match(data) is not None
    assert 1 <= learned_of <= 20


@given(st.binary(max_size=300) | st.integers(2**14 - 20, 2**14 + 20).map(bytes), st.integers(0, 2**32 - 1))
def test_what_is_sent_is_what_the_slow_way_would_send(pcm: bytes, rate: int) -> None:
    """Audio of any size and rate is written as `frames` writes it."""
    assert encode_audio(pcm, rate) == frames.encode(AudioRawFrame(audio=pcm, sample_rate=rate))
