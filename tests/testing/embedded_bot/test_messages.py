"""Messages of each protocol version, version negotiation, and the messenger."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND, VERSIONS, supports
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.testing.embedded_bot.messages import BotVersion, Messenger, Negotiation, negotiate
from tests.support.wire import TranscriptionFrame

from .bot_client import CONFIG, WRITTEN, Talk, greeted, names, outline

pytestmark = pytest.mark.inside

WARNED = "Compatibility issues may occur."
ABOUT = {"version", "about"}
CAPABLE = {"version", "about", "capabilities"}
# Messages of a turn that some version introduced.
CHANGING = {"user-input", "bot-output", "bot-interrupted"}


def incompatible(client: str, server: str) -> str:
    return f"RTVI version {client} is not compatible with server protocol {server}."


@pytest.mark.parametrize(
    ("bot_version", "client_version", "warning", "version", "fields"),
    [
        # Pipecat 1.14.0
        ("2.2.0", "2.2.0", None, "2.2.0", CAPABLE),
        ("2.2.0", "2.0.0", None, "2.2.0", CAPABLE),
        ("2.2.0", "1.4.0", None, "1.4.0", CAPABLE),
        ("2.2.0", "1.0.0", None, "1.0.0", CAPABLE),
        ("2.2.0", "0.3.0", incompatible("0.3.0", "2.2.0"), "2.2.0", CAPABLE),
        ("2.2.0", "3.0.0", incompatible("3.0.0", "2.2.0"), "2.2.0", CAPABLE),
        ("2.2.0", "2.1", "Invalid client version format (2.1).", "2.2.0", CAPABLE),
        ("2.2.0", "abc", "Invalid client version format (abc).", "2.2.0", CAPABLE),
        ("2.2.0", "", "Client version unknown.", "2.2.0", CAPABLE),
        ("2.2.0", None, "Client version unknown.", "2.2.0", CAPABLE),
        # Bots of other versions
        ("0.3.0", "2.2.0", None, "0.3.0", {"version", "config"}),
        ("0.3.0", "abc", None, "0.3.0", {"version", "config"}),
        ("0.3.0", None, None, "0.3.0", {"version", "config"}),
        ("1.0.0", "1.2.0", None, "1.0.0", {"version"}),
        ("1.2.0", "2.2.0", incompatible("2.2.0", "1.2.0"), "1.2.0", ABOUT),
        ("1.2.0", None, "Client version unknown.", "1.2.0", ABOUT),
        ("1.4.0", "1.0.0", None, "1.4.0", ABOUT),
        ("2.0.0", "2.2.0", None, "2.0.0", ABOUT),
        ("2.1.0", "1.4.0", None, "1.4.0", ABOUT),
        ("3.1.0", "2.2.0", incompatible("2.2.0", "3.1.0"), "3.1.0", CAPABLE),
        ("3.1.0", "1.4.0", None, "1.4.0", CAPABLE),
        ("3.1.0", "3.0.0", None, "3.1.0", CAPABLE),
        ("of my own", "2.2.0", None, "of my own", CAPABLE),
        ("", "2.2.0", None, "", CAPABLE),
    ],
)
def test_version_negotiation(
    talk: Talk, bot_version: str, client_version: str | None, warning: str | None, version: str, fields: set[str]
) -> None:
    """bot-ready has the id of client-ready; a version that does not fit only causes an error-response before it."""
    with EmbeddedBot(version=bot_version) as bot:
        warnings, ready = greeted(talk(bot), client_version)

    assert warnings == ([f"{warning} {WARNED}"] if warning else [])
    assert (ready["version"], set(ready)) == (version, fields)


@pytest.mark.parametrize(
    ("client_version", "includes_config"),
    [(None, True), ("abc", True), ("0.3.0", True), ("1.0.0", False), ("2.1", False), ("2.2.0", False)],
)
def test_old_bots_of_1_x_warn_no_client(client_version: str | None, includes_config: bool) -> None:
    """A bot of 1.x with a config takes a client without a version for one of 0.3, and sends it the config."""
    for version in ("1.0.0", "1.2.0"):
        negotiation = negotiate(BotVersion(version), client_version, has_services=True)

        assert negotiation == Negotiation(version=version, generation=1, includes_config=includes_config)


@pytest.mark.parametrize("version", [*(f"{major}.{minor}.0" for major, minor in VERSIONS), "3.1.0", "of my own"])
def test_a_bot_accepts_what_the_table_says(talk: Talk, version: str) -> None:
    """Each type that some client may send is unsupported, or not, as the table of dialects has it."""
    known = {kind for kind in OUTBOUND if supports(kind, "2.2.0" if version == "of my own" else version)}
    with EmbeddedBot(version=version, config=CONFIG, actions={}) as bot:
        client = talk(bot)
        for kind in OUTBOUND.keys() - {"disconnect-bot"}:
            client.send(kind, {"t": "x", "content": {}}, id=kind)
        client.send("no-such-type", {}, id="no-such-type")
        items = client.until_id("no-such-type")

    refused = {
        item["id"] for item in items if item.get("data", {}).get("error") == f"Unsupported type {item.get('id')}"
    }
    assert refused == {"no-such-type", *OUTBOUND} - known


@pytest.mark.parametrize(
    ("version", "config", "actions", "unsupported"),
    [
        ("0.3.0", [], None, set()),
        ("1.0.0", [], None, {"get-config", "describe-actions"}),
        ("1.0.0", CONFIG, None, {"describe-actions"}),
        ("1.0.0", [], {}, {"get-config"}),
        ("1.4.0", CONFIG, {}, set()),
        ("2.0.0", CONFIG, {}, {"get-config", "describe-actions"}),
    ],
)
def test_bots_of_1_x_have_what_they_are_given(
    talk: Talk, version: str, config: Any, actions: Any, unsupported: set[str]
) -> None:
    """Config and actions: always in 0.3, in 1.x if the bot has any, later never."""
    with EmbeddedBot(version=version, config=config, actions=actions) as bot:
        client = talk(bot)
        answers = {kind: client.ask(kind) for kind in ("get-config", "describe-actions")}

    assert {kind for kind, answer in answers.items() if answer["type"] == "error-response"} == unsupported


@pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "1.1.0", "1.4.0", "2.0.0", "2.2.0"])
def test_a_bot_sends_what_the_table_says(talk: Talk, version: str) -> None:
    """A turn with speech, answer and interruption has only messages that bots of the version know."""
    number = BotVersion(version).number
    with EmbeddedBot(version=version, actions={}, metrics=True, replies=["Long enough. " * 9, ""]) as bot:
        client = talk(bot)
        client.send_frame(TranscriptionFrame(text="Hello", user_id="", timestamp=""))
        if number < (1, 0):
            client.act("llm:run")
        else:
            client.send("send-text", {"content": "Hello"})
        items = client.until("bot-tts-text")
        if number >= (1, 0):
            client.send("send-text", {"content": "Stop"})
            items += client.until("bot-stopped-speaking")
    types = {item["type"] for item in items if isinstance(item, dict)}

    known = {
        kind
        for kind, spec in INBOUND.items()
        if (spec.since or number) <= number and (spec.until is None or number < spec.until)
    }
    assert types <= known
    assert types & CHANGING == known & CHANGING
    assert ("InterruptionFrame" in names(items)) is (number >= (2, 0))


def test_clients_of_protocol_1_get_words(talk: Talk) -> None:
    """After a client-ready of 1.x bot-output is sent word by word; a bot of 1.x sends it so to any client."""
    for bot_version, client_version in [("2.2.0", "1.4.0"), ("1.4.0", "2.2.0")]:
        with EmbeddedBot(replies="Yes sir.", version=bot_version) as bot:
            client = talk(bot)
            client.send("client-ready", {"version": client_version})
            client.send("send-text", {"content": "Hello"})
            items = [item for item in client.until("bot-stopped-speaking") if isinstance(item, dict)]

        outputs = [item["data"] for item in items if item["type"] == "bot-output"]
        assert [(data["text"], data["aggregated_by"]) for data in outputs] == [
            ("Yes sir.", "sentence"),
            ("Yes", "word"),
            ("sir.", "word"),
        ]


def test_a_turn_of_0_3(talk: Talk) -> None:
    """A bot of 0.3 sends its spoken text by sentence, after the audio, and reports the end of speech afterwards."""
    with EmbeddedBot(version="0.3.0", replies="One two. Three.") as bot:
        client = talk(bot)
        client.send_frame(TranscriptionFrame(text="Hello", user_id="", timestamp=""))
        client.act("llm:append_to_messages", messages=[{"role": "user", "content": "Hello"}], run_immediately=True)
        items = client.until("bot-stopped-speaking")

    assert outline(items) == [
        "user-transcription Hello",
        "action-response",
        "user-llm-text Hello",
        *WRITTEN,
        "bot-tts-started",
        "bot-tts-stopped",
        "AudioRawFrame",
        "bot-started-speaking",
        "AudioRawFrame",
        "bot-tts-text One two.",
        "AudioRawFrame",
        "bot-tts-text Three.",
        "bot-stopped-speaking",
    ]


def messenger(version: str) -> tuple[Messenger, list[dict[str, Any]]]:
    """Return a messenger of a bot of that version, and the list of its messages."""
    sent: list[dict[str, Any]] = []
    return Messenger(BotVersion(version), sent.append), sent


@pytest.mark.parametrize(("version", "types"), [("2.2.0", ["bot-output"]), ("0.3.0", [])])
def test_a_message_that_bots_of_that_version_do_not_send(version: str, types: list[str]) -> None:
    """`bot-output` is of RTVI 1.1 and later: an older bot drops it."""
    it, sent = messenger(version)
    it.emit("bot-output", {"text": "a"})
    assert [message["type"] for message in sent] == types


def test_an_answer_has_the_id_of_its_message() -> None:
    """A refusal answers; an error does not."""
    it, sent = messenger("2.2.0")
    it.send_error_response({"type": "x", "id": "7"}, "no such thing")
    it.send_error("broken")
    assert [(message["type"], message["data"]["error"]) for message in sent] == [
        ("error-response", "no such thing"),
        ("error", "broken"),
    ]
    assert sent[0]["id"] == "7"
    assert sent[1].get("id") != "7"
    assert sent[1]["data"]["fatal"] is False
