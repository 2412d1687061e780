"""The states of a client, drawn from the table that the client itself enforces."""

from __future__ import annotations

import math
from typing import Final

from rtvi_sync.client.life import FOLLOWING, State

from .drawing import BOT, FAINT, INK, PAPER, USER, WIDTH, WORK, Drawing

_ROW, _BOX_WIDTH, _BOX_HEIGHT = 26, 108, 40  # pixels
#: The middles of the states.
_PLACES: Final[dict[State, tuple[float, float]]] = {
    State.IDLE: (110, 60),
    State.CONNECTING: (WIDTH - 110, 60),
    State.READY: (WIDTH - 110, 264),
    State.ENDING: (296, 264),
    State.WAITING: (276, 158),
    State.STARTING: (110, 158),
    State.CLOSED: (110, 264),
}
#: Where the number of an arrow stands, as a share of its length, so that it is on no other arrow.
_NUMBERS: Final = {(State.ENDING, State.IDLE): 0.28, (State.WAITING, State.STARTING): 0.3}
_COLOURS: Final = {State.READY: BOT, State.CONNECTING: USER, State.WAITING: WORK}


def draw() -> str:
    """Return the picture: states, numbered arrows, and the cause of each arrow."""
    arrows = [(state, following) for state in State for following in FOLLOWING[state] if following is not State.CLOSED]
    closed = {cause for causes in FOLLOWING.values() for state, cause in causes.items() if state is State.CLOSED}
    top = 322
    drawing = Drawing(
        WIDTH, top + _ROW * len(arrows) + 14, "The states of a client, and what leads from one to another"
    )
    for number, (state, following) in enumerate(arrows, 1):
        _arrow(drawing, state, following, str(number))
    for state, (x, y) in _PLACES.items():
        left, upper = x - _BOX_WIDTH / 2, y - _BOX_HEIGHT / 2
        drawing.box(left, upper, _BOX_WIDTH, _BOX_HEIGHT, fill=PAPER, edge=_COLOURS.get(state, INK), radius=20)
        drawing.text(x, y, state.value, anchor="middle", bold=True, ink=_COLOURS.get(state, INK))
    x, y = _PLACES[State.CLOSED]
    drawing.text(x, y + 34, f"{', '.join(sorted(closed))}, from any state", anchor="middle", ink=FAINT, size=13)
    for number, (state, following) in enumerate(arrows, 1):
        height = top + _ROW * number - _ROW / 2
        drawing.badge(26, height, str(number))
        drawing.text(46, height, FOLLOWING[state][following])
    return drawing.svg()


def _arrow(drawing: Drawing, state: State, following: State, number: str) -> None:
    """Draw an arrow from the edge of one state to that of another, beside the arrow back if there is one."""
    (x1, y1), (x2, y2) = _PLACES[state], _PLACES[following]
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    aside = 14 if state in FOLLOWING[following] else 0
    x1, y1, x2, y2 = x1 - dy * aside, y1 + dx * aside, x2 - dy * aside, y2 + dx * aside
    margin = min((_BOX_WIDTH / 2) / abs(dx) if dx else math.inf, (_BOX_HEIGHT / 2) / abs(dy) if dy else math.inf)
    x1, y1, x2, y2 = x1 + dx * margin, y1 + dy * margin, x2 - dx * margin, y2 - dy * margin
    drawing.path(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", tip=True)
    share = _NUMBERS.get((state, following), 0.42)
    drawing.badge(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, number)
