"""The timeline, the audio and the latencies of a conversation, as a notebook shows them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import attrs

from rtvi_sync.conversation.turn import timeline_of
from rtvi_sync.recording import latency
from rtvi_sync.recording.page import render
from rtvi_sync.recording.page.data import turns_data

from .page import frame_html, table_html, table_text

if TYPE_CHECKING:
    from IPython.display import Audio

    from rtvi_sync import Turn


@attrs.frozen
class Timeline:
    """The words and called functions of the turns, in time. A notebook shows the page of a recording and a table.

    Attributes:
        turns: The turns, in order.
    """

    turns: tuple[Turn, ...]

    def __repr__(self) -> str:
        return "\n".join(map(timeline_of, self.turns)) or "There was no turn."

    def _repr_html_(self) -> str:
        return frame_html("Timeline of the conversation", render("Timeline", turns_data(self.turns)))


@attrs.frozen(kw_only=True)
class TurnPlayers:
    """The audio of one turn. A notebook shows it with players.

    Attributes:
        number: The turn's number, from 1; None: the bot spoke first.
        user, bot: `IPython.display.Audio` objects, each with a WAV file in `.data`. Empty without audio; several if the
            sample rate changed.
        user_seconds, bot_seconds: The duration of each side.
    """

    number: int | None
    user: tuple[Audio, ...] = attrs.field(repr=False)
    bot: tuple[Audio, ...] = attrs.field(repr=False)
    user_seconds: float
    bot_seconds: float

    def _repr_html_(self) -> str:
        return Voices((self,))._repr_html_()


@attrs.frozen
class Voices:
    """The audio of each turn. A notebook shows it as a table of players, and stores the audio.

    Attributes:
        turns: The turns, in order.
    """

    turns: tuple[TurnPlayers, ...]

    def __repr__(self) -> str:
        rows = [(_number(turn), f"{turn.user_seconds:.1f} s", f"{turn.bot_seconds:.1f} s") for turn in self.turns]
        return table_text("", ("turn", "you", "bot"), rows)

    def _repr_html_(self) -> str:
        rows = [(_number(turn), _players(turn.user), _players(turn.bot)) for turn in self.turns]
        return table_html("", ("turn", "you", "bot"), rows)


@attrs.frozen
class Latencies:
    """The bot's latencies. A notebook shows them as a table in milliseconds.

    Attributes:
        turns: The user's turns, in order. Their `transcription`, `time_to_first_token` and `time_to_first_audio` are
            the columns, in seconds.
        first: The number of the first of these turns.
    """

    turns: tuple[Turn, ...]
    first: int = 1

    def __repr__(self) -> str:
        return table_text(latency.TITLE, latency.HEADERS, latency.as_rows(self.turns, self.first), latency.TEXTS)

    def _repr_html_(self) -> str:
        rows = [tuple(map(html.escape, row)) for row in latency.as_rows(self.turns, self.first)]
        return table_html(latency.TITLE, latency.HEADERS, rows)


def _number(turn: TurnPlayers) -> str:
    return "-" if turn.number is None else str(turn.number)


def _players(audio: tuple[Audio, ...]) -> str:
    return "".join(player._repr_html_() for player in audio)
