"""Ctrl-C, signal handlers and finalizers at random moments of every call."""

from __future__ import annotations

import json
import signal

import pytest

from tests.client.helpers import run_python

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no interval timers")

KINDS = ["ctrl-c", "handler", "exit", "finalizer"]


def hammer(kind: str, seconds: float, seed: int) -> int:
    """Strike for so long; nothing may be amiss. Returns how often it struck."""
    script = "import sys; from tests.life import hammer; hammer.main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))"
    code, out, err = run_python(script, kind, str(seconds), str(seed), timeout=seconds + 90)
    assert (code, err) == (0, ""), err
    result = json.loads(out)
    assert result["problems"] == [], "\n".join(result["problems"])
    return int(result["strikes"])


@pytest.mark.parametrize("kind", KINDS)
def test_at_any_moment(kind: str) -> None:
    """Whatever is struck, whenever: no call hangs or runs into a limit, the client does all that it could before, and
    no thread is left."""
    assert hammer(kind, seconds=2.0, seed=1) >= 10


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
def test_at_any_moment_for_long(kind: str) -> None:
    """The same for a minute."""
    assert hammer(kind, seconds=60.0, seed=2) >= 300
