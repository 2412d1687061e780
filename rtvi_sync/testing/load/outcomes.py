"""A record of reported questions. Pure but for the clock."""

from __future__ import annotations

import attrs

from rtvi_sync.conversation.tracker import MAX_TURNS

from ...concurrency.clock import monotonic


@attrs.define(eq=False)
class _Outcome:
    """The report of one question.

    Attributes:
        given_up: True if it was not answered in time.
        at: Time of the report, in monotonic seconds.
        in_speech: True if the user was still speaking, by the bot's reports.
    """

    given_up: bool
    at: float
    in_speech: bool


class Outcomes:
    """The reports of the questions in the last turns. Any thread may call the methods.

    A turn may hold several questions, because speech that is repeated before the bot answers belongs to the same turn.
    """

    def __init__(self) -> None:
        # By the number of the turn, and by 0, 1, ... within it. Setting one, in an atomic step, claims its report.
        self._of_turns: dict[int, dict[int, _Outcome]] = {}
        # The last unheard question: it belongs to a turn after this number, with words spoken until this time.
        self._unheard = (0, 0.0)
        self._said_at = 0.0

    def said(self, at: float) -> None:
        """Note that the user is about to ask a question."""
        self._said_at = at

    def not_heard(self, number: int) -> None:
        """Note that the words so far went unheard. They are in no turn; the last turn has this number."""
        self._unheard = number, monotonic()

    def was_given_up(self, number: int) -> bool:
        """Return whether the last question in a turn was reported as not answered in time."""
        return any(outcome.given_up for outcome in [*self._of_turns.get(number, {}).values()][-1:])

    def note(self, number: int, asked: float | None, *, given_up: bool, in_speech: bool = False) -> bool:
        """Note the report of a question; return whether to send it, which is False if it was already sent.

        Args:
            number: Number of the turn.
            asked: Time of the question in monotonic seconds. A later time than the last report means another question
                of the turn. None if unknown because the bot reported it late, but not before the last `said()`.
            given_up, in_speech: See `_Outcome`. Continued speech is not another question.
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
        if was_unheard and asked is None:  # the next answer may belong to another question
            self._unheard = (0, 0.0)
        return not was_unheard
