"""Pages that talk, behind real web servers, each a separate process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.flask.servers import server_of
from tests.support.slowness import GUARD, takes
from tests.support.talking_page import RATE, Talker, code_of, connect, share_of, speech
from tests.support.web_server import WebServer


@pytest.fixture
def serve_site(bot: EmbeddedBot, tmp_path: Path) -> Iterator[Callable[[str], tuple[WebServer, Talker]]]:
    """Return a function that starts a server with one user; in the end its log has no error."""
    started: list[tuple[WebServer, Talker]] = []

    def start(kind: str) -> tuple[WebServer, Talker]:
        server = server_of(kind, bot, tmp_path, 4.0)
        server.start()
        started.append((server, Talker(server.url)))
        return started[-1]

    yield start
    for server, user in started:
        user.close()
        server.kill()
        assert "Traceback" not in server.log()
        assert "rror" not in server.log(), server.log()


def worker_of(server: WebServer) -> psutil.Process:
    return next(iter(server.workers()), psutil.Process(server.process.pid))


@pytest.mark.parametrize("kind", ["gthread", "gevent", "werkzeug"])
def test_pages_that_come_and_go(kind: str, serve_site: Callable[[str], tuple[WebServer, Talker]]) -> None:
    """A question by voice is answered in time; pages that end in any way leave no thread and no socket."""
    server, user = serve_site(kind)
    page = user.talk()
    said = speech(1.0)
    page.say(said + bytes(2 * RATE))
    with takes(2.0):
        page.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(page.audio)) > 0.8
    assert user.open().wait_for_event("botReady")  # takes the voice
    assert page.closed() == 4001
    worker = worker_of(server)
    before = worker.num_threads(), len(worker.net_connections())
    for end in ("close", "cut"):
        for _ in range(5):
            getattr(user.open(), end)()
    user.open(start="nonsense").closed()
    last = user.open()
    last.wait_for_event("botReady")
    give_up = time.monotonic() + GUARD
    while worker.num_threads() > before[0] or len(worker.net_connections()) > before[1]:
        assert time.monotonic() < give_up, (before, worker.num_threads(), worker.net_connections())
        threading.Event().wait(0.05)
    last.send({"type": "end"})
    assert last.closed() == 1000


@pytest.mark.parametrize("kind", ["gthread", "gevent"])
def test_a_worker_that_ends(kind: str, serve_site: Callable[[str], tuple[WebServer, Talker]], bot: EmbeddedBot) -> None:
    """The pages of a worker that ends get the reason at once, and the bot's session ends politely."""
    server, user = serve_site(kind)
    page = user.talk()
    silent = connect(user)  # it has not sent its first message
    server.process.terminate()
    with takes(2.0):
        assert page.closed() == 1001
        assert code_of(silent) == 1001
    with takes(3.0):
        assert server.process.wait(GUARD) == 0
    assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"


def test_a_sync_worker(serve_site: Callable[[str], tuple[WebServer, Talker]]) -> None:
    """A sync worker has no thread for a page that talks, and says so."""
    _, user = serve_site("sync")
    user.start()
    answer = user.http.get("/bot/voice", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert (answer.status_code, answer.json()["error"]) == (501, "no_websocket")
