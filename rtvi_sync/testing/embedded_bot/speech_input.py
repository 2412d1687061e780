"""Speech input of the embedded bot: turns the user's audio, from frames and messages, into transcripts."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.testing.embedded_bot.audio import SpeechContinues, SpeechDetector, SpeechEvent, SpeechStarted
from rtvi_sync.testing.embedded_bot.messages import Message, MessageHandler, Messenger, field
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.reply import LLMContext
from rtvi_sync.testing.embedded_bot.reply_script import words_of
from rtvi_sync.testing.embedded_bot.session import BotSession

_USER: Final = "user-1"
# The pace of interim transcripts while the user is still speaking.
_SECONDS_PER_WORD: Final = 0.35


class SpeechInput:
    """The speech input of one user, on the session's thread.

    Args:
        session: Session, closed if audio arrives that makes real bots fail.
        messenger: Sender of the transcripts.
        reply_player: Player that the user's speech interrupts, and that replies afterwards.
        context: Receiver of the transcripts.
        options: Options of the bot.
    """

    def __init__(
        self,
        session: BotSession,
        messenger: Messenger,
        reply_player: ReplyPlayer,
        context: LLMContext,
        options: BotOptions,
    ) -> None:
        self._session = session
        self._messenger = messenger
        self._reply_player = reply_player
        self._context = context
        self._options = options
        self._detector = SpeechDetector(threshold=options.speech_threshold, hangover=options.hangover)
        self._user_turns = itertools.count()
        self._user_turn = 0
        self._interims = 0

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Handlers by type of message, because audio may arrive in messages, too."""
        return {"raw-audio": self._raw_audio, "raw-audio-batch": self._raw_audio}

    @property
    def silence_timeout(self) -> float | None:
        """Seconds without audio that end the user's utterance; None while the user is silent."""
        # A client that stops sending ends its utterance, like one that sends silence. The limit is twice the hangover,
        # because late audio is not silence.
        return 2 * self._options.hangover if self._detector.speaking else None

    def end_speech(self) -> None:
        """End the utterance, after `silence_timeout` without audio."""
        self._handle_speech_event(self._detector.end())

    def feed(self, frame: AudioRawFrame) -> None:
        """Process a frame of the user's audio."""
        if frame.num_channels == 0:
            self._session.close()
        elif frame.sample_rate == 0:
            self._messenger.send_error("Error processing frame: Sample rate should be over 0")
        elif len(frame.audio) % 2 == 0:
            self._reply_player.set_input_rate(frame.sample_rate)
            for heard in self._detector.feed(frame.audio, frame.sample_rate):
                self._handle_speech_event(heard)

    def transcribe(self, text: str, *, final: bool) -> None:
        """Send a transcript to the client."""
        timestamp = now()
        data = {"text": text, "user_id": _USER, "timestamp": timestamp, "final": final}
        self._messenger.emit("user-input", {"input_type": "transcription", **data})
        self._messenger.emit("user-transcription", data)

    def _raw_audio(self, received: Message) -> None:
        data: Mapping[str, Any] = received.get("data") or {}
        parts = data.get("base64AudioBatch") or [field(data, "base64Audio", str)]
        rate, channels = field(data, "sampleRate", int), field(data, "numChannels", int)
        for part in parts:
            self.feed(AudioRawFrame(audio=base64.b64decode(part), sample_rate=rate, num_channels=channels))

    def _handle_speech_event(self, heard: SpeechEvent) -> None:
        if isinstance(heard, SpeechStarted):
            self._user_turn, self._interims = next(self._user_turns), 0
            self._reply_player.stop()  # nothing of the reply may follow the next message
            self._messenger.emit("user-started-speaking")
            self._reply_player.interrupt(typed=False)
        elif isinstance(heard, SpeechContinues):
            self._interim(heard.duration)
        else:
            # Bots of 0.3 report the end of the user's speech before its transcript, later ones after it.
            if self._messenger.bot_version.generation == 0:
                self._messenger.emit("user-stopped-speaking")
            if not self._interims:
                self._interim(heard.duration)
            text = self._transcript() or f"({heard.duration:.1f} s of speech)"
            self.transcribe(text, final=True)
            self._context.add("user", text)
            self._reply_player.respond(heard)

    def _transcript(self) -> str:
        texts = self._options.transcripts
        return texts[self._user_turn % len(texts)] if texts else ""

    def _interim(self, duration: float) -> None:
        words = words_of(self._transcript())
        shown = " ".join(words[: max(1, min(len(words) - 1, int(duration / _SECONDS_PER_WORD)))])
        self.transcribe(shown or f"({duration:.1f} s of speech)", final=False)
        self._interims += 1


def now() -> str:
    """Return the current time in the bots' format: ISO 8601 in UTC, with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
