"""The order of packets, and which of them are lost."""

from __future__ import annotations

import pytest

from rtvi_sync.transports.webrtc.jitter_buffer import DEPTH, JitterBuffer

pytestmark = pytest.mark.inside


def taken(buffer, *sequences, sender=1):
    """Return the numbers of the packets that each packet makes due; None for a lost one."""
    found = [buffer.add(sender, n % 65536, b"%d" % n) for n in sequences]
    return [[None if each is None else int(each) for each in due] for due in found]


@pytest.mark.parametrize("first", [0, 65533], ids=["", "around the end of the numbers"])
def test_in_order(first):
    """Each packet is due when it arrives."""
    assert taken(JitterBuffer(), *range(first, first + 6)) == [[n] for n in range(first, first + 6)]


def test_one_late_packet():
    """A packet that is late holds up those behind it, and nothing is lost."""
    assert taken(JitterBuffer(), 1, 3, 4, 2, 5) == [[1], [], [], [2, 3, 4], [5]]


def test_a_lost_packet():
    """A lost packet is given up 80 ms after the one before it, delays nothing after that, and is of no use then."""
    buffer = JitterBuffer()
    assert DEPTH == 3
    assert taken(buffer, 1, 3, 4, 5, 6, 2, 7) == [[1], [], [], [None, 3, 4, 5], [6], [], [7]]


def test_several_lost_packets():
    """The time line stays complete."""
    assert taken(JitterBuffer(), 1, 4, 5, 6, 7) == [[1], [], [None], [None, 4, 5, 6], [7]]


def test_a_packet_that_comes_twice():
    """A packet that arrives twice is due once."""
    assert taken(JitterBuffer(), 1, 1, 2) == [[1], [], [2]]


def test_a_sender_that_begins_again():
    """A sender that starts again has another SSRC: waiting packets are due first, and none is made up in between."""
    buffer = JitterBuffer()
    assert taken(buffer, 4000, 4002) == [[4000], []]
    assert taken(buffer, 20, 21, sender=2) == [[None, 4002, 20], [21]]


@pytest.mark.parametrize("behind", [1, 60, 5000, 32768])
def test_a_packet_that_is_late(behind):
    """A packet that arrives after it was given up is dropped, however late it is, and changes nothing."""
    assert taken(JitterBuffer(), 40000, 40002, 40001 - behind, 40001) == [[40000], [], [], [40001, 40002]]


def test_a_gap_of_more_than_a_second():
    """Waiting packets are handed on, and the missing ones after them are not made up."""
    assert taken(JitterBuffer(), 1, 3, 54, 55) == [[1], [], [None, 3, 54], [55]]


def test_a_gap_of_a_second_is_made_up():
    """Fifty missing packets are made up, as the packets behind them arrive; 51 are not."""
    assert taken(JitterBuffer(), 1, 52, 53, 54, 55) == [
        [1],
        [None] * 48,
        [None],
        [None, 52, 53, 54],
        [55],
    ]
    assert taken(JitterBuffer(), 1, 53, 54) == [[1], [53], [54]]


@pytest.mark.parametrize("lost", range(65532, 65539))
def test_a_lost_packet_around_the_end_of_the_numbers(lost):
    """A packet is given up by its place in the sequence, which goes on with 0 behind 65,535."""
    after = [*range(lost + 1, lost + 5)]
    assert taken(JitterBuffer(), lost - 1, *after) == [[lost - 1], [], [], [None, *after[:3]], [after[3]]]
