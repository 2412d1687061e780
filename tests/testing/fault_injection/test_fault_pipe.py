"""One direction of a faulty connection, with a clock that the test turns."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.testing import faults
from rtvi_sync.testing.fault_injection.fault_pipe import End, Pipe
from rtvi_sync.testing.faults import DIRECTIONS, Fault


@attrs.define
class Ordered:
    """A fault, as somebody ordered it."""

    fault: Fault
    directions: tuple[faults.Direction, ...] = DIRECTIONS
    lifted: bool = False
    strikes: int = 0

    def strike(self) -> None:
        self.strikes += 1


def pipe_with(*ordered: Fault) -> Pipe:
    """A pipe on which faults act from the beginning."""
    pipe = Pipe()
    for fault in ordered:
        pipe.strike(Ordered(fault), 0.0)
    return pipe


def out_of(pipe: Pipe, now: float) -> list[bytes]:
    """The pieces that come out by `now`."""
    pieces = []
    while isinstance(item := pipe.next(now), memoryview):
        pieces.append(bytes(item))
        pipe.sent(len(item), now)
    return pieces


def over_time(pipe: Pipe, now: float, until: float) -> dict[float, bytes]:
    """What comes out, by its time, if one comes whenever the pipe says."""
    came: dict[float, bytes] = {}
    while now <= until:
        came[now] = b"".join(out_of(pipe, now))
        due = pipe.due()
        if due is None:
            break
        assert due > now, "it asks to come again at once, though it gave all it had"
        now = due
    return {when: data for when, data in came.items() if data}


def test_nothing_happens_without_a_fault() -> None:
    """What comes in comes out, in the same pieces, and then the end."""
    pipe = Pipe()
    pipe.feed(b"abc", 0.0)
    pipe.feed(b"de", 0.0)
    pipe.end(reset=False, now=0.0)

    assert out_of(pipe, 0.0) == [b"abc", b"de"]
    assert pipe.next(0.0) == End(reset=False)
    assert pipe.over
    assert not pipe.wants_input


def test_a_piece_that_did_not_go_whole() -> None:
    """What the receiver did not take comes again."""
    pipe = Pipe()
    pipe.feed(b"abcdef", 0.0)
    pipe.sent(4, 0.0)

    assert out_of(pipe, 0.0) == [b"ef"]


def test_delay() -> None:
    """Each piece comes so much later, however much came before it."""
    pipe = pipe_with(faults.Delay(2.0))
    pipe.feed(b"a", 0.0)
    pipe.feed(b"b", 1.5)

    assert over_time(pipe, 0.0, 10.0) == {2.0: b"a", 3.5: b"b"}


def test_a_delay_that_ends_lets_nothing_overtake() -> None:
    """What comes after a delay waits for what was delayed."""
    pipe, delay = Pipe(), Ordered(faults.Delay(5.0))
    pipe.strike(delay, 0.0)
    pipe.feed(b"a", 0.0)
    delay.lifted = True
    pipe.feed(b"b", 1.0)

    assert out_of(pipe, 4.9) == []
    assert out_of(pipe, 5.0) == [b"a", b"b"]


def test_split() -> None:
    """Every piece goes on in parts of the size given."""
    pipe = pipe_with(faults.Split(2))
    pipe.feed(b"abcde", 0.0)

    assert out_of(pipe, 0.0) == [b"ab", b"cd", b"e"]


def test_coalesce_by_size() -> None:
    """Pieces are held back until they are large enough together."""
    pipe = pipe_with(faults.Coalesce(4, 10.0))
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"c", 1.0)
    assert out_of(pipe, 1.0) == []
    pipe.feed(b"de", 2.0)

    assert out_of(pipe, 2.0) == [b"abcde"]


def test_coalesce_by_time() -> None:
    """The first byte is held back no longer than so; the end lets all go."""
    pipe = pipe_with(faults.Coalesce(100, 3.0))
    pipe.feed(b"a", 0.0)
    pipe.feed(b"b", 2.0)
    assert pipe.due() == 3.0
    assert out_of(pipe, 3.0) == [b"ab"]

    pipe.feed(b"c", 4.0)
    pipe.end(reset=False, now=4.0)
    assert out_of(pipe, 4.0) == [b"c"]
    assert pipe.next(4.0) == End(reset=False)


def test_what_was_held_back_is_not_overtaken() -> None:
    """When coalescing ends, what it held goes before what comes then."""
    pipe, coalesce = Pipe(), Ordered(faults.Coalesce(100, 10.0))
    pipe.strike(coalesce, 0.0)
    pipe.feed(b"a", 0.0)
    coalesce.lifted = True
    pipe.feed(b"b", 0.0)

    assert out_of(pipe, 0.0) == [b"a", b"b"]


def test_throttle() -> None:
    """So many bytes come in a second, and not in one piece."""
    pipe = pipe_with(faults.Throttle(1000.0))
    pipe.feed(bytes(500), 0.0)

    came = over_time(pipe, 0.0, 10.0)

    assert sum(map(len, came.values())) == 500
    assert 0.45 < max(came) <= 0.5
    assert max(map(len, came.values())) <= 10


def test_a_slow_line_slows_its_sender() -> None:
    """When much waits to go out, nothing more is taken in."""
    pipe = pipe_with(faults.Throttle(1000.0))
    pipe.feed(bytes(1_000_000), 0.0)
    assert not pipe.wants_input

    over_time(pipe, 0.0, 990.0)
    assert pipe.wants_input


def test_drop() -> None:
    """So many bytes are gone, and no more."""
    pipe = pipe_with(faults.Drop(3))
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"cdef", 0.0)

    assert out_of(pipe, 0.0) == [b"def"]


def test_drop_all() -> None:
    """Everything is gone, and the end comes all the same."""
    pipe = pipe_with(faults.Drop())
    pipe.feed(b"abc", 0.0)
    pipe.end(reset=False, now=0.0)

    assert pipe.next(0.0) == End(reset=False)


def test_corrupt() -> None:
    """The bits of so many bytes are flipped."""
    pipe = pipe_with(faults.Corrupt(2, 0x20))
    pipe.feed(b"abcd", 0.0)

    assert out_of(pipe, 0.0) == [b"ABcd"]


def test_black_hole() -> None:
    """Nothing gets through or is taken in, until it is lifted; what was before it still arrives."""
    pipe, hole = Pipe(), Ordered(faults.BlackHole())
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


def test_half_close_and_reset_come_after_what_was_before() -> None:
    """The end that a fault makes follows the bytes that came before it; what comes later vanishes."""
    for fault, is_reset in ((faults.HalfClose(), False), (faults.Reset(), True)):
        pipe, order = pipe_with(faults.Delay(1.0)), Ordered(fault)
        pipe.feed(b"a", 0.0)
        pipe.strike(order, 0.0)
        assert out_of(pipe, 1.0) == [b"a"]
        assert pipe.next(1.0) == End(is_reset, order)

        pipe.close()
        assert pipe.wants_input, "or the sender's own end would never be seen"
        pipe.feed(b"b", 2.0)
        pipe.end(reset=False, now=2.0)
        assert pipe.next(10.0) is None
        assert pipe.due() is None


def test_a_fault_that_was_lifted_before_its_moment() -> None:
    """It does not strike."""
    pipe, order = Pipe(), Ordered(faults.Reset(), lifted=True)
    pipe.strike(order, 0.0)
    pipe.feed(b"a", 0.0)

    assert out_of(pipe, 0.0) == [b"a"]
    assert pipe.next(0.0) is None
    assert order.strikes == 0


def test_the_moment_is_exact() -> None:
    """An action comes between two bytes of one piece."""
    pipe = Pipe()
    pipe.at(3, lambda now: pipe.strike(Ordered(faults.Corrupt(1, 0x20)), now), 0.0)
    pipe.at(5, lambda now: pipe.strike(Ordered(faults.HalfClose()), now), 0.0)
    pipe.feed(b"ab", 0.0)
    pipe.feed(b"cdefg", 0.0)

    assert b"".join(out_of(pipe, 0.0)) == b"abcDe"
    assert isinstance(pipe.next(0.0), End)


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
            st.binary(min_size=1, max_size=300),  # comes in
            st.tuples(st.sampled_from(HARMLESS), st.integers(0, 500)),  # strikes, so many bytes later
            st.just("lift"),  # all that was ordered so far
            st.floats(0.0, 1.0),  # seconds pass
        ),
        max_size=30,
    )
)
def test_what_is_harmless_loses_nothing(steps: list[bytes | tuple[Fault, int] | str | float]) -> None:
    """Whatever is delayed, split, held up and slowed down, at whatever moments: every byte arrives, in order."""
    pipe, orders = Pipe(), []
    sent, came, now = b"", b"", 0.0
    for step in steps:
        if isinstance(step, bytes):
            pipe.feed(step, now)
            sent += step
        elif isinstance(step, tuple):
            order = Ordered(step[0])
            orders.append(order)
            # type: ignore[misc]
            pipe.at(pipe.received + step[1], lambda now, order=order: pipe.strike(order, now), now)
        elif isinstance(step, float):
            now += step
        else:
            for order in orders:
                order.lifted = True
        came += b"".join(out_of(pipe, now))
    for order in orders:
        if isinstance(order.fault, faults.BlackHole):
            order.lifted = True

    assert came + b"".join(over_time(pipe, now, 1000.0).values()) == sent
