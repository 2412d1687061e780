"""A machine that is busy with other things, for the process that runs the tests.

A child process stops this process and lets it go on, over and over. So every limit that the code under test has may
pass between any two of its instructions, and threads run in an order that an idle machine never shows.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

#: Seconds for which the process is stopped, and those for which it runs in between.
STOPPED: Final = 0.35
RUNNING: Final = 0.25

# It ends when its standard input is closed, when the process that it stops has ended, and after the limit. However it
# ends, it lets the process go on. Only SIGKILL in the moment in which the process is stopped would leave it so.
_SCRIPT: Final = """
import os, select, signal, sys, time

victim, stopped, running, limit = int(sys.argv[1]), *map(float, sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
end = time.monotonic() + limit
try:
    while time.monotonic() < end and not select.select([0], [], [], running)[0] and os.getppid() == victim:
        os.kill(victim, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(victim, signal.SIGCONT)
finally:
    if os.getppid() == victim:
        os.kill(victim, signal.SIGCONT)
"""


@contextlib.contextmanager
def starved(*, stopped: float = STOPPED, running: float = RUNNING, limit: float = 600.0) -> Iterator[None]:
    """Starve this process in the block.

    Under a shell with job control the process must not be the shell's own job: that would be put into the background.

    Args:
        stopped, running: seconds for which the process is stopped, and runs in between.
        limit: seconds after which it is starved no longer.
    """
    arguments = [str(os.getpid()), str(stopped), str(running), str(limit)]
    starver = subprocess.Popen([sys.executable, "-I", "-S", "-c", _SCRIPT, *arguments], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert starver.stdin is not None
        starver.stdin.close()
        code = starver.wait()
    assert code == 0, f"the process was not starved to the end: {code}"
