"""Cutting a byte stream into WebSocket messages: against an oracle, at every split, and with anything at all."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from rtvi_sync.transports.websocket_frames import FrameError, FrameReader

TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
LIMIT = 1_000_000


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = False, bits: int = 0) -> bytes:
    """A frame as a server sends it (or, with `mask` or reserved `bits`, must not), made by `websockets`."""
    data = Frame(Opcode(opcode), payload, fin=fin).serialize(mask=mask, extensions=())
    return bytes([data[0] | bits]) + data[1:]


def header(opcode: int, length: int, *, fin: bool = True) -> bytes:
    """Only the header of a frame, with the longest form of its length."""
    return bytes([opcode | (0x80 if fin else 0), 127]) + struct.pack("!Q", length)


def read(reader: FrameReader, *parts: bytes) -> list[tuple[int, bytes]]:
    """What comes out if the parts go in one after the other."""
    messages = []
    for part in parts:
        reader.feed(part)
        messages += reader.messages()
    return messages


# -- what comes out ---------------------------------------------------------------------------------------------------

CONTROL = st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125))
SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
MESSAGE = st.one_of(
    st.tuples(st.just(BINARY), st.binary(max_size=300)),
    st.tuples(st.just(BINARY), SIZES.map(lambda n: random.Random(n).randbytes(n))),
    st.tuples(st.just(TEXT), st.text(max_size=200).map(str.encode)),
)


@st.composite
def streams(draw):
    """Messages and control frames in wire order, and the bytes of them: fragmented, with control frames in between."""
    wire, expected = b"", []
    for opcode, payload in draw(st.lists(MESSAGE, max_size=5)):
        cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=4)))
        pieces = [payload[a:b] for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for n, piece in enumerate(pieces):
            wire += frame(opcode if n == 0 else CONT, piece, fin=n == len(pieces) - 1)
            if n < len(pieces) - 1 and draw(st.booleans()):
                control = draw(CONTROL)
                wire += frame(*control)
                expected.append(control)
        expected.append((opcode, payload))
    return wire, expected


@settings(max_examples=150)
@given(stream=streams(), seed=st.integers())
def test_whatever_the_fragments_and_splits(stream, seed):
    """Frames made by `websockets`, fragmented and cut anyhow, come out as the messages that went in."""
    wire, expected = stream
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(wire) + 1) for _ in range(rng.randrange(12)))
    parts = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert read(FrameReader(LIMIT), *parts) == expected


WIRE = (
    frame(BINARY, b"one")
    + frame(TEXT, "zwölf".encode()[:3], fin=False)
    + frame(PING, b"are you there")
    + frame(CONT, "zwölf".encode()[3:])
    + frame(BINARY, b"x" * 200)
    + frame(BINARY)
    + frame(PONG)
    + frame(CLOSE, struct.pack("!H", 1000) + b"bye")
)
MESSAGES = [
    (BINARY, b"one"),
    (PING, b"are you there"),
    (TEXT, "zwölf".encode()),
    (BINARY, b"x" * 200),
    (BINARY, b""),
    (PONG, b""),
    (CLOSE, struct.pack("!H", 1000) + b"bye"),
]


def test_every_split_of_a_stream():
    """A stream cut in two at any byte gives the same messages."""
    for cut in range(len(WIRE) + 1):
        assert read(FrameReader(LIMIT), WIRE[:cut], WIRE[cut:]) == MESSAGES


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_a_stream_in_small_parts(size):
    """A stream that trickles in gives the same messages, each as soon as it is complete."""
    reader = FrameReader(LIMIT)
    assert read(reader, *(WIRE[n : n + size] for n in range(0, len(WIRE), size))) == MESSAGES
    assert read(reader, b"", frame(BINARY, b"next")) == [(BINARY, b"next")]


def test_nothing_is_read_ahead():
    """A frame that comes with the first bytes of the next is handed out at once; what stopped earlier goes on later."""
    reader = FrameReader(LIMIT)
    reader.feed(frame(BINARY, b"a") + frame(BINARY, b"b") + frame(BINARY, b"c")[:2])
    messages = reader.messages()
    assert next(messages) == (BINARY, b"a")
    messages.close()
    assert list(reader.messages()) == [(BINARY, b"b")]
    assert read(reader, frame(BINARY, b"c")[2:]) == [(BINARY, b"c")]


def test_the_result_is_immutable():
    """Payloads are bytes of their own, that later input does not change."""
    reader = FrameReader(LIMIT)
    ((_, payload),) = read(reader, frame(BINARY, b"a" * 100))
    read(reader, frame(BINARY, b"b" * 100))
    assert payload == b"a" * 100
    assert isinstance(payload, bytes)


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [101, 2**16, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_a_too_large_message_is_refused_by_its_header(opcode, length):
    """Before a byte of the payload is there, a message over the limit is refused with 1009."""
    with pytest.raises(FrameError, match="more than 100 bytes") as caught:
        read(FrameReader(100), header(opcode, length))
    assert caught.value.code == 1009


def test_fragments_count_together():
    """The limit is one for the whole message; another message begins at zero."""
    reader = FrameReader(100)
    assert read(reader, frame(BINARY, b"x" * 60, fin=False), frame(CONT, b"x" * 40)) == [(BINARY, b"x" * 100)]
    assert read(reader, frame(BINARY, b"x" * 60, fin=False)) == []
    with pytest.raises(FrameError) as caught:
        read(reader, header(CONT, 41))
    assert caught.value.code == 1009


def test_a_message_without_end():
    """Fragments of nothing never make a message too large, so their number is limited; each message begins anew."""
    flood = frame(CONT, fin=False) * 65_535
    reader = FrameReader(100)
    for _ in range(2):
        assert read(reader, frame(BINARY, b"x", fin=False), flood[:-2], frame(CONT, b"y")) == [(BINARY, b"xy")]
    assert read(reader, frame(BINARY, fin=False)) == []
    tracemalloc.start()
    assert read(reader, flood) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with pytest.raises(FrameError, match="more than 65536 fragments") as caught:
        read(reader, frame(CONT, fin=False))
    assert caught.value.code == 1008
    assert peak < 4 * len(flood)


def test_a_message_of_the_largest_size():
    """A message of exactly the limit passes."""
    assert read(FrameReader(70_000), frame(BINARY, bytes(70_000))) == [(BINARY, bytes(70_000))]


@pytest.mark.parametrize("step", [1, 1000])
def test_a_message_that_trickles_in_costs_no_more_than_its_size(step):
    """Neither time nor memory grows with the square of a message that comes in many small parts."""
    size = 100_000 * min(step, 10)
    wire = frame(BINARY, bytes(size))[:-1]
    parts = [wire[n : n + step] for n in range(0, len(wire), step)]
    quarter = parts[: len(parts) // 4]

    def cost(some: list[bytes]) -> float:
        reader = FrameReader(2 * size)
        began = time.thread_time()  # what else the machine does is not counted
        for part in some:
            reader.feed(part)
            assert list(reader.messages()) == []
        return time.thread_time() - began

    # By the square it would be 16 times.
    assert min(cost(parts) for _ in range(3)) < 9 * min(cost(quarter) for _ in range(3))
    tracemalloc.start()
    cost(parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * size + 100_000


# -- breaches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0x40, 0x20, 0x10, 0x70])
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, CLOSE])
def test_reserved_bits(opcode, bits):
    """A reserved bit belongs to an extension, and none was agreed on."""
    with pytest.raises(FrameError, match="reserved bit") as caught:
        read(FrameReader(LIMIT), frame(opcode, bits=bits))
    assert caught.value.code == 1002


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_unknown_kinds_of_frames(opcode):
    """An unknown kind is refused by its header, without waiting for what it may carry."""
    with pytest.raises(FrameError, match=f"unknown kind {opcode}") as caught:
        read(FrameReader(LIMIT), header(opcode, 1000))
    assert caught.value.code == 1002


def test_masked_frames():
    """Servers do not mask; one that does is no WebSocket server."""
    with pytest.raises(FrameError, match="masked") as caught:
        read(FrameReader(LIMIT), frame(BINARY, b"x", mask=True))
    assert caught.value.code == 1002


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
def test_control_frames_are_short_and_whole(opcode):
    """A control frame has at most 125 bytes and no fragments."""
    for wire in (header(opcode, 126), bytes([opcode, 0])):
        with pytest.raises(FrameError, match="control frame") as caught:
            read(FrameReader(LIMIT), wire)
        assert caught.value.code == 1002


def test_fragments_out_of_place():
    """A continuation of nothing, and a new message inside another, are refused."""
    for wire in (
        frame(CONT, b"x"),
        frame(BINARY, b"x") + frame(CONT, b"x"),
        frame(BINARY, b"x", fin=False) + frame(BINARY, b"x"),
        frame(TEXT, b"x", fin=False) + frame(TEXT, b"x", fin=False),
    ):
        with pytest.raises(FrameError, match="out of place") as caught:
            read(FrameReader(LIMIT), wire)
        assert caught.value.code == 1002


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_bad_close_codes(code):
    """Codes that must not be sent are refused."""
    with pytest.raises(FrameError) as caught:
        read(FrameReader(LIMIT), b"\x88\x02" + struct.pack("!H", code))
    assert caught.value.code == 1002


@pytest.mark.parametrize("payload", [b"x", b"\x03\xe8\xff", b"\x03\xe8\xed\xa0\x80"])
def test_bad_close_frames(payload):
    """A close frame with one byte, or a reason that is not UTF-8, is refused."""
    with pytest.raises(FrameError) as caught:
        read(FrameReader(LIMIT), bytes([0x88, len(payload)]) + payload)
    assert caught.value.code == 1002


@pytest.mark.parametrize(
    "payload", [b"", *(struct.pack("!H", n) + b"bye" for n in (1000, 1001, 1011, 1012, 3000, 4999))]
)
def test_good_close_frames(payload):
    """A close frame may be empty, or have a code and a reason."""
    assert read(FrameReader(LIMIT), frame(CLOSE, payload)) == [(CLOSE, payload)]


@pytest.mark.parametrize("payload", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"])
def test_text_that_is_not_utf_8(payload):
    """A text message that is not UTF-8 is refused with 1007, fragmented or not."""
    for wire in (frame(TEXT, payload), frame(TEXT, payload[:1], fin=False) + frame(CONT, payload[1:])):
        with pytest.raises(FrameError, match="UTF-8") as caught:
            read(FrameReader(LIMIT), wire)
        assert caught.value.code == 1007


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_messages_or_a_frame_error(parts):
    """Whatever comes in, what comes out is messages or a FrameError, and never more bytes than came in."""
    messages, code = [], None
    try:
        messages = read(FrameReader(1000), *parts)
    except FrameError as error:
        code = error.code
    assert code in (None, 1002, 1007, 1009)
    assert sum(len(payload) for _, payload in messages) <= sum(map(len, parts))


@settings(max_examples=200)
@given(wire=st.just(WIRE), position=st.integers(0, len(WIRE) - 1), value=st.integers(0, 255))
def test_a_stream_with_one_wrong_byte(wire, position, value):
    """A stream with one byte changed gives messages or a FrameError, however it is split."""
    damaged = wire[:position] + bytes([value]) + wire[position + 1 :]
    outcomes = []
    for size in (1, 7, len(damaged)):
        reader, messages = FrameReader(1000), []
        try:
            for n in range(0, len(damaged), size):
                reader.feed(damaged[n : n + size])
                messages.extend(reader.messages())
            outcomes.append(messages)
        except FrameError as error:
            outcomes.append([*messages, error.code])
    assert outcomes[0] == outcomes[1] == outcomes[2]
