"""The rule by which a bot is slower than its baseline."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import pytest

from rtvi_sync import Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.recording.compare import Change, compare

pytestmark = pytest.mark.inside

#: Questions, and the seconds in which the bot answers each.
KINDS = {"The time?": 0.5, "A table for four": 0.9, "Book it": 1.4, "The way by bus": 2.0, "Tell me a story": 3.0}


def run_of(seed: int, count: int, slower: float = 0.0, kinds: dict[str, float] = KINDS) -> list[Turn]:
    """Return the turns of a run: with some spread, and outliers in one turn of 20."""
    chance = random.Random(seed)
    turns = []
    for number in range(count):
        text = list(kinds)[number % len(kinds)]
        outlier = chance.uniform(0.1, 0.4) if chance.random() < 0.05 else 0.0
        turns.append(turn_of(text, kinds[text] + slower + chance.gauss(0, 0.04) + outlier))
    return turns


def turn_of(text: str, seconds: float, modality: Literal["audio", "text"] = "audio") -> Turn:
    timings = TurnTimings(user_stopped=0.0, first_audio=seconds)
    return Turn(number=1, session=1, initiator="user", modality=modality, user_text=text, timings=timings)


def verdicts(before: Sequence[Turn], after: Sequence[Turn], min_change: float = 0.05) -> tuple[str, str]:
    changes = compare(before, after, min_change).changes["voice_to_voice"]
    return changes["p50"].verdict, changes["p95"].verdict


def test_a_planted_change_is_found() -> None:
    """150 ms more are slower, 5 ms are not, and 150 ms less are faster, in 20 turns of mixed questions."""
    before = run_of(1, 20)
    assert verdicts(before, run_of(2, 20, 0.15))[0] == "slower"
    assert verdicts(before, run_of(2, 20, 0.005)) == ("same", "same")
    assert verdicts(before, run_of(2, 20, -0.15))[0] == "faster"
    assert compare(before, run_of(2, 20, 0.15)).is_slower
    assert not compare(before, run_of(2, 20, -0.15)).is_slower


@pytest.mark.matrix
@pytest.mark.parametrize("slower", [0.0, 0.005])
def test_an_unchanged_bot_is_rarely_slower(slower: float) -> None:
    """Of 100 comparisons of the same bot at most 4 fail."""
    failed = sum(compare(run_of(2 * n, 20), run_of(2 * n + 1, 20, slower)).is_slower for n in range(100))
    assert failed <= 4


@pytest.mark.matrix
def test_a_planted_change_is_always_found() -> None:
    """Of 100 comparisons with a bot that has become 150 ms slower at least 97 fail."""
    assert sum(compare(run_of(2 * n, 20), run_of(2 * n + 1, 20, 0.15)).is_slower for n in range(100)) >= 97


def test_the_same_twice() -> None:
    """The comparison has no chance in it: twice the same turns give the same figures."""
    before, after = run_of(1, 20), run_of(2, 20, 0.05)
    assert compare(before, after) == compare(before, list(reversed(after)))


def test_few_turns_are_not_judged() -> None:
    """The median needs 5 turns of each side, the 95th percentile 20; a figure without a verdict is no failure."""
    assert verdicts(run_of(1, 4), run_of(2, 20, 1.0)) == ("not_judged", "not_judged")
    assert verdicts(run_of(1, 19), run_of(2, 20, 1.0)) == ("slower", "not_judged")
    assert verdicts(run_of(1, 20), run_of(2, 20, 1.0)) == ("slower", "slower")
    few = compare(run_of(1, 4), run_of(2, 4, 1.0)).changes["voice_to_voice"]["p50"]
    assert (few.low, few.high) == (None, None)
    assert few.change == pytest.approx(1.0, abs=0.2)
    assert compare([], []).changes["voice_to_voice"] == {"p50": Change(), "p95": Change()}


def test_only_the_same_questions_are_compared() -> None:
    """A question that one side alone has is named and left out; case and signs make no other question."""
    before = [turn_of("Hello there!", 1.0)] * 6 + [turn_of("Old", 9.0)]
    after = [turn_of("hello, there", 1.0)] * 6 + [turn_of("New", 0.1)] + [turn_of("Hello there!", 0.1, "text")]
    found = compare(before, after)
    assert found.changes["voice_to_voice"]["p50"] == Change(
        before=1.0, after=1.0, change=0.0, low=0.0, high=0.0, verdict="same"
    )
    assert (found.only_before, found.only_after) == (("Old",), ("New", "Hello there!"))


def test_another_mix_of_questions_is_no_change() -> None:
    """A run with more of the slow questions has a greater median, and is not slower."""
    before = [turn_of("short", 0.5)] * 15 + [turn_of("long", 3.0)] * 5
    after = [turn_of("short", 0.5)] * 5 + [turn_of("long", 3.0)] * 15
    median = compare(before, after).changes["voice_to_voice"]["p50"]
    assert (median.before, median.after, median.change, median.verdict) == (0.5, 3.0, 0.0, "same")


def test_the_least_change() -> None:
    """A change up to `min_change`, or to 5 % of the old value, is none."""
    before, after = [turn_of("x", 1.0)] * 20, [turn_of("x", 1.08)] * 20
    assert verdicts(before, after) == ("slower", "slower")
    assert verdicts(before, after, min_change=0.1) == ("same", "same")
    assert verdicts([turn_of("x", 2.0)] * 20, [turn_of("x", 2.08)] * 20) == ("same", "same")
