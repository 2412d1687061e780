"""The turns of a conversation: which question an answer belongs to, and when it is complete. Pure.

A user's turn begins when a text is sent, or the user begins to speak. What the bot does belongs to the turn before
until the answer begins: with the first run of the model after the bot has told that it has the question. What it begins
while nothing is asked, or before it has the question, is a turn of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..events import Event, RTVIEvent
from .answer import Answer, Waits
from .attribution import Attribution
from .dialects import Version
from .message import RTVIMessage
from .open_turn import OpenTurn, shown_in_timeline
from .sent_text import sent_text
from .service_payloads import PipecatMetricsData
from .session_payloads import ErrorData
from .speech_payloads import BotOutputData
from .spoken_text import MAX_CHARACTERS, SpokenText
from .text import one_line
from .turn_record import Speech, TurnRecord, speech_of

_E: TypeAlias = RTVIEvent

# These bound the memory of a turn, whatever a bot sends.
_MAX_ERRORS = 20
_MAX_METRICS = 50


class TurnTracker:
    """Makes turns of the events of a conversation. Not thread-safe. Moments are monotonic seconds.

    Each method that is told something returns the turns that began by it, and those that are over by it.

    Args:
        waits: how long a bot that owes something may be quiet.
    """

    def __init__(self, waits: Waits | None = None) -> None:
        self._turns = Attribution(waits or Waits())
        # What a bot of 1.x speaks now, and for which answer, if that is known yet.
        self._sentence = SpokenText()
        self._speaker: Answer | None = None
        self._speaks_early = False  # the bot has begun to speak, and not told for which turn
        self._handlers: dict[RTVIEvent, Callable[[float, Any], None]] = {
            _E.USER_STARTED_SPEAKING: self._user_started,
            _E.USER_STOPPED_SPEAKING: self._user_stopped,
            _E.USER_INPUT: self._user_input,
            _E.USER_TRANSCRIPT: self._user_transcript,
            _E.USER_LLM_TEXT: self._user_llm_text,
            _E.USER_MUTE_STARTED: self._mute_started,
            _E.USER_MUTE_STOPPED: self._mute_stopped,
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
        return self._turns.records

    @property
    def speeches(self) -> list[Speech | None]:
        """Return for each turn that is not over when the user spoke; None: not at all."""
        turns = self._turns
        return [
            speech_of(turn.timings, is_speaking=turn.is_speaking) if turn.modality == "audio" else None
            for turn in (turns.fading, turns.answered, *turns.asked)
            if turn is not None
        ]

    @property
    def patience(self) -> float:
        """Return for how many seconds an answer that owes nothing is still taken as incomplete."""
        return self._turns.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._turns.patience = seconds

    @property
    def due(self) -> float | None:
        """Return when `pass_time()` is to be called, unless something else comes first; None: not at all."""
        return self._turns.due

    # -- what the client does -----------------------------------------------------------------------------------------

    def begin_session(self, *, audio_out: bool, version: Version | None, user_is_muted: bool = False) -> None:
        """Begin a session, perhaps with another bot.

        Args:
            audio_out: False: the bot is known to send no audio.
            version: of its protocol.
            user_is_muted: the bot has reported that it does not hear the user.
        """
        self._turns.begin_session(audio_out=audio_out, version=version)
        self._turns.user_is_muted = user_is_muted
        self._speaks_early = False

    def end_session(self, at: float, *, lost: bool = False) -> list[TurnRecord]:
        """End the session: a turn is complete if all of it was written and spoken, and else has failed.

        Args:
            at: now.
            lost: it was cut off. Then what the bot was saying is not whole, whatever words it had told.
        """
        self._turns.end_session(at, lost=lost)
        return self._turns.changes()

    def sent(self, at: float, message: RTVIMessage) -> list[TurnRecord]:
        """Process a message that is about to be sent. A text that runs the model begins a turn.

        Args:
            at: now.
            message: any message; most say nothing about turns.
        """
        said = sent_text(message)
        if said is not None and said.runs:
            turn = self._turns.begin("text", aloud=said.aloud)
            turn.finals, turn.message_id = [said.text[:MAX_CHARACTERS]], message.id
            turn.is_file = message.type == "send-file"
            turn.time(user_started=at, user_stopped=at)
            turn.note(at, "you", "typed", said.text)
            self._turns.ask(turn, at)
        elif said is not None and message.id is not None:
            self._turns.asked.add_silently(message.id)
        elif message.type == "llm-function-call-result" and isinstance(message.data, Mapping):
            self._result_sent(at, str(message.data.get("tool_call_id")), message.data.get("result"))
        return self._turns.changes()

    def unsent(self, at: float, message_id: str) -> list[TurnRecord]:
        """End the turn of a message that could not be sent."""
        turn = self._turns.asked.of_message(message_id)
        if turn is not None:
            self._turns.end(turn, at, "failed")
        return self._turns.changes()

    def _result_sent(self, at: float, call_id: str, result: Any) -> None:
        turn = self._turns.answered
        if turn is not None:
            turn.answer.end_call(at, call_id, result=result)
            turn.note_end_of_call(at, "you", call_id, result)
            self._turns.settle(turn, at)

    def pass_time(self, now: float) -> list[TurnRecord]:
        """End the turn whose bot was quiet for too long though it owed something, if `due` has come."""
        self._turns.pass_time(now)
        return self._turns.changes()

    def settle(self, at: float) -> list[TurnRecord]:
        """End the turn that is being answered if it is complete: after `patience` was lowered."""
        if self._turns.answered is not None:
            self._turns.settle(self._turns.answered, at)
        return self._turns.changes()

    def take(self, event: Event) -> list[TurnRecord]:
        """Process an event of the bot."""
        handler = self._handlers.get(event.type)
        if handler is None:
            return []
        handler(event.received_at, event.data)
        return self._turns.changes()

    # -- the user -----------------------------------------------------------------------------------------------------

    def _spoken_question(self, at: float) -> OpenTurn:
        """Return the turn that the user's speech of now belongs to."""
        if self._turns.asked.in_speech is not None:
            return self._turns.asked.in_speech
        turn = self._turns.begin("audio")
        self._turns.ask(turn, at)
        return turn

    def _user_started(self, at: float, _data: Any) -> None:
        turn = self._spoken_question(at)
        turn.is_speaking, turn.told_llm_text = True, False
        turn.time_first(user_started=at)
        turn.note(at, "you", "speaks")

    def _user_stopped(self, at: float, _data: Any) -> None:
        turn = self._turns.asked.in_speech or self._turns.answered
        if turn is None or turn.modality != "audio":
            return
        turn.is_speaking = False
        turn.time(user_stopped_reported=at)
        turn.note(at, "you", "silent")
        if not self._turns.bot.tells_spoken:
            turn.time_first(acknowledged=at)

    def _user_input(self, at: float, data: Any) -> None:
        self._turns.bot.tells_user_input = True
        if data.input_type == "transcription":
            self._heard(at, data.text, final=data.final)
        elif data.input_type == "chat" and (question := self._turns.asked.of_message(data.msg_id)) is not None:
            question.told_input = True
            self._turns.acknowledge(at, question)

    def _user_transcript(self, at: float, data: Any) -> None:
        if not self._turns.bot.tells_user_input:  # which says the same
            self._heard(at, data.text, final=data.final)

    def _heard(self, at: float, text: str, *, final: bool) -> None:
        """Note the user's words. The last ones may come when the answer has begun."""
        turn = self._turns.asked.in_speech
        answered = self._turns.answered
        if turn is None and answered is not None and answered.modality == "audio":
            turn = answered if answered.is_speaking or not answered.finals else None
        if turn is None:
            if not final and self._turns.has_just_heard:
                return
            turn = self._spoken_question(at)
            turn.time_first(user_started=at)
        turn.last_sign = at
        turn.hear(text, final=final)
        if final:
            turn.time(transcribed=at)
            turn.note(at, "you", "said", text)

    def _user_llm_text(self, at: float, data: Any) -> None:
        question = self._turns.asked.of_text(data.text)
        if question is not None:
            self._turns.bot.tells_typed = self._turns.bot.tells_typed or question.modality == "text"
            self._turns.bot.tells_spoken = self._turns.bot.tells_spoken or question.modality == "audio"
            if question.modality == "text" and not question.is_file and self._turns.bot.tells_user_input is None:
                self._turns.bot.tells_user_input = False  # it would have come before
            question.told_llm_text, question.told_text = True, data.text[:MAX_CHARACTERS]
            self._turns.acknowledge(at, question)
            return
        turn = self._turns.answered
        if turn is None or turn.told_llm_text:
            return
        if turn.modality == "audio":  # speech-to-speech models tell it when they answer already
            turn.told_text = data.text[:MAX_CHARACTERS]
        elif turn.is_doubtful and turn.user_text.strip() == data.text.strip():
            self._turns.take_back(turn, at)
            self._turns.bot.tells_typed = turn.told_llm_text = True
            self._turns.acknowledge(at, turn)

    def _mute_started(self, _at: float, _data: Any) -> None:
        self._turns.user_is_muted = True

    def _mute_stopped(self, _at: float, _data: Any) -> None:
        self._turns.user_is_muted = False

    # -- the bot ------------------------------------------------------------------------------------------------------

    def _interrupted(self, at: float, _data: Any) -> None:
        self._speaks_early = self._speaks_early and self._turns.user_is_muted
        self._turns.interrupt(at)

    def _run_started(self, at: float, _data: Any) -> None:
        turn = self._turns.answer(at, by_model=True)
        self._turns.is_cut = False
        turn.answer.start_run()
        turn.time_first(llm_started=at)
        turn.note(at, "bot", "model runs")

    def _wrote(self, at: float, data: Any) -> None:
        cut = self._turns.cut
        if cut is not None:
            cut.write(data.text)
            return
        turn = self._turns.answer(at)
        turn.answer.write(data.text)
        if data.text.strip():
            turn.time_first(first_token=at)

    def _run_stopped(self, at: float, _data: Any) -> None:
        turn = self._turns.answered
        if turn is not None:
            turn.last_sign = at
            turn.answer.stop_run()
            if turn.is_speaking and turn.is_firm and turn.answer.is_empty and not turn.errors:
                self._turns.withdraw(turn)
            else:
                self._turns.settle(turn, at)

    def _output(self, at: float, data: BotOutputData) -> None:
        self._turns.bot.tells_output = True
        if data.spoken and data.spoken_status in (None, "new"):  # by 1.x, and by speech-to-speech models
            self._words(at, data.text)
        elif data.will_be_spoken is False:
            if self._turns.answered is not None:
                self._turns.answered.answer.leave_unspoken(data)
                self._turns.settle(self._turns.answered, at)
        elif data.spoken_status == "new":
            pass  # it is sent for what was cut, too, with the next speech
        elif data.spoken_progress is not None or data.spoken_status == "completed":
            self._segment(at, data)
        elif data.spoken is False:  # by 1.x: what it begins to speak
            turn = self._turns.answered
            self._sentence, self._speaker = SpokenText(), turn.answer if turn is not None else None
            self._sentence.write(data.text)

    def _tts_text(self, at: float, data: Any) -> None:
        if not self._turns.bot.tells_output:
            self._words(at, data.text)

    def _segment(self, at: float, data: BotOutputData) -> None:
        """Note progress in a segment of the bot's speech."""
        turn, fading = self._turns.answered, self._turns.fading
        if fading is not None and fading.answer.knows_segment(data):
            fading.answer.speak_segment(data)
            return
        if turn is None or not turn.answer.knows_segment(data):
            if self._turns.is_cut or any(answer.knows_segment(data) for answer in self._turns.stale):
                return
            turn = self._turns.answer(at)
            if not turn.answer.knows_segment(data):
                turn.answer.add_segment(data)
        turn.last_sign = at
        if self._speaks_early and not turn.answer.speaking:
            self._speak(turn, at)
        turn.answer.speak_segment(data)
        if fading is not None and not fading.answer.owes_speech:
            self._turns.end(fading, at, "complete")
            turn.answer.start_speaking()
        self._turns.settle(turn, at)

    def _words(self, at: float, words: str) -> None:
        """Note words that the bot has spoken."""
        turn = self._turns.answered
        if turn is None or not turn.answer.speak(words):
            stale = self._turns.stale
            if self._turns.is_cut or any(answer.expects(words) for answer in stale):
                return
            if self._speaker in stale and self._sentence.speak(words):
                return
            turn = self._turns.answer(at)
            if not turn.answer.speak(words):
                turn.answer.add_spoken(words)
        if self._sentence.speak(words):
            self._speaker = turn.answer
        turn.last_sign = at
        self._turns.settle(turn, at)

    def _bot_started(self, at: float, _data: Any) -> None:
        turns = self._turns
        has_nothing = turns.answered is None and not turns.asked.may_first_be_answered(by_model=False)
        if turns.is_cut and turns.asked and has_nothing:
            # Of what was cut when it had hardly begun; or of the answer, if words of that follow.
            self._speaks_early = True
            return
        self._speak(turns.answer(at), at)

    def _speak(self, turn: OpenTurn, at: float) -> None:
        self._turns.is_cut = self._speaks_early = False
        turn.quote_speech()  # of the speech before
        turn.answer.start_speaking()
        turn.time_first(bot_started_speaking=at)
        turn.note(at, "bot", "speaks")

    def _bot_stopped(self, at: float, _data: Any) -> None:
        turn = self._turns.fading or self._turns.answered
        self._speaks_early = False
        if turn is None or not turn.answer.speaking:
            return
        turn.last_sign = at
        turn.time(bot_stopped_speaking=at)
        turn.note(at, "bot", "silent")
        self._turns.fall_silent(turn, at)

    def _called(self, at: float, data: Any) -> None:
        turns, call_id, arguments = self._turns, getattr(data, "tool_call_id", None), getattr(data, "arguments", None)
        is_first = turns.answered is None and turns.asked.is_first_reached  # before any run: speech-to-speech
        cut = None if is_first else turns.cut
        if cut is not None:
            cut.call(at, data.function_name, call_id, arguments)
            return
        turn = turns.answer(at, by_model=is_first)
        is_new = call_id is not None and not turn.answer.has_call(call_id)
        turn.answer.call(at, data.function_name, call_id, arguments)
        if is_new:  # the message that announces a call has neither its id nor its arguments
            given = "" if arguments is None else f"({shown_in_timeline(arguments)})"
            turn.note(at, "bot", "calls", f"{turn.answer.name_of(call_id)}{given}")

    def _returned(self, at: float, data: Any) -> None:
        for answer in self._turns.stale:
            if answer.has_call(data.tool_call_id):
                answer.end_call(at, data.tool_call_id, result=data.result, cancelled=data.cancelled)
                return
        turn = self._turns.answered
        if turn is None:
            return
        turn.last_sign = at
        turn.answer.end_call(at, data.tool_call_id, result=data.result, cancelled=data.cancelled)
        turn.note_end_of_call(at, "bot", data.tool_call_id, data.result, cancelled=data.cancelled)
        self._turns.settle(turn, at)

    def _failed(self, at: float, data: ErrorData) -> None:
        turn = self._turns.answered or self._turns.asked.first
        if turn is None:
            return
        if len(turn.errors) < _MAX_ERRORS:
            is_kept = turn.answer.keeps(attrs.asdict(data))
            turn.errors.append(data if is_kept else ErrorData(message=one_line(data.message), fatal=data.fatal))
        turn.last_sign = at
        turn.note(at, "bot", "error", data.message)
        if turn is self._turns.answered:
            turn.answer.fail()
            self._turns.settle(turn, at)

    def _measured(self, _at: float, data: PipecatMetricsData) -> None:
        turn = self._turns.answered
        if turn is not None and len(turn.metrics) < _MAX_METRICS and turn.answer.keeps(attrs.asdict(data)):
            turn.metrics.append(data)
