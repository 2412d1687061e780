"""A conversation in a notebook: its transcript, live, its voices, and how fast the bot was.

    talk = Conversation(client)  # before client.connect()
    talk                         # the transcript; goes on in this cell whatever runs in others
    talk.audio                   # players for what both said in each turn
    talk.latency                 # a table

It needs the extra `notebook`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rtvi_sync import CloseInfo, Event, MissingExtraError, RTVIClient, RTVIEvent, signals
from rtvi_sync.protocol.validation import SECONDS, instance_of
from rtvi_sync.recording.recorder import Recorder

from .live import LiveOutput
from .page import transcript_html, transcript_text
from .sound import Clip, Sound
from .tables import Latencies, TurnAudio, Voices
from .turns import SIGNS, Turn, Turns

__all__ = ["Conversation", "Latencies", "TurnAudio", "Voices"]


class Conversation:
    """Follows a client, session after session, for as long as the client is there.

    As the last line of a cell, or given to `display()`, it shows the transcript, which changes in place while events
    come: interim words, and what the bot has not spoken yet, are faint. Elsewhere it is the transcript as text.

    Make it before the client connects, on any thread; of a session that goes on already it follows what comes. It never
    holds up the client, and does not keep it alive.

    Args:
        client: of the conversation; with `events="manual"` the transcript follows inside `process_events()`.
        keep: seconds of audio that are kept on each side: of this session, and as much again of those before. A minute
            of both takes about 6 MB.

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
        self._player = IPython.display.Audio
        self._recorder = Recorder(keep)
        # Guards `_turns` and `_status`. Any thread may hold it, to take in an event or to copy the turns.
        self._lock = threading.Lock()
        self._turns = Turns()
        self._status = client.state.value
        self._output = LiveOutput(self._render)
        signals.transport_state_changed.connect(self._state_changed, sender=client)
        signals.connected.connect(self._connected, sender=client)
        signals.error.connect(self._bot_failed, sender=client)
        signals.reconnecting.connect(self._reconnecting, sender=client)
        signals.reconnect_failed.connect(self._reconnect_failed, sender=client)
        for event in SIGNS:
            getattr(signals, event.snake).connect(self._heard, sender=client)
        # Signals hold their receivers weakly. This handler makes the conversation live as long as its client, whether
        # or not a notebook keeps it in a variable.
        client.on(RTVIEvent.DISCONNECTED, self._disconnected)
        if client.connected:
            self._recorder.attach(client.tracks())

    @property
    def audio(self) -> Voices:
        """What both sides said in each turn so far, to be played."""
        turns, sound = self._sound()
        return Voices(
            tuple(self._turn_audio(turn, sound.of_user(index), sound.of_bot(index)) for index, turn in enumerate(turns))
        )

    @property
    def latency(self) -> Latencies:
        """How fast the bot reacted in each turn so far."""
        turns, sound = self._sound()
        first = next((turn.number for turn in turns if turn.number is not None), 1)
        return Latencies(tuple(sound.latencies()), first)

    def __repr__(self) -> str:
        return transcript_text(*self._state())

    def _ipython_display_(self) -> None:
        self._output.show()

    # -- on the thread of the client's handlers -----------------------------------------------------------------------

    def _connected(self, client: RTVIClient, _event: Event) -> None:
        self._recorder.attach(client.tracks())

    def _heard(self, _client: RTVIClient, event: Event) -> None:
        with self._lock:
            self._turns.take(event)
        self._output.changed()

    def _state_changed(self, _client: RTVIClient, event: Event) -> None:
        self._tell(event.data.value)

    def _bot_failed(self, _client: RTVIClient, event: Event) -> None:
        self._tell(f"The bot reports an error: {event.data.message}")

    def _reconnecting(self, _client: RTVIClient, event: Event) -> None:
        self._tell(f"{event.data.error}: {event.data.describe()}")

    def _reconnect_failed(self, _client: RTVIClient, event: Event) -> None:
        self._tell(f"Reconnecting has failed: {event.data.error}")

    def _disconnected(self, info: CloseInfo) -> None:
        with self._lock:
            self._turns.end_session()
        self._tell(info.describe())
        self._output.flush()  # so that disconnect() leaves nothing to be shown, and no thread that shows it

    def _tell(self, status: str) -> None:
        with self._lock:
            self._status = status
        self._output.changed()

    # -- on any thread ------------------------------------------------------------------------------------------------

    def _state(self) -> tuple[tuple[Turn, ...], str]:
        with self._lock:
            return self._turns.snapshot(), self._status

    def _render(self) -> dict[str, str]:
        turns, status = self._state()
        return {"text/plain": transcript_text(turns, status), "text/html": transcript_html(turns, status)}

    def _sound(self) -> tuple[tuple[Turn, ...], Sound]:
        with self._lock:
            turns, interruptions = self._turns.snapshot(), tuple(self._turns.interruptions)
        return turns, Sound(turns, *self._recorder.frames(), interruptions)

    def _turn_audio(self, turn: Turn, user: Sequence[Clip], bot: Sequence[Clip]) -> TurnAudio:
        return TurnAudio(
            number=turn.number,
            user=tuple(self._player(data=clip.wav()) for clip in user),
            bot=tuple(self._player(data=clip.wav()) for clip in bot),
            user_seconds=sum(clip.seconds for clip in user),
            bot_seconds=sum(clip.seconds for clip in bot),
        )
