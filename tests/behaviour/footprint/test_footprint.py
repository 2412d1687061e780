"""The cost of a session: modules, and system calls and threads while it talks."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

from .counted import program, run

DEVICES = {"pyaudio", "cv2", "numpy", "soxr", "mss"}
TALK = Path(__file__).with_name("talk.py")


def test_a_session_without_devices_loads_none_of_their_packages() -> None:
    """Who brings a source and a sink needs no audio library, and gets none."""
    with EmbeddedBot() as bot:
        code = f"import runpy, sys; sys.argv[1:] = [{bot.ws_url!r}, '0.1']; runpy.run_path({str(TALK)!r})"
        loaded = run(f"{code}; print(*sys.modules)").split()

    assert "rtvi_sync.media.media" in loaded
    assert DEVICES & set(loaded) == set()


def tell_calls(table: Counter[str]) -> Iterator[str]:
    """Yield the summary line with the counts of a talk."""
    calls = {name: hundredths / 100 for name, hundredths in table.items()}
    yield "system calls in 20 ms of a talk, all threads together (those that wait or wake in brackets): " + ", ".join(
        f"{calls[kind]:.1f} ({calls[f'{kind}, futex']:.1f}) {kind}" for kind in MOST if kind in calls
    )


#: By the kind of audio: the most system calls in 20 ms of a talk, and the most of them by which threads wait and wake.
MOST: Final = {"in memory": (6.8, 0.5), "own": (10.4, 4.0)}  # those that wake: 1.2 to 2.6, by load


@pytest.mark.real
@pytest.mark.matrix
@pytest.mark.parametrize("kind", MOST)
def test_system_calls_of_a_talk(kind: str, show_table: Callable[..., None]) -> None:
    """A talk with audio both ways needs few system calls in 20 ms, all threads together, and few wakes of threads.

    Other work of the machine only adds calls (a thread waits for another, a line wakes one twice), so the test takes
    the least of up to three. If the audio is the application's own, a worker is woken for each frame of the bot.
    """
    strace = program("strace")
    words = " ".join(["word"] * 60)
    with EmbeddedBot(replies=[words]) as bot:

        def calls_in(seconds: float) -> tuple[int, int]:
            talk = [sys.executable, str(TALK), bot.ws_url, str(seconds), *(["own"] if kind == "own" else [])]
            ran = subprocess.run(
                [strace, "-f", "-c", "-o", "/dev/stderr", *talk],
                capture_output=True,
                text=True,
                check=False,
                timeout=GUARD,
            )
            assert ran.returncode == 0, ran.stderr
            return number_of("total", ran.stderr), number_of("futex", ran.stderr)

        # The difference excludes the cost of starting, connecting and ending.
        short, long = 2.0, 6.0
        most_calls, most_waits = MOST[kind]
        in_20_ms = waits = math.inf
        for _ in range(3):
            counts = (a - b for a, b in zip(calls_in(long), calls_in(short), strict=True))
            now = [count / ((long - short) / 0.02) for count in counts]
            in_20_ms, waits = min(in_20_ms, now[0]), min(waits, now[1])
            if in_20_ms <= most_calls and waits <= most_waits:
                break

    show_table(tell_calls, Counter({kind: round(100 * in_20_ms), f"{kind}, futex": round(100 * waits)}))
    assert 1 < in_20_ms <= most_calls, f"{in_20_ms:.1f} system calls in 20 ms of talk"
    assert waits <= most_waits, f"{waits:.1f} calls by which threads wait and wake in 20 ms of talk"


def number_of(name: str, summary: str) -> int:
    """Return how often strace has seen a system call, or all of them, by its table."""
    found = re.search(rf"^\s*[\d.]+\s+\S+\s+\S*\s+(\d+)\s.*\b{name}$", summary, re.MULTILINE)
    assert found is not None, summary
    return int(found[1])
