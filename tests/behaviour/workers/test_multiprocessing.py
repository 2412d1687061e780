"""Children of multiprocessing, of concurrent.futures and of os.fork()."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from typing import Any

import pytest

from rtvi_sync import (
    BotReadyData,
    MemoryTransport,
    RequestTimeoutError,
    RTVIClient,
    RTVIEvent,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.forking import in_child
from tests.support.selection import some_of
from tests.support.slowness import GUARD

from .conftest import ROOT, WARNINGS

Sessions = Callable[[], list[BotSession]]


def ended_politely(session: BotSession) -> bool:
    """Return whether the client said goodbye; False if the system closed the connection of a process that was gone."""
    return session.wait_ended(GUARD).code == 1000


KINDS = [(method, style) for method in ("fork", "spawn", "forkserver") for style in ("process", "pool", "executor")]


EACH_TIME = [("fork", "os_fork"), ("spawn", "executor"), ("forkserver", "pool"), ("preloaded", "process")]


@pytest.mark.parametrize(("method", "style"), some_of([*KINDS, EACH_TIME[0], EACH_TIME[-1]], *EACH_TIME))
def test_children(bot: EmbeddedBot, begun: Sessions, method: str, style: str) -> None:
    """Clients made at import and in the child work there, several at once, beside a live session of the parent's.

    A client that was connected before the fork says so in less than 10 ms. All sessions end in good order with the
    processes, and stderr stays empty.
    """
    program = subprocess.run(
        [sys.executable, "-m", "tests.behaviour.workers.parent", method, style],
        env={**os.environ, "RTVI_BOT_URL": bot.ws_url, "PYTHONWARNINGS": WARNINGS},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (program.returncode, program.stderr) == (0, "")
    told = json.loads(program.stdout)
    parent, answer = told["parent"]
    assert answer == "d"
    of_children: dict[str, list[Any]] = {}
    for child in told["children"]:
        assert child["pid"] != parent
        of_children.setdefault(child["view"], []).append(child["answer"])
    assert set(of_children["in_shared"]) == {"a"}
    assert set(of_children["in_own"]) == {"b"}
    assert of_children["many"][0] == [f"c{n}" for n in range(8)]
    refusals = of_children.get("in_early", [])
    assert bool(refusals) is (method in ("fork", "preloaded"))
    for refusal in refusals:
        assert refusal["times"] == 50
        assert refusal["seconds"] < 0.01
        assert "Make and connect a client in the child process" in refusal["text"]
        assert refusal["state"] == "disconnected"
    sessions = begun()
    assert len(sessions) >= 7  # early, shared, own, and four of the eight
    assert all(map(ended_politely, sessions))


def connect_and_end(url: str, ending: str, heard: SimpleQueue[Any]) -> None:
    """Be connected in a child, and leave."""
    os.environ["RTVI_BOT_URL"] = url
    from . import app

    app.shared.on("disconnected", lambda: heard.put("disconnected"))
    heard.put(app.in_shared("hello"))
    if ending == "sys.exit":
        sys.exit(3)
    elif ending == "exception":
        sys.stderr = None  # keeps the traceback out of the test's output
        raise ValueError
    elif ending == "os._exit":
        os._exit(4)
    elif ending == "in a thread":
        threading.Thread(target=lambda: heard.put(app.in_shared("from a thread"))).start()
    elif ending == "SIGTERM":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        os.kill(os.getpid(), signal.SIGTERM)
    elif ending == "pause":
        signal.pause()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the bot's threads
class TestEndOfAChild:
    """The fate of a session that is live when its process ends."""

    @pytest.fixture
    def child(self, bot: EmbeddedBot) -> Any:
        """Start a child; every end of it and of its queue is closed after the test."""
        context = multiprocessing.get_context("fork")
        heard = context.SimpleQueue()
        started = []

        def start(ending: str) -> tuple[Any, SimpleQueue[Any]]:
            process = context.Process(target=connect_and_end, args=(bot.ws_url, ending, heard))
            started.append(process)
            process.start()
            assert heard.get() == "hello"
            return process, heard

        yield start
        for process in started:
            process.kill()
            process.join()
            process.close()
        heard.close()

    @pytest.mark.parametrize(("ending", "code"), [("return", 0), ("sys.exit", 3), ("exception", 1), ("SIGTERM", 5)])
    def test_that_comes_to_its_end(self, child: Any, begun: Sessions, ending: str, code: int) -> None:
        """A child that ends closes its session in good order, calls its handlers, and keeps its exit code."""
        process, heard = child(ending)
        assert heard.get() == "disconnected"
        process.join(GUARD)
        assert process.exitcode == code
        assert [ended_politely(session) for session in begun()] == [True]

    def test_whose_threads_go_on(self, child: Any, begun: Sessions) -> None:
        """A thread that the child waits for keeps the session."""
        process, heard = child("in a thread")
        assert heard.get() == "from a thread"
        process.join(GUARD)
        assert process.exitcode == 0
        for session in begun():
            session.wait_ended(GUARD)

    @pytest.mark.parametrize(
        ("ending", "end", "code"),
        [
            ("os._exit", lambda process: None, 4),
            ("pause", lambda process: process.terminate(), -signal.SIGTERM),
            ("pause", lambda process: process.kill(), -signal.SIGKILL),
        ],
        ids=["os._exit", "terminate", "kill"],
    )
    def test_that_is_cut_off(
        self, child: Any, begun: Sessions, ending: str, end: Callable[[Any], None], code: int
    ) -> None:
        """The system closes the connection, which the bot notices."""
        process, _ = child(ending)
        end(process)
        process.join(GUARD)
        assert process.exitcode == code
        assert [ended_politely(session) for session in begun()] == [False]


def test_a_client_that_is_sent_to_another_process() -> None:
    """A client cannot be pickled; the error names the alternative."""
    with pytest.raises(TypeError, match="Make a client in the other process"):
        pickle.dumps(RTVIClient(transport=MemoryTransport()))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_what_a_child_returns(bot: EmbeddedBot) -> None:
    """Results and errors of calls reach another process unchanged."""

    def ask() -> Any:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), enable_mic=False, speaker=NullSink())
        ready = client.connect()
        with client.events("bot-llm-text", timeout=GUARD) as words:
            client.send_text("Hello!")
            word = next(words)
        with pytest.raises(RequestTimeoutError) as failed:
            client.send_client_request("never", timeout=0.01)
        client.disconnect()
        return ready, word, failed.value

    ready, word, error = in_child(ask)
    assert isinstance(ready, BotReadyData)
    assert ready.about.library == "rtvi_sync.testing"
    assert (word.type, word.data.text) == (RTVIEvent.BOT_LLM_TEXT, "You")
    assert isinstance(error, RequestTimeoutError)
    assert "within 0.01 s" in str(error)
