"""Everything that needs no media works over every transport, with bots of all generations."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rtvi_sync import (
    ConfigUpdateError,
    FunctionCall,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    UnsupportedFeatureError,
)
from tests.support.slowness import GUARD

from .far_ends import FAR_ENDS

VOICE = {"service": "tts", "options": [{"name": "voice", "value": "ü"}]}


class OldBot:
    """A bot of RTVI 0.3, with a config and an action. It does not answer an action that fails."""

    def __init__(self) -> None:
        self.config: list[dict[str, Any]] = [VOICE]

    def __call__(self, text: str) -> list[str]:
        message = json.loads(text)
        data, type_ = message["data"], message["type"]
        if type_ == "client-ready":
            answer = "bot-ready", {"version": "0.3.0", "config": self.config}
        elif type_ == "update-config" and data["config"][0]["service"] != "tts":
            answer = "error-response", {"error": "Exception processing message: 'nosuch'"}
        elif type_ == "update-config":
            self.config = data["config"]
            answer = "config", {"config": self.config}
        elif type_ == "get-config":
            answer = "config", {"config": self.config}
        elif type_ == "describe-config":
            options = [{"name": "voice", "type": "string"}]
            answer = "config-available", {"config": [{"name": "tts", "options": options}]}
        elif type_ == "describe-actions":
            answer = "actions-available", {"actions": [{"service": "tts", "action": "say", "arguments": []}]}
        elif type_ == "action" and data["action"] == "say":
            answer = "action-response", {"result": data["arguments"]}
        else:
            return []
        return [json.dumps({"label": "rtvi-ai", "type": answer[0], "data": answer[1], "id": message["id"]})]


class NewBot:
    """A bot of RTVI 2.2 that calls a function on request, and keeps the result."""

    def __init__(self) -> None:
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, text: str) -> list[str]:
        message = json.loads(text)
        if message["type"] == "client-ready":
            answer = "bot-ready", {"version": "2.2.0", "about": {"library": "contract"}}
        elif message["type"] == "client-message" and message["data"]["t"] == "call":
            call = {"function_name": "weather", "tool_call_id": "c1", "arguments": {"town": "Köln"}}
            answer = "llm-function-call-in-progress", call
        elif message["type"] == "llm-function-call-result":
            self.results.put(message["data"])
            return []
        else:
            answer = "error-response", {"error": "Unknown"}
        return [json.dumps({"label": "rtvi-ai", "type": answer[0], "data": answer[1], "id": message["id"]})]


@pytest.fixture(params=FAR_ENDS)
def connected(request: pytest.FixtureRequest, hanging_port: int) -> Any:
    """Make a client that is connected to a bot over each transport in its turn."""

    @contextmanager
    def call(bot: Any) -> Iterator[RTVIClient]:
        with FAR_ENDS[request.param](bot, hanging_port) as far:
            client = RTVIClient(transport=far.transport, enable_mic=False, connect_timeout=GUARD, request_timeout=GUARD)
            client.connect(far.auth_bundle)
            try:
                yield client
            finally:
                client.disconnect()

    return call


def test_config(connected: Any) -> None:
    """The bot sends its config; the client can fetch, describe and change it, and an invalid change is refused."""
    with connected(OldBot()) as client, client.events("config-updated", timeout=GUARD) as updates:
        assert client.config[0].options[0].value == "ü"
        assert client.get_service_option_value_from_config("tts", "voice") == "ü"
        assert client.describe_config()[0].service == "tts"
        config = client.set_service_option_in_config("tts", [{"name": "voice", "value": "é"}])
        client.update_config(config)
        assert next(updates).data.config[0].options[0].value == "é"
        assert client.get_bot_config()[0].options[0].value == "é"
        with pytest.raises(ConfigUpdateError, match="nosuch"):
            client.update_config([{"service": "nosuch", "options": []}])


def test_actions(connected: Any) -> None:
    """Actions are described and done; an unanswered action times out, and the session continues."""
    with connected(OldBot()) as client:
        assert client.describe_actions().data["actions"][0]["action"] == "say"
        arguments = [{"name": "text", "value": "ü"}]
        action = {"service": "tts", "action": "say", "arguments": arguments}
        assert client.action(action).data["result"] == arguments
        with pytest.raises(RequestTimeoutError):
            client.action({"service": "tts", "action": "fail"}, timeout=0.05)
        assert client.action(action).data["result"] == arguments


def test_functions(connected: Any) -> None:
    """The result of the application's function is sent to the bot that called it."""
    bot = NewBot()
    with connected(bot) as client:

        def weather(call: FunctionCall) -> Any:
            return {"degrees": 20, "town": call.arguments["town"]}

        client.register_function_call_handler("weather", weather)
        client.send_client_message("call")
        assert bot.results.get(timeout=GUARD)["result"] == {"degrees": 20, "town": "Köln"}


def test_what_the_bot_lacks(connected: Any) -> None:
    """A message that the protocol version lacks is refused before it is sent; one that the bot lacks, by the bot."""
    with connected(NewBot()) as client:
        with pytest.raises(UnsupportedFeatureError):
            client.describe_actions()
        with pytest.raises(RequestRejectedError, match="Unknown"):
            client.send_client_request("sing")
