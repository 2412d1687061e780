"""Playback of the bot's replies, on one thread while the bot speaks."""

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
from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.messenger import Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.script import Step, bot_speech, bot_turn, words_of
from rtvi_sync.testing.embedded_bot.session import BotSession
from rtvi_sync.testing.embedded_bot.tones import ReplyAudio, echo, tones
from rtvi_sync.testing.embedded_bot.vad import Utterance

_TONES_HZ: Final = 24000


class ReplyPlayer:
    """A player of the bot's replies in one session, one at a time. Any thread may call it.

    Args:
        session: sends the audio.
        messenger: sends the messages.
        context: the conversation that the bot replies to.
        options: of the bot.
    """

    def __init__(self, session: BotSession, messenger: Messenger, context: LLMContext, options: BotOptions) -> None:
        self._session = session
        self._messenger = messenger
        self._context = context
        self._options = options
        self._segment_ids = itertools.count(1, 100)
        self._output_rate = options.audio_out_sample_rate_hz
        self._input_rate: int | None = None
        # Lets one reply begin or end at a time. Held by the threads of the session and of its actions until the reply
        # that they stop has ended; the thread of a reply does not take it.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._speaking = False

    def set_input_rate(self, sample_rate: int) -> None:
        """Note the rate of the user's audio. The first one becomes the bot's, unless the bot has a rate by then."""
        self._input_rate = self._input_rate or sample_rate

    def interrupt(self) -> None:
        """Stop the current reply and report the interruption; like real bots, also if the bot was silent."""
        with self._lock:
            self._stop()
            # Bots got the interruption frame in the same version as the message.
            if self._messenger.bot_version.sends("bot-interrupted"):
                self._session.send_frame(InterruptionFrame())
                self._messenger.emit("bot-interrupted")
            self._emit_stopped_speaking()

    def stop_speaking(self) -> None:
        """Stop the current reply; report only the end of the speech."""
        with self._lock:
            self._stop()
            self._emit_stopped_speaking()

    def stop(self) -> None:
        """Stop the current reply without a message."""
        with self._lock:
            self._stop()

    def respond(self, utterance: Utterance | None = None, *, spoken: bool = True) -> None:
        """Run the language model on the context and play its reply.

        Args:
            utterance: the audio of the user's last message, if it was spoken.
            spoken: False: the reply is text only.
        """
        said, reply = self._context.run()
        self._begin(self._turn(reply, utterance, spoken=spoken), heard=said)

    def say(self, text: str) -> None:
        """Speak a text that is not from the language model."""
        self._begin(self._speech(text), heard=None)

    def _begin(self, script: Iterator[Step], *, heard: str | None) -> None:
        with self._lock:
            self._stop()
            if heard is not None:
                self._messenger.emit("user-llm-text", {"text": heard})
            self._cancelled = threading.Event()
            self._thread = start_thread("bot-turn", self._play, script, self._cancelled)

    def _stop(self) -> None:
        if self._thread is not None:
            self._cancelled.set()
            # The join ensures that nothing of the old reply follows the next message. The thread's waits end with the
            # event, its sends when the client reads or the connection is cut.
            self._thread.join()
            self._thread = None

    def _emit_stopped_speaking(self) -> None:
        if self._speaking:
            self._speaking = False
            self._messenger.emit("bot-stopped-speaking")

    def _turn(self, reply: str, utterance: Utterance | None, *, spoken: bool) -> Iterator[Step]:
        rate, words = self._choose_output_rate(), words_of(reply)
        speech: ReplyAudio | None = None
        route = self._session.eval_route
        spoken = spoken and not (route is not None and route.flags.get("skip_tts"))
        if spoken and utterance is not None and self._options.echo:
            speech = echo(utterance, words, rate)
        elif spoken:
            speech = tones(words, rate)
        yield from bot_turn(
            reply, speech, first_segment_id=next(self._segment_ids), generation=self._messenger.generation
        )

    def _speech(self, text: str) -> Iterator[Step]:
        speech = tones(words_of(text), self._choose_output_rate())
        yield from bot_speech(
            text, speech, first_segment_id=next(self._segment_ids), generation=self._messenger.generation
        )

    def _choose_output_rate(self) -> int:
        """Return the bot's rate, which is chosen when it first speaks and then stays."""
        self._output_rate = self._output_rate or self._input_rate or _TONES_HZ
        return self._output_rate

    def _play(self, script: Iterator[Step], cancelled: threading.Event) -> None:
        """Send a reply in real time; runs on the reply's own thread."""
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
                self._messenger.send(item)
