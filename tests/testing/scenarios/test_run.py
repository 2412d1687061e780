"""Runs of scenarios: connecting, doors, recordings, and their demands on the bot."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import BotNotReadyError, InvalidTransportParamsError, Recording, RTVIClient, connect
from rtvi_sync.testing import BotSession, EmbeddedBot, Fault, Reply, scenarios
from tests.support.slowness import GUARD
from tests.testing.scenarios.files import scenario_of, statuses

HELLO = 'turns: [{user: Hello, expect: [{event: llm_response, text_contains: "You said: Hello"}]}]'
CALL = "turns: [{user: Rain?, expect: [{event: function_call, name: look, args: {city: Oslo}}, {event: llm_response}]}]"
LOOKING = Reply("Rain", call=("look", {"city": "Oslo"}), result={}, report_level="none")


@pytest.mark.parametrize("door", ["eval", "websocket", "auto"])
def test_doors(tmp_path: Path, door: Any) -> None:
    """A text is sent and answered by each door, which the result names."""
    with EmbeddedBot() as bot:
        result = scenario_of(tmp_path, HELLO).run(bot.base_url, transport=door, timeout=GUARD)
    assert (result.verdict, result.door) == ("passed", "websocket" if door == "auto" else door)
    assert result.conversation[0] == ("user", "Hello")


def test_calls_by_each_door(tmp_path: Path) -> None:
    """The eval route asks for names and arguments; where they are withheld, that is unsupported, and no failure."""
    scenario = scenario_of(tmp_path, CALL)
    with EmbeddedBot(replies=[LOOKING]) as bot:
        assert scenario.run(bot.base_url, transport="eval", timeout=GUARD).verdict == "passed"
        result = scenario.run(bot.base_url, transport="websocket", timeout=GUARD)
        assert statuses(result) == [("unsupported", {0: "unsupported", 1: "passed"})]
        with connect(bot.base_url, transport="eval", text_only=True) as client:
            assert scenario.run(client, timeout=GUARD).verdict == "passed"


def test_what_the_bot_is_asked_for(tmp_path: Path) -> None:
    """The context is set before the first turn, and no more is asked for than is needed."""
    asked: list[tuple[str, Any]] = []

    def note(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "client-message":
            asked.append((message["data"]["t"], message["data"].get("d")))
        return False

    context = "context: [{role: system, content: Be brief.}]\n"
    with EmbeddedBot(handler=note) as bot:
        result = scenario_of(tmp_path, context + HELLO).run(bot.base_url, transport="eval", timeout=GUARD)
        assert result.verdict == "passed"
        result = scenario_of(tmp_path, context + HELLO).run(bot.base_url, transport="websocket", timeout=GUARD)
    assert (result.verdict, statuses(result)) == ("unsupported", [("not_run", {})])
    assert "--transport eval" in result.reason


@pytest.mark.parametrize(
    ("bot", "kind"),
    [
        (EmbeddedBot(ready=False), "handshake_timeout"),
        (EmbeddedBot(faults=[Fault("no_ready")]), "handshake_timeout"),
        (EmbeddedBot(handler=lambda session, _: session.close() or True), "closed_before_ready"),  # type: ignore[func-returns-value]
    ],
)
def test_bots_that_are_not_ready(tmp_path: Path, bot: EmbeddedBot, kind: str) -> None:
    """A bot that is not ready, or hangs up before, is a failure of the run, and no turn is run."""
    with bot:
        result = scenario_of(tmp_path, HELLO).run(bot.ws_url, transport="eval", connect_timeout=0.5)
    assert [(each.kind, each.turn_index, each.expectation_index) for each in result.failures] == [(kind, -1, -1)]
    assert statuses(result) == [("not_run", {})]
    assert result.verdict == "failed"


def test_no_bot(tmp_path: Path) -> None:
    """Where nothing listens, the run has failed, and says so."""
    with EmbeddedBot() as bot:
        url = bot.ws_url
    (failure,) = scenario_of(tmp_path, HELLO).run(url, transport="eval", connect_timeout=0.5).failures
    assert (failure.kind, failure.event_name) == ("connect_failed", "<connect>")


@pytest.mark.parametrize("door", ["eval", "auto"])
def test_a_bot_that_starts(tmp_path: Path, door: Any) -> None:
    """A bot that does not listen yet is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    bot = EmbeddedBot(port=port)
    timer = threading.Timer(0.5, bot.start)
    timer.start()
    try:
        result = scenario_of(tmp_path, HELLO).run(f"http://127.0.0.1:{port}", transport=door, timeout=GUARD)
    finally:
        timer.join()
        bot.stop()
    assert result.verdict == "passed", result


def test_wrong_arguments(tmp_path: Path) -> None:
    """Unusable arguments raise in the call that takes them."""
    scenario = scenario_of(tmp_path, HELLO)
    with pytest.raises(InvalidTransportParamsError):
        scenario.run("ftp://bot.example")
    with pytest.raises(BotNotReadyError):
        scenario.run(RTVIClient.for_url("ws://127.0.0.1:9", text_only=True))


def test_recordings(tmp_path: Path) -> None:
    """A run is recorded, and one that does not pass has its page, with the failure."""
    failing = "turns: [{user: Hello, expect: [{event: llm_response, text_excludes: Hello}]}]"
    with EmbeddedBot() as bot:
        for name, text in (("good", HELLO), ("bad", failing)):
            scenario = scenario_of(tmp_path, text)
            scenario.run(bot.base_url, transport="eval", timeout=GUARD, record=tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"file.yaml", "good.jsonl", "bad.jsonl", "bad.html"}
    assert "text_present" in (tmp_path / "bad.html").read_text()
    assert Recording.load(tmp_path / "good.jsonl").turns()[0].bot_text == "You said: Hello"


def test_several_runs_leave_nothing(tmp_path: Path) -> None:
    """Each run ends its session."""
    with EmbeddedBot() as bot:
        for _ in range(3):
            scenario_of(tmp_path, HELLO).run(bot.base_url, transport="eval", timeout=GUARD)
        sessions = [bot.wait_for_session(GUARD) for _ in range(3)]
        for session in sessions:
            session.wait_ended(GUARD)


def test_imports() -> None:
    """The tools for tests do not import PyYAML or numpy by themselves."""
    code = "import sys, rtvi_sync.testing as t; t.scenarios; print({'yaml', 'numpy', 'mcp'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=True)
    assert done.stdout == "set()\n"


def test_the_same_verdicts_again(tmp_path: Path) -> None:
    """Twenty runs differ in nothing."""
    scenario: scenarios.Scenario = scenario_of(tmp_path, CALL)
    with EmbeddedBot(replies=[LOOKING]) as bot:
        found = {str(statuses(scenario.run(bot.base_url, transport="eval", timeout=GUARD))) for _ in range(20)}
    assert len(found) == 1
