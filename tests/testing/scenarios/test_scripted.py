"""Scripts against the embedded bot: the user's words, their times, and failures. Matching has tests of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import connect
from rtvi_sync.testing import BotSession, EmbeddedBot, Fault, Reply
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone, write_wav
from tests.testing.scenarios.files import scenario_of, statuses

SPOKEN = (
    "user: {modality: audio, speech: {service: kokoro}}\njudge: {modality: audio, transcription: {service: whisper}}\n"
)
SPEECH = silence(0.02) + tone(0.5) + silence(0.02)


def speak(_: str) -> tuple[bytes, int]:
    return SPEECH, 16_000


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Run a bot that repeats texts, and hears "Hello my bot." in all speech."""
    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2) as bot:
        yield bot


def test_turns(bot: EmbeddedBot, tmp_path: Path) -> None:
    """Each turn is sent when the bot is silent, and a failure ends the scenario unless the scenario continues."""
    turns = """
turns:
  - user: One
    expect: [{event: llm_response, text_contains: "You said: One"}]
  - user: Two
    expect: [{event: llm_response, text_excludes: Two}, {event: llm_started, check_from: turn_start}]
  - user: Three
    expect: [{event: llm_response, text_contains: Three}]
"""
    result = scenario_of(tmp_path, turns).run(bot.base_url, transport="eval", timeout=GUARD)
    assert statuses(result) == [
        ("passed", {0: "passed"}),
        ("failed", {0: "text_present", 1: "passed"}),
        ("not_run", {}),
    ]
    result = scenario_of(tmp_path, f"stop_on_failure: false{turns}").run(bot.base_url, transport="eval", timeout=GUARD)
    assert statuses(result)[2] == ("passed", {0: "passed"})


def test_without_a_judge(bot: EmbeddedBot, tmp_path: Path) -> None:
    """A criterion that no judge decides is not judged, and no success."""
    scenario = scenario_of(tmp_path, "turns: [{user: Hi, expect: [{event: llm_response, eval: It is polite}]}]")
    result = scenario.run(bot.base_url, transport="eval", timeout=GUARD)
    assert (result.verdict, result.failures) == ("not_judged", [])
    assert result.skip_reason == "not judged: its criterion needs a judge, and there is none"


def test_what_a_judge_gets(tmp_path: Path) -> None:
    """The judge gets the user's last words, the bot's words and calls since, and the criterion."""
    asked: list[tuple[str, str, str]] = []

    def judge(*given: str) -> Any:
        asked.append(given)  # type: ignore[arg-type]
        return True, "so it is"

    replies: list[str | Reply] = [Reply("Rain", call=("look", {"city": "Oslo"}), result={}), "Fine"]
    scenario = scenario_of(
        tmp_path,
        """
turns:
  - user: The weather?
    expect:
      - {event: function_call, name: look, eval: It asks for Oslo}
      - {event: llm_response, text_contains: Rain, eval: It tells the weather}
  - user: And you?
    expect: [{event: llm_response, eval: It is polite}]
""",
    )
    with EmbeddedBot(replies=replies) as bot:
        result = scenario.run(bot.base_url, transport="eval", judge=judge, timeout=GUARD)
    assert result.verdict == "passed", result
    assert asked == [
        ("The weather?", 'look({"city": "Oslo"})', "It asks for Oslo"),
        ("The weather?", "Rain", "It tells the weather"),
        ("And you?", "Fine", "It is polite"),
    ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (False, "judge_no"),
        ((False, "rude"), "judge_no"),
        (None, "error"),
        ("yes", "error"),
        (ValueError("no"), "error"),
    ],
)
def test_judges(bot: EmbeddedBot, tmp_path: Path, answer: object, kind: str) -> None:
    """A no fails; an unclear verdict, or an exception, is an error."""

    def judge(*_: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    scenario = scenario_of(tmp_path, "turns: [{user: Hi, expect: [{event: llm_response, eval: It is polite}]}]")
    result = scenario.run(bot.base_url, transport="eval", judge=judge, timeout=GUARD)
    assert [failure.kind for failure in result.failures] == [kind]


@pytest.mark.parametrize("door", ["eval", "websocket"])
def test_speech(bot: EmbeddedBot, tmp_path: Path, door: Any) -> None:
    """The function `tts` makes the user's speech, and `transcribe` gets the bot's speech, once a turn."""
    said: list[str] = []
    heard: list[tuple[int, int]] = []

    def tts(text: str) -> tuple[bytes, int]:
        said.append(text)
        return speak(text)

    def transcribe(pcm: bytes, sample_rate_hz: int) -> str:
        heard.append((len(pcm), sample_rate_hz))
        return "what it said"

    scenario = scenario_of(
        tmp_path,
        SPOKEN
        + """
turns:
  - user: [Hello, {pause_ms: 50}, my bot]
    expect:
      - {event: user_transcription, text_contains: Hello my bot}
      - {event: response, text_contains: what it said}
""",
    )
    result = scenario.run(bot.base_url, transport=door, tts=tts, transcribe=transcribe, timeout=GUARD)
    assert result.verdict == "passed", result
    assert said == ["Hello", "my bot"]
    ((size, rate),) = heard
    assert size > rate // 4


def test_recordings(bot: EmbeddedBot, tmp_path: Path) -> None:
    """A recording is played in place of speech, relative to the file; one that is missing is an error of the turn."""
    write_wav(tmp_path / "hello.wav", [silence(0.1), tone(0.5), silence(0.1)])
    text = SPOKEN + "turns: [{user: Hello, audio: AUDIO, expect: [{event: user_transcription}]}]"
    played = scenario_of(tmp_path, text.replace("AUDIO", "hello.wav"))
    assert played.run(bot.base_url, transport="eval", timeout=GUARD).verdict == "passed"
    missing = scenario_of(tmp_path, text.replace("AUDIO", "missing.wav"))
    (failure,) = missing.run(bot.base_url, transport="eval", timeout=GUARD).failures
    assert (failure.kind, failure.event_name, failure.turn_index, failure.expectation_index) == (
        "error",
        "<audio>",
        0,
        -1,
    )


def test_hooks_that_fail(bot: EmbeddedBot, tmp_path: Path) -> None:
    """An exception or a wrong result of `tts` or `transcribe` is an error of the turn that names the function."""
    scenario = scenario_of(tmp_path, SPOKEN + "turns: [{user: Hello, expect: [{event: response}]}]")

    def fail(*_: object) -> Any:
        raise ValueError("no voice")

    for tts, transcribe, told in (
        (fail, lambda *_: "", "tts has failed: ValueError: no voice"),
        (lambda _: "speech", lambda *_: "", "tts has failed"),
        (lambda _: (b"", 16_000), lambda *_: "", "tts returned no sound"),
        (speak, fail, "transcribe has failed: ValueError: no voice"),
        (speak, lambda *_: None, "what transcribe returns must be a string"),
    ):
        result = scenario.run(bot.base_url, transport="eval", tts=tts, transcribe=transcribe, timeout=GUARD)  # type: ignore[arg-type]
        assert [failure.kind for failure in result.failures] == ["error"]
        assert told in result.failures[0].reason


def test_send_after(bot: EmbeddedBot, tmp_path: Path) -> None:
    """A turn may follow an event, also one of an earlier turn, and a delay."""
    scenario = scenario_of(
        tmp_path,
        """
turns:
  - user: One
    expect: [{event: llm_response}]
  - user: Two
    send_after: {event: llm_started}
    expect: [{event: llm_response, text_contains: Two}]
  - user: Three
    send_after: {delay_ms: 20}
    expect: [{event: llm_response, text_contains: Three}]
""",
    )
    assert scenario.run(bot.base_url, transport="eval", timeout=GUARD).verdict == "passed"


def test_keys(bot: EmbeddedBot, tmp_path: Path) -> None:
    """Keys are pressed by any door; a bot of a protocol without them does not support the turn."""
    scenario = scenario_of(tmp_path, "turns: [{dtmf: 12}, {}]")
    assert scenario.run(bot.base_url, transport="websocket", timeout=GUARD).verdict == "passed"
    with EmbeddedBot(version="1.2") as older:
        result = scenario.run(older.base_url, transport="websocket", timeout=GUARD)
    assert statuses(result) == [("unsupported", {}), ("not_run", {})]


@pytest.mark.parametrize(("version", "verdict"), [("1.1", "unsupported"), ("1.2", "unexpected_event")])
def test_calls_of_older_bots(tmp_path: Path, version: str, verdict: str) -> None:
    """For a bot that does not report calls, no call counts as missed, and none counts as absent."""
    text = "turns: [{user: Hello, expect: [{event: function_call, absent: true, within_ms: 2000}]}]"
    with EmbeddedBot(version=version, replies=[Reply("Hi", call=("look", {}), result={})]) as older:
        result = scenario_of(tmp_path, text).run(older.base_url, transport="websocket", timeout=GUARD)
    assert statuses(result) == [("failed" if verdict == "unexpected_event" else verdict, {0: verdict})]


def test_the_bot_ends_the_call(tmp_path: Path) -> None:
    """Expectations behind the end have failed with it, and absent ones are met."""

    def hang_up(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "send-text":
            session.close()
        return message["type"] == "send-text"

    with EmbeddedBot(handler=hang_up) as bot:
        text = (
            "turns: [{user: Bye, expect: [{event: llm_response, absent: true}, {event: llm_response}, {event: image}]}]"
        )
        result = scenario_of(tmp_path, text).run(bot.base_url, transport="eval", timeout=GUARD)
    assert statuses(result) == [("failed", {0: "passed", 1: "bot_ended"})]


@pytest.mark.parametrize(
    ("check", "kind", "told"),
    [
        ("", "timeout", "no matching llm_response came within 2000 ms; the one that came has no text"),
        (
            ", text_excludes: pizza",
            "timeout",
            "no matching llm_response came within 2000 ms; the one that came has no text",
        ),
        (", text_contains: pizza", "text_mismatch", "not satisfied within 2000 ms: '' does not contain 'pizza'"),
    ],
)
def test_a_model_that_fails(tmp_path: Path, check: str, kind: str, told: str) -> None:
    """A response without text is no answer if the bot reports an error, which the failure names."""
    text = f"turns: [{{user: Hi, expect: [{{event: llm_response, within_ms: 2000{check}}}]}}]"
    with EmbeddedBot(faults=[Fault("error")]) as bot:
        result = scenario_of(tmp_path, text).run(bot.base_url, transport="websocket", timeout=GUARD)
    (failure,) = result.failures
    assert (failure.kind, failure.reason) == (kind, f"{told}. The bot reported: The model failed")


def test_an_empty_answer(tmp_path: Path) -> None:
    """Without an error, a response without text counts, as in Pipecat."""
    with EmbeddedBot(replies=[Reply("", say="")]) as bot:
        scenario = scenario_of(tmp_path, "turns: [{user: Hi, expect: [{event: llm_response}]}]")
        assert scenario.run(bot.base_url, transport="eval", timeout=GUARD).verdict == "passed"


def test_an_error_of_an_earlier_turn(tmp_path: Path) -> None:
    """An error belongs to the turn in which the bot reported it."""
    text = """
stop_on_failure: false
turns:
  - {user: Fail, expect: [{event: llm_response, within_ms: 2000}]}
  - {user: Hi, expect: [{event: llm_response, text_excludes: Hi}]}
"""
    with EmbeddedBot(faults=[Fault("error", "Fail")]) as bot:
        first, second = scenario_of(tmp_path, text).run(bot.base_url, transport="eval", timeout=GUARD).failures
    assert first.reason.endswith("The bot reported: The model failed")
    assert second.reason == "'You said: Hi' contains 'Hi'"


def test_a_connection_that_is_lost(tmp_path: Path) -> None:
    """A lost connection is not called the end of the call."""
    text = "turns: [{user: Hi, expect: [{event: llm_response}]}, {user: Hi, send_after: {event: image}}]"
    with EmbeddedBot(faults=[Fault("drop")]) as bot:
        scenario = scenario_of(tmp_path, f"stop_on_failure: false\n{text}")
        result = scenario.run(bot.base_url, transport="eval", timeout=GUARD)
    assert [(each.kind, each.reason) for each in result.failures] == [
        ("bot_ended", "the connection to the bot was lost before a matching llm_response came"),
        ("bot_ended", "the connection to the bot was lost before image came, after which the turn is sent"),
    ]


def test_a_client_of_ones_own(bot: EmbeddedBot, tmp_path: Path) -> None:
    """The session of the caller's client stays open; an event that its options leave out is unsupported."""
    scenario = scenario_of(tmp_path, "turns: [{user: Hi, expect: [{event: image}, {event: llm_response}]}]")
    with connect(bot.base_url, transport="eval", text_only=True) as client:
        assert statuses(scenario.run(client, timeout=GUARD)) == [("unsupported", {0: "unsupported", 1: "passed"})]
        assert client.ask("Still there?", GUARD).bot_text == "You said: Still there?"
        with pytest.raises(ValueError, match="record is for a session"):
            scenario.run(client, record=tmp_path / "kept")
