"""A turn of a conversation: its audio, its latencies, the checks of `expect()`, and the timeline of a failed one."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ..errors import ExpectationError, UsageError
from ..media.turn_audio import TurnAudio
from ..protocol.record import Record
from ..protocol.spoken_text import MAX_CHARACTERS
from ..protocol.text import MAX_LENGTH, one_line, quoted
from ..protocol.validation import BOOL, NAME, WAIT, Rule, check_names, function_taking, number
from ..session.params import Seconds
from .record import ReportedFunctionCall, TimelineEntry, TurnRecord
from .words import word_error_rate

if TYPE_CHECKING:
    from typing_extensions import Never

    from ..transports.base import Transcriber

__tracebackhide__ = True  # pytest shows the line of the test, and no lines of this module

ExpectedCalls: TypeAlias = Mapping[str, Mapping[str, Any] | None] | Sequence[str | tuple[str, Mapping[str, Any]]]
"""Expected function calls: arguments by name, or a list of names and of (name, arguments)."""

Texts: TypeAlias = str | Sequence[str]

_Failure: TypeAlias = tuple[str, str, str]  # expected, got, and the kind

#: Why a check of the bot's words or calls fails if the transport carries no messages.
WORDS_UNKNOWN = (
    "its words are not known over this transport, which carries no messages: give the transport a `transcribe`, a "
    "function that returns the words in PCM of a sample rate"
)
CALLS_UNKNOWN = "calls are not known over this transport, which carries no messages: test them over one that does"

_NO_AUDIO = "the bot did not speak, or not over this transport, or the client was not made to keep its audio"

# A text of at least this length may have been cut: the limit also counts removed spaces around its parts.
_NEAR_LIMIT = MAX_CHARACTERS - 1000
# Lines of a timeline in an error.
_MAX_LINES = 40
_NO_NAME = (
    "the bot reports calls without names: set function_call_report_level to ARGUMENTS in the parameters of its RTVI "
    'observer, or call transport.configure("full") over the eval route'
)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Turn(TurnRecord):
    """A turn of the conversation: the user's question and the bot's answer, or unprompted speech of the bot.

    The properties are times in seconds, by the client's clock at receipt. A property is None if its start or end is
    unknown.

    Attributes:
        audio: The bot's audio, from the moment it received the user's words. If the turn was interrupted, up to the
            interruption. Empty while the turn is in progress.
        user_audio: The user's audio, at most the last minute. Empty while the turn is in progress, and for typed text.
        bot: The bot's protocol and library: "RTVI 2.2.0, pipecat-ai 1.14.0".
    """

    audio: TurnAudio = attrs.field(factory=TurnAudio)
    user_audio: TurnAudio = attrs.field(factory=TurnAudio)
    bot: str = ""

    def _repr_html_(self) -> str:
        """Return the value of a cell for a notebook: the timeline, and players for both sides."""
        from html import escape  # most programs show no turn as HTML

        players = "".join(
            f"<div>{who} {audio._repr_html_()}</div>"
            for who, audio in (("you", self.user_audio), ("bot", self.audio))
            if audio
        )
        return f"<pre>{escape(timeline_of(self))}</pre>{players}"

    @property
    def voice_to_voice(self) -> float | None:
        """The silence that the user heard: from the last audible sample sent to the first one of the answer."""
        return self.time_to_first_audio if self.modality == "audio" else None

    @property
    def time_to_first_audio(self) -> float | None:
        """The time from the end of the user's turn to the first audible sample of the answer."""
        return _between(self.timings.user_stopped, self.timings.first_audio)

    @property
    def time_to_first_token(self) -> float | None:
        """The time from the end of the user's turn to the first text of the language model."""
        return _between(self.timings.user_stopped, self.timings.first_token)

    @property
    def turn_detection(self) -> float | None:
        """The time from the end of the user's voice to the bot's report that the user had stopped speaking."""
        return _between(self.timings.user_stopped, self.timings.user_stopped_reported)

    @property
    def transcription(self) -> float | None:
        """The time from the end of the user's voice to the last final transcript."""
        return _between(self.timings.user_stopped, self.timings.transcribed)

    @property
    def duration(self) -> float | None:
        """The time from the turn's start to its end."""
        timings = self.timings
        starts = (timings.user_started, timings.llm_started, timings.bot_started_speaking, timings.first_audio)
        return _between(next((start for start in starts if start is not None), None), timings.ended)

    def transcribe(self, transcribe: Transcriber) -> str:
        """Return the words in the bot's audio, as a function of yours finds them.

        Args:
            transcribe: ``transcribe(pcm, sample_rate_hz)``. Called once with `audio`, on the calling thread. Its errors
                are raised.

        Raises:
            UsageError: The turn has no audio.
            TypeError: `transcribe` is not such a function, or did not return a str.
        """
        _TRANSCRIBE.check(transcribe=transcribe)
        if not self.audio:
            raise UsageError(f"There is no audio to transcribe: {_NO_AUDIO}")
        text = transcribe(self.audio.pcm, self.audio.sample_rate_hz)
        if not isinstance(text, str):
            raise TypeError(f"transcribe must return a str, and has returned {type(text).__name__}")
        return text

    def expect(
        self,
        *,
        contains: Texts | None = None,
        excludes: Texts | None = None,
        matches: str | re.Pattern[str] | None = None,
        calls: ExpectedCalls | None = None,
        absent_calls: Sequence[str] = (),
        voice_to_voice: Seconds | None = None,
        first_audio: Seconds | None = None,
        wer: float | None = None,
        reference: str | None = None,
        transcribe: Transcriber | None = None,
        interrupted: bool = False,
        errors: bool = False,
        **misspelt: Never,
    ) -> Turn:
        """Check the turn, and return it.

        Args:
            contains: A text, or texts, that the bot must have said, whatever the spacing.
            excludes: Texts that the bot must not have said. Fails if the bot's text was cut at its limit.
            matches: A regular expression that must match in the bot's text.
            calls: Functions that the bot must have called, in any order: ``{"get_weather": {"city": "Oslo"}}``, or a
                list of names and of (name, arguments). Arguments that are not given may have any value.
            absent_calls: Functions that the bot must not have called. A call that is reported without a name counts as
                any of them.
            voice_to_voice (seconds): The longest latency allowed.
            first_audio (seconds): The longest `time_to_first_audio` allowed.
            wer: The highest word error rate allowed, from 0.0 to 1.0: of `bot_text`, or of the words that `transcribe`
                returns, against `reference`. `rtvi_sync.testing.word_error_rate()` computes it.
            reference: The words that the bot should have said. None: `spoken_text`; for use with `transcribe`.
            transcribe: As for `transcribe()`.
            interrupted: True: the turn must have been interrupted. False: it must not.
            errors: True: the bot may have reported errors, and the turn may have failed.
            misspelt: Any other name, which raises `TypeError` with the nearest name.

        Raises:
            ExpectationError: A demand is not met. The text says which, and shows the turn's timeline. Its `kind` is
                "not_judged" if the turn's transport reports no words or calls.
            TypeError, ValueError: An argument cannot be used.
            Exception: An error of `transcribe`.
        """
        checks = TurnChecks.of(
            "expect()",
            contains=contains,
            excludes=excludes,
            matches=matches,
            calls=calls,
            absent_calls=absent_calls,
            voice_to_voice=voice_to_voice,
            first_audio=first_audio,
            wer=wer,
            reference=reference,
            transcribe=transcribe,
            interrupted=interrupted,
            errors=errors,
            **misspelt,
        )
        return checks.check(self)


def _between(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None


# -- the checks of `expect()` ----------------------------------------------------------------------------------------


def _are(value: Any, is_one: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(map(is_one, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_call(value: Any) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return _is_text(value) or (is_pair and _is_text(value[0]) and isinstance(value[1], Mapping))


def as_received(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as they arrive over the wire: tuples as lists, all keys as text."""
    received: dict[str, Any] = json.loads(json.dumps(dict(arguments)))
    return received


def _is_json(arguments: Mapping[str, Any]) -> bool:
    try:
        as_received(arguments)
    except (TypeError, ValueError):
        return False
    return True


TEXTS = Rule(
    "a text (a str that is not empty), or a list of texts",
    lambda given: _is_text(given) or _are(given, _is_text),
    lambda given: all(texts_of(given)),
)
ARGUMENTS = Rule("arguments that are JSON", lambda given: isinstance(given, Mapping), _is_json)


def _is_pattern(given: str | re.Pattern[str]) -> bool:
    try:
        re.compile(given)
    except re.error:
        return False
    return True


PATTERN = Rule("a regular expression", lambda given: _is_text(getattr(given, "pattern", given)), _is_pattern)
_TRANSCRIBE = function_taking("pcm", "sample_rate_hz")
_NAMES = Rule("a list of names", lambda given: _are(given, _is_text), lambda _: True)
_CALLS = Rule(
    "a mapping of names to arguments that are JSON, or a list of names and of (name, arguments)",
    lambda given: (
        all(_is_text(name) and isinstance(each, (Mapping, type(None))) for name, each in given.items())
        if isinstance(given, Mapping)
        else _are(given, _is_call)
    ),
    lambda given: all(_is_json(arguments) for _, arguments in calls_of(given)),
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TurnChecks(Record):
    """The demands on a turn. See `Turn.expect()`."""

    contains: Texts | None = attrs.field(default=None, validator=TEXTS.or_none)
    excludes: Texts | None = attrs.field(default=None, validator=TEXTS.or_none)
    matches: str | re.Pattern[str] | None = attrs.field(default=None, validator=PATTERN.or_none)
    calls: ExpectedCalls | None = attrs.field(default=None, validator=_CALLS.or_none)
    absent_calls: Sequence[str] = attrs.field(default=(), validator=_NAMES)
    voice_to_voice: float | None = attrs.field(default=None, validator=WAIT.or_none)
    first_audio: float | None = attrs.field(default=None, validator=WAIT.or_none)
    wer: float | None = attrs.field(default=None, validator=number(0, 1).or_none)
    reference: str | None = attrs.field(default=None, validator=NAME.or_none)
    transcribe: Transcriber | None = attrs.field(default=None, validator=_TRANSCRIBE.or_none)
    interrupted: bool = attrs.field(default=False, validator=BOOL)
    errors: bool = attrs.field(default=False, validator=BOOL)

    def __attrs_post_init__(self) -> None:
        has_words = self.reference is not None or self.transcribe is not None
        if has_words and self.wer is None:
            raise ValueError("reference and transcribe go with wer, the highest word error rate allowed")
        if self.wer is not None and not has_words:
            raise ValueError(
                "wer needs reference, the words that the bot should have said, or transcribe, which returns its words"
            )

    @classmethod
    def of(cls, call: str, /, **demands: Any) -> TurnChecks:
        """Return the checks of a call.

        Args:
            call: The call's name, for the error.
            demands: The call's arguments.

        Raises:
            TypeError, ValueError: An argument cannot be used. If its name is unknown, the text has the nearest name.
        """
        check_names(call, demands, [field.name for field in attrs.fields(cls)], camel_case=False)
        return cls(**demands)

    def check(self, turn: Turn) -> Turn:
        """Check a turn, and return it.

        Raises:
            ExpectationError: A demand is not met.
        """
        unmet = [*self._failures(turn)]
        if unmet:
            raise ExpectationError(*unmet[0], others=unmet[1:], turn=turn, timeline=timeline_of(turn))
        return turn

    def _failures(self, turn: Turn) -> Iterator[_Failure]:
        """Yield each unmet demand: expectation, actual behaviour, kind."""
        yield from self._status(turn)
        yield from self._errors(turn)
        yield from self._texts(turn)
        yield from self._calls(turn)
        for name, limit, seconds in (
            ("voice to voice", self.voice_to_voice, turn.voice_to_voice),
            ("first audio", self.first_audio, turn.time_to_first_audio),
        ):
            if limit is not None and (seconds is None or seconds > limit):
                yield f"{name} within {limit:g} s", _got_latency(turn, seconds), "latency"
        if self.wer is not None:  # last, because it may take long
            yield from self._errors_of_words(turn, self.wer)

    def _status(self, turn: Turn) -> Iterator[_Failure]:
        if turn.is_open:
            yield "an answer that is over", "it is in progress", "timeout"
        if turn.interrupted != self.interrupted:
            expected = "an answer that is interrupted" if self.interrupted else "a complete answer"
            yield expected, f"it is {turn.status.replace('_', ' ')}", "interrupted"

    def _errors(self, turn: Turn) -> Iterator[_Failure]:
        if turn.errors and not self.errors:
            yield "no error", f"the bot reported {quoted(turn.errors[0].message, MAX_LENGTH)}", "error"
        if turn.status == "failed" and not self.errors:
            yield "a complete answer", "the session ended first", "bot_ended"

    def _texts(self, turn: Turn) -> Iterator[_Failure]:
        text = turn.bot_text
        is_cut = text is not None and len(text) >= _NEAR_LIMIT
        said = f"it said {quoted(text, MAX_LENGTH)}" + (f", cut at {MAX_CHARACTERS:,} characters" if is_cut else "")
        for part in texts_of(self.contains):
            expected = f"the bot to say {part!r}"
            if text is None:
                yield expected, WORDS_UNKNOWN, "not_judged"
            elif not contains(text, part):
                yield expected, said, "text_mismatch"
        if self.matches is not None:
            expected = f"the bot to say text that matches {pattern_of(self.matches)!r}"
            if text is None:
                yield expected, WORDS_UNKNOWN, "not_judged"
            elif not matches(text, self.matches):
                yield expected, said, "text_mismatch"
        for part in texts_of(self.excludes):
            expected = f"the bot not to say {part!r}"
            if text is None:
                yield expected, WORDS_UNKNOWN, "not_judged"
            elif is_cut or contains(text, part):
                yield expected, said, "text_present"

    def _errors_of_words(self, turn: Turn, most: float) -> Iterator[_Failure]:
        meant, said = self.reference or turn.spoken_text, turn.bot_text
        expected = f"a word error rate of at most {most:g}" + ("" if meant is None else f" for {quoted(meant)}")
        if self.transcribe is not None:
            if not turn.audio:
                yield expected, f"it has no audio: {_NO_AUDIO}", "text_mismatch"
                return
            said = turn.transcribe(self.transcribe)
        if meant is None or said is None:
            yield expected, WORDS_UNKNOWN, "not_judged"
        elif (rate := word_error_rate(meant, said)) > most:
            yield expected, f"it is {rate:.2g} for {quoted(said)}", "text_mismatch"

    def _calls(self, turn: Turn) -> Iterator[_Failure]:
        has_calls = turn.user_text is not None  # the transport carries messages, which report calls
        for name, given in calls_of(self.calls):
            arguments = as_received(given)
            mismatch = call_mismatch(turn.function_calls, name, arguments)
            if mismatch is not None:
                expected = expected_call(name, arguments)
                yield (expected, *mismatch) if has_calls else (expected, CALLS_UNKNOWN, "not_judged")
        if not has_calls:
            for name in self.absent_calls:
                yield f"no call of {name}", CALLS_UNKNOWN, "not_judged"
        called = {call.function_name for call in turn.function_calls}
        for name in self.absent_calls:
            if name in called:
                yield f"no call of {name}", "it was called", "unexpected_event"
            if None in called:  # it may be this one
                yield f"no call of {name}", _NO_NAME, "unexpected_event"


def _got_latency(turn: Turn, seconds: float | None) -> str:
    if seconds is not None:
        return f"it was {seconds:.3f} s"
    why = "no audio arrived" if turn.timings.first_audio is None else "the user did not speak"
    return f"it was not measured: {why}"


def contains(text: str, part: str) -> bool:
    """Return whether a text contains a part. Ignores spacing and the encoding of accents."""
    return "".join(_composed(part).split()) in "".join(_composed(text).split())


def matches(text: str, pattern: str | re.Pattern[str]) -> bool:
    """Return whether a pattern matches in a text. Ignores the encoding of accents."""
    # The pattern is not normalized, because the ends of a range have no other form.
    return any(re.search(pattern, unicodedata.normalize(form, text)) for form in ("NFC", "NFD"))


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def texts_of(value: Texts | None) -> list[str]:
    """Return one text or several as a list."""
    return [] if value is None else [value] if isinstance(value, str) else [*value]


def pattern_of(pattern: str | re.Pattern[str]) -> str:
    """Return a pattern as text, to be shown."""
    return pattern if isinstance(pattern, str) else pattern.pattern


def calls_of(value: ExpectedCalls | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Return expected calls as pairs of a name and the demanded arguments."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [(name, arguments or {}) for name, arguments in value.items()]
    return [(each, {}) if isinstance(each, str) else (each[0], each[1]) for each in value]


def has_arguments(call: ReportedFunctionCall, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call has these arguments, perhaps among others."""
    given = call.arguments or {}
    return all(name in given and given[name] == value for name, value in arguments.items())


def call_mismatch(
    calls: Sequence[ReportedFunctionCall], name: str, arguments: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return how calls differ from an expected one: the difference in words, and its kind. None: it is among them."""
    named = [call for call in calls if call.function_name == name]
    named = [call for call in named if call.arguments is not None] or named  # the others were only announced
    if any(has_arguments(call, arguments) for call in named):
        return None
    if named:
        given = " and ".join(as_json(call.arguments or {}) for call in named)
        return f"it was called with {given}", "function_args_mismatch"
    if any(call.function_name is None for call in calls):
        return _NO_NAME, "missing_function_call"
    others = one_line(", ".join(str(call.function_name) for call in calls))
    return f"it called {others}" if others else "it called no function", "missing_function_call"


def expected_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return an expected call in words."""
    return f"a call of {name}" + (f" with {as_json(arguments)}" if arguments else "")


def as_json(value: Any) -> str:
    """Return a value as JSON, to be shown."""
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


# -- the timeline ------------------------------------------------------------------------------------------------------


def timeline_of(turn: Turn) -> str:
    """Return the timeline of a turn, one line for each entry, at most 40 lines. If the turn is in progress, the last
    line says so.
    """
    entries, latency = turn.timeline, _latency_of(turn)
    start = entries[0].at if entries else 0.0
    lines = []
    for count, entry in enumerate(entries, 1):
        mark = ">" if turn.is_open and count == len(entries) else " "
        line = f"  {mark} {entry.at - start:7.3f}  {entry.who or '..':<4}  {words_of(entry)}"
        if latency and (entry.who, entry.kind) == ("bot", "silent"):
            line, latency = f"{line:<60}  {latency}", ""
        lines.append(line)
    if len(lines) > _MAX_LINES:
        half = _MAX_LINES // 2
        lines = [*lines[:half], f"    ... {len(lines) - 2 * half} more ...", *lines[-half:]]
    return "\n".join([f"  turn {turn.number}{turn.bot and ', '}{turn.bot}", *lines])


def _latency_of(turn: Turn) -> str:
    name = "voice-to-voice" if turn.modality == "audio" else "first audio after"
    return "" if turn.time_to_first_audio is None else f"{name} {turn.time_to_first_audio:.2f} s"


def words_of(entry: TimelineEntry) -> str:
    """Return an entry of a timeline as one line."""
    text = one_line(entry.text)
    if entry.kind in ("typed", "said"):
        return f'"{text}" ({entry.kind})'
    if entry.kind in ("returned", "cancelled"):
        name, _, result = text.partition(" ")
        return f"{name} {entry.kind} {result}".rstrip()
    if entry.kind == "speaks" and text:
        return f'speaks: "{text}"'
    return f"{entry.kind} {text}" if text else entry.kind
