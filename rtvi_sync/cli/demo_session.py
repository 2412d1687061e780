"""A scripted conversation: plays an utterance, waits for the bot's complete answer, and plays the next one."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIEvent,
)
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.recording.transcript import EVENTS, Transcript

from ..concurrency.clock import monotonic
from .screen import Screen, Style, level_bar, progress_bar
from .scripted_speech import ScriptedSpeech

# Width of the bar that moves while one side speaks, in characters.
_BAR_WIDTH = 30
_SILENCE_DBFS = -60.0


class DemoSession:
    """One scripted conversation in one session. Its lines are printed as the bot's events arrive.

    Args:
        client: Client before the connection; its microphone is silent.
        screen: Screen for the transcript.
    """

    def __init__(self, client: RTVIClient, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._began_at = monotonic()
        self._transcript = Transcript()
        self._speech = 0.0, 0.0  # start of the utterance, and its duration in seconds
        # Guards the transcript and the screen, because the conversation's thread and the events' thread print. Held
        # while a line is printed.
        self._lock = new_lock()
        for event in EVENTS:
            show = partial(self._show_transcript, flush=event is RTVIEvent.BOT_LLM_STOPPED)
            client.on(event, _handler(show))
        client.on(RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, _handler(self._show_call))
        client.on(RTVIEvent.ERROR, _handler(self._show_error))
        if screen.live:
            client.on(RTVIEvent.LOCAL_AUDIO_LEVEL, _handler(self._show_progress))
            client.on(RTVIEvent.REMOTE_AUDIO_LEVEL, _handler(self._show_bot_level))

    def run(self, speech: ScriptedSpeech, *, greeting: float, timeout: float) -> None:
        """Play all utterances, and wait for the bot's answer after each.

        Args:
            speech: The utterances.
            greeting: Seconds to wait for the bot to speak first.
            timeout: Limit in seconds for the whole conversation.

        Raises:
            RequestTimeoutError: The timeout passed.
            DisconnectedError: The session ended before the bot had answered everything.
            BotError: The bot reported an error and no answer.
        """
        deadline = Deadline(timeout)
        number, count = 0, len(speech.utterances)
        try:
            if greeting:
                self.print_timed(f"[you wait up to {greeting:g} s for the bot to speak first]")
                self._hear_greeting(greeting, deadline)
            for number, utterance in enumerate(speech.utterances, 1):
                self.print_timed(f"[you say part {number} of {count}, {speech.seconds(utterance):.1f} s]")
                self._speech = monotonic(), speech.seconds(utterance)
                self._client.ask(utterance, deadline.remaining(), sample_rate_hz=speech.sample_rate_hz)
                self._show_transcript()
        except (BotNotReadyError, DisconnectedError):
            raise _ended_early(self._client.wait()) from None
        except RequestTimeoutError as error:
            if error.kind == "not_heard":
                raise
            missing = f"part {number} of {count} was not answered whole" if number else "the greeting was not over"
            raise RequestTimeoutError(
                f"The conversation did not end within {timeout:g} s: {missing}. Pass more --seconds, or see the "
                "bot's log; a bot that recognizes speech on a busy machine may miss words"
            ) from None

    def _hear_greeting(self, seconds: float, deadline: Deadline) -> None:
        """Wait for the bot's greeting to end, if it starts within `seconds`."""
        try:
            self._client.listen(deadline.at_most(seconds))
        except RequestTimeoutError:
            if any(turn.is_open for turn in self._client.turns()):
                self._client.listen(deadline.remaining())
        self._show_transcript()

    def print_timed(self, text: str) -> None:
        """Print a line with the time. Any thread."""
        with self._lock:
            self._print_timed(text)

    def _print_timed(self, text: str, style: Style = "faint") -> None:
        self._screen.print_line(f"{self._time()}{text}", style)

    def _time(self) -> str:
        return f"{monotonic() - self._began_at:6.1f} s  "

    def _show_transcript(self, _data: object = None, *, flush: bool = False) -> None:
        with self._lock:
            for line in self._transcript.update(self._client.turns(), flush=flush):
                self._screen.print_utterance(line.who, line.text, self._time())
            self._show_unfinished()

    def _show_unfinished(self) -> bool:
        unfinished = self._transcript.unfinished
        if unfinished is not None:
            self._screen.show_partial(f"{unfinished.who}  {unfinished.text}")
        return unfinished is not None

    def _show_progress(self, _level: object) -> None:
        """Show the spoken part of the utterance as a bar, unless its words are shown."""
        began_at, seconds = self._speech
        said = monotonic() - began_at
        with self._lock:
            if said <= seconds and not self._show_unfinished():
                bar = progress_bar(said / seconds, _BAR_WIDTH, sys.stdout.encoding)
                self._screen.show_partial(f"you  {bar}  {said:.1f} of {seconds:.1f} s")

    def _show_bot_level(self, level: Any) -> None:
        """Show the bot's level while it speaks, unless its words are shown."""
        with self._lock:
            if level.dbfs > _SILENCE_DBFS and not self._show_unfinished():
                self._screen.show_partial(f"bot  {level_bar(level.dbfs, _BAR_WIDTH, sys.stdout.encoding)}")

    def _show_call(self, call: Any) -> None:
        arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
        self.print_timed(f"[the bot calls {call.function_name or 'a function'} {arguments}]")

    def _show_error(self, error: Any) -> None:
        with self._lock:
            self._print_timed(f"the bot reports an error: {error.message}", "error")


def _handler(show: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a handler that ignores a closed output. The next line outside a handler then ends the demo."""

    def handle(data: Any) -> None:
        with contextlib.suppress(OSError):
            show(data)

    return handle


def _ended_early(info: CloseInfo) -> DisconnectedError:
    facts = (f"by the {info.initiator}", f"code {info.code}" if info.code else "", info.reason, info.error or "")
    return DisconnectedError(
        f"The session ended before the bot had answered everything ({', '.join(str(fact) for fact in facts if fact)})",
        code=info.code,
        reason=info.reason,
        initiator=info.initiator,
    )
