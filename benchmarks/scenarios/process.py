"""What a session costs a process that does nothing with it, how it keeps time, and whether anything is left of it."""

from __future__ import annotations

import functools
import gc
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ..peers import PEERS
from ..peers.base import LIMIT, SETTLE, Peer
from ..server import Command
from ..server_frames import FRAMES_PER_SECOND
from .figures import Scenario, percentile, spread
from .session import Counting

_SHORT: Final = 0.05
_IMPORT: Final = (
    "import time; begun = time.perf_counter(); import {}; "
    "print(time.perf_counter() - begun, open('/proc/self/statm').read().split()[1])"
)


def imports(peer: type[Peer], url: str, effort: float) -> dict[str, float]:  # noqa: ARG001 - nothing is connected
    """Measure the imports of a program that uses the library, and of `Peer.dependencies` alone: time and memory."""
    number = max(3, round(11 * effort))
    seconds, megabytes = _import(peer.imports, number)
    figures = {"ms": seconds * 1e3, "rss_mb": megabytes}
    if peer.dependencies:
        dependencies, _ = _import(peer.dependencies, number)
        figures |= {"dependencies_ms": dependencies * 1e3, "of_dependencies": seconds / dependencies}
    return figures


def _import(modules: str, number: int) -> Sequence[float]:
    """Return seconds, and megabytes of the process after it: a process each; one before them compiles the files."""
    command = [sys.executable, "-c", _IMPORT.format(modules)]
    with tempfile.TemporaryDirectory() as compiled:
        # Whatever the environment says about what is compiled: an installed package is.
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [
            subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout.split()
            for _ in range(number + 1)
        ]
    seconds, pages = zip(*runs[1:], strict=True)
    megabytes = [int(number) * os.sysconf("SC_PAGE_SIZE") / 1e6 for number in pages]
    return percentile([float(each) for each in seconds], 0.5), percentile(megabytes, 0.5)


_PROGRAM: Final = (
    "from benchmarks.peers import find; client = find({name!r})({url!r}); "
    "client.connect(); client.request({command!r}); client.close()"
)


def program(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure a whole program: import, connect, one request, end; its time, and the CPU time of it."""
    place = f"{peer.__module__.rpartition('.')[2]}:{peer.__name__}"
    name = next(name for name in PEERS if PEERS[name] == place)
    command = [sys.executable, "-c", _PROGRAM.format(name=name, url=url, command=Command.ECHO)]
    seconds, spent = [], []
    with tempfile.TemporaryDirectory() as compiled:
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(2 + max(3, round(20 * effort))):
            before, begun = _children(), time.perf_counter()
            subprocess.run(command, check=True, env=environ)
            seconds.append(time.perf_counter() - begun)
            spent.append(_children() - before)
    # The first ones compile.
    return {"ms": percentile(seconds[2:], 0.5) * 1e3, "cpu_ms": percentile(spent[2:], 0.5) * 1e3}


def _children() -> float:
    """Return the CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quiet(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure a session without messages: memory and threads of the process, and CPU time of a minute."""
    client = peer(url)
    client.connect()
    time.sleep(SETTLE)  # what is given up then is given up once, not every minute
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(max(0.5, 80 * effort))  # two pings of ours
    spent, taken = time.process_time() - spent, time.perf_counter() - begun
    figures = {"cpu_ms": spent / taken * 60e3, "rss_mb": _rss() / 1e6, "threads": float(_threads())}
    client.close()
    return figures


def growth(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how much more the process holds after two million messages, the mean of four million."""
    counting = Counting()
    client = peer(url, counting)
    client.connect()
    held = []
    # The first ones warm up. How many wait in a burst at most is a matter of luck, and their memory is used again.
    for number in (2_000_000, 2_000_000, 2_000_000):
        counting.expect(round(number * effort))
        client.request(Command.EVENTS, {"n": round(number * effort)})
        counting.wait()
        gc.collect()
        held.append(_rss())
    client.close()
    return {"mb": (held[-1] - held[0]) / 1e6 / 2}


def timeouts(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how late after its limit a call gives up: a request without answer, and a bot that is never ready."""
    number = max(3, round(40 * effort))
    client = peer(url)
    client.connect()
    requests = [_late(lambda: client.request(Command.SILENCE, timeout=_SHORT)) for _ in range(number)]
    client.close()
    connects = []
    for _ in range(number):
        mute = peer(f"{url}?mute")
        connects.append(_late(lambda: mute.connect(_SHORT)))  # noqa: B023 - called at once
        mute.close()
    return {"request_ms": percentile(requests, 0.5) * 1e3, "connect_ms": percentile(connects, 0.5) * 1e3}


def _late(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    try:
        call()
    except Exception as error:
        late = time.perf_counter() - begun - _SHORT
        if late < 0:  # then it was for another reason
            raise RuntimeError("was given up too soon") from error
        return late
    raise RuntimeError("this server answers")


def system_calls(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Count those of all threads in 20 ms in which both sides talk and the bot reports; strace, which counts, sees all.

    Raises:
        FileNotFoundError: there is no strace.
        RuntimeError: it may not look.
    """
    client = peer(f"{url}?audio={FRAMES_PER_SECOND}&events=5", talking=True)
    client.connect()
    time.sleep(0.5)
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as found:
        command = ["strace", "-f", "-c", "-q", "-o", found.name, "-p", str(os.getpid())]
        begun = time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            time.sleep(max(2.0, 12 * effort))
            taken = time.perf_counter() - begun
            strace.send_signal(signal.SIGINT)
            _, words = strace.communicate(timeout=LIMIT)
        total = re.search(r"^\s*100\.00\s+\S+\s+\S*\s+(\d+)\s.*total$", found.read(), re.MULTILINE)
    client.close()
    if total is None:
        raise RuntimeError(words.strip() or "strace has found nothing")
    return {"in_20_ms": int(total[1]) / (taken * FRAMES_PER_SECOND)}


def jitter(peer: type[Peer], url: str, effort: float, *, seconds: float = 20) -> dict[str, float]:
    """Measure how far from its time each audio frame comes to the server, and how far the whole has moved in all."""
    client = peer(url, talking=True)
    client.connect()
    client.request(Command.HEARD, {"times": True})
    time.sleep(max(1.0, seconds * effort))
    times = client.request(Command.HEARD)["times"]
    client.close()
    places = [when - number / FRAMES_PER_SECOND for number, when in enumerate(times)]
    middle = percentile(places, 0.5)
    quarter = max(1, len(places) // 4)
    return {
        **spread([abs(place - middle) for place in places], "us", 1e6),
        # From the middle of the first quarter to that of the last it is three quarters of the time.
        "drift_us": (percentile(places[-quarter:], 0.5) - percentile(places[:quarter], 0.5)) * 4 / 3 * 1e6,
    }


def _rss() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def _threads() -> int:
    """Count all of them, not only those that Python knows."""
    return len(list(Path("/proc/self/task").iterdir()))


SCENARIOS: Final[dict[str, Scenario]] = {
    "import": imports,
    "program": program,
    "quiet": quiet,
    "growth": growth,
    "timeouts": timeouts,
    "jitter": jitter,
    "drift": functools.partial(jitter, seconds=600),
    "system-calls": system_calls,
}
