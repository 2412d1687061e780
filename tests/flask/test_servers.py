"""The relay behind real web servers, each a process of its own on loopback, with real connections to it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD, takes
from tests.support.web_server import WebServer

from .browser import SAME_ORIGIN, Stream, wait_until_ready
from .servers import server_of
from .site import HEARTBEAT

# As long as a page may be away, in tests in which one leaves: the others may take as long to start.
LEAVE = 8.0


class Visitor:
    """A browser with connections and cookies of its own."""

    def __init__(self, server: WebServer) -> None:
        self.http = httpx.Client(base_url=server.url, headers=SAME_ORIGIN, timeout=GUARD, trust_env=False)

    def post(self, route: str, body: Any = None) -> httpx.Response:
        return self.http.post(f"/bot/{route}", json=body or {})

    def start(self) -> None:
        self.http.get("/")
        assert self.post("session").status_code == 201
        wait_until_ready(lambda: self.http.get("/bot/session").json())

    def stream(self) -> Stream:
        """Open an event stream; closing it cuts the connection."""
        response = self.http.send(self.http.build_request("GET", "/bot/events"), stream=True)
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return Stream(response.iter_raw(), response.close)


@pytest.fixture
def visit() -> Iterator[Callable[[WebServer], Visitor]]:
    """Make visitors, whose connections are closed in the end."""
    visitors = []

    def new(server: WebServer) -> Visitor:
        visitors.append(Visitor(server))
        return visitors[-1]

    yield new
    for visitor in visitors:
        visitor.http.close()


@pytest.fixture
def start_server(bot: EmbeddedBot, tmp_path: Path) -> Iterator[Callable[..., WebServer]]:
    """Start servers of this test's own, which it may end as it likes."""
    servers = []

    def start(kind: str, **options: float) -> WebServer:
        servers.append(server_of(kind, bot, tmp_path, **options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.mark.parametrize("kind", ["gthread", "preload", "gevent", "werkzeug"])
def test_two_users_of_a_real_server(
    kind: str, start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor], bot: EmbeddedBot
) -> None:
    """Each user gets the events of one session only, immediately; when a user leaves, only that session ends."""
    server = start_server(kind, leave=LEAVE)
    ada, bob = visit(server), visit(server)
    streams, sessions = [], []
    for visitor in (ada, bob):
        visitor.start()
        sessions.append(bot.wait_for_session())
        streams.append(visitor.stream())
    for visitor, text in ((ada, "for Ada"), (bob, "for Bob")):
        assert visitor.post("text", {"text": text, "audio_response": False}).status_code == 202
    for stream, own, other in zip(streams, ("Ada", "Bob"), ("Bob", "Ada"), strict=True):
        told = str(stream.until("botOutput"))
        assert f"You said: for {own}" in told
        assert other not in told
    streams[0].close()
    assert sessions[0].wait_ended(GUARD).initiator == "client"
    for _ in range(2):
        assert next(streams[1].parts) == b":\n\n"
    assert sessions[1].ended is None
    bob.post("end")
    assert streams[1].until("relayEnd")[-1]["data"] == {"reason": "user"}
    assert sessions[1].wait_ended(GUARD).initiator == "client"
    streams[1].close()


@pytest.mark.parametrize("kind", ["gthread", "gevent", "werkzeug"])
def test_a_page_that_is_loaded_again_and_again(
    kind: str, start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor]
) -> None:
    """Faster than heartbeats find that the page before is gone: each has its stream, and one too many has none."""
    visitor = visit(start_server(kind))
    visitor.start()
    for _ in range(10):
        stream = visitor.stream()
        stream.until("botReady")
        stream.close()
    streams = [visitor.stream() for _ in range(4)]
    assert visitor.http.get("/bot/events").status_code == 429
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("kind", ["gthread", "gevent"])
def test_a_server_that_is_told_to_end(
    kind: str, start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor], bot: EmbeddedBot
) -> None:
    """SIGTERM with open streams: they end with the next heartbeat, and the bots' sessions politely."""
    server = start_server(kind)
    visitors = [visit(server) for _ in range(3)]
    for visitor in visitors:
        visitor.start()
    streams = [visitor.stream() for visitor in visitors]
    for stream in streams:
        stream.until("botReady")
    server.process.terminate()
    with takes(HEARTBEAT + 1.0):
        for stream in streams:
            assert list(stream) == []
            stream.close()
    with takes(3.0):
        assert server.process.wait(GUARD) == 0
    for _ in streams:
        assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"


def talk_with(visitor: Visitor) -> tuple[Stream, psutil.Process]:
    """Start a session; returns its events, and the worker process that has it."""
    visitor.start()
    stream = visitor.stream()
    stream.until("botReady")
    return stream, psutil.Process(int(visitor.http.get("/process").text))


def test_a_server_that_does_not_tell_its_streams(
    start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor], bot: EmbeddedBot
) -> None:
    """Without the signal's handler the server cuts them, and the sessions, when its own time has passed."""
    server = start_server("preload")
    visitor = visit(server)
    stream, worker = talk_with(visitor)
    worker.suspend()  # it can do nothing any more
    with takes(1.0 + 3.0):
        assert server.stop() == 0
    bot.wait_for_session().wait_ended(GUARD)
    stream.close()


def test_a_worker_that_is_replaced(
    start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor], bot: EmbeddedBot
) -> None:
    """A worker that ends takes its sessions along; the next one says so, and starts others."""
    server = start_server("gthread")
    visitor = visit(server)
    stream, worker = talk_with(visitor)
    worker.terminate()
    assert list(stream) == []
    stream.close()
    assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
    worker.wait(GUARD)
    answer = visitor.http.get("/bot/session")
    assert (answer.status_code, answer.json()["error"]) == (409, "other_worker")
    visitor.start()
    assert visitor.http.get("/process").text != str(worker.pid)


def test_a_browser_that_reads_nothing(
    start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor], bot: EmbeddedBot
) -> None:
    """A server that cannot write to a user's browser ends that session, and continues to serve the others."""
    server = start_server("gthread", leave=LEAVE)
    slow, other = visit(server), visit(server)
    slow.start()
    session = bot.wait_for_session()
    with socket.socket() as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        browser.connect(server.address)
        cookies = "; ".join(f"{name}={value}" for name, value in slow.http.cookies.items())
        browser.sendall(f"GET /bot/events HTTP/1.1\r\nHost: x\r\nCookie: {cookies}\r\n\r\n".encode())
        assert browser.recv(100).startswith(b"HTTP/1.1 200 OK")
        for number in range(200):
            session.send({"label": "rtvi-ai", "type": "server-message", "data": f"{number}" + 100_000 * "x"})
        other.start()
        stream = other.stream()  # without a stream this user would count as gone too
        assert session.wait_ended(GUARD).initiator == "client"
        assert other.http.get("/bot/session").json() == {"state": "ready"}
        stream.close()


def test_a_sync_worker_says_what_is_wrong(
    start_server: Callable[..., WebServer], visit: Callable[[WebServer], Visitor]
) -> None:
    """A server that does one thing at a time serves the stream, and its log tells how to serve more."""
    server = start_server("sync")
    visitor = visit(server)
    visitor.start()
    stream = visitor.stream()
    stream.until("botReady")
    stream.close()
    assert "gunicorn --worker-class gthread --workers 1 --threads 80" in server.log()
