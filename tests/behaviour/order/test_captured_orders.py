"""The embedded bot sends the messages of real bots of its generation in the captured sessions, in their order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from websockets.sync.client import connect

from rtvi_sync.testing import EmbeddedBot, Reply
from tests.captures.logs import LOGS, rows_of
from tests.captures.scenarios import STORY
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone
from tests.support.wire import MessageFrame
from tests.testing.embedded_bot.bot_client import QUICK, Client, action

VERSIONS = {"1.14.0": "2.2.0", "1.5.0": "2.0.0", "0.0.108": "1.2.0", "0.0.73": "0.3.0"}
ALL = tuple(VERSIONS)
NEW, NOT_0_3 = ALL[:2], ALL[:3]

# Written at another pace, or reported by the pipeline alone.
_LEFT_OUT = ("metrics", "bot-llm-text", "bot-transcription", "config", "action-response", "bot-ready")
_QUESTIONS = ("send-text", "action")
_CALL: dict[str, Any] = {"call": ("get_weather", {"city": "Oslo"})}
_FUNCTION = {**_CALL, "result": {"temperature": 12}, "seconds": 0.4}
_REPLIES = {"hello": "You said: hello bot.", "stop": "You said: Stop."}


def types(message: dict[str, Any]) -> str:
    """Return the type of a message, and for a `bot-output` its report on the speech."""
    data = message.get("data") or {}
    if message["type"] != "bot-output":
        return str(message["type"])
    return f"bot-output {'word' if data['aggregated_by'] == 'word' else data.get('spoken_status', 'new')}"


def captured(case: Case, version: str) -> list[str]:
    """Return the messages of a real bot: those after the client's last message, or its unasked ones."""
    rows = rows_of(LOGS / version / f"{case.scenario}.jsonl")
    asked = [number for number, row in enumerate(rows) if row[1] == "out" and row[2]["type"] in _QUESTIONS]
    part = rows[: asked[0]] if case.unasked else rows[asked[-1] if asked else 0 :]
    return order_of([what for _, kind, what in part if kind == "in"], case)


def order_of(messages: list[dict[str, Any]], case: Case) -> list[str]:
    """Return the types of messages, without the types that the case leaves out."""
    named = [types(each) for each in messages if each["type"] not in _LEFT_OUT and not (case.stale and is_stale(each))]
    return named[named.index(case.after) :] if case.after in named else named


def is_stale(message: dict[str, Any]) -> bool:
    """Return whether a message is about the words of the interrupted story."""
    return message["type"] in ("bot-output", "bot-tts-text") and message["data"]["text"] in STORY


class User:
    """A user of a bot.

    Attributes:
        heard: the messages since the last that the user sent.
    """

    def __init__(self, client: Client, version: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self._client = client
        self._version = version

    def types(self, text: str, *, aloud: bool = True) -> None:
        """Send a text as clients of this version do."""
        self.heard.clear()
        if self._version == "0.3.0":
            said = [{"role": "user", "content": text}]
            data = action("llm:append_to_messages", messages=said, run_immediately=True)
            self._client.send("action", data)
        else:
            self._client.send("send-text", {"content": text, "options": {"audio_response": aloud}})

    def speaks(self) -> None:
        """Say something."""
        self.heard.clear()
        self._client.say(tone(0.2) + silence(QUICK + 0.1))

    def hears(self, type: str) -> dict[str, Any]:
        """Wait for a message of a type and return it."""
        while True:
            message = self.hears_one()
            if message["type"] == type:
                return message

    def hears_one(self) -> dict[str, Any]:
        """Wait for the next message and return it."""
        while True:
            frame = self._client.receive()
            if isinstance(frame, MessageFrame):
                self.heard.append(json.loads(frame.data))
                return self.heard[-1]

    def returns(self, result: Any) -> None:
        """Answer the bot's call of a function."""
        call = self.hears("llm-function-call")["data"]
        answer = {name: call[name] for name in ("function_name", "tool_call_id")}
        self._client.send("llm-function-call-result", {**answer, "arguments": call["args"], "result": result})


@attrs.frozen
class Case:
    """A scenario of the captures, as the embedded bot plays it.

    Attributes:
        scenario: Its name.
        does: Actions of the user.
        bot: Options of the bot.
        versions: Versions of Pipecat.
        after: Type of the message from which on the orders are compared; None: from the user's last message.
        stale: True to leave out words of the interrupted reply, which real bots send at times.
        unasked: True to compare the messages that the bot sends before the user acts.
    """

    scenario: str
    does: Callable[[User], None]
    bot: dict[str, Any]
    versions: tuple[str, ...] = ALL
    after: str | None = None
    stale: bool = False
    unasked: bool = False


def typed(text: str = "Weather?", **options: Any) -> Callable[[User], None]:
    return lambda user: user.types(text, **options)


def listens(user: User) -> None: ...


def speaks(user: User) -> None:
    user.speaks()


def types_over(user: User) -> None:
    user.types("Story?")
    user.hears("bot-tts-text")
    user.hears("bot-tts-text")
    user.types("Stop.")


def speaks_over(user: User) -> None:
    user.types("Story?")
    user.hears("bot-tts-text")
    user.hears("bot-tts-text")
    user.speaks()


def types_into_the_function(user: User) -> None:
    user.types("Weather?")
    user.hears("llm-function-call-in-progress")
    user.types("Stop.")


def has_the_function(user: User) -> None:
    user.types("Weather?")
    user.returns({"temperature": 12})


TWELVE = "It is twelve degrees."
CASES = [
    Case("greeting", listens, {"greeting": Reply(filler="Welcome to the shop.")}, NOT_0_3, unasked=True),
    Case("greeting-by-the-model", listens, {"greeting": "Welcome to the shop."}, NOT_0_3, unasked=True),
    Case("typed", typed("Hello"), {"replies": "You said: Hello."}, NOT_0_3),
    Case("spoken", speaks, {"replies": _REPLIES}, NOT_0_3, "user-started-speaking"),
    Case("spoken-in-sentences", speaks, {"replies": _REPLIES}, ("0.0.73",), "user-started-speaking"),
    Case("text-only", typed("Hello", aloud=False), {"replies": "You said: Hello."}, NOT_0_3),
    Case("text-only-function", typed(aloud=False), {"replies": Reply(TWELVE, **_FUNCTION)}, NOT_0_3),
    Case("function", typed(), {"replies": Reply(TWELVE, **_FUNCTION)}, NOT_0_3),
    Case("function-by-name", typed(), {"replies": Reply(TWELVE, **_FUNCTION, report_level="name")}, NOT_0_3),
    Case("function-unreported", typed(), {"replies": Reply(TWELVE, **_FUNCTION, report_level="disabled")}, NOT_0_3),
    Case(
        "filler-and-function",
        typed(),
        {"replies": Reply(TWELVE, **_FUNCTION, filler="One moment please.")},
        ("1.14.0", "0.0.108"),
    ),
    Case("client-function", has_the_function, {"replies": Reply(TWELVE, **_CALL)}, NOT_0_3),
    Case(
        "function-interrupted",
        types_into_the_function,
        {"replies": {**_REPLIES, "weather": Reply(TWELVE, **{**_FUNCTION, "seconds": GUARD})}},
        NOT_0_3,
    ),
    Case("voice-without-model", typed("Again"), {"replies": Reply(filler="You said: Again.")}, NOT_0_3),
    Case("empty-answer", typed("Hello"), {"replies": Reply("")}),
    Case("interrupted-by-text", types_over, {"replies": {**_REPLIES, "story": STORY}}, NOT_0_3, stale=True),
    Case(
        "interrupted-by-voice",
        speaks_over,
        {"replies": {**_REPLIES, "story": STORY}},
        ("1.5.0", "0.0.108"),
        "user-started-speaking",
        stale=True,
    ),
]


@pytest.mark.parametrize(
    ("case", "version"),
    [pytest.param(case, version, id=f"{case.scenario} {version}") for case in CASES for version in case.versions],
)
def test_the_order_is_that_of_a_real_bot(case: Case, version: str) -> None:
    """From the question on, every message has the place that it has in the captured session."""
    expected, rtvi = captured(case, version), VERSIONS[version]
    with (
        EmbeddedBot(version=rtvi, transcripts="hello bot", echo=False, hangover=QUICK, **case.bot) as bot,
        connect(bot.ws_url, compression=None, close_timeout=1) as connection,
    ):
        client = Client(connection)
        user = User(client, rtvi)
        client.send("client-ready", {"version": rtvi})
        user.hears("bot-ready")
        case.does(user)
        while len(found := order_of(user.heard, case)) < len(expected):
            assert found == expected[: len(found)]
            user.hears_one()
    assert found == expected
