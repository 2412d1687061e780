"""Actions of the embedded bot in a session: described, performed one by one, refused, and left unanswered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .bot_client import Talk, action, names


def add(a: float, b: int = 1) -> float:
    return a + b


def test_actions_are_described_from_their_signatures(talk: Talk) -> None:
    """The application's actions follow those that every bot has, with the types of their annotations."""
    with EmbeddedBot(version="0.3.0", actions={("math", "add"): add}) as bot:
        client = talk(bot)
        answer = client.ask("describe-actions")

    actions = answer["data"]["actions"]
    assert answer["type"] == "actions-available"
    assert [f"{entry['service']}:{entry['action']}" for entry in actions] == [
        "llm:get_context",
        "llm:set_context",
        "llm:append_to_messages",
        "llm:run",
        "tts:say",
        "tts:interrupt",
        "math:add",
    ]
    assert actions[0] == {"service": "llm", "action": "get_context", "arguments": [], "result": "array"}
    assert actions[3]["arguments"] == [{"name": "interrupt", "type": "bool"}]
    assert actions[6]["arguments"] == [{"name": "a", "type": "number"}, {"name": "b", "type": "number"}]
    assert actions[6]["result"] == "number"


@pytest.mark.parametrize(
    ("function", "arguments", "answer"),
    [
        (add, {"a": 2}, ("action-response", {"result": 3})),
        (add, {"a": 2, "b": 2.5}, ("action-response", {"result": 4.5})),
        (lambda **given: given, {"x": [None], "y": 1}, ("action-response", {"result": {"x": [None], "y": 1}})),
        (lambda: False, {}, ("action-response", {"result": False})),
        (lambda: None, {}, ("action-response", {"result": True})),
        (max, {"key": None}, ("error-response", {"error": "max expected at least 1 argument, got 0"})),
        (add, {}, ("error-response", {"error": "missing a required argument: 'a'"})),
        (add, {"a": 1, "c": 1}, ("error-response", {"error": "got an unexpected keyword argument 'c'"})),
        (add, {"a": "1"}, ("error-response", {"error": 'can only concatenate str (not "int") to str'})),
        (lambda: {1: 1}[0], {}, ("error-response", {"error": "0"})),
        (lambda: next(iter(())), {}, ("error-response", {"error": "StopIteration"})),
        (lambda: {1, 2}, {}, ("error-response", {"error": "Object of type set is not JSON serializable"})),
    ],
)
def test_an_action_is_answered(talk: Talk, function: Any, arguments: dict[str, Any], answer: tuple[str, Any]) -> None:
    """The answer is its result (True for None) or the text of its exception; arguments are passed by name."""
    with EmbeddedBot(version="1.0.0", actions={"my:own": function}) as bot:
        client = talk(bot)
        client.act("my:own", id="abc", **arguments)
        got = client.until_id("abc")[-1]
        after = client.ask("action", action("llm:get_context"))

    assert (got["type"], got["data"]) == answer
    assert after["data"] == {"result": []}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (action("llm:nosuch"), "Action llm:nosuch not registered"),
        ({"service": "llm"}, "Invalid message: 1 validation error\naction\n"),
        (
            {"service": "llm", "action": "run", "arguments": {"interrupt": True}},
            "Invalid message: 1 validation error\n",
        ),
        (
            {"service": "llm", "action": "run", "arguments": [{"name": "x"}]},
            "Invalid message: 1 validation error\nvalue",
        ),
        (action("llm:set_context", messages="x"), "messages must be an array of objects"),
        (action("llm:append_to_messages", messages=["x"]), "messages must be an array of objects"),
        (action("tts:say", text=1), "text must be a string"),
    ],
)
def test_an_action_is_refused(talk: Talk, data: Any, error: str) -> None:
    """An unknown action, a malformed call and arguments that do not fit are refused."""
    with EmbeddedBot(version="0.3.0", actions={"my:own": add}) as bot:
        answer = talk(bot).ask("action", data)

    assert answer["type"] == "error-response"
    assert answer["data"]["error"].startswith(error)


def test_arguments_can_be_left_out(talk: Talk) -> None:
    """A call without arguments may omit the field."""
    with EmbeddedBot(version="0.3.0") as bot:
        client = talk(bot)
        for data in ({"service": "llm", "action": "get_context"}, action("llm:get_context") | {"arguments": None}):
            assert client.ask("action", data)["data"] == {"result": []}


def test_actions_run_one_after_the_other_and_are_overtaken(talk: Talk) -> None:
    """A slow action delays only the next one."""
    go_on = threading.Event()
    running: list[str] = []

    def slow(name: str) -> str:
        running.append(name)
        assert go_on.wait(GUARD)
        return name

    with EmbeddedBot(version="0.3.0", actions={"my:slow": slow}) as bot:
        client = talk(bot)
        client.act("my:slow", id="first", name="first")
        client.act("my:slow", id="second", name="second")
        assert client.ask("get-config")["type"] == "config"
        assert client.ask("describe-actions")["type"] == "actions-available"
        assert running in ([], ["first"])
        go_on.set()
        answers = client.until_id("second")

    assert [(item["id"], item["data"]["result"]) for item in answers] == [("first", "first"), ("second", "second")]
    assert running == ["first", "second"]


@pytest.mark.parametrize("function", [lambda: None, lambda: {1: 1}[0]])
def test_quirks_leave_actions_unanswered(talk: Talk, function: Callable[[], Any]) -> None:
    """As with real bots, an action that fails and all later ones stay unanswered; the session stays open."""
    with EmbeddedBot(version="0.3.0", actions={"my:own": function, "my:good": add}, quirks=True) as bot:
        client = talk(bot)
        assert client.ask("action", action("my:good", a=1))["data"] == {"result": 2}
        assert client.ask("action", action("my:nosuch"))["type"] == "error-response"
        client.act("my:own")
        client.act("my:good", a=1)
        assert client.ask("describe-actions")["type"] == "actions-available"
        until(lambda: not any("bot-action" in thread.name for thread in threading.enumerate()))  # the thread ended
        bot.stop()
        sessions_thread_ended = bot.wait_for_session().wait_ended()
        rest = client.rest()

    assert sessions_thread_ended.code == 1012
    assert rest == []


def test_stop_waits_for_an_action_and_runs_no_more(talk: Talk) -> None:
    """The current action completes; queued ones are dropped with the session."""
    began, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def slow(number: int) -> None:
        ran.append(number)
        began.set()
        assert go_on.wait(GUARD)

    with EmbeddedBot(version="0.3.0", actions={"my:slow": slow}) as bot:
        client = talk(bot)
        for number in range(3):
            client.act("my:slow", number=number)
        assert began.wait(GUARD)
        client.connection.close()
        assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
        go_on.set()

    assert ran == [0]


def test_the_bot_can_be_made_to_speak_and_to_stop(talk: Talk) -> None:
    """tts:say speaks without the language model; tts:interrupt stops it, and only the end of speech is reported."""
    with EmbeddedBot(version="0.3.0") as bot:
        client = talk(bot)
        client.act("tts:say", text="A very long text of many words. " * 20)
        spoken = client.until("bot-started-speaking")
        client.act("tts:interrupt", id="quiet")
        quiet = client.until_id("quiet")
        client.act("tts:say", text="Well.", interrupt=True)
        again = client.until("bot-stopped-speaking")

    # The answer is sent on the thread of the actions, the speech on its own.
    assert [name for name in names(spoken) if name not in ("action-response", "AudioRawFrame")] == [
        "bot-tts-started",
        "bot-tts-stopped",
        "bot-started-speaking",
    ]
    assert [name for name in names(quiet) if name in ("bot-interrupted", "bot-stopped-speaking", "action-response")][
        -2:
    ] == ["bot-stopped-speaking", "action-response"]
    assert [item["data"]["text"] for item in again if isinstance(item, dict) and item["type"] == "bot-tts-text"] == [
        "Well."
    ]
