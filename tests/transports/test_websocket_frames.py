"""WebSocket frames, read and made: against oracles, at every split, and with anything at all."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websocket import ABNF
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from rtvi_sync.transports.websocket_frames import FrameError, FrameReader, masked_frame
from tests.support import limits, masking
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.websocket import BINARY, CLOSE, CONT, PING, PONG, TEXT, frame, header

from .oracle import OracleReader

pytestmark = pytest.mark.inside

LIMIT = 1_000_000


def read(reader: FrameReader, *parts: bytes) -> list[tuple[int, bytes]]:
    """Return the messages read from parts that are fed one after the other."""
    return [(opcode, payload) for part in parts for opcode, payloads in reader.runs(part) for payload in payloads]


# -- output -----------------------------------------------------------------------------------------------------------

CONTROL = st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125))
SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
MESSAGE = st.one_of(
    st.tuples(st.just(BINARY), st.binary(max_size=300)),
    st.tuples(st.just(BINARY), SIZES.map(lambda n: random.Random(n).randbytes(n))),
    st.tuples(st.just(TEXT), st.text(max_size=200).map(str.encode)),
)


@st.composite
def streams(draw):
    """Return messages and control frames in wire order, and their bytes: fragmented, with control frames in between."""
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
    """Frames made by `websockets`, fragmented and cut anyhow, are read as the original messages."""
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
    """A message is returned before the bytes behind it are read, in one go or in several."""
    reader = FrameReader(LIMIT)
    runs = reader.runs(frame(BINARY, b"a") + frame(BINARY, b"aa") + frame(TEXT, b"b") + b"\x82\x03abc\xff\x00")
    assert next(runs) == (BINARY, [b"a", b"aa"])
    assert next(runs) == (TEXT, [b"b"])
    assert next(runs) == (BINARY, [b"abc"])
    with pytest.raises(FrameError):
        next(runs)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
def test_a_run_is_bounded(count):
    """Consecutive messages are delivered 64 at a time, not after thousands are decoded."""
    runs = list(FrameReader(LIMIT).runs(frame(BINARY, b"x") * count))
    assert [len(payloads) for _, payloads in runs] == [64] * (count // 64) + [count % 64] * (count % 64 > 0)


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
    """The limit covers the whole message; another message starts at zero."""
    reader = FrameReader(100)
    assert read(reader, frame(BINARY, b"x" * 60, fin=False), frame(CONT, b"x" * 40)) == [(BINARY, b"x" * 100)]
    assert read(reader, frame(BINARY, b"x" * 60, fin=False)) == []
    with pytest.raises(FrameError) as caught:
        read(reader, header(CONT, 41))
    assert caught.value.code == 1009


def test_a_message_of_many_fragments():
    """4 MB in pieces of 64 bytes are a message."""
    wire = frame(TEXT, fin=False) + frame(CONT, b"x" * 64, fin=False) * 65_536 + frame(CONT)
    assert read(FrameReader(4 * 1024 * 1024), wire) == [(TEXT, b"x" * 4 * 1024 * 1024)]


def test_a_message_without_end(monkeypatch):
    """Empty fragments never make a message too large, so their number is limited, for each message by itself."""
    assert limits.value_of("fragments") == 262_144
    limits.patch(monkeypatch, fragments=16_384)
    flood = frame(CONT, fin=False) * 16_383
    reader = FrameReader(100)
    assert read(reader, frame(BINARY, fin=False), frame(CONT)) == [(BINARY, b"")]
    for _ in range(2):
        assert read(reader, frame(BINARY, b"x", fin=False), flood[:-2], frame(CONT, b"y")) == [(BINARY, b"xy")]
    assert read(reader, frame(BINARY, fin=False)) == []
    tracemalloc.start()
    assert read(reader, flood) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with pytest.raises(FrameError, match="more than 16384 fragments") as caught:
        read(reader, frame(CONT, fin=False))
    assert caught.value.code == 1008
    assert peak < 4 * len(flood)


def test_a_message_of_the_largest_size():
    """A message of exactly the limit passes."""
    assert read(FrameReader(70_000), frame(BINARY, bytes(70_000))) == [(BINARY, bytes(70_000))]


@pytest.mark.parametrize("step", [1, 1000])
def test_a_message_that_trickles_in_costs_no_more_than_its_size(step):
    """The time and the memory for a message in many small parts do not grow with the square of its size."""
    size = 100_000 * min(step, 10)
    wire = frame(BINARY, bytes(size))[:-1]
    parts = [wire[n : n + step] for n in range(0, len(wire), step)]
    quarter = parts[: len(parts) // 4]

    def cost(some: list[bytes]) -> float:
        reader = FrameReader(2 * size)
        began = time.thread_time()  # other processes do not count
        for part in some:
            assert list(reader.runs(part)) == []
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
    """An unknown kind is refused by its header, without waiting for its payload."""
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
    """A continuation of nothing, and a new message inside another, are refused, together or one after the other."""
    for frames in (
        [frame(CONT, b"x")],
        [frame(BINARY, b"x"), frame(CONT, b"x")],
        [frame(BINARY, b"x", fin=False), frame(BINARY, b"x")],
        [frame(TEXT, b"x", fin=False), frame(TEXT, b"x", fin=False)],
    ):
        for parts in (frames, [b"".join(frames)]):
            with pytest.raises(FrameError, match="out of place") as caught:
                read(FrameReader(LIMIT), *parts)
            assert caught.value.code == 1002


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_bad_close_codes(code):
    """Codes that must not be sent are refused."""
    with pytest.raises(FrameError) as caught:
        read(FrameReader(LIMIT), b"\x88\x02" + struct.pack("!H", code))
    assert caught.value.code == 1002


@pytest.mark.parametrize("payload", [b"x", b"\x03\xe8\xff", b"\x03\xe8\xed\xa0\x80", b"\x03\xe8half \xc3"])
def test_bad_close_frames(payload):
    """A close frame with one byte, or a reason that is not UTF-8, is refused."""
    with pytest.raises(FrameError) as caught:
        read(FrameReader(LIMIT), bytes([0x88, len(payload)]) + payload)
    assert caught.value.code == 1002


@pytest.mark.parametrize(
    "payload", [b"", *(struct.pack("!H", n) + b"bye" for n in (1000, 1001, 1002, 1003, 1007, 1014, 3000, 4999))]
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


# -- against an oracle ------------------------------------------------------------------------------------------------

CLOSE_CODES = st.sampled_from([0, 999, 1000, 1003, 1004, 1005, 1006, 1007, 1014, 1015, 1016, 2999, 3000, 4999, 5000])
# Whole characters and halves of them
PIECES = st.sampled_from([b"a", b"z" * 124, "ö".encode(), b"\xc3", b"\xb6", "\U0001f600".encode(), b"\xed\xa0\x80"])
TEXTS = st.lists(PIECES, max_size=3).map(b"".join)


@st.composite
def any_frame(draw):
    """Return a frame of any kind, right or wrong, with a length of any form, or only the start of one."""
    first = draw(st.sampled_from([TEXT, BINARY, CONT, CONT, PING, PONG, CLOSE, 3, 11]))
    first |= draw(st.sampled_from([0x80, 0x80, 0x80, 0, 0xC0, 0x90]))
    payload = draw(st.one_of(TEXTS, st.binary(max_size=130), SIZES.map(lambda n: random.Random(n).randbytes(n))))
    if first & 0x0F == CLOSE and draw(st.booleans()):
        payload = struct.pack("!H", draw(CLOSE_CODES)) + payload[:123]
    size = len(payload)
    form = draw(st.sampled_from([0, 0, 0, 126, 127]))
    if form == 127 or size > 65535:
        top = draw(st.sampled_from([0, 0, 0, 1 << 63]))
        data = struct.pack("!BBQ", first, 127, size | top) + payload
    elif form == 126 or size > 125:
        data = struct.pack("!BBH", first, 126, size) + payload
    else:
        data = bytes([first, size]) + payload
    if draw(st.integers(0, 15)) == 0:
        data = bytes([data[0], data[1] | 0x80]) + data[2:]  # masked
    return data if draw(st.integers(0, 15)) else data[: draw(st.integers(0, len(data)))]


BYTES = st.one_of(streams().map(lambda stream: stream[0]), any_frame(), any_frame(), st.binary(max_size=20))


def outcome(reader, parts: list[bytes]) -> list[object]:
    """Return the output of each part, the error at last."""
    seen: list[object] = []
    try:
        for part in parts:
            seen.append("part")
            for opcode, payloads in reader.runs(part):
                for payload in payloads:
                    assert type(payload) is bytes
                    seen.append((opcode, payload))
    except FrameError as error:
        seen.append((str(error), error.code))
    return seen


@settings(max_examples=600)
@given(pieces=st.lists(BYTES, max_size=6), limit=st.sampled_from([100, 70_000, LIMIT]), seed=st.integers())
def test_any_stream_against_the_oracle(pieces, limit, seed):
    """For any input, cut anyhow, messages and errors equal the output of websocket-client's reader, each with its
    part.
    """
    wire = b"".join(pieces)
    rng = random.Random(seed)
    cuts = sorted(rng.randrange(len(wire) + 1) for _ in range(rng.choice([0, 2, 12])))
    parts = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert outcome(FrameReader(limit), parts) == outcome(OracleReader(limit), parts)


@settings(max_examples=200)
@given(position=st.integers(0, len(WIRE) - 1), value=st.integers(0, 255), size=st.sampled_from([1, 2, 7, len(WIRE)]))
def test_a_stream_with_one_wrong_byte(position, value, size):
    """A stream with one byte changed gives the same output as the oracle, no matter how it is split."""
    damaged = WIRE[:position] + bytes([value]) + WIRE[position + 1 :]
    parts = [damaged[n : n + size] for n in range(0, len(damaged), size)]
    assert outcome(FrameReader(1000), parts) == outcome(OracleReader(1000), parts)


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["compiled", "by number"])
def mask(request, monkeypatch):
    """Use each function that masks, and check that it is the one that is used."""
    masking.mask_in(request.param, monkeypatch)


@pytest.mark.parametrize("opcode", [TEXT, BINARY, CLOSE, PING, PONG])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 124, 125, 126, 127, 65534, 65535, 65536, 65537, 1_000_003])
def test_frames_are_those_of_websocket_client(mask, opcode, size):
    """A frame equals, byte for byte, websocket-client's frame with the same key."""
    payload = random.Random(size).randbytes(size)
    made = masked_frame(opcode, payload)
    oracle = ABNF.create_frame(payload, opcode)
    start = 2 if size < 126 else 4 if size < 65536 else 10
    oracle.get_mask_key = lambda _: made[start : start + 4]
    assert made == oracle.format()
    assert type(made) is bytes


@given(payload=st.binary(max_size=300))
def test_a_server_reads_what_was_sent(payload):
    """`websockets` reads the payload that was sent."""
    stream = StreamReader()
    stream.feed_data(masked_frame(BINARY, payload))
    parsing = Frame.parse(stream.read_exact, mask=True)
    with pytest.raises(StopIteration) as done:
        next(parsing)
    assert done.value.value == Frame(Opcode.BINARY, payload)


def key_of(made: bytes) -> bytes:
    """Return the masking key of a short frame."""
    return made[2:6]


def test_keys_come_from_the_system(monkeypatch):
    """Keys are the system's random bytes, each given once; a visit to the system fetches some."""
    blocks: list[bytes] = []

    def urandom(size: int) -> bytes:
        blocks.append(random.Random(len(blocks)).randbytes(size))
        return blocks[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    masking.forget_keys(monkeypatch)
    keys = [key_of(masked_frame(BINARY, b"")) for _ in range(600)]
    assert b"".join(keys) == b"".join(blocks)[:2400]
    assert len(blocks) == 3


def test_no_key_comes_twice_from_many_threads():
    """Threads that draw at once get keys of their own."""
    drawn: list[list[bytes]] = [[] for _ in range(4)]
    start = threading.Barrier(4)

    def draw(mine: list[bytes]) -> None:
        start.wait(GUARD)
        mine += [key_of(masked_frame(BINARY, b"")) for _ in range(500)]

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    # By chance alone two of 2,000 are the same once in 2,000 runs, three not once in a million.
    assert len({key for mine in drawn for key in mine}) > 2_000 - 3


def test_a_forked_child_has_keys_of_its_own():
    """A forked child does not use keys that the parent fetched before the fork."""
    masked_frame(BINARY, b"")
    theirs = in_child(lambda: [key_of(masked_frame(BINARY, b"")) for _ in range(100)])
    ours = [key_of(masked_frame(BINARY, b"")) for _ in range(100)]
    assert len({*theirs, *ours}) > 198


@pytest.mark.parametrize("what", ["nothing", "a module", "no extension", "a broken one", "another one", "made up"])
def test_without_compiled_help(what, monkeypatch, tmp_path):
    """Without `websockets`, or with another module of that name, frames are still masked."""
    if what == "a module":
        (tmp_path / "websockets.py").write_text("")
    elif what != "nothing":
        (tmp_path / "websockets").mkdir()
        (tmp_path / "websockets" / "__init__.py").write_text("")
        if what != "no extension":
            code = "import nothing_by_that_name" if what == "a broken one" else ""
            (tmp_path / "websockets" / "speedups.py").write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "websockets", raising=False)
    if what == "made up":
        monkeypatch.setitem(sys.modules, "websockets", types.ModuleType("websockets"))
    assert masking.way_found() == "by number"


def test_the_package_of_the_extension_is_not_imported():
    """Masking at the speed of C does not import `websockets`."""
    code = (
        "import sys; from tests.support.masking import way_used\n"
        "print(way_used().partition(' ')[0], 'websockets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=True)
    assert done.stdout.split() == ["compiled", "False"]
