"""`rtvi-sync show`: tables, JSON, pages, exports, and exit statuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import Measurement, Report, Row
from tests.support.recordings import Script, a_talk


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a recording, and return its path."""
    return str(a_talk(tmp_path_factory.mktemp("talk"), audio=False).write())


def a_run(folder: Path, name: str, wait: float) -> str:
    """Write a recording of 20 turns in which the bot takes so long, and return its path."""
    script = Script(folder, name, rate_hz=8000)
    for number in range(20):
        script.turn(f"Tell me about {'ABCD'[number % 4]}", "Here it is.", wait=wait + 0.1 * (number % 4), spoken=False)
    return str(script.write())


def test_turns_and_percentiles(talk: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a line a turn, with the heard words and the latencies in ms; percentiles follow."""
    assert main(["show", talk]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"{talk}, RTVI 2.2.0, pipecat-ai 1.14.0, ")
    assert "0.3 s of audio are missing" in lines[0]
    assert lines[4].split("  ")[0] == "3"
    assert "It is booked. You will get a message with all" in lines[4]
    assert "your plans change" not in out
    assert lines[8] == "turn 6 failed: the bot reported “LLM service: rate limit exceeded, retry after 20 s”"
    assert [line.split("  ")[0] for line in lines[-3:]] == ["voice to voice", "first token", "first audio"]
    assert err == ""


def test_json_alone(talk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json stdout is one document, also if the finding is bad, or the recording is cut or empty."""
    cut = str(a_talk(tmp_path, "cut", audio=False).write(is_cut=True))
    empty = str(Script(tmp_path, "empty", audio=False).write())
    assert main(["show", talk, cut, empty, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(each["is_cut"], len(each["turns"])) for each in data["recordings"]] == [(False, 6), (True, 6), (False, 0)]
    assert (data["ok"], data["baseline"]) == (True, None)


def test_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that was heard later than the limit is named, and fails the command."""
    path = str(a_talk(tmp_path).write())
    assert main(["show", path, "--max-voice-to-voice", "3"]) == 0
    capsys.readouterr()
    assert main(["show", path, "--max-voice-to-voice", "1.5"]) == 1
    assert "too late: turn 5 of" in capsys.readouterr().out.splitlines()[-1]
    assert main(["show", path, "--max-voice-to-voice", "1.5", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bot that has become 150 ms slower fails, one by 5 ms does not; a greater --min-change lets it pass."""
    before, same, slower = (a_run(tmp_path, name, wait) for name, wait in (("a", 0.5), ("b", 0.505), ("c", 0.65)))
    assert main(["show", same, "--baseline", before]) == 0
    capsys.readouterr()
    assert main(["show", slower, "--baseline", before, "--json"]) == 1
    change = json.loads(capsys.readouterr().out)["baseline"]["time_to_first_audio"]["p50"]
    assert change["verdict"] == "slower"
    assert change["change"] == pytest.approx(0.15, abs=0.03)
    assert main(["show", slower, "--baseline", before, "--min-change", "0.3"]) == 0
    assert "compared with the baseline" in capsys.readouterr().out


def test_what_is_not_judged(talk: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Too few turns are a warning and no failure."""
    assert main(["show", talk, "--baseline", talk]) == 0
    out, err = capsys.readouterr()
    assert "not judged" in out
    assert err == "not judged: p50 needs 5 turns with the same questions on each side, p95 needs 20\n"


def test_pages_and_exports(talk: str, tmp_path: Path) -> None:
    """--html writes a page of all recordings, --export one recording in each format."""
    words = ["show", talk, "--html", str(tmp_path / "talk.html")]
    for name in ("html", "vtt", "otlp", "chrome", "conversation"):
        words += ["--export", name, str(tmp_path / f"out.{name}")]
    assert main(words) == 0
    assert len(list(tmp_path.iterdir())) == 6
    assert (tmp_path / "out.vtt").read_text("utf-8").startswith("WEBVTT\n")
    assert (tmp_path / "talk.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_load_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON of a load test is shown as a table and as a page; a session that failed fails the command."""
    done = Measurement(kind="connect", name="connect", began=0.0, seconds=0.5)
    rows = [Row(number=0, outcome="passed", began=0.0, seconds=1.0, measurements=(done,))]
    report = tmp_path / "load.json"
    Report(rows=tuple(rows), seconds=1.0).to_json(report)
    assert main(["show", str(report), "--html", str(tmp_path / "load.html")]) == 0
    assert "connect      1  500" in capsys.readouterr().out
    assert '"kind":"load"' in (tmp_path / "load.html").read_text("utf-8")
    rows.append(Row(number=1, outcome="failed", error="E: x", began=0.0, seconds=1.0))
    Report(rows=tuple(rows), seconds=1.0).to_json(report)
    assert main(["show", str(report), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == 1
    for words in (["--max-voice-to-voice", "1"], ["--baseline", "x"], ["--export", "vtt", "x.vtt"]):
        assert main(["show", str(report), *words]) == 2
        told = capsys.readouterr().err
        assert "`rtvi-sync load --max-p95 'answer first audio' S` limits its times" in told
        assert "client.record() in the function of its --scenario" in told


def test_what_cannot_be_shown(talk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a file is unreadable or does not fit the others, stderr has one line and the status is 2."""
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "other.jsonl").write_text('{"kind": "head", "version": 99}\n')
    cases = (
        [str(tmp_path / "missing.jsonl")],
        [str(tmp_path / "other.json")],
        [str(tmp_path / "other.jsonl")],
        [talk, a_run(tmp_path, "second", 0.5), "--export", "vtt", str(tmp_path / "x.vtt")],
        [talk, "--export", "pdf", str(tmp_path / "x.pdf")],
        [talk, "--baseline", str(tmp_path / "missing")],
    )
    (tmp_path / "folder").mkdir()
    for words in (*cases, [str(tmp_path / "folder")]):
        assert main(["show", *words]) == 2, words
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), words
        assert err.startswith("rtvi-sync show: "), words


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.json"])
def test_what_is_missing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that does not exist is told as `rtvi-sync eval` tells it."""
    assert main(["show", str(tmp_path / name)]) == 2
    told = capsys.readouterr().err
    assert told == f"rtvi-sync show: {tmp_path / name} cannot be read: No such file or directory\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_page_is_private(talk: str, tmp_path: Path) -> None:
    """The page has all words of the recordings, so only this user may read it."""
    page = tmp_path / "page.html"
    assert main(["show", talk, "--html", str(page)]) == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_nothing_is_overwritten_that_is_shown(talk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page or an export in the place of a recording, or of the baseline, is refused before anything is written."""
    before = Path(talk).read_bytes()
    other = a_run(tmp_path, "other", 0.5)
    for words in ([talk, "--html", talk], [talk, "--export", "vtt", talk], [other, "--baseline", talk, "--html", talk]):
        assert main(["show", *words]) == 2
        assert "would be overwritten" in capsys.readouterr().err
    assert Path(talk).read_bytes() == before


@pytest.mark.parametrize("report", [{}, {"sessions": 1, "seconds": "x"}, {"percentiles": [1]}, {"percentiles": [{}]}])
def test_a_load_test_that_is_damaged(report: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says so."""
    path = tmp_path / "load.json"
    path.write_text(json.dumps({"rows": [], "percentiles": [], **report}))
    assert main(["show", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
