"""The protobuf wire. The oracle is protobuf with the same message, written down once more."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import assume, given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError
from rtvi_sync.protocol.frames import (
    AudioRawFrame,
    Frame,
    InterruptionFrame,
    MessageFrame,
    TextFrame,
    TranscriptionFrame,
    decode,
    encode,
)
from rtvi_sync.protocol.wire import encode_message, match_message_frame, read_frame

pytestmark = pytest.mark.inside

uint64, uint32 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
texts = st.builds(TextFrame, text=text, id=uint64, name=text)
audios = st.builds(
    AudioRawFrame,
    audio=st.binary(max_size=4000),
    sample_rate=uint32,
    num_channels=uint32,
    id=uint64,
    name=text,
    pts=st.none() | uint64,
)
transcriptions = st.builds(TranscriptionFrame, text=text, user_id=text, timestamp=text, id=uint64, name=text)
messages = st.builds(MessageFrame, data=text)
interruptions = st.builds(InterruptionFrame, id=uint64, name=text)
# Bytes that mean something where a tag or a size is expected: a size that goes on, known fields, other types.
TELLING = st.sampled_from([bytes([byte]) for byte in (1, 8, 9, 0x12, 0x1A, 0x22, 0x2A, 0x2D, 0x7F, 0x80, 0xFF)])
frames = st.one_of(texts, audios, transcriptions, messages, interruptions)

KIND_OF = {
    TextFrame: "text",
    AudioRawFrame: "audio",
    TranscriptionFrame: "transcription",
    MessageFrame: "message",
    InterruptionFrame: "interruption",
}


def describe(package: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the server's `frames.proto`, independent of the module under test, plus fields of the future."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}_frames.proto", package=package, syntax="proto3")

    def add(message_name: str, *fields: tuple[int, str, int]) -> descriptor_pb2.DescriptorProto:
        message = file.message_type.add(name=message_name)
        for number, name, kind in fields:
            message.field.add(name=name, number=number, type=kind, label=proto.LABEL_OPTIONAL)
        return message

    add("TextFrame", (1, "id", proto.TYPE_UINT64), (2, "name", proto.TYPE_STRING), (3, "text", proto.TYPE_STRING))
    audio = add(
        "AudioRawFrame",
        (1, "id", proto.TYPE_UINT64),
        (2, "name", proto.TYPE_STRING),
        (3, "audio", proto.TYPE_BYTES),
        (4, "sample_rate", proto.TYPE_UINT32),
        (5, "num_channels", proto.TYPE_UINT32),
        (6, "pts", proto.TYPE_UINT64),
        (99, "mood", proto.TYPE_STRING),
    )
    audio.oneof_decl.add(name="_pts")
    audio.field[5].proto3_optional = True
    audio.field[5].oneof_index = 0
    add(
        "TranscriptionFrame",
        (1, "id", proto.TYPE_UINT64),
        (2, "name", proto.TYPE_STRING),
        (3, "text", proto.TYPE_STRING),
        (4, "user_id", proto.TYPE_STRING),
        (5, "timestamp", proto.TYPE_STRING),
    )
    add("MessageFrame", (1, "data", proto.TYPE_STRING), (2, "encoding", proto.TYPE_UINT32))
    add("InterruptionFrame", (1, "id", proto.TYPE_UINT64), (2, "name", proto.TYPE_STRING))
    add("HologramFrame", (1, "name", proto.TYPE_STRING))
    frame = add("Frame")
    frame.oneof_decl.add(name="frame")
    for number, kind, message_name in [
        (1, "text", "TextFrame"),
        (2, "audio", "AudioRawFrame"),
        (3, "transcription", "TranscriptionFrame"),
        (4, "message", "MessageFrame"),
        (5, "interruption", "InterruptionFrame"),
        (17, "hologram", "HologramFrame"),
    ]:
        frame.field.add(
            name=kind,
            number=number,
            type=proto.TYPE_MESSAGE,
            type_name=f".{package}.{message_name}",
            label=proto.LABEL_OPTIONAL,
            oneof_index=0,
        )
    return file


def build_oracle() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(describe("oracle").SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("oracle.Frame"))


Oracle = build_oracle()


@given(frames)
def test_round_trip(frame: Frame) -> None:
    """Every frame is decoded to an equal one."""
    assert decode(encode(frame)) == frame


# Where lengths take a byte more: of the text, of the message around it, and of both.
BORDERS = [0, 1, 125, 126, 127, 128, 16_379, 16_380, 16_381, 16_383, 16_384, 2_097_147, 2_097_152]


@given(text, st.integers(0, 130) | st.sampled_from(BORDERS))
def test_messages_are_as_the_oracle_writes_them(data: str, more: int) -> None:
    """Messages have a writer and a reader of their own."""
    data += "x" * more
    oracle = Oracle()
    oracle.message.data = data
    wire = oracle.SerializeToString()
    assert encode_message(data.encode()) == wire
    assert match_message_frame(wire) == data
    assert read_frame(wire) == ("message", {"data": data})


@given(frames, st.data())
def test_what_is_seen_at_a_glance_is_what_is_read(frame: Frame, data: st.DataObject) -> None:
    """Of any frame, whole or damaged: whatever is taken for a message at a glance is that message."""
    wire = bytearray(encode(frame))
    start = data.draw(st.integers(0, len(wire)))
    wire[start : data.draw(st.integers(start, len(wire)))] = data.draw(st.binary(max_size=6))
    seen = match_message_frame(bytes(wire))
    if seen is not None:
        assert decode(bytes(wire)) == MessageFrame(data=seen)


def test_a_message_that_is_not_utf_8_is_not_seen_at_a_glance() -> None:
    """The quick match leaves the error to `decode()`."""
    assert match_message_frame(encode_message(b"\xff\xfe")) is None


def read_by_oracle(wire: bytes) -> Frame | type[ProtocolError] | None:
    """Return protobuf's result."""
    try:
        oracle = Oracle.FromString(wire)
    except DecodeError:
        return ProtocolError
    kind = oracle.WhichOneof("frame")
    frame_class = next((frame_class for frame_class, name in KIND_OF.items() if name == kind), None)
    if frame_class is None:
        return None
    message = getattr(oracle, kind)
    values = {field.name: getattr(message, field.name) for field in attrs.fields(frame_class)}
    if kind == "audio" and not message.HasField("pts"):
        values["pts"] = None
    return frame_class(**values)


@given(st.lists(frames, min_size=1, max_size=3), st.data())
def test_damaged_frames_are_read_as_the_oracle_reads_them(several: list[Frame], data: st.DataObject) -> None:
    """Bytes of one frame or several, overwritten here and there, are read as by protobuf, or are refused.

    Groups are refused, which proto3 does not have and protobuf skips.
    """
    wire = bytearray(b"".join(map(encode, several)))
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(wire)))
        wire[start : start + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3) | TELLING)
    try:
        found: Frame | type[ProtocolError] | None = decode(bytes(wire))
    except ProtocolError as error:
        assume("the tag" not in str(error))
        found = ProtocolError

    assert found == read_by_oracle(bytes(wire))


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\x12\x06\x20\xc0\xbe\x80\x80\x10", id="rate-of-33-bits"),
        pytest.param(b"\x2a\x0b\x08" + b"\xff" * 9 + b"\x7f", id="id-of-70-bits"),
        pytest.param(b"\x2a\x0c\x08" + b"\x80" * 10 + b"\x00", id="id-of-11-bytes"),
        pytest.param(b"\xaa\x80\x80\x80\x00\x00", id="tag-of-5-bytes"),
        pytest.param(b"\xaa\x80\x80\x80\x80\x00\x00", id="tag-of-6-bytes"),
        pytest.param(b"\x2a\x80\x80\x80\x80\x00", id="size-of-5-bytes"),
        pytest.param(b"\x2a\x80\x80\x80\x80\x80\x00", id="size-of-6-bytes"),
    ],
)
def test_long_numbers_are_read_as_the_oracle_reads_them(wire: bytes) -> None:
    """A number with more bits or bytes than its field has is cut or refused as by protobuf."""
    try:
        found: Frame | type[ProtocolError] | None = decode(wire)
    except ProtocolError:
        found = ProtocolError

    assert found == read_by_oracle(wire)


def test_a_frame_of_very_many_fields_is_refused() -> None:
    """A frame of very many fields would hold up the thread that reads for all sessions."""
    several = b"\x2a\x42" + b"\x08\x01" * 33
    for frame in (b"\x30\x00" * 1_000_000, several, (b"\x2a\x40" + b"\x08\x01" * 32) * 1000):
        with pytest.raises(ProtocolError, match="more than 32 fields"):
            decode(frame)
    assert decode(b"\x2a\x40" + b"\x08\x01" * 32) == InterruptionFrame(id=1)


@given(frames)
def test_bytes_are_those_of_the_oracle(frame: Frame) -> None:
    """Another implementation of the same message writes the same bytes and reads them."""
    oracle = Oracle()
    message = getattr(oracle, KIND_OF[type(frame)])
    message.SetInParent()
    for name, value in attrs.asdict(frame).items():
        if value is not None:
            setattr(message, name, value)

    assert encode(frame) == oracle.SerializeToString()


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (MessageFrame(data="{}"), "22040a027b7d"),
        (MessageFrame(data=""), "2200"),
        (InterruptionFrame(), "2a00"),
        (InterruptionFrame(id=321, name="I#0"), "2a0808c102120349" + "2330"),
        (AudioRawFrame(audio=b"\1\2", sample_rate=16000), "12091a02010220807d2801"),
        (AudioRawFrame(audio=b"\1\2", sample_rate=16000, pts=0), "120b1a02010220807d28013000"),
        (TextFrame(text="hi"), "0a041a026869"),
        (TranscriptionFrame(text="a", user_id="b", timestamp="c"), "1a091a01612201622a0163"),
    ],
)
def test_bytes_by_hand(frame: Frame, wire: str) -> None:
    """The wire is the documented one, byte for byte, absent and empty fields included."""
    assert encode(frame).hex() == wire
    assert decode(bytes.fromhex(wire)) == frame


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_frame_none_or_a_protocol_error(data: bytes) -> None:
    """Nothing that a server sends raises anything but ProtocolError."""
    check_decodes_cleanly(data)


@given(frames, st.data())
def test_damaged_frames_end_in_a_frame_none_or_a_protocol_error(frame: Frame, data: st.DataObject) -> None:
    """A truncated or overwritten frame raises nothing but ProtocolError."""
    wire = bytearray(encode(frame))
    start = data.draw(st.integers(0, len(wire)))
    stop = data.draw(st.integers(start, len(wire)))
    wire[start:stop] = data.draw(st.binary(max_size=20))
    check_decodes_cleanly(bytes(wire))


def check_decodes_cleanly(data: bytes) -> None:
    try:
        frame = decode(data)
    except ProtocolError:
        return
    assert frame is None or type(frame) in KIND_OF


def test_empty_bytes_are_no_frame() -> None:
    """An empty message is well formed and holds nothing."""
    assert decode(b"") is None


def test_unknown_kind_is_no_frame() -> None:
    """A kind of frame from the future is skipped."""
    oracle = Oracle()
    oracle.hologram.name = "Leia"

    assert decode(oracle.SerializeToString()) is None


def test_unknown_fields_are_skipped() -> None:
    """Fields from the future do not hide the known ones."""
    audio, message = Oracle(), Oracle()
    audio.audio.audio = b"\1\2"
    audio.audio.sample_rate = 8000
    audio.audio.mood = "sad"
    message.message.data = "{}"
    message.message.encoding = 7

    assert decode(audio.SerializeToString()) == AudioRawFrame(audio=b"\1\2", sample_rate=8000, num_channels=0)
    assert decode(message.SerializeToString()) == MessageFrame(data="{}")


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        pytest.param(b"\x22\x04\x0a\x02\xff\xfe", "'utf-8' codec", id="bad-utf8-in-message"),
        pytest.param(b"\x2a\x04\x12\x02\xc3\x28", "'utf-8' codec", id="bad-utf8-in-name"),
        pytest.param(b"\x22\x06\x0a\x04ab", "a field breaks off", id="truncated"),
        pytest.param(b"\x22" + b"\xff" * 11, "a number has too many bytes", id="endless-varint"),
        pytest.param(b"\x27\x00", "a field has the tag 39", id="wire-type-7"),
        pytest.param(b"{}", "a field has the tag 123", id="text"),
        pytest.param(b"\x9b\x06" * 5000, "a field has the tag 795", id="nested-groups"),
    ],
)
def test_undecodable_bytes_are_a_protocol_error(wire: bytes, why: str) -> None:
    """Bytes that are no frame, or hold text that is not UTF-8, raise ProtocolError, which names the mistake."""
    with pytest.raises(ProtocolError, match=f"Cannot decode a frame of {len(wire)} bytes: {why}"):
        decode(wire)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (AudioRawFrame(audio=b"", sample_rate=-1), "audio.sample_rate"),
        (AudioRawFrame(audio=b"", sample_rate=2**32), "audio.sample_rate"),
        (AudioRawFrame(audio=b"", sample_rate=8000, num_channels=-2), "audio.num_channels"),
        (AudioRawFrame(audio=b"", sample_rate=8000, pts=2**64), "audio.pts"),
        (InterruptionFrame(id=-1), "interruption.id"),
        (MessageFrame(data="\ud800"), "message.data"),
    ],
)
def test_values_out_of_range_are_named(frame: Frame, field: str) -> None:
    """A value that its field cannot hold raises ValueError that names the field."""
    with pytest.raises(ValueError, match=field):
        encode(frame)
