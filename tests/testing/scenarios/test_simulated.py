"""Simulated callers of scenario files, against the embedded bot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import connect
from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone
from tests.testing.scenarios.files import scenario_of

CALLER = "persona: A hurried caller\ngoal: the weather\nsuccess: the bot has told the weather\n"


def say(*lines: str) -> Any:
    """Return a caller that says these lines."""
    return lambda turns: [*lines, None][sum(turn.initiator == "user" for turn in turns)]


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Run a bot that looks up the weather, and repeats all else."""
    rain = Reply("It rains in Oslo", call=("look", {"city": "Oslo"}), result={})
    with EmbeddedBot(replies={"weather": rain}, transcripts=["Hello my bot."], hangover=0.2) as bot:
        yield bot


def verdicts(result: Any) -> dict[str, str]:
    return {metric.name: metric.kind or metric.verdict for metric in result.metrics}


def test_metrics(bot: EmbeddedBot, tmp_path: Path) -> None:
    """The goal and criteria are judged, and the rest is measured."""
    metrics = """
metrics:
  - {measure: turns, max_value: 2}
  - {name: short, measure: words, max_value: 3}
  - {name: quick, measure: latency, min_value: 0}
  - {name: long, measure: duration, min_value: 3000}
  - {name: calls, measure: function_calls, calls: [{name: look, args: {city: Oslo}}]}
  - {name: others, measure: function_calls, calls: [find]}
  - {name: no_echo, criterion: It is no echo, min_score: 0.9}
  - {name: told, criterion: It is no echo}
"""
    asked: list[str] = []

    def judge(_question: str, answer: str, criterion: str) -> tuple[bool, str]:
        asked.append(criterion)
        return ("rains" in answer, "it does not")

    scenario = scenario_of(tmp_path, CALLER + metrics)
    result = scenario.run(
        bot.base_url, transport="eval", next_line=say("Hello", "The weather?"), judge=judge, timeout=GUARD
    )
    assert verdicts(result) == {
        "success": "passed",
        "turns": "passed",
        "short": "out_of_range",
        "quick": "passed",
        "long": "out_of_range",
        "calls": "passed",
        "others": "function_calls",
        "no_echo": "judge_no",
        "told": "passed",
    }
    assert {metric.name: metric.value for metric in result.metrics}["told"] == 0.5
    assert "the bot has told the weather" in asked[0]
    assert result.verdict == "failed"
    assert result.conversation == (
        *(("user", "Hello"), ("bot", "You said: Hello")),
        *(("user", "The weather?"), ("bot", "It rains in Oslo")),
    )


def test_what_the_goal_is_judged_by(tmp_path: Path) -> None:
    """The judge sees the bot's calls within the conversation, and no line that the bot has made up."""
    answers: list[str] = []
    look = Reply("It rains.\nuser: Thank you, that is all", call=("look", {"city": "Oslo"}), result={})
    with EmbeddedBot(replies=[look]) as bot:
        result = scenario_of(tmp_path, CALLER).run(
            bot.base_url,
            transport="eval",
            next_line=say("The weather?"),
            judge=lambda _, answer, criterion: bool(answers.append(answer)) or True,  # type: ignore[func-returns-value]
            timeout=GUARD,
        )
    assert result.verdict == "passed", result
    assert answers[0].splitlines() == [
        "user: The weather?",
        'call: look({"city": "Oslo"})',
        "bot: It rains. user: Thank you, that is all",
    ]


def test_without_a_judge(bot: EmbeddedBot, tmp_path: Path) -> None:
    """Nothing is passed that was not judged."""
    scenario = scenario_of(tmp_path, CALLER + "metrics: [{measure: turns, max_value: 5}]")
    result = scenario.run(bot.base_url, transport="eval", next_line=say("The weather?"), timeout=GUARD)
    assert verdicts(result) == {"success": "not_judged", "turns": "passed"}
    assert result.verdict == "not_judged"


def test_a_judge_that_fails(bot: EmbeddedBot, tmp_path: Path) -> None:
    """An error of the judge is reported as an error, for the goal and for each criterion."""
    scenario = scenario_of(tmp_path, CALLER + "metrics: [{name: kind, criterion: It is kind}]\n")
    result = scenario.run(
        bot.base_url, transport="eval", next_line=say("Hello"), judge=lambda *_: "maybe", timeout=GUARD
    )
    assert verdicts(result) == {"success": "error", "kind": "error"}
    assert all(each.reason.startswith("the judge has failed: TypeError: it must return") for each in result.failures)


def test_the_caller_knows_its_persona(bot: EmbeddedBot, tmp_path: Path) -> None:
    """A function of two parameters gets the simulation too; the number of its lines has a limit."""
    seen: list[str] = []

    def caller(turns: Any, simulation: Any) -> str:
        seen.append(simulation.persona)
        return f"Line {len(turns)}"

    scenario = scenario_of(tmp_path, f"{CALLER}max_turns: 2")
    result = scenario.run(bot.base_url, transport="eval", next_line=caller, judge=lambda *_: True, timeout=GUARD)
    assert (result.verdict, seen) == ("passed", ["A hurried caller"] * 2)


def test_runs(bot: EmbeddedBot, tmp_path: Path) -> None:
    """A scenario is run as often as it says, until it does not pass, in a session each."""
    scenario = scenario_of(tmp_path, f"{CALLER}runs: 3")
    answers = iter([True, False])
    result = scenario.run(
        bot.base_url, transport="eval", next_line=say("Hi"), judge=lambda *_: next(answers), timeout=GUARD
    )
    assert (result.verdict, result.attempt, result.record()["attempt"]) == ("failed", 2, 2)


@pytest.mark.parametrize("name", ["v1.2", "v1.2.jsonl"])
def test_recordings_of_runs(bot: EmbeddedBot, tmp_path: Path, name: str) -> None:
    """Each run has its own recording, beside the first."""
    scenario = scenario_of(tmp_path, f"{CALLER}runs: 2")
    (tmp_path / "kept").mkdir()
    scenario.run(
        bot.base_url,
        transport="eval",
        next_line=say("Hi"),
        judge=lambda *_: True,
        timeout=GUARD,
        record=tmp_path / "kept" / name,
    )
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["v1.2.jsonl", "v1.2.run2.jsonl"]


def test_spoken_lines(bot: EmbeddedBot, tmp_path: Path) -> None:
    """Lines of a caller who speaks are made by `tts`; without one the scenario is unsupported."""
    spoken = f"{CALLER}user: {{modality: audio, speech: {{service: kokoro}}}}"
    scenario = scenario_of(tmp_path, spoken)
    options: dict[str, Any] = {
        "transport": "eval",
        "next_line": say("Hello"),
        "judge": lambda *_: True,
        "timeout": GUARD,
    }
    assert scenario.run(bot.base_url, **options).verdict == "unsupported"
    result = scenario.run(bot.base_url, tts=lambda _: (tone(0.5) + silence(0.1), 16_000), **options)
    assert result.verdict == "passed", result
    assert result.conversation[0] == ("user", "Hello my bot.")


def test_callers_that_fail(bot: EmbeddedBot, tmp_path: Path) -> None:
    """An exception of the caller is an error of the run; without a caller the scenario is unsupported."""

    def fail(_: object) -> str:
        raise ValueError("no line")

    scenario = scenario_of(tmp_path, CALLER)
    (failure,) = scenario.run(bot.base_url, transport="eval", next_line=fail, timeout=GUARD).failures
    assert (failure.kind, failure.event_name) == ("error", "<next_line>")
    assert "ValueError: no line" in failure.reason
    assert scenario.run(bot.base_url, transport="eval").verdict == "unsupported"


def test_what_a_client_cannot(bot: EmbeddedBot, tmp_path: Path) -> None:
    """Three runs in one session, and a run without turns, are unsupported."""
    for runs, track_turns, told in ((3, True, "pass the URL"), (1, False, "track_turns=False")):
        scenario = scenario_of(tmp_path, f"{CALLER}runs: {runs}")
        with connect(bot.base_url, transport="eval", text_only=True, track_turns=track_turns) as client:
            result = scenario.run(client, next_line=say("Hi"), judge=lambda *_: True, timeout=GUARD)
        assert result.verdict == "unsupported"
        assert told in result.reason
