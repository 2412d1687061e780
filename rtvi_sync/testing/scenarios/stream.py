"""The events of one session as scenarios name them, in the queue from which expectations take. Pure.

The rules match Pipecat's `pipecat eval`: events form a queue, an expectation takes from it until one fits, and events
before the user's latest send are no answer to it. One rule differs: `user_started_speaking` stays in the queue when the
`bot_interrupted` behind it drops the rest. Pipecat drops it, so that no expectation can ever match it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from rtvi_sync.events import Event, RTVIEvent
from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.text import quoted
from rtvi_sync.testing.scenarios.model import EventName

#: Length limit of a response, and of a sum of responses, in characters; the rest is dropped.
MAX_TEXT: Final = 1_000_000
#: Limit on the events of a turn; later ones are dropped.
MAX_EVENTS: Final = 20_000

_INTERRUPTIONS: Final = frozenset({"user_started_speaking", "bot_interrupted"})
_KEPT_AT_SEND: Final = frozenset({"user_transcription"})
_KEPT_AT_INTERRUPTION: Final = frozenset({"user_transcription", "user_started_speaking"})

#: The client's events behind the events of scenarios.
CLIENT_EVENTS: Final = (
    RTVIEvent.USER_STARTED_SPEAKING,
    RTVIEvent.USER_STOPPED_SPEAKING,
    RTVIEvent.VAD_USER_STARTED_SPEAKING,
    RTVIEvent.VAD_USER_STOPPED_SPEAKING,
    RTVIEvent.USER_INPUT,
    RTVIEvent.USER_TRANSCRIPT,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
    RTVIEvent.BOT_OUTPUT,
    RTVIEvent.BOT_LLM_STARTED,
    RTVIEvent.BOT_LLM_TEXT,
    RTVIEvent.BOT_LLM_STOPPED,
    RTVIEvent.BOT_LLM_MARKER,
    RTVIEvent.BOT_TTS_TEXT,
    RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS,
    RTVIEvent.LLM_FUNCTION_CALL_STOPPED,
    RTVIEvent.ERROR,
    RTVIEvent.UNKNOWN_MESSAGE,
)
_PLAIN: Final[Mapping[RTVIEvent, EventName]] = {
    RTVIEvent.USER_STARTED_SPEAKING: "user_started_speaking",
    RTVIEvent.USER_STOPPED_SPEAKING: "user_stopped_speaking",
    RTVIEvent.VAD_USER_STARTED_SPEAKING: "vad_user_started_speaking",
    RTVIEvent.VAD_USER_STOPPED_SPEAKING: "vad_user_stopped_speaking",
    RTVIEvent.BOT_STARTED_SPEAKING: "bot_started_speaking",
    RTVIEvent.BOT_STOPPED_SPEAKING: "bot_stopped_speaking",
    RTVIEvent.BOT_INTERRUPTED: "bot_interrupted",
    RTVIEvent.BOT_LLM_STARTED: "llm_started",
}
_IMAGE: Final = "eval-bot-image"
# Limit of a text in a reason, in characters.
_SHOWN: Final = 300
# Events of a speaking bot.
_VOICE: Final = frozenset({"bot_started_speaking", "bot_stopped_speaking", "tts_response"})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ScenarioEvent(Record):
    """An event as scenarios name it.

    Attributes:
        event: Type of the event.
        at: Arrival time in monotonic seconds.
        text: Text of a reply, a transcription, a backchannel or a marker.
        name, args: Name and arguments of a call; None if the bot withholds them. For a stopped call, `args` describes
            the end.
        marker: Meaning of a marker; None if it has none.
        raw, markers: The model's text with the marker, and every marker that the bot knows.
    """

    event: EventName
    at: float
    text: str = ""
    name: str | None = None
    args: Mapping[str, Any] | None = None
    marker: str | None = None
    raw: str = ""
    markers: Sequence[str] = ()

    def describe(self) -> str:
        """Return a short form: a call with its arguments, otherwise the text."""
        if self.event == "function_call":
            given = ", ".join(f"{name}={value}" for name, value in (self.args or {}).items())
            return f"{self.name or '?'}({given})"
        return self.text


class ScenarioStream:
    """The events of one session: a queue of the remaining ones, and the state of the bot.

    Args:
        bot_speaks: True if the bot's modality is audio. Only then does `tts_response` occur.
        has_user_input: True if the bot sends `user-input`; otherwise its final transcripts take this role.
        tells_model: True if the bot reports when the model starts a response; otherwise its voice starts one.

    Attributes:
        is_bot_speaking: State of the bot, by its own reports.
        has_ended: True after the session has ended.
        ended_by: What ended it, as the start of a sentence.
        error: The first error that the bot reported in the turn; "" if there is none.
        latest: Arrival time of the latest event of each type, over the whole session.
    """

    def __init__(self, *, bot_speaks: bool, has_user_input: bool = True, tells_model: bool = True) -> None:
        self._bot_speaks = bot_speaks
        self._tells_model = tells_model
        self._has_user_input = has_user_input
        self._queue: deque[ScenarioEvent] = deque()
        # Events of the turn that expectations took or skipped, and the indices of the taken ones.
        self._log: list[ScenarioEvent] = []
        self._taken: set[int] = set()
        # The expectations of the turn so far: position in the log at their start, and number.
        self._begins: list[tuple[int, int]] = []
        self._text: list[str] = []  # the response that the model is writing
        self._text_length = 0
        # After a send or an interruption, until the next response: the model's text belongs to an older one.
        self._awaits_reply = False
        # Speech that started before this time is not the reply; infinite until the bot starts to speak.
        self._reply_from = -math.inf
        self._is_observing = False
        self._sent_at = -math.inf
        self.is_bot_speaking: bool = False
        self.has_ended: bool = False
        self.ended_by: str = "the bot ended the call"
        self.error: str = ""
        self.latest: dict[EventName, float] = {}

    # -- input ---------------------------------------------------------------------------------------------------------

    def feed(self, event: Event[Any]) -> ScenarioEvent | None:
        """Handle an event of the client; return the resulting scenario event, if any."""
        if event.type is RTVIEvent.ERROR and event.received_at >= self._sent_at:
            self.error = self.error or event.data.message or "an error without a text"
        found = self._event_of(event)
        if found is None:
            return None
        if found.event in _INTERRUPTIONS:
            self._drop(_KEPT_AT_INTERRUPTION)
            self._awaits_reply = True
            self.is_bot_speaking = False
        self._append(found)
        return found

    def hear(self, text: str, began: float, at: float) -> ScenarioEvent | None:
        """Handle a transcription of the bot's speech; return the resulting response, if any.

        Args:
            text: The words; "" makes no event.
            began: Start of the bot's speech, in monotonic seconds.
            at: Time of the transcription.
        """
        if not text.strip() or self._awaits_reply or began < self._reply_from:
            return None
        found = ScenarioEvent(event="response", at=at, text=text)
        self._append(found)
        return found

    def end(self, *, is_lost: bool = False) -> None:
        """Note the end of the session, or its loss: no event follows."""
        self.has_ended = True
        if is_lost:
            self.ended_by = "the connection to the bot was lost"
        self.is_bot_speaking = False

    def _append(self, event: ScenarioEvent) -> None:
        self.latest[event.event] = event.at
        if len(self._queue) + len(self._log) >= MAX_EVENTS:
            return
        if event.at >= self._sent_at or event.event in _KEPT_AT_SEND:
            self._queue.append(event)

    def _event_of(self, event: Event[Any]) -> ScenarioEvent | None:
        kind, at, data = event.type, event.received_at, event.data
        plain = _PLAIN.get(kind)
        if plain is not None:
            self._follow_speech(plain, at)
            return ScenarioEvent(event=plain, at=at)
        if kind in (RTVIEvent.BOT_LLM_TEXT, RTVIEvent.BOT_LLM_STOPPED, RTVIEvent.BOT_LLM_MARKER):
            return self._of_model(kind, at, data) if at >= self._sent_at else None
        if kind is RTVIEvent.BOT_TTS_TEXT:
            return ScenarioEvent(event="tts_response", at=at, text=data.text) if self._bot_speaks else None
        if kind is RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS:
            return ScenarioEvent(event="function_call", at=at, name=data.function_name or None, args=data.arguments)
        if kind is RTVIEvent.LLM_FUNCTION_CALL_STOPPED:
            args = {"tool_call_id": data.tool_call_id, "cancelled": data.cancelled}
            return ScenarioEvent(event="function_call_stopped", at=at, name=data.function_name or None, args=args)
        if kind in (RTVIEvent.USER_INPUT, RTVIEvent.USER_TRANSCRIPT):
            return self._of_user(kind, at, data)
        if kind is RTVIEvent.BOT_OUTPUT:
            if data.output_type != "backchannel" or data.spoken_status != "completed":
                return None
            spoken = data.spoken_progress.accumulated_text if data.spoken_progress is not None else ""
            return ScenarioEvent(event="bot_backchannel", at=at, text=spoken or data.text)
        if kind is RTVIEvent.UNKNOWN_MESSAGE and data.type == _IMAGE:
            return ScenarioEvent(event="image", at=at)
        return None

    def _follow_speech(self, event: EventName, at: float) -> None:
        if event == "bot_started_speaking":
            self.is_bot_speaking = True
            if self._reply_from == math.inf:
                self._reply_from = at
            if self._is_observing or not self._tells_model:
                self._is_observing = self._awaits_reply = False
        elif event == "bot_stopped_speaking":
            self.is_bot_speaking = False
        elif event == "llm_started" and at >= self._sent_at:
            self._awaits_reply = False
            self._forget_text()

    def _of_model(self, kind: RTVIEvent, at: float, data: Any) -> ScenarioEvent | None:
        if self._awaits_reply:
            self._forget_text()
            return None
        if kind is RTVIEvent.BOT_LLM_TEXT:
            if self._text_length < MAX_TEXT:
                self._text.append(data.text[:MAX_TEXT])
                self._text_length += len(data.text)
            return None
        if kind is RTVIEvent.BOT_LLM_MARKER:
            return ScenarioEvent(
                event="llm_marker", at=at, text=data.text, marker=data.kind, raw=data.raw, markers=data.markers
            )
        text = "".join(self._text)[:MAX_TEXT]
        self._forget_text()
        return ScenarioEvent(event="llm_response", at=at, text=text)

    def _of_user(self, kind: RTVIEvent, at: float, data: Any) -> ScenarioEvent | None:
        if (kind is RTVIEvent.USER_INPUT) != self._has_user_input:
            return None
        source = data.input_type if kind is RTVIEvent.USER_INPUT else "transcription"
        if source == "transcription" and data.final:
            return ScenarioEvent(event="user_transcription", at=at, text=data.text)
        if source == "backchannel":
            return ScenarioEvent(event="user_backchannel", at=at, text=data.text)
        return None

    def _forget_text(self) -> None:
        self._text.clear()
        self._text_length = 0

    # -- turns of the scenario ----------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Start a turn. Events that earlier expectations skipped are no longer available."""
        self._log.clear()
        self._taken.clear()
        self._begins.clear()
        self.error = ""

    def drop(self) -> None:
        """Drop the waiting events, because the user is about to send and they are no answer to it."""
        self._forget_text()
        self._drop(_KEPT_AT_SEND)
        self.error = ""

    def sent(self, at: float) -> None:
        """Note a send of the user. Only later events of the bot answer it."""
        self._awaits_reply = True
        self._is_observing = False
        self._sent_at = at
        self._reply_from = math.inf if self.is_bot_speaking else -math.inf

    def observe(self, at: float) -> None:
        """Start a turn without a send after the reply before it. The bot's next words belong to this turn."""
        self.drop()
        self.sent(at)
        self._reply_from = math.inf
        self._is_observing = True

    def _drop(self, kept: frozenset[str]) -> None:
        self._forget_text()
        self._queue = deque(event for event in self._queue if event.event in kept)

    # -- output to expectations ----------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Number of events that the turn took or skipped."""
        return len(self._log)

    def passed_over(self, since: int) -> list[ScenarioEvent]:
        """Return the events from a position on that no expectation took."""
        return [event for index, event in enumerate(self._log) if index >= since and index not in self._taken]

    def begin_expectation(self, number: int) -> None:
        """Start an expectation of the turn, which takes or skips the events from now on."""
        self._begins.append((self.position, number))

    def why_missing(self, event: EventName, fits: Callable[[ScenarioEvent], bool] = lambda _: False) -> str:
        """Return why no event of a type is left, as the end of a sentence; "" if unknown.

        Args:
            event: The type.
            fits: Whether an event of the type would have met the expectation.
        """
        if any(self._log[index].event == event for index in self._taken):
            return "; an earlier expectation has taken the one that came: put the conditions of both into one"
        passed = [index for index, each in enumerate(self._log) if each.event == event and not self.is_void(each)]
        if passed:
            index = next((each for each in passed if fits(self._log[each])), passed[-1])
            found = self._log[index]
            number = max(number for begin, number in self._begins if begin <= index)
            what = " ".join(filter(None, (event, found.text and quoted(found.text.strip(), _SHOWN))))
            advice = ": 'check_from: turn_start' lets it count" if fits(found) else ""
            return f"; the {what} came before expectation {number} was over{advice}"
        if any(each.event == event and self.is_void(each) for each in self._log):
            return "; the one that came has no text"
        if event in _VOICE and not self._bot_speaks and self._tells_model:
            return "; the bot is asked for no voice, because the modality of 'judge' is text"
        return ""

    def is_void(self, event: ScenarioEvent) -> bool:
        """Return whether an event is no answer: a response without text in a turn with an error of the bot."""
        return event.event == "llm_response" and not event.text.strip() and bool(self.error)

    def pass_over(self, event: ScenarioEvent) -> None:
        """Skip a taken event."""
        self._taken.discard(self._log.index(event))

    def give_back(self, event: ScenarioEvent) -> None:
        """Take a skipped event, and return the later untaken events to the queue."""
        index = self._log.index(event)
        self._taken.add(index)
        behind = range(index + 1, len(self._log))
        self._queue.extendleft(self._log[each] for each in reversed(behind) if each not in self._taken)
        self._log = [each for number, each in enumerate(self._log) if number <= index or number in self._taken]
        self._taken = {number for number in self._taken if number <= index} | {*range(index + 1, len(self._log))}

    def look_back(self, since: int, fits: Callable[[ScenarioEvent], bool]) -> ScenarioEvent | None:
        """Take the first matching event among the skipped ones, from a position on."""
        for index in range(since, len(self._log)):
            if index not in self._taken and fits(self._log[index]):
                self._taken.add(index)
                return self._log[index]
        return None

    def take(self, until: float, fits: Callable[[ScenarioEvent], bool]) -> ScenarioEvent | None:
        """Take the first matching event that waits and arrived before a moment; skip the others."""
        while self._queue and self._queue[0].at <= until:
            event = self._queue.popleft()
            self._log.append(event)
            if fits(event):
                self._taken.add(len(self._log) - 1)
                return event
        return None

    def take_anywhere(self, fits: Callable[[ScenarioEvent], bool]) -> ScenarioEvent | None:
        """Take the first matching event of the turn, and leave all others in place."""
        found = self.look_back(0, fits)
        if found is None:
            found = next(filter(fits, self._queue), None)
            if found is not None:
                self._queue.remove(found)
        return found

    def is_late(self, until: float) -> bool:
        """Return whether a waiting event arrived after a moment."""
        return bool(self._queue) and self._queue[0].at > until
