"""Which questions were reported already. Pure but for the clock."""

from __future__ import annotations

import attrs

from rtvi_sync.conversation.tracker import MAX_TURNS

from ...concurrency.clock import monotonic


@attrs.define(eq=False)
class _Outcome:
    """What was reported of one question.

    Attributes:
        given_up: it was not answered in time.
        at: when it was reported, in monotonic seconds.
        in_speech: the user was still speaking, as far as the bot had told.
    """

    given_up: bool
    at: float
    in_speech: bool


class Outcomes:
    """What was reported of the questions in the last turns. Methods may be called on any thread.

    A turn may hold several questions: speech that is repeated before the bot answers is the same turn.
    """

    def __init__(self) -> None:
        # By the number of the turn, and by 0, 1, ... in it. What sets one, in a single step, reports it.
        self._of_turns: dict[int, dict[int, _Outcome]] = {}
        # A question of which no turn was known was given up: a turn after this one, of what was said until this time.
        self._unheard = (0, 0.0)
        self._said_at = 0.0

    def said(self, at: float) -> None:
        """Note that a question is about to be said."""
        self._said_at = at

    def not_heard(self, number: int) -> None:
        """Note that what was said until now is given up; it is not in a turn, of which the last has this number."""
        self._unheard = number, monotonic()

    def was_given_up(self, number: int) -> bool:
        """Return whether the last question in a turn was reported as one that was not answered in time."""
        return any(outcome.given_up for outcome in [*self._of_turns.get(number, {}).values()][-1:])

    def note(self, number: int, asked: float | None, *, given_up: bool, in_speech: bool = False) -> bool:
        """Note that a question is about to be reported; return whether it should be: it was not yet.

        Args:
            number: of the turn.
            asked: when it was asked, in monotonic seconds: another one of the turn after the last one was reported.
                None: unknown, because the bot has told it late; not before the last `said()`.
            given_up, in_speech: see `_Outcome`. Speech that goes on is no other question.
        """
        outcomes = self._of_turns.setdefault(number, {})
        count = len(outcomes)
        since = self._said_at if asked is None else asked
        if count:
            before = outcomes[count - 1]
            if since <= before.at or (before.in_speech and self._said_at <= before.at):
                return False
        last, until = self._unheard
        was_unheard = until > 0.0 and number > last and since <= until
        outcome = _Outcome(given_up or was_unheard, monotonic(), in_speech)
        if outcomes.setdefault(count, outcome) is not outcome:
            return False
        for old in [each for each in [*self._of_turns] if each <= number - MAX_TURNS]:
            self._of_turns.pop(old, None)
        if was_unheard and asked is None:  # what comes next may as well be another question
            self._unheard = (0, 0.0)
        return not was_unheard
