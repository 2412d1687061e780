"""How the embedded bot listens and answers: one object and one thread per client, and one more while the bot speaks."""

from __future__ import annotations

import base64
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from rtvi_sync._version import __version__
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError, ProtocolError
from rtvi_sync.protocol.frames import AudioRawFrame, InterruptionFrame, MessageFrame, TranscriptionFrame
from rtvi_sync.testing.hearing import Heard, SpeechDetector, SpeechGoesOn, SpeechStarted, Utterance
from rtvi_sync.testing.options import BotOptions
from rtvi_sync.testing.script import Message, Step, bot_turn, message, words_of
from rtvi_sync.testing.session import BotSession, parse
from rtvi_sync.testing.voice import Speech, echo, tones

logger = logging.getLogger(__name__)

_USER: Final = "user-1"
_TONES_HZ: Final = 24000
# How fast a scripted transcript comes out while the user is still speaking.
_SECONDS_PER_WORD: Final = 0.35
# Client messages that are accepted and cause no answer here.
_SILENT: Final = frozenset({"llm-function-call-result", "ui-event", "ui-snapshot", "ui-cancel-job-group", "dtmf"})


class InvalidMessageError(Exception):
    """The payload of a client's message is not what its type needs."""


class Conversation:
    """Speaks RTVI with one client as a bot of a real framework does.

    Args:
        session: the connection.
        options: of the bot.
    """

    def __init__(self, session: BotSession, options: BotOptions) -> None:
        self._session = session
        self._options = options
        self._detector = SpeechDetector(threshold=options.speech_threshold, hang_over=options.hang_over)
        self._legacy = _major(options.version) < 2
        self._user_turns = itertools.count()
        self._bot_turns = itertools.count()
        self._segment_ids = itertools.count(1, 100)
        self._interims = 0
        self._user_turn = 0
        self._rate = options.audio_out_sample_rate_hz
        self._heard_rate: int | None = None
        self._turn: threading.Thread | None = None
        self._turn_cancelled = threading.Event()
        self._speaking = False
        self._actions: dict[str, Callable[[Message], None]] = {
            "client-ready": self._client_ready,
            "client-message": self._client_message,
            "send-text": self._send_text,
            "send-file": self._send_file,
            "raw-audio": self._raw_audio,
            "raw-audio-batch": self._raw_audio,
            "disconnect-bot": lambda _: session.close(),
        }

    def run(self) -> None:
        """Serve the client. Called once, by the thread of the session.

        Raises:
            DisconnectedError: always, in the end: the connection has ended.
        """
        try:
            if self._options.metrics:
                zero = [{"processor": "EmbeddedBot#0", "value": 0.0}]
                self._session.send(message("metrics", {"ttfb": zero, "processing": zero}))
            while True:
                self._receive()
        finally:
            self._stop_turn()

    def _receive(self) -> None:
        try:
            # Who stops sending in the middle of a sentence has said it, like one who sends silence. Twice the time,
            # because what is late is not silence.
            frame = self._session.receive(2 * self._options.hang_over if self._detector.speaking else None)
        except TimeoutError:
            self._heard(self._detector.end())
            return
        except ProtocolError:
            self._session.close()
            return
        if isinstance(frame, AudioRawFrame):
            self._audio(frame)
        elif isinstance(frame, MessageFrame):
            self._message(parse(frame.data))
        elif isinstance(frame, TranscriptionFrame):
            self._transcribe(frame.text, final=True)

    # What the client sends

    def _audio(self, frame: AudioRawFrame) -> None:
        if frame.num_channels == 0:
            self._session.close()
        elif frame.sample_rate == 0:
            self._error("Error processing frame: Sample rate should be over 0")
        elif len(frame.audio) % 2 == 0:
            self._heard_rate = self._heard_rate or frame.sample_rate
            for heard in self._detector.hear(frame.audio, frame.sample_rate):
                self._heard(heard)

    def _message(self, received: Any) -> None:
        if not isinstance(received, dict):
            return
        self._session.keep(received)
        if received.get("label") != "rtvi-ai":
            return
        for name, kinds in (("type", str), ("id", str), ("data", dict | None)):
            if not isinstance(received.get(name), kinds):
                self._error(f"Invalid RTVI transport message: 1 validation error for Message\n{name}")
                return
        try:
            if self._options.handler is None or not self._options.handler(self._session, received):
                self._act(received)
        except DisconnectedError:
            raise
        except InvalidMessageError as error:
            self._refuse(received, f"Invalid message: {error}")
        except Exception as error:
            logger.exception("a message of type %r failed", received["type"])
            self._refuse(received, f"Exception processing message: {error}")

    def _act(self, received: Message) -> None:
        action = self._actions.get(received["type"])
        if action is not None:
            action(received)
        elif received["type"] not in _SILENT:
            self._refuse(received, f"Unsupported type {received['type']}")

    def _refuse(self, received: Message, error: str) -> None:
        self._session.send(message("error-response", {"error": error}, received["id"]))

    def _client_ready(self, received: Message) -> None:
        if not self._options.ready:
            return
        server = self._options.version
        version, warning = _negotiate(server, (received.get("data") or {}).get("version"))
        self._legacy = _major(version) < 2
        if warning:
            self._refuse(received, f"{warning} Compatibility issues may occur.")
        capabilities = {
            "audio_in": True,
            "audio_out": True,
            "video_in": False,
            "screen_in": False,
            "video_out": False,
            "metrics": self._options.metrics,
        }
        about = {"library": "rtvi_sync.testing", "library_version": __version__}
        data = {"version": version, "about": about, "capabilities": capabilities}
        self._session.send(message("bot-ready", data, received["id"]))

    def _client_message(self, received: Message) -> None:
        data = received.get("data") or {}
        kind = _field(data, "t", str)
        answer = self._options.on_request.get(kind, data.get("d"))
        if callable(answer):
            try:
                answer = answer(data.get("d"))
            except Exception as error:  # noqa: BLE001 - a script says by raising that the bot refuses
                self._refuse(received, str(error))
                return
        response = {"t": kind} if answer is None else {"t": kind, "d": answer}
        self._session.send(message("server-response", response, received["id"]))

    def _send_text(self, received: Message) -> None:
        data = received.get("data") or {}
        text, run, aloud = _field(data, "content", str), *_turn_options(data)
        if run:
            self._interrupt()
        chat = {"text": text, "input_type": "chat", "timestamp": _now(), "final": True, "msg_id": received["id"]}
        self._session.send(message("user-input", chat))
        if run:
            self._answer(text, None, aloud=aloud)

    def _send_file(self, received: Message) -> None:
        data = received.get("data") or {}
        _field(data, "file", dict)
        run, aloud = _turn_options(data)
        if run:
            self._interrupt()
            self._answer(str(data.get("content") or ""), None, aloud=aloud)

    def _raw_audio(self, received: Message) -> None:
        data = received.get("data") or {}
        parts = data.get("base64AudioBatch") or [_field(data, "base64Audio", str)]
        rate, channels = _field(data, "sampleRate", int), _field(data, "numChannels", int)
        for part in parts:
            self._audio(AudioRawFrame(audio=base64.b64decode(part), sample_rate=rate, num_channels=channels))

    # What the bot hears

    def _heard(self, heard: Heard) -> None:
        if isinstance(heard, SpeechStarted):
            self._user_turn, self._interims = next(self._user_turns), 0
            self._session.send(message("user-started-speaking"))
            self._interrupt()
        elif isinstance(heard, SpeechGoesOn):
            self._interim(heard.duration)
        else:
            if not self._interims:
                self._interim(heard.duration)
            text = self._transcript() or f"({heard.duration:.1f} s of speech)"
            self._transcribe(text, final=True)
            self._session.send(message("user-stopped-speaking"))
            self._answer(text, heard, aloud=True)

    def _transcript(self) -> str:
        texts = self._options.transcripts
        return texts[self._user_turn % len(texts)] if texts else ""

    def _interim(self, duration: float) -> None:
        words = words_of(self._transcript())
        shown = " ".join(words[: max(1, min(len(words) - 1, int(duration / _SECONDS_PER_WORD)))])
        self._transcribe(shown or f"({duration:.1f} s of speech)", final=False)
        self._interims += 1

    def _transcribe(self, text: str, *, final: bool) -> None:
        data = {"text": text, "user_id": _USER, "timestamp": _now(), "final": final}
        self._session.send(message("user-input", {"input_type": "transcription", **data}))
        self._session.send(message("user-transcription", data))

    # What the bot says

    def _interrupt(self) -> None:
        """Stop the turn under way. Like real bots it tells so in any case, also when it was silent."""
        self._stop_turn()
        self._session.send_frame(InterruptionFrame())
        self._session.send(message("bot-interrupted"))
        if self._speaking:
            self._speaking = False
            self._session.send(message("bot-stopped-speaking"))

    def _stop_turn(self) -> None:
        if self._turn is not None:
            self._turn_cancelled.set()
            # So that nothing of the old turn comes after what is sent next. Its waits end with the event, its sends
            # when the client reads or the connection is cut.
            self._turn.join()
            self._turn = None

    def _answer(self, text: str, utterance: Utterance | None, *, aloud: bool) -> None:
        self._stop_turn()
        self._turn_cancelled = threading.Event()
        self._session.send(message("user-llm-text", {"text": text}))
        reply = self._reply(text)
        self._turn = start_thread("bot-turn", self._play, self._script(reply, utterance, aloud), self._turn_cancelled)

    def _reply(self, text: str) -> str:
        replies, turn = self._options.replies, next(self._bot_turns)
        if callable(replies):
            return replies(text)
        return replies[turn % len(replies)] if replies else f"You said: {text}"

    def _script(self, reply: str, utterance: Utterance | None, aloud: bool) -> Iterator[Step]:
        speech: Speech | None = None
        # A bot has one rate: it is settled when it first speaks.
        self._rate = self._rate or self._heard_rate or _TONES_HZ
        if aloud and utterance is not None and self._options.echo:
            speech = echo(utterance, words_of(reply), self._rate)
        elif aloud:
            speech = tones(words_of(reply), self._rate)
        yield from bot_turn(reply, speech, first_segment_id=next(self._segment_ids), legacy=self._legacy)

    def _play(self, script: Iterator[Step], cancelled: threading.Event) -> None:
        """Send a turn at its pace; the body of the turn's own thread."""
        began = time.monotonic()
        try:
            for due, item in script:
                if cancelled.wait(max(0.0, began + due - time.monotonic())):
                    return
                if isinstance(item, AudioRawFrame):
                    self._session.send_frame(item)
                    continue
                if item["type"] in ("bot-started-speaking", "bot-stopped-speaking"):
                    self._speaking = item["type"] == "bot-started-speaking"
                self._session.send(item)
        except DisconnectedError:
            pass

    def _error(self, text: str) -> None:
        self._session.send(message("error", {"error": text, "fatal": False}))


def _negotiate(server: str, client: Any) -> tuple[str, str]:
    """The version for bot-ready, and what is wrong with the client's; "" if nothing."""
    if not isinstance(client, str) or not client:
        return server, "Client version unknown."
    parts = client.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return server, f"Invalid client version format ({client})."
    if _major(client) == _major(server):
        return server, ""
    if _major(client) == 1:
        return client, ""
    return server, f"RTVI version {client} is not compatible with server protocol {server}."


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _field(data: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(data.get(name), kind):
        raise InvalidMessageError(f"1 validation error\n{name}\n  Input should be a valid {kind.__name__}")
    return data[name]


def _turn_options(data: Mapping[str, Any]) -> tuple[bool, bool]:
    """`run_immediately` and `audio_response` of a client's text or file."""
    options = data.get("options") or {}
    return bool(options.get("run_immediately", True)), bool(options.get("audio_response", True))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
