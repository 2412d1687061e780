"""Pages that talk: audio of both sides, interruptions, returns, and what such a page may not do."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import websocket

from rtvi_sync import Recording, RTVIClient, TurnAudio
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.support import limits
from tests.support.slowness import GUARD, takes
from tests.support.talking_page import RATE, Talker, TalkingPage, share_of, speech

from .browser import User, site_of
from .talking import Site

Serve = Callable[..., Site]
LONG = " ".join(f"word{number}" for number in range(20)) + "."
PAUSE = bytes(2 * RATE)  # a second of silence, after which a bot answers


def names(page: TalkingPage) -> list[str]:
    return [event["event"] for event in page.events]


# -- talking ----------------------------------------------------------------------------------------------------------


def test_a_question_by_voice(serve: Serve) -> None:
    """What the page records reaches the bot, and what the bot says reaches the page, in time."""
    page = serve().user().talk()
    said = speech(1.0)
    page.say(said + PAUSE)
    with takes(2.0):
        page.wait_for_event("botStoppedSpeaking")
    assert page.rate == RATE
    assert share_of(said, bytes(page.audio)) > 0.8
    assert names(page).index("voiceFormat") < names(page).index("botStoppedSpeaking")


def test_an_interruption_empties_the_page(serve: Serve) -> None:
    """The player is emptied at once, nothing of the old answer follows, and the words that were not heard are known."""
    with EmbeddedBot(replies=[LONG, "Yes."]) as bot:
        site = serve(to=bot)
        page = site.user().talk()
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for(lambda page: page.rate and len(page.audio) > 2 * page.rate)
        page.say(speech(0.5)[:9600])
        with takes(0.5):
            page.wait_for_event("voiceClear")
        turn = next(turn for turn in site.clients[0].turns() if turn.user_text == "Tell me.")
        assert turn.status == "interrupted"
        assert 0 < len(turn.spoken_text or "") < len(turn.bot_text or "")
        page.say(PAUSE)
        page.wait_for_event("botOutput", lambda data: data["text"] == "Yes.")
        page.wait_for(
            lambda page: names(page)[::-1].index("botStoppedSpeaking") < names(page)[::-1].index("voiceClear")
        )


def test_text_and_its_answer_by_voice(serve: Serve) -> None:
    """A page that talks may type too; all pages are told."""
    user = serve().user()
    page = user.talk()
    page.send({"type": "text", "text": "Hello!"})
    assert page.wait_for_event("relayText")["data"] == {"text": "Hello!"}
    page.wait_for_event("botStoppedSpeaking")
    assert len(page.audio) > RATE // 2
    page.send({"type": "text", "text": "Now in writing.", "audio_response": False})
    page.wait_for_event("botOutput", lambda data: "in writing" in data["text"])


def test_a_page_that_plays_nothing(serve: Serve) -> None:
    """It gets one second of the bot's audio, and the rest once it plays; nothing is lost."""
    with EmbeddedBot(replies=[LONG]) as bot:
        site = serve(to=bot)
        page = site.user().talk(plays=False)
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for_event("botStoppedSpeaking")
        assert page.rate is not None
        held = len(page.audio) / (2 * page.rate)
        assert 0.9 < held < 1.3
        page.plays = True
        page.wait_for(lambda page: len(page.audio) > 4 * RATE)
        assert site.clients[0].stats().speaker_dropped_seconds == 0


def test_the_first_page_hears_the_greeting(serve: Serve) -> None:
    """What the bot says before the page is there waits for it, from the first word on."""
    with EmbeddedBot(greeting="One two three.") as bot:
        user = serve(to=bot).user()
        user.start()
        bot.wait_for_session().wait_for_message("client-ready")
        threading.Event().wait(0.3)
        page = user.open()
        page.wait_for_event("botStoppedSpeaking")
        page.wait_for(lambda page: len(page.audio) > 2 * RATE * 0.8)


# -- pages that come and go -------------------------------------------------------------------------------------------


def test_a_page_that_returns(serve: Serve, bot: EmbeddedBot) -> None:
    """A connection that was cut is opened again: the same session, and of the events only those that are missing."""
    user = serve().user()
    page = user.talk()
    last = page.last_id
    page.cut()
    again = user.open(after=last)
    user.http.post("/bot/text", json={"text": "Still there?", "audio_response": False})
    again.wait_for_event("botOutput")
    assert next(event["event"] for event in again.events if "id" in event) == "relayText"
    assert bot.wait_for_session().ended is None


def test_what_is_said_while_no_page_is_there(serve: Serve) -> None:
    """It is lost as it would have been heard: a page that returns hears what the bot says then."""
    with EmbeddedBot(replies=[LONG]) as bot:
        user = serve(to=bot).user()
        page = user.talk()
        page.send({"type": "text", "text": "Tell me."})
        page.wait_for(lambda page: len(page.audio) > RATE)
        page.close()
        threading.Event().wait(2.0)
        again = user.open(after=page.last_id)
        again.wait_for_event("botStoppedSpeaking")
        both = len(page.audio) + len(again.audio)
        alone = serve(to=bot).user().talk()
        alone.send({"type": "text", "text": "Tell me."})
        alone.wait_for_event("botStoppedSpeaking")
        lost = (len(alone.audio) - both) / (2 * RATE)
        assert 1.0 < lost < 3.5


def test_another_page_takes_the_voice(serve: Serve) -> None:
    """The newest page talks and hears; the one before is told why it does not, and may take it back."""
    user = serve().user()
    first = user.talk()
    second = user.open()
    assert first.closed() == 4001
    said = speech(0.5)
    second.say(said + PAUSE)
    second.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(second.audio)) > 0.8
    assert not first.audio
    third = user.open(after=first.last_id)
    assert second.closed() == 4001
    third.send({"type": "text", "text": "Me again."})
    third.wait_for_event("relayText")


def test_too_many_pages(serve: Serve) -> None:
    """Pages that show the session count together."""
    user = serve(max_streams=1).user()
    user.talk()
    assert refusal_of(user) == (429, "too_many_pages")


def test_a_page_that_is_silent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as gone, and is closed."""
    limits.patch(monkeypatch, page_silence=0.5)
    user = serve().user()
    user.start()
    connection = connect(user)
    connection.send(START)
    assert code_of(connection) == 1013
    connection = connect(user)  # not even the first message
    assert code_of(connection) == 1013


def test_a_page_that_reads_nothing(serve: Serve, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up, and the session goes on for the user's next page."""
    limits.patch(monkeypatch, page_socket=0.5)
    user = serve().user()
    user.start()
    session = bot.wait_for_session()
    connection = connect(user, sockopt=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    connection.send(START)
    for number in range(200):
        session.send({"label": "rtvi-ai", "type": "server-message", "data": f"{number}" + 100_000 * "x"})
    with contextlib.suppress(OSError, websocket.WebSocketException):
        for _ in range(int(GUARD / 0.01)):
            connection.send(json.dumps({"type": "played", "seconds": 0}))
            threading.Event().wait(0.01)
        raise AssertionError("the page was not given up")
    connection.shutdown()
    user.open().wait_for_event("relayGap")
    assert session.ended is None


# -- the end ----------------------------------------------------------------------------------------------------------


def test_the_user_ends_it(serve: Serve, bot: EmbeddedBot) -> None:
    """By the page: the bot's session ends politely, and the page is told."""
    user = serve().user()
    page = user.talk()
    page.send({"type": "end"})
    assert page.closed() == 1000
    assert page.events[-1]["data"] == {"reason": "user"}
    assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
    assert user.http.get("/bot/session").status_code == 410


def test_the_bot_ends_it(serve: Serve, bot: EmbeddedBot) -> None:
    """The page is told, and closed."""
    page = serve().user().talk()
    bot.wait_for_session().close()
    assert page.closed() == 1000
    assert page.events[-1]["event"] == "relayEnd"


def test_the_user_leaves(serve: Serve, bot: EmbeddedBot) -> None:
    """A session without a page ends after `leave_timeout`; one with a page that only listens does not."""
    site = serve(leave_timeout=0.5, heartbeat_interval=0.1)
    page = site.user().talk()
    session = bot.wait_for_session()
    threading.Event().wait(1.0)
    assert session.ended is None
    page.close()
    with takes(2.0):
        assert session.wait_ended(GUARD).initiator == "client"


def test_the_blueprint_is_closed(serve: Serve, bot: EmbeddedBot) -> None:
    """All pages end with it, also while the bot speaks to one that does not play."""
    with EmbeddedBot(replies=[LONG]) as speaker:
        site = serve(to=speaker)
        pages = [site.user().talk(plays=False) for _ in range(2)]
        pages[0].send({"type": "text", "text": "Tell me."})
        pages[0].wait_for(lambda page: len(page.audio) > RATE)
        with takes(2.0):
            site.blueprint.close()
        assert [page.closed() for page in pages] == [1000, 1000]


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"mic": False, "speaker": False}, {"enable_mic": False}], ids=str)
def test_devices_that_the_application_chose(serve: Serve, options: dict[str, Any]) -> None:
    """The page's take their place."""
    page = serve(options).user().talk()
    said = speech(0.5)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(page.audio)) > 0.8


def test_a_client_for_text_alone() -> None:
    """It is refused: its pages could not talk."""
    blueprint = RTVIBlueprint(lambda _: RTVIClient.for_url("ws://127.0.0.1:1", text_only=True), voice=True)
    user = User(site_of(blueprint))
    with pytest.raises(TypeError, match="text_only=True, which has no voice"):
        user.ask()
    assert user.get("session").status_code == 404


def test_a_conversation_is_recorded(serve: Serve, tmp_path: Path) -> None:
    """As any other: both sides' audio, and the words."""
    path = tmp_path / "talk.jsonl"
    page = serve(record=path).user().talk()
    said = speech(0.5)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    page.send({"type": "end"})
    page.closed()
    recording = Recording.load(path)
    assert [turn.user_text for turn in recording.turns()] != []
    assert 0.4 < seconds_of_sound(recording.audio(side="user")) < 0.7
    assert 0.4 < seconds_of_sound(recording.audio(side="bot")) < 0.7


def seconds_of_sound(audio: TurnAudio) -> float:
    """Return for how long it is loud."""
    parts = [array("h", audio.pcm[begin : begin + 480]) for begin in range(0, len(audio.pcm), 480)]
    return sum(max(part) > 2000 for part in parts) * 240 / audio.sample_rate_hz


# -- refused requests -------------------------------------------------------------------------------------------------

START = json.dumps({"type": "start", "sample_rate_hz": RATE, "after": ""})


def connect(user: Talker, cookie: str | None = None, **options: Any) -> websocket.WebSocket:
    return websocket.create_connection(
        user.url.replace("http", "ws", 1) + "/bot/voice",
        timeout=GUARD,
        cookie=user.cookie if cookie is None else cookie,
        **options,
    )


def refusal_of(user: Talker, cookie: str | None = None, **options: Any) -> tuple[int, str]:
    """Open a page that is refused before the upgrade; return the status and the error."""
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        connect(user, cookie, **options)
    return refused.value.status_code, json.loads(refused.value.resp_body or b"")["error"]


def code_of(connection: websocket.WebSocket) -> int:
    """Read until the connection is closed; return the code."""
    try:
        while True:
            opcode, data = connection.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big")
    finally:
        connection.shutdown()


def test_a_page_without_a_session(serve: Serve) -> None:
    """No cookie, a forged one, one without a session, and one of a session that is over."""
    site = serve(leave_timeout=0.3, heartbeat_interval=0.1)
    user = site.user()
    assert refusal_of(user) == (404, "no_session")
    user.http.get("/")
    assert refusal_of(user) == (404, "no_session")
    page = user.talk()
    cookie = user.cookie
    assert refusal_of(user, cookie[:-4] + "AAAA") == (404, "no_session")
    page.send({"type": "end"})
    page.closed()
    with contextlib.suppress(websocket.WebSocketBadStatusException):  # its log is kept for a moment
        while True:
            connect(user, cookie).shutdown()
    assert refusal_of(user, cookie) == (410, "ended")
    with serve().app.test_client() as elsewhere:  # signed with the same key, but of another process
        elsewhere.set_cookie("session", user.http.cookies["session"])
        assert elsewhere.get("/bot/voice", headers={"Upgrade": "websocket"}).status_code == 409


@pytest.mark.parametrize(
    "options",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"header": {"Sec-Fetch-Site": "cross-site"}, "origin": "https://evil.example"},
        {"header": {"Sec-Fetch-Site": "same-site"}, "suppress_origin": True},
    ],
    ids=str,
)
def test_a_page_of_another_origin(serve: Serve, options: dict[str, Any]) -> None:
    """It is refused, with the user's cookie."""
    user = serve().user()
    user.start()
    assert refusal_of(user, **options) == (403, "cross_origin")


@pytest.mark.parametrize(
    "options",
    [{}, {"header": {"Sec-Fetch-Site": "same-origin"}, "origin": "https://public.example"}, {"suppress_origin": True}],
    ids=str,
)
def test_a_page_of_this_origin(serve: Serve, options: dict[str, Any]) -> None:
    """By its origin, or by the browser's statement; and a program."""
    user = serve().user()
    user.start()
    connect(user, **options).shutdown()


def test_a_request_that_is_no_handshake(serve: Serve) -> None:
    """Each is refused as what it is, and the session goes on."""
    user = serve().user()
    page = user.talk()
    assert user.http.get("/bot/voice").json()["error"] == "not_websocket"
    answer = user.http.get("/bot/voice", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("relayText")


def test_a_server_without_a_socket(bot: EmbeddedBot) -> None:
    """It says how to serve."""
    blueprint = RTVIBlueprint(lambda _: RTVIClient.for_url(bot.ws_url), voice=True)
    user = User(site_of(blueprint))
    user.start()
    for multithread in (True, False):
        answer = user.http.get(
            "/bot/voice",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
            environ_overrides={"wsgi.multithread": multithread},
        )
        assert answer.status_code == 501
        assert "gunicorn --worker-class gthread" in answer.get_json()["message"]
    blueprint.close()


# -- messages that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"type": "start", "sample_rate_hz": 48_000, "after": ""}, 1007),
        ({"type": "start", "sample_rate_hz": "16000", "after": ""}, 1007),
        ({"type": "start", "sample_rate_hz": RATE, "after": 5}, 1008),
        ({"type": "played", "seconds": 0}, 1008),
        ("[]", 1008),
        ("{", 1008),
        (b"\0\0" * 320, 1008),
    ],
    ids=str,
)
def test_a_wrong_beginning(serve: Serve, start: Any, code: int) -> None:
    """The page is closed, and does not take the voice."""
    user = serve().user()
    page = user.talk()
    assert user.open(start=start).closed() == code
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("relayText")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\0", 1007),
        (b"\0" * 641, 1007),
        (b"", 1007),
        (b"\0" * 6402, 1009),
        ("nonsense", 1008),
        ("[1]", 1008),
        ("[" * 60_000, 1008),
        ('{"type": "played", "seconds": NaN}', 1008),
        ('{"type": "played", "seconds": 1e999}', 1008),
        ('{"type": "played", "seconds": -1}', 1008),
        ('{"type": "played", "seconds": true}', 1008),
        ('{"type": "played"}', 1008),
        ('{"type": "start", "sample_rate_hz": 16000}', 1008),
        ('{"type": ["end"]}', 1008),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_message(
    serve: Serve,
    bot: EmbeddedBot,
    caplog: pytest.LogCaptureFixture,
    message: Any,
    code: int,
) -> None:
    """The page is closed, and nothing else: the session goes on, and the log says nothing."""
    page = serve().user().talk()
    page.send(message)
    assert page.closed() == code
    assert bot.wait_for_session().ended is None
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_numbers_that_lie(serve: Serve) -> None:
    """Whatever a page says that it has played, it counts as no less than before and no more than it was sent."""
    page = serve().user().talk(plays=False)
    for seconds in (1e300, 10**400, 0, 5e-324):
        page.send(json.dumps({"type": "played", "seconds": seconds}))
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("botStoppedSpeaking")
    assert page.code is None


@pytest.mark.parametrize("text", ["", " ", 5, "\ud800"], ids=ascii)
def test_text_that_is_not_sent(serve: Serve, text: Any) -> None:
    """The page is told why, and goes on."""
    page = serve().user().talk()
    page.send({"type": "text", "text": text})
    assert page.wait_for_event("voiceRefused")["data"]["error"] == "bad_request"
    assert page.code is None


def test_text_before_the_bot_is_ready(serve: Serve) -> None:
    """It is refused, and so is the flood of a page that does not read the refusals."""
    with EmbeddedBot(ready=False) as bot:
        user = serve(to=bot).user()
        user.http.get("/")
        assert user.http.post("/bot/session", json={}).status_code == 201
        page = user.open()
        page.send({"type": "text", "text": "Hello?"})
        assert page.wait_for_event("voiceRefused")["data"]["error"] == "not_ready"
        page.say(speech(0.1))
        assert page.code is None


def test_a_flood_of_audio(serve: Serve, bot: EmbeddedBot) -> None:
    """What is more than real time is dropped, and the bot hears what is said now."""
    page = serve().user().talk()
    for _ in range(2000):
        page.send(bytes(640))
    said = speech(0.5)
    page.say(said + PAUSE)
    page.wait_for_event("botStoppedSpeaking")
    assert share_of(said, bytes(page.audio)) > 0.8


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rtvi-voice.js", "rtvi-voice-worklet.js"])
def test_the_files_of_the_page(name: str) -> None:
    """For every page; a browser that has one is told that it has not changed."""
    user = User(site_of(RTVIBlueprint(lambda _: RTVIClient(), voice=True)))
    file = user.http.get(f"/bot/{name}")
    assert (file.status_code, file.content_type) == (200, "text/javascript; charset=utf-8")
    assert (file.headers["Cache-Control"], file.headers["X-Content-Type-Options"]) == ("no-cache", "nosniff")
    again = user.http.get(f"/bot/{name}", headers={"If-None-Match": file.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    mute = User(site_of(RTVIBlueprint(lambda _: RTVIClient())))
    assert [mute.http.get(f"/bot/{route}").status_code for route in (name, "voice")] == [404, 404]
