"""Scenario files as tests, in runs of pytest of their own, against the embedded bot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import run_pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
FILE = """\
name: calls
scenarios:
  - name: echo
    turns:
      - user: Hello
        expect: [{event: llm_response, text_contains: "You said: Hello"}]
  - name: wrong
    turns:
      - user: Hello
        expect: [{event: llm_response, text_excludes: Hello}]
  - name: judged
    turns:
      - user: Hello
        expect: [{event: llm_response, eval: It is polite}]
  - name: spoken
    user: {modality: audio, speech: {service: kokoro}}
    turns:
      - user: Hello
        expect: [{event: user_started_speaking}]
"""
CONFTEST = """\
import pytest

@pytest.fixture
def rtvi_judge():
    return lambda question, answer, criterion: ("Hello" in answer, "it greets")
"""

CALLER = """\
import pytest

answers = iter([True, False])

@pytest.fixture
def rtvi_judge():
    return lambda question, answer, criterion: next(answers)

@pytest.fixture
def rtvi_next_line():
    return lambda turns: None if turns else "Hello"
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs pytest with the plugin, in a folder with a scenario file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("RTVI_URL", raising=False)
    (pytester.path / "test_calls.yaml").write_text(FILE)

    def run_with(*options: str) -> pytest.RunResult:
        plugin = ("-p", "rtvi_sync.testing.pytest_plugin", "-W", "error", "--rtvi-transport", "eval")
        status, out, err = run_pytest(*plugin, *options, folder=pytester.path)
        return pytest.RunResult(status, out.splitlines(), err.splitlines(), 0.0)

    return run_with


def test_an_item_a_scenario(run: Run, pytester: pytest.Pytester) -> None:
    """Each scenario passes, fails with its report, or is skipped with the reason."""
    result = run("--rtvi-scenarios", "-rsf", "--rtvi-record-failed", "kept")
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*FAIL*calls/wrong*",
            "*text_present*",
            "*rtvi recording*",
            "SKIPPED*test_calls.yaml:11: not judged: its criterion needs a judge*",
            "SKIPPED*test_calls.yaml:15: unsupported: the user speaks*",
            "FAILED *::wrong - Failed: 'You said: Hello' contains*",
        ]
    )
    assert {path.suffix for path in (pytester.path / "kept").iterdir()} == {".jsonl", ".html"}
    assert all("wrong" in path.name for path in (pytester.path / "kept").iterdir())


def test_hooks_and_the_ini_file(run: Run, pytester: pytest.Pytester) -> None:
    """Fixtures of a conftest.py judge; the ini file may collect the files, of both names."""
    (pytester.path / "conftest.py").write_text(CONFTEST)
    (pytester.path / "pytest.ini").write_text("[pytest]\nrtvi_scenarios = true\n")
    (pytester.path / "test_calls.yaml").rename(pytester.path / "calls.rtvi.yaml")
    run("-k", "judged or echo").assert_outcomes(passed=2, deselected=2)


def test_without_the_option(run: Run, pytester: pytest.Pytester) -> None:
    """Files are not collected, and other YAML files never."""
    assert run().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result = run("test_calls.yaml::echo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["rtvi: scenario files need --rtvi-scenarios*"])
    (pytester.path / "test_calls.yaml").rename(pytester.path / "calls.yaml")
    assert run("--rtvi-scenarios").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_wrong_file(run: Run, pytester: pytest.Pytester) -> None:
    """A wrong file is an error of the collection, with the place."""
    (pytester.path / "test_bad.yaml").write_text("name: bad\nturns:\n  - usr: Hello\n")
    result = run("--rtvi-scenarios")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_bad.yaml:3:5: *did you mean 'user'*"])


def test_a_wrong_url(run: Run) -> None:
    """An error in the options is one line, without frames of this package."""
    result = run("--rtvi-scenarios", "--rtvi-url", "ftp://127.0.0.1", "-k", "echo")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["InvalidTransportParamsError: This is not the URL of a bot*"])
    result.stdout.no_fnmatch_line("*run.py*")
    result.stdout.no_fnmatch_line("*During handling of*")


def test_a_bot_that_is_down(run: Run, pytester: pytest.Pytester) -> None:
    """A bot that does not listen is waited for in vain only once."""
    with EmbeddedBot() as bot:
        url = bot.base_url
    options = ("--rtvi-url", url, "--rtvi-timeout", "3", "-k", "echo or wrong", "--junitxml", "r.xml")
    run("--rtvi-scenarios", *options).assert_outcomes(failed=2, deselected=2)
    cases = ElementTree.parse(pytester.path / "r.xml").iter("testcase")
    assert [float(case.get("time", "")) >= 3 for case in cases] == [True, False]


def test_recordings_of_each_run(run: Run, pytester: pytest.Pytester) -> None:
    """Recordings of all runs of a simulated scenario are kept if one has failed, and else none."""
    (pytester.path / "conftest.py").write_text(CALLER)
    caller = "name: caller\npersona: p\ngoal: g\nsuccess: s\nruns: 2\n"
    (pytester.path / "test_calls.yaml").write_text(caller)
    run("--rtvi-scenarios", "--rtvi-record-failed", "kept").assert_outcomes(failed=1)
    assert len([*(pytester.path / "kept").glob("*.jsonl")]) == 2
    (pytester.path / "conftest.py").write_text(CALLER.replace("False", "True"))
    run("--rtvi-scenarios", "--rtvi-record-failed", "none").assert_outcomes(passed=1)
    assert [*(pytester.path / "none").iterdir()] == []


def test_a_bot_of_the_own(run: Run, pytester: pytest.Pytester) -> None:
    """A fixture rtvi_bot in conftest.py, as the guide has it, scripts the bot that answers the scenarios."""
    page = (ROOT / "docs" / "guides" / "scenarios.md").read_text("utf-8")
    (conftest,) = (block for block in page.split("```") if "def rtvi_bot" in block)
    (pytester.path / "conftest.py").write_text(conftest.removeprefix("python\n"))
    (pytester.path / "test_calls.yaml").write_text(
        "name: w\nturns: [{user: The weather?, expect: [{event: llm_response, text_contains: It rains}]}]\n"
    )
    run("--rtvi-scenarios").assert_outcomes(passed=1)
