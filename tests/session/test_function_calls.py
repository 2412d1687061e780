"""Functions of the program that the bot calls: beside the queue, and answered whatever they do."""

from __future__ import annotations

import json
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    FunctionCall,
    HandlerError,
    MessageTooLargeError,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    TransportState,
    WouldDeadlockError,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, memory_client, say, settle, transport_of, websocket_client
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.probes import bytes_of_calls, calls_under_way, queued_bytes
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, own_threads, thread_names
from tests.support.waiting import until

IN_PROGRESS = "llm-function-call-in-progress"
DEPRECATED = "llm-function-call"


def call(client: RTVIClient, id_: str = "1", name: str | None = "tool", type_: str = IN_PROGRESS, **more: Any) -> None:
    """Have the bot call a function, as RTVI 1.2 and later announce it, or in another way."""
    data = {"tool_call_id": id_, "function_name": name, "arguments": {}, **more}
    bot_says(client, type_, {key: value for key, value in data.items() if value is not None})


def answers(client: RTVIClient) -> list[Any]:
    """Return the data of the results that the client has sent."""
    return [m.data for m in transport_of(client).sent if m.type == "llm-function-call-result"]


def results(client: RTVIClient, count: int = 1) -> list[Any]:
    """Return the results of a number of calls, once they were sent."""
    until(lambda: len(answers(client)) >= count)
    return [answer["result"] for answer in answers(client)]


def errors(client: RTVIClient) -> list[HandlerError]:
    """Return the list that gets each `handler_error`."""
    heard: list[HandlerError] = []
    client.on("handler_error", heard.append)
    return heard


class Held:
    """A function that is called, and returns when the test lets it."""

    def __init__(self, result: Any = "done") -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()
        self.result = result

    def __call__(self, call: FunctionCall) -> Any:
        self.entered.release()
        assert self.release.wait(GUARD)
        return self.result

    def wait_entered(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.entered.acquire(timeout=GUARD)


class TestResults:
    @pytest.mark.parametrize(
        ("value", "result"),
        [
            ({"a": [1, None]}, {"a": [1, None]}),
            ({}, {"result": {}}),
            ("text", "text"),
            ("", {"result": ""}),
            ([1, 2], {"result": [1, 2]}),
            (5, {"result": 5}),
            (0, {"result": 0}),
            ([], {"result": []}),
            (False, {"result": False}),
            (None, {"result": None}),
        ],
    )
    def test_results(self, client: RTVIClient, value: Any, result: Any) -> None:
        """A dict or a text that is not empty goes back as it is, other JSON in an object, which is all that bots take;
        with the call's name, id and arguments."""
        calls: list[FunctionCall] = []

        def function(call: FunctionCall) -> Any:
            calls.append(call)
            return value

        client.register_function_call_handler("tool", function)
        call(client, "call_7", arguments={"q": [1]})
        assert results(client) == [result]
        assert answers(client) == [
            {"function_name": "tool", "tool_call_id": "call_7", "arguments": {"q": [1]}, "result": result}
        ]
        assert calls == [FunctionCall("tool", "call_7", {"q": [1]})]

    def test_what_register_returns(self, client: RTVIClient) -> None:
        """The function, so that a lambda can be kept; a second registration replaces the first."""
        first = client.register_function_call_handler("tool", lambda call: "first")
        assert first(FunctionCall("tool", "1")) == "first"
        client.register_function_call_handler("tool", lambda call: "second")
        call(client)
        assert results(client) == ["second"]

    @pytest.mark.parametrize("value", [object(), {1, 2}, {"x": float("nan")}, b"bytes", {"x": object()}])
    def test_what_is_no_json(self, client: RTVIClient, value: Any, caplog: pytest.LogCaptureFixture) -> None:
        """A result that is no JSON is the function's failure: the bot and the program are told."""
        heard = errors(client)
        client.register_function_call_handler("tool", lambda call: value)
        call(client)
        (result,) = results(client)
        assert set(result) == {"error"}
        until(lambda: heard)
        assert isinstance(heard[0].error, (TypeError, ValueError))
        assert "'tool'" in caplog.text

    def test_what_is_too_large(self, client: RTVIClient) -> None:
        """A result that the transport cannot carry is reported as an error to the bot and to the application."""
        heard = errors(client)
        transport_of(client).max_message_size = 1000
        client.register_function_call_handler("tool", lambda call: "x" * 1000)
        call(client)
        (result,) = results(client)
        assert "MessageTooLargeError" in result["error"]
        until(lambda: heard)
        assert isinstance(heard[0].error, MessageTooLargeError)

    @pytest.mark.parametrize(
        "arguments", [{"q": "x" * 2000}, {"q": float("nan")}, {"q": "\ud800"}], ids=["large", "nan", "surrogate"]
    )
    def test_arguments_that_cannot_be_sent_back(self, client: RTVIClient, arguments: Any) -> None:
        """A bot may send arguments that the client cannot send back: the result then gives the reason, and omits
        them.
        """
        heard = errors(client)
        transport_of(client).max_message_size = 1000
        client.register_function_call_handler("tool", lambda call: "fine")
        call(client, arguments=arguments)
        (result,) = results(client)
        assert set(result) == {"error"}
        assert answers(client)[0]["arguments"] == {}
        until(lambda: heard)

    def test_a_name_that_cannot_be_sent_back(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A call whose name cannot be sent back is not answered; the application gets the error."""
        heard = errors(client)
        client.register_function_call_handler(None, lambda call: "fine")
        call(client, name="\ud800", type_=DEPRECATED)
        until(lambda: heard)
        call(client, "2", type_=DEPRECATED)
        assert results(client) == ["fine"]
        assert "An item of an event queue" not in caplog.text

    def test_many_results(self, client: RTVIClient) -> None:
        """Each call has its own result."""
        client.register_function_call_handler("tool", lambda call: str(call.arguments["n"]))
        for n in range(50):
            call(client, str(n), arguments={"n": n})
        results(client, 50)
        assert {a["tool_call_id"]: a["result"] for a in answers(client)} == {str(n): str(n) for n in range(50)}


class TestFailures:
    @pytest.mark.parametrize("error", [ValueError("no such\ncity"), SystemExit(3), KeyboardInterrupt("x"), Exception()])
    def test_it_raises(self, client: RTVIClient, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
        """The bot is told in one line, the program by `handler_error` and the log; the session goes on."""
        heard = errors(client)

        def function(call: FunctionCall) -> None:
            raise error

        client.register_function_call_handler("tool", function)
        call(client, "call_7", arguments={"q": 1})
        (result,) = results(client)
        assert result["error"].startswith(type(error).__name__)
        assert "\n" not in result["error"]
        until(lambda: heard)
        (failure,) = heard
        assert failure.error is error
        assert failure.handler is function
        assert failure.event.data.tool_call_id == "call_7"
        assert failure.event.message is not None
        assert failure.event.message.type == IN_PROGRESS
        (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert "'tool'" in record.message
        assert client.send_client_request("ping", 1) == 1

    def test_an_error_without_words(self, client: RTVIClient) -> None:
        """An exception whose text cannot be read is reported to the bot by its class."""

        class WordlessError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        def function(call: FunctionCall) -> None:
            raise WordlessError

        heard = errors(client)
        client.register_function_call_handler("tool", function)
        call(client)
        (result,) = results(client)
        assert "WordlessError" in result["error"]
        until(lambda: heard)

    def test_a_long_error(self, client: RTVIClient) -> None:
        """The error text that the bot receives is bounded."""

        def function(call: FunctionCall) -> None:
            raise ValueError("x" * 10_000)

        client.register_function_call_handler("tool", function)
        call(client)
        (result,) = results(client)
        assert len(result["error"]) <= 500

    def test_what_cannot_be_registered(self, client: RTVIClient) -> None:
        """A coroutine function, which would never run, and an object that is not a function cannot be registered."""

        async def function(call: FunctionCall) -> None: ...

        with pytest.raises(TypeError, match="coroutine function"):
            client.register_function_call_handler("tool", function)
        for wrong in (None, "tool", 5):
            with pytest.raises(TypeError, match="function must be a function"):
                client.register_function_call_handler("tool", wrong)  # type: ignore[type-var]
        call(client)
        settle(client)
        assert answers(client) == []

    def test_a_handler_of_handler_error(self, client: RTVIClient) -> None:
        """A handler of `handler_error` that itself raises ends nothing."""

        def function(call: FunctionCall) -> None:
            raise ValueError

        client.on(RTVIEvent("handler_error"), function)
        client.register_function_call_handler("tool", function)
        call(client)
        assert set(results(client)[0]) == {"error"}
        settle(client)


class TestBesideTheLane:
    def test_a_slow_one_delays_no_event(self, client: RTVIClient) -> None:
        """While a function runs, events are delivered and calls are answered."""
        held = Held()
        heard: list[Any] = []
        client.on("server_message", heard.append)
        client.register_function_call_handler("tool", held)
        call(client)
        held.wait_entered()
        say(client, 1, 2)
        settle(client)
        assert heard == [1, 2]
        assert client.send_client_request("ping", 1) == 1
        assert answers(client) == []
        held.release.set()
        assert results(client) == ["done"]

    def test_a_slow_handler_delays_no_function(self, client: RTVIClient) -> None:
        """A slow handler of an event delays no function."""
        release, entered = threading.Event(), threading.Event()

        def handler() -> None:
            entered.set()
            release.wait(GUARD)

        client.on("server_message", handler)
        client.register_function_call_handler("tool", lambda call: "done")
        say(client, 1)
        assert entered.wait(GUARD)
        call(client)
        assert results(client) == ["done"]
        release.set()

    def test_several_at_once(self, client: RTVIClient) -> None:
        """Each call has a thread of its own; the result of a later one may be sent first."""
        slow, quick = Held("slow"), Held("quick")
        client.register_function_call_handler("slow", slow)
        client.register_function_call_handler("quick", quick)
        for n in range(3):
            call(client, f"slow{n}", "slow")
        call(client, "quick", "quick")
        slow.wait_entered(3)
        quick.wait_entered()
        quick.release.set()
        assert results(client) == ["quick"]
        slow.release.set()
        assert results(client, 4) == ["quick", "slow", "slow", "slow"]

    def test_too_many_at_once(
        self, client: RTVIClient, limits: Callable[..., None], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Over the limit a call fails at once and the bot is told; when one has ended there is room again."""
        limits(function_calls=3)
        heard, held = errors(client), Held()
        client.register_function_call_handler("tool", held)
        for n in range(5):
            call(client, str(n))
        held.wait_entered(3)
        assert [(a["tool_call_id"], set(a["result"])) for a in answers(client)] == [("3", {"error"}), ("4", {"error"})]
        until(lambda: len(heard) == 2)
        held.release.set()
        results(client, 5)
        until(lambda: calls_under_way(client) == 0)
        call(client, "5")
        assert results(client, 6)[-1] == "done"
        assert len([r for r in caplog.records if "still running" in r.message]) == 1

    def test_too_many_of_much(self, client: RTVIClient, limits: Callable[..., None]) -> None:
        """The errors of refused calls count in the queue, with the data that the calls hold."""
        limits(function_calls=0)
        client.register_function_call_handler("tool", lambda call: None)
        held = Held()
        client.on(RTVIEvent("handler_error"), held)
        call(client, "1")
        held.wait_entered()
        data = {"tool_call_id": "2", "function_name": "tool", "arguments": {"text": "x" * 100_000}}
        transport_of(client).receive(json.dumps({"label": "rtvi-ai", "type": IN_PROGRESS, "data": data}))
        assert queued_bytes(client) >= 100_000
        held.release.set()
        settle(client)

    def test_too_many_that_cannot_be_answered(self, client: RTVIClient, limits: Callable[..., None]) -> None:
        """A refusal that cannot be sent does no harm, to the thread that delivers messages least."""
        limits(function_calls=0)
        client.register_function_call_handler(None, lambda call: None)
        heard: list[Any] = []
        client.on("server_message", heard.append)
        call(client, name="\ud800", type_=DEPRECATED)
        call(client, arguments={"x": float("nan")}, type_=DEPRECATED)
        say(client, "next")
        settle(client)
        assert heard == ["next"]

    def test_blocking_calls(self, client: RTVIClient) -> None:
        """A function may ask the bot, and wait for events."""

        def said() -> bool:
            say(client, "three")
            return done.is_set()

        def function(call: FunctionCall) -> dict[str, Any]:
            answer = client.send_client_request("ping", 1)
            with client.events("server_message", timeout=GUARD) as stream:
                say(client, "one", "two")
                first = next(stream).data
            waiting = InThread(lambda: until(said))
            found = client.wait_for("server_message", where=lambda e: e.data == "three", timeout=GUARD).data
            done.set()
            waiting.get()
            return {"answer": answer, "first": first, "found": found}

        done = threading.Event()
        client.register_function_call_handler("tool", function)
        call(client)
        assert results(client) == [{"answer": 1, "first": "one", "found": "three"}]

    def test_it_is_an_event_too(self, client: RTVIClient) -> None:
        """A listener of the announcement gets it, once."""
        client.register_function_call_handler("tool", lambda call: None)
        with client.events("llm_function_call_in_progress", timeout=GUARD) as stream:
            call(client, "call_7", arguments={"q": 1})
            event = next(stream)
        assert (event.data.tool_call_id, event.data.arguments) == ("call_7", {"q": 1})
        assert len(results(client)) == 1


class TestAnnouncements:
    def test_deprecated(self, client: RTVIClient) -> None:
        """The announcement of older bots does, which calls the arguments `args`."""
        client.register_function_call_handler("tool", lambda call: call.arguments)
        bot_says(client, DEPRECATED, {"function_name": "tool", "tool_call_id": "1", "args": {"q": 1}})
        assert results(client) == [{"q": 1}]
        assert answers(client)[0]["arguments"] == {"q": 1}

    @pytest.mark.parametrize("order", [(IN_PROGRESS, DEPRECATED), (DEPRECATED, IN_PROGRESS)])
    def test_both(self, client: RTVIClient, order: tuple[str, ...]) -> None:
        """A call that is announced twice runs once, even if its function has ended before the second announcement."""
        client.register_function_call_handler("tool", lambda call: "done")
        for type_ in order:
            bot_says(client, type_, {"function_name": "tool", "tool_call_id": "1", "args": {}, "arguments": {}})
            results(client)
        settle(client)
        call(client, "2")
        assert results(client, 2) == ["done", "done"]

    def test_long_names(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """Names and ids may have any length; long ones fill no log, and are not kept."""
        client.register_function_call_handler(None, lambda call: call.missing)
        transport_of(client).max_message_size = 10_000_000
        for n in range(3):
            call(client, f"{n}" * 1_000_000, "x" * 1_000_000, DEPRECATED)
        results(client, 3)
        settle(client)
        assert caplog.records  # of the exceptions
        assert all(len(record.message) < 1000 for record in caplog.records)
        assert bytes_of_calls(client) < 1000
        until(lambda: calls_under_way(client) == 0)

    def test_in_the_next_session(self) -> None:
        """Ids are a session's own: the next one may use them again, and functions stay registered."""
        client = memory_client()
        client.register_function_call_handler("tool", lambda call: "done")
        for session in (1, 2):
            with client:
                call(client)
                results(client, session)

    @pytest.mark.parametrize("type_", [IN_PROGRESS, DEPRECATED])
    def test_without_a_name(self, client: RTVIClient, type_: str, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing can run: one log line names the setting of the bot that withholds it."""
        client.register_function_call_handler("tool", lambda call: "done")
        client.register_function_call_handler(None, lambda call: "default")
        for n in range(3):
            bot_says(client, type_, {"tool_call_id": str(n)})
        settle(client)
        (record,) = [r for r in caplog.records if "function_call_report_level" in r.message]
        assert record.levelno == logging.WARNING
        assert "name" in record.message
        assert answers(client) == []

    def test_nobody_is_told_without_handlers(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A program without functions has nothing to be warned of."""
        bot_says(client, IN_PROGRESS, {"tool_call_id": "1"})
        settle(client)
        assert not caplog.records

    def test_without_arguments(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """Where the bot withholds them the function runs with none, and one log line says so."""
        client.register_function_call_handler("tool", lambda call: {"got": call.arguments})
        for n in range(3):
            call(client, str(n), arguments=None)
        assert results(client, 3) == [{"got": {}}] * 3
        (record,) = [r for r in caplog.records if "function_call_report_level" in r.message]
        assert "arguments" in record.message

    @pytest.mark.parametrize(
        "data", [None, 5, {}, {"tool_call_id": 5, "function_name": "tool"}, {"tool_call_id": "1", "function_name": 5}]
    )
    @pytest.mark.parametrize("type_", [IN_PROGRESS, DEPRECATED])
    def test_malformed(self, client: RTVIClient, type_: str, data: Any) -> None:
        """A malformed call runs no function, and the session goes on."""
        client.register_function_call_handler("tool", lambda call: "done")
        bot_says(client, type_, data)
        call(client, "2")
        assert results(client) == ["done"]
        assert answers(client)[0]["tool_call_id"] == "2"

    def test_others(self, client: RTVIClient) -> None:
        """`started` and `stopped` call nothing."""
        client.register_function_call_handler("tool", lambda call: "done")
        for type_ in ("llm-function-call-started", "llm-function-call-start", "llm-function-call-stopped"):
            bot_says(client, type_, {"tool_call_id": "1", "function_name": "tool"})
        settle(client)
        assert answers(client) == []


class TestRegistry:
    def test_default(self, client: RTVIClient) -> None:
        """The function without a name gets calls for this client that no other function handles. It does not get calls
        that the bot may be running itself.
        """
        client.register_function_call_handler("own", lambda call: "own")
        client.register_function_call_handler(None, lambda call: f"default of {call.function_name}")
        call(client, "1", "own", DEPRECATED)
        assert results(client) == ["own"]
        call(client, "2", "other")
        call(client, "2", "other", DEPRECATED)
        assert results(client, 2) == ["own", "default of other"]
        settle(client)
        assert len(answers(client)) == 2

    @pytest.mark.parametrize("ways", [[IN_PROGRESS], [DEPRECATED], [IN_PROGRESS, DEPRECATED]])
    def test_an_id_that_is_used_again(self, client: RTVIClient, ways: list[str]) -> None:
        """A bot that numbers the calls of each turn from the same number gets each answered once."""
        client.register_function_call_handler("tool", lambda call: "done")
        for turn in (1, 2, 3):
            for way in ways:
                call(client, "call_0", type_=way)
            results(client, turn)
        settle(client)
        assert len(answers(client)) == 3

    def test_unregister(self, client: RTVIClient) -> None:
        """Unregistering one function, or all, affects later calls only; an unknown name is no error."""
        held = Held()
        for name in ("a", "b", None):
            client.register_function_call_handler(name, held)
        call(client, "1", "a")
        held.wait_entered()
        client.unregister_function_call_handler("a")
        client.unregister_function_call_handler("nosuch")
        client.unregister_function_call_handler(None)
        call(client, "2", "a")
        settle(client)
        call(client, "3", "b")
        held.wait_entered()
        client.unregister_all_function_call_handlers()
        call(client, "4", "b")
        settle(client)
        held.release.set()
        results(client, 2)
        settle(client)
        assert {a["tool_call_id"] for a in answers(client)} == {"1", "3"}

    def test_a_call_that_nobody_wanted(self, client: RTVIClient) -> None:
        """A call that no function took can be announced again, to a function that is there then."""
        client.register_function_call_handler("other", lambda call: None)
        call(client)
        settle(client)
        client.register_function_call_handler("tool", lambda call: "done")
        call(client)
        assert results(client) == ["done"]


class TestTheEnd:
    def test_a_function_that_disconnects(self) -> None:
        """`disconnect()` inside a function ends the session at once; the result has nowhere to go."""
        client = memory_client()
        done = threading.Event()

        def function(call: FunctionCall) -> str:
            client.disconnect()
            done.set()
            return "late"

        client.register_function_call_handler("tool", function)
        client.connect()
        with takes(0.5):
            call(client)
            assert done.wait(GUARD)
        until(lambda: not thread_names())
        assert client.state is TransportState.DISCONNECTED
        assert answers(client) == []

    def test_a_function_that_connects_anew(self) -> None:
        """A function that the bot calls may start another session."""
        client = memory_client()

        def function(call: FunctionCall) -> str:
            client.disconnect()
            client.connect()
            return "late"

        client.register_function_call_handler("tool", function)
        client.connect()
        call(client)
        until(lambda: len([m for m in transport_of(client).sent if m.type == "client-ready"]) == 2)
        until(lambda: client.state is TransportState.READY)
        assert client.send_client_request("ping", 1) == 1
        client.disconnect()
        assert answers(client) == []

    @pytest.mark.parametrize("how", ["disconnect", "bot"])
    def test_the_session_ends_while_one_runs(self, how: str, caplog: pytest.LogCaptureFixture) -> None:
        """`disconnect()` waits about a second for it and logs where it is; its result is dropped, and its thread ends
        with it."""
        client, held = memory_client(), Held()
        ended = threading.Event()
        client.on("disconnected", ended.set)
        client.register_function_call_handler("tool", held)
        client.connect()
        call(client)
        held.wait_entered()
        with takes(1.7):
            if how == "bot":
                transport_of(client).end(CloseInfo(initiator="server"))
                with takes(0.5):
                    assert ended.wait(GUARD)
            client.disconnect()
        assert ended.is_set()
        record = next(r for r in caplog.records if "its result is lost" in r.message)
        assert "assert self.release.wait(GUARD)" in record.message
        held.release.set()
        until(lambda: not thread_names())
        assert answers(client) == []

    def test_one_that_ends_in_time(self, caplog: pytest.LogCaptureFixture) -> None:
        """A function that ends while the session does is waited for, and nothing is logged."""
        client, held = memory_client(), Held()
        client.register_function_call_handler("tool", held)
        client.on("disconnected", held.release.set)
        client.connect()
        call(client)
        held.wait_entered()
        client.disconnect()
        assert not thread_names()
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]

    def test_the_next_session_waits_for_none(self) -> None:
        """A function of the last session does not hold the next one up, and its result does not get there."""
        client, held = memory_client(), Held()
        client.register_function_call_handler("tool", held)
        client.connect()
        call(client)
        held.wait_entered()
        transport_of(client).end(CloseInfo(initiator="server"))
        with takes(0.5):
            client.connect()
        held.release.set()
        call(client, "2")
        assert results(client) == ["done"]
        assert [a["tool_call_id"] for a in answers(client)] == ["2"]
        client.disconnect()

    def test_one_that_waits_for_the_bot(self) -> None:
        """The wait of a function fails with the session, and so the function ends, too."""
        client = memory_client()
        failures: list[BaseException] = []
        entered = threading.Event()

        def function(call: FunctionCall) -> None:
            entered.set()
            try:
                client.wait_for("bot_llm_started")
            except BaseException as error:
                failures.append(error)
                raise

        client.register_function_call_handler("tool", function)
        client.connect()
        call(client)
        assert entered.wait(GUARD)
        with takes(1.0):
            client.disconnect()
        assert not thread_names()
        assert [type(f).__name__ for f in failures] == ["DisconnectedError"]

    def test_a_client_that_is_dropped(self) -> None:
        """A function that is registered, or runs, and does not know its client, does not keep it."""
        held = Held()
        clients = [memory_client()]
        clients[0].register_function_call_handler("tool", held)
        clients[0].connect()
        call(clients[0])
        held.wait_entered()
        gone = weakref.ref(clients[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            clients.clear()
            collect()
        assert gone() is None
        held.release.set()
        until(lambda: not own_threads())


class TestManualMode:
    def test_where_handlers_run(self) -> None:
        """Functions run in `process_events()`, one after the other, in order with the events."""
        order: list[Any] = []
        client = memory_client(events="manual")

        def function(call: FunctionCall) -> str:
            order.append((call.tool_call_id, threading.current_thread() is threading.main_thread()))
            return "done"

        client.on("server_message", order.append)
        client.register_function_call_handler("tool", function)
        with client:
            say(client, "a")
            call(client, "1")
            say(client, "b")
            call(client, "2")
            assert answers(client) == []
            client.process_events()
            assert order == ["a", ("1", True), "b", ("2", True)]
            assert results(client, 2) == ["done", "done"]

    def test_failures(self) -> None:
        """A function's error is reported like any handler's; an exit is the program's own."""
        client = memory_client(events="manual")
        heard = errors(client)
        raised: list[BaseException] = [ValueError("x"), SystemExit(3)]

        def function(call: FunctionCall) -> None:
            raise raised[int(call.tool_call_id)]

        client.register_function_call_handler("tool", function)
        with client:
            call(client, "0")
            client.process_events()
            client.process_events()
            assert [failure.error for failure in heard] == raised[:1]
            call(client, "1")
            with pytest.raises(SystemExit):
                client.process_events()
            assert results(client, 2) == [{"error": "ValueError: x"}, {"error": "SystemExit: 3"}]

    def test_blocking_calls(self) -> None:
        """A function may ask the bot; a wait that would deadlock is refused at once, as in handlers."""
        client = memory_client(events="manual")
        found: list[Any] = []

        def function(call: FunctionCall) -> None:
            found.append(client.send_client_request("ping", 1))
            try:
                client.wait_for("server_message")
            except WouldDeadlockError as error:
                found.append(type(error))
            client.disconnect()

        client.register_function_call_handler("tool", function)
        client.connect()
        call(client)
        client.process_events()
        assert found == [1, WouldDeadlockError]
        assert client.state is TransportState.DISCONNECTED
        client.process_events()

    def test_what_they_hold_is_counted(self) -> None:
        """Calls that wait to be run are limited in bytes as events are, also without a listener."""
        client = memory_client(events="manual", max_queued_bytes=100_000)
        client.register_function_call_handler("tool", lambda call: None)
        client.connect()
        for n in range(3):
            data = {"tool_call_id": str(n), "function_name": "tool", "arguments": {"text": "x" * 40_000}}
            transport_of(client).receive(json.dumps(RTVIMessage(IN_PROGRESS, data).to_dict()))
        until(lambda: client.state is TransportState.DISCONNECTED)
        client.process_events()
        assert answers(client) == []

    def test_after_the_end(self) -> None:
        """A call that is still queued when the session ends runs, and has no result."""
        client = memory_client(events="manual")
        calls: list[Any] = []
        client.register_function_call_handler("tool", calls.append)
        client.connect()
        call(client)
        client.disconnect()
        client.process_events()
        assert len(calls) == 1
        assert answers(client) == []


class TestFork:
    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_while_one_runs(self) -> None:
        """The child has no session and no functions, and leaves the parent's alone."""
        held = Held()
        with memory_client() as client:
            client.register_function_call_handler("tool", held)
            call(client)
            held.wait_entered()

            def child() -> tuple[str, list[Any]]:
                client.disconnect()
                return client.state.value, answers(client)

            assert in_child(child) == ("disconnected", [])
            held.release.set()
            assert results(client) == ["done"]

    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_one_that_forks(self) -> None:
        """A function may fork; its child ends as it likes, and the parent's result is sent once."""
        with memory_client() as client:

            def function(call: FunctionCall) -> str:
                child = os.fork()
                if child == 0:
                    os._exit(7)
                return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

            client.register_function_call_handler("tool", function)
            call(client)
            assert results(client) == ["7"]


@pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "2.2.0"])
def test_over_a_real_line(version: str) -> None:
    """Over WebSocket, a function runs once for each call, as bots of each generation announce it."""
    with EmbeddedBot(version=version) as bot, websocket_client(bot) as client:
        calls: list[FunctionCall] = []

        def function(call: FunctionCall) -> dict[str, Any]:
            calls.append(call)
            return {"city": "Oslo"}

        client.register_function_call_handler("tool", function)
        session = bot.wait_for_session()
        assert session.call_function("tool", {"of": "Norway"}) == {"city": "Oslo"}
        assert [call.arguments for call in calls] == [{"of": "Norway"}]
