"""The order of packets, and which of them are lost."""

from __future__ import annotations

import pytest

from rtvi_sync.transports.webrtc.jitter_buffer import DEPTH, JitterBuffer


def taken(buffer, *sequences):
    """Return what each packet makes due, by its number; None for a lost one."""
    return [[None if each is None else int(each) for each in buffer.add(n % 65536, b"%d" % n)] for n in sequences]


@pytest.mark.parametrize("first", [0, 65533], ids=["", "around the end of the numbers"])
def test_in_order(first):
    """Each packet is due when it comes."""
    assert taken(JitterBuffer(), *range(first, first + 6)) == [[n] for n in range(first, first + 6)]


def test_one_late_packet():
    """It holds up what came after it, and nothing is lost."""
    buffer = JitterBuffer()
    assert taken(buffer, 1, 3, 4, 2, 5) == [[1], [], [], [2, 3, 4], [5]]
    assert (buffer.lost, buffer.late) == (0, 0)


def test_a_lost_packet():
    """It is given up 80 ms after the one before it, delays nothing after that, and is of no use then."""
    buffer = JitterBuffer()
    assert DEPTH == 3
    assert taken(buffer, 1, 3, 4, 5, 6, 2, 7) == [[1], [], [], [None, 3, 4, 5], [6], [], [7]]
    assert (buffer.lost, buffer.late) == (1, 1)


def test_several_lost_packets():
    """The time line stays complete."""
    assert taken(JitterBuffer(), 1, 4, 5, 6, 7) == [[1], [], [None], [None, 4, 5, 6], [7]]


def test_a_packet_that_comes_twice():
    """It is due once."""
    assert taken(JitterBuffer(), 1, 1, 2) == [[1], [], [2]]


def test_a_sender_that_begins_anew():
    """Far from what is due, in either direction, nothing is made up."""
    buffer = JitterBuffer()
    assert taken(buffer, 1, 3, 5000, 5001, 20, 21) == [[1], [], [5000], [5001], [20], [21]]
    assert buffer.lost == 0
