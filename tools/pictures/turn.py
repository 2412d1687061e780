"""The timeline of a turn, drawn from a captured session: a spoken question, a function call, a spoken answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rtvi_sync.conversation.record import TimelineEntry
from tests.captures.logs import LOGS, rows_of
from tests.conversation.replay import Replay

from .drawing import BOT, EDGE, FAINT, PAPER, USER, WIDTH, WORK, Drawing

_LOG: Final = LOGS / "1.14.0" / "function-spoken.jsonl"
_LANES: Final = ("you", "model", "function", "bot")
_LEFT, _RIGHT, _TOP, _LANE, _BAR = 84, WIDTH - 20, 34, 46, 28  # pixels
_LEAST = 3  # pixels of a bar that is short in time


def draw() -> str:
    """Return the picture."""
    (turn,) = Replay().play(rows_of(_LOG))
    entries = turn.timeline
    start, end = entries[0].at, entries[-1].at
    at = {(entry.who, entry.kind): entry.at for entry in entries}
    text = {(entry.who, entry.kind): entry.text for entry in entries}
    drawing = Drawing(WIDTH, 268, "A turn in time: you speak, the model runs and calls a function, the bot speaks")

    def x(moment: float) -> float:
        return _LEFT + (moment - start) * (_RIGHT - _LEFT) / (end - start)

    def bar(lane: str, since: float, until: float, ink: str) -> None:
        top = _height(lane) - _BAR / 2
        drawing.box(x(since), top, max(_LEAST, x(until) - x(since)), _BAR, fill=ink, radius=3)

    for lane in _LANES:
        drawing.text(14, _height(lane), lane, bold=True)
        drawing.path(f"M{_LEFT} {_height(lane) + _LANE / 2:g}H{_RIGHT}", ink=EDGE)

    stopped, answered = at["you", "silent"], at["bot", "speaks"]
    bar("you", start, stopped, USER)
    drawing.text(x(start) + 12, _height("you"), f"\u201c{text['you', 'said']}\u201d", ink=PAPER)
    for since, until in _runs(entries):
        bar("model", since, until, WORK)
    called, returned = at["bot", "calls"], at["bot", "returned"]
    bar("function", called, returned, WORK)
    result = text["bot", "returned"].partition(" ")[2]
    for line, words in ((-9, text["bot", "calls"]), (9, f"\u2192 {result}")):
        drawing.text(x(called) - 8, _height("function") + line, words, anchor="end", size=13)
    bar("bot", answered, end, BOT)

    foot = _height("bot") + _LANE / 2
    for moment in (stopped, answered):
        drawing.path(f"M{x(moment):.1f} {_height('you') - 20:g}V{foot + 8:g}", dashed=True)
    words = f"\u201c{text['bot', 'speaks']}\u201d"
    drawing.text(x(answered) - 8, _height("bot"), words, anchor="end", halo=True)
    middle = (x(stopped) + x(answered)) / 2
    drawing.text(middle, foot + 20, f"the bot's delay: {answered - stopped:.2f} s", anchor="middle")
    for second in range(int(end - start) + 1):
        drawing.text(x(start + second), foot + 44, f"{second} s", ink=FAINT, anchor="middle", size=13)
    return drawing.svg()


def _height(lane: str) -> int:
    """Return the height of a lane's middle."""
    return _TOP + _LANE * _LANES.index(lane)


def _runs(entries: Sequence[TimelineEntry]) -> list[tuple[float, float]]:
    """Return the moments between which the model runs: each run ends in a call, or in words."""
    runs = [index for index, entry in enumerate(entries) if entry.kind == "model runs"]
    return [(entries[index].at, entries[index + 1].at) for index in runs]
