"""The turns of a conversation, from the events of any bot. Pure."""

from __future__ import annotations

from collections import deque

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.recording.text import clean
from rtvi_sync.recording.transcript import BOT_TEXTS, EVENTS, Transcript

# What a turn and a conversation keep, whatever a bot sends.
_LONGEST_TEXT = 20_000
_MOST_SEGMENTS = 1000
_MOST_TURNS = 100
_MOST_INTERRUPTIONS = 1000

SIGNS = (
    RTVIEvent.USER_STARTED_SPEAKING,
    RTVIEvent.USER_STOPPED_SPEAKING,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
    *EVENTS,
)


@attrs.define
class Turn:
    """What the user said or typed, and what the bot answered. Moments are monotonic seconds; None: not yet, or never.

    Attributes:
        number: among the turns of the user, from 1; None: the bot spoke first.
        began: when the bot told that the user began; or when the bot began, if it spoke first.
        heard_from: from when on what is heard of the bot belongs to this turn: it may have to be interrupted first.
        typed: when what the user typed was acknowledged.
        aloud: the user spoke.
        user, interim: the user's words; and those that may still change.
        final: when the last of `user` came.
        stopped: when the bot told that the user stopped speaking.
        bot: the bot's words.
        text: when the first of them came.
        spoke: when the bot told that it began to speak.
        all_spoken: the bot has stopped speaking, and was not interrupted.
    """

    number: int | None
    began: float
    heard_from: float
    typed: float | None = None
    aloud: bool = False
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
        """Whether the bot has reacted."""
        return self.text is not None or self.spoke is not None

    @property
    def spoken(self) -> str:
        """The part of the bot's words that was spoken, as far as it tells; all of them where it does not."""
        told = sum(self._segments.values()) if self._segments else self._spoken_words
        if self.all_spoken or not (self._segments or self._spoken_words):
            return self.bot
        for index, char in enumerate(self.bot):
            if not char.isspace():
                if not told:
                    return self.bot[:index]
                told -= 1
        return self.bot

    def take_progress(self, event: Event) -> None:
        """Note what a text of the bot's tells about how far its speech has come.

        Reports about segments are exact. Words that are spoken are counted where there are none; both are measured in
        characters without spaces, because each message has its own way with those.
        """
        if event.type is RTVIEvent.BOT_OUTPUT and event.data.spoken_progress is not None:
            if event.data.segment_id in self._segments or len(self._segments) < _MOST_SEGMENTS:
                self._segments[event.data.segment_id] = _length(event.data.spoken_progress.accumulated_text)
        elif event.type is RTVIEvent.BOT_TTS_TEXT:
            self._spoken_words += _length(event.data.text)


class Turns:
    """Gathers turns, session after session. Not for two threads.

    A turn begins when the user begins to speak or types, unless the bot has not reacted to the one before.

    Attributes:
        interruptions: when the bot was interrupted.
    """

    def __init__(self) -> None:
        self.interruptions: deque[float] = deque(maxlen=_MOST_INTERRUPTIONS)
        self._turns: deque[Turn] = deque(maxlen=_MOST_TURNS)
        self._count = 0
        self._transcript = Transcript()
        self._in_session = False
        self._bot_hears_beginnings = False

    def end_session(self) -> None:
        """What comes now belongs to another session, perhaps with another bot."""
        self._end_turn()
        self._transcript = Transcript()
        self._in_session = False
        self._bot_hears_beginnings = False

    def snapshot(self) -> tuple[Turn, ...]:
        """The latest hundred turns as they are now."""
        turns = [attrs.evolve(turn) for turn in self._turns]
        unfinished = self._transcript.unfinished
        if unfinished is not None and turns:
            turns[-1].bot = _joined(turns[-1].bot, unfinished.text)
        return tuple(turns)

    def take(self, event: Event) -> None:
        """Take in an event of a type in `SIGNS`."""
        now = event.received_at
        if event.type is RTVIEvent.USER_STARTED_SPEAKING:
            self._bot_hears_beginnings = True
            turn = self._turn_of_user(now)
            turn.aloud, turn.stopped = True, None
        elif event.type is RTVIEvent.USER_STOPPED_SPEAKING:
            self._turn_now(now).stopped = now
        elif event.type is RTVIEvent.BOT_STARTED_SPEAKING:
            turn = self._turn_now(now)
            turn.spoke, turn.all_spoken = turn.spoke or now, False
        elif event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
            turn = self._turn_now(now)
            # An interruption is told just before the end that it causes.
            interrupted = bool(self.interruptions) and self.interruptions[-1] > (turn.spoke or now)
            turn.all_spoken = turn.spoke is not None and not interrupted
        elif event.type is RTVIEvent.BOT_INTERRUPTED:
            self.interruptions.append(now)
            if self._in_session and not self._turns[-1].answered:
                self._turns[-1].heard_from = now
        elif event.type in BOT_TEXTS:
            self._take_bot(event)
        else:
            self._take_user(event)

    def _take_bot(self, event: Event) -> None:
        turn = self._turn_now(event.received_at)
        turn.text = turn.text or event.received_at
        turn.take_progress(event)
        line = self._transcript.add(event)
        if line is not None:
            turn.bot = _joined(turn.bot, line.text)

    def _take_user(self, event: Event) -> None:
        now = event.received_at
        if event.type is RTVIEvent.USER_INPUT and event.data.input_type == "chat":
            turn = self._turn_of_user(now)
            turn.typed, turn.user = now, _joined(turn.user, event.data.text)
            return
        line = self._transcript.add(event)
        if line is None:
            return
        # The last words of an utterance may be recognised after the bot has begun to answer.
        turn = self._turn_now(now) if self._bot_hears_beginnings else self._turn_of_user(now)
        turn.aloud = True
        turn.interim = "" if line.final else clean(line.text)
        if line.final:
            turn.user, turn.final = _joined(turn.user, line.text), now

    def _turn_of_user(self, now: float) -> Turn:
        """The turn of a user who begins now."""
        if self._in_session and self._turns[-1].number is not None and not self._turns[-1].answered:
            return self._turns[-1]
        self._count += 1
        return self._begin(Turn(self._count, now, now))

    def _turn_now(self, now: float) -> Turn:
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
    return f"{text} {clean(more)}".strip() if len(text) < _LONGEST_TEXT else text


def _length(text: str) -> int:
    return sum(not char.isspace() for char in text)
