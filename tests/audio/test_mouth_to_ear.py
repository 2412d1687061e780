"""The benchmark of how long sound takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

from .pulse import PulseServer


@pytest.mark.matrix
def test_the_table(pulse: PulseServer, library: str) -> None:
    """In two seconds of audio the SDK adds little delay beside the devices, and the bot is soon heard."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mouth_to_ear", "--library", library, "--seconds", "2"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| ([\d.]+) ms \| ([\d.]+) ms \|", done.stdout, re.MULTILINE)
    medians = {name: float(p50) for name, _, p50, _ in rows}
    assert set(medians) == {"microphone to wire", "wire to speaker", "bot to ear", "the devices alone"}
    assert medians["microphone to wire"] + medians["wire to speaker"] < medians["the devices alone"] / 4
    assert medians["bot to ear"] < 1.5 * medians["the devices alone"]
