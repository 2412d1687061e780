"""A master and two workers, each a process of its own: their counts match the bot's."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.load_page import sessions_in
from tests.support.processes import free_port
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
USERS, CALLS = 4, 6
TOTAL = USERS * CALLS

Counts = dict[tuple[str, str], tuple[int, int]]
Failures = dict[tuple[str, str, str], int]


def rows(path: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def faults_in(log: str) -> set[str]:
    """Return the last lines of the tracebacks in Locust's log.

    Without one of Locust's own: it closes its CSV files while the greenlet that writes them may still run.
    """
    lines = {line for line in log.splitlines() if re.match(r"\w+(Error|Exception)\b", line)}
    return lines - {"ValueError: I/O operation on closed file."}


def swarm(url: str, folder: Path, *, forked: bool, patience: float = GUARD) -> tuple[int, Counts, Failures]:
    """Let the users of `locustfile.py` loose on a bot, from a master and two workers.

    Args:
        url: of the bot.
        folder: for the files to write.
        forked: the master makes the workers; else all are started alike, as on several machines.
        patience: seconds that a user waits for an answer.

    Returns:
        The master's exit status, how often each action was done and failed, and which errors there were.
    """
    command = [sys.executable, "-m", "locust", "-f", "tests/locust/locustfile.py", "--host", url]
    test = ["--headless", f"--users={USERS}", "--spawn-rate=100", "--run-time=50s", f"--csv={folder / 'run'}"]
    test.append(f"--rtvi-html={folder / 'pages' / 'run.html'}")
    bind, reach = ["--master-bind-host=127.0.0.1", "--master-bind-port"], ["--master-host=127.0.0.1", "--master-port"]
    port = str(free_port())
    if forked:
        parts = [["--processes=2", *test, *bind, port, *reach, port]]
    else:
        worker = ["--worker", *reach, port]
        parts = [["--master", "--expect-workers=2", *test, *bind, port], worker, worker]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CALLS": str(CALLS), "PATIENCE": str(patience)}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context((folder / f"{number}.log").open("w+")) for number in range(len(parts))]
        running = [
            stack.enter_context(subprocess.Popen([*command, *options], cwd=ROOT, env=environ, stdout=log, stderr=log))
            for options, log in zip(parts, logs, strict=True)
        ]
        for process in running:
            stack.callback(process.kill)
        statuses = [process.wait(GUARD) for process in running]
        for log in logs:
            log.seek(0)
        told = "".join(log.read() for log in logs)
    # A worker's status reports a failure of its own users, and the master's of any user.
    assert set(statuses) <= {0, 1}, told
    assert faults_in(told) == set(), told
    counts = {
        (row["Type"], row["Name"]): (int(row["Request Count"]), int(row["Failure Count"]))
        for row in rows(folder / "run_stats.csv")
    }
    failures = {
        (row["Method"], row["Name"], row["Error"].partition("(")[0]): int(row["Occurrences"])
        for row in rows(folder / "run_failures.csv")
    }
    return statuses[0], counts, failures


def bot_with(handler: Callable[[BotSession, dict[str, Any]], bool]) -> tuple[EmbeddedBot, Counter[str]]:
    """Return a bot, and a counter of its received messages by type."""
    seen: Counter[str] = Counter()

    def count(session: BotSession, message: dict[str, Any]) -> bool:
        seen[message["type"]] += 1
        return handler(session, message)

    return EmbeddedBot(handler=count, replies="Noon."), seen


def test_all_goes_well(tmp_path: Path) -> None:
    """Each session, request and answer is counted once, none of them failed, and the workers shared them.

    The page has them all.
    """
    workers: Counter[int] = Counter()

    def note(_: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "client-message":
            workers[message["data"]["d"]] += 1
        return False

    bot, seen = bot_with(note)
    with bot:
        status, counts, failures = swarm(bot.ws_url, tmp_path, forked=False)
        assert bot.sessions == []
    assert list(workers.values()) == [TOTAL // 2] * 2
    assert seen == {"client-ready": TOTAL, "client-message": TOTAL, "send-text": TOTAL}
    assert counts == {
        ("CONNECT", "connect"): (TOTAL, 0),
        ("REQUEST", "order"): (TOTAL, 0),
        ("ANSWER", "first text"): (TOTAL, 0),
        ("ANSWER", "complete"): (TOTAL, 0),
        ("", "Aggregated"): (4 * TOTAL, 0),
    }
    assert (status, failures) == (0, {})
    sessions = sessions_in(tmp_path / "pages" / "run.html")
    assert [session["outcome"] for session in sessions] == ["passed"] * TOTAL
    measured = Counter((done["kind"].upper(), done["name"]) for session in sessions for done in session["measurements"])
    assert measured == {name: count for name, (count, _) in counts.items() if name[0]}


@pytest.mark.matrix
def test_the_bot_fails(tmp_path: Path) -> None:
    """Of four requests one is refused, one ends the session, one is answered by a bot that says nothing more: so
    often it is counted, by its error, and the users go on."""
    number = itertools.count()
    fates: dict[int, int] = {}

    def fail(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "client-message":
            fate = fates[id(session)] = next(number) % 4
            if fate == 0:
                raise LookupError("no such order")
            if fate == 1:
                session.close(1011, "out of memory")
                return True
        return message["type"] == "send-text" and fates[id(session)] == 2

    bot, seen = bot_with(fail)
    with bot:
        status, counts, failures = swarm(bot.ws_url, tmp_path, forked=True, patience=2.0)
        assert bot.sessions == []
    quarter = TOTAL // 4
    assert seen == {"client-ready": TOTAL, "client-message": TOTAL, "send-text": 2 * quarter}
    assert counts == {
        ("CONNECT", "connect"): (TOTAL, 0),
        ("REQUEST", "order"): (TOTAL, 2 * quarter),
        ("ANSWER", "first text"): (2 * quarter, quarter),
        ("ANSWER", "complete"): (quarter, 0),
        ("", "Aggregated"): (TOTAL + TOTAL + 3 * quarter, 3 * quarter),
    }
    assert failures == {
        ("REQUEST", "order", "RequestRejectedError"): quarter,
        ("REQUEST", "order", "DisconnectedError"): quarter,
        ("ANSWER", "first text", "RequestTimeoutError"): quarter,
    }
    assert status == 1
    sessions = sessions_in(tmp_path / "pages" / "run.html")
    found = Counter(
        (session["outcome"], session["kind"], (session["error"] or "").partition(":")[0]) for session in sessions
    )
    assert found == {
        ("passed", None, ""): quarter,
        ("failed", None, "RequestRejectedError"): quarter,
        ("failed", None, "DisconnectedError"): quarter,
        ("failed", "timeout", "RequestTimeoutError"): quarter,
    }


def test_the_sample(tmp_path: Path) -> None:
    """`samples/load_test` shows its own command, tests its own bot by two workers, and passes options on to Locust."""
    entry = ROOT / "samples" / "load_test" / "__main__.py"
    assert "python3 run.py sample load_test --url http://" in entry.read_text(encoding="utf-8")
    port = str(free_port())
    ports = ["--master-bind-port", port, "--master-port", port]
    options = ["--users=4", "--spawn-rate=100", "--run-time=10s", f"--csv={tmp_path / 'run'}", *ports]
    done = subprocess.run(
        [sys.executable, "-m", "samples.load_test", *options], cwd=ROOT, capture_output=True, text=True, timeout=GUARD
    )
    assert done.returncode == 0, done.stderr
    assert faults_in(done.stderr) == set(), done.stderr
    counts = {(row["Type"], row["Name"]): row for row in rows(tmp_path / "run_stats.csv")}
    for entry_of in [
        ("CONNECT", "connect"),
        ("ANSWER", "first text"),
        ("ANSWER", "complete"),
    ]:
        assert int(counts[entry_of]["Request Count"]) >= 2
        assert counts[entry_of]["Failure Count"] == "0"
