"""`rtvi-sync eval`, against the embedded bot. Real bots are called in tests/pipecat/test_scenarios.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
FILE = """\
name: calls
scenarios:
  - name: echo
    turns: [{user: Hello, expect: [{event: llm_response, text_contains: "You said: Hello"}]}]
  - name: wrong
    turns: [{user: Hello, expect: [{event: llm_response, text_excludes: Hello}]}]
  - name: judged
    judge: {eval: {service: openai, model: m, endpoint: "http://127.0.0.1:9/v1"}}
    turns: [{user: Hello, expect: [{event: llm_response, eval: It is polite}]}]
  - name: spoken
    user: {modality: audio, speech: {service: kokoro}}
    turns: [{user: Hello, expect: [{event: user_transcription}]}]
"""
CALLER = "name: caller\npersona: A guest\ngoal: a room\nsuccess: there is a room\n"
HOOKS = """\
def judge(question, answer, criterion):
    return "Hello" in answer, "it greets"

def tts(text):
    import math, struct
    return struct.pack("<8000h", *(round(8000 * math.sin(0.2 * n)) for n in range(8000))) + bytes(3200), 16000

def fail(question, answer, criterion):
    raise ValueError("no judge today")

def leave(*given):
    raise SystemExit(0)

def mumble(turns):
    return ["no", "text"]
"""


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Run a bot that repeats each text."""
    with EmbeddedBot(hangover=0.2) as bot:
        yield bot


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a scenario file and functions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RTVI_JUDGE_KEY", raising=False)
    (tmp_path / "calls.yaml").write_text(FILE)
    (tmp_path / "hooks.py").write_text(HOOKS)
    return tmp_path


def run(bot: EmbeddedBot, *words: str, more: Sequence[str] = ()) -> int:
    return main(["eval", "calls.yaml", *more, "--url", bot.base_url, "--transport", "eval", "--timeout", "20", *words])


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--only", "echo"], 0, "1 scenario: 1 passed"),
        (["--only", "echo", "--only", "calls/wrong"], 1, "2 scenarios: 1 passed, 1 failed"),
        (["--only", "echo", "--only", "judged"], 3, "2 scenarios: 1 passed, 1 not judged"),
        (["--only", "spoken"], 3, "1 scenario: 1 unsupported"),
        (["--only", "judged", "--judge", "hooks.py:judge"], 0, "1 scenario: 1 passed"),
        (["--only", "judged", "--judge", "hooks.py:fail"], 1, "no judge today"),
        (["--only", "spoken", "--tts", "hooks.py:tts"], 0, "1 scenario: 1 passed"),
        (["--concurrency", "4"], 1, "4 scenarios: 1 passed, 1 failed, 1 not judged, 1 unsupported"),
        (["--only", "echo", "-v"], 0, "PASS         0 llm_response"),
    ],
)
def test_verdicts(
    bot: EmbeddedBot, words: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status tells failures from scenarios that were not judged; the last line counts."""
    assert run(bot, *words) == status
    assert told in capsys.readouterr().out


def test_files(bot: EmbeddedBot, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results are written as lines of JSON and as XML, and sessions are recorded."""
    assert run(bot, "--json", "r.jsonl", "--junit", "r.xml", "--record", "kept", "--concurrency", "3") == 1
    assert "that did not pass: kept\n" in capsys.readouterr().out
    records = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert [(each["name"], each["verdict"]) for each in records] == [
        ("calls/echo", "passed"),
        ("calls/wrong", "failed"),
        ("calls/judged", "not_judged"),
        ("calls/spoken", "unsupported"),
    ]
    assert 'failures="1" errors="0" skipped="2"' in (folder / "r.xml").read_text()
    echo, wrong = ({"messages": f"kept/calls-{name}.jsonl"} for name in ("echo", "wrong"))
    assert [each["artifacts"] for each in records] == [
        echo,
        {"page": "kept/calls-wrong.html", **wrong},
        {"page": "kept/calls-judged.html", "messages": "kept/calls-judged.jsonl"},
        {},
    ]
    for case, record in zip(ElementTree.parse(folder / "r.xml").iter("testcase"), records, strict=True):
        named = [(each.get("name"), each.get("value")) for each in case.iter("property")]
        assert named == [("rtvi_recording", path) for path in record["artifacts"].values()]
    kept = {path.name for path in (folder / "kept").iterdir()}
    assert {"calls-echo.jsonl", "calls-wrong.jsonl", "calls-wrong.html", "calls-judged.html"} <= kept
    assert "calls-echo.html" not in kept


def test_names_of_recordings(bot: EmbeddedBot, folder: Path) -> None:
    """Each scenario has a recording of its own in the folder, whatever its name."""
    names = ["a/b", "a-b", ".", "..", "A/B", "x.wav", "x", "../x", "ä", "v1.2", "v1.3"]
    for number, name in enumerate(names):
        (folder / f"n{number}.yaml").write_text(f"name: '{name}'\nturns: [{{expect: [{{event: response}}]}}]\n")
    before = {*folder.iterdir()}
    words = ["--timeout", "0.01", "--record", "kept", "--concurrency", "4", "--only", "calls/echo"]
    only = [word for name in names for word in ("--only", name)]
    assert run(bot, *words, *only, more=[f"n{number}.yaml" for number in range(len(names))]) == 1
    kept = sorted(path.name for path in (folder / "kept").glob("*.jsonl"))
    assert len(kept) == len(names) + 1, kept
    assert {"v1.2.jsonl", "v1.3.jsonl", "x.jsonl", "calls-echo.jsonl"} <= {*kept}
    assert {*folder.iterdir()} == {*before, folder / "kept"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "other"], "--only other: there is none of this name among calls/echo"),
        (["--judge", "http://127.0.0.1:9/v1"], "needs --judge-model"),
        (["--judge-model", "m"], "--judge-model is for the server"),
        (["--judge", "hooks.py:other"], "has no function 'other'"),
        (
            ["--judge", "hooks.py:tts"],
            "judge must be a function that can be called as judge(question, answer, criterion)",
        ),
        (["--json", "no/r.jsonl"], "no/r.jsonl"),
        (["--json", "r", "--junit", "r"], "are the same file"),
    ],
)
def test_mistakes(bot: EmbeddedBot, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is told before anything is connected, with the status 2."""
    assert run(bot, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rtvi-sync eval: ")
    assert told in err


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (["--judge", "hooks.py:leave"], "the judge has failed: SystemExit: 0"),
        (["--tts", "hooks.py:leave"], "tts has failed: SystemExit: 0"),
        (["--next-line", "hooks.py:leave"], "next_line has failed: SystemExit: 0"),
        (["--next-line", "hooks.py:mumble"], "what next_line returns must be a text"),
    ],
)
def test_functions_that_fail(
    bot: EmbeddedBot, folder: Path, hook: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any error of a function fails its scenario; the others run, and the status is not 0."""
    (folder / "caller.yaml").write_text(CALLER)
    assert run(bot, "--json", "r.jsonl", *hook, more=["caller.yaml"]) == 1
    assert told in capsys.readouterr().out
    assert len((folder / "r.jsonl").read_text().splitlines()) == 5


def test_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/guides/scenarios.md gives the report that the page shows."""
    page = (ROOT / "docs" / "guides" / "scenarios.md").read_text("utf-8")
    (folder / "weather.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    shown = page.partition("--transport eval\n")[2].partition("```")[0]
    reply = Reply("It is two degrees, and rain.", call=("get_weather", {"city": "Oslo"}), result={})
    with EmbeddedBot(replies=[reply]) as bot:
        assert main(["eval", "weather.yaml", "--url", bot.base_url, "--transport", "eval"]) == 3
    first, *told = capsys.readouterr().out.splitlines()
    assert first.startswith("NOT JUDGED   weather/oslo  (")
    assert " ".join(told).split() == " ".join(shown.splitlines()[1:]).split()  # the page wraps long lines


def test_all_wrong_files_are_told(bot: EmbeddedBot, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The faults of all files are told together, and scenarios of the same name."""
    (folder / "a.yaml").write_text("name: a\nturns: [{usr: Hi}]\n")
    (folder / "b.yaml").write_text("name: b\nturns: [{user: Hi, expect: [{event: llm_respnse}]}]\n")
    (folder / "c.yaml").write_text(
        "name: c\nuser: {modality: audio}\nturns: [{user: Hi, audio: none.wav}, {image: none.png}]\n"
    )
    assert run(bot, more=["a.yaml", "missing.yaml", "b.yaml", "c.yaml", "calls.yaml"]) == 2
    err = capsys.readouterr().err
    for told in (
        "missing.yaml: cannot be read",
        "a.yaml:2:10: ",
        "did you mean 'user'?",
        "b.yaml:2:",
        "did you mean 'llm_response'?",
        "'calls/echo'",
        "none.wav",
        "there is no image",
    ):
        assert told in err


def test_the_judge_of_the_file(bot: EmbeddedBot, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """`--judge file` asks the model that each file names; one of Pipecat's services cannot be."""
    assert run(bot, "--only", "judged", "--judge", "file") == 1  # nothing listens there
    assert "the judge has failed" in capsys.readouterr().out
    made = FILE.replace('{service: openai, model: m, endpoint: "http://127.0.0.1:9/v1"}', "{factory: my.judge}")
    (folder / "calls.yaml").write_text(made)
    assert run(bot, "--judge", "file") == 2
    assert "makes a service of Pipecat" in capsys.readouterr().err


def test_a_bot_that_is_down(folder: Path) -> None:
    """A bot that does not listen is waited for in vain only once, and the kind of each failure says so."""
    with EmbeddedBot() as bot:
        url = bot.base_url
    words = ["--connect-timeout", "3", "--json", "r.jsonl", "--junit", "r.xml"]
    assert main(["eval", "calls.yaml", "--url", url, "--transport", "eval", "--tts", "hooks.py:tts", *words]) == 1
    first, *others = [json.loads(line)["duration_ms"] for line in (folder / "r.jsonl").read_text().splitlines()]
    assert first >= 3000
    assert first > max(others)
    suite = ElementTree.parse(folder / "r.xml").getroot()[0]
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["4", "4", "0"]
    assert [(each.get("type"), "refused" in (each.get("message") or "")) for each in suite.iter("failure")] == [
        ("connect_failed", True)
    ] * 4


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing on Windows")
def test_an_interrupt(folder: Path) -> None:
    """Ctrl-C ends the sessions; finished scenarios are written, and the others are listed."""
    waiting = "name: w\nturns: [{user: Wait, expect: [{event: image, within_ms: 60000}]}]\n"
    (folder / "waits.yaml").write_text(waiting)
    with EmbeddedBot() as bot:
        files = ["--json", "r.jsonl", "--junit", "r.xml"]
        words = ["eval", "calls.yaml", "waits.yaml", "--only", "echo", "--only", "w", "--url", bot.base_url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "rtvi_sync", *words, "--transport", "eval", *files]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            bot.assert_heard("Hello", "Wait", timeout=GUARD)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=GUARD)
            assert process.returncode == 130
        bot.wait_for_session(GUARD).wait_ended(GUARD)
        bot.wait_for_session(GUARD).wait_ended(GUARD)
    assert told == "rtvi-sync eval: interrupted after 1 of 2 scenarios\n"
    assert [json.loads(line)["name"] for line in (folder / "r.jsonl").read_text().splitlines()] == ["calls/echo"]
    assert 'tests="2" failures="0" errors="0" skipped="1"' in (folder / "r.xml").read_text()
