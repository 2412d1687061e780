"""When the bot answers what the user said or typed, from the events of its session. Pure: no thread, socket or clock.

An answer is timed from the end of the user's turn: when a text was sent, or when the last audible piece of the user's
voice was. Bots of every version tell the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.media import AudioFrame
from rtvi_sync.recording.latency import moments_of_sound
from rtvi_sync.recording.transcript import BOT_TEXTS

#: What `AnswerClock.take()` wants to see.
EVENTS: Final = (
    *BOT_TEXTS,
    RTVIEvent.BOT_LLM_STARTED,
    RTVIEvent.BOT_LLM_STOPPED,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
)
# From one of these on, what comes belongs to what the user said last.
_BREAKS: Final = (RTVIEvent.BOT_LLM_STARTED, RTVIEvent.BOT_STOPPED_SPEAKING, RTVIEvent.BOT_INTERRUPTED)
# Answers that nobody asked for by `wait_for_answer()` are kept up to this number.
_MAX_ANSWERS: Final = 100

AnswerPart: TypeAlias = Literal["first text", "first audio", "complete"]
"""A part of an answer that is timed."""


@attrs.frozen(kw_only=True)
class Answer:
    """How long an answer took, in seconds from the end of the user's turn. None: there was none.

    Attributes:
        text: until the first text of the bot's came.
        audio: until the bot began to speak.
        complete: until it had said everything.
    """

    text: float | None = None
    audio: float | None = None
    complete: float


@attrs.define
class _PendingAnswer:
    asked: float
    aloud: bool
    text: float | None = None
    audio: float | None = None

    @property
    def missing(self) -> AnswerPart:
        """What would have come next."""
        if self.aloud:
            return "first audio" if self.audio is None else "complete"
        return "first text" if self.text is None else "complete"


class AnswerTimer:
    """Times the answers of one session. Not for two threads. Moments are monotonic seconds.

    Attributes:
        heard: the answers that are over, in order.
    """

    def __init__(self) -> None:
        self.completed: deque[Answer] = deque(maxlen=_MAX_ANSWERS)
        self._pending: _PendingAnswer | None = None
        self._writing = False
        self._speaking = False
        self._stale = False

    def start(self, moment: float, *, aloud: bool) -> None:
        """The user's turn has ended. It takes the place of one whose answer is not over.

        Args:
            moment: at which it ended.
            aloud: the bot is to speak; else the answer ends with its text.
        """
        self._pending = _PendingAnswer(moment, aloud)
        # What the bot is about to say now is no answer to this.
        self._stale = self._writing or self._speaking

    def handle_event(self, event: Event) -> list[tuple[AnswerPart, float, float]]:
        """Take in an event of the types in `EVENTS`. One that arrived before the user's turn ended is no answer to it.

        Returns:
            What it completes: each part's name, when it began and how long it took.
        """
        if event.type in _BREAKS:
            self._stale = False
        if event.type in (RTVIEvent.BOT_LLM_STARTED, RTVIEvent.BOT_LLM_STOPPED, RTVIEvent.BOT_INTERRUPTED):
            self._writing = event.type is RTVIEvent.BOT_LLM_STARTED
        elif event.type in (RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING):
            self._speaking = event.type is RTVIEvent.BOT_STARTED_SPEAKING
        pending = self._pending
        if (
            pending is not None and event.received_at < pending.asked
        ):  # handlers lag: this is what `ask()` would have found
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
        begun = pending.audio if pending.aloud else pending.text
        if begun is None or self._writing or self._speaking or event.type in BOT_TEXTS:
            return []
        self._pending = None
        self.completed.append(Answer(text=pending.text, audio=pending.audio, complete=after))
        return [("complete", pending.asked, after)]

    def end_session(self, moment: float) -> tuple[AnswerPart, float] | None:
        """The session has ended. Returns what `give_up()` does, unless what was asked last was asked of another one."""
        self._writing = self._speaking = self._stale = False
        return self.cancel() if self._pending is not None and self._pending.asked <= moment else None

    def cancel(self) -> tuple[AnswerPart, float] | None:
        """No (more) answer is waited for. Returns what is missing and since when; None if nothing was asked."""
        pending, self._pending = self._pending, None
        return None if pending is None else (pending.missing, pending.asked)


def end_of_voice(sent: Sequence[AudioFrame], until: float) -> float | None:
    """When the last audible piece of what was sent last was sent; None if all of it is silence.

    Args:
        sent: the pieces.
        until: when the bot told that the user had ended. Handlers may lag: what was sent since is another turn.
    """
    frames = [frame for frame in sent if frame.timestamp <= until]
    # Sources that have come to their end are followed by perfect silence, and that is most of what there is.
    while frames and not frames[-1].pcm.strip(b"\0"):
        frames.pop()
    return max(moments_of_sound(frames), default=None)
