"""Actions of real bots of RTVI 0.3 and 1.2: in a session, and single ones over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import (
    ActionArgument,
    LLMHelper,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIActionRequestData,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
)
from tests.pipecat.clients import Watch, as_list, client_of, message_of
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD, takes

HELLO = {"role": "user", "content": "Hello"}


def action(name: str, **arguments: Any) -> dict[str, Any]:
    """Return an action by the name "service:action"."""
    service, _, name = name.partition(":")
    return {"service": service, "action": name, "arguments": as_list(arguments)}


def test_describe_actions(client: RTVIClient) -> None:
    """The bot tells its actions, their arguments and the type of their results; an event does so too."""
    with client.events(RTVIEvent.ACTIONS_AVAILABLE, timeout=GUARD) as events:
        answer = client.describe_actions()
        told = next(events).data.actions
    assert (answer.label, answer.type) == ("rtvi-ai", "actions-available")
    run = {"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "type": "bool"}], "result": "bool"}
    assert run in answer.data["actions"]
    assert [(a.service, a.action) for a in told] == [(a["service"], a["action"]) for a in answer.data["actions"]]


def test_action(client: RTVIClient) -> None:
    """An action is answered with its result, by a mapping or by an object; an event tells of it too."""
    with client.events(RTVIEvent.ACTION_RESPONSE, timeout=GUARD) as events:
        answer = client.action(action("bot:add", a=1, b=2))
        assert (answer.label, answer.type, answer.data) == ("rtvi-ai", "action-response", {"result": 3})
        event = next(events)
    assert (event.data.result, message_of(event).id) == (3, answer.id)
    arguments = [ActionArgument("a", 1), ActionArgument("b", 0.5)]
    assert client.action(RTVIActionRequestData("bot", "add", arguments)).data == {"result": 1.5}


def test_action_stream_in_a_session(client: RTVIClient) -> None:
    """In a session the stream of an action is its answer."""
    assert [message.data for message in client.action_stream(action("bot:add", a=1, b=2))] == [{"result": 3}]


def test_llm_helper(client: RTVIClient) -> None:
    """The helper reads, replaces and continues the context of the bot's language model, and has it answer."""
    llm = client.register_helper("llm", LLMHelper())
    with client.events(RTVIEvent.BOT_TRANSCRIPT, timeout=GUARD) as answers:
        assert llm.set_context([HELLO], interrupt=True) is True
        assert llm.get_context() == [HELLO]
        assert llm.append_to_messages({"role": "user", "content": "Again"}) is True
        assert [message["content"] for message in llm.get_context()] == ["Hello", "Again"]
        assert llm.run(interrupt=True) is True
        assert next(answers).data.text == "You said: Again."
        llm.append_to_messages([{"role": "user", "content": "At once"}], run_immediately=True)
        assert next(answers).data.text == "You said: At once."


def test_speech(client: RTVIClient) -> None:
    """Actions of the voice have the bot speak, and be silent again before it has said all."""
    with client.events(timeout=GUARD) as events:
        watch = Watch(events)
        client.action(action("tts:say", text="word " * 50, interrupt=False))
        watch.until(RTVIEvent.BOT_STARTED_SPEAKING)
        client.action(action("tts:interrupt"))
        with takes(3.0):  # all of it would take ten seconds
            watch.until(RTVIEvent.BOT_STOPPED_SPEAKING)


def test_refused_action(client: RTVIClient) -> None:
    """An action that the bot has not is refused, and an event tells of it."""
    with client.events(RTVIEvent.MESSAGE_ERROR, timeout=GUARD) as events:
        with pytest.raises(RequestRejectedError, match="Action llm:nosuch not registered"):
            client.action(action("llm:nosuch"))
        assert next(events).data.message == "Action llm:nosuch not registered"
    assert client.action(action("bot:add", a=1, b=2)).data == {"result": 3}


@pytest.mark.parametrize("name", ["bot:fail", "bot:nothing"])
def test_action_that_is_never_answered(client: RTVIClient, name: str) -> None:
    """An action that raises or returns nothing is never answered, and later ones aren't either; the session goes on."""
    with pytest.raises(RequestTimeoutError):
        client.action(action(name), timeout=0.3)
    with pytest.raises(RequestTimeoutError):
        client.action(action("bot:add", a=1, b=2), timeout=0.3)
    assert client.get_service_option_value_from_config("tts", "voice") == "tone"
    client.update_config([{"service": "tts", "options": [{"name": "voice", "value": "notifier"}]}])
    assert client.describe_actions().type == "actions-available"
    assert client.state is TransportState.READY


def test_actions_wait_for_each_other(client: RTVIClient) -> None:
    """The bot runs one action after the other; requests for the config overtake them."""
    slow = RTVIMessage("action", action("bot:sleep", seconds=0.3))
    quick = RTVIMessage("action", action("bot:add", a=1, b=2))
    config = RTVIMessage("get-config", {})
    with client.events(RTVIEvent.ACTION_RESPONSE, RTVIEvent.CONFIG, timeout=GUARD) as events:
        for message in (slow, quick, config):
            client.send_message(message)
        answered = [message_of(next(events)).id for _ in range(3)]
    assert answered == [config.id, slow.id, quick.id]


def test_no_actions_in_rtvi_2(pipecat_showcase: BotServer) -> None:
    """Bots of RTVI 2 have no actions: that is known before a byte is sent."""
    with client_of(pipecat_showcase) as client:
        helper = client.register_helper("llm", LLMHelper())
        for call in client.describe_actions, lambda: client.action(action("bot:add")), helper.get_context:
            with pytest.raises(UnsupportedFeatureError) as refused:
                call()
            assert refused.value.feature == "actions"
        assert client.send_client_request("ping", 1) == {"pong": 1}


# Without a session


def http_action(server: BotServer, endpoint: str = "action", **options: Any) -> RTVIClient:
    """Return a client that has no transport, and an endpoint for actions."""
    params = {"base_url": server.base_url, "endpoints": {"action": endpoint}, **options}
    return RTVIClient(params=params, request_timeout=10)


def test_single_turn(pipecat_configured_0_3: BotServer) -> None:
    """The server's stream goes on after the answer: the bot's words reach the same handlers as in a session."""
    client = http_action(pipecat_configured_0_3)
    with client.events(timeout=GUARD) as events:
        llm = client.register_helper("llm", LLMHelper())
        assert llm.append_to_messages({"role": "user", "content": "Hello over HTTP"}, run_immediately=True) is True
        watch = Watch(events)
        watch.until(RTVIEvent.BOT_LLM_STOPPED)
    client.close()

    tokens = [data.text for data in watch.data(RTVIEvent.BOT_LLM_TEXT)]
    assert "".join(tokens) == "You said: Hello over HTTP."
    assert watch.data(RTVIEvent.USER_LLM_TEXT)[0].text == "Hello over HTTP"
    # The server's own way to end a turn is an action too, with an id of no request.
    ids = [message_of(event).id for event in watch.seen if event.type is RTVIEvent.ACTION_RESPONSE]
    assert len(ids) == 2
    assert ids[1] == "END"


def test_single_turn_stream(pipecat_configured_0_3: BotServer) -> None:
    """The stream of a single turn has every message of the server's, in its order."""
    client = http_action(pipecat_configured_0_3)
    request = action("llm:append_to_messages", messages=[HELLO], run_immediately=True)
    messages = list(client.action_stream(request))
    client.close()

    types = [message.type for message in messages]
    assert (messages[0].type, messages[0].data) == ("action-response", {"result": True})
    assert list(dict.fromkeys(types[2:])) == [
        "user-llm-text",
        "bot-llm-started",
        "bot-llm-text",
        "bot-transcription",
        "bot-llm-stopped",
    ]


def test_single_turn_answered_with_one_document(pipecat_configured_0_3: BotServer) -> None:
    """A server may answer with one JSON document instead of a stream."""
    client = http_action(pipecat_configured_0_3, "action-json")
    assert client.action(action("bot:add", a=2, b=3)).data == {"result": 5}
    with pytest.raises(RequestRejectedError, match="bot:nosuch not registered"):
        client.action(action("bot:nosuch"))
    client.close()


def test_refused_single_turn(pipecat_configured_0_3: BotServer) -> None:
    """The bot's refusal arrives in an answer that is fine for HTTP; the server's own has a status and its reason."""
    client = http_action(pipecat_configured_0_3)
    with pytest.raises(RequestRejectedError, match="Action llm:nosuch not registered"):
        client.action(action("llm:nosuch"))
    client.params.request_data = {"fail": 503, "detail": "all bots are taken"}
    with pytest.raises(RequestRejectedError, match="all bots are taken") as refused:
        client.action(action("bot:add", a=2, b=3))
    assert refused.value.status == 503
    client.params.request_data = None
    assert client.action(action("bot:add", a=2, b=3)).data == {"result": 5}
    client.close()


def test_slow_single_turn(pipecat_configured_0_3: BotServer) -> None:
    """A single turn has its limit too, and one that is over is forgotten by the next."""
    client = http_action(pipecat_configured_0_3)
    with takes(3), pytest.raises(RequestTimeoutError):
        client.action(action("bot:sleep", seconds=5), timeout=0.3)
    assert client.action(action("bot:add", a=2, b=3)).data == {"result": 5}
    client.close()
