"""Gunicorn's workers, each kind of them with and without `--preload`."""

from __future__ import annotations

import contextlib
import signal
import time
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.selection import some_of
from tests.support.slowness import GUARD, takes

from .conftest import new_sessions
from .gunicorn_server import PATCH_FIRST, Gunicorn

EACH_TIME = ("sync", "gthread-preload", "gevent")
KINDS = some_of(["sync", "sync-preload", "gthread", "gthread-preload", "gevent", "gevent-preload"], *EACH_TIME)
PRELOADED = some_of(["sync-preload", "gthread-preload", "gevent-preload"], "gthread-preload")

Sessions = Callable[[], list[BotSession]]


def gunicorn(folder: Path, bot: EmbeddedBot, kind: str, **settings: Any) -> Gunicorn:
    worker, _, preload = kind.partition("-")
    head = PATCH_FIRST if worker == "gevent" and preload else ""
    return Gunicorn(
        folder, bot.ws_url, worker, preload=bool(preload), connect_early=bool(preload), head=head, **settings
    )


def wait_until_quiet(process: psutil.Process) -> None:
    """Wait until every thread of a process sleeps: a worker still works on a request after its answer has arrived.

    Its work after the answer does not cope with signals: SIGQUIT in gthread while it starts a thread stops it for ever.
    """
    deadline = time.monotonic() + GUARD
    busy = True
    while busy:
        assert time.monotonic() < deadline
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            tasks = Path(f"/proc/{process.pid}/task").iterdir()
            busy = any(" S " not in (task / "stat").read_text() for task in tasks)


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, bot: EmbeddedBot, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Yield a server of the kind that is asked for; one that preloads is connected itself, by the session beside it."""
    new_sessions(bot)
    with gunicorn(tmp_path_factory.mktemp("gunicorn"), bot, request.param) as server:
        early = bot.wait_for_session(GUARD) if server.connected else None
        yield server, early
        if early is not None:
            assert early.ended is None
        assert server.stop() == 0
    if early is not None:
        assert early.wait_ended(GUARD).code == 1000
    assert "Traceback" not in server.log()


@pytest.fixture
def server(running: Any) -> Iterator[Gunicorn]:
    """Yield the server; its workers' shared session is ended after the test."""
    yield running[0]
    running[0].get("leave")


@pytest.mark.parametrize("running", KINDS, indirect=True)
class TestWorker:
    """One worker after the other of one master."""

    def test_requests(self, server: Gunicorn, begun: Sessions) -> None:
        """A client made at import and connected in the worker answers, and so does one made in the request."""
        assert [server.get("in_shared", "a")["answer"], server.get("in_shared", "b")["answer"]] == ["a", "b"]
        shared = begun()
        assert len(shared) == 1
        assert server.get("in_own", "c")["answer"] == "c"
        assert server.get("talk")["answer"] > 0
        assert [session.wait_ended(GUARD).code for session in begun()] == [1000, 1000]
        assert [session.ended for session in shared] == [None]

    def test_requests_at_once(self, server: Gunicorn) -> None:
        """Simultaneous requests, and requests of several threads of one view, are all answered."""
        views = ["in_shared", "in_own"] * 4
        with ThreadPoolExecutor(len(views)) as browsers:
            answers = list(browsers.map(lambda n: server.get(views[n], str(n))["answer"], range(len(views))))
        assert answers == list(map(str, range(len(views))))
        assert server.get("many", "x")["answer"] == [f"x{n}" for n in range(8)]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGABRT, signal.SIGKILL])
    def test_a_worker_that_is_stopped(self, server: Gunicorn, begun: Sessions, number: signal.Signals) -> None:
        """The session of a stopped worker ends, in good order unless it was killed, and the next worker serves."""
        old = server.get("in_shared", "a")["pid"]
        (session,) = begun()
        worker = psutil.Process(old)
        wait_until_quiet(worker)
        worker.send_signal(number)
        assert (session.wait_ended(GUARD).code == 1000) is (number != signal.SIGKILL)
        worker.wait(GUARD)
        new = server.get("in_shared", "b")
        assert new["answer"] == "b"
        assert [process.pid for process in server.workers()] == [new["pid"]]


@pytest.mark.parametrize("running", PRELOADED, indirect=True)
def test_a_client_connected_before_the_fork(running: Any, server: Gunicorn) -> None:
    """A client connected before the fork refuses at once in the worker, with the cure; the master's session
    continues.
    """
    _, early = running
    refusal = server.get("in_early")["answer"]
    assert refusal["times"] == 50
    assert refusal["seconds"] < 0.01
    assert "connect in the request or in a post-fork hook, not at import" in refusal["text"]
    assert refusal["state"] == "disconnected"
    early.send({"label": "rtvi-ai", "type": "server-message", "data": "are you there?"})
    answer = early.wait_for_message("client-message", GUARD, where=lambda m: m["data"]["t"] == "heard")
    assert answer["data"]["d"] == {"pid": server.process.pid, "said": "are you there?"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_reloaded_and_stopped(bot: EmbeddedBot, begun: Sessions, tmp_path: Path, kind: str) -> None:
    """On SIGHUP, after a number of requests, and with the server, a worker ends in order, and the next one serves."""
    with gunicorn(tmp_path, bot, kind) as server:
        workers = [psutil.Process(server.get("in_shared", "a")["pid"])]
        server.configure(max_requests=2)
        server.process.send_signal(signal.SIGHUP)
        workers[0].wait(GUARD)
        workers.append(psutil.Process(server.get("in_shared", "b")["pid"]))
        assert server.get("in_shared", "c") == {"pid": workers[1].pid, "answer": "c"}
        workers[1].wait(GUARD)
        workers.append(psutil.Process(server.get("in_shared", "d")["pid"]))
        assert len(set(workers)) == 3
        assert server.stop() == 0
        assert not any(worker.is_running() for worker in workers)
    sessions = begun()
    assert len(sessions) == 3 + server.connected
    assert [session.wait_ended(GUARD).code for session in sessions] == [1000] * len(sessions)
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("worker_class", ["sync", "gthread", "gevent"])
def test_a_worker_that_hangs(bot: EmbeddedBot, begun: Sessions, tmp_path: Path, worker_class: str) -> None:
    """A handler that never returns and a request that waits for ever delay the end by no more than gunicorn grants."""
    with (
        Gunicorn(tmp_path, bot.ws_url, worker_class, graceful_timeout=1) as server,
        ThreadPoolExecutor(1) as browser,
    ):
        worker = psutil.Process(server.get("block")["pid"])
        sessions = begun()
        sessions[-1].send({"label": "rtvi-ai", "type": "server-message"})
        sessions[-1].wait_for_message("client-message", GUARD, where=lambda m: m["data"]["t"] == "blocked")
        request = browser.submit(server.get, "hang")
        sessions[-1].wait_for_message("client-message", GUARD, where=lambda m: m["data"]["t"] == "never")
        with takes(3.0):
            assert server.stop() == 0
        for session in sessions:
            session.wait_ended(GUARD)
        with contextlib.suppress(psutil.NoSuchProcess):
            # Gunicorn kills a worker that is late and leaves: who reaps it then is up to the system.
            limit = time.monotonic() + GUARD
            while worker.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < limit
        assert isinstance(request.exception(GUARD), OSError)


def test_a_request_that_takes_too_long(bot: EmbeddedBot, begun: Sessions, tmp_path: Path) -> None:
    """A sync worker that gunicorn ends for it, by an exception in the call that waits, ends its session before."""
    with Gunicorn(tmp_path, bot.ws_url, "sync", timeout=8) as server:
        with pytest.raises(urllib.error.HTTPError, match="500") as answer:
            server.get("hang")
        answer.value.close()
        (session,) = begun()
        assert session.wait_ended(GUARD).code == 1000
        assert server.get("in_own", "a")["answer"] == "a"
        assert "WORKER TIMEOUT" in server.log()
