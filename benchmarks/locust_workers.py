"""How many sessions in real time one process holds, and 1, 2 and 4 workers of Locust: CPU, memory, gaps.

    python -m benchmarks.locust_workers [--sessions 50] [--seconds 20] [--write]

Each worker holds as many sessions as the one process. That is tried with four times as many, too, and a single worker
with two, three and four times: the most that it holds well is what a large test is reckoned by. Every process is new
for its row. The server is a process of its own, the sessions are those of `held.py`. `--write` puts the table where
docs/scaling.md has its place.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

import attrs
import psutil

from rtvi_sync.testing import run_many

from . import server
from .held import client_of, hold
from .peers.base import SETTLE
from .server_frames import FRAMES_PER_SECOND

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "scaling.md"
#: How many workers (0: one process without Locust), and how many times the number of sessions each of them holds.
RUNS: Final = ((0, 1), (0, 4), (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (4, 1))
_SPAWN_RATE: Final = 50.0
_LIMIT: Final = 120.0
# A process holds its sessions well if it leaves of its core what is needed when much comes at once, if one gap in a
# hundred is not longer than this (ms), and if it is in real time but for a look in a thousand.
_BUSY: Final = 0.7
_GAP: Final = 100.0
_REAL_TIME: Final = 0.999
# The sessions of a large test.
_MANY: Final = 100_000
# Memory of a worker of Locust without sessions, in MB.
_WORKER_MB: Final = 100
_HEADERS: Final = (
    *("held by", "sessions", "CPU, all", "CPU each", "RSS each", "request p50", "request p99"),
    *("gap p50", "gap p99", "in real time", "CPU of the master"),
)


@attrs.frozen(kw_only=True)
class Held:
    """What it cost to hold sessions.

    Attributes:
        workers: of Locust, that held them; 0: one process without Locust.
        sessions: how many.
        cpu: seconds of CPU in each second, of all processes that held them.
        rss_kb: memory of each session, without that of a process that has none.
        requests: p50 and p99 of a request, in ms.
        gaps: p50 and p99 of the longest silence of a session that the server noticed in two seconds, in ms: 20 is
            perfect.
        real_time: share of the looks that found the session's audio in real time.
        master: seconds of CPU of Locust's master in each second.
    """

    workers: int
    sessions: int
    cpu: float
    rss_kb: float
    requests: tuple[float, float]
    gaps: tuple[float, float]
    real_time: float
    master: float = 0.0

    @property
    def well(self) -> bool:
        """Whether CPU, gaps and pace were all within their limits."""
        return self.cpu <= _BUSY and self.gaps[1] < _GAP and self.real_time >= _REAL_TIME

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        workers = f"Locust, {self.workers} worker{'s' if self.workers > 1 else ''}"
        return (
            workers if self.workers else "`run_many()`, one process",
            str(self.sessions),
            f"{100 * self.cpu:.0f} %",
            f"{100 * self.cpu / self.sessions:.2f} %",
            f"{self.rss_kb:.0f} kB",
            *(f"{value:.1f} ms" for value in (*self.requests, *self.gaps)),
            f"{100 * self.real_time:.1f} %",
            f"{100 * self.master:.1f} %" if self.workers else "",
        )


class Meter:
    """CPU and memory of processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._rss = self.rss
        self._begun = (time.monotonic(), self._spent)

    @property
    def rss(self) -> int:
        """The memory in bytes."""
        return sum(int(process.memory_info().rss) for process in self._processes)

    @property
    def grown_kb(self) -> float:
        """The seconds since this object was created."""
        return (self.rss - self._rss) / 1000

    @property
    def _spent(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def start(self) -> None:
        """Start to count CPU."""
        self._begun = (time.monotonic(), self._spent)

    @property
    def cpu(self) -> float:
        """The CPU seconds per second since `start()`."""
        moment, spent = self._begun
        return (self._spent - spent) / (time.monotonic() - moment)


def in_one_process(url: str, number: int, seconds: float) -> Held:
    """Hold sessions by run_many() in this process, which must be new: memory left by earlier runs must not count."""
    meter = Meter([os.getpid()])
    since = time.monotonic() + number / _SPAWN_RATE + SETTLE
    looks: list[tuple[float, float]] = []
    figures: list[float] = []

    def watch() -> None:
        time.sleep(since - time.monotonic())
        meter.start()
        time.sleep(seconds * 0.9)
        figures.extend((meter.cpu, meter.grown_kb / number))

    watching = threading.Thread(target=watch)
    watching.start()
    report = run_many(
        lambda client: looks.extend(hold(client, since, since + seconds)),
        number,
        lambda: client_of(url),
        concurrency=number,
        spawn_rate=_SPAWN_RATE,
    )
    watching.join()
    if report.failed:
        raise RuntimeError(f"sessions failed:\n{report}")
    done = [one for row in report.rows for one in row.measurements if one.kind == "request" and one.began >= since]
    return Held(
        workers=0,
        sessions=number,
        cpu=figures[0],
        rss_kb=figures[1],
        requests=_percentiles([one.seconds for one in done]),
        gaps=_percentiles([gap for gap, _ in looks]),
        real_time=sum(rate > 0.98 * FRAMES_PER_SECOND for _, rate in looks) / len(looks),
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99 in ms."""
    return 1000 * median(seconds), 1000 * sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]


class _PortTakenError(RuntimeError):
    """The port of Locust's master is in use."""


def by_locust(url: str, workers: int, number: int, seconds: float) -> Held:
    """Hold sessions in each of the workers of a Locust master."""
    while True:
        try:
            return _by_locust(url, workers, number, seconds)
        except _PortTakenError:
            pass  # by another process, since it was found free: Locust cannot choose one itself


def _by_locust(url: str, workers: int, number: int, seconds: float) -> Held:
    total = workers * number
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        begin = [sys.executable, "-m", "locust", "-f", str(ROOT / "benchmarks" / "locustfile.py"), "--host", url]
        run = ["--master", "--headless", "--master-bind-host=127.0.0.1", "--master-bind-port", port]
        run += [f"--expect-workers={workers}", f"--users={total}", f"--spawn-rate={_SPAWN_RATE * workers}"]
        run += ["--only-summary"]
        work = ["--worker", "--master-host=127.0.0.1", "--master-port", port]
        master = stack.enter_context(_started([*begin, *run, "--csv", f"{folder}/run"], pipe=True))
        logs = [Path(folder, f"worker{number}.log") for number in range(workers)]
        holders = [stack.enter_context(_started([*begin, *work, "--logfile", str(log)], pipe=False)) for log in logs]
        _wait_for_line(master, "Sending spawn jobs")
        meter = Meter([holder.pid for holder in holders])
        _wait_for_line(master, " total users)")  # all have been spawned, even if some have ended again
        time.sleep(SETTLE)
        meter.start()
        leader = Meter([master.pid])
        time.sleep(seconds)
        cpu, rss_kb, leading = meter.cpu, meter.grown_kb / total, leader.cpu
        ended, given_up = time.time(), time.monotonic() + _LIMIT
        # On a busy machine the first figures, or the reasons of ended users, arrive later than this.
        while not (errors := _reasons(logs)) and time.monotonic() < given_up:
            if {"heard", "gap"} <= _stats(folder).keys():
                break
            time.sleep(0.5)
            ended = time.time()
        master.terminate()
        master.communicate(timeout=_LIMIT)
        stats = _stats(folder)
        users = users_at(_lines(Path(folder, "run_stats_history.csv")), ended)
    if users != total:
        raise RuntimeError(f"{total - users} of {total} users were gone, and their sessions with them:\n{errors}")
    if not {"heard", "gap"} <= stats.keys():
        raise RuntimeError(f"in {seconds:.0f} s and {_LIMIT:.0f} more no figures of all kinds came: {sorted(stats)}")
    heard, gap = stats["heard"], stats["gap"]
    if int(heard["Failure Count"]):
        raise RuntimeError(f"requests failed: {heard}")
    return Held(
        workers=workers,
        sessions=total,
        cpu=cpu,
        rss_kb=rss_kb,
        requests=(float(heard["50%"]), float(heard["99%"])),
        gaps=(float(gap["50%"]), float(gap["99%"])),
        real_time=1 - int(gap["Failure Count"]) / int(gap["Request Count"]),
        master=leading,
    )


def users_at(history: Sequence[Mapping[str, str]], moment: float) -> int:
    """Return the number of users at a time, from `_stats_history.csv`; users that have ended do not return."""
    # Its times are truncated to seconds.
    return next((int(row["User Count"]) for row in reversed(history) if int(row["Timestamp"]) + 1 <= moment), 0)


def _reasons(logs: Sequence[Path]) -> str:
    """Return the reasons why users have ended; empty if there are none.

    They are read from the workers' logs, because a master under load may lose the report that has them.
    """
    texts = [log.read_text(encoding="utf-8") for log in logs if log.exists()]
    return "".join(text for text in texts if "Traceback" in text)


def _stats(folder: str) -> dict[str, dict[str, str]]:
    return {row["Name"]: row for row in _lines(Path(folder, "run_stats.csv"))}


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.exists():  # nothing has been written yet
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@contextlib.contextmanager
def _started(command: Sequence[str], *, pipe: bool) -> Iterator[subprocess.Popen[str]]:
    errors = subprocess.PIPE if pipe else subprocess.DEVNULL
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if words in line:
            return
    raise (_PortTakenError if "Address already in use" in told else RuntimeError)(f"Locust has ended:\n{told}")


def table(rows: Sequence[Held]) -> str:
    """Return Markdown: what was measured, and what follows for a large test from the most that one worker held well.

    Raises:
        RuntimeError: it held none of its rows well, so nothing follows.
    """
    lines = [_HEADERS, ("---", *("--:" for _ in _HEADERS[1:])), *(row.cells() for row in rows)]
    measured = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    # Not extrapolated from the CPU of few sessions: gaps and latencies grow long before a core is busy.
    most = max((row for row in rows if row.workers == 1 and row.well), key=lambda row: row.sessions, default=None)
    if most is None:
        raise RuntimeError(f"one worker held none of its rows well:\n{measured}")
    cores = math.ceil(_MANY / most.sessions)
    return (
        f"{measured}\n\n"
        f"The most that one worker held in real time, with a p99 of the gaps below {_GAP:.0f} ms and no more than "
        f"{100 * _BUSY:.0f} % of a core, are **{most.sessions} sessions**, on {100 * most.cpu:.0f} % of a core.\n"
        f"So {_MANY:,} take {cores:,} workers with a core each, and {_MANY * most.rss_kb / 1e6:.0f} GB of memory "
        f"in addition to {cores * _WORKER_MB / 1000:.0f} GB for the workers themselves."
    )


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50, help="in each process")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/scaling.md")
    given = parser.parse_args()
    rows = []
    for workers, times in RUNS:
        with server.running() as url:
            if workers:
                rows.append(by_locust(url, workers, times * given.sessions, given.seconds))
            else:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
                    rows.append(one.submit(in_one_process, url, times * given.sessions, given.seconds).result())
        print(" | ".join(rows[-1].cells()), flush=True)
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        begin, end = "<!-- scaling:begin -->\n", "\n<!-- scaling:end -->"
        new, count = re.subn(f"{begin}.*?{end}", lambda _: begin + table(rows) + end, text, flags=re.DOTALL)
        if count != 1:
            raise RuntimeError(f"{PAGE} has no place for the table")
        PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
