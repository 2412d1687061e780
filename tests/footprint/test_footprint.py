"""What the package costs: time and modules to import it, system calls and threads while it talks."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot

DEPENDENCIES = "import httpx, websocket, attrs, blinker"
TALK = Path(__file__).with_name("talk.py")


def run(code: str, **variables: str) -> str:
    """What a fresh interpreter prints."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def test_import_is_quick(tmp_path: Path) -> None:
    """Importing the package, its dependencies included, takes under twice the time of the four it is made of."""

    def seconds_to(code: str) -> float:
        # Installed packages are compiled once; so is everything here, whatever the environment says about it.
        compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
        timed = f"import time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
        return float(run(timed, **compiled))

    seconds_to("import rtvi_sync")
    seconds_to(DEPENDENCIES)

    # Side by side, so that what else the machine does falls on both.
    pairs = [(seconds_to("import rtvi_sync"), seconds_to(DEPENDENCIES)) for _ in range(7)]

    assert statistics.median(ours / theirs for ours, theirs in pairs) < 2


@pytest.mark.real
def test_system_calls_of_a_talk() -> None:
    """A talk with audio both ways costs at most 8 system calls in 20 ms, all threads together."""
    strace = shutil.which("strace")
    if strace is None:
        message = "strace is not installed: run `python3 run.py test --real` as root"
        pytest.fail(message) if os.environ.get("RTVI_REQUIRE_REAL") == "1" else pytest.skip(message)
    words = " ".join(["word"] * 60)
    with EmbeddedBot(replies=[words]) as bot:

        def calls_in(seconds: float) -> int:
            command = [strace, "-f", "-c", "-o", "/dev/stderr", sys.executable, str(TALK), bot.ws_url, str(seconds)]
            summary = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
            total = re.search(r"^\s*100\.00\s+\S+\s+\S*\s+(\d+)\s.*total$", summary, re.MULTILINE)
            assert total is not None, summary
            return int(total[1])

        # The difference leaves out what starting, connecting and ending cost.
        short, long = 2.0, 6.0
        in_20_ms = (calls_in(long) - calls_in(short)) / ((long - short) / 0.02)

    assert 1 < in_20_ms <= 8, f"{in_20_ms:.1f} system calls in 20 ms of talk"
