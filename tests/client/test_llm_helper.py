"""The helper for the language model: its calls, its events, and its function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from rtvi_sync import (
    BotNotReadyError,
    FunctionCall,
    LLMFunctionCallData,
    LLMHelper,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
)
from tests.support.clients import bot_says, memory_client, settle, transport_of
from tests.support.probes import set_bot
from tests.support.threads import InThread
from tests.support.waiting import until


class TestCalls:
    @pytest.mark.parametrize(
        ("call", "result"),
        [
            (lambda llm: llm.get_context(), ["llm", "get_context", {}]),
            (
                lambda llm: llm.set_context([{"role": "user", "content": "a"}]),
                ["llm", "set_context", {"messages": [{"role": "user", "content": "a"}], "interrupt": False}],
            ),
            (
                lambda llm: llm.set_context({"messages": [{"role": "user", "content": "a"}]}, interrupt=True),
                ["llm", "set_context", {"messages": [{"role": "user", "content": "a"}], "interrupt": True}],
            ),
            (
                lambda llm: llm.append_to_messages({"role": "user", "content": "a"}),
                [
                    "llm",
                    "append_to_messages",
                    {"messages": [{"role": "user", "content": "a"}], "run_immediately": False},
                ],
            ),
            (
                lambda llm: llm.append_to_messages(({"role": "user"}, {"role": "assistant"}), run_immediately=True),
                [
                    "llm",
                    "append_to_messages",
                    {"messages": [{"role": "user"}, {"role": "assistant"}], "run_immediately": True},
                ],
            ),
            (lambda llm: llm.run(), ["llm", "run", {"interrupt": False}]),
            (lambda llm: llm.run(interrupt=True), ["llm", "run", {"interrupt": True}]),
        ],
    )
    def test_of_the_language_model(self, old: RTVIClient, call: Callable[[LLMHelper], Any], result: Any) -> None:
        """Each call of the helper for language models sends its action and returns the action's result."""
        assert call(old.register_helper("llm", LLMHelper())) == result

    def test_another_service(self, old: RTVIClient) -> None:
        """A helper serves the service that it is registered for."""
        assert old.register_helper("llm2", LLMHelper()).run() == ["llm2", "run", {"interrupt": False}]

    def test_a_helper_raises_the_errors_of_action(self, old: RTVIClient) -> None:
        """A helper raises the same errors as `action()`, after the same time-outs."""
        llm = old.register_helper("llm", LLMHelper())
        with pytest.raises(RequestTimeoutError):
            old.action({"service": "llm", "action": "dead"}, timeout=0.05)
        with pytest.raises(RequestRejectedError):
            old.action({"service": "llm", "action": "nosuch"}, timeout=None)
        set_bot(old, lambda transport, message: None)
        for call in (llm.get_context, llm.run, functools.partial(llm.set_context, [])):
            with pytest.raises(RequestTimeoutError):
                call(timeout=0.02)
        with pytest.raises(RequestTimeoutError):
            llm.append_to_messages([], timeout=0.02)

    def test_without_a_bot(self) -> None:
        """While the client connects, a helper's call raises `BotNotReadyError`, as `action()` does."""
        client = memory_client(lambda transport, message: None)
        llm = client.register_helper("llm", LLMHelper())
        connecting = InThread(client.connect)
        until(lambda: client.connected)
        with pytest.raises(BotNotReadyError):
            llm.run()
        client.disconnect()
        connecting.error()


class TestLanguageModel:
    def test_events(self, client: RTVIClient) -> None:
        """The three messages for language models are typed events of their helper, beside the client's events."""
        heard: list[Any] = []
        llm = client.register_helper("llm", LLMHelper({"on_llm_function_call": heard.append}))
        llm.on("llm_function_call_start", lambda data: heard.append(data.function_name))
        llm.on("llmJsonCompletion", heard.append)
        client.on("llm_json_completion", lambda data: heard.append(("client", data)))
        data = {"function_name": "tool", "tool_call_id": "1", "args": {"q": 1}}
        bot_says(client, "llm-function-call-start", {"function_name": "tool"})
        bot_says(client, "llm-function-call", data)
        bot_says(client, "llm-json-completion", "{}")
        settle(client)
        call = LLMFunctionCallData(tool_call_id="1", function_name="tool", arguments={"q": 1})
        assert heard[:2] == ["tool", call]
        assert set(map(str, heard[2:])) == {"{}", "('client', '{}')"}

    def test_handle_function_call(self, client: RTVIClient) -> None:
        """The function of handle_function_call() gets the calls that have no function of their own."""
        llm = client.register_helper("llm", LLMHelper())
        llm.handle_function_call(lambda call: {"of": call.function_name})
        client.register_function_call_handler("own", lambda call: {"own": True})
        for id_, name in (("1", "tool"), ("2", "own")):
            bot_says(client, "llm-function-call", {"function_name": name, "tool_call_id": id_, "args": {}})
        until(lambda: len(transport_of(client).sent) == 3)
        results = {m.data["tool_call_id"]: m.data["result"] for m in transport_of(client).sent[1:]}
        assert results == {"1": {"of": "tool"}, "2": {"own": True}}

    def test_its_function_goes_with_it(self, client: RTVIClient) -> None:
        """An unregistered helper handles no function call; a function that the application registered stays."""

        def ours(call: FunctionCall) -> str:
            return "ours"

        def results() -> list[Any]:
            return [m.data["result"] for m in transport_of(client).sent if m.type == "llm-function-call-result"]

        def is_called() -> None:
            bot_says(client, "llm-function-call", {"function_name": "f", "tool_call_id": uuid4().hex, "args": {}})
            settle(client)

        client.register_helper("llm", LLMHelper()).handle_function_call(lambda call: "helper's")
        client.unregister_helper("llm")
        is_called()
        client.register_helper("llm", LLMHelper()).handle_function_call(lambda call: "helper's")
        client.register_function_call_handler(None, ours)
        client.unregister_helper("llm")
        is_called()
        until(results)
        assert results() == ["ours"]
