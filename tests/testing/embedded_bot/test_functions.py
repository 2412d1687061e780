"""The embedded bot's calls of the client's functions."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from rtvi_sync.errors import DisconnectedError, RequestTimeoutError
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD

from .bot_client import Client, Talk

CITY = {"city": "Oslo"}


def calling(session: BotSession, *args: Any, **kwargs: Any) -> Future[Any]:
    """Call a function of the client on another thread, as the test is the client."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(session.call_function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call).start()
    return future


def answer(client: Client, call_id: str, result: Any) -> None:
    data = {"function_name": "weather", "tool_call_id": call_id, "arguments": CITY, "result": result}
    client.send("llm-function-call-result", data)


@pytest.mark.parametrize("version", ["1.2.0", "1.4.0", "2.2.0", "3.1.0"])
def test_a_call_is_reported_in_three_steps(talk: Talk, version: str) -> None:
    """From RTVI 1.2 on a call is started, in progress with an id, and stopped with the result, which is returned."""
    with EmbeddedBot(version=version) as bot:
        client = talk(bot)
        future = calling(bot.wait_for_session(), "weather", CITY)
        started, in_progress = client.until("llm-function-call-in-progress")
        call_id = in_progress["data"]["tool_call_id"]
        answer(client, "of another call", {"sky": "grey"})
        answer(client, call_id, {"sky": "blue"})
        stopped = client.message("llm-function-call-stopped")

        assert future.result(GUARD) == {"sky": "blue"}
    assert (started["type"], started["data"]) == ("llm-function-call-started", {"function_name": "weather"})
    assert in_progress["data"] == {"tool_call_id": call_id, "function_name": "weather", "arguments": CITY}
    assert stopped["data"] == {
        "tool_call_id": call_id,
        "cancelled": False,
        "function_name": "weather",
        "result": {"sky": "blue"},
    }


@pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "1.1.0"])
def test_a_call_of_an_old_bot(talk: Talk, version: str) -> None:
    """Before RTVI 1.2 the bot sends its start by name and the call with `args`, and does not report its end."""
    with EmbeddedBot(version=version) as bot:
        client = talk(bot)
        future = calling(bot.wait_for_session(), "weather", CITY, report_level="none")
        start, call = client.until("llm-function-call")
        answer(client, call["data"]["tool_call_id"], "blue")

        assert future.result(GUARD) == "blue"
        assert client.ask("no-such-type")["type"] == "error-response"
    assert (start["type"], start["data"]) == ("llm-function-call-start", {"function_name": "weather"})
    assert call["data"].keys() == {"function_name", "tool_call_id", "args"}
    assert (call["data"]["function_name"], call["data"]["args"]) == ("weather", CITY)


@pytest.mark.parametrize(
    ("level", "started", "in_progress", "stopped"),
    [
        ("none", set(), set(), set()),
        ("name", {"function_name"}, {"function_name"}, {"function_name"}),
        ("arguments", {"function_name"}, {"function_name", "arguments"}, {"function_name"}),
        ("full", {"function_name"}, {"function_name", "arguments"}, {"function_name", "result"}),
    ],
)
def test_report_levels(talk: Talk, level: Any, started: set[str], in_progress: set[str], stopped: set[str]) -> None:
    """Each level reports more, as the setting of real bots: always the id, then name, arguments and result."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        future = calling(bot.wait_for_session(), "weather", CITY, report_level=level)
        reports = client.until("llm-function-call-in-progress")
        answer(client, reports[1]["data"]["tool_call_id"], "blue")
        reports += client.until("llm-function-call-stopped")

        assert future.result(GUARD) == "blue"
    assert [set(report["data"]) for report in reports] == [
        started,
        in_progress | {"tool_call_id"},
        stopped | {"tool_call_id", "cancelled"},
    ]


def test_a_falsy_result_is_left_out(talk: Talk) -> None:
    """An empty result is returned to the test, and is not in the report."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        future = calling(bot.wait_for_session(), "weather")
        answer(client, client.until("llm-function-call-in-progress")[1]["data"]["tool_call_id"], {})

        assert "result" not in client.message("llm-function-call-stopped")["data"]
        assert future.result(GUARD) == {}


def test_a_call_that_is_not_answered(talk: Talk) -> None:
    """A call that is not answered is cancelled at its limit, or by the session's end, and reported unless disabled."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        with pytest.raises(RequestTimeoutError, match="llm-function-call-result"):
            session.call_function("weather", CITY, 0.01)
        cancelled = client.until("llm-function-call-stopped")[-1]["data"]
        with pytest.raises(RequestTimeoutError):
            session.call_function("weather", CITY, 0.01, report_level="disabled")
        future = calling(session, "weather")
        in_progress = client.until("llm-function-call-in-progress")
        client.connection.close()

        with pytest.raises(DisconnectedError):
            future.result(GUARD)
    assert (cancelled["cancelled"], cancelled["function_name"], "result" in cancelled) == (True, "weather", False)
    assert [item["type"] for item in in_progress] == ["llm-function-call-started", "llm-function-call-in-progress"]


@pytest.mark.parametrize(
    ("field", "value"), [("function_name", 1), ("tool_call_id", None), ("arguments", []), ("result", 7)]
)
def test_a_malformed_result(talk: Talk, field: str, value: Any) -> None:
    """A result of another shape is invalid, as with real bots."""
    data = {"function_name": "weather", "tool_call_id": "call_1", "arguments": {}, "result": {}}
    with EmbeddedBot() as bot:
        refused = talk(bot).ask("llm-function-call-result", data | {field: value})

    assert refused["data"]["error"].startswith(f"Invalid message: 1 validation error\n{field}\n")
