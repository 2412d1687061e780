"""Compares a bot's latencies with a baseline. Pure and deterministic.

Two runs of one bot differ, and the kind of question affects a latency more than most faults do. So each turn is
compared with turns of the same question, and a difference counts only if it is large and certain:

1. Turns are grouped by the user's words and by modality (typed or spoken); all turns with unknown words form one group.
   The baseline's median of a group is subtracted from both sides; the differences are the *rests*. Groups that only
   one side has are left out.
2. The change is the percentile of the rests after, minus the percentile of the rests before. Resampling both sides
   2,000 times gives its 95 % interval.
3. A percentile is slower if the change is more than 50 ms and more than 5 % of the baseline's percentile, and the
   interval lies above 5 ms. Faster is the same in the other direction.
4. The median needs 5 turns on each side, the 95th percentile 20. With fewer turns, it is not judged.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

from .percentiles import MEASURES, ComparedTurn, of_sorted

if TYPE_CHECKING:
    from rtvi_sync import Turn

Verdict: TypeAlias = Literal["slower", "faster", "same", "not_judged"]

MIN_CHANGE: Final = 0.05
"""Default limit in seconds: smaller changes count as none."""

_MIN_SHARE: Final = 0.05  # of the baseline's percentile
_SURE: Final = 0.005  # seconds above which the whole interval must be
_RESAMPLES: Final = 2000
_SEED: Final = 1
_PERCENTILES: Final = {"p50": (0.5, 5), "p95": (0.95, 20)}  # the share, and the turns that each side needs

_Group: TypeAlias = tuple[str, str | None]  # the user's words, and the modality


@attrs.frozen(kw_only=True)
class Change:
    """The change of one percentile of one latency.

    Attributes:
        before, after: Percentile of the compared turns on each side, in seconds; None without such turns.
        change: Change between turns of the same questions, in seconds; None without such turns.
        low, high: Its 95 % interval, in seconds; None if the change is not judged.
        verdict: Judgement of the change.
    """

    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "not_judged"


@attrs.frozen(kw_only=True)
class Comparison:
    """The changes of a bot's latencies.

    Attributes:
        changes: Changes by measure ("voice_to_voice") and percentile ("p50").
        only_before, only_after: Questions that only one side has. They are left out.
    """

    changes: Mapping[str, Mapping[str, Change]]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    @property
    def is_slower(self) -> bool:
        """True if a percentile is slower."""
        return self._has("slower")

    @property
    def is_in_part(self) -> bool:
        """True if a percentile is not judged."""
        return self._has("not_judged")

    def _has(self, verdict: Verdict) -> bool:
        return any(change.verdict == verdict for each in self.changes.values() for change in each.values())


def compare(
    before: Sequence[Turn | ComparedTurn], after: Sequence[Turn | ComparedTurn], min_change: float = MIN_CHANGE
) -> Comparison:
    """Compare the latencies of turns with a baseline.

    Args:
        before: Turns of the baseline.
        after: Turns to judge.
        min_change: Limit in seconds: smaller changes count as none.
    """
    texts = [{_group(turn): _words(turn) for turn in turns if turn.initiator == "user"} for turns in (before, after)]
    return Comparison(
        changes={
            measure: _changes(_by_group(before, measure), _by_group(after, measure), min_change) for measure in MEASURES
        },
        only_before=tuple(text for group, text in texts[0].items() if group not in texts[1]),
        only_after=tuple(text for group, text in texts[1].items() if group not in texts[0]),
    )


def _group(turn: Turn | ComparedTurn) -> _Group:
    return "".join(filter(str.isalpha, turn.user_text or "")).casefold(), turn.modality


def _words(turn: Turn | ComparedTurn) -> str:
    return "(not known)" if turn.user_text is None else turn.user_text


def _by_group(turns: Iterable[Turn | ComparedTurn], measure: str) -> dict[_Group, list[float]]:
    found: defaultdict[_Group, list[float]] = defaultdict(list)
    for turn in turns:
        seconds = getattr(turn, measure)
        if seconds is not None:
            found[_group(turn)].append(seconds)
    return found


def _changes(
    before: Mapping[_Group, list[float]], after: Mapping[_Group, list[float]], min_change: float
) -> dict[str, Change]:
    both = before.keys() & after.keys()
    usual = {group: median(before[group]) for group in both}
    # In order, because a set has none, and the resamples depend on it.
    rests = [sorted(seconds - usual[group] for group in both for seconds in side[group]) for side in (before, after)]
    whole = [sorted(seconds for group in both for seconds in side[group]) for side in (before, after)]
    count = min(map(len, rests))
    if not count:
        return {name: Change() for name in _PERCENTILES}
    resampled = _resampled(*rests) if count >= min(needed for _, needed in _PERCENTILES.values()) else {}
    changes = {}
    for name, (share, needed) in _PERCENTILES.items():
        change = Change(
            before=of_sorted(whole[0], share),
            after=of_sorted(whole[1], share),
            change=of_sorted(rests[1], share) - of_sorted(rests[0], share),
        )
        changes[name] = _judged(change, resampled[name], min_change) if count >= needed else change
    return changes


def _resampled(before: Sequence[float], after: Sequence[float]) -> dict[str, list[float]]:
    """Return the changes between resamples of both sides, by percentile."""
    chance = random.Random(_SEED)  # noqa: S311 - no secret
    found: dict[str, list[float]] = {name: [] for name in _PERCENTILES}
    for _ in range(_RESAMPLES):
        one, other = (sorted(chance.choices(side, k=len(side))) for side in (before, after))
        for name, (share, _) in _PERCENTILES.items():
            found[name].append(of_sorted(other, share) - of_sorted(one, share))
    return found


def _judged(change: Change, resampled: Sequence[float], min_change: float) -> Change:
    assert change.change is not None
    assert change.before is not None
    ordered = sorted(resampled)
    low, high = of_sorted(ordered, 0.025), of_sorted(ordered, 0.975)
    least = max(min_change, _MIN_SHARE * change.before)
    verdict: Verdict = "same"
    if change.change > least and low > _SURE:
        verdict = "slower"
    elif change.change < -least and high < -_SURE:
        verdict = "faster"
    return attrs.evolve(change, low=low, high=high, verdict=verdict)
