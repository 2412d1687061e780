"""The cost of a program with a short session, and of one with an idle session, and how both keep time."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..peers import PEERS
from ..peers.base import SETTLE, Peer
from ..server import Command
from ..server_frames import FRAMES_PER_SECOND
from .figures import Scenario, percentile, spread

_SHORT: Final = 0.05
#: The folder for compiled modules: an installed package is compiled, whatever the environment says.
_COMPILED: Final = Path(__file__).parents[2] / ".cache/bench/compiled"
_IMPORT: Final = "import time; begun = time.perf_counter(); import {}; print(time.perf_counter() - begun)"
_PROGRAM: Final = (
    "from benchmarks.peers import find; client = find({name!r})({url!r}); "
    "client.connect(); client.request({command!r}); client.close()"
)


def _run(code: str, *before: str, **variables: str) -> str:
    """Return the output of a new interpreter that runs some code, under a command if one is given."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(_COMPILED), "PYTHONDONTWRITEBYTECODE": "", **variables}
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout


def imports(peer: type[Peer], url: str, effort: float) -> dict[str, float]:  # noqa: ARG001 - nothing is connected
    """Measure the import of the library's package alone; modules for a session may be imported later."""
    number = max(3, round(11 * effort))
    seconds = [float(_run(_IMPORT.format(peer.package))) for _ in range(number + 1)]
    return {"package_ms": percentile(seconds[1:], 0.5) * 1e3}  # the first one compiles


def program(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure a whole program: import, connect, one request, end; its time, and the CPU time of it."""
    code = _program(peer, url)
    _run(code)  # compiles
    seconds, spent = [], []
    for _ in range(max(3, round(20 * effort))):
        before, begun = _children(), time.perf_counter()
        _run(code)
        seconds.append(time.perf_counter() - begun)
        spent.append(_children() - before)
    return {"ms": percentile(seconds, 0.5) * 1e3, "cpu_ms": percentile(spent, 0.5) * 1e3}


def instructions(peer: type[Peer], url: str, effort: float) -> dict[str, float]:  # noqa: ARG001 - counted once
    """Count the instructions of the same program: by callgrind, or by perf where there is no valgrind.

    Raises:
        FileNotFoundError: there is neither.
        CalledProcessError: perf may not look.
    """
    # Where all is slow because it is counted, threads would go to and fro for that alone.
    code = "import sys; sys.setswitchinterval(1.0); " + _program(peer, url)
    _run(code)  # compiles
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as found:
        if shutil.which("valgrind"):
            counting = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={found.name}"]
        else:
            counting = ["perf", "stat", "-x", ",", "-e", "instructions:u", "-o", found.name, "--"]
        _run(code, *counting, PYTHONHASHSEED="0")
        total = re.search(r"^totals: (\d+)$|^(\d+),,instructions", found.read(), re.MULTILINE)
    if total is None:
        raise RuntimeError(f"{counting[0]} has counted nothing")
    return {"millions": int(total[1] or total[2]) / 1e6}


def _program(peer: type[Peer], url: str) -> str:
    place = f"{peer.__module__.rpartition('.')[2]}:{peer.__name__}"
    name = next(name for name in PEERS if PEERS[name] == place)
    return _PROGRAM.format(name=name, url=url, command=Command.ECHO)


def _children() -> float:
    """Return the CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quiet(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure a session without messages: memory and threads of the process, and CPU time of a minute."""
    client = peer(url)
    client.connect()
    time.sleep(SETTLE)  # memory that is freed then is freed once, not every minute
    begun, spent = time.perf_counter(), time.process_time()
    time.sleep(max(0.5, 80 * effort))  # two pings of ours
    spent, taken = time.process_time() - spent, time.perf_counter() - begun
    figures = {"cpu_ms": spent / taken * 60e3, "rss_mb": _rss() / 1e6, "threads": float(_threads())}
    client.close()
    return figures


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


def jitter(peer: type[Peer], url: str, effort: float) -> dict[str, float]:
    """Measure how far from its time each audio frame reaches the server."""
    client = peer(url, talking=True)
    client.connect()
    client.request(Command.HEARD, {"times": True})
    time.sleep(max(1.0, 20 * effort))
    times = client.request(Command.HEARD)["times"]
    client.close()
    places = [when - number / FRAMES_PER_SECOND for number, when in enumerate(times)]
    middle = percentile(places, 0.5)
    return spread([abs(place - middle) for place in places], "us", 1e6)


def _rss() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def _threads() -> int:
    """Count all of them, not only those that Python knows."""
    return len(list(Path("/proc/self/task").iterdir()))


SCENARIOS: Final[dict[str, Scenario]] = {
    "import": imports,
    "program": program,
    "instructions": instructions,
    "quiet": quiet,
    "timeouts": timeouts,
    "jitter": jitter,
}
