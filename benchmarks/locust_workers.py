"""How many sessions in real time one process holds, and workers of Locust: CPU, memory, gaps; and a storm of connects.

`python -m benchmarks --only locust` measures it and writes docs/background/many-sessions.md. The largest number of
sessions that one worker holds well is the basis for planning a large test. Each row has new processes. The bot is the
server of the benchmarks, in a process of its own. In some rows, taskset gives it a core of its own, or it speaks TLS.
The sessions are from `held.py`.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import attrs
import psutil
import trustme

from rtvi_sync.testing import run_many

from . import server
from .held import AUTHORITY, client_of, hold
from .peers.base import SETTLE
from .results import Results
from .server_frames import FRAMES_PER_SECOND

ROOT: Final = Path(__file__).parents[1]
_MARKED: Final = re.compile(r"(<!-- scaling:begin -->\n).*?(\n<!-- scaling:end -->)", re.DOTALL)


@attrs.frozen
class Run:
    """A row to measure.

    Attributes:
        workers: of Locust; 0: one process without Locust.
        sessions: of each worker, or of the process.
        apart: whether the bot has a core of its own.
        tls: whether the bot speaks TLS.
    """

    workers: int
    sessions: int
    apart: bool = False
    tls: bool = False


RUNS: Final = (
    *(Run(0, sessions) for sessions in (50, 200)),
    *(Run(1, sessions) for sessions in (50, 200)),
    *(Run(workers, 50) for workers in (2, 4)),
    *(Run(1, sessions, apart=True) for sessions in (50, 100, 150, 200)),
    Run(1, 100, apart=True, tls=True),
)
_SECONDS: Final = 20.0
#: A storm: sessions that connect, in seconds. The bot has a core of its own where the machine allows.
STORM: Final = (500, 10)
_SPAWN_RATE: Final = 50.0
_LIMIT: Final = 120.0
# A process holds its sessions well if three things are true. It leaves a part of its core free for bursts; 99 % of the
# gaps are no longer than this (ms); and only one look in a thousand finds it behind real time.
_BUSY: Final = 0.7
_GAP: Final = 100.0
_REAL_TIME: Final = 0.999
# The sessions of a large test.
_MANY: Final = 10_000
# Memory of a worker of Locust without sessions, in MB, and workers of a machine with 32 cores.
_WORKER_MB: Final = 100
_WORKERS_OF_MACHINE: Final = 30
# Bits and packets a second of 16 kHz audio one way, on the wire.
_BITS: Final = 290_000
_PACKETS: Final = 50
# The share of a worker's highest measured connect rate that the plan uses.
_RAMP: Final = 0.1
_HEADERS: Final = (
    *("held by", "sessions", "CPU, all", "CPU each", "RSS each", "request p50", "request p99"),
    *("gap p50", "gap p99", "in real time", "CPU of the master"),
)
_STORM_HEADERS: Final = ("connects of one worker", "failed", "p50", "p99", "longest", "CPU of the worker")


@attrs.frozen(kw_only=True)
class Held:
    """The cost of holding sessions.

    Attributes:
        workers: of Locust, that held them; 0: one process without Locust.
        sessions: how many.
        cpu: seconds of CPU in each second, of all processes that held them.
        rss_kb: memory of each session, above the memory of a process without sessions.
        requests: p50 and p99 of a request, in ms.
        gaps: p50 and p99 of the longest silence of a session that the server noticed in two seconds, in ms: 20 is
            perfect.
        real_time: share of the looks that found the session's audio in real time.
        master: seconds of CPU of Locust's master in each second.
        apart: whether the bot had a core of its own.
        tls: whether the bot spoke TLS.
    """

    workers: int
    sessions: int
    cpu: float
    rss_kb: float
    requests: tuple[float, float]
    gaps: tuple[float, float]
    real_time: float
    master: float = 0.0
    apart: bool = False
    tls: bool = False

    @property
    def well(self) -> bool:
        """Whether CPU, gaps and pace were all within their limits."""
        return self.cpu <= _BUSY and self.gaps[1] < _GAP and self.real_time >= _REAL_TIME

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        workers = f"Locust, {self.workers} worker{'s' if self.workers > 1 else ''}"
        return (
            (workers if self.workers else "`run_many()`, one process") + _about(self.apart, self.tls),
            str(self.sessions),
            f"{100 * self.cpu:.0f} %",
            f"{100 * self.cpu / self.sessions:.2f} %",
            f"{self.rss_kb:.0f} kB",
            *(f"{value:.1f} ms" for value in (*self.requests, *self.gaps)),
            f"{100 * self.real_time:.1f} %",
            f"{100 * self.master:.1f} %" if self.workers else "",
        )


@attrs.frozen(kw_only=True)
class Storm:
    """Sessions that one worker of Locust has connected at a rate.

    Attributes:
        sessions: how many.
        seconds: the time in which they started.
        failed: how many did not connect.
        connects: p50, p99 and the longest of their connects, in ms.
        cpu: seconds of CPU of the worker in each second.
        apart: as of `Held`.
        tls: as of `Held`.
    """

    sessions: int
    seconds: float
    failed: int
    connects: tuple[float, float, float]
    cpu: float
    apart: bool = False
    tls: bool = False

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (
            f"{self.sessions} in {self.seconds:g} s" + _about(self.apart, self.tls),
            str(self.failed),
            *(f"{value:.0f} ms" for value in self.connects),
            f"{100 * self.cpu:.0f} %",
        )


def _about(apart: bool, tls: bool) -> str:
    return ", bot on a core of its own" * apart + ", TLS" * tls


@attrs.frozen(kw_only=True)
class Bot:
    """The server that sessions are held against.

    Attributes:
        url: where it is.
        before: the prefix of the commands that hold sessions.
        authority: file of the authority that has signed its certificate; "" without TLS.
    """

    url: str
    before: Sequence[str] = ()
    authority: str = ""


def can_part() -> bool:
    """Return whether processes can have cores of their own here."""
    return len(os.sched_getaffinity(0)) > 1 and shutil.which("taskset") is not None


@contextlib.contextmanager
def running_bot(*, apart: bool = False, tls: bool = False) -> Iterator[Bot]:
    """Run the server within the block: on the first core, and the others for those who hold sessions, if `apart`."""
    first, *rest = sorted(os.sched_getaffinity(0))
    its, theirs = (("taskset", "-c", str(first)), ("taskset", "-c", ",".join(map(str, rest)))) if apart else ((), ())
    with tempfile.TemporaryDirectory() as folder:
        pem, authority = (str(Path(folder, name)) if tls else "" for name in ("bot.pem", "authority.pem"))
        if tls:
            ca = trustme.CA()
            ca.cert_pem.write_to_path(authority)
            ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
        with server.running(its, pem) as url:
            yield Bot(url=url, before=theirs, authority=authority)


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
        """The kB by which the memory has grown since this object was created."""
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


_T = TypeVar("_T")


class _PortTakenError(RuntimeError):
    """The port of Locust's master is in use."""


def by_locust(bot: Bot, workers: int, number: int, seconds: float) -> Held:
    """Hold sessions in each of the workers of a Locust master."""
    return _on_a_free_port(lambda: _by_locust(bot, workers, number, seconds))


def storm(bot: Bot, number: int, seconds: float) -> Storm:
    """Have one worker connect sessions at a rate, and hold them until the last one is there."""
    return _on_a_free_port(lambda: _storm(bot, number, seconds))


def _on_a_free_port(work: Callable[[], _T]) -> _T:
    while True:
        try:
            return work()
        except _PortTakenError:
            pass  # by another process, since it was found free: Locust cannot choose one itself


@attrs.frozen
class _Locust:
    """A master with workers that run.

    Attributes:
        master: its process, whose errors are a pipe.
        workers: their processes.
        folder: where the master writes its figures, as `run_stats.csv`.
        logs: of the workers.
    """

    master: subprocess.Popen[str]
    workers: Sequence[subprocess.Popen[str]]
    folder: str
    logs: Sequence[Path]

    def end(self) -> dict[str, dict[str, str]]:
        """End the master, and return its figures."""
        self.master.terminate()
        self.master.communicate(timeout=_LIMIT)
        return _stats(self.folder)


@contextlib.contextmanager
def _running_locust(bot: Bot, user: str, workers: int, users: int, rate: float) -> Iterator[_Locust]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        file = str(ROOT / "benchmarks" / "locustfile.py")
        begin = [sys.executable, "-m", "locust", "-f", file, user, "--host", bot.url]
        run = ["--master", "--headless", "--master-bind-host=127.0.0.1", "--master-bind-port", port]
        run += [f"--expect-workers={workers}", f"--users={users}", f"--spawn-rate={rate}", "--only-summary"]
        work = ["--worker", "--master-host=127.0.0.1", "--master-port", port]
        environ = {AUTHORITY: bot.authority} if bot.authority else {}
        master = stack.enter_context(_started([*begin, *run, "--csv", f"{folder}/run"], {}, pipe=True))
        logs = [Path(folder, f"worker{number}.log") for number in range(workers)]
        commands = [[*bot.before, *begin, *work, "--logfile", str(log)] for log in logs]
        holders = [stack.enter_context(_started(command, environ, pipe=False)) for command in commands]
        _wait_for_line(master, "Sending spawn jobs")
        yield _Locust(master, holders, folder, logs)


def _by_locust(bot: Bot, workers: int, number: int, seconds: float) -> Held:
    total = workers * number
    with _running_locust(bot, "Holder", workers, total, _SPAWN_RATE * workers) as locust:
        meter = Meter([holder.pid for holder in locust.workers])
        _wait_for_line(locust.master, " total users)")  # all have been spawned, even if some have ended again
        time.sleep(SETTLE)
        meter.start()
        leader = Meter([locust.master.pid])
        time.sleep(seconds)
        cpu, rss_kb, leading = meter.cpu, meter.grown_kb / total, leader.cpu
        ended, given_up = time.time(), time.monotonic() + _LIMIT
        # On a busy machine the first figures, or the reasons of ended users, arrive later than this.
        while not (errors := _reasons(locust.logs)) and time.monotonic() < given_up:
            if {"heard", "gap"} <= _stats(locust.folder).keys():
                break
            time.sleep(0.5)
            ended = time.time()
        stats = locust.end()
        users = users_at(_lines(Path(locust.folder, "run_stats_history.csv")), ended)
    if users != total:
        raise RuntimeError(f"{total - users} of {total} users were gone, and their sessions with them:\n{errors}")
    if not {"heard", "gap"} <= stats.keys():
        raise RuntimeError(f"figures are missing after {seconds:.0f} s and {_LIMIT:.0f} more: {sorted(stats)}")
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


def _storm(bot: Bot, number: int, seconds: float) -> Storm:
    with _running_locust(bot, "Caller", 1, number, number / seconds) as locust:
        meter = Meter([worker.pid for worker in locust.workers])
        _wait_for_line(locust.master, " total users)")
        cpu, given_up = meter.cpu, time.monotonic() + _LIMIT
        while int(_stats(locust.folder).get("connect", {}).get("Request Count", 0)) < number:
            if time.monotonic() > given_up:
                raise RuntimeError(f"not all of {number} connects have ended:\n{_reasons(locust.logs)}")
            time.sleep(0.5)
        found = locust.end()["connect"]
    return Storm(
        sessions=number,
        seconds=seconds,
        failed=int(found["Failure Count"]),
        connects=(float(found["50%"]), float(found["99%"]), float(found["100%"])),
        cpu=cpu,
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
def _started(command: Sequence[str], variables: Mapping[str, str], *, pipe: bool) -> Iterator[subprocess.Popen[str]]:
    errors = subprocess.PIPE if pipe else subprocess.DEVNULL
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
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


def table(rows: Sequence[Held], storms: Sequence[Storm] = ()) -> str:
    """Return Markdown: the measurements, and a plan of a large test from the most sessions that one worker held well.

    Raises:
        RuntimeError: it held none of its rows well, so nothing follows.
    """
    measured = _markdown(_HEADERS, [row.cells() for row in rows])
    # Not extrapolated from the CPU of few sessions: gaps and latencies grow long before a core is busy.
    most = max((row for row in rows if row.workers == 1 and row.well), key=lambda row: row.sessions, default=None)
    if most is None:
        raise RuntimeError(f"one worker held none of its rows well:\n{measured}")
    stormy = (
        _markdown(_STORM_HEADERS, [each.cells() for each in storms]) if storms else "No storm of connects was measured."
    )
    return (
        f"{measured}\n\n"
        f"In real time, with a p99 of the gaps below {_GAP:.0f} ms and no more than {100 * _BUSY:.0f} % of a core, "
        f"one worker held **{most.sessions} sessions**, on {100 * most.cpu:.0f} % of a core.\n\n"
        f"{stormy}\n\n{plan(most, storms)}"
    )


def plan(most: Held, storms: Sequence[Storm]) -> str:
    """Return the table of the resources for a large test, from the most sessions that one worker holds well."""
    workers = math.ceil(_MANY / most.sessions)
    machines = math.ceil(workers / _WORKERS_OF_MACHINE)
    rates = [each.sessions / each.seconds for each in storms if not each.failed] or [_SPAWN_RATE]
    rate = max(1, round(_RAMP * min(rates) * workers))
    return _markdown(
        (f"for {_MANY:,} sessions", ""),
        [
            ("workers", f"{workers:,}, {most.sessions} sessions each"),
            (
                "cores",
                f"{workers + machines + 1:,}: one for each worker, one for the system of each machine, one for the "
                "master",
            ),
            ("machines of 32 cores", f"{machines:,}"),
            (
                "memory",
                f"{(_MANY * most.rss_kb / 1000 + workers * _WORKER_MB) / 1000:.0f} GB: {most.rss_kb:.0f} kB for each "
                f"session, {_WORKER_MB} MB for each worker",
            ),
            (
                "network, each way",
                f"{_MANY * _BITS / 1e9:.1f} Gbit/s and {_MANY * _PACKETS:,} packets a second while all speak",
            ),
            (
                "ramp",
                f"`--spawn-rate {rate}`: all are there after {_MANY / rate:.0f} s; each worker starts "
                f"{rate / workers:.1f} a second",
            ),
        ],
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---", *("--:" if len(head) > 2 else "---" for _ in head[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measure(effort: float = 1.0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measure all rows and both storms; those for which a core cannot be kept apart are left out."""
    seconds, held, storms = max(4.0, _SECONDS * effort), [], []
    parted = can_part()
    if not parted:
        print("locust: rows with the bot on a core of its own need two cores and taskset")
    for run in RUNS:
        if run.apart and not parted:
            continue
        with running_bot(apart=run.apart, tls=run.tls) as bot:
            if run.workers:
                row = by_locust(bot, run.workers, run.sessions, seconds)
            else:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
                    row = one.submit(in_one_process, bot.url, run.sessions, seconds).result()
        row = attrs.evolve(row, apart=run.apart, tls=run.tls)
        print("locust: " + " | ".join(row.cells()), flush=True)
        held.append(attrs.asdict(row))
    for tls in (False, True):
        with running_bot(apart=parted, tls=tls) as bot:
            found = attrs.evolve(storm(bot, *STORM), apart=parted, tls=tls)
        print("locust: " + " | ".join(found.cells()), flush=True)
        storms.append(attrs.asdict(found))
    return held, storms


def page(text: str, results: Results) -> str:
    """Return docs/background/many-sessions.md with its tables generated again."""
    if not results.held:
        return text
    held, storms = [Held(**row) for row in results.held], [Storm(**each) for each in results.storms]
    when = f"Measured: {results.measured['locust']}; {results.machines['locust']['processor']}."
    return _MARKED.sub(lambda match: f"{match[1]}{table(held, storms)}\n\n{when}{match[2]}", text)
