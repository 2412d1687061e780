"""A scripted conversation: plays an utterance, waits for the bot's complete answer, plays the next one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

from rtvi_sync import CloseInfo, DisconnectedError, Event, EventStream, RequestTimeoutError, RTVIClient, RTVIEvent
from rtvi_sync.media.pcm import rms
from rtvi_sync.recording.level import FLOOR
from rtvi_sync.recording.transcript import BOT_TEXTS, EVENTS, Line, Transcript

from . import bot_activity
from .bot_activity import ACTIVITY_EVENTS, BotActivity
from .screen import Screen
from .scripted_speech import ScriptedSpeech, UtteranceSource

# Seconds between two checks of what changes without an event.
_TICK = 0.05


class PlaybackMonitor:
    """An `AudioSink` that records when the bot is audible. Its methods are called on the sink's thread.

    Attributes:
        activity: the bot's; this class writes its `last_audible` and `playback_ends_at`.
    """

    def __init__(self) -> None:
        self.activity: BotActivity = BotActivity()
        self._played_until = -math.inf

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Measure the frame."""
        now = time.monotonic()
        self._played_until = max(now, self._played_until) + len(pcm) / 2 / sample_rate_hz
        if rms(pcm) >= FLOOR:
            self.activity.playback_ends_at = self._played_until
            self.activity.last_audible = now

    def drop(self) -> None:
        """End the playback, because the bot was interrupted."""
        self._played_until = self.activity.playback_ends_at = time.monotonic()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class DemoSession:
    """One scripted conversation in one session. Times are monotonic seconds.

    Create it before the session begins; then call `run()` on the same thread.

    Args:
        client: not yet connected.
        source: the client's microphone.
        monitor: the client's speaker.
        screen: where the transcript is printed.

    Attributes:
        began_at: when it was created.
        utterance_times: when each utterance started.
        transcript_times: when final transcripts of the user's words arrived.
        text_times: when the bot's text arrived.
        interruptions: when the bot was interrupted.
        answers: the number of utterances that the bot has answered.
    """

    def __init__(self, client: RTVIClient, source: UtteranceSource, monitor: PlaybackMonitor, screen: Screen) -> None:
        self.began_at: float = time.monotonic()
        self.utterance_times: list[float] = []
        self.transcript_times: list[float] = []
        self.text_times: list[float] = []
        self.interruptions: list[float] = []
        self.answers: int = 0
        self._transcript = Transcript()
        self._source = source
        self._bot = monitor.activity
        self._screen = screen
        self._deadline = math.inf
        self._events: EventStream = client.events(
            *EVENTS,
            *ACTIVITY_EVENTS,
            RTVIEvent.BOT_INTERRUPTED,
            RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS,
            RTVIEvent.ERROR,
            timeout=_TICK,
        )

    def run(self, speech: ScriptedSpeech, *, greeting: float, timeout: float) -> None:
        """Play all utterances, and wait for the bot's answer after each.

        Args:
            speech: the utterances.
            greeting: seconds to wait for the bot to speak first.
            timeout: seconds that the whole conversation may take.

        Raises:
            RequestTimeoutError: The timeout passed.
            DisconnectedError: The session ended before the bot had answered everything.
        """
        self._deadline = time.monotonic() + timeout
        if greeting:
            self.print_timed(f"[you wait up to {greeting:g} s for the bot to speak first]")
        self._wait_for_answer(self.began_at, greeting)
        for number, utterance in enumerate(speech.utterances, 1):
            self.print_timed(f"[you say part {number} of {len(speech.utterances)}, {speech.seconds(utterance):.1f} s]")
            self.utterance_times.append(time.monotonic())
            self._source.enqueue(utterance)
            self._process_events(lambda: False, speech.seconds(utterance))
            try:
                self.answers += self._wait_for_answer(time.monotonic(), bot_activity.ANSWER_TIMEOUT)
            except DisconnectedError:
                # A bot may end the session right after its last answer.
                if number < len(speech.utterances) or not self._bot.has_answered_since(self.utterance_times[-1]):
                    raise
                self.answers += 1
        self.end_of_turn()

    def end_of_turn(self) -> None:
        """Print what the bot has sent as text only."""
        self._show_line(self._transcript.end_turn())

    def print_timed(self, text: str, at: float | None = None) -> None:
        """Print a line with the time at which it came."""
        self._screen.print_line(f"{(at or time.monotonic()) - self.began_at:6.1f} s  {text}")

    def _wait_for_answer(self, since: float, timeout: float) -> bool:
        """Wait until the bot has answered what was said at `since`. Return False if no answer begins in time."""
        answered = self._process_events(lambda: self._bot.has_answered_since(since), timeout)
        if answered:
            self._process_events(lambda: self._bot.has_finished(time.monotonic()), math.inf)
        self.end_of_turn()
        return answered

    def _process_events(self, until: Callable[[], bool], seconds: float) -> bool:
        """Handle events until `until()`, which is called every `_TICK`, is true. Return False after `seconds`."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() >= self._deadline:
                raise RequestTimeoutError("The conversation did not end within its timeout; pass a longer --timeout")
            if time.monotonic() >= end:
                return False
            try:
                event = next(self._events)
            except RequestTimeoutError:
                continue
            except StopIteration:
                raise self._session_ended() from None
            self._handle_event(event)
        return True

    def _handle_event(self, event: Event) -> None:
        if event.type in ACTIVITY_EVENTS:
            self._bot.update(event)
        if event.type in EVENTS:
            line = self._transcript.add(event)
            if event.type in BOT_TEXTS:
                self.text_times.append(event.received_at)
            elif line is not None and line.final:
                self.transcript_times.append(event.received_at)
            self._show_line(line, event.received_at)
        elif event.type is RTVIEvent.BOT_INTERRUPTED:
            self.interruptions.append(event.received_at)
        elif event.type is RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS:
            call = event.data
            arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
            self.print_timed(f"[the bot calls {call.function_name or 'a function'} {arguments}]", event.received_at)
        elif event.type is RTVIEvent.ERROR:
            self.print_timed(f"the bot reports an error: {event.data.message}", event.received_at)

    def _show_line(self, line: Line | None, at: float | None = None) -> None:
        if line is None:
            return
        if line.final:
            self.print_timed(f"{line.who}  {line.text}", at)
        else:
            self._screen.show_partial(f"{line.who}  {line.text}")

    def _session_ended(self) -> DisconnectedError:
        info = self._events.ended or CloseInfo()
        facts = (f"by the {info.initiator}", f"code {info.code}" if info.code else "", info.reason, info.error or "")
        return DisconnectedError(
            f"The session ended before the bot had answered everything ({', '.join(str(f) for f in facts if f)})",
            code=info.code,
            reason=info.reason,
            initiator=info.initiator,
        )
