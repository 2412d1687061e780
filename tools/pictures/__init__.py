"""The pictures of README and docs, in docs/_static: diagrams, terminals, and pages in Chromium."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from . import layers, states, turn

FOLDER: Final = Path(__file__).parents[2] / "docs" / "_static"
#: Drawn from the source alone: the same bytes each time.
DIAGRAMS: Final[dict[str, Callable[[], str]]] = {
    "turn.svg": turn.draw,
    "states.svg": states.draw,
    "layers.svg": layers.draw,
}
#: Of programs that run: their times differ.
TERMINALS: Final = ("talk.svg", "demo.svg", "pytest.svg")
PAGES: Final = ("talk.png", "report.png", "report-turn.png", "notebook.png", "voice.png")
ALL: Final = (*DIAGRAMS, *TERMINALS, *PAGES)


def make(names: Iterable[str] = ALL) -> Iterator[tuple[str, bytes]]:
    """Make pictures, and yield the name and the content of each file. `talk.png` shows the `talk.svg` of docs/_static.

    Raises:
        FileNotFoundError: Chromium is not installed.
        TimeoutError: A program does not do what its picture shows.
    """
    wanted = [*names]
    for name in DIAGRAMS:
        if name in wanted:
            yield name, DIAGRAMS[name]().encode()
    if {*TERMINALS} & {*wanted}:
        from . import sessions  # and what it needs, which the diagrams do without

        for name in TERMINALS:
            if name in wanted:
                with tempfile.TemporaryDirectory() as folder:
                    yield name, sessions.DRAWN[name](Path(folder)).encode()
    if {*PAGES} & {*wanted}:
        from .pages import Browser

        with Browser() as browser:
            for name in PAGES:
                if name in wanted:
                    with tempfile.TemporaryDirectory() as folder:
                        yield name, browser.shot(name, Path(folder)).file()
