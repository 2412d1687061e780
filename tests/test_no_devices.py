"""The promise of `conftest.py` about the devices of the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.slowness import GUARD

COUNT = "import pyaudio; audio = pyaudio.PyAudio(); print(audio.get_device_count()); audio.terminate()"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the devices of a machine cannot be hidden")
def test_there_are_none() -> None:
    """PyAudio finds no device in a process that a test starts, whatever this machine has."""
    pytest.importorskip("pyaudio", exc_type=ImportError)
    done = subprocess.run([sys.executable, "-c", COUNT], env=os.environ, capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
