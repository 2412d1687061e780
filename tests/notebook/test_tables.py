"""The tables of a conversation, and a turn: as text, and as HTML with players."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from IPython.core.formatters import DisplayFormatter

from rtvi_sync import TimelineEntry, Turn, TurnAudio, TurnTimings
from rtvi_sync.notebook.tables import Latencies, TurnPlayers, Voices

pytestmark = pytest.mark.inside


class Player:
    """An `IPython.display.Audio` that only says which it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _repr_html_(self) -> str:
        return f"<audio>{self._name}</audio>"


def turn(number: int | None, user: int, bot: int) -> TurnPlayers:
    """Make a turn with `user` and `bot` players on its sides."""
    players: dict[str, Any] = {
        side: tuple(Player(f"{side}{index}") for index in range(count))
        for side, count in (("user", user), ("bot", bot))
    }
    return TurnPlayers(number=number, user_seconds=float(user), bot_seconds=float(bot), **players)


def test_voices() -> None:
    """A row has a turn's number and both sides; a side may have no player, or several."""
    voices = Voices((turn(None, 0, 1), turn(1, 1, 2)))
    lines = repr(voices).splitlines()
    assert [line.split() for line in lines[-2:]] == [["-", "0.0", "s", "1.0", "s"], ["1", "1.0", "s", "2.0", "s"]]
    html = voices._repr_html_()
    assert html.count("<audio>") == 4
    assert "<audio>bot0</audio><audio>bot1</audio>" in html


def test_one_turn_is_a_table_of_one_row() -> None:
    """A cell may end with the audio of a turn."""
    assert turn(3, 1, 0)._repr_html_() == Voices((turn(3, 1, 0),))._repr_html_()


def test_latencies() -> None:
    """Turns are numbered from the first that is measured; a question's markup is text."""
    timings = TurnTimings(user_stopped=1.0, transcribed=1.1)
    question = Turn(number=9, session=1, initiator="user", modality="audio", user_text="<b>Hi</b>", timings=timings)
    latencies = Latencies((question, attrs.evolve(question, timings=TurnTimings())), first=4)
    text, html = repr(latencies), latencies._repr_html_()
    assert "100" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1] in ("4", "5")] == ["4", "5"]
    assert "<td>&lt;b&gt;Hi&lt;/b&gt;</td>" in html


def test_a_turn() -> None:
    """A cell shows a turn's steps and latency, its words as text, and a player for each side that was heard."""
    turn = Turn(
        number=1,
        session=1,
        initiator="user",
        modality="text",
        timeline=(TimelineEntry(1.0, "you", "typed", "<b>Hi</b>"), TimelineEntry(2.0, "bot", "silent")),
        timings=TurnTimings(user_stopped=1.0, first_audio=1.5),
        audio=TurnAudio(pcm=bytes(320), sample_rate_hz=16_000),
    )
    html = DisplayFormatter().format(turn)[0]["text/html"]
    assert "&quot;&lt;b&gt;Hi&lt;/b&gt;&quot; (typed)" in html
    assert "first audio after 0.50 s" in html
    assert (html.count("<audio"), "<div>bot <audio" in html) == (1, True)
    assert "<audio" not in DisplayFormatter().format(attrs.evolve(turn, audio=TurnAudio()))[0]["text/html"]
