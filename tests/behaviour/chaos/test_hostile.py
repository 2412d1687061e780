"""Servers, transports and the program's functions that misbehave, and the harm that they must not do."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    ConnectionTimeoutError,
    EvalTransport,
    RTVIClient,
    WebSocketTransport,
    signals,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within
from tests.support.clients import memory_client, say, transport_of, websocket_client
from tests.support.processes import python, rest_of
from tests.support.slowness import GUARD, takes
from tests.support.wire import snake_case


def test_a_function_given_to_on_abort_that_hangs() -> None:
    """An on_abort() function that hangs does not delay the attempt's end or the next attempt."""
    released = threading.Event()

    def handler(params: Any, timeout: Any, abort: Any) -> dict[str, Any]:
        if not released.is_set():
            abort.signal.on_abort(lambda: released.wait(GUARD))
            abort.signal.wait(GUARD)
        return {}

    client = memory_client(custom_connect_handler=handler, connect_timeout=0.3)
    with pytest.raises(ConnectionTimeoutError):
        client.connect()
    assert client.state.value == "error"
    released.set()
    connect_within(client)
    client.disconnect()


def test_a_transport_that_says_nothing_about_its_end() -> None:
    """`on_closed(None)`, twice, ends the session once."""
    client = memory_client()
    ended: list[CloseInfo] = []
    client.on("disconnected", ended.append)
    client.connect()
    transport_of(client).options.on_closed(None)
    transport_of(client).options.on_closed(None)
    client.disconnect()
    assert [info.initiator for info in ended] == ["network"]


def test_no_number_is_no_time_limit() -> None:
    """A limit of NaN, which would never pass, is refused."""
    with pytest.raises(ValueError, match=r"timeout must be .*, not nan"):
        memory_client().wait_for("bot-ready", timeout=float("nan"))


@pytest.mark.parametrize(
    ("javascript", "python_name"),
    [
        ("onLLMFunctionCall", "on_llm_function_call"),
        ("onLLMJsonCompletion", "on_llm_json_completion"),
        ("onUICommand", "on_ui_command"),
        ("onBotTTSText", "on_bot_tts_text"),
        ("onBotReady", "on_bot_ready"),
        ("baseUrl", "base_url"),
        ("on_bot_ready", "on_bot_ready"),
    ],
)
def test_names_of_javascript(javascript: str, python_name: str) -> None:
    """camelCase becomes snake_case, runs of capitals included; snake_case stays as it is."""
    assert snake_case(javascript) == python_name


def test_callbacks_with_acronyms() -> None:
    """A callback may be named as in JavaScript."""
    calls: list[Any] = []
    with memory_client(callbacks={"onLLMFunctionCall": calls.append}) as client:
        data = {"function_name": "f", "tool_call_id": "1", "args": {}}
        transport_of(client).receive({"label": "rtvi-ai", "type": "llm-function-call", "data": data})
    assert [call.function_name for call in calls] == ["f"]


@pytest.mark.parametrize(
    ("transport", "garbage"),
    [
        (WebSocketTransport, b"\xff\xff\xff"),
        (EvalTransport, "{"),
        (EvalTransport, '{"label": "rtvi-ai", "type": "eval-bot-audio", "data": {"audio": 5}}'),
    ],
)
def test_a_flood_of_garbage_does_not_fill_the_log(
    transport: type[WebSocketTransport | EvalTransport], garbage: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    """Undecodable frames are worth a few warnings each session, and the session lives."""
    caplog.set_level(logging.WARNING)
    with EmbeddedBot() as bot, websocket_client(bot, transport=transport(bot.ws_url)) as client:
        session = bot.wait_for_session()
        for _ in range(200):
            session.send_raw(garbage)
        assert client.send_client_request("alive") is None
    assert 1 <= len([r for r in caplog.records if "skipped" in r.message]) <= 20


def test_the_url_of_the_connect_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A password and a key in `base_url` appear in no log, at no level, and the password is sent."""
    caplog.set_level(logging.DEBUG)
    with EmbeddedBot() as bot:
        base = bot.base_url.replace("http://", "http://ada:secret-word@") + "?key=secret-key"
        client = RTVIClient(
            transport=WebSocketTransport(), params={"base_url": base}, enable_mic=False, speaker=NullSink()
        )
        with client:
            assert client.connected
    assert "secret" not in caplog.text


def test_a_receiver_of_one_client_costs_no_other_anything() -> None:
    """A message without a listener is not queued, though a receiver listens to another client."""
    heard: list[Any] = []

    def receiver(client: RTVIClient, event: Any) -> None:
        heard.append(event.data)

    with memory_client(events="manual") as one, memory_client(events="manual") as other:
        signals.server_message.connect(receiver, sender=one)
        say(other, 1)
        say(one, 2)
        assert (one.stats().events_queued, other.stats().events_queued) == (1, 0)
        one.process_events()
    assert heard == [2]


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="Python 3.12 starts no thread at its exit")
@pytest.mark.parametrize("quick", ["none", "on_transport_state_changed", "on_turn_ended"])
def test_the_exit_of_many_sessions_has_one_limit(quick: str) -> None:
    """A program that exits with several sessions whose handlers block takes the exit time of one session."""
    script = f"""
        import time
        from rtvi_sync import MemoryTransport, RTVIClient
        from tests.support import limits
        limits.change(exit=1.0)
        blocking = {{"on_disconnected": lambda: time.sleep(60)}}
        if "{quick}" != "none":
            blocking["{quick}"] = lambda _: None
        clients = [RTVIClient(transport=MemoryTransport(), callbacks=blocking) for _ in range(6)]
        for client in clients:
            client.connect()
        print("exits", flush=True)
    """
    with python(script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "exits\n"
        with takes(4.0):  # six limits of one second, one after the other, would take longer
            rest_of(process)
        assert process.returncode == 0
