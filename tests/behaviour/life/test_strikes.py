"""A signal handler that raises in calls that hardly wait: they hold locks that the threads of the session need."""

from __future__ import annotations

import pytest

from tests.behaviour.life.strikes import CALLS
from tests.support.processes import run_python
from tests.support.slowness import GUARD
from tests.support.strikes import needs_timers

pytestmark = needs_timers


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_of_a_handler_stops_no_other_thread(call: str) -> None:
    """After strikes at many instants of a call, other threads use the client, and events arrive."""
    script = "import sys; from tests.behaviour.life.strikes import main; main(sys.argv[1], 1500)"
    code, out, err = run_python(script, call, timeout=5 * GUARD)
    assert (code, out, err) == (0, "1500 strikes\n", "")
