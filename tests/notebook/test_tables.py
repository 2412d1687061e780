"""The tables of a conversation: as text, and as HTML with players."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.notebook.tables import Latencies, TurnPlayers, Voices
from rtvi_sync.recording.latency import Latency

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
    """Turns are numbered from the first that is measured; unknown values are dashes."""
    latencies = Latencies((Latency(transcript=0.1, text=0.2, audio=0.3), Latency()), first=4)
    text, html = repr(latencies), latencies._repr_html_()
    assert "100" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1] in ("4", "5")] == ["4", "5"]
    assert "<td" in html
