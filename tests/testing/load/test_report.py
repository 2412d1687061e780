"""The report of many sessions: percentiles, text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.testing import Measurement, Report, Row, RowAudio
from tests.support.disks import full_disk


def done(name: str, seconds: float, *, kind: Any = "request", error: BaseException | None = None) -> Measurement:
    return Measurement(kind=kind, name=name, began=0.0, seconds=seconds, error=error)


@pytest.fixture
def report() -> Report:
    """Return a report of a hundred sessions that took 10, 20, ... ms, and one that failed."""
    rows = [
        Row(number=n, outcome="passed", began=0.0, seconds=1.0, measurements=(done("x", n / 100), done("x", n / 100)))
        for n in range(101)
    ]
    refused = (done("connect", 0.5, kind="connect"), done("x", 9.0, error=ValueError("bad\nidea")))
    rows.append(
        Row(number=101, outcome="failed", error="ValueError: bad, idea", began=0.0, seconds=9.5, measurements=refused)
    )
    return Report(rows=tuple(rows), seconds=12.0)


def _failed(name: str, kind: str = "timeout") -> tuple[Measurement, ...]:
    error = RequestTimeoutError("too late")
    error.kind = kind
    return (done(name, 9.0, kind="answer", error=error),)


def overloaded() -> Report:
    """Return a report of voice calls to a bot that is overloaded, and of one whose own machine was."""

    def failed(number: int, kind: str, **audio: float) -> Row:
        measurements = _failed("first audio", kind)
        row = Row(number=number, outcome="failed", kind=kind, began=0.0, seconds=9.0, measurements=measurements)
        return attrs.evolve(row, audio=RowAudio(sent=5.0, received=1.0, max_delay=0.01 * (number + 1), **audio))

    rows = (
        failed(0, "not_heard", not_taken=1.5),
        failed(1, "not_heard", not_taken=0.25),
        failed(2, "timeout", concealed=0.5),
        Row(number=3, outcome="passed", began=0.0, seconds=1.0, audio=RowAudio(sent=5.0, not_played=0.5)),
    )
    return Report(rows=rows, seconds=9.0)


class TestSides:
    def test_as_text(self) -> None:
        """The report says on which side audio, questions and answers were lost."""
        assert str(overloaded()).splitlines()[-6:] == [
            "1 session got no answer at all: the bot, or its process, may be overloaded",
            "questions that the bot did not hear, though they were said: 2 in 2 sessions",
            "the user's audio that the bot or the network did not take (over WebRTC: that this process was too busy "
            "for): 1.8 s in 2 sessions, at most 1.5 s",
            "the bot's audio that the network lost or delayed: 0.5 s in 1 session, at most 0.5 s",
            "the bot's audio that this process did not play: 0.5 s in 1 session, at most 0.5 s",
            "4 sessions lost audio: the bot or this machine is overloaded; the thread of this process that sends was "
            "at most 30 ms late",
        ]

    def test_answers_that_are_late_and_that_are_missing(self) -> None:
        """A session without any part of an answer is listed apart from a late answer, with the delay of the process."""
        missing = overloaded().rows[2]
        late = attrs.evolve(missing, measurements=(done("first audio", 9.0, kind="answer"), *_failed("complete")))
        report = Report(rows=(*[attrs.evolve(missing, audio=RowAudio(sent=5.0, max_delay=0.2))] * 42, late), seconds=9)
        assert str(report).splitlines()[-4:-1] == [
            "42 sessions got no answer at all: the bot, or its process, may be overloaded",
            "answers that were not complete in time: 1 in 1 session",
            "the bot's audio that the network lost or delayed: 0.5 s in 1 session, at most 0.5 s",
        ]
        assert str(report).endswith("the thread of this process that sends was at most 200 ms late")
        silent = Report(rows=(attrs.evolve(missing, audio=RowAudio(sent=5.0)),), seconds=9.0)
        assert str(silent).endswith("the thread of this process that sends was at most 0 ms late")
        assert [json.loads(each.to_json())["unanswered"] for each in (report, silent, overloaded())] == [42, 1, 1]

    def test_a_late_process(self) -> None:
        """The report shows how late this process sent audio, and how late the sending thread ran."""
        report = overloaded()
        late = attrs.evolve(report.rows[0], audio=RowAudio(sent=5.0, late=2.0, max_delay=1.5))
        lines = str(attrs.evolve(report, rows=(late, *report.rows[1:]))).splitlines()
        assert (
            "the user's audio that this process or its source was late with: 2.0 s in 1 session, at most 2.0 s" in lines
        )
        assert lines[-1].endswith("at most 1500 ms late")

    def test_json_and_csv(self) -> None:
        """Each row has the kind of its error and the seconds, and JSON has the sums."""
        document = json.loads(overloaded().to_json())
        assert (document["not_heard"], document["late_answers"]) == (2, 1)
        assert document["audio"] == pytest.approx(
            {"sent": 20.0, "late": 0.0, "not_taken": 1.75, "received": 3.0, "concealed": 0.5, "not_played": 0.5}
        )
        first = document["rows"][0]
        assert (first["kind"], first["not_heard"], first["audio"]["not_taken"]) == ("not_heard", 1, 1.5)
        assert first["lost_seconds"] == {"sent": 1.5, "received": 0.0}
        assert document["rows"][3]["lost_seconds"] == {"sent": 0.0, "received": 0.5}
        assert document["max_delay"] == 0.03
        assert document["sides"] == str(overloaded()).splitlines()[-6:]
        rows = list(csv.DictReader(io.StringIO(overloaded().to_csv())))
        assert [(row["kind"], row["not_heard"], row["late_answers"]) for row in rows] == [
            ("not_heard", "1", "0"),
            ("not_heard", "1", "0"),
            ("timeout", "0", "1"),
            ("", "0", "0"),
        ]
        assert (rows[1]["audio not_taken"], rows[1]["lost sent"], rows[2]["lost received"]) == (
            "0.250",
            "0.250",
            "0.500",
        )


class TestReport:
    def test_a_line_by_its_name(self, report: Report) -> None:
        """A line of the table is found by its name; a wrong name isn't a rule that never fails."""
        assert report["request x"] == report.percentiles[0]
        assert report["connect"].kind == "connect"
        with pytest.raises(KeyError, match="nothing is measured as 'voice_to_voice'; measured: 'request x', 'connect'"):
            report["voice_to_voice"]
        with pytest.raises(KeyError, match="measured: nothing"):
            Report(rows=(), seconds=1.0)["connect"]
        with pytest.raises(TypeError, match="name must be"):
            report[0]  # type: ignore[index]

    def test_the_keys_of_json_are_documented(self, report: Report) -> None:
        """The docstring of `to_json()` names each key."""
        assert [key for key in json.loads(report.to_json()) if f"`{key}`" not in str(Report.to_json.__doc__)] == []

    def test_percentiles(self, report: Report) -> None:
        """Percentiles are over all sessions without the failed ones, which are counted."""
        request, connect = report.percentiles
        assert (request.name, request.count, request.failed) == ("x", 203, 1)
        assert [request.p50, request.p95, request.p99, request.longest] == pytest.approx([0.5, 0.95, 0.99, 1.0])
        assert (connect.p50, connect.p99, connect.longest) == (0.5, 0.5, 0.5)

    def test_as_text(self, report: Report) -> None:
        """The text is a table in ms, and each error with its number."""
        assert str(report).splitlines() == [
            "102 sessions in 12.0 s: 101 passed, 1 failed",
            "ms         count  failed    p50    p95    p99  longest",
            "request x    203       1  500.0  950.0  990.0   1000.0",
            "connect        1       0  500.0  500.0  500.0    500.0",
            "1 x ValueError: bad, idea (session 101)",
        ]

    def test_many_errors(self) -> None:
        """The most frequent errors are shown with their first sessions, and the rest as a number."""
        rows = [Row(number=n, outcome="failed", error=f"E: {min(n, 11)}", began=0, seconds=0) for n in range(20)]
        lines = str(Report(rows=tuple(rows), seconds=0.0)).splitlines()[2:]
        named = "(sessions 11, 12, 13, 14, 15, 16, 17, 18, …)"
        assert (lines[0], len(lines), lines[-1]) == (f"9 x E: 11 {named}", 11, "and 2 other errors")

    def test_errors_that_differ_in_seconds(self) -> None:
        """Errors that differ in seconds alone are one line, and those that differ in another number are not."""
        errors = ["no answer in 5 s: 1.5 s lost", "no answer in 5 s: 2.5 s lost", "status 503", "status 404"]
        rows = [Row(number=n, outcome="failed", error=error, began=0, seconds=0) for n, error in enumerate(errors)]
        assert str(Report(rows=tuple(rows), seconds=0.0)).splitlines()[2:] == [
            "2 x no answer in 5 s: … s lost (sessions 0, 1)",
            "1 x status 503 (session 2)",
            "1 x status 404 (session 3)",
        ]

    def test_on_a_terminal(self, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a terminal with rich the report is a rich table; otherwise it is plain."""

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setenv("COLUMNS", "100")
        terminal, pipe, poor = Terminal(), io.StringIO(), Terminal()
        report.show(terminal)
        report.show(pipe)
        monkeypatch.setitem(sys.modules, "rich.console", None)
        report.show(poor)
        assert "┃" in terminal.getvalue()
        for word in ("102 sessions", "request x", "990.0", "ValueError: bad, idea"):
            assert word in terminal.getvalue()
        assert pipe.getvalue() == poor.getvalue() == f"{report}\n"

    def test_to_what_can_only_write(self, report: Report) -> None:
        """A stream of the application's own needs no more."""

        class Log:
            def __init__(self) -> None:
                self.text = ""

            def write(self, text: str) -> None:
                self.text += text

        log: Any = Log()
        report.show(log)
        assert log.text == f"{report}\n"

    def test_json(self, report: Report, tmp_path: Path) -> None:
        """JSON has all rows and percentiles, in seconds, as text and in a file."""
        text = report.to_json(tmp_path / "report.json")
        assert (tmp_path / "report.json").read_text() == text
        document = json.loads(text)
        assert (document["sessions"], document["failed"], document["seconds"]) == (102, 1, 12.0)
        assert document["percentiles"][0]["p50"] == pytest.approx(0.5)
        assert document["rows"][-1]["measurements"][1] == {
            "kind": "request",
            "name": "x",
            "began": 0.0,
            "seconds": 9.0,
            "size": 0,
            "error": "ValueError: bad idea",
        }

    def test_html(self, report: Report, tmp_path: Path) -> None:
        """The page holds the report, and is written as text."""
        text = report.to_html(tmp_path / "report.html")
        assert (tmp_path / "report.html").read_text("utf-8") == text
        data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
        assert (data["kind"], data["name"]) == ("load", "report.html")
        assert data["report"] == json.loads(report.to_json())

    @pytest.mark.parametrize("form", ["json", "csv", "html"])
    def test_a_full_disk(self, form: str, report: Report, tmp_path: Path) -> None:
        """A report is written as a whole or not at all, and the error names the file."""
        path = tmp_path / "report"
        path.write_text("an older report")
        with full_disk(1000), pytest.raises(OSError, match=rf"'{path}'"):
            getattr(report, f"to_{form}")(path)
        assert not path.exists()

    def test_csv(self, report: Report, tmp_path: Path) -> None:
        """CSV has a line for each session and a column for each kind of measurement."""
        text = report.to_csv(tmp_path / "report.csv")
        with (tmp_path / "report.csv").open(newline="") as file:
            assert file.read() == text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(rows) == 102
        assert list(rows[0]) == [
            *("number", "outcome", "kind", "error", "began", "seconds", "not_heard", "late_answers"),
            *("lost sent", "lost received", "audio sent", "audio late", "audio not_taken", "audio received"),
            *("audio concealed", "audio not_played", "audio max_delay"),
            *("request x", "connect"),
        ]
        assert (rows[50]["outcome"], float(rows[50]["request x"]), rows[50]["connect"]) == ("passed", 0.5, "")
        assert (rows[101]["error"], rows[101]["request x"], float(rows[101]["connect"])) == (
            "ValueError: bad, idea",
            "",
            0.5,
        )
