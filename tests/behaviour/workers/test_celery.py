"""Celery's prefork workers. Messages and results are files: no broker is needed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD

from .celery_worker import Worker, celery_worker
from .conftest import ROOT, new_sessions

MAX_TASKS = 6

Sessions = Callable[[], list[BotSession]]


@pytest.fixture(scope="module")
def running(bot: EmbeddedBot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, BotSession]]:
    """Yield a worker with one child at a time, which was connected itself at the fork, by the session beside it."""
    new_sessions(bot)
    options = "--concurrency", "1", "--max-tasks-per-child", str(MAX_TASKS)
    with celery_worker(tmp_path_factory.mktemp("celery"), bot.ws_url, *options, RTVI_CONNECT_EARLY="1") as worker:
        early = bot.wait_for_session(GUARD)
        yield worker, early
        assert early.ended is None
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(GUARD) == 0
        assert early.wait_ended(GUARD).code == 1000


@pytest.fixture
def worker(running: tuple[Worker, BotSession]) -> Iterator[Worker]:
    """Yield the worker; the shared session of its child is ended after the test."""
    yield running[0]
    running[0].do("leave")


def test_a_client_connected_before_the_fork(running: tuple[Worker, BotSession], worker: Worker) -> None:
    """A client connected before the fork refuses at once in a child, with the cure; the worker's session continues."""
    refusal = worker.do("in_early")["answer"]
    assert refusal["times"] == 50
    assert refusal["seconds"] < 0.01
    assert "Make and connect a client in the child process" in refusal["text"]
    assert refusal["state"] == "disconnected"
    _, early = running
    early.send({"label": "rtvi-ai", "type": "server-message", "data": "are you there?"})
    answer = early.wait_for_message("client-message", GUARD, where=lambda m: m["data"]["t"] == "heard")
    assert answer["data"]["d"] == {"pid": worker.process.pid, "said": "are you there?"}


def test_a_child_that_is_replaced(worker: Worker, begun: Sessions) -> None:
    """After a number of tasks a child ends its session in good order and goes, and another one takes its place."""
    pids = [worker.do("in_shared", "a")["pid"]]
    (session,) = begun()
    while len(set(pids)) == 1:
        pids.append(worker.do("in_own", "b")["pid"])
        assert len(pids) <= MAX_TASKS + 1
    assert session.wait_ended(GUARD).code == 1000


def test_a_child_that_is_killed(worker: Worker, begun: Sessions) -> None:
    """The session of a killed child ends, its task is reported as lost, and another child does the next."""
    task = worker.send("hang")
    session = hung_session(begun)
    ((pid, child),) = worker.children().items()
    child.kill()
    session.wait_ended(GUARD)
    with pytest.raises(WorkerLostError):
        worker.result(task)
    again = worker.do("in_shared", "a")
    assert again["answer"] == "a"
    assert again["pid"] != pid
    assert list(worker.children()) == [again["pid"]]


def test_a_task_that_hangs(worker: Worker, begun: Sessions) -> None:
    """A soft time limit ends the call of the client, whose session continues; a hard one ends the child, not the
    pool.
    """
    with pytest.raises(SoftTimeLimitExceeded):
        worker.result(worker.send("hang", soft_time_limit=0.3))
    session = hung_session(begun)
    assert worker.do("in_shared", "a")["answer"] == "a"
    assert begun() == []
    for word in "bcd":
        with pytest.raises(TimeLimitExceeded):
            worker.result(worker.send("hang", time_limit=0.3))
        session.wait_ended(GUARD)
        assert worker.do("in_own", word)["answer"] == word


def hung_session(begun: Sessions) -> BotSession:
    """Return the started session once its client waits for the answer that never arrives."""
    deadline = time.monotonic() + GUARD
    while not (sessions := begun()):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    (session,) = sessions
    session.wait_for_message("client-message", GUARD, where=lambda m: m["data"]["t"] == "never")
    return session


def test_tasks_and_the_end(bot: EmbeddedBot, begun: Sessions, tmp_path: Path) -> None:
    """A client made at import and connected in a child answers, so does one made in the task, and several at once.

    A cold shutdown then ends the worker, its children, and their sessions in good order.
    """
    with celery_worker(tmp_path, bot.ws_url, "--concurrency", "2") as worker:
        assert worker.do("in_shared", "a")["answer"] == "a"
        assert worker.do("in_own", "b")["answer"] == "b"
        tasks = [worker.send(("in_shared", "in_own")[n % 2], str(n)) for n in range(8)]
        assert [worker.result(task)["answer"] for task in tasks] == list("01234567")
        assert worker.do("many", "c")["answer"] == [f"c{n}" for n in range(8)]
        children = worker.children().values()
        worker.process.send_signal(signal.SIGQUIT)
        worker.process.wait(GUARD)
        assert {session.wait_ended(GUARD).code for session in begun()} == {1000}
        assert not any(child.is_running() for child in children)
        assert "Traceback" not in worker.log()


def test_the_sample(bot: EmbeddedBot, begun: Sessions) -> None:
    """`samples/celery_task` asks its questions, to its own bot and to a remote one, and ends."""

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-m", "samples.celery_task", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=GUARD, check=True)
        return done.stdout.splitlines()

    with ThreadPoolExecutor(2) as both:
        on_its_own, elsewhere = both.submit(run), both.submit(run, "--url", bot.ws_url, "Who?")
    questions = "What time is it?", "And in Oslo?", "And in Rome?"
    assert on_its_own.result() == [f"{question} -> You said: {question}" for question in questions]
    assert elsewhere.result() == ["Who? -> You said: Who?"]
    assert [session.wait_ended(GUARD).code for session in begun()] == [1000]
