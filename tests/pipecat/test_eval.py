"""A bot as Pipecat's examples are, in Pipecat's own runner: `EvalTransport` is its front door."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import EvalTransport, RTVIClient, RTVIEvent, TransportStartError
from rtvi_sync.media import BytesSink, NullSink, SilenceSource, WavSource
from tests.support.slowness import GUARD

from .clients import SPEECH, ask_until, assert_echo
from .conftest import BotServer


def client_of(server: BotServer, transport: EvalTransport | None = None, **options: Any) -> RTVIClient:
    """Return a client of the bot's eval route."""
    devices = {"mic": SilenceSource(), "speaker": NullSink()}
    transport = transport or EvalTransport(server.ws_url)
    limits = {"connect_timeout": GUARD, "request_timeout": GUARD}
    return RTVIClient(transport=transport, **{**limits, **devices, **options})


def eval_of(client: RTVIClient) -> EvalTransport:
    """Return the transport of a client, with its type."""
    assert isinstance(client.transport, EvalTransport)
    return client.transport


def test_text(pipecat_stock: BotServer) -> None:
    """A typed turn is answered in text, and by a voice, as audio; no message is unknown."""
    sink, types = BytesSink(), []
    with client_of(pipecat_stock, speaker=sink) as client, client.events(timeout=GUARD) as events:
        client.send_text("Good morning")
        tokens = ""
        for event in events:
            types.append(event.type)
            tokens += event.data.text if event.type is RTVIEvent.BOT_LLM_TEXT else ""
            if event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
                break
        assert client.send_client_request("ping", 1) == {"pong": 1}

    assert tokens == "You said: Good morning."
    assert RTVIEvent.UNKNOWN_MESSAGE not in types
    assert RTVIEvent.BOT_INTERRUPTED in types
    assert sink.sample_rate_hz == 24000
    assert len(sink.pcm) >= 2 * 24000 * 0.2 * 4  # a word takes 0.2 s


def test_a_spoken_wav(pipecat_stock: BotServer) -> None:
    """A WAV file is heard, transcribed and answered."""
    client = client_of(pipecat_stock, mic=WavSource(SPEECH))
    with client.events("user-transcript", "bot-transcript", timeout=GUARD) as events, client:
        heard = next(
            event.data.text for event in events if event.type is RTVIEvent.USER_TRANSCRIPT and event.data.final
        )
        said = next(event.data.text for event in events if event.type is RTVIEvent.BOT_TRANSCRIPT)
    assert heard == "hello bot"
    assert "hello bot" in said


def test_audio_comes_back_bit_exact(pipecat_process: Callable[..., BotServer]) -> None:
    """Two seconds of noise at 16 kHz, sent in real time and echoed by the bot, return unchanged."""
    assert_echo(partial(client_of, pipecat_process("stock", "--echo")))


def test_function_calls_are_reported(pipecat_stock: BotServer) -> None:
    """By default the bot hides its calls; the client raises the level for its session."""
    names = "llm-function-call-started", "llm-function-call-in-progress", "llm-function-call-stopped"
    events = map(RTVIEvent, names)
    with client_of(pipecat_stock) as client, client.events(*events, timeout=GUARD) as reports:
        client.send_text('call full {"city": "Oslo"}')
        hidden = [next(reports).data for _ in range(3)]
        eval_of(client).configure("full")
        client.send_text('call full {"city": "Oslo"}')
        shown = [next(reports).data for _ in range(3)]

    assert [report.function_name for report in hidden] == [None] * 3
    assert [report.function_name for report in shown] == ["full"] * 3
    assert shown[1].arguments == {"city": "Oslo"}
    assert shown[2].result == {"echo": {"city": "Oslo"}}


def test_calls_in_tests_of_the_plugin(pipecat_stock: BotServer, tmp_path: Path) -> None:
    """A test of a bot that hides its calls passes over the eval route, with the fixtures alone."""
    (tmp_path / "test_bot.py").write_text(
        """\
import pytest

@pytest.mark.rtvi(client={"transport": "eval"})
def test_it(rtvi_client):
    rtvi_client.ask('call full {"city": "Oslo"}').expect(calls={"full": {"city": "Oslo"}})
"""
    )
    plugin = ("-p", "rtvi_sync.testing.pytest_plugin", "--rtvi-url", pipecat_stock.ws_url)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "test_bot.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=2 * GUARD,
    )
    assert done.returncode == 0, done.stdout


def test_a_seeded_context(pipecat_stock: BotServer) -> None:
    """The client replaces the model's context, without a run; with `skip_tts` the bot answers in text only."""
    seeded = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "I am Ada."}]
    with client_of(pipecat_stock, EvalTransport(pipecat_stock.ws_url, skip_tts=True)) as client:
        with client.events("bot-llm-stopped", "bot-started-speaking", timeout=GUARD) as events:
            eval_of(client).seed_context(seeded)
            assert ask_until(client, "context", 2) == seeded
            client.send_text("Good morning")
            assert next(events).type is RTVIEvent.BOT_LLM_STOPPED
        context = ask_until(client, "context", 4)
    assert context[2:] == [
        {"role": "user", "content": "Good morning"},
        {"role": "assistant", "content": "You said: Good morning."},
    ]


def test_cancel(pipecat_stock: BotServer) -> None:
    """The bot's pipeline ends, and with it the session."""
    with client_of(pipecat_stock) as client, client.events("disconnected", timeout=GUARD) as events:
        eval_of(client).cancel()
        end = next(events).data
    assert (end.code, end.initiator) == (1000, "server")


def test_tokens(pipecat_process: Callable[..., BotServer]) -> None:
    """With `--ws-auth token` the runner hands the eval route's token to those that ask for a telephone's."""
    server = pipecat_process("stock", "--ws-auth", "token")
    with pytest.raises(TransportStartError) as refused:
        client_of(server).connect()
    assert refused.value.status == 403

    client = client_of(server, EvalTransport())
    client.start_bot_and_connect(f"{server.base_url}/start", {"transport": "twilio"})
    assert client.send_client_request("ping", 1) == {"pong": 1}
    client.disconnect()
