"""Which questions were reported already, without a client."""

from __future__ import annotations

import time

import pytest

from rtvi_sync.conversation.tracker import MAX_TURNS
from rtvi_sync.testing.load.outcomes import Outcomes

pytestmark = pytest.mark.inside


def test_one_question() -> None:
    """A question is reported once, and the last report of its turn says whether it was abandoned."""
    outcomes, asked = Outcomes(), time.monotonic()
    assert not outcomes.was_given_up(1)
    assert outcomes.note(1, asked, given_up=True)
    assert not outcomes.note(1, asked, given_up=False)
    assert outcomes.was_given_up(1)


def test_another_question_in_the_turn() -> None:
    """A question that was asked in the turn after the first one's report is reported, too."""
    outcomes = Outcomes()
    for later, given_up in ((0.0, True), (60.0, False)):
        assert outcomes.note(1, time.monotonic() + later, given_up=given_up)
        assert outcomes.was_given_up(1) == given_up


def test_speech_that_goes_on() -> None:
    """Speech that continues belongs to the same question, unless a call has asked another one since."""
    outcomes = Outcomes()
    assert outcomes.note(1, time.monotonic(), given_up=True, in_speech=True)
    assert not outcomes.note(1, time.monotonic() + 60.0, given_up=False)
    outcomes.said(time.monotonic() + 60.0)
    assert outcomes.note(1, time.monotonic() + 120.0, given_up=False)


def test_not_heard() -> None:
    """A later turn with the speech of an unheard question belongs to that question, which has been reported."""
    outcomes, asked = Outcomes(), time.monotonic()
    outcomes.not_heard(1)
    assert outcomes.note(1, asked, given_up=False)
    assert not outcomes.note(2, asked, given_up=False)
    assert outcomes.was_given_up(2)
    assert outcomes.note(3, time.monotonic() + 60.0, given_up=False)


def test_not_heard_in_time() -> None:
    """A turn of unknown time belongs to the unheard question if it is the first one and nothing was said since."""
    outcomes = Outcomes()
    assert outcomes.note(1, None, given_up=False)
    outcomes.not_heard(1)
    assert not outcomes.note(2, None, given_up=False)
    assert outcomes.note(3, None, given_up=False)
    assert not outcomes.note(3, None, given_up=False)
    outcomes.not_heard(3)
    outcomes.said(time.monotonic() + 60.0)
    assert outcomes.note(4, None, given_up=False)


def test_what_is_kept() -> None:
    """Reports of the last turns only are kept, even if no question was heard in time."""
    outcomes, asked = Outcomes(), time.monotonic()
    outcomes.not_heard(0)
    for number in range(1, 2 * MAX_TURNS):
        outcomes.note(number, asked, given_up=False)
    assert outcomes.was_given_up(MAX_TURNS)
    assert not outcomes.was_given_up(MAX_TURNS - 1)
