"""Devices that are opened, closed and switched many times."""

from __future__ import annotations

import json
from typing import Final

import pytest

from .pulse import PulseServer
from .sessions import tone

ROUNDS: Final = 200


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_nothing_grows(pulse: PulseServer, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load, after many rounds, there is no crash, no thread and no descriptor more, and the mic still hears."""
    # Each of glibc's heaps grows until it has seen the worst case: with one of them that does not take hours.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    for feed in ("mic_a_feed", "mic_b_feed"):
        pulse.play(tone(440, 900), feed=feed)
    done = pulse.run("tests.audio.cycles", library, str(ROUNDS), timeout=100 + 3 * ROUNDS)
    assert (done.returncode, done.stderr) == (0, "")
    grown = json.loads(done.stdout)
    assert (grown["threads"], grown["descriptors"]) == (0, 0)
    assert grown["kilobytes"] < 1000 + 20 * ROUNDS
    assert pulse.source_outputs() == []
    assert pulse.sink_inputs() == []
