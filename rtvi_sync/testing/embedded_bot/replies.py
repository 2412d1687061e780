"""What the bot says, and how it is interrupted: one thread while it speaks."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Final

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.protocol.frames import AudioRawFrame, InterruptionFrame
from rtvi_sync.testing.embedded_bot.llm_context import Context
from rtvi_sync.testing.embedded_bot.messenger import Line
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.script import Step, bot_speech, bot_turn, words_of
from rtvi_sync.testing.embedded_bot.session import BotSession
from rtvi_sync.testing.embedded_bot.tones import Speech, echo, tones
from rtvi_sync.testing.embedded_bot.vad import Utterance

_TONES_HZ: Final = 24000


class Turns:
    """The bot's turns in one session, one at a time. Any thread may call.

    Args:
        session: takes the audio.
        line: takes the messages.
        context: is what the bot answers.
        options: of the bot.
    """

    def __init__(self, session: BotSession, line: Line, context: Context, options: BotOptions) -> None:
        self._session = session
        self._line = line
        self._context = context
        self._options = options
        self._segment_ids = itertools.count(1, 100)
        self._rate = options.audio_out_sample_rate_hz
        self._heard_rate: int | None = None
        # Lets one turn begin or end at a time. Held by the threads of the session and of its actions until the turn
        # that they stop has ended; the thread of a turn does not take it.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._speaking = False

    def hears_at(self, sample_rate: int) -> None:
        """Note the rate of the user's audio; the first is that of the bot's too, unless it has one by then."""
        self._heard_rate = self._heard_rate or sample_rate

    def interrupt(self) -> None:
        """Stop the turn under way. Like real bots it tells so in any case, also when it was silent."""
        with self._lock:
            self._stop()
            if self._line.mode.sends("bot-interrupted"):  # the frame for the audio came with the message
                self._session.send_frame(InterruptionFrame())
                self._line.tell("bot-interrupted")
            self._fall_silent()

    def silence(self) -> None:
        """Stop the turn under way; only the end of the speech tells of it."""
        with self._lock:
            self._stop()
            self._fall_silent()

    def stop(self) -> None:
        """Stop the turn under way without a message."""
        with self._lock:
            self._stop()

    def respond(self, utterance: Utterance | None = None, *, aloud: bool = True) -> None:
        """Run the language model on the context, and say what it answers.

        Args:
            utterance: what the user's last message sounded like, if it was spoken.
            aloud: False: what it answers is not spoken.
        """
        said, reply = self._context.run()
        self._begin(self._turn(reply, utterance, aloud=aloud), heard=said)

    def say(self, text: str) -> None:
        """Say a text that is not from the language model."""
        self._begin(self._speech(text), heard=None)

    def _begin(self, script: Iterator[Step], *, heard: str | None) -> None:
        with self._lock:
            self._stop()
            if heard is not None:
                self._line.tell("user-llm-text", {"text": heard})
            self._cancelled = threading.Event()
            self._thread = start_thread("bot-turn", self._play, script, self._cancelled)

    def _stop(self) -> None:
        if self._thread is not None:
            self._cancelled.set()
            # So that nothing of the old turn comes after what is sent next. Its waits end with the event, its sends
            # when the client reads or the connection is cut.
            self._thread.join()
            self._thread = None

    def _fall_silent(self) -> None:
        if self._speaking:
            self._speaking = False
            self._line.tell("bot-stopped-speaking")

    def _turn(self, reply: str, utterance: Utterance | None, *, aloud: bool) -> Iterator[Step]:
        rate, words = self._settled_rate(), words_of(reply)
        speech: Speech | None = None
        if aloud and utterance is not None and self._options.echo:
            speech = echo(utterance, words, rate)
        elif aloud:
            speech = tones(words, rate)
        yield from bot_turn(reply, speech, first_segment_id=next(self._segment_ids), generation=self._line.generation)

    def _speech(self, text: str) -> Iterator[Step]:
        speech = tones(words_of(text), self._settled_rate())
        yield from bot_speech(text, speech, first_segment_id=next(self._segment_ids), generation=self._line.generation)

    def _settled_rate(self) -> int:
        """A bot has one rate: it is settled when it first speaks."""
        self._rate = self._rate or self._heard_rate or _TONES_HZ
        return self._rate

    def _play(self, script: Iterator[Step], cancelled: threading.Event) -> None:
        """Send a turn at its pace; the body of the turn's own thread."""
        began = time.monotonic()
        with contextlib.suppress(DisconnectedError):
            for due, item in script:
                if cancelled.wait(max(0.0, began + due - time.monotonic())):
                    return
                if isinstance(item, AudioRawFrame):
                    self._session.send_frame(item)
                    continue
                if item["type"] in ("bot-started-speaking", "bot-stopped-speaking"):
                    self._speaking = item["type"] == "bot-started-speaking"
                self._line.send(item)
