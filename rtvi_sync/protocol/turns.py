"""The turns of a conversation: which question an answer belongs to, and when it is complete. Pure.

A user's turn begins when a text is sent, or the user begins to speak. What the bot does belongs to the turn before
until the answer begins: with the first run of the model after the bot has told that it has the question. What it begins
while nothing is asked, or before it has the question, is a turn of its own. docs/turns.md has the rules with their
reasons, and what bots of each version send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from ..events import Event, RTVIEvent
from .answer import Answer, BotTraits, Waits
from .dialects import Version
from .message import RTVIMessage
from .open_turn import OpenTurn
from .questions import Questions
from .sent_text import sent_text
from .service_payloads import PipecatMetricsData
from .session_payloads import ErrorData
from .speech_payloads import BotOutputData
from .spoken_text import MAX_CHARACTERS
from .turn_record import TurnRecord, TurnStatus

_E: TypeAlias = RTVIEvent

# These bound the memory of a conversation, whatever a bot sends.
_MAX_TURNS = 100
_MAX_ASKED = 1000
_MAX_ERRORS = 20
_MAX_METRICS = 50
# How many answers that are over may still be reported on: what was announced before an interruption.
_MAX_STALE = 3
# Less than this share of an answer is spoken only if it was interrupted.
_INTERRUPTED = 0.8
# From this version on a bot tells that it was interrupted, and what of the user's input it has.
_TELLS_INTERRUPTION = (2, 0)
_TELLS_USER_INPUT = (2, 2)


class TurnTracker:
    """Makes turns of the events of a conversation. Not thread-safe. Moments are monotonic seconds.

    Each method that is told something returns the turns that began by it, and those that are over by it.

    Args:
        waits: how long a bot that owes something may be quiet.
    """

    def __init__(self, waits: Waits | None = None) -> None:
        self._waits = waits or Waits()
        self._turns: deque[OpenTurn] = deque(maxlen=_MAX_TURNS)
        self._count = 0
        self._session = 0
        self._bot = BotTraits()
        self._asked = Questions(self._bot)
        self._answered: OpenTurn | None = None  # the turn that the bot's output belongs to
        self._fading: OpenTurn | None = None  # is still spoken, though the next answer has begun
        self._stale: deque[Answer] = deque(maxlen=_MAX_STALE)
        self._is_cut = False  # the bot was interrupted, and what it tells of its speech is of before
        self._changed: list[OpenTurn] = []
        self._handlers: dict[RTVIEvent, Callable[[float, Any], None]] = {
            _E.USER_STARTED_SPEAKING: self._user_started,
            _E.USER_STOPPED_SPEAKING: self._user_stopped,
            _E.USER_INPUT: self._user_input,
            _E.USER_TRANSCRIPT: self._user_transcript,
            _E.USER_LLM_TEXT: self._user_llm_text,
            _E.BOT_INTERRUPTED: self._interrupted,
            _E.BOT_LLM_STARTED: self._run_started,
            _E.BOT_LLM_TEXT: self._wrote,
            _E.BOT_LLM_STOPPED: self._run_stopped,
            _E.BOT_OUTPUT: self._output,
            _E.BOT_TTS_TEXT: self._tts_text,
            _E.BOT_STARTED_SPEAKING: self._bot_started,
            _E.BOT_STOPPED_SPEAKING: self._bot_stopped,
            _E.LLM_FUNCTION_CALL: self._called,
            _E.LLM_FUNCTION_CALL_START: self._called,
            _E.LLM_FUNCTION_CALL_STARTED: self._called,
            _E.LLM_FUNCTION_CALL_IN_PROGRESS: self._called,
            _E.LLM_FUNCTION_CALL_STOPPED: self._returned,
            _E.ERROR: self._failed,
            _E.METRICS: self._measured,
        }

    @property
    def events(self) -> tuple[RTVIEvent, ...]:
        """Return the types of events that `take()` needs."""
        return (*self._handlers,)

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """Return the last 100 turns, with those that are not over."""
        return tuple(turn.record() for turn in self._turns)

    @property
    def due(self) -> float | None:
        """Return when `pass_time()` is to be called, unless something else comes first; None: not at all."""
        turn = self._answered
        if turn is not None:
            wait = None if turn.answer.is_under_way else turn.answer.wait(self._waits)
            return turn.last_sign + wait[0] if wait is not None else None
        failed = self._asked.failed
        return failed.last_sign + self._waits.follow_up if failed is not None else None

    # -- what the client does -----------------------------------------------------------------------------------------

    def begin_session(self, *, audio_out: bool, version: Version | None) -> None:
        """Begin a session, perhaps with another bot.

        Args:
            audio_out: False: the bot is known to send no audio.
            version: of its protocol.
        """
        self._session += 1
        self._bot = BotTraits(
            version=version,
            has_voice=None if audio_out else False,
            tells_user_input=version is not None and version >= _TELLS_USER_INPUT,
        )
        self._asked = Questions(self._bot)
        self._stale.clear()
        self._is_cut = False

    def end_session(self, at: float) -> list[TurnRecord]:
        """End the session: a turn is complete if all of it was written and spoken, and else has failed."""
        for turn in (self._fading, self._answered):
            if turn is not None:
                turn.answer.speaking = False  # Pipecat 0.0.73 closes before it tells that
                self._end(turn, at, self._status_at_end(turn))
        for asked in self._asked:
            self._end(asked, at, "failed")
        return self._changes()

    def sent(self, at: float, message: RTVIMessage) -> list[TurnRecord]:
        """Process a message that is about to be sent. A text that runs the model begins a turn.

        Args:
            at: now.
            message: any message; most say nothing about turns.
        """
        said = sent_text(message)
        if said is not None and said.runs:
            turn = self._begin("text", aloud=said.aloud)
            turn.finals, turn.message_id = [said.text[:MAX_CHARACTERS]], message.id
            turn.time(user_started=at, user_stopped=at)
            turn.note(at, "you", "typed", said.text)
            self._ask(turn, at)
        elif said is not None and message.id is not None:
            self._asked.add_silently(message.id)
        elif message.type == "llm-function-call-result" and isinstance(message.data, Mapping):
            self._result_sent(at, str(message.data.get("tool_call_id")), message.data.get("result"))
        return self._changes()

    def unsent(self, at: float, message_id: str) -> list[TurnRecord]:
        """End the turn of a message that could not be sent."""
        turn = self._asked.of_message(message_id)
        if turn is not None:
            self._end(turn, at, "failed")
        return self._changes()

    def _result_sent(self, at: float, call_id: str, result: Any) -> None:
        turn = self._answered
        if turn is not None:
            turn.answer.end_call(at, call_id, result=result)
            turn.note(at, "you", "returned", str(result)[:MAX_CHARACTERS])
            self._settle(turn, at)

    def pass_time(self, now: float) -> list[TurnRecord]:
        """End the turn whose bot was quiet for too long though it owed something, if `due` has come."""
        due = self.due
        if due is None or now < due:
            return []
        turn = self._answered
        if turn is None:
            assert self._asked.failed is not None, "it is what is due"
            self._end(self._asked.failed, now, "failed")
            return self._changes()
        answer, wait = turn.answer, turn.answer.wait(self._waits)
        assert wait is not None, "it is what is due"
        if not answer.owes_run and self._bot.has_voice is None:
            self._bot.has_voice = False  # it does not speak, and the next turn does not wait for it
        is_cut = answer.has_spoken and answer.spoken_share < _INTERRUPTED and not self._tells_interruption
        if not is_cut:
            turn.assumed = f"waited {wait[0]:g} s {wait[1]}"
        self._end(turn, now, "interrupted" if is_cut and not answer.owes_run else "complete")
        return self._changes()

    def take(self, event: Event) -> list[TurnRecord]:
        """Process an event of the bot."""
        handler = self._handlers.get(event.type)
        if handler is None:
            return []
        handler(event.received_at, event.data)
        return self._changes()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _begin(self, modality: Literal["text", "audio"] | None, *, aloud: bool = True) -> OpenTurn:
        self._count += 1
        turn = OpenTurn(self._count, self._session, modality, Answer(self._bot, aloud=aloud))
        self._turns.append(turn)
        self._changed.append(turn)
        return turn

    def _ask(self, turn: OpenTurn, at: float) -> None:
        self._asked.add(turn)
        if len(self._asked) > _MAX_ASKED and self._asked.first is not None:
            self._end(self._asked.first, at, "failed")

    def _end(self, turn: OpenTurn, at: float, status: TurnStatus) -> None:
        if turn.is_over:
            return
        turn.status = status
        turn.time(ended=at)
        if status == "interrupted":
            turn.time_first(interrupted_at=at)
            turn.note(at, "", "interrupted")
        if turn in (self._answered, self._fading):
            self._stale.append(turn.answer)
        self._answered = None if turn is self._answered else self._answered
        self._fading = None if turn is self._fading else self._fading
        self._asked.remove(turn)
        self._changed.append(turn)

    def _changes(self) -> list[TurnRecord]:
        changed, self._changed = self._changed, []
        return [turn.record() for turn in dict.fromkeys(changed)]

    def _answer(self, at: float, *, by_model: bool = False) -> OpenTurn:
        """Return the turn that the bot's output belongs to now; begin one if there is none."""
        turn = self._answered
        if turn is not None and by_model and turn.modality is not None and not (turn.is_firm or self._bot.tells_model):
            self._take_back(turn, at)  # speech that comes before the first run of the model is no answer
            turn = self._answered
        if turn is not None and not (by_model and self._asked.is_first_reached):
            turn.last_sign = at
            return turn
        question = self._asked.first if by_model or not self._bot.tells_model else None
        if not self._asked.may_first_be_answered:
            question = None
        if turn is not None:
            self._leave(turn, at)
        if question is not None:
            question.is_firm = by_model and self._asked.is_first_reached
            self._asked.remove(question)
            turn = question
        else:
            turn = self._begin(None)
        turn.answer.has_failed = bool(turn.errors)
        turn.last_sign = at
        self._answered, self._is_cut = turn, False
        return turn

    def _leave(self, turn: OpenTurn, at: float) -> None:
        """End a turn because the next answer begins, unless its speech goes on: it was not interrupted then."""
        answer = turn.answer
        if answer.speaking and self._tells_interruption and not (answer.running or answer.owes_run):
            if self._fading is not None:
                self._end(self._fading, at, "complete")
            self._answered, self._fading = None, turn
            return
        is_cut = answer.is_under_way or answer.owes_run or answer.owes_speech
        self._end(turn, at, "interrupted" if is_cut else "complete")

    def _status_at_end(self, turn: OpenTurn) -> TurnStatus:
        """Return how a turn ends with its session."""
        answer = turn.answer
        if answer.is_empty or answer.owes_run or answer.is_under_way:
            return "failed"
        if answer.owes_speech and self._bot.has_voice is None:
            turn.assumed = "nobody knows whether this bot speaks"
            return "complete"
        return "failed" if answer.owes_speech else "complete"

    def _acknowledge(self, at: float, question: OpenTurn) -> None:
        """Note that the bot has a question, and so that those before it were skipped."""
        question.time_first(acknowledged=at)
        question.note(at, "", "acknowledged")
        for skipped in self._asked.before(question):
            self._end(skipped, at, "interrupted")

    def _settle(self, turn: OpenTurn, at: float) -> None:
        """End a turn that is complete."""
        answer = turn.answer
        if turn.is_over or answer.is_under_way or (answer.is_empty and not turn.errors):
            return
        if answer.wait(self._waits) is None:
            self._end(turn, at, "failed" if answer.is_empty else "complete")

    # -- the user -----------------------------------------------------------------------------------------------------

    def _spoken_question(self, at: float) -> OpenTurn:
        """Return the turn that the user's speech of now belongs to."""
        if self._asked.in_speech is not None:
            return self._asked.in_speech
        turn = self._begin("audio")
        self._ask(turn, at)
        return turn

    def _user_started(self, at: float, _data: Any) -> None:
        turn = self._spoken_question(at)
        turn.is_speaking, turn.told_llm_text = True, False
        turn.time_first(user_started=at)
        turn.note(at, "you", "speaks")

    def _user_stopped(self, at: float, _data: Any) -> None:
        turn = self._asked.in_speech or self._answered
        if turn is None or turn.modality != "audio":
            return
        turn.is_speaking = False
        turn.time(user_stopped_reported=at)
        turn.note(at, "you", "silent")
        if not self._bot.tells_spoken:
            turn.time_first(acknowledged=at)

    def _user_input(self, at: float, data: Any) -> None:
        if data.input_type != "chat":
            self._bot.tells_user_input = True
            if data.input_type == "transcription":
                self._heard(at, data.text, final=data.final)
            return
        self._bot.tells_user_input = True
        question = self._asked.of_message(data.msg_id)
        if question is not None:
            question.told_input = True
            self._acknowledge(at, question)

    def _user_transcript(self, at: float, data: Any) -> None:
        if not self._bot.tells_user_input:  # which says the same
            self._heard(at, data.text, final=data.final)

    def _heard(self, at: float, text: str, *, final: bool) -> None:
        """Note the user's words. The last ones may come when the answer has begun."""
        turn = self._asked.in_speech
        answered = self._answered
        is_late = answered is not None and answered.modality == "audio" and not answered.finals
        if turn is None and is_late:
            turn = answered
        if turn is None:
            if not final and self._turns and self._turns[-1].is_over and self._turns[-1].modality == "audio":
                return
            turn = self._spoken_question(at)
            turn.time_first(user_started=at)
        turn.hear(text, final=final)
        if final:
            turn.time(transcribed=at)
            turn.note(at, "you", "said", text)

    def _user_llm_text(self, at: float, data: Any) -> None:
        question = self._asked.of_text(data.text)
        if question is not None:
            self._bot.tells_typed = self._bot.tells_typed or question.modality == "text"
            self._bot.tells_spoken = self._bot.tells_spoken or question.modality == "audio"
            question.told_llm_text, question.told_text = True, data.text[:MAX_CHARACTERS]
            self._acknowledge(at, question)
            return
        # Speech-to-speech models tell it when they answer already.
        turn = self._answered
        if turn is not None and turn.modality == "audio":
            turn.told_text = data.text[:MAX_CHARACTERS]
        elif (
            turn is not None
            and not (turn.is_firm or turn.told_llm_text)
            and turn.user_text.strip() == data.text.strip()
        ):
            self._take_back(turn, at)
            self._bot.tells_typed = turn.told_llm_text = True
            self._acknowledge(at, turn)

    def _take_back(self, turn: OpenTurn, at: float) -> None:
        """Give what was taken for the answer to a turn of the bot: the question reaches the bot only now."""
        unasked = self._begin(None)
        unasked.answer, turn.answer = turn.answer, unasked.answer
        unasked.errors, turn.errors = turn.errors, []
        unasked.last_sign = at
        self._answered = unasked
        self._asked.put_back(turn)

    # -- the bot ------------------------------------------------------------------------------------------------------

    def _interrupted(self, at: float, _data: Any) -> None:
        self._is_cut = True
        for turn in (self._fading, self._answered):
            if turn is not None and not turn.answer.is_empty:
                self._end(turn, at, "interrupted")

    def _run_started(self, at: float, _data: Any) -> None:
        turn = self._answer(at, by_model=True)
        self._is_cut = False
        turn.answer.start_run()
        turn.time_first(llm_started=at)
        turn.note(at, "bot", "model runs")

    def _wrote(self, at: float, data: Any) -> None:
        turn = self._answer(at)
        turn.answer.write(data.text)
        if data.text.strip():
            turn.time_first(first_token=at)

    def _run_stopped(self, at: float, _data: Any) -> None:
        turn = self._answered
        if turn is not None:
            turn.last_sign = at
            turn.answer.stop_run()
            self._settle(turn, at)

    def _output(self, at: float, data: BotOutputData) -> None:
        self._bot.tells_output = True
        if data.spoken and data.spoken_status in (None, "new"):  # by 1.x, and by speech-to-speech models
            self._words(at, data.text)
        elif data.will_be_spoken is False:
            if self._answered is not None:
                self._answered.answer.leave_unspoken(data)
                self._settle(self._answered, at)
        elif data.spoken_status == "new":
            pass  # it is sent for what was cut, too, with the next speech
        elif data.spoken_progress is not None or data.spoken_status == "completed":
            self._segment(at, data)

    def _tts_text(self, at: float, data: Any) -> None:
        if not self._bot.tells_output:
            self._words(at, data.text)

    def _segment(self, at: float, data: BotOutputData) -> None:
        """Note progress in a segment of the bot's speech."""
        turn, fading = self._answered, self._fading
        if fading is not None and fading.answer.knows_segment(data):
            fading.answer.speak_segment(data)
            return
        if turn is None or not turn.answer.knows_segment(data):
            if self._is_cut or any(answer.knows_segment(data) for answer in self._stale):
                return
            turn = self._answer(at)
            if not turn.answer.knows_segment(data):
                turn.answer.add_segment(data)
        turn.last_sign = at
        turn.answer.speak_segment(data)
        if fading is not None and not fading.answer.owes_speech:
            self._end(fading, at, "complete")
            turn.answer.start_speaking()
        self._settle(turn, at)

    def _words(self, at: float, words: str) -> None:
        """Note words that the bot has spoken."""
        turn = self._answered
        if turn is None or not turn.answer.speak(words):
            if self._is_cut or any(answer.expects(words) for answer in self._stale):
                return
            turn = self._answer(at)
            if not turn.answer.speak(words):
                turn.answer.add_spoken(words)
        turn.last_sign = at
        self._settle(turn, at)

    def _bot_started(self, at: float, _data: Any) -> None:
        turn = self._answer(at)
        self._is_cut = False
        turn.answer.start_speaking()
        turn.time_first(bot_started_speaking=at)
        turn.note(at, "bot", "speaks")

    def _bot_stopped(self, at: float, _data: Any) -> None:
        turn = self._fading or self._answered
        if turn is None or not turn.answer.speaking:
            return
        turn.last_sign = at
        turn.answer.stop_speaking()
        turn.time(bot_stopped_speaking=at)
        turn.note(at, "bot", "silent")
        if self._asked and not self._tells_interruption and turn.answer.owes_speech:
            self._end(turn, at, "interrupted")
        else:
            self._settle(turn, at)

    @property
    def _tells_interruption(self) -> bool:
        return self._bot.version is not None and self._bot.version >= _TELLS_INTERRUPTION

    def _called(self, at: float, data: Any) -> None:
        turn = self._answer(at)
        call_id, arguments = getattr(data, "tool_call_id", None), getattr(data, "arguments", None)
        turn.answer.call(at, data.function_name, call_id, arguments)
        turn.note(at, "bot", "calls", data.function_name or "")

    def _returned(self, at: float, data: Any) -> None:
        for answer in self._stale:
            if answer.has_call(data.tool_call_id):
                answer.end_call(at, data.tool_call_id, result=data.result, cancelled=data.cancelled)
                return
        turn = self._answered
        if turn is None:
            return
        turn.last_sign = at
        turn.answer.end_call(at, data.tool_call_id, result=data.result, cancelled=data.cancelled)
        turn.note(at, "bot", "cancelled" if data.cancelled else "returned", data.function_name or "")
        self._settle(turn, at)

    def _failed(self, at: float, data: ErrorData) -> None:
        turn = self._answered or self._asked.first
        if turn is None:
            return
        if len(turn.errors) < _MAX_ERRORS:
            turn.errors.append(data)
        turn.last_sign = at
        turn.note(at, "bot", "error", data.message)
        if turn.answer is not None:
            turn.answer.has_failed = True
            if turn.answer.is_empty:
                turn.answer.owes_run = False  # the run that said nothing is explained
            self._settle(turn, at)

    def _measured(self, _at: float, data: PipecatMetricsData) -> None:
        turn = self._answered
        if turn is not None and len(turn.metrics) < _MAX_METRICS:
            turn.metrics.append(data)
