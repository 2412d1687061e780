"""Ctrl-C in every call that blocks."""

from __future__ import annotations

import signal

import pytest

from tests.behaviour.life.blocking import CALLS
from tests.support.processes import python, rest_of
from tests.support.slowness import takes

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no signals of this kind")


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_interrupts_a_blocked_call(call: str) -> None:
    """Ctrl-C raises `KeyboardInterrupt` at once; the client works on, and the process ends without a thread."""
    script = "import sys; from tests.behaviour.life import blocking; blocking.main(sys.argv[1])"
    with python(script, call) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "blocked\n"
            with takes(2.0):
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline().startswith("interrupted ")
            with takes(6.0):
                out, err = rest_of(process)
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("ended\n", "", 0)
