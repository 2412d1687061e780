"""The cost of a message, in numbers independent of the machine's speed: instructions and system calls."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from . import counted

pytestmark = pytest.mark.matrix

#: A factor of the measured value, with the version and build of Python that needs most.
ALLOWED: Final = 1.5

#: Instructions of each part, relative to `json.loads` of a message: with Python 3.10, and with later ones.
PARTS: Final = {
    "codec, a message in": (0.43, 0.44),
    "codec, a message out": (0.13, 0.10),
    "codec, audio in": (0.12, 0.12),
    "codec, audio out": (0.20, 0.16),
    "frame reader, a message": (0.28, 0.22),
    "frame reader, an audio frame": (0.30, 0.25),
    "frame writer, an audio frame": (1.65, 1.61),
    "envelope, decode": (1.25, 1.15),
    "payload, decode": (0.51, 0.42),
    "engine, an event": (1.15, 1.05),
    "queue, post and run": (0.71, 0.39),
    "signal, no receiver": (0.38, 0.30),
    "signal, one receiver": (1.07, 1.18),
}
#: Instructions of the whole way, relative to the simplest client of threads: with Python 3.10, and with later ones.
SESSIONS: Final = {
    "an event": (0.68, 0.68),
    "audio down": (0.29, 0.32),
    "audio up": (0.83, 0.78),
    "a request": (1.33, 1.25),
}
#: System calls of all threads. A burst is read many frames at a time, and each frame is sent by one call.
CALLS: Final = {
    "an event": 0.1,
    "audio down": 0.1,
    "audio up": 2.5,
    "a request": 12.0,
}

Show = Callable[..., None]
#: The measured value and its limit, by name.
Rows = dict[str, tuple[float, float]]


def hundredths(rows: Rows) -> Counter[tuple[str, str]]:
    """Return the number for the table in the summary of the test run, whose counts are whole numbers."""
    return Counter({(name, f"{most:.2f}"): round(100 * number) for name, (number, most) in rows.items()})


def lines(counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Return the lines of the table."""
    return (f"  {name:34}{count / 100:8.2f}, at most {most}" for (name, most), count in counts.items())


def tell_instructions(counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield the table in the summary of the test run."""
    yield "Instructions: of a part beside json.loads, of a session beside the simplest client"
    yield from lines(counts)


def tell_calls(counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield the table in the summary of the test run."""
    yield "System calls of all threads, when much comes or goes"
    yield from lines(counts)


def too_much(rows: Rows) -> Rows:
    """Return the rows above their limits."""
    return {name: row for name, row in rows.items() if row[0] > row[1]}


@pytest.mark.real
def test_instructions(url: str, tmp_path: Path, show_table: Show) -> None:
    """No part and no way through a session takes 1.5 times as many instructions, beside a reference, as it did with the
    version of Python that needs most."""
    found = counted.instructions(url, tmp_path)
    column = 0 if sys.version_info < (3, 11) else 1
    rows: Rows = {}
    for name, expected in PARTS.items():
        rows[name] = found[name] / found["json.loads"], expected[column] * ALLOWED
    for name, expected in SESSIONS.items():
        rows[f"session, {name}"] = found[f"ours, {name}"] / found[f"ref, {name}"], expected[column] * ALLOWED
    show_table(tell_instructions, hundredths(rows))

    # Far below its limit, it would not be the work that was counted.
    assert all(number > most / 4 for number, most in rows.values()), rows
    assert not too_much(rows)


@pytest.mark.real
def test_system_calls_of_a_burst(url: str, tmp_path: Path, show_table: Show) -> None:
    """Frames that arrive together are read together, and each frame out takes one call."""
    rows: Rows = {name: (math.inf, most) for name, most in CALLS.items()}
    for _ in range(3):
        found = counted.system_calls(url, tmp_path)
        # The counts of the simplest client show that all calls are seen.
        assert 3 <= sum(found["ref, an event"].values()) < 4
        assert found["ours, audio up"]["sendto"] > 1
        # On a busy machine fewer frames arrive together. That adds calls; nothing takes any away.
        rows = {name: (min(calls, sum(found[f"ours, {name}"].values())), most) for name, (calls, most) in rows.items()}
        if not too_much(rows):
            break
    show_table(tell_calls, hundredths(rows))
    assert not too_much(rows), found
