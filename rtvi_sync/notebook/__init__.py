"""A conversation in a notebook: its live transcript, timeline and audio, and the bot's latencies.

    talk = Conversation(client)  # before client.connect()
    talk                         # the transcript, updated in this cell while other cells run
    talk.timeline                # each speaker's words in time, and the called functions
    talk.audio                   # players for both sides of each turn
    talk.latency                 # a table

This module needs the extra `notebook`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rtvi_sync import CloseInfo, Event, MissingExtraError, RTVIClient, RTVIEvent, Turn, signals
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.media.turn_audio import TurnAudio
from rtvi_sync.protocol.validation import SECONDS, instance_of
from rtvi_sync.recording.transcript import EVENTS

from .live import LiveOutput
from .page import transcript_html, transcript_text
from .tables import Latencies, Timeline, TurnPlayers, Voices

if TYPE_CHECKING:
    from IPython.display import Audio

__all__ = ["Conversation", "Latencies", "Timeline", "TurnPlayers", "Voices"]


class Conversation:
    """The conversation of a client, over all its sessions, for as long as the client exists.

    As the last line of a cell, or passed to `display()`, it shows the transcript, which changes in place as events
    arrive. Interim words, and words that the bot has not spoken yet, are faint. Elsewhere it is the transcript as text.

    Create it before the client connects, on any thread. If a session is already live, it also shows the turns before,
    but they may lack audio. It never blocks the client, and does not keep it alive.

    Args:
        client: The client to follow; with `events="manual"` the transcript is updated inside `process_events()`.
        keep (seconds): Audio to show on each side, from the latest turns. One minute of both sides takes about 6 MB.

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
        self._keep = keep
        self._client = weakref.ref(client)
        # Guards the field below. Any thread may hold it, to take the client's turns.
        self._lock = new_lock()
        # The latest turns, and the numbers of the user's, from 1, by the number among all turns, and how many there
        # were. One field, so that Ctrl-C cannot interrupt a change.
        self._taken: tuple[tuple[Turn, ...], dict[int, int], int] = (), {}, 0
        self._status = client.state.value
        self._output = LiveOutput(self._render)
        self._take_turns()  # the client follows them from now on, and ends them before `disconnected` is handled here
        signals.transport_state_changed.connect(self._on_state_changed, sender=client)
        signals.error.connect(self._on_error, sender=client)
        signals.reconnecting.connect(self._on_reconnecting, sender=client)
        signals.reconnect_failed.connect(self._on_reconnect_failed, sender=client)
        for event in EVENTS:
            getattr(signals, event.snake).connect(self._on_turn_event, sender=client)
        # Signals hold their receivers weakly. This handler keeps the conversation alive as long as its client, even if
        # no variable of the notebook refers to it.
        client.on(RTVIEvent.DISCONNECTED, self._on_disconnected)

    @property
    def timeline(self) -> Timeline:
        """The turns so far, in time: words, called functions, and the bot's response times."""
        turns, _ = self._take_turns()
        return Timeline(turns)

    @property
    def audio(self) -> Voices:
        """The audio of both sides in each turn that has ended, with players."""
        turns, numbers = self._take_turns()
        users = _latest([turn.user_audio for turn in turns], self._keep)
        bots = _latest([turn.audio for turn in turns], self._keep)
        return Voices(
            tuple(
                TurnPlayers(
                    number=numbers.get(turn.number),
                    user=self._players(user),
                    bot=self._players(bot),
                    user_seconds=user.seconds,
                    bot_seconds=bot.seconds,
                )
                for turn, user, bot in zip(turns, users, bots, strict=True)
            )
        )

    @property
    def latency(self) -> Latencies:
        """The user's turns so far, as a table of the bot's latencies."""
        turns, numbers = self._take_turns()
        return Latencies(tuple(turn for turn in turns if turn.number in numbers), min(numbers.values(), default=1))

    def __repr__(self) -> str:
        return self._render()["text/plain"]

    def _ipython_display_(self) -> None:
        self._output.show()

    # -- handler thread -----------------------------------------------------------------------------------------------

    def _on_turn_event(self, _client: RTVIClient, event: Event) -> None:
        if event.type is RTVIEvent.TURN_ENDED:
            self._take_turns()  # the client may be gone when they are shown
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
        self._set_status(info.describe())
        self._output.flush()  # so that after disconnect() no update is pending and no thread publishes

    def _set_status(self, status: str) -> None:
        self._status = status
        self._output.notify_changed()

    # -- any thread ---------------------------------------------------------------------------------------------------

    def _take_turns(self) -> tuple[tuple[Turn, ...], dict[int, int]]:
        """Return the latest turns, and the numbers of the user's."""
        client = self._client()
        with self._lock:
            turns, numbers, count = self._taken
            if client is not None:
                turns, before, numbers = client.turns(), numbers, {}
                for turn in turns:
                    if turn.initiator == "user":
                        count += turn.number not in before
                        numbers[turn.number] = before.get(turn.number, count)
                self._taken = turns, numbers, count
            return turns, numbers

    def _render(self) -> dict[str, str]:
        turns, _ = self._take_turns()
        return {"text/plain": transcript_text(turns, self._status), "text/html": transcript_html(turns, self._status)}

    def _players(self, audio: TurnAudio) -> tuple[Audio, ...]:
        return (self._make_player(data=audio.wav),) if audio else ()


def _latest(side: Sequence[TurnAudio], seconds: float) -> list[TurnAudio]:
    """Return the audio of the latest turns that fits into `seconds`. Earlier turns get empty audio."""
    kept: list[TurnAudio] = []
    for audio in reversed(side):
        seconds -= audio.seconds
        kept.append(audio if seconds >= 0 else TurnAudio())
    return kept[::-1]
