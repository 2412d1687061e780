"""A conversation in a notebook: its live transcript, its audio and the bot's latencies.

    talk = Conversation(client)  # before client.connect()
    talk                         # the transcript, updated in this cell while other cells run
    talk.audio                   # players for both sides of each turn
    talk.latency                 # a table

This module needs the extra `notebook`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rtvi_sync import CloseInfo, Event, MissingExtraError, RTVIClient, RTVIEvent, signals
from rtvi_sync.protocol.validation import SECONDS, instance_of
from rtvi_sync.recording.recorder import Recorder

from .audio import Clip, ConversationAudio
from .live import LiveOutput
from .page import transcript_html, transcript_text
from .tables import Latencies, TurnAudio, Voices
from .turns import TURN_EVENTS, Turn, Turns

__all__ = ["Conversation", "Latencies", "TurnAudio", "Voices"]


class Conversation:
    """The conversation of a client, over all its sessions, for as long as the client exists.

    As the last line of a cell, or passed to `display()`, it shows the transcript, which changes in place as events
    arrive: interim words, and what the bot has not spoken yet, are faint. Elsewhere it is the transcript as text.

    Create it before the client connects, on any thread; if a session is already live, it follows from then on. It never
    blocks the client, and does not keep it alive.

    Args:
        client: the client to follow; with `events="manual"` the transcript is updated inside `process_events()`.
        keep: seconds of audio to keep on each side: of this session, and as much again of those before. One minute
            of both sides takes about 6 MB.

    Raises:
        MissingExtraError: IPython is not installed.
    """

    def __init__(self, client: RTVIClient, *, keep: float = 600.0) -> None:
        instance_of("an RTVIClient", RTVIClient).check(client=client)
        SECONDS.check(keep=keep)
        try:
            import IPython.display
        except ModuleNotFoundError as error:
            raise MissingExtraError("rtvi_sync.notebook", "notebook") from error
        self._make_player = IPython.display.Audio
        self._recorder = Recorder(keep)
        # Guards `_turns` and `_status`. Any thread may hold it, to apply an event or to copy the turns.
        self._lock = threading.Lock()
        self._turns = Turns()
        self._status = client.state.value
        self._output = LiveOutput(self._render)
        signals.transport_state_changed.connect(self._on_state_changed, sender=client)
        signals.connected.connect(self._on_connected, sender=client)
        signals.error.connect(self._on_error, sender=client)
        signals.reconnecting.connect(self._on_reconnecting, sender=client)
        signals.reconnect_failed.connect(self._on_reconnect_failed, sender=client)
        for event in TURN_EVENTS:
            getattr(signals, event.snake).connect(self._on_turn_event, sender=client)
        # Signals hold their receivers weakly. This handler keeps the conversation alive as long as its client, even if
        # no variable of the notebook refers to it.
        client.on(RTVIEvent.DISCONNECTED, self._on_disconnected)
        if client.connected:
            self._recorder.attach(client.tracks())

    @property
    def audio(self) -> Voices:
        """The audio of both sides in each turn so far, with players."""
        turns, audio = self._audio()
        return Voices(
            tuple(
                self._turn_audio(turn, audio.user_clips(index), audio.bot_clips(index))
                for index, turn in enumerate(turns)
            )
        )

    @property
    def latency(self) -> Latencies:
        """The bot's latencies in each turn so far."""
        turns, audio = self._audio()
        first = next((turn.number for turn in turns if turn.number is not None), 1)
        return Latencies(tuple(audio.latencies()), first)

    def __repr__(self) -> str:
        return transcript_text(*self._state())

    def _ipython_display_(self) -> None:
        self._output.show()

    # -- handler thread -----------------------------------------------------------------------------------------------

    def _on_connected(self, client: RTVIClient, _event: Event) -> None:
        self._recorder.attach(client.tracks())

    def _on_turn_event(self, _client: RTVIClient, event: Event) -> None:
        with self._lock:
            self._turns.update(event)
        self._output.notify_changed()

    def _on_state_changed(self, _client: RTVIClient, event: Event) -> None:
        self._set_status(event.data.value)

    def _on_error(self, _client: RTVIClient, event: Event) -> None:
        self._set_status(f"The bot reports an error: {event.data.message}")

    def _on_reconnecting(self, _client: RTVIClient, event: Event) -> None:
        self._set_status(f"{event.data.error}: {event.data.describe()}")

    def _on_reconnect_failed(self, _client: RTVIClient, event: Event) -> None:
        self._set_status(f"Reconnecting has failed: {event.data.error}")

    def _on_disconnected(self, info: CloseInfo) -> None:
        with self._lock:
            self._turns.end_session()
        self._set_status(info.describe())
        self._output.flush()  # so that after disconnect() no update is pending and no thread publishes

    def _set_status(self, status: str) -> None:
        with self._lock:
            self._status = status
        self._output.notify_changed()

    # -- any thread ---------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[tuple[Turn, ...], str]:
        with self._lock:
            return self._turns.snapshot(), self._status

    def _render(self) -> dict[str, str]:
        turns, status = self._state()
        return {"text/plain": transcript_text(turns, status), "text/html": transcript_html(turns, status)}

    def _audio(self) -> tuple[tuple[Turn, ...], ConversationAudio]:
        with self._lock:
            turns, interruptions = self._turns.snapshot(), tuple(self._turns.interruptions)
        return turns, ConversationAudio(turns, *self._recorder.frames(), interruptions)

    def _turn_audio(self, turn: Turn, user: Sequence[Clip], bot: Sequence[Clip]) -> TurnAudio:
        return TurnAudio(
            number=turn.number,
            user=tuple(self._make_player(data=clip.wav()) for clip in user),
            bot=tuple(self._make_player(data=clip.wav()) for clip in bot),
            user_seconds=sum(clip.seconds for clip in user),
            bot_seconds=sum(clip.seconds for clip in bot),
        )
