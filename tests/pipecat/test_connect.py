"""`connect(url)`: one call reaches a bot in Pipecat's runner, whatever entries its `transport_params` have."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import ConnectError, RTVIClient, RTVIEvent, SmallWebRTCTransport, connect
from rtvi_sync.media import BytesSink, WavSource
from tests.support.processes import run_python
from tests.support.selection import some_of
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .clients import SPEECH, TransportName
from .conftest import BotServer

LIMITS: dict[str, Any] = {"connect_timeout": GUARD, "request_timeout": GUARD}


def check_conversation(url: str, name: str = "eval") -> None:
    """Reach the bot by the named transport: by text, and by a spoken WAV."""
    with connect(url, text_only=True, **LIMITS) as client:
        assert client.transport is not None
        assert client.transport.name == name
        assert answer_to_text(client) == "You said: Good morning."
    sink, answer = BytesSink(), round(2 * 24000 * 0.2 * 4)  # bytes of "You said: hello bot.", a word takes 0.2 s
    names = "user-transcript", "bot-started-speaking", "bot-stopped-speaking"
    with (
        connect(url, mic=WavSource(SPEECH), speaker=sink, **LIMITS) as client,
        client.events(*map(RTVIEvent, names), timeout=GUARD) as events,
    ):
        # If one pipeline serves one client after the other, its speech to the one before may end during this time.
        said = (event.data.text for event in events if event.type is RTVIEvent.USER_TRANSCRIPT and event.data.final)
        heard = next(said)
        for edge in (RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING):
            next(event for event in events if event.type is edge)
        until(lambda: len(sink.pcm) >= answer)  # a bot that gets no time from its machine says that it is silent before
    assert heard == "hello bot"


def answer_to_text(client: RTVIClient) -> str:
    """Return the bot's written answer to a typed question."""
    tokens = ""
    with client.events("bot-llm-text", "bot-llm-stopped", timeout=GUARD) as events:
        client.send_text("Good morning")
        for event in events:
            if event.type is RTVIEvent.BOT_LLM_STOPPED:
                break
            tokens += event.data.text
    return tokens


HOSTS, ENTRIES = ("127.0.0.1", "0.0.0.0"), ("eval,websocket,webrtc", "eval,twilio,webrtc")


@pytest.mark.parametrize(("host", "entries"), some_of(itertools.product(HOSTS, ENTRIES), (HOSTS[1], ENTRIES[1])))
def test_a_runner_with_a_host(pipecat_process: Callable[..., BotServer], host: str, entries: str) -> None:
    """The `http://` URL of a runner leads to its bot by each transport, though the runner advertises a `wss://`."""
    bot = pipecat_process("stock", "--host", host, "--entries", entries)
    url = bot.base_url.replace("127.0.0.1", "localhost")
    names: list[TransportName] = ["auto", "webrtc", "eval"]
    for name in [*names, "websocket"] if "websocket" in entries else names:
        for each in (bot.base_url, url):
            with connect(each, transport=name, text_only=True, **LIMITS) as client:
                assert answer_to_text(client) == "You said: Good morning."


@pytest.mark.matrix
@pytest.mark.parametrize("name", some_of(["livekit", "moq", "daily"], "livekit"))
def test_a_runner_for_a_transport_that_is_not_reached(pipecat_process: Callable[..., BotServer], name: str) -> None:
    """`-t livekit` and others refuse other transports with a clear error; the eval route is there nevertheless."""
    bot = pipecat_process("stock", "-t", name)
    with pytest.raises(ConnectError, match=f"Server is configured for '{name}' only"):
        connect(bot.base_url, transport="websocket", text_only=True, **LIMITS)
    with pytest.raises(ValueError, match="'websocket', 'webrtc' or 'eval'"):
        connect(bot.base_url, transport=name)  # type: ignore[arg-type]
    with connect(bot.base_url, text_only=True, **LIMITS) as client:
        assert client.transport is not None
        assert client.transport.name == "eval"


def test_stun_servers_that_are_asked_for(pipecat_stock: BotServer) -> None:
    """A runner without `--ice-servers` names a public STUN server if the start request says so."""
    client = RTVIClient(transport=SmallWebRTCTransport(), text_only=True, **LIMITS)
    for wanted in (False, True):
        answer = client.start_bot(f"{pipecat_stock.base_url}/start", {"enableDefaultIceServers": wanted})
        assert ("iceConfig" in answer) is wanted
        client.disconnect()


@pytest.mark.matrix
@pytest.mark.parametrize("name", some_of(["websocket", "webrtc", "eval"], "webrtc"))
def test_a_large_file(pipecat_process: Callable[..., BotServer], tmp_path: Path, name: TransportName) -> None:
    """A runner with `-u FOLDER` gets it by a request, and the bot its URL."""
    server = pipecat_process("stock", "-u", str(tmp_path), "--entries", "eval,websocket,webrtc")
    content = bytes(range(256)) * 8192
    with connect(server.base_url, transport=name, text_only=True, **LIMITS) as client:
        with client.events("bot-llm-text", "bot-llm-stopped", timeout=GUARD) as events:
            client.send_file(content, "What is in it?", name="a.bin")
            assert next(events).type is RTVIEvent.BOT_LLM_TEXT
        (uploaded,) = tmp_path.iterdir()
        assert uploaded.read_bytes() == content


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (lambda bot: bot.base_url, "webrtc"),
        (lambda bot: f"{bot.base_url}/start", "webrtc"),
        (lambda bot: f"{bot.base_url}/api/offer", "webrtc"),
        (lambda bot: bot.ws_url, "eval"),
    ],
    ids=["server", "start endpoint", "offer", "WebSocket"],
)
def test_a_stock_bot(pipecat_stock: BotServer, form: Callable[[BotServer], str], name: str) -> None:
    """A bot as nearly all of Pipecat's examples are, without `websocket`: by text and by a spoken WAV."""
    check_conversation(form(pipecat_stock), name)


@pytest.mark.matrix
def test_the_oldest_runner_with_the_eval_route(pipecat_process: Callable[..., BotServer]) -> None:
    """Pipecat 1.13 serves it at /ws, as 1.14 does."""
    check_conversation(pipecat_process("stock-1.13").base_url)


@pytest.mark.matrix
def test_a_runner_that_serves_nothing_but_eval(pipecat_process: Callable[..., BotServer]) -> None:
    """Pipecat 1.5 to 1.12 with `-t eval`: a WebSocket server without a start endpoint, with the flags in its URL."""
    bot = pipecat_process("eval-server-1.5")
    check_conversation(bot.base_url)
    check_conversation(bot.base_url.replace("http:", "ws:"))  # as the runner prints it


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("entries", "name"),
    some_of(
        [("websocket", "websocket"), ("eval,twilio,webrtc,websocket", "websocket"), ("eval", "eval")],
        ("eval,twilio,webrtc,websocket", "websocket"),
    ),
)
def test_other_entries(pipecat_process: Callable[..., BotServer], entries: str, name: str) -> None:
    """Protobuf is tried first, because it is made for clients."""
    server = pipecat_process("stock", "--entries", entries)
    with connect(server.base_url, text_only=True, **LIMITS) as client:
        assert client.transport is not None
        assert client.transport.name == name
        assert answer_to_text(client) == "You said: Good morning."


def test_tokens(pipecat_process: Callable[..., BotServer]) -> None:
    """With `--ws-auth token` each transport asks for a token of its own, good for one connection."""
    server = pipecat_process("stock", "--ws-auth", "token")
    for _ in range(2):
        with connect(server.base_url, text_only=True, **LIMITS) as client:
            assert answer_to_text(client) == "You said: Good morning."


@pytest.mark.parametrize("name", some_of(["auto", "eval"], "auto"))
def test_a_runner_for_one_transport(pipecat_process: Callable[..., BotServer], name: TransportName) -> None:
    """`-t webrtc` starts no WebSocket sessions, and has the eval route nevertheless."""
    server = pipecat_process("stock", "-t", "webrtc")
    with connect(server.base_url, transport=name, text_only=True, **LIMITS) as client:
        assert answer_to_text(client) == "You said: Good morning."


def test_no_entry(pipecat_process: Callable[..., BotServer]) -> None:
    """The error names the entries that the bot lacks."""
    server = pipecat_process("stock", "--entries", "twilio")
    with pytest.raises(ConnectError, match=r"(?s)entry 'websocket'.*\n.*entry 'eval'") as caught:
        connect(server.base_url, text_only=True, connect_timeout=12)
    assert [name for name, _ in caught.value.attempts] == ["websocket", "webrtc", "eval", "webrtc"]


@pytest.mark.matrix
def test_ctrl_c_aimed_at_the_end_of_connect(pipecat_talk: BotServer) -> None:
    """Of 300 calls that Ctrl-C interrupts, none leaves a client that cannot be used."""
    code, out, err = run_python(
        "from tests.behaviour.life.aimed import main; import sys; main(sys.argv[1], 300)",
        pipecat_talk.ws_url,
        timeout=10 * GUARD,
    )
    assert (code, err) == (0, ""), err
    assert (json.loads(out)["wedged"], json.loads(out)["left connected"]) == (0, 0), out
