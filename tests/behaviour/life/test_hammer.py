"""Ctrl-C, signal handlers and finalizers at random moments of every call."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support.processes import run_python
from tests.support.slowness import GUARD

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no interval timers")

KINDS = ["ctrl-c", "handler", "exit", "finalizer"]


def hammer(kind: str, seconds: float, strikes: int, seed: int) -> None:
    """Strike for so long, and so often at least; nothing may be amiss."""
    script = """
        import sys
        from tests.behaviour.life import hammer
        hammer.main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    """
    code, out, err = run_python(script, kind, str(seconds), str(strikes), str(seed), timeout=seconds + 4 * GUARD)
    assert (code, err) == (0, ""), err
    result = json.loads(out)
    assert result["problems"] == [], "\n".join(result["problems"])
    assert result["strikes"] >= strikes


@pytest.mark.parametrize("kind", KINDS)
def test_at_any_moment(kind: str) -> None:
    """After any interruption, no call hangs or runs into a limit, the client can do all that it could before, and no
    thread is left.
    """
    hammer(kind, seconds=2.0, strikes=10, seed=1)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
def test_at_any_moment_for_long(kind: str) -> None:
    """After a minute of interruptions, no call has hung or exceeded its limit, and no thread is left."""
    hammer(kind, seconds=60.0, strikes=300, seed=2)
