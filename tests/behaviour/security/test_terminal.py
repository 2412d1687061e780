"""Text of a server reaches logs and exceptions, and with them terminals: as text, and never as a command.

Data for the program itself, such as the bot's words, arrives as it was sent. Code that prints it cleans it, as the
commands of this package do.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    SmallWebRTCTransport,
    WebSocketTransport,
    connect,
)
from rtvi_sync.cli import CleanFormatter, main
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD

# Clears the screen, sets the title of the window, rings, returns to the start of the line, writes from right to left,
# hides, and asks the terminal to type something.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\rfake\x08\u202elive\u2066\u2028\u2029\x00\x7f\x85\x1b]52;c;cm0=\x07"


def harmless(text: str) -> bool:
    """Return whether a terminal obeys nothing in a text; line breaks are ours."""
    return not any(
        unicodedata.category(c) == "Cc" or unicodedata.bidirectional(c) in ("RLO", "LRO", "RLE", "LRE", "LRI", "RLI")
        for c in text.replace("\n", "")
    )


def client_of(transport: WebSocketTransport, **options: Any) -> RTVIClient:
    """Return a client without devices."""
    return RTVIClient(
        transport=transport, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD, proxy=False, **options
    )


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the log so far, at any level, with exceptions."""
    caplog.set_level(logging.DEBUG)
    formatter = logging.Formatter("%(message)s")
    return lambda: [formatter.format(record) for record in caplog.records]


def http_answer(status: str, body: Any, *headers: str) -> Callable[[Any], None]:
    """Answer one request."""

    def answer(peer: Any) -> None:
        peer.read_request()
        peer.answer(status, json.dumps(body).encode(), *headers)

    return answer


LATIN = HOSTILE.encode("utf-8").decode("latin-1").replace("\r", "").replace("\0", "")

ANSWERS: dict[str, Callable[[Any], None]] = {
    "info": http_answer("500 Oops", {"info": HOSTILE}),
    "detail": http_answer("500 Oops", {"detail": HOSTILE}),
    "a structure": http_answer("500 Oops", {"detail": {HOSTILE: [HOSTILE]}}),
    "validation": http_answer("422 Oops", {"detail": [{"loc": [HOSTILE], "msg": HOSTILE, "input": HOSTILE}]}),
    "a reason phrase": http_answer(f"500 {LATIN}", {}),
    "a redirect": http_answer("307 There", {}, f"Location: http://elsewhere.invalid/{LATIN}"),
    "an encoding": http_answer("200 OK", {}, f"Content-Encoding: x{LATIN}"),
    "no JSON": lambda peer: (peer.read_request(), peer.answer("200 OK", HOSTILE.encode())),  # type: ignore[dict-item]
    "no HTTP": lambda peer: (peer.read_request(), peer.send(HOSTILE.encode() + b"\r\n\r\n")),  # type: ignore[dict-item]
    "an address": http_answer("200 OK", {"ws_url": f"http://{HOSTILE}/"}),
    "another address": http_answer("200 OK", {"ws_url": f"ws://127.0.0.1:9/{HOSTILE}"}),
    "a kind": http_answer("200 OK", [HOSTILE]),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_endpoint_answers(answer: str, logged: Callable[[], list[str]]) -> None:
    """The answer of an endpoint puts nothing into the error or the log that a terminal obeys."""
    with Server(ANSWERS[answer]) as server, pytest.raises(RTVIError) as caught:
        client_of(WebSocketTransport(), params={"base_url": f"http://{server.authority}"}).connect()
    assert str(caught.value).isprintable()
    assert harmless(repr(caught.value))
    assert all(map(harmless, logged()))


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 403 {LATIN}\r\n\r\n",
        f"HTTP/1.1 101 {LATIN}\r\nUpgrade: {LATIN}\r\nConnection: {LATIN}\r\nSec-WebSocket-Accept: {LATIN}\r\n\r\n",
        f"{LATIN}\r\n\r\n",
        f"HTTP/1.1 101 OK\r\n{LATIN}\r\n\r\n",
    ],
)
def test_what_a_handshake_is_answered(answer: str, logged: Callable[[], list[str]]) -> None:
    """The answer to a WebSocket's handshake puts nothing into the error or the log that a terminal obeys."""

    def refuse(peer: Peer) -> None:
        peer.read_head()
        peer.send(answer.encode("latin-1"))

    with Server(refuse) as server, pytest.raises(RTVIError) as caught:
        client_of(WebSocketTransport(f"ws://{server.authority}/")).connect()
    assert str(caught.value).isprintable()
    assert all(map(harmless, logged()))


LONG = HOSTILE + "a" * 100_000
MANY = 9_000
MEDIA = "m=audio 9 UDP/TLS/RTP/SAVPF 96\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\na=fingerprint:sha-256 AA\r\n"
RTC_ANSWERS: dict[str, dict[str, Any]] = {
    "a long ICE server": {"iceConfig": {"iceServers": [{"urls": f"turn:{LONG}!"}]}},
    "a long ICE server with a login": {"iceConfig": {"iceServers": [{"urls": f"turn:{':' * 100_000}@{LONG}!"}]}},
    "many ICE servers": {"iceConfig": {"iceServers": [{"urls": "stuns:127.0.0.1:9"}] * MANY}},
    "another kind of server": {"iceConfig": {"iceServers": [{"urls": LONG}]}},
    "a header": {"webrtcRequestParams": {"endpoint": "<url>", "headers": {LONG: "x"}}},
    "many headers": {"webrtcRequestParams": {"endpoint": "<url>", "headers": {f"x{i}": "x" for i in range(MANY)}}},
    "an endpoint": {"webrtcRequestParams": {"endpoint": LONG}},
    "keys": {LONG: 5},
    "a candidate": {
        "sdp": f"{MEDIA}a=candidate:1 1 {LONG[:20]} 1 {LONG[:90_000]} 9 typ {LONG[:20]}\r\nm=application 9 x"
    },
    "many media": {"sdp": MEDIA * 200 + "m=application 9 x\r\n"},
    "a long description": {"sdp": f"{MEDIA}m=application 9 x\r\na=group:BUNDLE {LONG}"},
}


@pytest.mark.parametrize("kind", RTC_ANSWERS)
def test_what_a_server_answers_over_webrtc(kind: str, logged: Callable[[], list[str]]) -> None:
    """Errors and logs of an attempt over WebRTC are short, and nothing in them is obeyed; each fault is logged once."""
    answer = RTC_ANSWERS[kind]

    def respond(peer: Peer) -> None:
        head, _ = peer.read_request()
        document: Any = answer
        if "sdp" in answer:
            document = {"sessionId": "x"} if head.startswith("POST /start") else answer
        elif not head.startswith("POST /start"):
            document = {}
        elif kind != "keys":
            document = {"sessionId": "x", **answer}
        peer.answer("200 OK", json.dumps(document).replace("<url>", url).encode())

    with Server(respond) as server:
        url = f"http://{server.authority}/api/offer"
        with pytest.raises(RTVIError) as caught:
            connect(
                f"http://{server.authority}/start",
                transport=SmallWebRTCTransport(ice_timeout=0.5),
                text_only=True,
                connect_timeout=GUARD,
                proxy=False,
            )
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 1_000
    assert "AssertionError" not in text
    assert kind != "many media" or "its session description (sdp)" in text
    ours = [line for line in logged() if not line.startswith("Connection(") and "aioice" not in line]
    assert all(map(harmless, ours))
    assert sum(map(len, ours)) < 10_000


def test_turn_servers_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The client uses 20 of the TURN servers that a start endpoint names, and one warning counts the rest."""
    with Server(lambda peer: peer.sock.close()) as turn:
        urls = [f"turn:{turn.authority}?transport=tcp"] * 500
        servers = [{"urls": urls, "username": "ada", "credential": "secret"}] * 4
        answer = http_answer("200 OK", {"sessionId": "x", "iceConfig": {"iceServers": servers}})
        with Server(answer) as server:
            url = f"http://{server.authority}/start"
            with pytest.raises(RTVIError):
                connect(url, transport="webrtc", text_only=True, connect_timeout=GUARD, proxy=False)
        assert turn.connections == 20
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("rtvi_sync")]
    assert [line for line in warnings if "ICE servers" in line] == [
        f"ICE servers of the server are left out (1980); the first is 'turn:{turn.authority}?transport=tcp': "
        "at most 20 are used"
    ]


def test_what_a_bot_says_about_itself(logged: Callable[[], list[str]]) -> None:
    """Versions, names, types, ids, errors, refusals, broken messages and the reason of the end are harmless in errors
    and logs, and the session continues until its end.
    """
    messages: list[Any] = [
        {"type": "error", "data": {"error": HOSTILE}},
        {"type": "error-response", "id": HOSTILE, "data": {"error": HOSTILE}},
        {"type": "server-response", "id": HOSTILE, "data": {"t": HOSTILE}},
        {"type": HOSTILE, "data": {HOSTILE: HOSTILE}},
        {"type": "bot-output", "data": {"text": [HOSTILE], HOSTILE: HOSTILE}},
        {"type": "bot-output", "data": HOSTILE},
        {"type": [HOSTILE], "data": {}},
        {"type": "x", "label": HOSTILE},
    ]

    def handler(session: Any, message: Any) -> bool:
        if message["type"] == "client-ready":
            about = {"library": HOSTILE, "library_version": HOSTILE, "platform": HOSTILE}
            ready = {"version": HOSTILE, "about": about}
            session.send({"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": ready})
            for document in messages:
                session.send({"label": "rtvi-ai", **document})
            session.send_raw(HOSTILE.encode())
        elif message["type"] == "client-message":
            error = {"error": HOSTILE}
            session.send({"label": "rtvi-ai", "type": "error-response", "id": message["id"], "data": error})
        return True

    seen: list[Any] = []
    errors: list[BaseException] = []
    with EmbeddedBot(handler=handler) as bot:
        client = client_of(WebSocketTransport(bot.ws_url))
        for event in RTVIEvent:
            client.on(event, seen.append)
        client.connect()
        with pytest.raises(RTVIError, match="refused") as refused:
            client.send_client_request("anything")
        with client.events("disconnected", timeout=GUARD) as ends:
            bot.wait_for_session().close(4000, HOSTILE[:60])
            ended = next(ends).data
        for call in (lambda: client.send_client_request("late"), lambda: client.wait_for("bot_ready", timeout=0.1)):
            with pytest.raises(RTVIError) as late:
                call()
            errors += [late.value]
        client.close()
    assert ended.code == 4000
    assert "owned" in ended.reason
    assert harmless(ended.reason)
    for error in (refused.value, *errors):
        assert harmless("".join(traceback.format_exception(error)))
    assert all(harmless(repr(thing)) for thing in seen)
    log = logged()
    assert any("owned" in line for line in log)
    assert all(map(harmless, log))


def test_the_reason_of_another_transport() -> None:
    """The reason for the end that a program's own transport gives is also logged on one clean line."""
    info = CloseInfo(code=1000, reason=HOSTILE * 100, initiator="server")
    for text in (info.describe(), str(info.as_error("the end"))):
        assert text.isprintable()
        assert len(text) < 700


def test_what_a_fatal_error_says() -> None:
    """The words with which a bot fails are cleaned before they are raised."""

    def handler(session: Any, message: Any) -> bool:
        session.send({"label": "rtvi-ai", "type": "error", "data": {"error": HOSTILE, "fatal": True}})
        return True

    with EmbeddedBot(handler=handler) as bot, pytest.raises(RTVIError, match="owned") as caught:
        client_of(WebSocketTransport(bot.ws_url)).connect()
    assert str(caught.value).isprintable()


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    """The demo shows the words of such a bot, and the answer of such an endpoint, as text."""

    def handler(session: Any, message: Any) -> bool:
        about = {"library": HOSTILE, "library_version": HOSTILE}
        session.send({"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": {"about": about}})
        session.send({"label": "rtvi-ai", "type": "bot-llm-text", "data": {"text": HOSTILE}})
        session.close(4000, HOSTILE[:60])
        return True

    out = str(tmp_path / "x.wav")
    with EmbeddedBot(handler=handler) as bot:
        assert main(["demo", "--url", bot.ws_url, "--out", out, "--greeting", "0"]) == 1
    for answer in ("info", "a redirect", "an address"):
        with Server(ANSWERS[answer]) as server:
            assert main(["demo", "--url", f"http://{server.authority}", "--out", out]) == 1
    shown = capsys.readouterr()
    assert "owned" in shown.out
    assert "owned" in shown.err
    assert harmless(shown.out)
    assert harmless(shown.err)


def test_a_log_of_anybodys() -> None:
    """The commands clean every line of the log, regardless of its author."""
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "%s\n%s", (HOSTILE, HOSTILE), None)
    text = CleanFormatter("%(message)s").format(record)
    assert harmless(text)
    assert not re.search(r"\x1b|\r", text)
