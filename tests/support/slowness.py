"""Time limits that hold on every machine, however slow or busy.

`GUARD` ends a test that hangs and says nothing about speed. `takes()` holds a block to a promised time without counting
the machine's time for other programs: a process that computes runs beside the block, and its progress is the clock. On
an idle machine this clock keeps real time; on a machine that is slow or busy it runs as much slower.

If a test itself has to keep a limit of the package, such as a ping's, it uses one of `LIMITS`: `at_some_limit()`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def _load() -> float:
    """Return how many programs want each processor: on average in the last minute, or at this instant if more do."""
    programs = os.getloadavg()[0]
    with contextlib.suppress(OSError):  # only Linux has the file
        programs = max(programs, int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]))
    return programs / (os.cpu_count() or 1)


#: Seconds after which a test gives up waiting for something that must happen: 30, and up to 120 if the machine was busy
#: when the tests started. All processes of a run have the first one's. The runner of mutants, most of which make a test
#: wait in vain, sets fewer.
GUARD = float(os.environ.setdefault("RTVI_TEST_GUARD", str(round(30 * min(max(_load(), 1), 4)))))

#: Seconds: a test that has to do something within a limit uses the first in which this machine lets it.
LIMITS = (0.1, 1.0, 5.0, 25.0)

# One round of work, and the time that it takes on an idle machine of usual speed. On a faster machine real time counts.
_ROUND = range(10_000)
_ROUND_SECONDS = 0.0004
_COUNT = struct.Struct("Q")
_ADDRESS = "RTVI_TEST_METRONOME"
# Seconds that memory of this process alone may cost, which the clock does not see: a collection of garbage among ten
# thousand tests, or pages that the system has to read again.
_STALL = 0.5
# Seconds: how long it computes without a pause once a block starts, and then the length of each burst and pause. A
# burst is long enough to get no more of a busy machine than any other process that computes.
_WITHOUT_PAUSE, _BURST, _PAUSE = 1.0, 0.05, 0.2


class Metronome:
    """A process that computes while blocks are timed, and tells how many rounds it has made in all.

    One serves all processes of a test run: the first starts it and tells its address by an environment variable.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        # Guards the connection, so that each question gets its own answer. Held until the process answers.
        self._lock = threading.Lock()

    def ask(self, question: bytes) -> int:
        """Report that a block starts (`+`), ends (`-`), or neither (`?`); return the number of rounds so far."""
        with self._lock:
            self._socket.sendall(question)
            (rounds,) = _COUNT.unpack(self._socket.recv(_COUNT.size, socket.MSG_WAITALL))
        return int(rounds)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def start_metronome() -> tuple[str, subprocess.Popen[bytes]]:
    """Start a process. Return the address at which it answers until its standard input is closed."""
    folder = tempfile.mkdtemp(prefix="metronome")
    address = os.path.join(folder, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(100)
        command = [sys.executable, "-S", __file__, str(listener.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, pass_fds=[listener.fileno()])
    pid = os.getpid()

    def close() -> None:
        if os.getpid() == pid:  # a process that was forked has it, too
            process.communicate()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(close)
    return address, process


@functools.cache
def _metronome_of(pid: int) -> Metronome:
    with contextlib.suppress(KeyError, OSError):  # none yet, or one of a run that has ended
        return Metronome(os.environ[_ADDRESS])
    os.environ[_ADDRESS] = start_metronome()[0]
    return Metronome(os.environ[_ADDRESS])


def metronome() -> Metronome:
    """Return the connection of this process, which the first call makes."""
    return _metronome_of(os.getpid())


class Stopwatch:
    """Times a block.

    Attributes:
        took: seconds of real time from the start of the block to its end.
        given: seconds that the block would have taken on an idle machine.
    """

    took = given = 0.0

    @property
    def slower(self) -> float:
        """How many times as slow as an idle one the machine was: 1 or more. Paced work is off by the same factor."""
        return self.took / max(self.given, 0.001)

    def __enter__(self) -> Stopwatch:
        self._rounds = metronome().ask(b"+")
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.look(b"-")

    def look(self, question: bytes = b"?") -> Stopwatch:
        """Bring the times up to date before the block ends."""
        self.took = time.monotonic() - self._began
        self.given = min(self.took, (metronome().ask(question) - self._rounds) * _ROUND_SECONDS)
        return self


@contextlib.contextmanager
def takes(at_most: float, *, at_least: float = 0.0) -> Iterator[Stopwatch]:
    """Fail if a block takes longer than it may.

    Args:
        at_most: seconds that it may take on an idle machine, beside one stall of this process (`_STALL`).
        at_least: seconds of real time that it must take.
    """
    with Stopwatch() as watch:
        yield watch
    took, given = watch.took, watch.given
    assert took >= at_least, f"it took {took:.3f} s, less than {at_least:g} s"
    assert given <= at_most + _STALL, f"it took {took:.2f} s, {given:.2f} s on an idle machine, more than {at_most:g} s"


def at_some_limit(check: Callable[[float], object]) -> None:
    """Fail if `check(limit)` fails with each of `LIMITS`, as wrong code does; a slow machine fails with short ones."""
    for limit in LIMITS:
        try:
            check(limit)
        except Exception:
            if limit == LIMITS[-1]:
                raise
        else:
            return


def _question(connection: socket.socket) -> bytes:
    """Return a question; b"" if its process is gone, also if it has not read an answer."""
    with contextlib.suppress(OSError):
        return connection.recv(1)
    return b""


def _compute(listener: socket.socket) -> None:
    """Answer questions, and compute between them while blocks are timed, until the standard input is closed.

    To compute all the time takes a processor from the tests. So where blocks last, pauses follow bursts; a pause counts
    as many rounds as the burst before would have made in its time. That is too few where the block itself computes:
    it has the time of the pause for itself, and is held to twice its limit in the worst case.
    """
    blocks: dict[socket.socket, int] = {}  # that are being timed, by the connection that has told
    rounds, begun = 0.0, 0.0
    while True:
        timing = any(blocks.values())
        sources: list[int | socket.socket] = [0, listener, *blocks]
        asked = select.select(sources, [], [], 0 if timing else None)[0]
        if timing and not asked:
            start, before = time.monotonic(), rounds
            end = max(start + _BURST, begun + _WITHOUT_PAUSE)
            while (now := time.monotonic()) < end and not select.select(sources, [], [], 0)[0]:
                for _ in _ROUND:
                    pass
                rounds += 1
            select.select(sources, [], [], _PAUSE)
            rounds += min(time.monotonic() - now, _PAUSE) * (rounds - before) / max(now - start, 1e-6)
        for each in asked:
            if isinstance(each, int):
                return
            if each is listener:
                blocks[listener.accept()[0]] = 0
                continue
            question = _question(each)
            if not question:
                del blocks[each]
                each.close()
                continue
            if question == b"+" and not any(blocks.values()):
                begun = time.monotonic()
            blocks[each] += {b"+": 1, b"-": -1, b"?": 0}[question]
            with contextlib.suppress(OSError):  # it is gone
                each.sendall(_COUNT.pack(int(rounds)))


if __name__ == "__main__":
    _compute(socket.socket(fileno=int(sys.argv[1])))
