"""Holds a spoken conversation as a polite user does: says something, hears the bot out, says the next thing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rtvi_sync import CloseInfo, DisconnectedError, Event, EventStream, RequestTimeoutError, RTVIClient, RTVIEvent
from rtvi_sync.media.pcm import rms
from rtvi_sync.recording.level import FLOOR
from rtvi_sync.recording.transcript import BOT_TEXTS, EVENTS, Line, Transcript

from . import bot_activity
from .bot_activity import SIGNS, Activity
from .screen import Screen
from .scripted_speech import Mouth, Speech

# How often what happens without an event is looked at.
_TICK = 0.05


class Ear:
    """An `AudioSink` that notes when the bot is to be heard; its methods are called on the thread of the sink.

    Attributes:
        activity: of the bot; its `last_heard` and `silent_from` are written here.
    """

    def __init__(self) -> None:
        self.activity: Activity = Activity()
        self._played_until = -math.inf

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Listen."""
        now = time.monotonic()
        self._played_until = max(now, self._played_until) + len(pcm) / 2 / sample_rate_hz
        if rms(pcm) >= FLOOR:
            self.activity.silent_from = self._played_until
            self.activity.last_heard = now

    def drop(self) -> None:
        """The bot was interrupted."""
        self._played_until = self.activity.silent_from = time.monotonic()

    def close(self) -> None:
        """There is nothing to close."""


class Conversation:
    """One conversation of one session.

    Make it before the session begins; then call `hold()` on the same thread.

    Args:
        client: not yet connected.
        mouth: the client's microphone.
        ear: the client's speaker.
        screen: what is said is shown there.

    Attributes:
        began: when it was made, in monotonic seconds.
        said: when each utterance was begun.
        finals: when final transcripts of the user's words arrived.
        texts: when text of the bot's arrived.
        interruptions: when the bot was interrupted.
        answers: how many utterances the bot has reacted to.
    """

    def __init__(self, client: RTVIClient, mouth: Mouth, ear: Ear, screen: Screen) -> None:
        self.began: float = time.monotonic()
        self.said: list[float] = []
        self.finals: list[float] = []
        self.texts: list[float] = []
        self.interruptions: list[float] = []
        self.answers: int = 0
        self._transcript = Transcript()
        self._mouth = mouth
        self._bot = ear.activity
        self._screen = screen
        self._until = math.inf
        self._events: EventStream = client.events(
            *EVENTS, *SIGNS, RTVIEvent.BOT_INTERRUPTED, RTVIEvent.ERROR, timeout=_TICK
        )

    def hold(self, speech: Speech, *, greeting: float, timeout: float) -> None:
        """Say everything and hear the bot out each time.

        Args:
            speech: what is said.
            greeting: seconds to wait whether the bot speaks first.
            timeout: seconds from now on after which the conversation is broken off.

        Raises:
            RequestTimeoutError: it was broken off.
            DisconnectedError: the session ended before the bot had answered everything.
        """
        self._until = time.monotonic() + timeout
        if greeting:
            self.note(f"[you wait {greeting:g} s whether the bot speaks first]")
        self._hear_out(self.began, greeting)
        for number, utterance in enumerate(speech.utterances, 1):
            self.note(f"[you say part {number} of {len(speech.utterances)}, {speech.seconds(utterance):.1f} s]")
            self.said.append(time.monotonic())
            self._mouth.say(utterance)
            self._follow(lambda: False, speech.seconds(utterance))
            try:
                self.answers += self._hear_out(time.monotonic(), bot_activity.PATIENCE)
            except DisconnectedError:
                # A bot may say its last word and hang up.
                if number < len(speech.utterances) or not self._bot.since(self.said[-1]):
                    raise
                self.answers += 1
        self.end_of_turn()

    def end_of_turn(self) -> None:
        """Show what the bot has said in words only."""
        self._show(self._transcript.end_turn())

    def note(self, text: str, at: float | None = None) -> None:
        """Show a line with the time at which it came."""
        self._screen.line(f"{(at or time.monotonic()) - self.began:6.1f} s  {text}")

    def _hear_out(self, since: float, patience: float) -> bool:
        """Wait for the bot to say something after `since`, then until it is done. Returns False if it says nothing."""
        answered = self._follow(lambda: self._bot.since(since), patience)
        if answered:
            self._follow(lambda: self._bot.over(time.monotonic()), math.inf)
        self.end_of_turn()
        return answered

    def _follow(self, until: Callable[[], bool], seconds: float) -> bool:
        """Show what happens until `until()` is true, which is asked often, or time is up. Returns whether it was."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() >= self._until:
                raise RequestTimeoutError("The conversation was not over in time; --timeout allows it more")
            if time.monotonic() >= end:
                return False
            try:
                event = next(self._events)
            except RequestTimeoutError:
                continue
            except StopIteration:
                raise self._lost() from None
            self._take(event)
        return True

    def _take(self, event: Event) -> None:
        if event.type in SIGNS:
            self._bot.take(event)
        if event.type in EVENTS:
            line = self._transcript.add(event)
            if event.type in BOT_TEXTS:
                self.texts.append(event.received_at)
            elif line is not None and line.final:
                self.finals.append(event.received_at)
            self._show(line, event.received_at)
        elif event.type is RTVIEvent.BOT_INTERRUPTED:
            self.interruptions.append(event.received_at)
        elif event.type is RTVIEvent.ERROR:
            self.note(f"the bot reports an error: {event.data.message}", event.received_at)

    def _show(self, line: Line | None, at: float | None = None) -> None:
        if line is None:
            return
        if line.final:
            self.note(f"{line.who}  {line.text}", at)
        else:
            self._screen.partial(f"{line.who}  {line.text}")

    def _lost(self) -> DisconnectedError:
        info = self._events.ended or CloseInfo()
        facts = (f"by the {info.initiator}", f"code {info.code}" if info.code else "", info.reason, info.error or "")
        return DisconnectedError(
            f"The session ended before the bot had answered everything ({', '.join(str(f) for f in facts if f)})",
            code=info.code,
            reason=info.reason,
            initiator=info.initiator,
        )
