"""The turns of a conversation, derived from its events. Pure."""

from __future__ import annotations

from collections import deque

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.recording.text import clean
from rtvi_sync.recording.transcript import BOT_TEXTS, EVENTS, Transcript

# These bound the memory of a turn and a conversation, whatever a bot sends.
_MAX_TEXT = 20_000
_MAX_SEGMENTS = 1000
_MAX_TURNS = 100
_MAX_INTERRUPTIONS = 1000

TURN_EVENTS = (
    RTVIEvent.USER_STARTED_SPEAKING,
    RTVIEvent.USER_STOPPED_SPEAKING,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
    *EVENTS,
)


@attrs.define
class Turn:
    """What the user said or typed, and what the bot answered. Times are monotonic seconds; None: not yet, or never.

    Attributes:
        number: among the user's turns, from 1; None: the bot spoke first.
        began: when the bot reported that the user started to speak; or when the bot started, if it spoke first.
        bot_audio_from: when the bot's audio starts to belong to this turn: the bot may have to be interrupted first.
        typed: when the user's typed text was acknowledged.
        by_voice: the user spoke.
        user, interim: the user's words; and those that may still change.
        final: when the last of `user` arrived.
        stopped: when the bot reported that the user stopped speaking.
        bot: the bot's words.
        text: when the first of them arrived.
        spoke: when the bot reported that it started to speak.
        all_spoken: the bot has stopped speaking, and was not interrupted.
    """

    number: int | None
    began: float
    bot_audio_from: float
    typed: float | None = None
    by_voice: bool = False
    user: str = ""
    interim: str = ""
    final: float | None = None
    stopped: float | None = None
    bot: str = ""
    text: float | None = None
    spoke: float | None = None
    all_spoken: bool = False
    _segments: dict[int | None, int] = attrs.field(factory=dict, repr=False)
    _spoken_words: int = 0

    @property
    def answered(self) -> bool:
        """Whether the bot has started to answer."""
        return self.text is not None or self.spoke is not None

    @property
    def spoken(self) -> str:
        """The part of the bot's words that was spoken; all of them if the bot does not report its progress."""
        spoken_length = sum(self._segments.values()) if self._segments else self._spoken_words
        if self.all_spoken or not (self._segments or self._spoken_words):
            return self.bot
        for index, char in enumerate(self.bot):
            if not char.isspace():
                if not spoken_length:
                    return self.bot[:index]
                spoken_length -= 1
        return self.bot

    def update_progress(self, event: Event) -> None:
        """Apply what a message with the bot's text says about the progress of its speech.

        Reports about segments are exact. If there are none, spoken words are counted. Both are measured in characters
        without spaces, because the messages differ in their spaces.
        """
        if event.type is RTVIEvent.BOT_OUTPUT and event.data.spoken_progress is not None:
            if event.data.segment_id in self._segments or len(self._segments) < _MAX_SEGMENTS:
                self._segments[event.data.segment_id] = _length(event.data.spoken_progress.accumulated_text)
        elif event.type is RTVIEvent.BOT_TTS_TEXT:
            self._spoken_words += _length(event.data.text)


class Turns:
    """Collects turns over several sessions. Not thread-safe.

    A turn begins when the user starts to speak or types, unless the bot has not yet answered the one before.

    Attributes:
        interruptions: when the bot was interrupted.
    """

    def __init__(self) -> None:
        self.interruptions: deque[float] = deque(maxlen=_MAX_INTERRUPTIONS)
        self._turns: deque[Turn] = deque(maxlen=_MAX_TURNS)
        self._count = 0
        self._transcript = Transcript()
        self._in_session = False
        self._bot_reports_speech = False

    def end_session(self) -> None:
        """End the session: later events belong to another one, perhaps with another bot."""
        self._end_turn()
        self._transcript = Transcript()
        self._in_session = False
        self._bot_reports_speech = False

    def snapshot(self) -> tuple[Turn, ...]:
        """Return copies of the latest `_MAX_TURNS` turns."""
        turns = [attrs.evolve(turn) for turn in self._turns]
        unfinished = self._transcript.unfinished
        if unfinished is not None and turns:
            turns[-1].bot = _joined(turns[-1].bot, unfinished.text)
        return tuple(turns)

    def update(self, event: Event) -> None:
        """Apply an event of one of the types in `TURN_EVENTS`."""
        now = event.received_at
        if event.type is RTVIEvent.USER_STARTED_SPEAKING:
            self._bot_reports_speech = True
            turn = self._user_turn(now)
            turn.by_voice, turn.stopped = True, None
        elif event.type is RTVIEvent.USER_STOPPED_SPEAKING:
            self._current_turn(now).stopped = now
        elif event.type is RTVIEvent.BOT_STARTED_SPEAKING:
            turn = self._current_turn(now)
            turn.spoke, turn.all_spoken = turn.spoke or now, False
        elif event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
            turn = self._current_turn(now)
            # An interruption is reported just before the end of speech that it causes.
            interrupted = bool(self.interruptions) and self.interruptions[-1] > (turn.spoke or now)
            turn.all_spoken = turn.spoke is not None and not interrupted
        elif event.type is RTVIEvent.BOT_INTERRUPTED:
            self.interruptions.append(now)
            if self._in_session and not self._turns[-1].answered:
                self._turns[-1].bot_audio_from = now
        elif event.type in BOT_TEXTS:
            self._update_bot(event)
        else:
            self._update_user(event)

    def _update_bot(self, event: Event) -> None:
        turn = self._current_turn(event.received_at)
        turn.text = turn.text or event.received_at
        turn.update_progress(event)
        line = self._transcript.add(event)
        if line is not None:
            turn.bot = _joined(turn.bot, line.text)

    def _update_user(self, event: Event) -> None:
        now = event.received_at
        if event.type is RTVIEvent.USER_INPUT and event.data.input_type == "chat":
            turn = self._user_turn(now)
            turn.typed, turn.user = now, _joined(turn.user, event.data.text)
            return
        line = self._transcript.add(event)
        if line is None:
            return
        # The last words of an utterance may be transcribed after the bot has started to answer.
        turn = self._current_turn(now) if self._bot_reports_speech else self._user_turn(now)
        turn.by_voice = True
        turn.interim = "" if line.final else clean(line.text)
        if line.final:
            turn.user, turn.final = _joined(turn.user, line.text), now

    def _user_turn(self, now: float) -> Turn:
        """Return the turn to which the user's speech or text of this moment belongs; begin one if needed."""
        if self._in_session and self._turns[-1].number is not None and not self._turns[-1].answered:
            return self._turns[-1]
        self._count += 1
        return self._begin(Turn(self._count, now, now))

    def _current_turn(self, now: float) -> Turn:
        return self._turns[-1] if self._in_session else self._begin(Turn(None, now, now))

    def _begin(self, turn: Turn) -> Turn:
        self._end_turn()
        self._in_session = True
        self._turns.append(turn)
        return turn

    def _end_turn(self) -> None:
        line = self._transcript.end_turn()
        if line is not None and self._turns:
            self._turns[-1].bot = _joined(self._turns[-1].bot, line.text)


def _joined(text: str, more: str) -> str:
    return f"{text} {clean(more)}".strip() if len(text) < _MAX_TEXT else text


def _length(text: str) -> int:
    return sum(not char.isspace() for char in text)
