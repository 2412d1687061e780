"""One direction of a connection with faults, with a clock that the test controls."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.testing import faults
from rtvi_sync.testing.fault_injection.fault_pipe import FaultPipe, StreamEnd
from rtvi_sync.testing.faults import DIRECTIONS, ConnectionFault

pytestmark = pytest.mark.inside


@attrs.define
class Injected:
    """An injected fault."""

    fault: ConnectionFault
    directions: tuple[faults.Direction, ...] = DIRECTIONS
    lifted: bool = False
    strikes: int = 0

    def strike(self) -> None:
        self.strikes += 1


def pipe_with(*injected: ConnectionFault) -> FaultPipe:
    """Return a pipe with faults from the start."""
    pipe = FaultPipe()
    for fault in injected:
        pipe.strike(Injected(fault), 0.0)
    return pipe


def out_of(pipe: FaultPipe, now: float) -> list[bytes]:
    """Return the chunks that are sent by `now`."""
    chunks = []
    while isinstance(item := pipe.next(now), memoryview):
        chunks.append(bytes(item))
        pipe.sent(len(item), now)
    return chunks


def over_time(pipe: FaultPipe, now: float, until: float) -> dict[float, bytes]:
    """Return the sent bytes by time, if `next()` is called whenever the pipe is due."""
    came: dict[float, bytes] = {}
    while now <= until:
        came[now] = b"".join(out_of(pipe, now))
        due = pipe.due()
        if due is None:
            break
        assert due > now, "the pipe is due again immediately, though it has no more bytes"
        now = due
    return {when: data for when, data in came.items() if data}


def test_nothing_happens_without_a_fault() -> None:
    """Bytes are sent in the same chunks, and then the end."""
    pipe = FaultPipe()
    pipe.feed(b"abc", 0.0)
    pipe.feed(b"de", 0.0)
    pipe.end(reset=False, now=0.0)

    assert out_of(pipe, 0.0) == [b"abc", b"de"]
    assert pipe.next(0.0) == StreamEnd(reset=False)
    assert pipe.ended
    assert not pipe.wants_input


def test_a_chunk_that_was_sent_in_part() -> None:
    """The rest of the chunk is sent next."""
    pipe = FaultPipe()
    pipe.feed(b"abcdef", 0.0)
    pipe.sent(4, 0.0)

    assert out_of(pipe, 0.0) == [b"ef"]


def test_delay() -> None:
    """Each chunk is sent later by the same time, however many precede it."""
    pipe = pipe_with(faults.Delay(2.0))
    pipe.feed(b"a", 0.0)
    pipe.feed(b"b", 1.5)

    assert over_time(pipe, 0.0, 10.0) == {2.0: b"a", 3.5: b"b"}


def test_a_delay_that_ends_lets_nothing_overtake() -> None:
    """Bytes after a delay wait for the delayed ones."""
    pipe, delay = FaultPipe(), Injected(faults.Delay(5.0))
    pipe.strike(delay, 0.0)
    pipe.feed(b"a", 0.0)
    delay.lifted = True
    pipe.feed(b"b", 1.0)

    assert out_of(pipe, 4.9) == []
    assert out_of(pipe, 5.0) == [b"a", b"b"]


def test_split() -> None:
    """Every chunk is sent in parts of the given size."""
    pipe = pipe_with(faults.Split(2))
    pipe.feed(b"abcde", 0.0)

    assert out_of(pipe, 0.0) == [b"ab", b"cd", b"e"]


def test_coalesce_by_size() -> None:
    """Chunks are buffered until they reach the size together."""
    pipe = pipe_with(faults.Coalesce(4, 10.0))
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"c", 1.0)
    assert out_of(pipe, 1.0) == []
    pipe.feed(b"de", 2.0)

    assert out_of(pipe, 2.0) == [b"abcde"]


def test_coalesce_by_time() -> None:
    """The first byte is buffered no longer than the limit; the end releases all bytes."""
    pipe = pipe_with(faults.Coalesce(100, 3.0))
    pipe.feed(b"a", 0.0)
    pipe.feed(b"b", 2.0)
    assert pipe.due() == 3.0
    assert out_of(pipe, 3.0) == [b"ab"]

    pipe.feed(b"c", 4.0)
    pipe.end(reset=False, now=4.0)
    assert out_of(pipe, 4.0) == [b"c"]
    assert pipe.next(4.0) == StreamEnd(reset=False)


def test_what_was_held_back_is_not_overtaken() -> None:
    """When coalescing ends, the buffered bytes are sent before later ones."""
    pipe, coalesce = FaultPipe(), Injected(faults.Coalesce(100, 10.0))
    pipe.strike(coalesce, 0.0)
    pipe.feed(b"a", 0.0)
    coalesce.lifted = True
    pipe.feed(b"b", 0.0)

    assert out_of(pipe, 0.0) == [b"a", b"b"]


def test_throttle() -> None:
    """The rate is kept, in more than one chunk."""
    pipe = pipe_with(faults.Throttle(1000.0))
    pipe.feed(bytes(500), 0.0)

    came = over_time(pipe, 0.0, 10.0)

    assert sum(map(len, came.values())) == 500
    assert 0.45 < max(came) <= 0.5
    assert max(map(len, came.values())) <= 10


def test_a_slow_connection_slows_its_sender() -> None:
    """If many bytes are queued, the pipe accepts no more."""
    pipe = pipe_with(faults.Throttle(1000.0))
    pipe.feed(bytes(1_000_000), 0.0)
    assert not pipe.wants_input

    over_time(pipe, 0.0, 990.0)
    assert pipe.wants_input


def test_drop() -> None:
    """Exactly `size_bytes` bytes are dropped."""
    pipe = pipe_with(faults.Drop(3))
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"cdef", 0.0)

    assert out_of(pipe, 0.0) == [b"def"]


def test_drop_all() -> None:
    """All bytes are dropped, and the end arrives."""
    pipe = pipe_with(faults.Drop())
    pipe.feed(b"abc", 0.0)
    pipe.end(reset=False, now=0.0)

    assert pipe.next(0.0) == StreamEnd(reset=False)


def test_corrupt() -> None:
    """The bits of exactly `size_bytes` bytes are flipped."""
    pipe = pipe_with(faults.Corrupt(2, 0x20))
    pipe.feed(b"abcd", 0.0)

    assert out_of(pipe, 0.0) == [b"ABcd"]


def test_black_hole() -> None:
    """No byte is sent or accepted until the fault is lifted; earlier bytes still arrive."""
    pipe, hole = FaultPipe(), Injected(faults.BlackHole())
    pipe.feed(b"a", 0.0)
    pipe.strike(hole, 0.0)
    pipe.feed(b"b", 0.0)

    assert hole.strikes == 1
    assert out_of(pipe, 100.0) == [b"a"]
    assert pipe.due() is None
    assert not pipe.wants_input

    hole.lifted = True
    assert pipe.due() is not None
    assert out_of(pipe, 100.0) == [b"b"]
    assert pipe.wants_input


def test_half_close_and_reset_follow_earlier_bytes() -> None:
    """The end that a fault causes follows earlier bytes; later bytes are dropped."""
    for fault, is_reset in ((faults.HalfClose(), False), (faults.Reset(), True)):
        pipe, injected = pipe_with(faults.Delay(1.0)), Injected(fault)
        pipe.feed(b"a", 0.0)
        pipe.strike(injected, 0.0)
        assert out_of(pipe, 1.0) == [b"a"]
        assert pipe.next(1.0) == StreamEnd(is_reset, injected)

        pipe.close()
        assert pipe.wants_input, "or the sender's own end would never be seen"
        pipe.feed(b"b", 2.0)
        pipe.end(reset=False, now=2.0)
        assert pipe.next(10.0) is None
        assert pipe.due() is None


def test_a_fault_that_was_lifted_before_its_moment() -> None:
    """A fault that was lifted before its moment never takes effect."""
    pipe, injected = FaultPipe(), Injected(faults.Reset(), lifted=True)
    pipe.strike(injected, 0.0)
    pipe.feed(b"a", 0.0)

    assert out_of(pipe, 0.0) == [b"a"]
    assert pipe.next(0.0) is None
    assert injected.strikes == 0


def test_the_moment_is_exact() -> None:
    """A trigger runs between two bytes of one chunk."""
    pipe = FaultPipe()
    pipe.add_trigger(3, lambda now: pipe.strike(Injected(faults.Corrupt(1, 0x20)), now), 0.0)
    pipe.add_trigger(5, lambda now: pipe.strike(Injected(faults.HalfClose()), now), 0.0)
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"cdefg", 0.0)

    assert b"".join(out_of(pipe, 0.0)) == b"abcDe"
    assert isinstance(pipe.next(0.0), StreamEnd)


HARMLESS = [
    faults.Delay(0.5),
    faults.Split(),
    faults.Split(7),
    faults.Coalesce(64, 0.2),
    faults.Throttle(5000.0),
    faults.BlackHole(),
]


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=300),  # is received
            st.tuples(st.sampled_from(HARMLESS), st.integers(0, 500)),  # takes effect after this many bytes
            st.just("lift"),  # all faults so far
            st.floats(0.0, 1.0),  # seconds pass
        ),
        max_size=30,
    )
)
def test_what_is_harmless_loses_nothing(steps: list[bytes | tuple[ConnectionFault, int] | str | float]) -> None:
    """With any delays, splits, black holes and throttles at any moments, every byte arrives, in order."""
    pipe, all_injected = FaultPipe(), []
    sent, came, now = b"", b"", 0.0
    for step in steps:
        if isinstance(step, bytes):
            pipe.feed(step, now)
            sent += step
        elif isinstance(step, tuple):
            injected = Injected(step[0])
            all_injected.append(injected)
            pipe.add_trigger(pipe.received + step[1], partial(pipe.strike, injected), now)
        elif isinstance(step, float):
            now += step
        else:
            for injected in all_injected:
                injected.lifted = True
        came += b"".join(out_of(pipe, now))
    for injected in all_injected:
        if isinstance(injected.fault, faults.BlackHole):
            injected.lifted = True

    assert came + b"".join(over_time(pipe, now, 1000.0).values()) == sent
