"""The config of real bots: of RTVI 0.3, where it is at home, and of 1.2, where it is deprecated and works."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    ConfigUpdateError,
    RTVIClient,
    RTVIEvent,
    TransportState,
    UnsupportedFeatureError,
)
from rtvi_sync.messages import ConfigDescription, ConfigOption, OptionDescription, RTVIClientConfigOption
from tests.pipecat.clients import Watch, client_of
from tests.pipecat.conftest import BotServer
from tests.support.attempts import connect_within, timed_out
from tests.support.slowness import GUARD, takes

SYSTEM = [{"role": "system", "content": "You repeat what you hear."}]
CONFIG = [
    RTVIClientConfigOption("vad", [ConfigOption("params", {"stop_secs": 0.2})]),
    RTVIClientConfigOption("tts", [ConfigOption("voice", "tone")]),
    RTVIClientConfigOption(
        "llm",
        [
            ConfigOption("model", "repeating-llm"),
            ConfigOption("initial_messages", SYSTEM),
            ConfigOption("run_on_config", False),
        ],
    ),
]


def described(service: str, **options: str) -> ConfigDescription:
    """Return the bot's description of a service: the types of its options."""
    return ConfigDescription(
        service=service, options=tuple(OptionDescription(name=name, type=kind) for name, kind in options.items())
    )


def option(service: str, name: str, value: Any) -> dict[str, Any]:
    """Return a service of a config with one option, as a mapping."""
    return {"service": service, "options": [{"name": name, "value": value}]}


def test_config_is_known_after_connect(client: RTVIClient) -> None:
    """RTVI 0.3 tells the config in bot-ready, RTVI 1.2 when it is asked: connect() returns when it is known."""
    assert client.config == CONFIG
    assert client.get_bot_config() == client.get_config() == CONFIG


def test_update_config(client: RTVIClient) -> None:
    """An update changes its options, is answered with the whole config, and fires config and then config_updated."""
    with client.events(RTVIEvent.CONFIG, RTVIEvent.CONFIG_UPDATED, timeout=GUARD) as events:
        answer = client.update_config([option("tts", "voice", "notifier")])
        fired = [next(events), next(events)]

    expected = [CONFIG[0], RTVIClientConfigOption("tts", [ConfigOption("voice", "notifier")]), CONFIG[2]]
    assert answer.type == "config"
    assert [entry["service"] for entry in answer.data["config"]] == ["vad", "tts", "llm"]
    assert client.config == client.get_bot_config() == expected
    assert [event.type for event in fired] == [RTVIEvent.CONFIG, RTVIEvent.CONFIG_UPDATED]
    assert [list(event.data.config) for event in fired] == [expected, expected]


def test_describe_config(client: RTVIClient) -> None:
    """The options of all services, also of one that the config does not have, under the name "service"."""
    assert client.describe_config() == [
        described("vad", params="object"),
        described("tts", voice="string"),
        described("llm", model="string", initial_messages="array", run_on_config="bool"),
        described("stt", language="string"),
    ]


def test_getters_and_setters(client: RTVIClient) -> None:
    """Getters ask the bot; setters make a new config, which changes the bot when it is given to update_config()."""
    assert client.get_service_options_from_config("tts") == CONFIG[1]
    assert client.get_service_option_value_from_config("vad", "params") == {"stop_secs": 0.2}
    assert client.get_service_options_from_config("nosuch") is None
    assert client.get_service_option_value_from_config("vad", "nosuch") is None

    changed = client.set_service_option_in_config("tts", {"name": "voice", "value": "notifier"})
    changed = client.set_config_options([option("llm", "model", "other")], changed)
    assert client.config == client.get_bot_config() == CONFIG
    client.update_config(changed)
    assert client.get_service_option_value_from_config("tts", "voice") == "notifier"
    assert client.get_service_option_value_from_config("llm", "model") == "other"


def test_refused_update(client: RTVIClient) -> None:
    """An unknown option is refused; the part of the update before it has still been done."""
    options = [{"name": "voice", "value": "notifier"}, {"name": "nosuch", "value": 1}]
    with client.events(RTVIEvent.MESSAGE_ERROR, timeout=GUARD) as events:
        with pytest.raises(ConfigUpdateError, match="'nosuch'") as refused:
            client.update_config([{"service": "tts", "options": options}])
        assert next(events).data.message == "Exception processing message: 'nosuch'"
    assert refused.value.response.type == "error-response"
    with pytest.raises(ConfigUpdateError, match="'nosuch'"):
        client.update_config([option("nosuch", "voice", 1)])

    assert client.config == CONFIG
    assert client.get_bot_config()[1].options == (ConfigOption("voice", "notifier"),)


def test_service_outside_the_config(client: RTVIClient) -> None:
    """A service that the bot has and its initial config has not is updated, and never appears in the config."""
    client.update_config([option("stt", "language", "no")])
    assert client.get_bot_config() == CONFIG
    assert client.get_service_options_from_config("stt") is None


def test_run_on_config(client: RTVIClient) -> None:
    """A config can make the language model answer to it; the new config is there first."""
    messages = [{"role": "user", "content": "Configured"}]
    options = [{"name": "initial_messages", "value": messages}, {"name": "run_on_config", "value": True}]
    with client.events(timeout=GUARD) as events:
        client.update_config([{"service": "llm", "options": options}])
        watch = Watch(events)
        answer = watch.until(RTVIEvent.BOT_TRANSCRIPT)
    types = [event.type for event in watch.seen]
    assert answer.data.text == "You said: Configured."
    assert types.index(RTVIEvent.CONFIG_UPDATED) < types.index(RTVIEvent.BOT_LLM_STARTED)


def test_interrupting_update(client: RTVIClient) -> None:
    """An update can interrupt the bot, which is told by nothing but the end of its speech."""
    say = {"service": "tts", "action": "say", "arguments": [{"name": "text", "value": "word " * 50}]}
    with client.events(timeout=GUARD) as events:
        client.action(say)
        watch = Watch(events)
        watch.until(RTVIEvent.BOT_STARTED_SPEAKING)
        client.update_config([option("tts", "voice", "notifier")], interrupt=True)
        with takes(3.0):  # all of it would take ten seconds
            watch.until(RTVIEvent.BOT_STOPPED_SPEAKING)
    assert RTVIEvent.BOT_INTERRUPTED not in {event.type for event in watch.seen}


def test_config_of_the_connect_request(server: BotServer) -> None:
    """The bot takes its config from the connect request, in the order in which the client has it."""
    config = [option("llm", "model", "other"), option("tts", "voice", "notifier")]
    with client_of(server, params={"base_url": server.base_url, "config": config}) as client:
        assert client.config == [
            RTVIClientConfigOption("llm", [ConfigOption("model", "other")]),
            RTVIClientConfigOption("tts", [ConfigOption("voice", "notifier")]),
        ]


def test_unknown_service_in_the_connect_request(server: BotServer) -> None:
    """A bot that does not know a service of its config is silent: connect() ends at its limit, and tells where."""
    params = {"base_url": server.base_url, "config": [option("nosuch", "voice", 1)]}
    client = client_of(server, params=params)
    timed_out("bot-ready", partial(connect_within, client), "config")
    assert client.state is TransportState.ERROR

    client.params.config = None
    connect_within(client)
    assert client.config == CONFIG
    client.disconnect()


def test_no_config_in_rtvi_2(pipecat_showcase: BotServer) -> None:
    """Bots of RTVI 2 have no config: that is known before a byte is sent."""
    with client_of(pipecat_showcase) as client, client.events(RTVIEvent.MESSAGE_ERROR) as errors:
        for call in (
            client.get_bot_config,
            client.describe_config,
            lambda: client.update_config([]),
            lambda: client.set_service_option_in_config("tts", {"name": "voice", "value": "notifier"}),
        ):
            with pytest.raises(UnsupportedFeatureError) as refused:
                call()
            assert refused.value.feature == "config"
            assert refused.value.needed_version == "before 2.0"
            assert refused.value.bot_version == "2.2.0"
        assert client.config is None
        assert client.send_client_request("ping", 1) == {"pong": 1}
        client.disconnect()
        assert list(errors) == []
