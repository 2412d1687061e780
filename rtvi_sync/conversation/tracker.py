"""The rules that make turns from the events of a conversation. Pure.

A user's turn starts when a text is sent, or the user starts to speak. The bot's output belongs to the previous turn
until the answer starts: with the model's first run after the bot has reported that it has the question. Output that the
bot starts while there is no question, or before it has the question, is a turn of its own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from ..events import RTVIEvent
from ..protocol.dialects import Version
from ..protocol.message import RTVIMessage
from ..protocol.sent_text import pressed_keys, sent_text
from ..protocol.session_payloads import ErrorData
from ..protocol.spoken_text import MAX_CHARACTERS, SpokenText, letters_of
from ..protocol.text import one_line
from ..protocol.turn_payloads import BotOutputData, PipecatMetricsData
from .answer import Answer, BotTraits, Waits
from .record import Speech, TimelineEntry, TurnRecord, TurnStatus, TurnTimings, speech_of

_E: TypeAlias = RTVIEvent

#: The number of turns that a conversation keeps.
MAX_TURNS = 100
#: The assumption about a turn if the session ends before the bot has spoken for the first time.
VOICE_UNKNOWN = "it is not known whether this bot speaks"

# These bound the memory of a conversation, whatever a bot sends.
_MAX_ASKED = 1000
_MAX_SILENT = 1000  # ids of texts that run no model
_MAX_STALE = 3  # ended answers that may get late reports, of text announced before an interruption
_MAX_ERRORS = 20
_MAX_METRICS = 50
_MAX_TIMELINE = 500
_MAX_ENTRY = 2000  # characters

# If a smaller share of an answer was spoken, the answer was interrupted.
_INTERRUPTED = 0.8
# Speech that a question has cut falls silent within this many seconds after the report that the bot speaks.
_CUT_AT_ONCE = 0.5
# Bots report the user's input that they have from this version on.
_TELLS_USER_INPUT = (2, 2)
# The timings that belong to the answer.
_OF_ANSWER = ("llm_started", "first_token", "bot_started_speaking", "bot_stopped_speaking")


class TurnTracker:
    """Makes turns from the events of a conversation. Not thread-safe. Times are monotonic seconds.

    Each method that takes an event returns the turns that it started or ended.

    Args:
        waits: How long a bot may be quiet while part of its answer is pending.

    Attributes:
        patience: Seconds of quiet after which an answer without pending parts counts as complete. For bots that don't
            report their functions.
    """

    def __init__(self, waits: Waits | None = None) -> None:
        self.patience: float = 0.0
        self._waits = waits or Waits()
        self._turns: deque[OpenTurn] = deque(maxlen=MAX_TURNS)
        self._count = 0
        self._session = 0
        self._changed: list[OpenTurn] = []  # started or ended since the last report
        self._bot = BotTraits()
        self._has_words = True
        self._asked = Questions(self._bot)
        self._answered: OpenTurn | None = None  # the turn that the bot's output belongs to; None: output starts one
        self._fading: OpenTurn | None = None  # still being spoken, though the next answer has started
        self._stale: deque[Answer] = deque(maxlen=_MAX_STALE)  # the last ended answers: words may arrive late
        self._user_is_muted = False  # the bot does not hear the user, and nothing interrupts it
        self._is_cut = False  # the bot was interrupted, and its reports of speech are about the earlier speech
        self._speaks_early = False  # the bot has started to speak, but not reported for which turn
        # The sentence that a bot of 1.x is speaking, and its answer, if known yet.
        self._sentence = SpokenText()
        self._speaker: Answer | None = None

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """The last 100 turns, including turns in progress."""
        return tuple(turn.record() for turn in self._turns)

    @property
    def is_idle(self) -> bool:
        """True if all turns have ended."""
        return self._answered is None and self._fading is None and not self._asked.turns

    @property
    def speeches(self) -> list[Speech | None]:
        """The user's speech in each spoken turn in progress. One None if only other turns are in progress."""
        speeches: list[Speech | None] = [
            speech_of(turn.timings, is_speaking=turn.is_speaking)
            for turn in (self._fading, self._answered, *self._asked.spoken)
            if turn is not None and turn.modality == "audio"
        ]
        return speeches or ([] if self.is_idle else [None])

    @property
    def due(self) -> float | None:
        """The time at which to call `pass_time()`, unless an event happens first. None: never."""
        turn = self._quiet if self._fading is not None else self._answered or self._asked.first
        return turn.last_sign + self._patience_with(turn) if turn is not None else None

    # -- actions of the client ----------------------------------------------------------------------------------------

    def start_session(
        self,
        *,
        audio_out: bool,
        version: Version | None,
        user_is_muted: bool = False,
        has_words: bool = True,
        number: int | None = None,
    ) -> None:
        """Start a session, perhaps with another bot.

        Args:
            audio_out: False: the bot is known to send no audio.
            version: The bot's protocol version.
            user_is_muted: True: the bot has reported that it does not hear the user.
            has_words: False: only speech is reported, and no words can be known.
            number: Number of the session. None: the next number.
        """
        self._session = self._session + 1 if number is None else number
        self._has_words = has_words
        self._bot = BotTraits(
            version=version,
            has_voice=None if audio_out else False,
            tells_user_input=None if version is not None and version >= _TELLS_USER_INPUT else False,
        )
        self._asked = Questions(self._bot)
        self._stale.clear()
        self._user_is_muted = user_is_muted
        self._is_cut = False
        self._speaks_early = False

    def end_session(self, at: float, *, lost: bool = False) -> list[OpenTurn]:
        """End the session. A turn is complete if all of it was written and spoken; otherwise it has failed.

        Args:
            at: Now.
            lost: True: the connection broke. Then the current speech is incomplete, whatever words the bot reported.
        """
        for turn in (self._fading, self._answered):
            if turn is not None:
                # Pipecat 0.0.73 closes before it reports the end of speech. Without messages nothing shows that end.
                if not lost and turn.has_words:
                    turn.answer.speaking = False
                self._end(turn, at, self._status_at_end(turn, lost=lost))
        for asked in self._asked:
            self._end(asked, at, "failed")
        return self._changes()

    def sent(self, at: float, message: RTVIMessage) -> list[OpenTurn]:
        """Process a message that is about to be sent. A text that runs the model starts a turn.

        Args:
            at: Now.
            message: Any message. Most don't concern turns.
        """
        said = sent_text(message)
        if said is not None and said.runs:
            turn = self._start("text", aloud=said.aloud)
            turn.finals, turn.message_id = [said.text[:MAX_CHARACTERS]], message.id
            turn.is_file = message.type == "send-file"
            turn.time(user_started=at, user_stopped=at)
            turn.note(at, "you", "typed", said.text)
            self._ask(turn, at)
        elif said is not None and message.id is not None:
            self._asked.add_silently(message.id)
        elif message.type == "llm-function-call-result" and isinstance(message.data, Mapping):
            self._result_sent(at, str(message.data.get("tool_call_id")), message.data.get("result"))
        elif message.type == "dtmf" and (current := self._answered or self._asked.first) is not None:
            current.note(at, "you", "pressed", pressed_keys(message.data))
        return self._changes()

    def unsent(self, at: float, message_id: str) -> list[OpenTurn]:
        """End the turn of a message that could not be sent."""
        turn = self._asked.of_message(message_id)
        if turn is not None:
            self._end(turn, at, "failed")
        return self._changes()

    def _result_sent(self, at: float, call_id: str, result: Any) -> None:
        turn = self._answered
        if turn is not None:
            turn.answer.end_call(at, call_id, result=result)
            turn.note_end_of_call(at, "you", call_id, result)
            self._settle(turn, at)

    def pass_time(self, now: float) -> list[OpenTurn]:
        """If `due` has passed, end the turn whose bot was quiet for too long while part of its answer was pending."""
        turn = self._quiet
        if turn is not None and now >= turn.last_sign + self._patience_with(turn):
            self._stop_waiting(turn, now)
        return self._changes()

    def settle(self, at: float) -> list[OpenTurn]:
        """End the turn that is being answered if it is complete. For use after `patience` was lowered."""
        if self._answered is not None:
            self._settle(self._answered, at)
        return self._changes()

    def take(self, event: RTVIEvent, at: float, data: Any) -> list[OpenTurn]:
        """Process an event of the bot.

        Args:
            event: The event's type.
            at: The time of receipt.
            data: The payload.
        """
        handler = self.HANDLERS.get(event)
        if handler is None:
            return []
        handler(self, at, data)
        return self._changes() if self._changed else []

    def _changes(self) -> list[OpenTurn]:
        """Return the turns that have started or ended since the last call."""
        changed, self._changed = self._changed, []
        return [*dict.fromkeys(changed)]

    # -- the user -----------------------------------------------------------------------------------------------------

    def _spoken_question(self, at: float) -> OpenTurn:
        """Return the turn to which the user's current speech belongs."""
        if self._asked.in_speech is not None:
            return self._asked.in_speech
        turn = self._start("audio")
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
        self._bot.tells_user_input = True
        if data.input_type == "transcription":
            self._heard(at, data.text, final=data.final)
        elif data.input_type == "chat" and (question := self._asked.of_message(data.msg_id)) is not None:
            question.told_input = True
            self._acknowledge(at, question)

    def _user_transcript(self, at: float, data: Any) -> None:
        if not self._bot.tells_user_input:  # `user-input` repeats the same words
            self._heard(at, data.text, final=data.final)

    def _heard(self, at: float, text: str, *, final: bool) -> None:
        """Note the user's words. The last ones may arrive after the answer has started."""
        turn, answered = self._asked.in_speech, self._answered
        if turn is None and answered is not None and answered.modality == "audio":
            turn = answered if answered.is_speaking or not answered.finals else None
        if turn is None:
            last = self._turns[-1] if self._turns else None
            if not final and last is not None and last.is_over and last.modality == "audio":
                return  # more of that turn's transcript
            turn = self._spoken_question(at)
            turn.time_first(user_started=at)
        turn.last_sign = at
        turn.hear(text, final=final)
        if final:
            turn.time(transcribed=at)
            turn.note(at, "you", "said", text)

    def _user_llm_text(self, at: float, data: Any) -> None:
        question = self._asked.of_text(data.text)
        if question is not None:
            self._bot.tells_typed = self._bot.tells_typed or question.modality == "text"
            self._bot.tells_spoken = self._bot.tells_spoken or question.modality == "audio"
            if question.modality == "text" and not question.is_file and self._bot.tells_user_input is None:
                self._bot.tells_user_input = False  # it would have arrived before
            question.told_llm_text, question.told_text = True, data.text[:MAX_CHARACTERS]
            self._acknowledge(at, question)
            return
        turn = self._answered
        if turn is None or turn.told_llm_text:
            return
        if turn.modality == "audio":  # speech-to-speech models report it while they answer
            turn.told_text = data.text[:MAX_CHARACTERS]
        elif turn.is_doubtful and turn.user_text.strip() == data.text.strip():
            self._take_back(turn, at)
            self._bot.tells_typed = turn.told_llm_text = True
            self._acknowledge(at, turn)

    def _acknowledge(self, at: float, question: OpenTurn) -> None:
        """Note that the bot has a question, and so has skipped the questions before it."""
        question.last_sign = at
        if "acknowledged" not in question.moments:
            question.time(acknowledged=at)
            question.note(at, "", "acknowledged")
        for skipped in self._asked.before(question):
            if not skipped.is_speaking:
                self._end(skipped, at, "interrupted")
        self._asked.put_first(question)

    def _mute_started(self, _at: float, _data: Any) -> None:
        self._user_is_muted = True

    def _mute_stopped(self, _at: float, _data: Any) -> None:
        self._user_is_muted = False

    # -- the bot ------------------------------------------------------------------------------------------------------

    def _interrupted(self, at: float, _data: Any) -> None:
        """End the turns being answered: from 2.0 on each typed text interrupts first. A bot that has muted the user
        reports an interruption, but continues.
        """
        self._speaks_early = self._speaks_early and self._user_is_muted
        turn = self._answered
        is_unsure = turn is not None and turn.modality == "text" and "acknowledged" not in turn.moments
        if turn is not None and is_unsure and not turn.is_announced:
            self._take_back(turn, at)
        if self._user_is_muted:
            return
        self._is_cut = True
        for asked in self._asked:
            asked.is_announced = True
        for cut in (self._fading, self._answered):
            if cut is not None and not cut.answer.is_empty:
                self._end(cut, at, "interrupted")

    def _run_started(self, at: float, _data: Any) -> None:
        turn = self._answer(at, by_model=True)
        self._is_cut = False
        turn.answer.start_run()
        turn.time_first(llm_started=at)
        turn.note(at, "bot", "model runs")

    def _wrote(self, at: float, data: Any) -> None:
        cut = self._cut
        if cut is not None:
            cut.write(data.text)
            return
        turn = self._answer(at)
        turn.answer.write(data.text)
        if data.text.strip():
            turn.time_first(first_token=at)

    def _run_stopped(self, at: float, _data: Any) -> None:
        turn = self._answered
        if turn is None:
            return
        turn.last_sign = at
        turn.answer.stop_run()
        if turn.is_speaking and turn.is_firm and turn.answer.is_empty and not turn.errors:
            # The model ran while the user spoke, and found the question unfinished. The question waits again.
            self._answered = None
            turn.answer, turn.is_firm = Answer(self._bot), False
            for name in ("acknowledged", "llm_started", "first_token"):
                turn.moments.pop(name, None)
            self._asked.put_first(turn)
        else:
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
            pass  # the bot reports it for interrupted speech, too, together with the next speech
        elif data.spoken_progress is not None or data.spoken_status == "completed":
            self._segment(at, data)
        elif data.spoken is False:  # by 1.x: the text that the bot starts to speak
            turn = self._answered
            self._sentence, self._speaker = SpokenText(), turn.answer if turn is not None else None
            self._sentence.write(data.text)

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
        if self._speaks_early and not turn.answer.speaking:
            self._speak(turn, at)
        turn.answer.speak_segment(data)
        if fading is not None and not fading.answer.owes_speech:
            self._end(fading, at, "complete")
            turn.answer.start_speaking()
        self._settle(turn, at)

    def _words(self, at: float, words: str) -> None:
        """Note words that the bot has spoken."""
        turn = self._answered
        if turn is None or not turn.answer.speak(words):
            stale = self._stale
            if self._is_cut or any(answer.expects(words) for answer in stale):
                return
            if self._speaker in stale and self._sentence.speak(words):
                return
            turn = self._answer(at)
            if not turn.answer.speak(words):
                turn.answer.add_spoken(words)
        if self._sentence.speak(words):
            self._speaker = turn.answer
        turn.last_sign = at
        self._settle(turn, at)

    def _bot_started(self, at: float, _data: Any) -> None:
        has_nothing = self._answered is None and not self._asked.may_first_be_answered(by_model=False)
        if self._is_cut and self._asked and has_nothing:
            # This is the speech that was cut when it had hardly started, or the answer's, if its words follow.
            self._speaks_early = True
            return
        self._speak(self._answer(at), at)

    def _speak(self, turn: OpenTurn, at: float) -> None:
        self._is_cut = self._speaks_early = False
        turn.quote_speech()  # of the speech before
        turn.answer.start_speaking()
        turn.time_first(bot_started_speaking=at)
        turn.note(at, "bot", "speaks")

    def _bot_stopped(self, at: float, _data: Any) -> None:
        """Note that the bot has stopped speaking. End the turn if it is complete or was cut."""
        turn = self._fading or self._answered
        self._speaks_early = False
        if turn is None or not turn.answer.speaking:
            return
        turn.last_sign = at
        turn.time(bot_stopped_speaking=at)
        turn.note(at, "bot", "silent")
        was_cut = turn.is_late and at - turn.moments.get("bot_started_speaking", at) < _CUT_AT_ONCE
        turn.answer.stop_speaking(may_be_cut=was_cut or self._may_have_cut(turn))
        is_untold = self._asked and not self._bot.tells_interruption and turn.answer.owes_speech
        was_cut = was_cut and not turn.answer.spoken_text
        if is_untold or was_cut:
            self._end(turn, at, "interrupted")
            self._is_cut = self._is_cut or was_cut
        else:
            self._settle(turn, at)

    def _may_have_cut(self, turn: OpenTurn) -> bool:
        """Whether the user started to speak during the answer of a bot that does not report interruptions."""
        spoken_from = turn.moments.get("bot_started_speaking", 0.0)
        return not self._bot.tells_interruption and any(
            question.moments.get("user_started", 0.0) >= spoken_from for question in self._asked
        )

    def _called(self, at: float, data: Any) -> None:
        call_id, arguments = getattr(data, "tool_call_id", None), getattr(data, "arguments", None)
        is_first = self._answered is None and self._asked.is_first_reached  # before any run: speech-to-speech
        cut = None if is_first else self._cut
        if cut is not None:
            cut.call(at, data.function_name, call_id, arguments)
            return
        turn = self._answer(at, by_model=is_first)
        is_new = call_id is not None and not turn.answer.has_call(call_id)
        turn.answer.call(at, data.function_name, call_id, arguments)
        if is_new:  # the message that announces a call has no id and no arguments
            given = "" if arguments is None else f"({_shown_in_timeline(arguments)})"
            turn.note(at, "bot", "calls", f"{turn.answer.name_of(call_id)}{given}")

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
        turn.note_end_of_call(at, "bot", data.tool_call_id, data.result, cancelled=data.cancelled)
        self._settle(turn, at)

    def _failed(self, at: float, data: ErrorData) -> None:
        turn = self._answered or self._asked.first
        if turn is None:
            return
        if len(turn.errors) < _MAX_ERRORS:
            is_kept = turn.answer.keeps(attrs.asdict(data))
            turn.errors.append(data if is_kept else ErrorData(message=one_line(data.message), fatal=data.fatal))
        turn.last_sign = at
        turn.note(at, "bot", "error", data.message)
        if turn is self._answered:
            turn.answer.fail()
            self._settle(turn, at)

    def _measured(self, _at: float, data: PipecatMetricsData) -> None:
        turn = self._answered
        if turn is not None and len(turn.metrics) < _MAX_METRICS and turn.answer.keeps(attrs.asdict(data)):
            turn.metrics.append(data)

    # -- the owner of the bot's output: the question whose answer has started, or none --------------------------------

    def _answer(self, at: float, *, by_model: bool = False) -> OpenTurn:
        """Return the turn to which the bot's output belongs now. Start one if there is none."""
        turn = self._answered
        if turn is not None and by_model and turn.is_doubtful and not self._bot.tells_model:
            self._take_back(turn, at)  # speech before the first run of the model is no answer
            turn = self._answered
        if turn is not None and not (by_model and self._asked.is_first_reached):
            turn.last_sign = at
            return turn
        question = self._asked.first if by_model or not self._bot.tells_model else None
        if not self._asked.may_first_be_answered(by_model=by_model):
            question = None
        if turn is not None:
            self._leave(turn, at)
        if question is not None:
            question.is_firm = by_model and self._asked.is_first_reached
            self._asked.remove(question)
            turn = question
        else:
            turn, first = self._start(None), self._asked.first
            # A spoken question is acknowledged at its end. Until then the bot's output may be a complete answer.
            if first is not None and first.modality == "text":
                turn.is_late = first.is_announced and "acknowledged" not in first.moments
        if turn.errors:
            turn.answer.fail()
        turn.last_sign = at
        self._answered, self._is_cut = turn, False
        return turn

    def _leave(self, turn: OpenTurn, at: float) -> None:
        """End a turn because the next answer starts, unless its speech continues. Then it was not interrupted."""
        answer = turn.answer
        if answer.speaking and self._bot.tells_interruption and not (answer.running or answer.owes_run):
            if self._fading is not None:
                self._end(self._fading, at, "complete")
            self._answered, self._fading = None, turn
            return
        is_cut = answer.is_under_way or answer.owes_run or answer.owes_speech
        self._end(turn, at, "interrupted" if is_cut else "complete")

    def _take_back(self, turn: OpenTurn, at: float) -> None:
        """Move the supposed answer to a turn of the bot, because the question reaches the bot only now."""
        unasked = self._start(None)
        turn.give_answer_to(unasked)
        unasked.last_sign = at
        self._answered = unasked
        self._asked.put_first(turn)
        if unasked.answer.wait(self._waits) is None:
            self._end(unasked, at, "complete" if unasked.answer.text else "interrupted")

    @property
    def _cut(self) -> Answer | None:
        """Return the interrupted answer until the model runs again. Text of its run may arrive late."""
        is_late = self._is_cut and self._answered is None and self._bot.tells_model
        return self._stale[-1] if is_late and self._stale else None

    # -- when a turn starts and ends ----------------------------------------------------------------------------------

    def _start(self, modality: Literal["text", "audio"] | None, *, aloud: bool = True) -> OpenTurn:
        """Start a turn: of the user who typed or spoke, or of the bot (None)."""
        self._count += 1
        turn = OpenTurn(self._count, self._session, modality, Answer(self._bot, aloud=aloud), has_words=self._has_words)
        self._turns.append(turn)
        self._changed.append(turn)
        return turn

    def _ask(self, turn: OpenTurn, at: float) -> None:
        """Let a turn of the user wait for its answer."""
        turn.last_sign = at
        self._asked.add(turn)
        if len(self._asked) > _MAX_ASKED and self._asked.first is not None:
            self._end(self._asked.first, at, "failed")

    def _settle(self, turn: OpenTurn, at: float) -> None:
        """End a turn that is complete."""
        is_due = not self.patience or at >= turn.last_sign + self.patience
        if is_due and self._wait(turn) is None:
            is_cut = turn.answer.is_cancelled
            self._end(turn, at, "interrupted" if is_cut else "failed" if turn.answer.is_empty else "complete")

    def _end(self, turn: OpenTurn, at: float, status: TurnStatus) -> None:
        """End a turn in progress, which is being answered, fades or waits for its answer."""
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

    def _status_at_end(self, turn: OpenTurn, *, lost: bool) -> TurnStatus:
        """Return the status of a turn that ends with its session."""
        answer = turn.answer
        if answer.is_cancelled and not (lost or answer.is_under_way):
            return "interrupted"
        if answer.is_empty or answer.owes_run or answer.is_under_way:
            return "failed"
        if answer.owes_speech and self._bot.has_voice is None and not lost:
            turn.assumed = VOICE_UNKNOWN
            return "complete"
        return "failed" if answer.owes_speech else "complete"

    # -- bots that are quiet for too long -----------------------------------------------------------------------------

    @property
    def _quiet(self) -> OpenTurn | None:
        """The turn that ends first if the bot says nothing more."""
        turn, fading = self._answered or self._asked.first, self._fading
        if turn is None or fading is None:
            return turn or fading
        return min(turn, fading, key=lambda turn: turn.last_sign + self._patience_with(turn))

    def _patience_with(self, turn: OpenTurn) -> float:
        """Return how many seconds a turn waits for the bot's next report."""
        if turn.errors and turn is self._asked.failed:
            return self._waits.follow_up
        wait = self._wait(turn)
        return wait[0] if wait is not None else self.patience

    def _wait(self, turn: OpenTurn) -> tuple[float, str] | None:
        """Return how long the bot may be quiet, and for which pending part. None: nothing is pending."""
        wait = turn.answer.wait(self._waits)
        if wait is not None or not (turn.is_doubtful and self._bot.may_acknowledge):
            return wait
        is_told = "llm_started" in turn.moments or "acknowledged" in turn.moments
        return None if is_told else (self._waits.acknowledgement, "for the question to be acknowledged")

    def _stop_waiting(self, turn: OpenTurn, now: float) -> None:
        answer, wait = turn.answer, self._wait(turn)
        if wait is None:
            self._settle(turn, now)
            return
        if answer.wait(self._waits) is None:
            self._bot.may_acknowledge = False
        if answer.is_empty and not answer.owes_run:
            self._end(turn, now, "failed")
            return
        is_mute = not (answer.owes_run or answer.is_under_way or turn.errors)  # an error may have prevented its speech
        if is_mute and self._bot.has_voice is None:
            # In both cases the next turn does not wait for speech.
            self._bot.has_voice = answer.lacks_speech
            self._bot.tells_speaking = not answer.lacks_speech
        is_cut = answer.has_spoken and answer.spoken_share < _INTERRUPTED and not self._bot.tells_interruption
        is_cut = answer.is_cancelled or (is_cut and not answer.owes_run)
        if not is_cut:
            turn.assumed = f"waited {wait[0]:g} s {wait[1]}"
        self._end(turn, now, "interrupted" if is_cut else "complete")

    #: By the type of an event, the method that takes its time and payload.
    HANDLERS: Final[Mapping[RTVIEvent, Callable[[TurnTracker, float, Any], None]]] = {
        _E.USER_STARTED_SPEAKING: _user_started,
        _E.USER_STOPPED_SPEAKING: _user_stopped,
        _E.USER_INPUT: _user_input,
        _E.USER_TRANSCRIPT: _user_transcript,
        _E.USER_LLM_TEXT: _user_llm_text,
        _E.USER_MUTE_STARTED: _mute_started,
        _E.USER_MUTE_STOPPED: _mute_stopped,
        _E.BOT_INTERRUPTED: _interrupted,
        _E.BOT_LLM_STARTED: _run_started,
        _E.BOT_LLM_TEXT: _wrote,
        _E.BOT_LLM_STOPPED: _run_stopped,
        _E.BOT_OUTPUT: _output,
        _E.BOT_TTS_TEXT: _tts_text,
        _E.BOT_STARTED_SPEAKING: _bot_started,
        _E.BOT_STOPPED_SPEAKING: _bot_stopped,
        _E.LLM_FUNCTION_CALL: _called,
        _E.LLM_FUNCTION_CALL_START: _called,
        _E.LLM_FUNCTION_CALL_STARTED: _called,
        _E.LLM_FUNCTION_CALL_IN_PROGRESS: _called,
        _E.LLM_FUNCTION_CALL_STOPPED: _returned,
        _E.ERROR: _failed,
        _E.METRICS: _measured,
    }


class Questions:
    """The user's turns of one session whose answer has not started, in order.

    Args:
        bot: its traits.
    """

    def __init__(self, bot: BotTraits) -> None:
        self._bot = bot
        #: All of them, in order.
        self.turns: deque[OpenTurn] = deque()
        #: The spoken questions. There may be hundreds of others, which a search would pass in vain.
        self.spoken: list[OpenTurn] = []
        self._silent: deque[str] = deque(maxlen=_MAX_SILENT)

    def __iter__(self) -> Iterator[OpenTurn]:
        return iter([*self.turns])

    def __len__(self) -> int:
        return len(self.turns)

    def add(self, turn: OpenTurn) -> None:
        """Append a question."""
        self.turns.append(turn)
        if turn.modality == "audio":
            self.spoken.append(turn)

    def put_first(self, turn: OpenTurn) -> None:
        """Put a question first: it is answered next, or its answer has not started after all."""
        self.remove(turn)
        self.turns.appendleft(turn)
        if turn.modality == "audio":
            self.spoken.insert(0, turn)

    def remove(self, turn: OpenTurn) -> None:
        """Remove a question, if it is one."""
        if turn in self.turns:
            self.turns.remove(turn)
        if turn in self.spoken:
            self.spoken.remove(turn)

    @property
    def first(self) -> OpenTurn | None:
        """The question to be answered next."""
        return self.turns[0] if self.turns else None

    @property
    def in_speech(self) -> OpenTurn | None:
        """The spoken question to which further speech belongs, because its answer has not started."""
        last = self.turns[-1] if self.turns else None
        return last if last is not None and last.modality == "audio" else None

    @property
    def failed(self) -> OpenTurn | None:
        """The first question, if the bot has answered it by an error only."""
        first = self.first
        is_asked = first is not None and (first.told_llm_text or not first.is_speaking)
        return first if first is not None and first.errors and is_asked else None

    # -- the questions that the bot has -------------------------------------------------------------------------------

    def add_silently(self, message_id: str) -> None:
        """Note a text that runs no model. The bot acknowledges it like the others."""
        self._silent.append(message_id)

    def of_message(self, message_id: str | None) -> OpenTurn | None:
        """Return the typed question that was sent by the message with this id."""
        if message_id is None or message_id in self._silent:
            return None
        return next((turn for turn in self.turns if turn.message_id == message_id), None)

    def of_text(self, text: str) -> OpenTurn | None:
        """Return the question that the bot passes to its model as this text. It may join several typed questions."""
        key = _key_of(text)
        typed = [turn for turn in self.turns if turn.modality == "text" and not turn.told_llm_text]
        same = (turn for turn in typed if _key_of(turn.user_text) == key)
        joined = (turn for turn in reversed(typed) if (own := _key_of(turn.user_text)) and key.endswith(own))
        # More than once if the user continues, because the model found the question unfinished.
        spoken = (turn for turn in self.spoken if turn.is_speaking or not turn.told_llm_text)
        return next(same, None) or next(joined, None) or next(spoken, None)

    def before(self, turn: OpenTurn) -> list[OpenTurn]:
        """Return the questions before this one. If the bot has this one, it has skipped them."""
        turns = [*self.turns]
        return turns[: turns.index(turn)] if turn in turns else []

    @property
    def is_first_reached(self) -> bool:
        """Whether the bot has reported, by all messages that it uses for this, that it has the first question."""
        first = self.first
        if first is None:
            return False
        if first.modality == "audio":
            has_ended = "user_stopped_reported" in first.moments and not first.is_speaking
            return first.told_llm_text or (has_ended and not self._bot.tells_spoken)
        misses_input = self._tells_input_of(first) and not first.told_input
        misses_text = self._bot.tells_typed and not first.told_llm_text
        return (first.told_input or first.told_llm_text) and not (misses_input or misses_text)

    def may_first_be_answered(self, *, by_model: bool) -> bool:
        """Whether output that starts now may answer the first question, although the bot has not reported the question.

        A speech-to-speech model may answer long before the bot reports that the user has stopped. So may a model that
        decides whether the user has finished.
        """
        first, bot = self.first, self._bot
        if first is None:
            return False
        if first.is_speaking:
            return self.is_first_reached or (by_model and not bot.tells_spoken)
        is_told = bot.tells_spoken if first.modality == "audio" else bot.tells_typed or self._tells_input_of(first)
        return self.is_first_reached or not is_told

    def _tells_input_of(self, turn: OpenTurn) -> bool:
        return self._bot.tells_user_input is not False and not turn.is_file


def _key_of(text: str) -> str:
    """Return the key by which texts are compared: letters and digits. Without any, as for an emoji: the whole text."""
    return letters_of(text) or text.strip()


@attrs.define(eq=False, repr=False)
class OpenTurn:
    """A turn that may still change."""

    number: int
    session: int
    modality: Literal["text", "audio"] | None
    answer: Answer
    has_words: bool = True  # False: the words cannot be known
    message_id: str | None = None  # of a typed text
    status: TurnStatus = "in_progress"
    assumed: str | None = None
    finals: list[str] = attrs.field(factory=list)
    room: int = MAX_CHARACTERS  # for more of the user's words, and the spaces between them
    partial: str = ""
    told_text: str = ""  # by user-llm-text
    is_file: bool = False  # no bot acknowledges one by user-input
    told_input: bool = False
    told_llm_text: bool = False
    is_speaking: bool = False  # the user
    is_announced: bool = False  # the bot was interrupted after the question, as typed texts do from 2.0 on
    is_late: bool = False  # a turn of the bot that started after the interruption by a text not yet acknowledged
    is_firm: bool = False  # the answer started with a run of the model, after the bot had the question
    last_sign: float = 0.0
    moments: dict[str, float] = attrs.field(factory=dict)  # by the names of `timings`; only past moments
    errors: list[ErrorData] = attrs.field(factory=list)
    metrics: list[PipecatMetricsData] = attrs.field(factory=list)
    timeline: list[TimelineEntry] = attrs.field(factory=list)

    @property
    def timings(self) -> TurnTimings:
        """The times of its events."""
        return TurnTimings(**self.moments)

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended and no longer changes."""
        return self.status != "in_progress"

    @property
    def is_doubtful(self) -> bool:
        """Whether the output that was taken for its answer may not belong to it."""
        return self.modality is not None and not self.is_firm

    @property
    def user_text(self) -> str:
        """The user's typed or spoken text, as far as known."""
        return " ".join(filter(None, (*self.finals, self.partial))) or self.told_text

    def hear(self, text: str, *, final: bool) -> None:
        """Note the user's words. Words that are not final replace each other."""
        text = text.strip()[: max(0, self.room)]
        if final and self.room > 0:
            self.finals.append(text)
            self.room -= len(text) + 1
        self.partial = "" if final else text

    def time(self, **moments: float) -> None:
        """Note when something happened."""
        self.moments.update(moments)

    def time_first(self, **moments: float) -> None:
        """Note when something happened for the first time."""
        self.moments = moments | self.moments

    def note(self, at: float, who: Literal["you", "bot", ""], kind: str, text: str = "") -> None:
        """Insert an event into the timeline by its time, because audible events are reported late."""
        if len(self.timeline) < _MAX_TIMELINE:
            place = len(self.timeline)
            while place and self.timeline[place - 1].at > at:
                place -= 1
            self.timeline.insert(place, TimelineEntry(at, who, kind, text[:_MAX_ENTRY]))

    def note_end_of_call(
        self, at: float, who: Literal["you", "bot"], call_id: str, result: Any, *, cancelled: bool = False
    ) -> None:
        """Append the end of a function call to the timeline."""
        shown = "" if result is None else f" {_shown_in_timeline(result)}"
        self.note(at, who, "cancelled" if cancelled else "returned", self.answer.name_of(call_id) + shown)

    def quote_speech(self) -> None:
        """Quote in the timeline the bot's words since it started to speak."""
        for index in reversed(range(len(self.timeline))):
            entry = self.timeline[index]
            if (entry.who, entry.kind) == ("bot", "speaks"):
                self.timeline[index] = TimelineEntry(entry.at, "bot", "speaks", self.answer.last_speech[:_MAX_ENTRY])
                return

    def give_answer_to(self, other: OpenTurn) -> None:
        """Move everything that the bot has done to another turn, which is still empty."""
        other.answer, self.answer = self.answer, other.answer
        other.errors, self.errors = self.errors, []
        other.metrics, self.metrics = self.metrics, []
        other.time(**{name: self.moments.pop(name) for name in _OF_ANSWER if name in self.moments})
        other.timeline = [entry for entry in self.timeline if entry.who == "bot"]
        self.timeline = [entry for entry in self.timeline if entry.who != "bot"]

    def record(self) -> TurnRecord:
        """Return the current record of the turn."""
        answer, text = self.answer, self.answer.text
        self.quote_speech()
        return TurnRecord(
            number=self.number,
            session=self.session,
            initiator="user" if self.modality is not None else "bot",
            modality=self.modality,
            message_id=self.message_id,
            status=self.status,
            assumed=self.assumed,
            user_text=self.user_text if self.has_words else None,
            bot_text=text if self.has_words else None,
            spoken_text=(text if self.status == "complete" else answer.spoken_text) if self.has_words else None,
            spoken_exact=answer.spoken_exact,
            function_calls=answer.calls,
            errors=(*self.errors,),
            metrics=(*self.metrics,),
            timeline=(*self.timeline,),
            timings=self.timings,
        )


def _shown_in_timeline(value: Any) -> str:
    """Return the arguments or the result of a function call as text: as JSON if possible."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # the sender gets the error when the message is encoded
        return repr(value)
