"""rtvi_sync as its users have it: handlers on queues, typed payloads, sources and sinks. Three doors for events."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

from rtvi_sync import RTVIClient, WebSocketTransport

from ..server_frames import SAMPLE_RATE_HZ
from .base import LIMIT, Pace, Peer, Recording

if TYPE_CHECKING:
    from rtvi_sync import Event, RTVIEvent, Transport
    from rtvi_sync.media import AudioSink, AudioSource


class Ours(Peer):
    """Events through `client.on`.

    As in an application, modules that a session does not need are not imported.
    """

    package = "rtvi_sync"
    _pace: Pace | None = None

    def connect(self, timeout: float = LIMIT) -> None:
        self._sink, self._source = self._new_sink(), self._new_source()
        self._transport = WebSocketTransport(self.url)
        self._client = RTVIClient(
            transport=self._transport,
            enable_mic=self.talking,
            mic=self._source,
            speaker=self._sink,
            connect_timeout=timeout,
            max_queued_events=1_000_000,  # a burst may be ahead of its handler by more than the usual limit
        )
        self._listen()
        self._client.connect()
        if self.talking and self.on_audio is not None:
            self._pace = Pace(self._source.push)  # type: ignore[union-attr]

    @staticmethod
    def transport_to_bot(url: str, query: str = "") -> Transport:
        """Return a transport to a bot of Pipecat's runner at this URL; for the scenarios of WebRTC."""
        return WebSocketTransport(f"{url.replace('http', 'ws', 1)}/ws-client{query}")

    def _new_sink(self) -> AudioSink | Literal[False]:
        if not (self.on_audio or self.hearing or self.talking):
            return False
        from rtvi_sync.media import BytesSink, CallbackSink, NullSink

        if self.on_audio is not None:
            on_audio = self.on_audio
            return CallbackSink(lambda pcm, _: on_audio(pcm))
        return BytesSink() if self.hearing else NullSink()

    def _new_source(self) -> AudioSource | Literal[False]:
        if not self.talking:
            return False
        from rtvi_sync.media import PushSource, ToneSource

        return PushSource(SAMPLE_RATE_HZ) if self.on_audio else ToneSource(sample_rate_hz=SAMPLE_RATE_HZ)

    def _listen(self) -> None:
        on_event = self.on_event
        self._client.on("user-transcription", lambda said: on_event(said.timestamp))
        if self.talking:  # a session as a program has it, that listens to all that is said and done
            from rtvi_sync import RTVIEvent

            for event in RTVIEvent:
                # Levels have to be computed, devices to be looked for, and the audio of turns to be kept, which the
                # peers do not do.
                if not event.snake.endswith(("_audio_level", "s_updated")) and not event.snake.startswith("turn_"):
                    self._client.on(event, _listen)

    def request(self, command: str, data: Any = None, timeout: float = LIMIT) -> Any:
        return self._client.send_client_request(command, data, timeout)

    def ask(self, text: str) -> str:
        return self._client.ask(text, LIMIT).bot_text or ""

    def record(self, path: str) -> Recording:
        return self._client.record(path)

    def send_audio(self, pcm: bytes) -> None:
        self._transport.send_audio(pcm, SAMPLE_RATE_HZ)

    @property
    def heard_bytes(self) -> int:
        return len(self._sink.pcm)  # type: ignore[union-attr]

    def close(self) -> None:
        if self._pace is not None:
            self._pace.stop()
        self._client.disconnect()


def _of_a_turn() -> tuple[RTVIEvent, ...]:
    """Return the events that report the texts of both sides, the spoken words, functions, errors and the end."""
    from rtvi_sync import RTVIEvent

    return (
        RTVIEvent.USER_LLM_TEXT,
        RTVIEvent.BOT_INTERRUPTED,
        RTVIEvent.BOT_LLM_STARTED,
        RTVIEvent.BOT_LLM_TEXT,
        RTVIEvent.BOT_LLM_STOPPED,
        RTVIEvent.BOT_OUTPUT,
        RTVIEvent.BOT_TTS_TEXT,
        RTVIEvent.BOT_STARTED_SPEAKING,
        RTVIEvent.BOT_STOPPED_SPEAKING,
        RTVIEvent.LLM_FUNCTION_CALL_STOPPED,
        RTVIEvent.ERROR,
    )


def _listen(_: object) -> None:
    pass


class OursBySignal(Ours):
    """Events through a signal."""

    def _listen(self) -> None:
        from rtvi_sync import signals

        signals.user_transcription.connect(self._receive, sender=self._client)

    def _receive(self, _: RTVIClient, event: Event) -> None:
        self.on_event(event.data.timestamp)


class OursByEvents(Ours):
    """Events through `client.events()`, on a thread that iterates."""

    def _listen(self) -> None:
        self._stream = self._client.events("user-transcription")
        self._thread = threading.Thread(target=self._iterate, daemon=True)
        self._thread.start()

    def _iterate(self) -> None:
        with self._stream as events:
            for event in events:
                self.on_event(event.data.timestamp)

    def ask(self, text: str) -> str:
        """Collect as much of a turn as `ask()` does, as an application without `ask()` would."""
        from rtvi_sync import RTVIEvent

        written = []
        with self._client.events(*_of_a_turn(), timeout=LIMIT) as events:
            self._client.send_text(text)
            for event in events:
                if event.type is RTVIEvent.BOT_LLM_TEXT:
                    written.append(event.data.text)
                elif event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
                    break
        return "".join(written)

    def close(self) -> None:
        super().close()
        self._thread.join()
