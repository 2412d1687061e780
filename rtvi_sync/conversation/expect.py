"""Expectations of a bot's next actions, each with a time limit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..errors import ExpectationError, RequestTimeoutError, RTVIError
from ..events import Event, RTVIEvent, event_from
from ..protocol.states import CloseInfo
from ..protocol.text import MAX_LENGTH, one_line, quoted
from ..protocol.turn_payloads import BotOutputData
from ..protocol.validation import EVENT_CONDITION, NAME, WAIT, Rule
from ..session.event_bus import EventBus
from ..session.event_stream import EventStream
from ..session.params import Seconds
from .follow import ConversationTracker
from .record import ReportedFunctionCall
from .turn import (
    ARGUMENTS,
    CALLS_UNKNOWN,
    PATTERN,
    TEXTS,
    WORDS_UNKNOWN,
    Texts,
    Turn,
    TurnChecks,
    as_received,
    call_mismatch,
    contains,
    expected_call,
    has_arguments,
    matches,
    pattern_of,
    texts_of,
    timeline_of,
)

if TYPE_CHECKING:
    from ..event_names import NameOfAnEvent

__tracebackhide__ = True  # pytest shows the line of the test, and no lines of this module

_E = RTVIEvent
# Several messages announce one call. Some have its id, some not even its name.
_CALLS_BY_ID = frozenset({_E.LLM_FUNCTION_CALL, _E.LLM_FUNCTION_CALL_IN_PROGRESS})
_CALLS_WITHOUT_ID = frozenset({_E.LLM_FUNCTION_CALL_STARTED, _E.LLM_FUNCTION_CALL_START})
# The events, other than words, that show that a bot is writing or speaking.
_ACTIVITY = frozenset({_E.BOT_LLM_STARTED, _E.BOT_TTS_STARTED, _E.BOT_STARTED_SPEAKING})
# The events that start or end the bot's speech.
_SPEECH = frozenset({_E.BOT_STARTED_SPEAKING, _E.BOT_STOPPED_SPEAKING, _E.BOT_INTERRUPTED, _E.DISCONNECTED})

# The events after which the bot's answer is cut, or continues.
_CUTS = frozenset({_E.BOT_INTERRUPTED, _E.BOT_LLM_STARTED, _E.BOT_STARTED_SPEAKING})

CheckFrom = Literal["previous", "start"]
_CHECK_FROM = Rule('"previous" or "start"', lambda given: isinstance(given, str), ("previous", "start").__contains__)


class Expect:
    """The bot's expected actions, in order. Made by `client.expect()`; a context manager.

    Events count from the start of the block. Each call starts at the event that satisfied the previous call, and
    ignores other events. Its limit runs from the latest of these: the start of the block, the last message that the
    client sent, and the last event that met an expectation. In manual mode the calls deliver events. For one thread.
    """

    def __init__(self, bus: EventBus, conversation: ConversationTracker, within: Seconds) -> None:
        self._bus = bus
        self._conversation = conversation
        self._within = within
        self._stream: EventStream[Any] | None = None
        self._events: list[Event] = []
        self._met_calls: set[str] = set()  # ids
        self._next = 0  # the position at which the next call starts
        self._entered = self._since = 0.0

    def __enter__(self) -> Expect:
        self._stream = self._bus.streams.add((), None)
        self._events, self._next, self._met_calls = [], 0, set()
        self._entered = self._since = monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._stream = None

    # -- expectations -------------------------------------------------------------------------------------------------

    def event(
        self,
        event: NameOfAnEvent,
        where: Callable[[Event], object] | None = None,
        within: Seconds | None = None,
        check_from: CheckFrom = "previous",
    ) -> Event:
        """Expect an event for which `where(event)` is true, and return it.

        Args:
            event: The event's type.
            where: A function that is called with each such event. None: any event of the type counts.
            within (seconds): Limit of the wait. None: the limit of the block.
            check_from: "previous": search from the event that met the last expectation. "start": search from the start
                of the block.

        Raises:
            ExpectationError: The event did not arrive in time.
        """
        type_ = event_from(event)
        EVENT_CONDITION.check(where=where)
        _CHECK_FROM.check(check_from=check_from)
        if check_from == "start":
            self._next = 0
        return self._find(
            lambda found: found.type is type_ and (where is None or bool(where(found))), within, str(event)
        )

    def text(
        self,
        contains: Texts | None = None,
        *,
        matches: str | re.Pattern[str] | None = None,
        within: Seconds | None = None,
    ) -> str:
        """Expect the bot to write or say a text. Return all its words since the last expectation was met.

        Announced text does not count: bots repeat the announcements of interrupted answers. Text that meets an
        expectation as it is written can meet another one as it is spoken. Before you expect the next answer, expect the
        end of this one by `turn()`.

        Args:
            contains: The text, or texts, to find.
            matches: A regular expression to find.
            within (seconds): Limit of the wait. None: the limit of the block.

        Raises:
            ExpectationError: The bot did not write or say the text in time.
        """
        TEXTS.or_none.check(contains=contains)
        PATTERN.or_none.check(matches=matches)
        if contains is None and matches is None:
            raise TypeError("text() needs contains= or matches=")
        self._check_judged("the bot to say a text", WORDS_UNKNOWN)
        said = _Said(self._events[: self._next])

        def is_met(event: Event) -> bool:
            return said.add(event) and any(_has(text, contains, matches) for text in said.texts)

        what = " and ".join(
            [repr(part) for part in texts_of(contains)] + ([f"/{pattern_of(matches)}/"] if matches else [])
        )
        self._find(
            is_met,
            within,
            f"the bot to say {what}",
            lambda: (f"it said {quoted(said.best, MAX_LENGTH)}", "text_mismatch"),
        )
        return said.best

    def call(self, name: str, /, *, within: Seconds | None = None, **arguments: Any) -> Event:
        """Expect a call of a function with these arguments, perhaps among others. Return the event of the call.

        Args:
            name: The function's name.
            within (seconds): Limit of the wait. None: the limit of the block.
            arguments: The arguments that the call must have.

        Raises:
            ExpectationError: The call did not arrive in time.
        """
        NAME.check(name=name)
        ARGUMENTS.check(arguments=arguments)
        arguments = as_received(arguments)
        self._check_judged(expected_call(name, arguments), CALLS_UNKNOWN)
        calls: list[ReportedFunctionCall] = []

        def is_met(event: Event) -> bool:
            if event.type not in _CALLS_BY_ID or event.data.tool_call_id in self._met_calls:
                return False
            call = ReportedFunctionCall(function_name=event.data.function_name, arguments=event.data.arguments)
            calls.append(call)
            found = call.function_name == name and (not arguments or has_arguments(call, arguments))
            if found:
                self._met_calls.add(event.data.tool_call_id)
            return found

        what = expected_call(name, arguments)

        def got() -> tuple[str, str]:
            return call_mismatch(calls, name, arguments) or ("it was called", "timeout")

        return self._find(is_met, within, what, got)

    def turn(self, *, within: Seconds | None = None, **demands: Any) -> Turn:
        """Expect a turn to end, and check it like `Turn.expect()`, with the same arguments.

        Args:
            within (seconds): Limit of the wait. None: the limit of the block.
            demands: The arguments of `Turn.expect()`.

        Raises:
            ExpectationError: No turn ended in time, or the next turn to end does not meet the demands.
            TypeError, ValueError: An argument cannot be used.
        """
        checks = TurnChecks.of("turn()", **demands)
        event = self._find(
            lambda found: found.type is _E.TURN_ENDED, within, "a turn to end", lambda: ("none did", "timeout")
        )
        return checks.check(event.data)

    def absent(self, event: NameOfAnEvent, *, for_: Seconds, where: Callable[[Event], object] | None = None) -> None:
        """Expect that an event does not arrive for `for_` seconds, or until the session ends.

        Args:
            event: The event's type.
            for_ (seconds): Length of the wait.
            where: A function that is called with each such event. None: any event of the type counts.

        Raises:
            ExpectationError: The event arrived.
        """
        type_ = event_from(event)
        EVENT_CONDITION.check(where=where)
        self._absent(
            lambda e: e.type is type_ and (where is None or bool(where(e))), for_, f"no {event}", lambda _: "it came"
        )

    def no_more(self, *, for_: Seconds) -> None:
        """Expect that the bot does not write, speak or call functions for `for_` seconds.

        All speech counts, also of a text that met an expectation as it was written. Expect the end of the answer first,
        by `turn()`. Later reports of an already announced call, or of interrupted speech, don't count.

        Args:
            for_ (seconds): Length of the wait.

        Raises:
            ExpectationError: The bot did something.
        """
        WAIT.check(for_=for_)
        earlier = self._events[: self._next]
        said = _Said(earlier)
        calls = self._met_calls | {event.data.tool_call_id for event in earlier if event.type in _CALLS_BY_ID}
        announced = sum(event.type in _CALLS_WITHOUT_ID for event in earlier)

        def is_more(event: Event) -> bool:
            nonlocal announced
            if event.type in _CALLS_BY_ID:
                is_announced = event.data.tool_call_id in calls or announced > len(calls)
                calls.add(event.data.tool_call_id)
                return not is_announced
            if event.type in _CALLS_WITHOUT_ID:
                announced += 1
                return announced > len(calls)
            ends_speech = event.type is _E.BOT_STOPPED_SPEAKING and not said.is_cut
            return said.add(event) or ends_speech or event.type in _ACTIVITY

        what, speaking = "the bot to do nothing more", "it was speaking: expect the end of that before"
        speech = next((event.type for event in reversed(earlier) if event.type in _SPEECH), None)
        if speech is _E.BOT_STARTED_SPEAKING:
            self._fail(f"{what} for {for_:g} s", speaking, "unexpected_event")
        self._absent(
            is_more,
            for_,
            what,
            lambda event: f"it sent {event.message.type if event.message is not None else event.type}",
        )
        if speech is None and self._speaks_since_before():
            self._fail(f"{what} for {for_:g} s", speaking, "unexpected_event")

    def _check_judged(self, expected: str, why: str) -> None:
        """Raise if no message can show the expected action."""
        if not self._conversation.has_words:
            self._fail(expected, f"{why}. turn(contains=...) checks the words that `transcribe` returns", "not_judged")

    # -- internal -----------------------------------------------------------------------------------------------------

    def _find(
        self,
        is_met: Callable[[Event], bool],
        within: Seconds | None,
        what: str,
        got: Callable[[], tuple[str, str]] = lambda: ("it did not arrive", "timeout"),
    ) -> Event:
        WAIT.or_none.check(within=within)
        seconds = self._within if within is None else within
        position = self._next
        while True:
            event = self._at(position, lambda: self._began + seconds)
            if event is None:
                ended = self._opened.ended
                if ended is not None:
                    self._fail(f"{what} before the session ended", f"{got()[0]}: {_end(ended)}", "bot_ended")
                self._fail(f"{what} within {seconds:g} s", *got())
            position += 1
            if is_met(event):
                if event.received_at > self._began + seconds:  # it arrived too late, but before this call
                    late = event.received_at - self._began
                    self._fail(f"{what} within {seconds:g} s", f"it arrived after {late:.3f} s", "timeout")
                self._next, self._since = position, max(self._since, event.received_at)
                return event

    def _absent(
        self, is_met: Callable[[Event], bool], seconds: Seconds, what: str, got: Callable[[Event], str]
    ) -> None:
        WAIT.check(for_=seconds)
        until = monotonic() + seconds
        position = self._next
        while (event := self._at(position, lambda: until)) is not None and event.received_at <= until:
            position += 1
            if is_met(event):
                self._fail(f"{what} for {seconds:g} s", got(event), "unexpected_event")
        self._next, self._since = position, max(self._since, monotonic())

    def _speaks_since_before(self) -> bool:
        """Return whether speech continues that started before the block, by the turns. The block has no event of it."""
        for turn in self._conversation.turns():
            speech = [entry for entry in turn.timeline if entry.who == "bot" and entry.kind in ("speaks", "silent")]
            if turn.is_open and speech and speech[-1].kind == "speaks" and speech[-1].at <= self._entered:
                return True
        return False

    @property
    def _opened(self) -> EventStream[Any]:
        if self._stream is None:
            raise RTVIError("Use expect() in a with statement: with client.expect() as expect: ...")
        return self._stream

    @property
    def _began(self) -> float:
        return max(self._since, self._conversation.sent_at)

    def _at(self, position: int, until: Callable[[], float]) -> Event | None:
        """Return the event at a position. None: it did not arrive in time, or the session has ended."""
        stream = self._opened
        while position >= len(self._events):
            remaining = until() - monotonic()
            try:
                event = stream.next_before(Deadline(max(0.0, remaining)))
            except RequestTimeoutError:
                if until() <= monotonic():  # else a message was sent during the wait
                    return None
                continue
            if event is None:
                return None
            self._events.append(event)
        return self._events[position]

    def _fail(self, expected: str, got: str, kind: str) -> NoReturn:
        turns = [turn for turn in self._conversation.turns() if turn.is_open or _ended(turn) >= self._entered]
        turn = turns[-1] if turns else None
        timeline = timeline_of(turn) if turn is not None else ""
        raise ExpectationError(expected, got, kind, turn=turn, timeline=timeline)


def _ended(turn: Turn) -> float:
    return turn.timings.ended or math.inf


class _Said:
    """The bot's written and spoken words in some events. Announced words don't count.

    Args:
        earlier: The events before, which show whether the bot was interrupted.
    """

    def __init__(self, earlier: Sequence[Event]) -> None:
        self._written = self._words = ""
        self._spoken: dict[object, str] = {}  # by segment
        self._segment: tuple[object, str] = None, ""  # the current one: its key, and all its text
        #: Words that arrive after an interruption, before the bot continues, belong to the interrupted answer.
        self.is_cut: bool = next((e.type is _E.BOT_INTERRUPTED for e in reversed(earlier) if e.type in _CUTS), False)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the words by each kind of message. Most bots report the same words by several."""
        return self._written, self._words, " ".join(self._spoken.values())

    @property
    def best(self) -> str:
        """Return the model's text; without one, the spoken words."""
        return (self._written or max(self.texts, key=len)).strip()

    def add(self, event: Event) -> bool:
        """Take an event. Return False if it adds no words."""
        if event.type in _CUTS:
            self.is_cut = event.type is _E.BOT_INTERRUPTED
        elif event.type is _E.BOT_LLM_TEXT:
            self._written += event.data.text
            return True
        elif event.type is _E.BOT_TTS_TEXT and not self.is_cut:
            self._words += f" {event.data.text}"
            return True
        elif event.type is _E.BOT_OUTPUT and not self.is_cut:
            return self._add_output(event.data)
        return False

    def _add_output(self, data: BotOutputData) -> bool:
        if data.spoken and data.spoken_status in (None, "new"):  # words, by 1.x and by speech-to-speech models
            self._spoken[object()] = data.text
        elif data.spoken_status == "completed":
            self._spoken[self._key_of(data)] = data.text
            self._segment = None, ""
        elif data.spoken_status != "new" and data.spoken_progress is not None:
            self._spoken[self._key_of(data)] = data.spoken_progress.accumulated_text
        else:
            return False
        return True

    def _key_of(self, data: BotOutputData) -> object:
        """Return the key of a segment. Pipecat 1.5 gives it another id in each message."""
        key, text = self._segment
        if text != data.text:
            key = data.segment_id if data.segment_id is not None else object()
        self._segment = key, data.text
        return key


def _has(text: str, parts: Texts | None, pattern: str | re.Pattern[str] | None) -> bool:
    return all(contains(text, part) for part in texts_of(parts)) and (pattern is None or matches(text, pattern))


def _end(info: CloseInfo) -> str:
    return one_line(info.describe())
