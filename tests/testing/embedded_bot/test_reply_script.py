"""Replies as scripts: functions, speech during a function, and the report of an interrupted reply."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from rtvi_sync.testing import Reply
from rtvi_sync.testing.embedded_bot.audio import ReplyAudio
from rtvi_sync.testing.embedded_bot.messages import BotVersion
from rtvi_sync.testing.embedded_bot.reply_script import (
    AwaitResult,
    Item,
    ReplyScript,
    Script,
    SpeechScript,
    cut_reply,
    words_of,
)
from tests.support.wire import AudioRawFrame

pytestmark = pytest.mark.inside

RATE = 16000
CALL: dict[str, Any] = {"call": ("weather", {"city": "Oslo"})}


def voice(text: str) -> ReplyAudio:
    """Return speech with a word every 200 ms."""
    words = words_of(text)
    return ReplyAudio(
        pcm=bytes(2 * RATE // 5 * len(words)), sample_rate=RATE, word_starts=tuple(n * 0.2 for n in range(len(words)))
    )


def script_of(reply: Reply, version: str = "2.2.0", **options: Any) -> ReplyScript:
    bot_version = BotVersion(version)
    speech = SpeechScript(bot_version.generation, bot_version.generation, 1)
    return ReplyScript(reply=reply, bot_version=bot_version, speech=speech, voice=voice, **options)


def name_of(item: Item) -> str:
    if isinstance(item, AwaitResult):
        return "(waits)"
    return "audio" if isinstance(item, AudioRawFrame) else item["type"].removeprefix("llm-function-")


def outline(reply: Reply, version: str = "2.2.0", **options: bool) -> list[str]:
    """Return the types of messages of a reply, without the types for its words."""
    found = [name_of(item) for _, item in script_of(reply, version, **options).steps()]
    dropped = ("audio", "bot-output", "bot-tts-text", "bot-transcription", "bot-tts-started", "bot-tts-stopped")
    return [name for name, _ in groupby(name for name in found if name not in dropped)]


SPOKEN = ["bot-started-speaking", "bot-stopped-speaking"]
RUN = ["bot-llm-started", "bot-llm-text", "bot-llm-stopped"]


def test_a_function_of_the_bot() -> None:
    """The model runs, calls, and runs again when the function has returned."""
    steps = list(script_of(Reply("Rain.", after=0.5, **CALL, result=7, seconds=2.0)).steps())
    due = {name_of(item): due for due, item in reversed(steps)}

    assert outline(Reply("Rain.", **CALL, result=7)) == [
        "bot-llm-started",
        "call-started",
        "bot-llm-stopped",
        "call-in-progress",
        "call-stopped",
        *RUN,
        *SPOKEN,
    ]
    assert [due[name] for name in ("bot-llm-started", "call-started", "call-stopped", "bot-llm-text")] == [
        0.0,
        0.5,
        2.5,
        2.5,
    ]


def test_a_filler_while_the_function_runs() -> None:
    """The function returns in the middle of it, and the model runs when it has been spoken."""
    reply = Reply("Rain.", **CALL, result=7, seconds=0.3, filler="One moment please.")
    steps = [(due, item) for due, item in script_of(reply).steps() if isinstance(item, dict)]
    stopped = next(number for number, (_, item) in enumerate(steps) if item["type"].endswith("call-stopped"))
    around = [item["data"]["text"] for _, item in steps[stopped - 3 : stopped + 3] if item["type"] == "bot-tts-text"]

    assert around == ["moment", "please."]
    assert outline(reply)[3:] == ["call-in-progress", SPOKEN[0], "call-stopped", SPOKEN[1], *RUN, *SPOKEN]


def test_a_filler_while_the_model_thinks() -> None:
    """A filler is spoken after the model has started and before it writes."""
    assert outline(Reply("Rain.", filler="Well.")) == ["bot-llm-started", *SPOKEN, *RUN[1:], *SPOKEN]


@pytest.mark.parametrize("version", ["0.3.0", "1.0.0"])
def test_old_bots_report_no_function_of_their_own(version: str) -> None:
    """Their models run twice, and that is all."""
    assert outline(Reply("Rain.", **CALL, result=7), version)[:4] == [*RUN[::2], *RUN[:2]]


def test_a_function_of_the_client() -> None:
    """The reply waits for its result and reports it; times count from then on."""
    script = script_of(Reply("Rain.", **CALL)).steps()
    items: list[tuple[float, Item]] = [next(script)]
    while not isinstance(items[-1][1], AwaitResult):
        items.append(script.send({}))
    call_id = items[-1][1].call_id
    due, stopped = script.send({call_id: {"sky": "grey"}})

    assert [name_of(item) for _, item in items][-3:] == ["call", "call-in-progress", "(waits)"]
    assert isinstance(stopped, dict)
    assert stopped["data"] == {
        "tool_call_id": call_id,
        "cancelled": False,
        "function_name": "weather",
        "result": {"sky": "grey"},
    }
    assert (due, next(script)[1]) == (items[-1][0], {"label": "rtvi-ai", "type": "bot-llm-started"})


def test_a_result_that_comes_during_the_filler() -> None:
    """A result that arrives during the filler is reported during it, and nothing waits."""
    script = script_of(Reply("Rain.", **CALL, filler="One moment please.")).steps()
    names: list[str] = []
    item = next(script)[1]
    results: dict[str, Any] = {}
    while name_of(item) != "bot-llm-text":
        names.append(name_of(item))
        if names[-1] == "call":
            assert isinstance(item, dict)
            results = {item["data"]["tool_call_id"]: 7}
        item = script.send(results)[1]

    assert "(waits)" not in names
    assert names.index("call-stopped") < names.index("bot-stopped-speaking")


def test_what_is_not_spoken() -> None:
    """Bots of 2.x announce a text without a voice; an answer in text is still spoken after a function."""
    assert outline(Reply("Rain.", say="")) == RUN
    assert outline(Reply("Rain."), spoken=False) == RUN
    assert outline(Reply("Rain.", **CALL, result=7), spoken=False)[-2:] == SPOKEN
    assert outline(Reply("Rain.", **CALL, result=7), spoken=False, mute=True)[-1] == "bot-llm-stopped"
    silent = [item for _, item in script_of(Reply("Rain."), spoken=False).steps() if isinstance(item, dict)]
    assert silent[-1]["data"]["will_be_spoken"] is False
    old = [item for _, item in script_of(Reply("Rain."), "1.2.0", spoken=False).steps() if isinstance(item, dict)]
    assert old[-1]["type"] == "bot-llm-stopped"


def test_what_is_spoken_in_place_of_the_text() -> None:
    """The model writes the one, the voice says the other."""
    items = [item for _, item in script_of(Reply("**3** %", say="three percent")).steps() if isinstance(item, dict)]
    words = [item["data"]["text"] for item in items if item["type"] == "bot-tts-text"]
    written = "".join(item["data"]["text"] for item in items if item["type"] == "bot-llm-text")

    assert (written, words) == ("**3** %", ["three", "percent"])


def test_a_run_of_nothing() -> None:
    """Bots of 0.3 report the end of an empty run twice."""
    ends = {
        version: [name_of(item) for _, item in script_of(Reply(""), version).steps()]
        for version in ("0.3.0", "1.2.0", "2.2.0")
    }
    assert ends == {
        "0.3.0": ["bot-llm-started", "bot-llm-stopped", "bot-llm-stopped"],
        "1.2.0": ["bot-llm-started", "bot-llm-stopped"],
        "2.2.0": ["bot-llm-started", "bot-llm-stopped"],
    }


def cut_at(script: Script, type: str, count: int = 1) -> Item:
    """Return the first item that is not sent, if the reply is cut after the nth message of a type."""
    for _, item in script:
        count -= isinstance(item, dict) and item["type"] == type
        if not count:
            return next(script)[1]
    raise AssertionError("it was not cut")


def test_a_speech_that_is_cut() -> None:
    """If speech is cut, one more word of it is sent, and the next sentence is announced later."""
    script = script_of(Reply("One two. Three four. Five.")).steps()
    cut = cut_reply(cut_at(script, "bot-tts-stopped"), script, speaking=True)

    assert [(word["type"], word["data"]["text"]) for word in cut.words] == [
        ("bot-tts-text", "two."),
        ("bot-output", "One two."),
    ]
    assert [each["data"]["text"] for each in cut.sentences] == ["Three four."]
    assert cut.calls == []


def test_a_function_that_is_cut() -> None:
    """A function that is cut is reported as cancelled if it had been called, and its answer is not sent."""
    reply = Reply("Rain.", **CALL, result=7, seconds=9.0)
    script = script_of(reply).steps()
    running = cut_reply(cut_at(script, "llm-function-call-in-progress"), script, speaking=False)
    script = script_of(reply).steps()
    not_yet = cut_reply(next(script)[1], script, speaking=False)

    (call,) = running.calls
    assert call["data"] == {"tool_call_id": call["data"]["tool_call_id"], "cancelled": True, "function_name": "weather"}
    assert (running.words, running.sentences) == ([], [])
    assert (not_yet.calls, not_yet.words, not_yet.sentences) == ([], [], [])
