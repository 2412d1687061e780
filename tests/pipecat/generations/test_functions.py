"""Functions of the program that the language models of real bots call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from rtvi_sync import FunctionCall, LLMHelper, RTVIClient, RTVIEvent, RTVIMessage
from tests.pipecat.clients import Watch, client_of
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD


@attrs.frozen
class Session:
    """A session with a bot that calls functions.

    Attributes:
        client: in the session.
        watch: its events.
        is_old: the bot is one of RTVI 0.3.
    """

    client: RTVIClient
    watch: Watch
    is_old: bool

    def ask(self, text: str) -> None:
        """Have the language model answer to a text."""
        if self.is_old:
            messages = [{"name": "messages", "value": [{"role": "user", "content": text}]}]
            arguments = [*messages, {"name": "run_immediately", "value": True}]
            self.client.action({"service": "llm", "action": "append_to_messages", "arguments": arguments})
        else:
            self.client.send_text(text, audio_response=False)

    def answer(self) -> str:
        """Return the language model's answer, to the result of the function for instance."""
        text: str = self.watch.until(RTVIEvent.BOT_TRANSCRIPT).data.text
        return text


@pytest.fixture(params=["pipecat_showcase", "pipecat_configured_1_2", "pipecat_configured_0_3"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Yield a session with a bot of each generation."""
    server: BotServer = request.getfixturevalue(request.param)
    with client_of(server) as client, client.events(timeout=GUARD) as events:
        yield Session(client, Watch(events), is_old=request.param == "pipecat_configured_0_3")


only_newer = pytest.mark.parametrize("session", ["pipecat_showcase", "pipecat_configured_1_2"], indirect=True)


def test_function_call(session: Session) -> None:
    """The bot announces a call in the old way, which all have; the model goes on with the function's result."""
    calls: list[FunctionCall] = []

    def look_up(call: FunctionCall) -> dict[str, Any]:
        calls.append(call)
        return {"answer": 42}

    session.client.register_function_call_handler("old_client_tool", look_up)
    session.ask('call old_client_tool {"q": [1, null]}')

    assert session.answer() == 'The result is {"answer": 42}.'
    assert calls == [FunctionCall("old_client_tool", "call_1", {"q": [1, None]})]


@only_newer
def test_function_call_by_its_report(session: Session) -> None:
    """From RTVI 1.2 on, the report of a running function has the client call it; other functions are left alone."""
    calls: list[FunctionCall] = []

    def look_up(call: FunctionCall) -> str:
        calls.append(call)
        return "forty-two"

    session.client.register_function_call_handler("client_tool", look_up)
    session.ask('call client_tool {"q": 1}')
    assert session.answer() == 'The result is "forty-two".'
    session.ask('call full {"q": 2}')
    assert session.answer() == 'The result is {"echo": {"q": 2}}.'
    assert [call.arguments for call in calls] == [{"q": 1}]


def test_helper_of_functions(session: Session) -> None:
    """The helper takes the calls of functions that have none of their own, and tells of them."""
    llm = session.client.register_helper("llm", LLMHelper())
    called: list[Any] = []
    llm.on("llm_function_call", called.append)
    llm.handle_function_call(lambda call: {"function": call.function_name})
    session.ask('call old_client_tool {"q": 1}')
    assert session.answer() == 'The result is {"function": "old_client_tool"}.'
    assert [(data.function_name, data.arguments) for data in called] == [("old_client_tool", {"q": 1})]


def test_result_that_is_no_object(session: Session) -> None:
    """Pipecat takes objects and texts only; anything else goes in an object."""
    session.client.register_function_call_handler("old_client_tool", lambda call: [1, None])
    session.ask("call old_client_tool {}")
    assert session.answer() == 'The result is {"result": [1, null]}.'


def test_function_that_fails(session: Session) -> None:
    """The model is told that the function failed, and so is the program; the session goes on."""

    def fail(call: FunctionCall) -> None:
        raise LookupError("no such thing")

    session.client.register_function_call_handler("old_client_tool", fail)
    session.ask("call old_client_tool {}")
    assert isinstance(session.watch.until(RTVIEvent.HANDLER_ERROR).data.error, LookupError)
    assert session.answer() == 'The result is {"error": "LookupError: no such thing"}.'


def test_slow_function_delays_nothing(session: Session) -> None:
    """While a function runs, the bot's messages are delivered."""
    go = threading.Event()

    def wait(call: FunctionCall) -> dict[str, Any]:
        return {"in time": go.wait(GUARD)}

    session.client.register_function_call_handler("old_client_tool", wait)
    session.ask("call old_client_tool {}")
    session.watch.until(RTVIEvent.LLM_FUNCTION_CALL)
    session.client.send_message(RTVIMessage("no-such-type", {}))
    session.watch.until(RTVIEvent.MESSAGE_ERROR)
    go.set()
    assert session.answer() == 'The result is {"in time": true}.'


def test_call_without_a_name(pipecat_showcase: BotServer, caplog: pytest.LogCaptureFixture) -> None:
    """Pipecat withholds names by default: a program that has functions gets one hint about the setting."""
    with client_of(pipecat_showcase) as client, client.events(timeout=GUARD) as events:
        session = Session(client, Watch(events), is_old=False)
        client.register_function_call_handler("none", lambda call: {})
        with caplog.at_level(logging.WARNING, "rtvi_sync"):
            for _ in range(2):
                session.ask("call none {}")
                assert session.answer() == 'The result is {"echo": {}}.'
    warnings = [record.getMessage() for record in caplog.records if "function_call_report_level" in record.message]
    assert len(warnings) == 1
