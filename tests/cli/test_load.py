"""`rtvi-sync load`: many sessions with a bot, from the command line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot, Fault
from tests.support.disks import full_disk
from tests.support.loopback import Peer, Server
from tests.support.wavs import tone, write_wav


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedBot(replies="No.", hangover=0.1) as bot:
        yield bot.ws_url


def test_questions(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each session asks all of them; the table has the outcomes and the latencies."""
    assert main(["load", url, "--sessions", "3", "--rate", "100", "--text", "One?", "--text", "Two?"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("3 sessions in ")
    assert lines[0].endswith(": 3 passed")
    assert any(line.startswith("answer complete ") and line.split()[2] == "6" for line in lines)
    assert err == ""


def test_a_spoken_question(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A WAV file is spoken; the report says how much audio of it was sent."""
    question = write_wav(tmp_path / "q.wav", [tone(0.3)])
    assert main(["load", url, "--sessions", "1", "--wav", str(question), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["audio"]["sent"] > 0.3


def test_the_sample(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence of the package is said; it is longer than 2 s."""
    assert main(["load", url, "--sessions", "1", "--sample", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["audio"]["sent"] > 2


def test_the_limit_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """--answer-timeout limits each answer; calls without any answer are told apart, with the delay of the process."""
    words = ["--transport", "telnyx", "--sessions", "2", "--sample", "--answer-timeout", "0.5"]
    with EmbeddedBot(ready=False, speech_threshold=math.inf) as bot:
        assert main(["load", bot.ws_url, *words]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "2 sessions got no answer at all: the bot, or its process, may be overloaded" in lines
    assert re.search(r"the thread of this process that sends was at most \d+ ms late$", lines[-1])


def test_files(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder gets JSON, CSV and the page, which may have a place of its own, too; `show` reads the JSON."""
    out, page = tmp_path / "new" / "out", tmp_path / "page.html"
    words = ["load", url, "--sessions", "2", "--text", "One?", "--out", str(out), "--html", str(page)]
    assert main(words) == 0
    assert {each.name for each in out.iterdir()} == {"load.json", "load.csv", "load.html"}
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert main(["show", str(out / "load.json")]) == 0
    assert "2 sessions in " in capsys.readouterr().out.splitlines()[-6]


def test_a_disk_that_is_full(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report is printed before it is written, so a file that cannot be written does not cost it."""
    with full_disk(100):
        assert main(["load", url, "--sessions", "1", "--text", "One?", "--html", str(tmp_path / "page.html")]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 sessions in ")
    assert err.startswith("rtvi-sync load: ")


def test_no_secret_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that quotes the request in its refusal does not bring its key into the report's files."""

    def quote(peer: Peer) -> None:
        head, _ = peer.read_request()
        peer.answer("403 Forbidden", json.dumps({"detail": f"not for {head}"}).encode())

    with Server(quote) as server:
        url = f"http://{server.authority}/start?key=canary81c2"
        words = ["--text", "One?", "--header", "X-Key: canary93d4", "--out", str(tmp_path)]
        assert main(["load", url, "--sessions", "1", *words]) == 1
    out, err = capsys.readouterr()
    for text in (out, err, *(each.read_text("utf-8") for each in tmp_path.iterdir())):
        assert "canary" not in text
    assert "not for POST /start?key=***" in out


def test_sessions_that_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1 if more failed than may; JSON has the errors."""
    words = ["load", "", "--sessions", "4", "--text", "One?", "--json"]
    for allowed, status in ((None, 1), ("1", 1), ("2", 0)):
        with EmbeddedBot(faults=[Fault("drop", 2), Fault("drop", 3)]) as bot:
            words[1] = bot.ws_url
            assert main([*words, *([] if allowed is None else ["--max-failed", allowed])]) == status
        data = json.loads(capsys.readouterr().out)
        assert (data["failed"], data["ok"]) == (2, status == 0)


@pytest.mark.parametrize(
    ("limits", "status", "told"),
    [
        ([("answer first text", "60"), ("connect", "60")], 0, ""),
        (
            [("answer first text", "60"), ("connect", "1e-9")],
            1,
            r"too slow: the p95 of 'connect' is \d+\.\d{3} s; the limit is 1e-09 s\n",
        ),
        (
            [("step the call", "60")],
            1,
            r"--max-p95: nothing is measured as 'step the call'; measured: 'connect', 'answer first text'.*\n",
        ),
    ],
)
def test_a_limit_of_times(
    url: str, limits: list[tuple[str, str]], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is 1 if the p95 of a row is above its limit, or nothing is measured there; stderr says why."""
    words = ["--sessions", "2", "--text", "One?", "--json"]
    for row, most in limits:
        words += ["--max-p95", row, most]
    assert main(["load", url, *words]) == status
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] is (status == 0)
    assert re.fullmatch(told, err)


def test_a_limit_of_times_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit is exceeded if all measurements failed, even if the sessions may fail."""
    words = ["--sessions", "1", "--text", "One?", "--max-failed", "1", "--max-p95", "connect", "60"]
    assert main(["load", "ws://127.0.0.1:9", *words]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 sessions in ")
    assert err == "too slow: the p95 of 'connect' is unknown, because all failed; the limit is 60 s\n"


REPEATED = """
def call(client):
    client.ask("One?", audio_response=False)
    client.calls = getattr(client, "calls", 0) + 1
    if client.calls == 3:
        raise LookupError("enough")
"""


def test_a_duration(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each session repeats its questions, or the function, until the time is over, and does so once at least."""
    (tmp_path / "repeats.py").write_text(REPEATED)
    questions, scenario = ["--text", "One?", "--text", "Two?"], ["--scenario", f"{tmp_path / 'repeats.py'}:call"]
    for words, seconds, answers, failed in (
        (questions, "1e-9", 4, 0),
        (scenario, "1e-9", 2, 0),
        (scenario, "1000", 6, 2),
    ):
        assert main(["load", url, "--sessions", "2", "--duration", seconds, *words, "--json"]) == bool(failed)
        data = json.loads(capsys.readouterr().out)
        (count,) = [each["count"] for each in data["percentiles"] if each["name"] == "complete"]
        assert (count, data["failed"]) == (answers, failed)
    assert main(["load", url, "--sessions", "2", "--duration", "0.5", *questions, "--json"]) == 0
    assert all(row["seconds"] > 0.5 for row in json.loads(capsys.readouterr().out)["rows"])


SCENARIO = """
import helper


def call(client):
    with client.measure(helper.NAME):
        client.ask("One?", audio_response=False)


number = 5
"""


def test_a_scenario(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function of a file is called with each client; the file may import modules beside it."""
    (tmp_path / "my_calls.py").write_text(SCENARIO)
    (tmp_path / "helper.py").write_text("NAME = 'the call'")
    assert main(["load", url, "--sessions", "2", "--scenario", f"{tmp_path / 'my_calls.py'}:call"]) == 0
    assert "step the call" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "There is nothing to ask"),
        (["--wav", "missing.wav"], "missing.wav"),
        (["--wav", "calls.txt"], "calls.txt"),
        (["--text", "One?", "--html", "no/page.html"], "no/page.html"),
        (["--scenario", "calls.py"], "name a file and a function"),
        (["--scenario", "missing.py:call"], "missing.py"),
        (["--scenario", "calls.txt:call"], "must end with .py"),
        (["--scenario", "calls.py:number"], "has no function 'number'"),
        (["--scenario", "calls.py:call", "--text", "One?"], "leave out"),
        (["--text", "One?", "--out", "calls.txt"], "calls.txt"),
        (["--text", "One?", "--max-p95", "first audio", "2"], "has no row 'first audio': give 'connect'"),
        (["--text", "One?", "--max-p95", "request ", "2"], "has no row 'request '"),
        (["--text", "One?", "--max-p95", "connect", "2s"], "--max-p95: '2s' is not a positive number of seconds"),
        (["--text", "One?", "--max-p95", "connect", "0"], "--max-p95: '0' is not a positive number of seconds"),
    ],
)
def test_mistakes(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is one line, before any session starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calls.py").write_text("number = 5")
    (tmp_path / "calls.txt").write_text("")
    assert main(["load", "ws://127.0.0.1:9", "--sessions", "1", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("rtvi-sync load: ")
    assert told in err


@pytest.mark.parametrize(
    "words",
    [
        ["--sessions", "0"],
        ["--sessions", "x"],
        ["--sessions", "1", "--max-failed", "-1"],
        ["--sessions", "1", "--duration", "-1"],
    ],
)
def test_numbers_that_are_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A number that is none is a mistake of usage."""
    with pytest.raises(SystemExit, match="2"):
        main(["load", "ws://127.0.0.1:9", "--text", "One?", *words])
    assert re.search("is not a (positive )?number", capsys.readouterr().err)


def test_ctrl_c(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C ends the sessions; the report so far is printed and written, and the status is 130."""
    (tmp_path / "stops.py").write_text(
        "import os, signal\n\ndef call(client):\n    os.kill(os.getpid(), signal.SIGINT)\n    client.wait()\n"
    )
    words = ["load", url, "--sessions", "1", "--scenario", f"{tmp_path / 'stops.py'}:call", "--out", str(tmp_path)]
    assert main(words) == 130
    assert "1 interrupted" in capsys.readouterr().out
    assert json.loads((tmp_path / "load.json").read_text())["rows"][0]["outcome"] == "interrupted"
