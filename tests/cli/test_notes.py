"""The notes on a conversation beside its words, from a recording."""

from __future__ import annotations

import pytest

from rtvi_sync import Recording
from rtvi_sync.cli.notes import Notes, activity, clock, summary, unheard
from tests.support.recordings import a_talk

pytestmark = pytest.mark.inside


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return a conversation with a greeting, calls, an interruption, a slow answer and an error."""
    return Recording.load(a_talk(tmp_path_factory.mktemp("talk")).write())


def test_each_note_is_told_once(talk: Recording) -> None:
    """Calls are noted at their start, and latencies at the end of their turn, whatever follows."""
    notes, turns = Notes(), talk.turns()
    assert notes.calls(turns) == [
        'calls check_availability({"day": "Friday", "party_size": 4})',
        'calls plan_route({"to": "Twelve Harbour Street", "by": "bus"})',
    ]
    ends = notes.ends(turns)
    assert len(ends) == 5  # the greeting has none
    assert ends[0] == f"voice to voice {turns[1].voice_to_voice:.2f} s"
    assert ends[1].endswith(f"interrupted; not heard: {unheard(turns[2])}")
    assert ends[-1].endswith("no answer")
    assert (notes.calls(turns), notes.ends(turns)) == ([], [])


def test_the_summary(talk: Recording) -> None:
    """The summary has the number of turns, the latencies, and the faults."""
    text = summary(talk.turns(), 75.0)
    assert text.startswith("6 turns in 1:15, voice to voice ")
    assert text.endswith(" s (slowest), 1 interrupted, 1 without an answer, 1 error")
    assert summary((), 0.0) == "0 turns in 0:00"


def test_what_the_bot_does() -> None:
    """Without a turn in progress the bot listens."""
    assert activity(()) == "listening"
    assert clock(3599.9) == "59:59"
