"""Scenario files against a real bot: the verdicts are the same as from Pipecat's own harness.

`scenarios/record.py` has run the files beside it by `pipecat.evals`, and has written its verdicts to `verdicts.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias
from xml.etree import ElementTree

import pytest

from rtvi_sync.testing import scenarios
from tests.support.slowness import GUARD

from .conftest import BotServer
from .scenarios.stand_ins import HEARD, TIMEOUT_MS, speech, verdict_of

Door: TypeAlias = Literal["eval", "websocket", "webrtc", "twilio"]

FILES = Path(__file__).parent / "scenarios"
VERDICTS: dict[str, Any] = json.loads((FILES / "verdicts.json").read_text())
# Pipecat's harness drops these events, because an interruption follows them at once.
DIFFERENT = "speech/user_is_heard_to_start"
SCENARIOS = {scenario.full_name: scenario for scenario in scenarios.load(FILES)}
# All but these are said and answered in text.
SPOKEN = {name for name in SCENARIOS if name.startswith("speech/")}


def judge(_: str, answer: str, criterion: str) -> bool | str:
    return verdict_of(answer, criterion)


def run(scenario: scenarios.Scenario, server: BotServer, transport: Door) -> scenarios.ScenarioResult:
    """Run a scenario with the stand-ins that Pipecat's harness has had."""
    return scenario.run(
        server.ws_url if transport == "eval" else server.base_url,
        transport=transport,
        judge=judge,
        tts=speech,
        transcribe=lambda _pcm, _rate: HEARD,
        timeout=TIMEOUT_MS / 1000,
        connect_timeout=GUARD,
    )


def found(result: scenarios.ScenarioResult) -> Mapping[str, Any]:
    """Return a result as `verdicts.json` has it."""
    return {
        "verdict": result.verdict,
        "failures": [[each.turn_index, each.expectation_index, each.event_name, each.kind] for each in result.failures],
        "turns": [
            [turn.verdict, [[each.event_name, each.verdict == "passed"] for each in turn.expectations]]
            for turn in result.turns
        ],
    }


def check(names: set[str], server: BotServer, transport: Door, at_once: int) -> dict[str, scenarios.ScenarioResult]:
    """Run scenarios, and compare those that the door supports; one that differs is run again alone.

    Their limits are times, which a busy machine may miss.
    """
    with ThreadPoolExecutor(at_once) as pool:
        results = dict(zip(names, pool.map(lambda name: run(SCENARIOS[name], server, transport), names), strict=True))
    for name, result in results.items():
        if not is_equal(name, result):
            results[name] = again = run(SCENARIOS[name], server, transport)
            assert is_equal(name, again), f"{again}\nnot {VERDICTS[name]}"
    return results


def is_equal(name: str, result: scenarios.ScenarioResult) -> bool:
    """Return whether a result is Pipecat's, as far as the door tells."""
    if result.verdict == "unsupported":  # the reports by the door are as expected
        return not result.failures
    return name == DIFFERENT or found(result) == VERDICTS[name]


def test_all_by_the_eval_route(pipecat_rehearsed: BotServer) -> None:
    """Verdict, kinds, and the statuses of all turns and expectations of all files equal the results of
    `pipecat.evals`."""
    assert SCENARIOS.keys() == VERDICTS.keys()
    results = check({*SCENARIOS}, pipecat_rehearsed, "eval", 8)
    assert not [str(result) for result in results.values() if result.verdict in ("unsupported", "not_judged")]
    assert results[DIFFERENT].verdict == "passed"
    assert VERDICTS[DIFFERENT]["verdict"] == "failed"


def test_texts_by_websocket(pipecat_rehearsed: BotServer) -> None:
    """Texts have the same verdicts by the door of production; expectations that it cannot report are unsupported."""
    names = {name for name in SCENARIOS if name.startswith(("replies/", "judged/")) or "marker" in name}
    results = check(names, pipecat_rehearsed, "websocket", 8)
    unsupported = {name for name, result in results.items() if result.verdict == "unsupported"} - {
        "replies/nothing_comes"  # it expects an image
    }
    assert unsupported == {name for name in names if "marker" in name} | {
        f"judged/{name}" for name in ("call_judged", "call_refused")
    }


@pytest.mark.matrix
def test_all_by_websocket(pipecat_rehearsed: BotServer) -> None:
    """All files, spoken ones included."""
    results = check({*SCENARIOS}, pipecat_rehearsed, "websocket", 4)
    assert "context" in results["conversations/context"].reason
    assert "camera" in results["conversations/images"].reason
    assert results["calls/any"].verdict == "passed"
    assert results["calls/named"].verdict == "unsupported"


@pytest.mark.matrix
def test_all_by_webrtc(pipecat_rehearsed: BotServer) -> None:
    """All files, spoken ones included."""
    check({*SCENARIOS}, pipecat_rehearsed, "webrtc", 2)


@pytest.mark.matrix
def test_speech_by_telephone(pipecat_rehearsed: BotServer) -> None:
    """Who speaks is heard in a call; all else is unsupported there, and nothing that is needs a limit to pass."""
    results = check(SPOKEN, pipecat_rehearsed, "twilio", 2)
    spoken = results["speech/spoken"]
    assert spoken.verdict == "unsupported"
    assert {each.verdict for each in spoken.turns[0].expectations if "bot" in each.event_name} == {"passed"}


def test_the_command(pipecat_rehearsed: BotServer, tmp_path: Path) -> None:
    """`rtvi-sync eval` runs files, and writes results as Pipecat does, JUnit's XML, recordings and a page."""
    words = ["--url", pipecat_rehearsed.ws_url, "--transport", "eval", "--concurrency", "4", "--timeout", "10"]
    files = ["--json", "r.jsonl", "--junit", "r.xml", "--record", "kept"]
    only = [word for name in ("adds_up", "excluded_fails", "yes_at_once") for word in ("--only", name)]
    done = subprocess.run(
        [sys.executable, "-m", "rtvi_sync", "eval", str(FILES), *words, *files, *only],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=2 * GUARD,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "3 scenarios: 1 passed, 1 failed, 1 not judged"
    records = {each["name"]: each for each in map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())}
    assert {name: each["verdict"] for name, each in records.items()} == {
        "replies/adds_up": "passed",
        "replies/excluded_fails": "failed",
        "judged/yes_at_once": "not_judged",
    }
    assert [name for name, each in records.items() if each["passed"]] == ["replies/adds_up"]
    (failure,) = records["replies/excluded_fails"]["failures"]
    assert (failure["kind"], failure["turn_index"], failure["expectation_index"]) == ("text_present", 0, 0)
    suite = ElementTree.parse(tmp_path / "r.xml").find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert "replies-excluded_fails.html" in kept
    assert {"replies-adds_up.jsonl", "replies-excluded_fails.jsonl"} <= kept
    assert "replies-adds_up.html" not in kept


@pytest.mark.parametrize("door", ["eval", "websocket"])
def test_a_model_that_fails(pipecat_rehearsed: BotServer, tmp_path: Path, door: Door) -> None:
    """Pipecat passes the empty response of a service that fails; here it is no answer."""
    file = tmp_path / "failing.yaml"
    file.write_text("name: f\nturns: [{user: fail no key, expect: [{event: llm_response, within_ms: 3000}]}]\n")
    (scenario,) = scenarios.load(file)
    (failure,) = run(scenario, pipecat_rehearsed, door).failures
    assert failure.kind == "timeout"
    assert failure.reason.endswith("the one that came has no text. The bot reported: no key")
