"""Faults of the bot itself, and when they happen."""

from __future__ import annotations

import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from rtvi_sync.testing import EmbeddedBot, Fault, Reply
from rtvi_sync.testing.embedded_bot.reply import FaultPlan
from tests.support.wire import AudioRawFrame

from .bot_client import Talk, names

pytestmark = pytest.mark.inside

HELLO = {"content": "Hello"}


def test_a_fault_is_chosen_by_number_or_words() -> None:
    """The first that fits counts; questions of all sessions are counted."""
    plan = FaultPlan([Fault("stall", "bye"), Fault("drop", 2), Fault("close", "^hello")])

    assert [plan.ask(said) for said in ("Hello", "Good bye", "Hello", "Yes", "BYE")] == [
        "close",
        "stall",
        "close",
        None,
        "stall",
    ]
    assert [FaultPlan([Fault("slow")]).ask(said) for said in ("a", "b")] == ["slow", "slow"]


def test_a_session_without_an_answer_to_client_ready(talk: Talk) -> None:
    """The fault `no_ready` leaves the session of its number, and no other, without `bot-ready`."""
    with EmbeddedBot(faults=[Fault("no_ready", 1)]) as bot:
        first, second = talk(bot), talk(bot)
        bot.wait_for_session()
        for client in (first, second):
            client.send("client-ready", {"version": "2.2.0"})
            client.send("client-message", {"t": "fence"}, id="fence")

        answers = [names(client.until_id("fence")) for client in (first, second)]
    assert sorted(answers) == [["bot-ready", "server-response"], ["server-response"]]
    with pytest.raises(ValueError, match='on must be the number of a session for "no_ready"'):
        Fault("no_ready", "hello")


@pytest.mark.parametrize(("fault", "code"), [("drop", 1006), ("close", 1000)])
@pytest.mark.parametrize(("reply", "last"), [("One two.", "bot-tts-text"), (Reply("One two.", say=""), "bot-llm-text")])
def test_the_connection_ends_at_the_first_word(talk: Talk, fault: Any, code: int, reply: Any, last: str) -> None:
    """The rest of the reply is not sent. The word is spoken, or written by a bot without a voice."""
    with EmbeddedBot(replies=reply, faults=[Fault(fault, 1)]) as bot:
        client = talk(bot)
        client.send("send-text", HELLO)
        items = client.rest()
        with pytest.raises(ConnectionClosed) as end:
            client.connection.recv(0)

    assert names(items)[-1] == last
    assert names(items).count(last) == 1
    assert "bot-stopped-speaking" not in names(items)
    assert (end.value.rcvd.code if end.value.rcvd else 1006) == code


def test_a_reply_that_stalls(talk: Talk) -> None:
    """Nothing follows its first word; the next question is answered."""
    with EmbeddedBot(replies="One two.", faults=[Fault("stall", 1)]) as bot:
        client = talk(bot)
        client.send("send-text", HELLO)
        client.until("bot-tts-text")
        client.send("send-text", HELLO)
        interrupted = client.until("user-input")
        rest = client.until("bot-stopped-speaking")

    assert names(interrupted) == ["InterruptionFrame", "bot-interrupted", "bot-stopped-speaking", "user-input"]
    assert [item["data"]["text"] for item in rest if isinstance(item, dict) and item["type"] == "bot-tts-text"] == [
        "One",
        "two.",
    ]


def test_a_message_that_is_no_json(talk: Talk) -> None:
    """The reply continues after a message that is no JSON."""
    with EmbeddedBot(replies="One two.", faults=[Fault("malformed")]) as bot:
        client = talk(bot)
        client.send("send-text", HELLO)
        client.until("bot-tts-text")
        with pytest.raises(ValueError, match="Expecting value"):
            client.until("bot-stopped-speaking")
        client.until("bot-stopped-speaking")


def test_a_slow_reply(talk: Talk) -> None:
    """No chunk of its audio arrives earlier than at half the pace of real time, except the two in the head start."""
    arrivals: list[float] = []
    with EmbeddedBot(replies="One two.", faults=[Fault("slow")]) as bot:
        client = talk(bot)
        began = time.monotonic()
        client.send("send-text", HELLO)
        while "bot-stopped-speaking" not in getattr(frame := client.receive(), "data", ""):
            if isinstance(frame, AudioRawFrame):
                arrivals.append(time.monotonic() - began)

    assert len(arrivals) > 10
    assert [at for index, at in enumerate(arrivals) if at < (index - 1) * 0.08] == []


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("2.2.0", ["bot-llm-started", "bot-llm-stopped", "error"]),
        ("1.2.0", ["bot-llm-started", "bot-llm-stopped", "error"]),
        ("0.3.0", ["error", "bot-llm-started", "bot-llm-stopped"]),
    ],
)
def test_a_model_that_fails(talk: Talk, version: str, order: list[str]) -> None:
    """The error is reported where bots of this version report it, and it is not fatal."""
    with EmbeddedBot(version=version, faults=[Fault("error", "hello")]) as bot:
        client = talk(bot)
        if version == "0.3.0":
            said = [{"role": "user", "content": "Hello"}]
            client.act("llm:append_to_messages", messages=said, run_immediately=True)
        else:
            client.send("send-text", HELLO)
        items = client.until("user-llm-text") and client.until(order[-1])

    assert names(items) == order
    assert [item["data"] for item in items if item["type"] == "error"] == [
        {"error": "The model failed", "fatal": False}
    ]
