"""One answer of a bot: its text, speech and function calls, and the parts still pending. Pure.

An answer is complete when nothing is running or pending. The bot's reports decide this, not times: after a function
the model runs again, and text that should be spoken is spoken. A timer decides only for a bot that doesn't report
everything, or breaks off.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import attrs

from ..protocol.dialects import Version
from ..protocol.record import MutableRecord
from ..protocol.spoken_text import MAX_CHARACTERS, SpokenText, letters_of
from ..protocol.turn_payloads import BotOutputData
from .record import ReportedFunctionCall

_MAX_PARTS = 1000
_MAX_SEGMENTS = 1000
_MAX_CALLS = 100
# Arguments, results, errors and metrics of a turn, in characters.
_MAX_DATA = 1_000_000
# A text counts as spoken once this share of its letters was: bots never report the letters that their filters remove.
_SPOKEN = 0.98
# Bots report interruptions from this version on.
_TELLS_INTERRUPTION = (2, 0)


@attrs.define(eq=False, repr=False)
class BotTraits(MutableRecord):
    """The behaviour that the bot has shown in a session.

    Attributes:
        version: The protocol version. None: unknown.
        has_voice: False: the bot sends no audio, or is known not to speak. None: not known yet.
        tells_model: The bot reports when its language model runs.
        tells_speaking: False: the bot reports the words it has spoken, but not when it starts and stops speaking.
        tells_words: The bot reports the words it has spoken. None: not known yet.
        tells_output: It does so by `bot-output`, so `bot-tts-text` repeats the same words.
        tells_user_input: The bot acknowledges typed texts by `user-input`. None: not known yet. Bots of its version do,
            unless they are configured not to.
        may_acknowledge: False: the client has waited for an acknowledgement once, in vain.
        tells_typed: The bot acknowledges typed text by `user-llm-text`.
        tells_spoken: The bot acknowledges speech by `user-llm-text`.
    """

    version: Version | None = None
    has_voice: bool | None = None
    tells_model: bool = False
    tells_speaking: bool = True
    tells_words: bool | None = None
    tells_output: bool = False
    tells_user_input: bool | None = False
    may_acknowledge: bool = True
    tells_typed: bool = False
    tells_spoken: bool = False

    @property
    def tells_interruption(self) -> bool:
        """Return whether the bot reports interruptions."""
        return self.version is not None and self.version >= _TELLS_INTERRUPTION


class Waits(NamedTuple):
    """How long the bot may be quiet while part of its answer is pending, in seconds from its last report.

    Attributes:
        acknowledgement: Until the bot acknowledges a question that it seems to answer. Only while it is unknown whether
            it acknowledges any.
        first_speech: Until the bot's first speech. Only while it is unknown whether it speaks.
        speech: Until a bot that speaks has spoken a text.
        more_speech: Until speech continues that stopped before all was spoken.
        follow_up: Until the model runs after a function, or after a run without output.
        lost: Until a question is answered, or a run, function or speech ends. Longer than functions take, because it
            is only for bots that don't report the end. (Pipecat itself ends a bot that was idle for 300 s.)
    """

    acknowledgement: float = 2.0
    first_speech: float = 3.0
    speech: float = 10.0
    more_speech: float = 2.0
    follow_up: float = 3.0
    lost: float = 600.0


@attrs.define(eq=False, repr=False)
class _Part(SpokenText):
    """The text of one run of the model, or words that were spoken without it."""

    aloud: bool = True
    written: bool = True

    @property
    def is_pending(self) -> bool:
        """Return whether the part should be spoken, and none of it was."""
        return self.written and self.aloud and bool(self.letters) and not self.spoken_letters


class Answer:
    """The bot's answer in one turn.

    Args:
        bot: Its traits. This answer may add to them.
        aloud: True if the first run should be spoken. Runs after a function are always spoken.
    """

    def __init__(self, bot: BotTraits, *, aloud: bool = True) -> None:
        self._bot = bot
        self._aloud = aloud
        self._parts: list[_Part] = []
        self._run: _Part | None = None
        self._unwritten: _Part | None = None  # the unwritten words of the current speech
        # Texts by their hashes, because they may be long and many.
        self._segments: dict[int, tuple[_Part, int]] = {}
        self._last_segment: tuple[int, _Part, int] = hash(""), _Part(), 0
        self._calls: list[ReportedFunctionCall] = []
        self._room = MAX_CHARACTERS  # for further text, and the spaces between the parts
        self._data_room = _MAX_DATA
        self._unheard = False  # words were reported, but not yet the speech that they belong to
        self._by_words = False
        self._speech_begin = self._speech_end = 0  # of the last speech, in the text that was spoken
        self.running: bool = False
        self.speaking: bool = False
        self.has_spoken: bool = False
        self._has_failed = False
        self.is_cancelled: bool = False
        self.owes_run: bool = False

    # -- the language model -------------------------------------------------------------------------------------------

    def start_run(self) -> None:
        """Start a run of the model."""
        self._bot.tells_model = True
        self._resume_run()

    def _resume_run(self) -> _Part:
        self.running, self.owes_run, self.is_cancelled = True, False, False
        self._run = self._add_part(_Part(aloud=self._aloud or bool(self._calls)))
        return self._run

    def write(self, text: str) -> None:
        """Append the text of the current run."""
        # If the run has ended, the previous run's end was reported twice.
        self._write(self._run or self._resume_run(), text)

    def _write(self, part: _Part, text: str) -> None:
        text = text[: max(0, self._room)]
        self._room -= len(text)
        part.write(text)

    def stop_run(self) -> None:
        """End the run. A run without output was an unreported function, or an empty answer."""
        if not self.running:
            return
        run, self._run, self.running = self._run, None, False
        called = any(call.stopped is None for call in self._calls)
        is_empty = (run is None or not run.letters) and self._room > 0
        self.owes_run = self.owes_run or (is_empty and not (called or self._has_failed))

    def _add_part(self, part: _Part, index: int | None = None) -> _Part:
        if len(self._parts) < _MAX_PARTS:
            self._parts.insert(len(self._parts) if index is None else index, part)
            self._room -= 1
        return part

    # -- functions ----------------------------------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[ReportedFunctionCall, ...]:
        """The calls, in the order of their starts."""
        return (*self._calls,)

    def call(
        self, at: float, name: str | None, call_id: str | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Record a call, or later details of it. The message that announces a call has no id yet."""
        if not self.keeps((name, call_id)):
            return
        arguments = arguments if self.keeps(arguments) else None
        index = self._index_of(call_id, name) if call_id is not None else None
        if index is not None:
            known = self._calls[index]
            self._calls[index] = attrs.evolve(
                known,
                function_name=known.function_name or name,
                tool_call_id=call_id,
                arguments=arguments if arguments is not None else known.arguments,
            )
        elif len(self._calls) < _MAX_CALLS:
            self._calls.append(
                ReportedFunctionCall(function_name=name, tool_call_id=call_id, arguments=arguments, started=at)
            )

    def name_of(self, call_id: str | None) -> str:
        """Return the name under which a call is shown."""
        names = (call.function_name for call in self._calls if call.tool_call_id == call_id)
        return next(names, None) or "function"

    def keeps(self, data: object) -> bool:
        """Count data that the turn should keep. Return False if there is no room for them."""
        room = self._data_room - len(repr(data))
        self._data_room = room if room >= 0 else self._data_room
        return room >= 0

    def has_call(self, call_id: str) -> bool:
        """Return whether the answer has a call with this id."""
        return any(call.tool_call_id == call_id for call in self._calls)

    def end_call(self, at: float, call_id: str, *, result: Any = None, cancelled: bool = False) -> None:
        """Record that a function has returned, and the model gets the result; or that it was cancelled."""
        index = self._index_of(call_id, None)
        if index is None:
            return
        call = self._calls[index]
        self._calls[index] = attrs.evolve(
            call,
            tool_call_id=call_id,
            result=result if result is not None and self.keeps(result) else call.result,
            cancelled=cancelled,
            stopped=call.stopped or at,
        )
        if call.stopped is None:
            self.is_cancelled = cancelled
            # A function that is cancelled without an interruption took too long. The model is told so, and runs again.
            self.owes_run = not cancelled or self._bot.tells_interruption

    def _index_of(self, call_id: str | None, name: str | None) -> int | None:
        for index, call in enumerate(self._calls):
            if call.tool_call_id == call_id:
                return index
        for index, call in enumerate(self._calls):
            if call.tool_call_id is None and (name is None or call.function_name in (None, name)):
                return index
        return None

    # -- speech -------------------------------------------------------------------------------------------------------

    def start_speaking(self) -> None:
        """Record that the bot speaks."""
        self._bot.has_voice = self._bot.tells_speaking = True
        self.speaking = self.has_spoken = True
        self._unheard = self.is_cancelled = False
        self._speech_begin = self._speech_end

    def stop_speaking(self, *, may_be_cut: bool = False) -> None:
        """Record that the bot is silent. If it does not report words, it has spoken all text written so far.

        Args:
            may_be_cut: The user has started to speak in the meantime. A bot that reports sentences may not have
                finished its first one.
        """
        bot = self._bot
        if bot.tells_words is None and self.speaking and self.text and not may_be_cut:
            bot.tells_words = False
        if self.speaking and bot.tells_words is False:
            for part in self._parts:
                part.speak_until(len(part.letters))
        self.speaking, self._unwritten = False, None
        self._speech_end = len(self.spoken_text)

    def expects(self, words: str) -> bool:
        """Return whether these words are the next ones to speak. If so, move the cursor over them."""
        return any(part.speak(words) for part in self._parts if part.due_letters)

    def speak(self, words: str) -> bool:
        """Move the cursor over spoken words. Return False if the bot did not write them."""
        self._note_words(by_words=len(words.split()) <= 1)
        return self.expects(words)

    def add_spoken(self, words: str) -> None:
        """Add words that were spoken without the model, such as a greeting. The words of one speech form one part."""
        part = self._unwritten = self._unwritten or self._add_unwritten()
        self._write(part, f" {words}" if part.text else words)
        part.speak_until(len(part.letters))

    def knows_segment(self, data: BotOutputData) -> bool:
        """Return whether progress in this segment was reported before, or its text was written in this answer."""
        key = _key_of(data)
        if key in self._segments:
            return True
        # Pipecat 1.5 gives a segment another id in each message.
        last, part, start = self._last_segment
        if last == hash(data.text) and part.spoken_letters < start + len(letters_of(data.text)):
            self._keep_segment(data, part, start)
            return True
        for written in self._parts:
            found = written.locate(data.text) if written.written else None
            if found is not None:
                self._keep_segment(data, written, found)
                return True
        return False

    def add_segment(self, data: BotOutputData) -> None:
        """Add a segment that is spoken without the model."""
        part = self._add_unwritten()
        self._write(part, data.text)
        self._keep_segment(data, part, 0)

    def _add_unwritten(self) -> _Part:
        """Add a part that is spoken without the model, before the text that is written but not yet spoken."""
        self.is_cancelled = False  # the bot says something of its own
        index = len(self._parts)
        while index and self._parts[index - 1].is_pending:
            index -= 1
        return self._add_part(_Part(written=False), index)

    def _keep_segment(self, data: BotOutputData, part: _Part, start: int) -> None:
        self._last_segment = hash(data.text), part, start
        if len(self._segments) < _MAX_SEGMENTS:
            self._segments[_key_of(data)] = part, start

    def speak_segment(self, data: BotOutputData) -> None:
        """Move the cursor to the bot's position in a known segment."""
        part, start = self._segments.get(_key_of(data), self._last_segment[1:])
        progress, whole = data.spoken_progress, len(letters_of(data.text))
        reached = whole
        if progress is not None and data.spoken_status != "completed":
            reached = len(letters_of(progress.accumulated_text))
        before = part.spoken_letters
        part.speak_until(start + reached)
        if part.spoken_letters > before:
            self._note_words(by_words=reached < whole or data.output_type == "word")

    def leave_unspoken(self, data: BotOutputData) -> None:
        """Record that a segment will not be spoken."""
        if self.knows_segment(data):
            part, _ = self._segments.pop(_key_of(data), (None, 0))
            if part is not None:
                part.unspoken_letters += len(letters_of(data.text))

    def _note_words(self, *, by_words: bool) -> None:
        self._bot.tells_words = True
        self._by_words = self._by_words or by_words
        self._unheard = not self.speaking

    def fail(self) -> None:
        """Record an error of the bot, which explains a run without output."""
        self._has_failed = True
        if self.is_empty:
            self.owes_run = False

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if the answer has no text, sound or calls."""
        parts = self._parts
        return not (self.has_spoken or self._calls or (parts and any(part.letters for part in parts)))

    @property
    def text(self) -> str:
        """All text, written and spoken."""
        return " ".join(filter(None, (part.text.strip() for part in self._parts)))

    @property
    def spoken_text(self) -> str:
        """The spoken part of the text."""
        return " ".join(filter(None, (part.spoken.strip() for part in self._parts)))

    @property
    def last_speech(self) -> str:
        """The words spoken since the bot was last silent."""
        is_over = not self.speaking and self._speech_end > self._speech_begin  # the next speech's first word is early
        return self.spoken_text[self._speech_begin : self._speech_end if is_over else None].strip()

    @property
    def spoken_exact(self) -> Literal["word", "sentence"] | None:
        """The unit by which the bot reports spoken text. None: it does not report it, or has not spoken."""
        if not (self._bot.tells_words and any(part.spoken_letters for part in self._parts)):
            return None
        return "word" if self._by_words else "sentence"

    @property
    def spoken_share(self) -> float:
        """The spoken share of the text that should be spoken."""
        whole = due = 0
        for part in self._to_be_spoken():
            whole += len(part.letters) - part.unspoken_letters
            due += part.due_letters
        return 1 - due / whole if whole > 0 else 1.0

    def _to_be_spoken(self) -> list[_Part]:
        return [part for part in self._parts if part.aloud]

    @property
    def is_under_way(self) -> bool:
        """True if the model or a function is running, or the bot is speaking."""
        calls = self._calls
        return self.running or self.speaking or (bool(calls) and any(call.stopped is None for call in calls))

    @property
    def owes_speech(self) -> bool:
        """True if words are not spoken yet, or the speech of spoken words has not ended."""
        is_unheard = self._unheard and self._bot.tells_speaking
        return self._bot.has_voice is not False and (is_unheard or self.spoken_share < _SPOKEN)

    @property
    def lacks_speech(self) -> bool:
        """True if words were reported as spoken, but no speech was."""
        return self._unheard

    def wait(self, waits: Waits) -> tuple[float, str] | None:
        """Return how long the bot may be quiet, and for which pending part. None: nothing is pending."""
        if self.running or self.speaking or self.is_under_way:  # the first two for speed
            return waits.lost, "for the bot's current activity to end"
        if self.owes_run:
            return waits.follow_up, "for the model to run after a function, or after a run that said nothing"
        if self.is_empty and not self._has_failed:
            return waits.lost, "for an answer"
        if not self.owes_speech:
            return None
        if not self._bot.has_voice:
            return waits.first_speech, "for the bot's first speech"
        has_spoken = self.has_spoken or not self._bot.tells_speaking
        if has_spoken and any(part.spoken_letters and part.due_letters for part in self._to_be_spoken()):
            return waits.more_speech, "for the rest to be spoken"
        return waits.speech, "for the text to be spoken"


def _key_of(data: BotOutputData) -> int:
    return data.segment_id if data.segment_id is not None else hash(data.text)
