"""Pages that talk through Django's views, under gunicorn and Django's own server."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import websocket

from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import free_port
from tests.support.slowness import GUARD, takes
from tests.support.talking_page import RATE, Talker, share_of, speech
from tests.support.web_server import WebServer

ROOT = Path(__file__).parents[2]
GUNICORN = ["-m", "gunicorn", "tests.django.talking_site", "--bind", "fd://{}", "--workers", "1"]
GUNICORN += ["--config", "tests/django/talking_conf.py", "--worker-class", "gthread", "--threads", "8"]


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot that repeats the user's words."""
    with EmbeddedBot() as bot:
        yield bot


@pytest.fixture
def server(bot: EmbeddedBot, tmp_path: Path) -> Iterator[WebServer]:
    """Yield a server of the project, whose log has no traceback in the end."""
    environ = {**os.environ, "RTVI_BOT_URL": bot.ws_url, "XDG_RUNTIME_DIR": str(tmp_path)}
    server = WebServer(GUNICORN, tmp_path / "gunicorn.log", cwd=ROOT, env=environ)
    server.start()
    yield server
    server.kill()
    assert "Traceback" not in server.log()
    assert "rror" not in server.log()


@pytest.fixture
def visit() -> Iterator[Callable[[str], Talker]]:
    """Make users, who leave in the end."""
    users = []

    def new(url: str) -> Talker:
        users.append(Talker(url))
        return users[-1]

    yield new
    for user in users:
        user.close()


def test_a_question_by_voice(server: WebServer, visit: Callable[[str], Talker], bot: EmbeddedBot) -> None:
    """A question is answered; a page that returns goes on; and the end is told."""
    user = visit(server.url)
    page = user.talk()
    said = speech(1.0)
    page.say(said + bytes(2 * RATE))
    with takes(2.0):
        page.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(page.audio)) > 0.8
    page.cut()
    again = user.open(after=page.last_id)
    again.send({"type": "text", "text": "Hello!"})
    again.wait_for_event("relayText")
    again.send({"type": "end"})
    assert again.closed() == 1000
    assert user.http.get("/bot/session").json()["error"] == "ended"
    assert server.stop() == 0


def test_a_logout_ends_the_session(server: WebServer, visit: Callable[[str], Talker]) -> None:
    """The open page closes, and the browser's next session is a new one."""
    user = visit(server.url)
    assert user.http.get("/logout").text == "logged out"  # there is no session
    page = user.talk()
    secret = user.http.cookies["rtvi_session"]
    assert user.http.get("/logout").text == "logged out"
    assert page.closed() == 1000
    assert page.events[-1]["data"] == {"reason": "user"}
    assert user.http.get("/bot/session").json()["error"] == "no_session"
    user.talk(after=page.last_id)
    assert user.http.cookies["rtvi_session"] != secret


def test_the_worker_ends(server: WebServer, visit: Callable[[str], Talker]) -> None:
    """The pages of a worker that ends are told, and it does not wait for them."""
    page = visit(server.url).talk()
    server.process.terminate()
    with takes(2.0):
        assert page.closed() == 1001
    with takes(3.0):
        assert server.process.wait(GUARD) == 0


def test_requests_that_are_refused(server: WebServer, visit: Callable[[str], Talker]) -> None:
    """By the origin, the cookie, the method, the body; with the error that the page understands."""
    user = visit(server.url)
    http = user.http
    assert http.get("/bot/session").json()["error"] == "no_session"
    told = http.post("/bot/session", json={})
    assert (told.status_code, told.json()["error"]) == (428, "no_cookie")
    http.cookies.clear()
    told = http.post("/bot/session", json={"first": True})  # 202, which browsers don't show as an error
    assert (told.status_code, told.json()["error"]) == (202, "no_cookie")
    assert all(word in told.headers["Set-Cookie"] for word in ("HttpOnly", "SameSite=Strict", "rtvi_session="))
    assert http.post("/bot/session", content="x").json()["error"] == "not_json"
    assert http.post("/bot/session", content="[]", headers={"Content-Type": "application/json"}).status_code == 400
    large = http.post("/bot/session", content="x" * 70_000, headers={"Content-Type": "application/json"})
    assert large.json()["error"] == "too_large"
    strange = http.post("/bot/session", json={}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (strange.status_code, strange.json()["error"]) == (403, "cross_origin")
    assert http.delete("/bot/session").status_code == 405
    assert http.post("/bot/session", json={}).status_code == 201
    assert http.post("/bot/session", json={}).status_code == 200
    assert http.get("/bot/voice").json()["error"] == "not_websocket"
    assert http.post("/bot/end", json={}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert http.post("/bot/end", json={}).status_code == 202
    assert http.get("/bot/session").json()["error"] == "ended"
    forged = httpx.Cookies({"rtvi_session": "0f0f0f0f.secret"})
    assert httpx.get(f"{server.url}/bot/session", cookies=forged, trust_env=False).json()["error"] == "no_session"
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(
            server.url.replace("http", "ws", 1) + "/bot/voice", cookie=user.cookie, origin="https://evil.example"
        )
    assert json.loads(refused.value.resp_body or b"")["error"] == "cross_origin"
    for answer in (told, strange):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_the_files_of_the_page(server: WebServer, visit: Callable[[str], Talker]) -> None:
    """For every page; a browser that has one is told that it has not changed."""
    http = visit(server.url).http
    for name in ("rtvi-voice.js", "rtvi-voice-worklet.js"):
        file = http.get(f"/bot/{name}")
        assert (file.status_code, file.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
        assert file.headers["Cache-Control"] == "no-cache"
        assert http.get(f"/bot/{name}", headers={"If-None-Match": file.headers["ETag"]}).status_code == 304


def test_djangos_own_server(bot: EmbeddedBot, visit: Callable[[str], Talker], tmp_path: Path) -> None:
    """Django's own server opens no WebSocket, and the answer names servers that do."""
    port = free_port()
    environ = {**os.environ, "RTVI_BOT_URL": bot.ws_url}
    log = tmp_path / "runserver.log"
    with WebServer(["-m", "tests.django.talking_site", f"127.0.0.1:{port}"], log, cwd=ROOT, env=environ) as server:
        while "Quit the server" not in server.log():
            assert server.process.poll() is None, server.log()
            threading.Event().wait(0.01)
        user = visit(f"http://127.0.0.1:{port}")
        user.start()
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            user.open()
        assert refused.value.status_code == 501
        assert "gunicorn --worker-class gthread" in str(refused.value.resp_body)
