"""Config of the embedded bot: read, described, changed, and requested with the connect request."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.sync.client import connect

from rtvi_sync.testing import EmbeddedBot

from .bot_client import Client, Talk, ask, names

CONFIG: list[dict[str, Any]] = [
    {"service": "vad", "options": [{"name": "params", "value": {"stop_secs": 0.3}}]},
    {"service": "tts", "options": [{"name": "voice", "value": "tone"}, {"name": "speed", "value": 1.5}]},
    {"service": "llm", "options": [{"name": "messages", "value": []}, {"name": "run_on_config", "value": False}]},
]


def change(service: str, interrupt: bool | None = None, **options: Any) -> dict[str, Any]:
    """Return the data of an update-config."""
    given = [{"name": name, "value": value} for name, value in options.items()]
    data: dict[str, Any] = {"config": [{"service": service, "options": given}]}
    return data if interrupt is None else data | {"interrupt": interrupt}


def changed(service: str, name: str, value: Any) -> list[dict[str, Any]]:
    """Return `CONFIG` with another value."""
    return [
        {
            "service": entry["service"],
            "options": [
                {**option, "value": value} if (entry["service"], option["name"]) == (service, name) else option
                for option in entry["options"]
            ],
        }
        for entry in CONFIG
    ]


def test_a_config_is_sent_and_described(talk: Talk) -> None:
    """get-config returns it as given; describe-config has services by "name", and the type of each value."""
    with EmbeddedBot(version="0.3.0", config=CONFIG) as bot:
        client = talk(bot)
        told, described = client.ask("get-config"), client.ask("describe-config")

    assert (told["type"], told["data"]) == ("config", {"config": CONFIG})
    assert (described["type"], described["data"]["config"]) == (
        "config-available",
        [
            {"name": "vad", "options": [{"name": "params", "type": "object"}]},
            {"name": "tts", "options": [{"name": "voice", "type": "string"}, {"name": "speed", "type": "number"}]},
            {
                "name": "llm",
                "options": [{"name": "messages", "type": "array"}, {"name": "run_on_config", "type": "bool"}],
            },
        ],
    )


def test_types_can_be_given(talk: Talk) -> None:
    """`config_types` overrides the types of values, and adds options that have no value yet."""
    types = {"tts": {"voice": "object", "pitch": "number"}, "stt": {"language": "string"}}
    with EmbeddedBot(version="0.3.0", config=CONFIG[1:2], config_types=types) as bot:
        client = talk(bot)
        described = client.ask("describe-config")["data"]["config"]
        added = client.ask("update-config", change("tts", pitch=2))["data"]["config"]
        unknown_to_config = client.ask("update-config", change("stt", language="en"))["data"]["config"]

    tts = [
        {"name": "voice", "type": "object"},
        {"name": "speed", "type": "number"},
        {"name": "pitch", "type": "number"},
    ]
    assert described == [
        {"name": "tts", "options": tts},
        {"name": "stt", "options": [{"name": "language", "type": "string"}]},
    ]
    assert added[0]["options"][-1] == {"name": "pitch", "value": 2}
    # As with real bots, options of a service that is not in the initial config are not kept.
    assert [entry["service"] for entry in unknown_to_config] == ["tts"]


def test_an_update_changes_what_it_names(talk: Talk) -> None:
    """The answer is the complete config in its order; hook and session see the change, other sessions do not."""
    calls: list[tuple[str, str, Any]] = []
    with EmbeddedBot(version="0.3.0", config=CONFIG, on_config=lambda *call: calls.append(call)) as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        other = talk(bot)
        answer = client.ask("update-config", change("tts", voice={"id": 7}))

        assert (answer["type"], answer["data"]["config"]) == ("config", changed("tts", "voice", {"id": 7}))
        assert session.config == answer["data"]["config"]
        session.config.clear()
        assert session.config == answer["data"]["config"]
        assert other.ask("get-config")["data"]["config"] == CONFIG
    assert calls == [("tts", "voice", {"id": 7})]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (change("tts", voice="new", nosuch=1, speed=2), "Exception processing message: 'nosuch'"),
        (
            {"config": [*change("tts", voice="new")["config"], *change("nosuch")["config"]]},
            "Exception processing message: 'nosuch'",
        ),
        (change("tts", voice="new", speed="refused"), "Exception processing message: too fast"),
    ],
)
def test_an_update_that_fails_midway(talk: Talk, data: Any, error: str) -> None:
    """An unknown service or option, or a hook that raises, is an error-response; earlier changes stay."""

    def refuse(service: str, name: str, value: Any) -> None:
        if value == "refused":
            raise ValueError("too fast")

    with EmbeddedBot(version="0.3.0", config=CONFIG, on_config=refuse) as bot:
        client = talk(bot)
        answer = client.ask("update-config", data)

        assert (answer["type"], answer["data"]["error"]) == ("error-response", error)
        assert client.ask("get-config")["data"]["config"] == changed("tts", "voice", "new")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (None, "config"),
        ({"config": {}}, "config"),
        ({"config": ["tts"]}, "config.0"),
        ({"config": [{"service": 1, "options": []}]}, "service"),
        ({"config": [{"service": "tts"}]}, "options"),
        ({"config": [{"service": "tts", "options": [{"name": "voice"}]}]}, "value"),
        ({"config": [], "interrupt": "yes"}, "interrupt"),
    ],
)
def test_a_malformed_update(talk: Talk, data: Any, name: str) -> None:
    """A payload of another shape is invalid, and changes nothing."""
    with EmbeddedBot(version="1.0.0", config=CONFIG) as bot:
        client = talk(bot)
        answer = client.ask("update-config", data)

        assert answer["data"]["error"].startswith(f"Invalid message: 1 validation error\n{name}\n")
        assert bot.wait_for_session().config == CONFIG


def test_an_update_can_interrupt(talk: Talk) -> None:
    """With `interrupt` the bot stops speaking, and only the end of its speech is reported."""
    with EmbeddedBot(version="0.3.0", config=CONFIG, replies="A very long reply of many words " * 20) as bot:
        client = talk(bot)
        client.act("llm:run")
        client.until("bot-started-speaking")
        client.send("update-config", change("tts", interrupt=False, voice="a"), id="gentle")
        gently = client.until_id("gentle")
        client.send("update-config", change("tts", interrupt=True, voice="b"), id="rude")
        rudely = client.until_id("rude")

    assert set(names(gently)) <= {"AudioRawFrame", "bot-tts-stopped", "config"}
    assert [name for name in names(rudely) if name != "AudioRawFrame"][-2:] == ["bot-stopped-speaking", "config"]


def test_an_update_can_run_the_language_model(talk: Talk) -> None:
    """`run_on_config` makes the bot answer, after the config."""
    with EmbeddedBot(version="0.3.0", config=CONFIG, replies="Hi.") as bot:
        client = talk(bot)
        client.send("update-config", change("llm", run_on_config=True))

        assert names(client.until("bot-llm-stopped"))[:3] == ["config", "user-llm-text", "bot-llm-started"]


def test_a_malformed_config_is_refused_immediately() -> None:
    """A malformed config raises where the bot is made."""
    with pytest.raises(TypeError, match=r"config\[0\]\.options must be a list of options, not dict"):
        EmbeddedBot(config=[{"service": "tts", "options": {"voice": "x"}}])


def test_a_version_that_is_a_number_is_refused_immediately() -> None:
    """The version is a string, "2.2.0"."""
    with pytest.raises(TypeError, match="version"):
        EmbeddedBot(version=2.2)  # type: ignore[arg-type]


def greet(bot: EmbeddedBot, body: bytes) -> tuple[list[str], Any]:
    """Return the answers to client-ready and get-config after such a connect request, and the session's config."""
    address = ask(f"{bot.base_url}/connect", body=body)[1]["ws_url"]
    with connect(address, compression=None, close_timeout=1) as connection:
        client = Client(connection)
        client.send("client-ready", {})
        client.send("get-config", id="last")
        return names(client.until_id("last")), bot.wait_for_session().config


def test_a_connect_request_can_set_the_config() -> None:
    """The config in the request's body is set before bot-ready, in that session only, through the hook."""
    calls: list[tuple[str, str, Any]] = []
    with EmbeddedBot(version="0.3.0", config=CONFIG, on_config=lambda *call: calls.append(call)) as bot:
        wish = b'{"config": [{"service": "tts", "options": [{"name": "voice", "value": "alto"}]}]}'
        answers, config = greet(bot, wish)
        _, other = greet(bot, b"{}")

    assert answers == ["bot-ready", "config"]
    assert (config, other) == (changed("tts", "voice", "alto"), CONFIG)
    assert calls == [("tts", "voice", "alto")]


@pytest.mark.parametrize(
    "body",
    [
        b'{"config": [{"service": "nosuch", "options": []}]}',
        b'{"config": [{"service": "tts", "options": [{"name": "nosuch", "value": 1}]}]}',
        b'{"config": 7}',
    ],
)
def test_a_config_that_cannot_be_set_leaves_the_bot_unready(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As with real bots, bot-ready is never sent and the session stays open; the bot's log has the reason."""
    with EmbeddedBot(version="0.3.0", config=CONFIG) as bot:
        assert greet(bot, body)[0] == ["config"]

    assert "No bot-ready" in caplog.text


def test_bots_of_2_x_ignore_the_requested_config() -> None:
    """Bots of 2.x have no config, so that the one in a connect request changes nothing."""
    with EmbeddedBot(config=CONFIG) as bot:
        answers, config = greet(bot, b'{"config": [{"service": "nosuch", "options": []}]}')

    assert (answers[-2:], config) == (["bot-ready", "error-response"], CONFIG)


def test_an_address_that_no_request_led_to(talk: Talk) -> None:
    """An unknown request number in the WebSocket's path means that no config was requested."""
    with EmbeddedBot(version="0.3.0", config=CONFIG) as bot:
        for query in ("request=7", "request=x", "request=-1", "request=99999999999999999999"):
            with connect(f"{bot.ws_url}?{query}", compression=None, close_timeout=1) as connection:
                assert Client(connection).ask("client-ready")["data"]["config"] == CONFIG
