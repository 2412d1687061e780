"""The report of many sessions: percentiles, text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing import Measurement, Report, Row
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


class TestReport:
    def test_percentiles(self, report: Report) -> None:
        """Percentiles are over all sessions without the failures, which are counted."""
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
            "1 x ValueError: bad, idea",
        ]

    def test_many_errors(self) -> None:
        """The most frequent errors are shown, and the number of the others."""
        rows = [Row(number=n, outcome="failed", error=f"E: {min(n, 11)}", began=0, seconds=0) for n in range(20)]
        lines = str(Report(rows=tuple(rows), seconds=0.0)).splitlines()[2:]
        assert (lines[0], len(lines), lines[-1]) == ("9 x E: 11", 11, "and 2 other errors")

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

    @pytest.mark.parametrize("form", ["json", "csv"])
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
        assert list(rows[0]) == ["number", "outcome", "error", "began", "seconds", "request x", "connect"]
        assert (rows[50]["outcome"], float(rows[50]["request x"]), rows[50]["connect"]) == ("passed", 0.5, "")
        assert (rows[101]["error"], rows[101]["request x"], float(rows[101]["connect"])) == (
            "ValueError: bad, idea",
            "",
            0.5,
        )
