"""A machine that has the libraries, but no device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

CARDS = Path("/proc/asound/cards")
# With the system's own configuration the libraries print 80 lines; and if there are cards, it lists them, too.
CONFIGURATIONS = [Path(__file__).parents[1] / "no_devices" / "asound.conf"]
if not CARDS.exists():
    CONFIGURATIONS.append(Path("/usr/share/alsa/alsa.conf"))


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.parent.name)
def test_nothing_is_printed(configuration: Path, library: str) -> None:
    """A program connects, is told once which devices are missing, and its standard error stays empty."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.audio.no_devices", library],
        env={**os.environ, "ALSA_CONFIG_PATH": str(configuration)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "mics": 0,
        "speakers": 0,
        "ping": 1,
        "refused": "not-found",
        "state": "error",
        "errors": [["mic", "speaker", "not-found"]],
        "logged": ["WARNING"],
    }
