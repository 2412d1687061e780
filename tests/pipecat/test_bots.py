"""The bots themselves: each answers a raw client as Pipecat does, so that a failing test of the SDK is the SDK's."""

from __future__ import annotations

import array
import math
import random
import signal
import time
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.pipecat.raw_client import CHUNK_BYTES, RATE_HZ, RawClient
from tests.support.protobuf import InterruptionFrame
from tests.support.selection import some_of
from tests.support.slowness import GUARD

# The parts of a turn, in the order of the wire; the words of the bot's speech arrive along with its audio.
TURN = [
    "user-llm-text",
    "bot-llm-started",
    "bot-llm-stopped",
    "bot-tts-started",
    "bot-started-speaking",
    "bot-stopped-speaking",
]


def utterance() -> bytes:
    """Return half a second of a tone, half a second of silence."""
    samples = [int(8000 * math.sin(2 * math.pi * 440 * n / RATE_HZ)) for n in range(RATE_HZ // 2)]
    return array.array("h", samples).tobytes() + bytes(RATE_HZ)


@pytest.fixture
def bot(request: pytest.FixtureRequest) -> Any:
    """Return the bot whose fixture the test names as its parameter."""
    return request.getfixturevalue(request.param)


EVERY_2_BOT = ["pipecat_echo", "pipecat_talk", "pipecat_standalone", "pipecat_runner"]
EVERY_TALKER = ["pipecat_talk", "pipecat_standalone", "pipecat_runner"]
EVERY_ECHO = ["pipecat_echo", "pipecat_0_3"]


@pytest.mark.parametrize("bot", EVERY_2_BOT, indirect=True)
def test_bot_ready_has_the_id_of_client_ready(bot):
    """A bot of Pipecat 1.14.0 answers client-ready with its own protocol version under the same id."""
    with RawClient(bot.ws_url) as client:
        ready = client.get_ready()
        assert bot.live_sessions() == 1
    assert ready["id"] == "ready"
    assert ready["data"]["version"] == "2.2.0"
    assert ready["data"]["about"] == {"library": "pipecat-ai", "library_version": "1.14.0"}
    assert bot.live_sessions(expected=0) == 0


def test_bot_ready_of_0_3_has_the_configuration(pipecat_0_3):
    """A bot of Pipecat 0.0.73 answers client-ready with version 0.3.0 and its configuration."""
    with RawClient(pipecat_0_3.ws_url) as client:
        ready = client.get_ready()
    assert ready["id"] == "ready"
    assert ready["data"]["version"] == "0.3.0"
    assert {"service": "tts", "options": [{"name": "voice", "value": "tone"}]} in ready["data"]["config"]


@pytest.mark.parametrize("bot", ["pipecat_echo", "pipecat_talk", "pipecat_standalone", "pipecat_0_3"], indirect=True)
def test_connect_tells_the_url(bot):
    """`POST /connect` answers with the URL of the bot's WebSocket."""
    assert httpx.post(f"{bot.base_url}/connect", json={}, trust_env=False).json() == {"ws_url": bot.ws_url}


def test_unknown_version_is_a_warning_only(pipecat_echo):
    """An error-response with the id of client-ready arrives before bot-ready, not instead of it."""
    with RawClient(pipecat_echo.ws_url) as client:
        client.send("client-ready", {}, "ready")
        client.until_type("bot-ready")
        assert [(item["type"], item["id"]) for item in client.received] == [
            ("error-response", "ready"),
            ("bot-ready", "ready"),
        ]


@pytest.mark.parametrize("bot", EVERY_ECHO, indirect=True)
def test_echo_is_bit_exact(bot):
    """Two seconds of noise return in whole 40 ms chunks, unchanged."""
    pcm = random.Random(1).randbytes(2 * 2 * RATE_HZ)
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        client.send_audio(pcm)
        client.until(lambda item: len(client.audio()) == len(pcm) // CHUNK_BYTES)
        frames = client.audio()
    assert b"".join(frame.audio for frame in frames) == pcm
    assert {(len(frame.audio), frame.sample_rate, frame.num_channels) for frame in frames} == {
        (CHUNK_BYTES, RATE_HZ, 1)
    }


@pytest.mark.parametrize("bot", EVERY_TALKER, indirect=True)
def test_text_gives_a_whole_turn(bot):
    """send-text interrupts, is acknowledged, and is answered in text, words and paced audio."""
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        client.send("send-text", {"content": "Hello bot"}, "text")
        client.until(lambda item: isinstance(item, InterruptionFrame))
        assert client.until(lambda item: True)["type"] == "bot-interrupted"
        client.until_type("bot-stopped-speaking")
    (heard,) = client.messages("user-input")
    assert (heard["data"]["text"], heard["data"]["msg_id"]) == ("Hello bot", "text")
    assert [message["type"] for message in client.messages(*TURN)] == TURN
    assert "".join(message["data"]["text"] for message in client.messages("bot-llm-text")) == "You said: Hello bot."
    assert [message["data"]["text"] for message in client.messages("bot-tts-text")] == ["You", "said:", "Hello", "bot."]
    spoken = client.messages("bot-output")[-1]["data"]
    assert (spoken["spoken_status"], spoken["spoken_progress"]["accumulated_text"]) == (
        "completed",
        "You said: Hello bot.",
    )
    assert [(len(frame.audio), frame.sample_rate) for frame in client.audio()] == [(1920, 24000)] * 20


def test_first_progress_comes_before_its_segment(pipecat_talk):
    """The first words of a turn are reported as spoken before the segment that they belong to is announced."""
    with RawClient(pipecat_talk.ws_url) as client:
        client.get_ready()
        client.send("send-text", {"content": "One two. Three."})
        client.until_type("bot-stopped-speaking")
    speech = client.messages("bot-output", "bot-started-speaking")
    statuses = [message.get("data", {}).get("spoken_status", message["type"]) for message in speech]
    assert statuses[:3] == ["in-progress", "bot-started-speaking", "new"]
    assert statuses[-2:] == ["new", "completed"]


@pytest.mark.parametrize("bot", EVERY_TALKER, indirect=True)
def test_speech_gives_a_whole_turn(bot):
    """A loud utterance is transcribed, first its first word, and answered."""
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        client.send_audio(utterance())
        client.until_type("bot-stopped-speaking")
    transcripts = [message["data"] for message in client.messages("user-transcription")]
    assert [(data["text"], data["final"]) for data in transcripts] == [("hello", False), ("hello bot", True)]
    assert len(client.messages("user-started-speaking")) == len(client.messages("user-stopped-speaking")) == 1
    assert [message["type"] for message in client.messages(*TURN)] == TURN
    assert client.messages("bot-transcription")[0]["data"]["text"] == "You said: hello bot."


@pytest.mark.matrix
def test_transcripts_can_be_chosen(pipecat_process):
    """The talking bot hears the words of its command line, one transcript for each utterance."""
    bot = pipecat_process("talk", "what time is it", "good bye")
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        for _ in range(2):
            client.send_audio(utterance())
            client.until_type("bot-stopped-speaking")
    heard = [message["data"]["text"] for message in client.messages("bot-transcription")]
    assert heard == ["You said: what time is it.", "You said: good bye."]


def test_speech_interrupts_the_bot(pipecat_talk):
    """The user's speech stops the bot's: an interruption frame, then bot-interrupted, then bot-stopped-speaking."""
    with RawClient(pipecat_talk.ws_url) as client:
        client.get_ready()
        client.send("send-text", {"content": "one two three four five six seven eight nine ten"})
        client.until_type("bot-started-speaking")
        client.received.clear()
        client.send_audio(utterance())
        client.until_type("bot-stopped-speaking")
        interrupted = client.received[:]
        client.until_type("bot-stopped-speaking")
    kinds = [item["type"] if isinstance(item, dict) else type(item).__name__ for item in interrupted]
    assert kinds.index("InterruptionFrame") < kinds.index("bot-interrupted") < kinds.index("bot-stopped-speaking")
    assert not any(item["data"]["spoken_status"] == "completed" for item in interrupted if _is_output(item))
    assert client.messages("bot-transcription")[-1]["data"]["text"] == "You said: hello bot."


def _is_output(item: Any) -> bool:
    return isinstance(item, dict) and item["type"] == "bot-output"


def test_client_messages_are_answered(pipecat_talk):
    """Each client message gets the answer that its type names: at once, late, twice, as an error, or never."""
    with RawClient(pipecat_talk.ws_url) as client:
        client.get_ready()
        client.send("client-message", {"t": "slow", "d": 0.3}, "slow")
        client.send("client-message", {"t": "never"}, "never")
        client.send("client-message", {"t": "ping", "d": {"a": 1}}, "ping")
        client.send("client-message", {"t": "twice"}, "twice")
        client.send("client-message", {"t": "fail"}, "fail")
        client.until(lambda item: isinstance(item, dict) and item.get("id") == "slow")
    answers = [(item["id"], item["data"]) for item in client.messages("server-response", "error-response")]
    assert sorted(answers[:-1], key=str) == [
        ("fail", {"error": "no way"}),
        ("ping", {"t": "ping", "d": {"pong": {"a": 1}}}),
        ("twice", {"t": "twice", "d": {"answer": 1}}),
        ("twice", {"t": "twice", "d": {"answer": 2}}),
    ]
    assert answers[-1] == ("slow", {"t": "slow", "d": {"slept": 0.3}})


@pytest.mark.parametrize("bot", [*EVERY_2_BOT, "pipecat_0_3"], indirect=True)
def test_server_message_by_control(bot):
    """The test has the bot send any JSON as a server-message."""
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        assert bot.control("send", data={"any": ["json", 1, None]}) == 1
        assert client.until_type("server-message")["data"] == {"any": ["json", 1, None]}


CODES = [("pipecat_echo", 1000), ("pipecat_standalone", 1001), ("pipecat_runner", 1000), ("pipecat_0_3", 1000)]
WAYS_TO_END = ["end", "cancel", "fail", "disconnect-bot"]


@pytest.mark.parametrize(
    ("bot", "code", "how"),
    some_of(
        [(*code, how) for code in CODES for how in WAYS_TO_END],
        *((*code, how) for code, how in zip(CODES, WAYS_TO_END, strict=True)),
    ),
    indirect=["bot"],
)
def test_session_ends(bot, code, how):
    """However a bot ends its session, the client gets the close code of its server and the session is over."""
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        if how == "disconnect-bot":
            client.send("disconnect-bot")
        else:
            bot.control(how, **({"error": "it broke"} if how == "fail" else {}))
        closed = client.until_closed()
    assert closed.rcvd is not None
    assert (closed.rcvd.code, closed.rcvd.reason) == (code, "")
    errors = [message["data"] for message in client.messages("error")]
    assert errors == ([{"error": "it broke", "fatal": True}] if how == "fail" else [])
    assert bot.live_sessions(expected=0) == 0


def test_normal_end_finishes_the_speech(pipecat_talk):
    """A normal end lets the bot finish its speech; then two seconds of silence arrive in a single frame, and the
    close."""
    with RawClient(pipecat_talk.ws_url) as client:
        client.get_ready()
        client.send("send-text", {"content": "Hello bot"})
        client.until_type("bot-started-speaking")
        pipecat_talk.control("end")
        client.until_closed()
    sizes = [len(frame.audio) for frame in client.audio()]
    assert sizes == [1920] * 20 + [2 * 2 * 24000]
    assert not any(client.audio()[-1].audio)


@pytest.mark.parametrize("bot", [*EVERY_2_BOT, "pipecat_0_3"], indirect=True)
def test_connection_is_dropped(bot):
    """The test has the server abort the TCP connection: no close frame arrives, and the server goes on."""
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        assert bot.control("drop") == 1
        assert client.until_closed().rcvd is None
    assert bot.live_sessions(expected=0) == 0


def test_stalled_server_answers_late(pipecat_echo):
    """A stalled event loop answers nothing until it resumes, and everything afterwards, on the same connection."""
    with RawClient(pipecat_echo.ws_url) as client:
        client.get_ready()
        started = time.monotonic()
        pipecat_echo.control("stall", seconds=1.0)
        client.send("no-such-type")
        assert client.until_type("error-response")["data"]["error"] == "Unsupported type no-such-type"
        assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize(
    ("kind", "signal_", "code"),
    some_of(
        [
            ("echo", signal.SIGTERM, 1012),
            ("echo", signal.SIGKILL, None),
            ("standalone", signal.SIGTERM, None),
            ("echo-0.3", signal.SIGTERM, 1012),
        ],
        ("echo", signal.SIGTERM, 1012),
    ),
)
def test_process_is_ended(pipecat_process, kind, signal_, code):
    """uvicorn says 1012 when it is asked to end; a server that just dies says nothing."""
    bot = pipecat_process(kind)
    with RawClient(bot.ws_url) as client:
        client.get_ready()
        bot.process.send_signal(signal_)
        closed = client.until_closed()
    assert (closed.rcvd.code if closed.rcvd else None) == code
    assert bot.process.wait(GUARD) == -signal_


def test_standalone_turns_a_second_client_away(pipecat_standalone):
    """The standalone server accepts a second client only to close with 1013; the first is undisturbed."""
    with RawClient(pipecat_standalone.ws_url) as first:
        first.get_ready()
        with RawClient(pipecat_standalone.ws_url) as second:
            closed = second.until_closed()
        assert closed.rcvd is not None
        assert (closed.rcvd.code, closed.rcvd.reason) == (1013, "Server already has a connected client")
        first.send("client-message", {"t": "ping"})
        first.until_type("server-response")


def test_standalone_limits_messages(pipecat_standalone):
    """The standalone server takes a message of 1,000,000 bytes and closes with 1009 for one of 1,100,000."""
    with RawClient(pipecat_standalone.ws_url) as client:
        client.get_ready()
        client.send("client-message", {"t": "ping", "d": "x" * 1_000_000})
        client.until_type("server-response")
        client.send("client-message", {"t": "ping", "d": "x" * 1_100_000})
        closed = client.until_closed()
    assert closed.rcvd is not None
    assert closed.rcvd.code == 1009


def start(bot: Any) -> dict[str, Any]:
    """Ask the runner for a session."""
    reply = httpx.post(f"{bot.base_url}/start", json={"transport": "websocket"}, trust_env=False)
    answer: dict[str, Any] = reply.raise_for_status().json()
    return answer


def test_runner_starts_without_token(pipecat_runner):
    """The runner's `/start` gives the URL and a null token; it has no `/connect`, and refuses other transports."""
    answer = start(pipecat_runner)
    assert answer["wsUrl"] == f"ws://localhost:{pipecat_runner.base_url.rpartition(':')[2]}/ws-client"
    assert answer["token"] is None
    with RawClient(answer["wsUrl"]) as client:
        client.get_ready()
    assert httpx.post(f"{pipecat_runner.base_url}/connect", json={}, trust_env=False).status_code == 404
    refused = httpx.post(f"{pipecat_runner.base_url}/start", json={"transport": "webrtc"}, trust_env=False)
    assert refused.status_code == 400


@pytest.mark.matrix
def test_runner_takes_a_token_once(pipecat_process):
    """With `--ws-auth token` the handshake is refused with 403 unless it has a token that was not used before."""
    bot = pipecat_process("runner", "--ws-auth", "token")
    answer = start(bot)
    with pytest.raises(InvalidStatus, match="403"), RawClient(answer["wsUrl"]):
        pass
    with RawClient(f"{answer['wsUrl']}?token={answer['token']}") as client:
        client.get_ready()
    with pytest.raises(InvalidStatus, match="403"), RawClient(f"{answer['wsUrl']}?token={answer['token']}"):
        pass


@pytest.mark.matrix
def test_runner_advertises_tls_that_it_does_not_serve(pipecat_process):
    """With `--host 127.0.0.1` the runner answers with a `wss://` URL, though it speaks plain WebSocket."""
    bot = pipecat_process("runner", "--host", "127.0.0.1")
    url = start(bot)["wsUrl"]
    assert url.startswith("wss://127.0.0.1:")
    with RawClient(url.replace("wss:", "ws:")) as client:
        client.get_ready()
