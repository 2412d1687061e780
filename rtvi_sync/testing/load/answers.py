"""Durations of the bot's answers, from the events of its session. Pure: no thread, socket or clock.

An answer is timed from the end of the user's turn: when a text was sent, or when the last audible frame of the user's
voice was sent. The rest follows from events that bots of every version send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.media import AudioFrame
from rtvi_sync.recording.latency import audible_timestamps
from rtvi_sync.recording.transcript import BOT_TEXTS

#: The types of events that `AnswerTimer.handle_event()` needs.
EVENTS: Final = (
    *BOT_TEXTS,
    RTVIEvent.BOT_LLM_STARTED,
    RTVIEvent.BOT_LLM_STOPPED,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
)
# After one of these, what the bot sends belongs to the user's latest question.
_ANSWER_STARTS: Final = (RTVIEvent.BOT_LLM_STARTED, RTVIEvent.BOT_STOPPED_SPEAKING, RTVIEvent.BOT_INTERRUPTED)
# Completed answers that `wait_for_answer()` has not returned are kept up to this number.
_MAX_ANSWERS: Final = 100

AnswerPart: TypeAlias = Literal["first text", "first audio", "complete"]
"""A timed part of an answer."""


@attrs.frozen(kw_only=True)
class Answer:
    """The durations of an answer, in seconds from the end of the user's turn. None: it has no such part.

    Attributes:
        text: until the bot's first text arrived.
        audio: until the bot began to speak.
        complete: until the bot had said everything.
    """

    text: float | None = None
    audio: float | None = None
    complete: float


@attrs.define
class _PendingAnswer:
    asked: float
    spoken: bool
    text: float | None = None
    audio: float | None = None

    @property
    def missing(self) -> AnswerPart:
        """Return the part that would have come next."""
        if self.spoken:
            return "first audio" if self.audio is None else "complete"
        return "first text" if self.text is None else "complete"


class AnswerTimer:
    """A timer of the answers in one session. Not thread-safe. Moments are monotonic seconds.

    Attributes:
        completed: the completed answers, in order.
    """

    def __init__(self) -> None:
        self.completed: deque[Answer] = deque(maxlen=_MAX_ANSWERS)
        self._pending: _PendingAnswer | None = None
        self._writing = False
        self._speaking = False
        self._stale = False

    def start(self, moment: float, *, spoken: bool) -> None:
        """Start the timer at the end of the user's turn; a question whose answer is not complete is replaced.

        Args:
            moment: when the turn ended.
            spoken: True if the bot is to speak; else the answer is complete with its text.
        """
        self._pending = _PendingAnswer(moment, spoken)
        # What the bot is writing or saying now does not answer this question.
        self._stale = self._writing or self._speaking

    def handle_event(self, event: Event) -> list[tuple[AnswerPart, float, float]]:
        """Process an event of the types in `EVENTS`. One that arrived before the user's turn ended does not answer it.

        Returns:
            The parts that it completes: for each its name, when it began and how long it took.
        """
        if event.type in _ANSWER_STARTS:
            self._stale = False
        if event.type in (RTVIEvent.BOT_LLM_STARTED, RTVIEvent.BOT_LLM_STOPPED, RTVIEvent.BOT_INTERRUPTED):
            self._writing = event.type is RTVIEvent.BOT_LLM_STARTED
        elif event.type in (RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING):
            self._speaking = event.type is RTVIEvent.BOT_STARTED_SPEAKING
        pending = self._pending
        if pending is not None and event.received_at < pending.asked:
            # Handlers lag: `start()` would have found this state, had the event been handled before it.
            self._stale = self._writing or self._speaking
            return []
        if pending is None or self._stale:
            return []
        after = event.received_at - pending.asked
        if event.type in BOT_TEXTS and pending.text is None:
            pending.text = after
            return [("first text", pending.asked, after)]
        if event.type is RTVIEvent.BOT_STARTED_SPEAKING and pending.audio is None:
            pending.audio = after
            return [("first audio", pending.asked, after)]
        begun = pending.audio if pending.spoken else pending.text
        if begun is None or self._writing or self._speaking or event.type in BOT_TEXTS:
            return []
        self._pending = None
        self.completed.append(Answer(text=pending.text, audio=pending.audio, complete=after))
        return [("complete", pending.asked, after)]

    def end_session(self, moment: float) -> tuple[AnswerPart, float] | None:
        """Reset the timer at the end of a session. Return as `cancel()`; None if the question is of a later session."""
        self._writing = self._speaking = self._stale = False
        return self.cancel() if self._pending is not None and self._pending.asked <= moment else None

    def cancel(self) -> tuple[AnswerPart, float] | None:
        """Cancel the current question. Return which part is missing and since when; None if there was no question."""
        pending, self._pending = self._pending, None
        return None if pending is None else (pending.missing, pending.asked)


def end_of_voice(sent: Sequence[AudioFrame], until: float) -> float | None:
    """Return when the last audible frame was sent; None if all of them are silence.

    Args:
        sent: the frames that were sent last.
        until: when the bot reported the end of the user's turn. Handlers may lag: later frames are of another turn.
    """
    frames = [frame for frame in sent if frame.timestamp <= until]
    # Digital silence follows the end of a source and makes up most frames; skipping it is cheap.
    while frames and not frames[-1].pcm.strip(b"\0"):
        frames.pop()
    return max(audible_timestamps(frames), default=None)
