"""Whose the bot's output is: the question whose answer has begun, or none. Pure."""

from __future__ import annotations

from collections import deque
from typing import Literal

from .answer import Answer, BotTraits, Waits
from .dialects import Version
from .open_turn import OpenTurn
from .questions import Questions
from .turn_record import TurnRecord, TurnStatus

# How many turns of a conversation are kept.
MAX_TURNS = 100
# These bound its memory, whatever a bot sends.
_MAX_ASKED = 1000
# How many answers that are over may still be reported on: what was announced before an interruption.
_MAX_STALE = 3
# Less than this share of an answer is spoken only if it was interrupted.
_INTERRUPTED = 0.8
# In seconds: what a question has cut is silent this soon after the bot tells that it speaks.
_CUT_AT_ONCE = 0.5
#: What is assumed of a turn if the session ends before a bot has spoken for the first time.
VOICE_UNKNOWN = "it is not known whether this bot speaks"
# From this version on a bot tells what of the user's input it has.
_TELLS_USER_INPUT = (2, 2)


class Attribution:
    """The turns of a conversation, and which of them the bot's output belongs to.

    Args:
        waits: how long a bot that owes something may be quiet.

    Attributes:
        bot: the traits of the session's bot.
        asked: what the bot has not begun to answer.
        answered: the turn that the bot's output belongs to; None: the next output begins one.
        fading: a turn that is still spoken, though the next answer has begun.
        stale: the last answers that are over: words of theirs may come late.
        user_is_muted: the bot does not hear the user, and nothing interrupts it.
        is_cut: the bot was interrupted, and what it tells of its speech is of before.
        patience: seconds for which an answer that owes nothing is still taken as incomplete, from the bot's last sign:
            for bots that do not report their functions.
    """

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._turns: deque[OpenTurn] = deque(maxlen=MAX_TURNS)
        self._count = 0
        self._session = 0
        self._changed: list[OpenTurn] = []
        self.bot: BotTraits = BotTraits()
        self.asked: Questions = Questions(self.bot)
        self.answered: OpenTurn | None = None
        self.fading: OpenTurn | None = None
        self.stale: deque[Answer] = deque(maxlen=_MAX_STALE)
        self.user_is_muted: bool = False
        self.is_cut: bool = False
        self.patience: float = 0.0

    def begin_session(self, *, audio_out: bool, version: Version | None) -> None:
        """Begin a session, whose bot may be another one."""
        self._session += 1
        self.bot = BotTraits(
            version=version,
            has_voice=None if audio_out else False,
            tells_user_input=None if version is not None and version >= _TELLS_USER_INPUT else False,
        )
        self.asked = Questions(self.bot)
        self.stale.clear()
        self.is_cut = False

    def end_session(self, at: float, *, lost: bool) -> None:
        """End the session: a turn is complete if all of it was written and spoken, and else has failed."""
        for turn in (self.fading, self.answered):
            if turn is not None:
                if not lost:
                    turn.answer.speaking = False  # Pipecat 0.0.73 closes before it tells that
                self.end(turn, at, self._status_at_end(turn, lost=lost))
        for asked in self.asked:
            self.end(asked, at, "failed")

    @property
    def records(self) -> tuple[TurnRecord, ...]:
        """Return the last 100 turns, with those that are not over."""
        return tuple(turn.record() for turn in self._turns)

    @property
    def has_just_heard(self) -> bool:
        """Tell whether the last turn is one that the user spoke, and is over: more of its transcript may come."""
        last = self._turns[-1] if self._turns else None
        return last is not None and last.is_over and last.modality == "audio"

    @property
    def cut(self) -> Answer | None:
        """Return the answer that was interrupted, until the model runs again: what it had written may come late."""
        is_late = self.is_cut and self.answered is None and self.bot.tells_model
        return self.stale[-1] if is_late and self.stale else None

    @property
    def due(self) -> float | None:
        """Return when `pass_time()` is to be called, unless something else comes first; None: not at all."""
        turn = self._quiet
        return turn.last_sign + self._patience_with(turn) if turn is not None else None

    @property
    def _quiet(self) -> OpenTurn | None:
        """Return the turn that ends first if the bot says nothing more."""
        turn, fading = self.answered or self.asked.first, self.fading
        if turn is None or fading is None:
            return turn or fading
        return min(turn, fading, key=lambda turn: turn.last_sign + self._patience_with(turn))

    def _patience_with(self, turn: OpenTurn) -> float:
        """Return how many seconds a turn waits for the next sign of the bot."""
        if turn.errors and turn is self.asked.failed:
            return self._waits.follow_up
        wait = self._wait(turn)
        return wait[0] if wait is not None else self.patience

    def _wait(self, turn: OpenTurn) -> tuple[float, str] | None:
        """Return how long the bot may be quiet, and for what that is; None: it owes nothing."""
        wait = turn.answer.wait(self._waits)
        is_unsure = turn.is_doubtful and turn.timings.llm_started is None and turn.timings.acknowledged is None
        if wait is None and is_unsure and self.bot.may_acknowledge:
            return self._waits.acknowledgement, "for the question to be acknowledged"
        return wait

    def begin(self, modality: Literal["text", "audio"] | None, *, aloud: bool = True) -> OpenTurn:
        """Begin a turn: of the user who typed or spoke, or of the bot (None)."""
        self._count += 1
        turn = OpenTurn(self._count, self._session, modality, Answer(self.bot, aloud=aloud))
        self._turns.append(turn)
        self._changed.append(turn)
        return turn

    def ask(self, turn: OpenTurn, at: float) -> None:
        """Let a turn of the user wait for its answer."""
        turn.last_sign = at
        self.asked.add(turn)
        if len(self.asked) > _MAX_ASKED and self.asked.first is not None:
            self.end(self.asked.first, at, "failed")

    def end(self, turn: OpenTurn, at: float, status: TurnStatus) -> None:
        """End a turn, unless it is over."""
        if turn.is_over:
            return
        turn.status = status
        turn.time(ended=at)
        if status == "interrupted":
            turn.time_first(interrupted_at=at)
            turn.note(at, "", "interrupted")
        if turn in (self.answered, self.fading):
            self.stale.append(turn.answer)
        self.answered = None if turn is self.answered else self.answered
        self.fading = None if turn is self.fading else self.fading
        self.asked.remove(turn)
        self._changed.append(turn)

    def changes(self) -> list[TurnRecord]:
        """Return the turns that have begun, or are over, since the last call."""
        changed, self._changed = self._changed, []
        return [turn.record() for turn in dict.fromkeys(changed)]

    def answer(self, at: float, *, by_model: bool = False) -> OpenTurn:
        """Return the turn that the bot's output belongs to now; begin one if there is none."""
        turn = self.answered
        if turn is not None and by_model and turn.is_doubtful and not self.bot.tells_model:
            self.take_back(turn, at)  # speech that comes before the first run of the model is no answer
            turn = self.answered
        if turn is not None and not (by_model and self.asked.is_first_reached):
            turn.last_sign = at
            return turn
        question = self.asked.first if by_model or not self.bot.tells_model else None
        if not self.asked.may_first_be_answered(by_model=by_model):
            question = None
        if turn is not None:
            self._leave(turn, at)
        if question is not None:
            question.is_firm = by_model and self.asked.is_first_reached
            self.asked.remove(question)
            turn = question
        else:
            turn, first = self.begin(None), self.asked.first
            # A user who speaks is acknowledged at the end, and what the bot says until then may be whole.
            if first is not None and first.modality == "text":
                turn.is_late = first.is_announced and first.timings.acknowledged is None
        if turn.errors:
            turn.answer.fail()
        turn.last_sign = at
        self.answered, self.is_cut = turn, False
        return turn

    def _leave(self, turn: OpenTurn, at: float) -> None:
        """End a turn because the next answer begins, unless its speech goes on: it was not interrupted then."""
        answer = turn.answer
        if answer.speaking and self.bot.tells_interruption and not (answer.running or answer.owes_run):
            if self.fading is not None:
                self.end(self.fading, at, "complete")
            self.answered, self.fading = None, turn
            return
        is_cut = answer.is_under_way or answer.owes_run or answer.owes_speech
        self.end(turn, at, "interrupted" if is_cut else "complete")

    def _status_at_end(self, turn: OpenTurn, *, lost: bool) -> TurnStatus:
        """Return how a turn ends with its session."""
        answer = turn.answer
        if answer.is_cancelled and not (lost or answer.is_under_way):
            return "interrupted"
        if answer.is_empty or answer.owes_run or answer.is_under_way:
            return "failed"
        if answer.owes_speech and self.bot.has_voice is None and not lost:
            turn.assumed = VOICE_UNKNOWN
            return "complete"
        return "failed" if answer.owes_speech else "complete"

    def acknowledge(self, at: float, question: OpenTurn) -> None:
        """Note that the bot has a question, and so that those before it were skipped."""
        question.last_sign = at
        if question.timings.acknowledged is None:
            question.time(acknowledged=at)
            question.note(at, "", "acknowledged")
        for skipped in self.asked.before(question):
            if not skipped.is_speaking:
                self.end(skipped, at, "interrupted")
        self.asked.put_first(question)

    def settle(self, turn: OpenTurn, at: float) -> None:
        """End a turn that is complete."""
        is_due = not self.patience or at >= turn.last_sign + self.patience
        if not turn.is_over and is_due and self._wait(turn) is None:
            is_cut = turn.answer.is_cancelled
            self.end(turn, at, "interrupted" if is_cut else "failed" if turn.answer.is_empty else "complete")

    def withdraw(self, question: OpenTurn) -> None:
        """Let a question wait again: the model ran while the user spoke, and found that the user has not finished."""
        self.answered = None
        question.answer, question.is_firm = Answer(self.bot), False
        question.time(acknowledged=None, llm_started=None, first_token=None)
        self.asked.put_first(question)

    def take_back(self, turn: OpenTurn, at: float) -> None:
        """Give what was taken for the answer to a turn of the bot: the question reaches the bot only now."""
        unasked = self.begin(None)
        turn.give_answer_to(unasked)
        unasked.last_sign = at
        self.answered = unasked
        self.asked.put_first(turn)
        if unasked.answer.wait(self._waits) is None:
            self.end(unasked, at, "complete" if unasked.answer.text else "interrupted")

    def interrupt(self, at: float) -> None:
        """End what is answered, because the bot was interrupted: from 2.0 on each typed text does that first.

        While the user is muted the bot reports it and goes on.
        """
        turn = self.answered
        is_unsure = turn is not None and turn.modality == "text" and turn.timings.acknowledged is None
        if turn is not None and is_unsure and not turn.is_announced:
            self.take_back(turn, at)
        if self.user_is_muted:
            return
        self.is_cut = True
        for asked in self.asked:
            asked.is_announced = True
        for cut in (self.fading, self.answered):
            if cut is not None and not cut.answer.is_empty:
                self.end(cut, at, "interrupted")

    def fall_silent(self, turn: OpenTurn, at: float) -> None:
        """Note that the bot has stopped to speak; end the turn if it is complete or was cut."""
        was_cut = turn.is_late and at - (turn.timings.bot_started_speaking or at) < _CUT_AT_ONCE
        turn.answer.stop_speaking(may_be_cut=was_cut or self._may_have_cut(turn))
        is_untold = self.asked and not self.bot.tells_interruption and turn.answer.owes_speech
        was_cut = was_cut and not turn.answer.spoken_text
        if is_untold or was_cut:
            self.end(turn, at, "interrupted")
            self.is_cut = self.is_cut or was_cut
        else:
            self.settle(turn, at)

    def pass_time(self, now: float) -> None:
        """End the turn whose bot was quiet for too long though it owed something, if `due` has come."""
        turn = self._quiet
        if turn is None or now < turn.last_sign + self._patience_with(turn):
            return
        answer, wait = turn.answer, self._wait(turn)
        if wait is None:
            self.settle(turn, now)
            return
        if answer.wait(self._waits) is None:
            self.bot.may_acknowledge = False
        if answer.is_empty and not answer.owes_run:
            self.end(turn, now, "failed")
            return
        is_mute = not (answer.owes_run or answer.is_under_way or turn.errors)  # an error may have cost it its voice
        if is_mute and self.bot.has_voice is None:
            # In either case the next turn does not wait for it.
            self.bot.has_voice = answer.lacks_speech
            self.bot.tells_speaking = not answer.lacks_speech
        is_cut = answer.has_spoken and answer.spoken_share < _INTERRUPTED and not self.bot.tells_interruption
        is_cut = answer.is_cancelled or (is_cut and not answer.owes_run)
        if not is_cut:
            turn.assumed = f"waited {wait[0]:g} s {wait[1]}"
        self.end(turn, now, "interrupted" if is_cut else "complete")

    def _may_have_cut(self, turn: OpenTurn) -> bool:
        """Tell whether the user has begun while the answer was spoken, to a bot that does not report what that did."""
        spoken_from = turn.timings.bot_started_speaking
        return not self.bot.tells_interruption and any(
            (question.timings.user_started or 0.0) >= (spoken_from or 0.0) for question in self.asked
        )
