"""Actions in a session: called, described, refused, and never answered."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rtvi_sync import (
    ActionArgument,
    ActionEndpointNotSetError,
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    MemoryTransport,
    MessageTooLargeError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIActionRequestData,
    RTVIActionResponse,
    RTVIClient,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
)
from tests.support.clients import bot_says, deaf_bot, memory_client, settle, transport_of
from tests.support.probes import set_bot
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread
from tests.support.waiting import until

RUN: dict[str, Any] = {"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "value": True}]}
LIST = [
    {"service": "llm", "action": "get_context", "arguments": [], "result": "array"},
    {"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "type": "bool"}], "result": "bool"},
]


class ActingBot:
    """A bot with actions.

    Args:
        version: the protocol version that it speaks.
        results: by action, its result; a function is called with the arguments. Any other action is refused, and None
            is never answered, as by real bots.
    """

    def __init__(self, version: str = "0.3.0", **results: Any) -> None:
        self.version = version
        self.results = {"run": True, **results}
        self.asked: list[Any] = []

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": self.version, "config": []}, message.id)
        elif message.type == "describe-actions":
            yield RTVIMessage("actions-available", {"actions": LIST}, message.id)
        elif message.type == "action":
            self.asked.append(message.data)
            name = message.data["action"]
            if name not in self.results:
                error = f"Action {message.data['service']}:{name} not registered"
                yield RTVIMessage("error-response", {"error": error}, message.id)
                return
            result = self.results[name]
            if callable(result):
                result = result(*(argument["value"] for argument in message.data["arguments"]))
            if result is not None:
                yield RTVIMessage("action-response", {"result": result}, message.id)


@pytest.fixture
def bot() -> ActingBot:
    return ActingBot()


@pytest.fixture
def client(bot: ActingBot) -> Iterable[RTVIClient]:
    """Yield a connected client of it."""
    with memory_client(bot, request_timeout=GUARD) as connected:
        yield connected


WAYS: list[Callable[[RTVIClient, Any], RTVIActionResponse]] = [
    lambda client, action: client.action(action),
    lambda client, action: next(client.action_stream(action)),
]


class TestDescribing:
    def test_describe(self, client: RTVIClient) -> None:
        """`describe_actions()` returns the whole message; `actions_available` reports each action typed, once."""
        with client.events("actions_available", timeout=GUARD) as stream:
            answer = client.describe_actions()
            event = next(stream)
        assert (answer.label, answer.type) == ("rtvi-ai", "actions-available")
        assert answer.id == transport_of(client).sent[-1].id
        assert answer.data["actions"] == LIST
        assert event.message == answer
        (_, run) = event.data.actions
        assert (run.service, run.action, run.result) == ("llm", "run", "bool")
        assert [(argument.name, argument.type) for argument in run.arguments] == [("interrupt", "bool")]

    def test_never(self, client: RTVIClient) -> None:
        """describe_actions() has a time-out of its own."""
        set_bot(client, deaf_bot)
        with pytest.raises(RequestTimeoutError, match="'describe-actions'"):
            client.describe_actions(timeout=0.05)


class TestForms:
    @pytest.mark.parametrize(
        ("action", "error"),
        [
            ({}, r"^action needs 'service' and 'action'; a RTVIActionRequestData has service, action, arguments$"),
            ({"service": "llm"}, "^action needs 'action'; "),
            ({"service": "llm", "action": "run", "arguments": [{"value": 1}]}, r"^arguments\[0\] needs 'name'; "),
        ],
    )
    def test_a_missing_field(self, action: Any, error: str) -> None:
        """An action without its fields is refused, and the error names the missing ones."""
        with pytest.raises(TypeError, match=error):
            RTVIClient().action(action)

    @pytest.mark.parametrize(
        "action",
        [
            RUN,
            RTVIActionRequestData("llm", "run", [ActionArgument("interrupt", True)]),
            RTVIActionRequestData("llm", "run", [{"name": "interrupt", "value": True}]),
            RTVIActionRequestData(service="llm", action="run", arguments=(ActionArgument("interrupt", True),)),
            {"service": "llm", "action": "run", "arguments": [ActionArgument("interrupt", True)]},
        ],
    )
    @pytest.mark.parametrize("way", WAYS)
    def test_one_meaning(
        self, client: RTVIClient, bot: ActingBot, way: Callable[[RTVIClient, Any], Any], action: Any
    ) -> None:
        """Mappings and objects, and both in one another, say the same; they are left as they are."""
        before = repr(action)
        assert way(client, action).data == {"result": True}
        assert bot.asked == [RUN]
        assert repr(action) == before

    @pytest.mark.parametrize("arguments", [{}, {"arguments": None}, {"arguments": []}])
    def test_without_arguments(self, client: RTVIClient, bot: ActingBot, arguments: dict[str, Any]) -> None:
        """The arguments of an action may be left out."""
        client.action({"service": "llm", "action": "run", **arguments})
        assert bot.asked == [{"service": "llm", "action": "run", "arguments": []}]

    def test_an_argument_without_a_value(self, client: RTVIClient, bot: ActingBot) -> None:
        """An argument without a value is sent as null."""
        client.action({"service": "llm", "action": "run", "arguments": [{"name": "a"}]})
        assert bot.asked[0]["arguments"] == [{"name": "a", "value": None}]

    @pytest.mark.parametrize("value", [None, 0, "", [1, {"a": None}], {"a": [True]}])
    def test_values(self, client: RTVIClient, bot: ActingBot, value: Any) -> None:
        """An argument is any JSON."""
        bot.results["echo"] = lambda got: {"got": got}
        answer = client.action(RTVIActionRequestData("llm", "echo", [ActionArgument("x", value)]))
        assert answer.data == {"result": {"got": value}}

    def test_each_call_is_a_message_of_its_own(self, client: RTVIClient) -> None:
        """One action object may be sent twice; each call is a message of its own."""
        request = RTVIActionRequestData("llm", "run")
        assert client.action(request).id != client.action(request).id

    @pytest.mark.parametrize(
        "action",
        [
            None,
            "run",
            5,
            {},
            {"service": "llm"},
            {"action": "run"},
            {**RUN, "more": 1},
            {**RUN, "arguments": ["x"]},
            {**RUN, "arguments": [{"value": 1}]},
            {**RUN, "arguments": [{"name": "a", "value": 1, "more": 1}]},
            {**RUN, "arguments": 5},
        ],
    )
    @pytest.mark.parametrize("way", WAYS)
    def test_what_is_no_action(self, client: RTVIClient, bot: ActingBot, way: Callable[..., Any], action: Any) -> None:
        """An argument that is no action is a TypeError, and nothing is sent."""
        with pytest.raises(TypeError):
            way(client, action)
        assert bot.asked == []

    @pytest.mark.parametrize("arguments", [{"interrupt": True}, "interrupt", 5])
    def test_arguments_that_are_no_list(self, client: RTVIClient, arguments: Any) -> None:
        """The error shows the expected form: a list of names and values, because callers often pass a mapping."""
        shape = re.escape('list of {"name": ..., "value": ...} or None, not ' + type(arguments).__name__)
        with pytest.raises(TypeError, match=shape):
            client.action({**RUN, "arguments": arguments})

    @pytest.mark.parametrize("value", [object(), float("nan"), b"x"])
    def test_values_that_are_no_json(self, client: RTVIClient, bot: ActingBot, value: Any) -> None:
        """Values that are no JSON are the caller's mistake, and nothing is sent."""
        with pytest.raises((TypeError, ValueError)):
            client.action({**RUN, "arguments": [{"name": "x", "value": value}]})
        assert bot.asked == []
        assert client.action(RUN).data == {"result": True}


class TestAnswers:
    def test_the_answer(self, client: RTVIClient) -> None:
        """The whole message, any JSON as its result; `action_response` fires too, once."""
        heard: list[Any] = []
        client.on("action_response", heard.append)
        answer = client.action(RUN)
        assert isinstance(answer, RTVIActionResponse)
        assert (answer.label, answer.type, answer.data) == ("rtvi-ai", "action-response", {"result": True})
        assert answer.id == transport_of(client).sent[-1].id
        settle(client)
        assert [data.result for data in heard] == [True]

    def test_the_stream(self, client: RTVIClient) -> None:
        """A stream of an action in a session has the answer alone; nothing is sent before the stream is read."""
        stream = client.action_stream(RUN)
        assert [m.type for m in transport_of(client).sent] == ["client-ready"]
        (answer,) = stream
        assert answer.data == {"result": True}
        assert list(stream) == []

    def test_foreign_ids(self, client: RTVIClient, bot: ActingBot) -> None:
        """An answer to another request, or to none, is an event, and the call goes on waiting."""
        bot.results["slow"] = None
        heard: list[Any] = []
        client.on("action_response", lambda data: heard.append(data.result))
        call = InThread(lambda: client.action({"service": "llm", "action": "slow"}))
        until(lambda: bot.asked)
        id_ = transport_of(client).sent[-1].id
        for other in ("END", None, "nobody's"):
            bot_says(client, "action-response", {"result": other}, other)
        bot_says(client, "server-response", {"t": "x"}, id_)
        assert call.goes_on(0.02)
        bot_says(client, "action-response", {"result": 1}, id_)
        assert call.get().data == {"result": 1}
        settle(client)
        assert heard == ["END", None, "nobody's", 1]

    def test_out_of_order(self, client: RTVIClient, bot: ActingBot) -> None:
        """Answers find their calls by id."""
        bot.results["slow"] = None
        calls = []
        for _ in range(5):
            calls.append(InThread(lambda: client.action({"service": "llm", "action": "slow"})))
            until(lambda: len(bot.asked) == len(calls))
        ids = [m.id for m in transport_of(client).sent if m.type == "action"]
        for n in reversed(range(5)):
            bot_says(client, "action-response", {"result": n}, ids[n])
        assert [call.get().data["result"] for call in calls] == list(range(5))

    @pytest.mark.parametrize("way", WAYS)
    def test_a_refused_action_raises(self, client: RTVIClient, way: Callable[..., Any]) -> None:
        """`RequestRejectedError` has the bot's message and words; `message_error` fires once; the session goes on."""
        heard: list[Any] = []
        client.on("message_error", lambda data: heard.append(data.message))
        with pytest.raises(RequestRejectedError, match="Action llm:nosuch not registered") as caught:
            way(client, {"service": "llm", "action": "nosuch"})
        assert caught.value.response.type == "error-response"
        assert caught.value.status is None
        settle(client)
        assert heard == ["Action llm:nosuch not registered"]
        assert client.action(RUN).data == {"result": True}

    def test_never_answered(self, client: RTVIClient, bot: ActingBot) -> None:
        """An action that is never answered, as a failing one is, times out; the session goes on, and the late answer
        is an event."""
        bot.results["dead"] = None
        for way in (
            lambda: client.action({"service": "llm", "action": "dead"}, timeout=0.05),
            lambda: next(client.action_stream({"service": "llm", "action": "dead"}, timeout=0.05)),
        ):
            told = r"the session goes on.* reconnect"
            with takes(1.0), pytest.raises(RequestTimeoutError, match=told):
                way()
        assert client.state is TransportState.READY
        with client.events("action_response", timeout=GUARD) as stream:
            bot_says(client, "action-response", {"result": 5}, transport_of(client).sent[-1].id)
            assert next(stream).data.result == 5
        assert client.action(RUN).data == {"result": True}

    def test_the_default_limit(self, bot: ActingBot) -> None:
        """The client's `request_timeout` counts where the call names none, and None is no limit."""
        bot.results["dead"] = None
        dead = {"service": "llm", "action": "dead"}
        with memory_client(bot, request_timeout=0.05) as client:
            for call in (functools.partial(client.action, dead), lambda: list(client.action_stream(dead))):
                with pytest.raises(RequestTimeoutError):
                    call()
            waiting = InThread(lambda: client.action(dead, timeout=None))
            assert waiting.goes_on(0.15)
            bot_says(client, "action-response", {"result": 1}, transport_of(client).sent[-1].id)
            assert waiting.get().data == {"result": 1}

    @pytest.mark.parametrize("data", [None, {}])
    def test_answers_without_a_result(self, client: RTVIClient, bot: ActingBot, data: Any) -> None:
        """Answers without a result are handed over as they are."""
        bot.results["slow"] = None
        call = InThread(lambda: client.action({"service": "llm", "action": "slow"}))
        until(lambda: bot.asked)
        bot_says(client, "action-response", data, transport_of(client).sent[-1].id)
        assert call.get().data == data

    @pytest.mark.parametrize("how", ["action", "stream", "describe"])
    @pytest.mark.parametrize("data", [5, [], "text"])
    def test_malformed_answers(self, data: Any, how: str) -> None:
        """A malformed answer is the error of the calling thread; the session goes on."""
        answers = {
            "client-ready": "bot-ready",
            "describe-actions": "actions-available",
            "action": "action-response",
            "disconnect-bot": "server-message",
        }

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
            answer = answers[message.type]
            yield RTVIMessage(answer, {"version": "0.3.0", "config": []} if answer == "bot-ready" else data, message.id)

        with memory_client(bot) as client:
            calls: dict[str, Callable[[], Any]] = {
                "action": lambda: client.action(RUN),
                "stream": lambda: list(client.action_stream(RUN)),
                "describe": client.describe_actions,
            }
            with pytest.raises(ProtocolError, match=r"(action-response|actions-available): data"):
                calls[how]()
            assert client.connected

    def test_a_handler_may_call_actions(self, client: RTVIClient) -> None:
        """A handler may call actions, and gets their answers."""
        answers: list[Any] = []
        done = threading.Event()

        def handler() -> None:
            answers.append(client.action(RUN).data)
            answers.extend(answer.data for answer in client.action_stream(RUN))
            done.set()

        client.on("server_message", handler)
        bot_says(client, "server-message", 1)
        assert done.wait(GUARD)
        assert answers == [{"result": True}] * 2

    def test_manual_mode_answers_calls_without_process_events(self, bot: ActingBot) -> None:
        """In manual mode, calls are answered without `process_events()`."""
        with memory_client(bot, events="manual") as client:
            assert client.action(RUN).data == {"result": True}
            assert client.describe_actions().type == "actions-available"


class TestWhoCanBeAsked:
    def test_no_server_is_asked_while_the_client_connects(self) -> None:
        """While the client connects, a call raises `BotNotReadyError` instead of asking a server."""
        client = memory_client(lambda transport, message: None, params={"base_url": "http://127.0.0.1:1"})
        client.params.endpoints.connect = None
        connecting = InThread(client.connect)
        until(lambda: client.state is TransportState.CONNECTED)
        for call in (
            lambda: client.action(RUN),
            lambda: list(client.action_stream(RUN)),
            client.describe_actions,
        ):
            with pytest.raises(BotNotReadyError, match="not ready yet"):
                call()
        client.disconnect()
        connecting.error()

    def test_without_a_session(self) -> None:
        """Actions need an endpoint then, and the error says how to get one; descriptions need a session."""
        client = memory_client(ActingBot())
        for _ in range(2):
            for call in (lambda: client.action(RUN), lambda: list(client.action_stream(RUN))):
                with pytest.raises(ActionEndpointNotSetError, match=r"params\.base_url"):
                    call()
            with pytest.raises(BotNotReadyError):
                client.describe_actions()
            with client:
                assert client.action(RUN).data == {"result": True}

    def test_a_bot_of_2(self) -> None:
        """A bot of RTVI 2 has no actions: nothing is sent, and the error names the replacement."""
        with memory_client() as client:
            for call in (
                lambda: client.action(RUN),
                lambda: list(client.action_stream(RUN)),
                client.describe_actions,
            ):
                with pytest.raises(UnsupportedFeatureError, match="send_client_request") as caught:
                    call()
                error = caught.value
                assert (error.feature, error.needed_version, error.bot_version) == ("actions", "before 2.0", "2.2.0")
            assert len(transport_of(client).sent) == 1

    def test_a_bot_that_dropped_them(self) -> None:
        """A bot of 1.x may have none: after its first answer nothing more is sent."""

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
            if message.type == "client-ready":
                yield RTVIMessage("bot-ready", {"version": "1.2.0", "config": []}, message.id)
            else:
                yield RTVIMessage("error-response", {"error": f"Unsupported type {message.type}"}, message.id)

        with memory_client(bot) as client:
            for call in (client.describe_actions, lambda: client.action(RUN), client.describe_actions):
                with pytest.raises(UnsupportedFeatureError, match=r"Unsupported type|refused the type") as caught:
                    call()
                assert caught.value.feature == "actions"
            assert len(transport_of(client).sent) == 2

    def test_too_large(self, client: RTVIClient, bot: ActingBot) -> None:
        """An action over the transport's limit is refused before a byte is sent."""
        transport_of(client).max_message_size = 500
        with pytest.raises(MessageTooLargeError):
            client.action({**RUN, "arguments": [{"name": "x", "value": "x" * 500}]})
        assert bot.asked == []

    @pytest.mark.parametrize("initiator", ["client", "server"])
    def test_the_end_of_the_session_ends_waiting_calls(
        self, client: RTVIClient, bot: ActingBot, initiator: str
    ) -> None:
        """The end of the session ends a waiting call with `DisconnectedError`."""
        bot.results["dead"] = None
        dead = {"service": "llm", "action": "dead"}
        calls = [InThread(lambda: client.action(dead)), InThread(lambda: list(client.action_stream(dead)))]
        until(lambda: len(bot.asked) == 2)
        if initiator == "client":
            client.disconnect()
        else:
            transport_of(client).end(CloseInfo(code=1000, initiator="server"))
        for call in calls:
            error = call.error()
            assert isinstance(error, DisconnectedError)
            assert error.initiator == initiator
