"""Requests that are answered, requests that are refused, and protection against pages of other origins."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import flask
import pytest

from rtvi_sync import ReconnectPolicy, RTVIClient, WebSocketTransport
from rtvi_sync.flask import DEFAULT_EVENTS, RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.support.forking import in_child
from tests.support.installed import install_command
from tests.support.probes import process_of
from tests.support.slowness import GUARD

from .browser import User, client_for, site_of

ROOT = Path(__file__).parents[2]
Relay = Callable[..., flask.Flask]

STRANGERS = {
    "another site": {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    "a subdomain": {"Sec-Fetch-Site": "same-site"},
    "an address that was typed": {"Sec-Fetch-Site": "none"},
    "another site, older browser": {"Origin": "https://evil.example"},
    "another port, older browser": {"Origin": "http://localhost:8000"},
    "another scheme, older browser": {"Origin": "https://localhost"},
    "a sandboxed frame, older browser": {"Origin": "null"},
    "another site that claims to be this one": {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
}
OWN = {
    "this page": {"Sec-Fetch-Site": "same-origin"},
    "this page behind a proxy": {"Sec-Fetch-Site": "same-origin", "Origin": "https://public.example"},
    "this page, older browser": {"Origin": "http://localhost"},
    "a program": {},
}
ROUTES = {"GET": ("session", "events"), "POST": ("session", "text", "message", "end")}


@pytest.mark.parametrize("headers", STRANGERS.values(), ids=STRANGERS)
def test_a_page_of_another_origin_is_refused(relay: Relay, bot: EmbeddedBot, headers: dict[str, str]) -> None:
    """With the user's cookies, on every route: nothing is told, and the bot hears of nothing."""
    user = User(relay())
    user.start()
    for method, route in [(method, route) for method, routes in ROUTES.items() for route in routes]:
        answer = user.http.open(f"/bot/{route}", method=method, json={"text": "x", "type": "x"}, headers=headers)
        assert (answer.status_code, answer.get_json()["error"]) == (403, "cross_origin"), route
        assert "Access-Control-Allow-Origin" not in answer.headers
    session = bot.wait_for_session()
    assert session.ended is None
    assert [message["type"] for message in session.messages] == ["client-ready"]


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
def test_a_page_of_this_origin_is_answered(relay: Relay, headers: dict[str, str]) -> None:
    """A page of this origin is answered, by the browser's own statement or else by the origin alone."""
    user = User(relay())
    user.headers = headers
    user.start()
    stream = user.stream()
    stream.close()
    assert user.post("end").status_code == 202


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_is_refused(relay: Relay, type_: str) -> None:
    """A body that a page of another origin may send without a preflight request is not JSON."""
    user = User(relay())
    answer = user.http.post("/bot/session", data="{}", content_type=type_)
    assert (answer.status_code, answer.get_json()["error"]) == (415, "not_json")


@pytest.mark.parametrize("asked", [("GET", "session"), ("GET", "events"), ("POST", "end"), ("POST", "text")])
@pytest.mark.parametrize(
    ("cookie", "status", "error"),
    [
        (None, 404, "no_session"),
        ("0f0f0f0f.secret", 409, "other_worker"),
        ("{own}.secret", 410, "ended"),
        ("{own}.", 410, "ended"),
        (["no", "text"], 404, "no_session"),
    ],
)
def test_a_session_that_is_not_here(relay: Relay, asked: tuple[str, str], cookie: Any, status: int, error: str) -> None:
    """None was started; it is in another process; it has ended: each is told apart."""
    app = relay()
    user = User(app)
    blueprint = app.blueprints["rtvi"]
    assert isinstance(blueprint, RTVIBlueprint)
    with user.http.session_transaction() as session:
        if cookie is not None:
            own = process_of(blueprint)
            session["_rtvi_session"] = cookie.replace("{own}", own) if isinstance(cookie, str) else cookie
    method, route = asked
    answer = user.http.open(f"/bot/{route}", method=method, json={"text": "x"}, headers=user.headers)
    assert (answer.status_code, answer.get_json()["error"]) == (status, error)


def test_a_logout_ends_the_session(bot: EmbeddedBot) -> None:
    """The next user of the browser has a session of their own, whether the logout clears Flask's session or not."""
    asked = []

    def make_client(_: flask.Request) -> RTVIClient:
        asked.append(flask.session["user"])
        return client_for(bot.ws_url)

    blueprint = RTVIBlueprint(make_client)

    @blueprint.before_request
    def check_user() -> None:
        if "user" not in flask.session:
            flask.abort(403)

    app = site_of(blueprint)

    @app.get("/login/<name>")
    def log_in(name: str) -> str:
        flask.session["user"] = name
        return ""

    @app.get("/logout/<how>")
    def log_out(how: str) -> str:
        if how == "clear":
            flask.session.clear()
        flask.session.pop("user", None)
        blueprint.end_session()
        return ""

    browser = User(app)
    assert browser.http.get("/logout/pop").status_code == 200  # there is no session
    for name, how in (("Ada", "pop"), ("Bob", "clear"), ("Cleo", "pop")):
        browser.http.get(f"/login/{name}")
        assert browser.get("events").get_json()["error"] == "no_session"
        browser.start()
        assert asked[-1] == name
        stream = browser.stream()
        browser.post("text", {"text": f"for {name}", "audio_response": False})
        told = stream.until("botTranscript")
        assert [each["data"] for each in told if each["event"] == "relayText"] == [{"text": f"for {name}"}]
        browser.http.get(f"/logout/{how}")
        assert stream.until("relayEnd")[-1]["data"] == {"reason": "user"}
        stream.close()
        assert browser.post("text", {"text": "x"}).status_code == 403
        assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
    assert asked == ["Ada", "Bob", "Cleo"]
    blueprint.close()


def test_a_logout_while_the_session_is_started(bot: EmbeddedBot) -> None:
    """The session is not started, and its late answer does not bring the cookie back."""
    asked, may_return, before = threading.Event(), threading.Event(), len(bot.sessions)

    def make_client(_: flask.Request) -> RTVIClient:
        asked.set()
        assert may_return.wait(GUARD)
        return client_for(bot.ws_url)

    blueprint = RTVIBlueprint(make_client)
    app = site_of(blueprint)

    @app.get("/logout")
    def log_out() -> str:
        blueprint.end_session()
        return ""

    tab, other_tab = User(app), User(app)
    tab.http.get("/")
    cookie = tab.http.get_cookie("session")
    assert cookie is not None
    other_tab.http.set_cookie("session", cookie.value)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(tab.post, "session")
        try:
            assert asked.wait(GUARD)
            other_tab.http.get("/logout")
        finally:
            may_return.set()
        answer = starting.result(GUARD)
    assert (answer.status_code, answer.get_json()["error"]) == (410, "ended")
    assert "Set-Cookie" not in answer.headers
    other_tab.start()  # another user of the browser
    bot.wait_for_session()
    assert len(bot.sessions) == before + 1
    blueprint.close()


def test_the_first_request_of_a_page(relay: Relay) -> None:
    """A page that says that it makes its first request gets the cookie by an answer that browsers don't show as an
    error.
    """
    user = User(relay())
    answer = user.post("session", {"first": True})
    assert (answer.status_code, answer.get_json()["error"]) == (202, "no_cookie")
    assert "Set-Cookie" in answer.headers
    assert user.post("session", {"first": True}).status_code == 201
    assert user.post("session", {"first": True}).status_code == 200
    assert User(relay()).post("session", {"first": False}).status_code == 428
    assert user.post("session", {"first": 1}).status_code == 400


def test_a_cookie_cannot_be_made_up(relay: Relay) -> None:
    """A cookie that another key has signed, or that was changed, is none."""
    app = relay()
    user, thief = User(app), User(app)
    user.start()
    cookie = user.http.get_cookie("session")
    assert cookie is not None
    for forged in (cookie.value[:-4] + "AAAA", "x" + cookie.value, cookie.value.partition(".")[0]):
        thief.http.set_cookie("session", forged)
        assert thief.get("session").get_json()["error"] == "no_session"


NOT_UNDERSTOOD = {
    "text": (
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"[" * 50_000,
        b"{}",
        b'{"text": ""}',
        b'{"text": " \\n"}',
        b'{"text": 5}',
        b'{"text": "x", "audio_response": "no"}',
        b'{"text": "\\ud800"}',
    ),
    "message": (
        b"{}",
        b'{"type": ""}',
        b'{"type": ["x"]}',
        b'{"type": "x", "data": NaN}',
        b'{"type": "x", "data": "\\udfff"}',
    ),
    "session": (b"", b"x", b"[]"),
    "end": (b"", b"x", b"[]"),
}


@pytest.mark.parametrize("route", NOT_UNDERSTOOD)
def test_a_body_that_is_not_understood(relay: Relay, bot: EmbeddedBot, route: str) -> None:
    """A body that is not understood is answered with 400 and a sentence, and the session goes on."""
    user = User(relay())
    user.start()
    for body in NOT_UNDERSTOOD[route]:
        answer = user.http.post(f"/bot/{route}", data=body, headers=user.headers, content_type="application/json")
        assert (answer.status_code, answer.get_json()["error"]) == (400, "bad_request"), body
    assert user.get("session").json == {"state": "ready"}
    assert [message["type"] for message in bot.wait_for_session().messages] == ["client-ready"]
    user.post("end")
    assert "relayText" not in [told["event"] for told in user.stream().until("relayEnd")]


@pytest.mark.parametrize("told", [True, False])
def test_a_body_that_is_too_large(relay: Relay, told: bool) -> None:
    """No more than the limit is read, whether its length is declared or it arrives in chunks."""
    user = User(relay())
    user.start()
    body = io.BytesIO(b'{"text": "' + b"x" * 10_000_000 + b'"}')
    chunked = {"wsgi.input": body, "wsgi.input_terminated": True}
    headers = {**user.headers, "Content-Type": "application/json"}
    if told:
        answer = user.http.post("/bot/text", data=body.getvalue(), headers=headers)
    else:
        answer = user.http.post("/bot/text", headers=headers, environ_overrides=chunked)
        assert body.tell() < 200_000
    assert (answer.status_code, answer.get_json()["error"]) == (413, "too_large")


def test_what_the_bot_does_not_take(bot: EmbeddedBot) -> None:
    """A message over the limit of the transport, and one that the bot's version does not know, are told as such, and no
    page shows the words."""

    def told(url: str) -> Any:
        transport = WebSocketTransport(url, max_message_size=500)
        blueprint = RTVIBlueprint(lambda _: RTVIClient(transport=transport, enable_mic=False, connect_timeout=GUARD))
        user = User(site_of(blueprint))
        user.start()
        answer = user.post("text", {"text": "x" * 1000})
        user.post("end")
        pages = [event["event"] for event in user.stream().until("relayEnd")]
        blueprint.close()
        return answer.status_code, answer.get_json()["error"], "relayText" in pages

    assert told(bot.ws_url) == (413, "too_large", False)
    with EmbeddedBot(version="0.3.0") as old:
        assert told(old.ws_url) == (501, "unsupported", False)


def test_before_the_bot_is_ready(relay: Relay, bot: EmbeddedBot) -> None:
    """While the client reconnects, messages of the page are refused with a reason."""
    user = User(relay({"reconnect": ReconnectPolicy(initial_delay=60.0)}))
    user.start()
    stream = user.stream()
    bot.wait_for_session().drop()
    stream.until("reconnecting")
    answer = user.post("text", {"text": "x"})
    assert (answer.status_code, answer.get_json()["error"]) == (409, "not_ready")
    assert user.post("end").status_code == 202
    assert "relayText" not in [told["event"] for told in stream.until("relayEnd")]
    stream.close()


def test_no_cache_and_no_proxy_keeps_anything(relay: Relay) -> None:
    """Answers are not stored, streams not held back, and neither is taken for a document."""
    user = User(relay())
    answers = [user.ask(), user.get("session"), user.get("events"), user.post("text"), user.post("end")]
    answers.append(User(relay()).get("events"))
    for answer in answers:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answers[2].headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in answers[2].headers
    answers[2].close()


def test_the_secret_is_in_the_cookie_alone(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    """No answer, event or log line has the secret of a user, and no two users have the same."""
    app = relay()
    secrets = set()
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            user = User(app)
            user.start()
            with user.http.session_transaction() as session:
                secret = session["_rtvi_session"].partition(".")[2]
            assert len(secret) >= 43  # 32 bytes
            stream = user.stream()
            told = str(stream.until("botReady")) + stream.last_id + user.get("session").get_data(as_text=True)
            assert secret not in told
            stream.close()
            user.post("end")
            secrets.add(secret)
    assert len(secrets) == 3
    assert not any(secret in caplog.text for secret in secrets)


def test_the_default_events_tell_nothing_of_the_inside(relay: Relay, bot: EmbeddedBot) -> None:
    """Metrics, logs, prompts and function calls stay on the server unless they are asked for by name."""
    hidden = {"metrics", "systemLog", "llmFunctionCall", "llmRawText", "sttRawText", "unknownMessage", "handlerError"}
    assert not hidden & {event.value for event in DEFAULT_EVENTS}
    plain, curious = User(relay()), User(relay(events=["system-log", "server_message"]))
    for user in (plain, curious):
        user.start()
        session = bot.wait_for_session()
        session.send({"label": "rtvi-ai", "type": "system-log", "data": {"text": "inside"}})
        session.send({"label": "rtvi-ai", "type": "server-message", "data": "done"})
    told = []
    for user in (plain, curious):
        stream = user.stream()
        told.append([each["event"] for each in stream.until("serverMessage")])
        stream.close()
    assert "systemLog" not in told[0]
    assert told[1] == ["systemLog", "serverMessage"]


def test_the_config_is_for_pages_that_get_its_event() -> None:
    """A bot of RTVI 0.3 sends its prompt and keys when it is ready; a page has them if the application says so."""
    config = [{"service": "llm", "options": [{"name": "api_key", "value": "secret"}]}]
    clients = []
    with EmbeddedBot(version="0.3.0", config=config) as old:

        def make_client(_: flask.Request) -> RTVIClient:
            clients.append(client_for(old.ws_url))
            return clients[-1]

        blueprint = RTVIBlueprint(make_client, events=[*DEFAULT_EVENTS, "config"])
        user = User(site_of(blueprint))
        user.start()
        stream = user.stream()
        ready = stream.until("botReady")[-1]
        assert ready["data"]["version"] == "0.3.0"
        assert "secret" not in str(ready)
        clients[0].get_bot_config()
        assert stream.until("config")[-1]["data"] == {"config": config}
        stream.close()
        blueprint.close()


def test_options_that_make_no_sense() -> None:
    """An unknown event, a number that is not positive, and a time to leave that no heartbeat fits into are refused."""
    with pytest.raises(ValueError, match="the nearest is 'bot-transcript'"):
        RTVIBlueprint(lambda _: client_for(""), events=["bot-transcrip"])
    with pytest.raises(ValueError, match="max_sessions must be an integer of 1 or more, not 0"):
        RTVIBlueprint(lambda _: client_for(""), max_sessions=0)
    with pytest.raises(ValueError, match="leave_timeout must be longer than heartbeat_interval"):
        RTVIBlueprint(lambda _: client_for(""), heartbeat_interval=5.0)


def test_a_server_with_one_thread_is_warned_of_once(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    """A stream would block a sync worker, so the log says how to serve instead."""
    app = relay()
    app.config["TESTING"] = False
    user = User(app)
    user.start()
    for multithread in (True, False, False):
        user.http.get("/bot/events", headers=user.headers, multithread=multithread).close()
    assert [record.message for record in caplog.records if "gthread" in record.message] == [
        "This web server handles one request at a time, and an event stream blocks it. Serve with threads: "
        "gunicorn --worker-class gthread --workers 1 --threads 80"
    ]


def test_a_forked_worker_has_sessions_of_its_own(relay: Relay) -> None:
    """A session of the parent is in another worker for the child, which starts one of its own."""
    app = relay()
    user = User(app)
    user.start()

    def child() -> tuple[Any, ...]:
        before = user.get("session").get_json()["error"]
        user.start()
        after = user.get("session").json
        blueprint = app.blueprints["rtvi"]
        assert isinstance(blueprint, RTVIBlueprint)
        blueprint.close()
        return before, after

    assert in_child(child) == ("other_worker", {"state": "ready"})
    assert user.get("session").json == {"state": "ready"}


def test_the_package_does_not_need_flask() -> None:
    """`import rtvi_sync` loads no Flask, and without one the blueprint names the package to install."""
    script = """
import sys
import rtvi_sync
assert "flask" not in sys.modules
sys.modules["flask"] = None
try:
    import rtvi_sync.flask
except rtvi_sync.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=GUARD)
    assert done.stderr == ""
    assert done.stdout == f'rtvi_sync.flask needs the extra "flask". Install it with: {install_command("flask")}\n'


def test_json_is_plain() -> None:
    """Any program can read the routes' answers: no trailing text, no HTML."""
    blueprint = RTVIBlueprint(lambda _: client_for("ws://127.0.0.1:1"))
    answer = User(site_of(blueprint)).get("session")
    assert answer.mimetype == "application/json"
    assert set(json.loads(answer.data)) == {"error", "message"}
