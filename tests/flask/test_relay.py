"""The session of a user: from its start, through texts and messages, to every way in which it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flask
import pytest

from rtvi_sync import ReconnectPolicy, RTVIClient, WebSocketTransport
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.loopback import black_hole
from tests.support.slowness import GUARD, takes

from .browser import User, client_for, site_of, wait_until_ready

Relay = Callable[..., flask.Flask]


def test_a_session_is_started_once(relay: Relay, bot: EmbeddedBot) -> None:
    """The first POST connects to the bot, and a second one, of another page, finds the same session."""
    user = User(relay())
    user.start()
    again = user.post("session")
    assert (again.status_code, again.json) == (200, {"state": "ready"})
    assert user.get("session").json == {"state": "ready"}
    assert len(bot.sessions) == 1


def test_what_both_say_comes_in_order(relay: Relay) -> None:
    """A text is told first, then how the bot takes it, then the answer, sentence by sentence."""
    user = User(relay())
    user.start()
    stream = user.stream()
    assert stream.until("botReady")[-1]["data"]["about"]["library"] == "rtvi_sync.testing"
    answer = user.post("text", {"text": "One. Two.", "audio_response": False})
    events = stream.until("botTranscript", lambda said: said["text"] == "Two.")
    assert (answer.status_code, answer.json) == (202, {})
    assert events[0] == {"event": "relayText", "data": {"text": "One. Two."}}
    assert [each["data"]["text"] for each in events if each["event"] == "botTranscript"] == ["You said: One.", "Two."]
    stream.close()


def test_messages_of_the_application_go_both_ways(relay: Relay, bot: EmbeddedBot) -> None:
    """A client message reaches the bot unchanged, and its answer and the bot's own messages reach the page."""
    user = User(relay())
    user.start()
    stream = user.stream()
    data = {"any": ["json", None, 1.5, "<b>"]}
    assert user.post("message", {"type": "echo", "data": data}).status_code == 202
    assert stream.until("serverResponse")[-1]["data"] == {"t": "echo", "d": data}
    bot.wait_for_session().send({"label": "rtvi-ai", "type": "server-message", "data": data})
    assert stream.until("serverMessage")[-1]["data"] == data
    stream.close()


def test_nobody_is_told_what_another_says(relay: Relay, bot: EmbeddedBot) -> None:
    """Two users have two sessions, and neither stream has a word of the other's."""
    app = relay()
    ada, bob = User(app), User(app)
    streams = []
    for user, text in ((ada, "for Ada"), (bob, "for Bob")):
        user.start()
        streams.append(user.stream())
        user.post("text", {"text": text, "audio_response": False})
    for stream, own, other in zip(streams, ("Ada", "Bob"), ("Bob", "Ada"), strict=True):
        told = str(stream.until("botTranscript"))
        assert f"for {own}" in told
        assert f"for {other}" not in told
        stream.close()
    assert len(bot.sessions) == 2


def test_all_pages_of_a_user_are_told(relay: Relay) -> None:
    """Each page of a user, also one that was opened later, has the whole conversation."""
    user = User(relay())
    user.start()
    first = user.stream()
    user.post("text", {"text": "Hello", "audio_response": False})
    first.until("botTranscript")
    second = user.stream()
    assert {"event": "relayText", "data": {"text": "Hello"}} in second.until("botTranscript")
    for stream in (first, second):
        stream.close()


def test_the_user_ends_the_session(relay: Relay, bot: EmbeddedBot) -> None:
    """All pages are told, the bot's session is over, and another one can be started, with nothing of the last."""
    user = User(relay())
    user.start()
    stream = user.stream()
    user.post("text", {"text": "the first session", "audio_response": False})
    stream.until("botTranscript")
    assert user.post("end").status_code == 202
    assert stream.until("relayEnd")[-1]["data"] == {"reason": "user"}
    assert list(stream) == []
    assert bot.wait_for_session().wait_ended().initiator == "client"
    for answer in (user.get("session"), user.post("text", {"text": "?"}), user.post("end")):
        assert (answer.status_code, answer.get_json()["error"]) == (410, "ended")
    user.start()
    again = user.stream(stream.last_id)
    assert "the first session" not in str(again.until("botReady"))
    again.close()


def test_who_closes_the_page_has_left(relay: Relay, bot: EmbeddedBot) -> None:
    """When the last stream is closed the bot's session ends after the time to leave, and not before."""
    user = User(relay(heartbeat_interval=0.05, leave_timeout=3.0))
    user.start()
    one, other = user.stream(), user.stream()
    one.until("botReady")
    one.close()
    began = time.monotonic()
    while time.monotonic() < began + 3.5:  # one page is still there
        next(other.parts)
    session = bot.wait_for_session()
    assert session.ended is None
    with takes(GUARD, at_least=2.0):  # counted from the last sign of life
        other.close()
        session.wait_ended(GUARD)
    assert user.get("session").status_code == 410


def test_who_never_opens_a_stream_has_left(relay: Relay, bot: EmbeddedBot) -> None:
    """A session whose page never connected is ended like any other."""
    User(relay(heartbeat_interval=0.1, leave_timeout=3.0)).start()
    bot.wait_for_session().wait_ended(GUARD)


def test_who_does_not_read_has_left(relay: Relay, bot: EmbeddedBot) -> None:
    """A stream that the server cannot write to does not count as contact, though no side has closed it."""
    user = User(relay(heartbeat_interval=0.1, leave_timeout=3.0))
    user.start()
    stream = user.stream()
    next(stream.parts)
    bot.wait_for_session().wait_ended(GUARD)
    assert stream.until("relayEnd")[-1]["data"] == {"reason": "left"}
    stream.close()


def test_a_page_that_is_loaded_again_finds_its_session(relay: Relay, bot: EmbeddedBot) -> None:
    """Between one stream and the next the session lives on, and the next has all that was said."""
    user = User(relay(heartbeat_interval=0.1, leave_timeout=GUARD))
    user.start()
    stream = user.stream()
    user.post("text", {"text": "Hello", "audio_response": False})
    stream.until("botTranscript")
    stream.close()
    assert user.post("session").status_code == 200
    again = user.stream()
    again.until("botTranscript")
    again.close()
    assert bot.wait_for_session().ended is None


def test_a_session_in_which_nothing_happens_is_ended(relay: Relay, bot: EmbeddedBot) -> None:
    """A session is ended after the idle timeout without activity, though its page is open."""
    user = User(relay(heartbeat_interval=0.05, leave_timeout=GUARD, idle_timeout=1.0))
    user.start()
    stream = user.stream()
    session = bot.wait_for_session()
    threading.Event().wait(0.5)
    with takes(GUARD, at_least=1.0):
        session.send({"label": "rtvi-ai", "type": "server-message", "data": "still here"})
        stream.until("serverMessage")
        assert stream.until("relayEnd")[-1]["data"] == {"reason": "idle"}
    stream.close()


def test_what_the_user_sends_counts_as_well(relay: Relay, bot: EmbeddedBot) -> None:
    """A session is not idle while texts and messages go to the bot, even if it sends nothing."""
    user = User(relay(events=["bot_ready"], heartbeat_interval=0.05, leave_timeout=GUARD, idle_timeout=5.0))
    user.start()
    stream = user.stream()
    for body in ({"type": "x"}, {"text": "x"}):
        threading.Event().wait(2.7)
        used = time.monotonic()
        assert user.post("message" if "type" in body else "text", body).status_code == 202
    assert stream.until("relayEnd")[-1]["data"] == {"reason": "idle"}
    assert time.monotonic() - used >= 5.0
    stream.close()


@pytest.mark.parametrize(("how", "reason"), [("close", "bot"), ("drop", "network")])
def test_the_bot_ends_the_session(relay: Relay, bot: EmbeddedBot, how: str, reason: str) -> None:
    """The page learns whether the bot ended the session or the line was lost, even if it returns only then."""
    user = User(relay(heartbeat_interval=0.1))
    user.start()
    stream = user.stream()
    stream.until("botReady")
    getattr(bot.wait_for_session(), how)()
    assert stream.until("relayEnd")[-1]["data"] == {"reason": reason}
    assert user.stream().until("relayEnd")[-1]["data"] == {"reason": reason}
    assert user.get("session").get_json()["error"] == "ended"


def test_a_bot_that_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    """The page is told so without a word about the server's inside, the log has it, and no session is left."""
    blueprint = RTVIBlueprint(lambda _: client_for("ws://127.0.0.1:1/secret-path?token=secret"))
    user = User(site_of(blueprint))
    with caplog.at_level(logging.WARNING):
        assert user.ask().status_code == 201
        told = user.stream().until("relayEnd")
    assert told[-1]["data"] == {"reason": "failed"}
    assert "127.0.0.1" not in str(told)
    assert "could not be started: " in caplog.text
    assert "127.0.0.1" in caplog.text
    assert "token=secret" not in caplog.text
    assert user.get("session").get_json()["error"] == "ended"
    blueprint.close()


def test_an_application_that_cannot_connect(bot: EmbeddedBot, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the application's own `connect` is in the log with its place, and the session ends."""
    blueprint = RTVIBlueprint(lambda _: client_for(bot.ws_url), connect=lambda _: 1 / 0)
    user = User(site_of(blueprint))
    user.ask()
    assert user.stream().until("relayEnd")[-1]["data"] == {"reason": "failed"}
    blueprint.close()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_bot_that_is_not_ready_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """The client's own limit is in the log."""
    with EmbeddedBot(ready=False) as bot:
        blueprint = RTVIBlueprint(lambda _: client_for(bot.ws_url, connect_timeout=0.2))
        user = User(site_of(blueprint))
        user.ask()
        assert user.stream().until("relayEnd")[-1]["data"] == {"reason": "failed"}
        blueprint.close()
    assert "0.2" in caplog.text


def test_an_attempt_without_a_limit_is_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    """A client that would wait for ever is ended with the time to start, and the log says so, once."""
    with black_hole() as port:
        blueprint = RTVIBlueprint(
            lambda _: client_for(f"ws://127.0.0.1:{port}", connect_timeout=None), start_timeout=0.3
        )
        user = User(site_of(blueprint))
        user.ask()
        with takes(3.0):
            assert user.stream().until("relayEnd")[-1]["data"] == {"reason": "failed"}
        blueprint.close()
    told = [record.getMessage() for record in caplog.records if "could not be started" in record.getMessage()]
    assert told == ["A session with the bot could not be started: not within 0.3 s"]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_an_attempt_that_the_client_repeats(is_late: bool) -> None:
    """A bot that closes before it is ready ends the attempt, and not the session of a client that tries again; also if
    that end is told late, because a handler of the application is slow."""
    told = threading.Event()
    if not is_late:
        told.set()

    def make_client(_: flask.Request) -> RTVIClient:
        client = client_for(bot.ws_url, reconnect=ReconnectPolicy.forever(initial_delay=0.05))
        client.once("disconnected", lambda: told.wait(GUARD))
        return client

    with EmbeddedBot(ready=False) as bot:
        blueprint = RTVIBlueprint(make_client)
        user = User(site_of(blueprint))
        user.ask()
        stream = user.stream()
        first = bot.wait_for_session(GUARD)
        bot.ready = True
        first.close(1012)
        wait_until_ready(lambda: user.get("session").get_json())
        told.set()
        stream.until("botReady")
        assert user.get("session").get_json() == {"state": "ready"}
        stream.close()
        blueprint.close()


def test_turns_have_their_words_alone(relay: Relay, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns on the page have the words of both sides, and nothing of the functions that the bot has called."""
    answer = Reply("It is noon.", call=("clock", {"key": "secret"}), result={"hour": 12})
    monkeypatch.setattr(bot, "replies", (answer,))
    user = User(relay(events=("turn-ended",)))
    user.start()
    stream = user.stream()
    user.post("text", {"text": "What time is it?", "audio_response": False})
    (turn,) = [each["data"] for each in stream.until("turnEnded") if each["event"] == "turnEnded"]
    assert turn == {
        "number": 1,
        "status": "complete",
        "user_text": "What time is it?",
        "bot_text": "It is noon.",
        "spoken_text": "It is noon.",
    }
    stream.close()


def test_a_user_who_leaves_during_the_connect(caplog: pytest.LogCaptureFixture) -> None:
    """The attempt to connect is aborted as a session would be ended, without a warning in the log."""
    with EmbeddedBot(ready=False) as bot:
        blueprint = RTVIBlueprint(lambda _: client_for(bot.ws_url), heartbeat_interval=0.05, leave_timeout=3.0)
        user = User(site_of(blueprint))
        user.ask()
        stream = user.stream()
        began = time.monotonic()
        while time.monotonic() < began + 3.5:  # while the page is open the attempt continues
            next(stream.parts)
        assert user.get("session").json == {"state": "connecting"}
        session = bot.wait_for_session()
        assert session.ended is None
        assert session.wait_ended(GUARD).initiator == "client"
        assert stream.until("relayEnd")[-1]["data"] == {"reason": "left"}
        stream.close()
        blueprint.close()
    assert "could not be started" not in caplog.text


def test_another_way_to_connect(bot: EmbeddedBot) -> None:
    """`connect` is called with the client, for servers with a start endpoint."""

    def make_client(_: flask.Request) -> RTVIClient:
        return RTVIClient(transport=WebSocketTransport(), enable_mic=False, connect_timeout=GUARD)

    blueprint = RTVIBlueprint(make_client, connect=lambda client: client.start_bot_and_connect(f"{bot.base_url}/start"))
    User(site_of(blueprint)).start()
    blueprint.close()


def test_a_browser_is_known_before_it_may_start(relay: Relay, bot: EmbeddedBot) -> None:
    """Without the cookie nothing is started; the page has brought it, and the refusal brings it too."""
    user, eager = User(relay()), User(relay())
    for _ in range(2):
        user.http.delete_cookie("session")
        refused = user.post("session")
        assert (refused.status_code, refused.get_json()["error"]) == (428, "no_cookie")
    assert user.get("session").get_json()["error"] == "no_session"
    assert (user.post("session").status_code, user.post("session").status_code) == (201, 200)
    assert eager.ask().status_code == 201
    cookie = eager.http.get_cookie("session")
    assert eager.ask().status_code == 200
    assert "Set-Cookie" not in eager.post("session").headers  # it could replace a later one of another response
    assert eager.http.get_cookie("session") == cookie
    assert [bot.wait_for_session() is not None for _ in range(2)] == [True, True]
    assert len(bot.sessions) == 2


def test_a_browser_that_asks_many_times_at_once(bot: EmbeddedBot) -> None:
    """A browser that asks many times at once gets one session; the other requests' clients are not connected."""
    made, connected = [], []
    all_ask, go_on = threading.Barrier(8), threading.Event()

    def make_client(_: flask.Request) -> RTVIClient:
        all_ask.wait(GUARD)
        made.append(client_for(bot.ws_url))
        return made[-1]

    def connect(client: RTVIClient) -> None:
        connected.append(client)
        assert go_on.wait(GUARD)
        client.connect()

    blueprint = RTVIBlueprint(make_client, connect=connect)
    app = site_of(blueprint)
    user = User(app)
    user.http.get("/")
    pages = [User(app) for _ in range(8)]
    for page in pages:
        page.http.set_cookie("session", user.http.get_cookie("session").value)  # type: ignore[union-attr]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda page: page.post("session").status_code, pages))
    assert sorted(answers) == [200] * 7 + [201]
    assert user.post("session").status_code == 200  # while it is being connected
    go_on.set()
    wait_until_ready(lambda: user.get("session").json)
    assert (len(made), len(connected), len(bot.sessions)) == (8, 1, 1)
    blueprint.close()


def test_the_application_decides_who_may_come(bot: EmbeddedBot) -> None:
    """`make_client` sees the request, and its abort is the answer."""

    def make_client(request: flask.Request) -> RTVIClient:
        if request.headers.get("X-Key") != "right":
            flask.abort(403)
        return client_for(bot.ws_url)

    blueprint = RTVIBlueprint(make_client)
    app = site_of(blueprint)
    stranger, friend = User(app), User(app)
    friend.headers["X-Key"] = "right"
    friend.start()
    assert stranger.ask().status_code == 403
    blueprint.close()


@pytest.mark.parametrize("wrong", ["shared", "none"])
def test_a_client_for_two_users_is_refused(bot: EmbeddedBot, wrong: str) -> None:
    """A client that is used for two users is refused, and so is anything else that is no client of one user."""
    shared = client_for(bot.ws_url)
    clients: list[Any] = [shared, shared if wrong == "shared" else None]
    blueprint = RTVIBlueprint(lambda _: clients.pop(0))
    app = site_of(blueprint)
    first = User(app)
    first.start()
    with pytest.raises(TypeError, match="make_client return"):
        User(app).ask()
    assert first.get("session").json == {"state": "ready"}
    blueprint.close()


def test_a_full_worker_says_so(relay: Relay) -> None:
    """A user beyond the limit gets 503 and its client is dropped; when another user leaves there is room."""
    app = relay(max_sessions=1)
    one, other = User(app), User(app)
    one.start()
    answer = other.ask()
    assert (answer.status_code, answer.get_json()["error"]) == (503, "busy")
    assert one.post("session").status_code == 200
    one.post("end")
    other.start()


def test_a_lost_session_is_replaced_if_the_client_does_so(relay: Relay, bot: EmbeddedBot) -> None:
    """With a reconnect policy the user's session goes on in a new session with the bot."""
    user = User(relay({"reconnect": ReconnectPolicy(initial_delay=0.05)}))
    user.start()
    stream = user.stream()
    stream.until("botReady")
    bot.wait_for_session().drop()
    stream.until("reconnecting")
    stream.until("botReady")
    assert user.get("session").json == {"state": "ready"}
    user.post("text", {"text": "Still there?", "audio_response": False})
    stream.until("botTranscript")
    stream.close()


def test_a_lost_session_that_cannot_be_replaced() -> None:
    """When the client has given up, the page is told of the end."""
    bot = EmbeddedBot()
    bot.start()
    policy = ReconnectPolicy(max_attempts=1, initial_delay=0.01)
    blueprint = RTVIBlueprint(lambda _: client_for(bot.ws_url, reconnect=policy))
    user = User(site_of(blueprint))
    user.start()
    stream = user.stream()
    bot.stop()
    told = stream.until("relayEnd")
    assert [each["event"] for each in told if "reconnect" in each["event"]] == ["reconnecting", "reconnectFailed"]
    assert told[-1]["data"] == {"reason": "network"}
    blueprint.close()


def test_a_worker_that_closes_breaks_off_attempts(bot: EmbeddedBot) -> None:
    """`close()` ends every session and every attempt to start one, and leaves no thread."""
    with black_hole() as port:
        urls = [bot.ws_url, f"ws://127.0.0.1:{port}"]
        blueprint = RTVIBlueprint(lambda _: client_for(urls.pop(0)))
        app = site_of(blueprint)
        user = User(app)
        user.start()
        stream = user.stream()
        attempt = User(app)
        attempt.ask()
        waiting = attempt.stream()
        next(waiting.parts)
        blueprint.close()
    assert waiting.until("relayEnd")[-1]["data"] == {"reason": "shutdown"}
    assert stream.until("relayEnd")[-1]["data"] == {"reason": "shutdown"}
    assert bot.wait_for_session().wait_ended().initiator == "client"
