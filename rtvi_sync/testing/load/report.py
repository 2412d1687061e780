"""The report of many sessions: a row for each, percentiles over all, a table, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

import attrs

from rtvi_sync.media.audio_files import write_file
from rtvi_sync.protocol.text import raised
from rtvi_sync.protocol.validation import PATH, Rule, has_method
from rtvi_sync.recording.tables import columns, rich_table
from rtvi_sync.recording.text import LONGEST_LINE
from rtvi_sync.testing.load.measured import Kind, Measurement

if TYPE_CHECKING:
    from rich.console import Group

Outcome: TypeAlias = Literal["passed", "not connected", "failed", "interrupted"]

_HEADERS: Final = ("ms", "count", "failed", "p50", "p95", "p99", "longest")
# The number of different errors that a table shows; the rows have all of them.
_MAX_SHOWN_ERRORS: Final = 10


_STREAM: Final = Rule("a text stream", lambda stream: has_method(stream, "write")).or_none


@attrs.frozen(kw_only=True)
class Row:
    """One session.

    Attributes:
        number: in the order in which the sessions began, from 0.
        outcome: "passed"; "not connected": there was no client or no session; "failed": the scenario raised, or did not
            end in time; "interrupted" by Ctrl-C.
        error: its error, with the type; None: it passed.
        traceback: of the error.
        began: seconds from the beginning of the run.
        seconds: its duration, from before its client was made to after the client was closed.
        measurements: in the order in which they were completed.
    """

    number: int
    outcome: Outcome
    error: str | None = None
    traceback: str | None = attrs.field(default=None, repr=False)
    began: float
    seconds: float
    measurements: tuple[Measurement, ...] = attrs.field(default=(), repr=False)

    @property
    def durations(self) -> dict[str, float]:
        """Return seconds by kind and name ("request get-order"); the median of several measurements."""
        return {name: median(seconds) for name, seconds in _by_name(self.measurements).items() if seconds}


@attrs.frozen(kw_only=True)
class Percentiles:
    """The durations of one kind of measurement over all sessions, in seconds. Without a success they are None.

    Attributes:
        kind, name: as in `Measurement`.
        count: the number of measurements, including failures.
        failed: the number of failures, which the percentiles leave out.
        p50, p95, p99: the percentiles.
        longest: the maximum.
    """

    kind: Kind
    name: str
    count: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None


@attrs.frozen(kw_only=True)
class Report:
    """The result of `run_many()`. `print(report)` shows a table; rich's `print()` shows it as a rich table.

    Attributes:
        rows: the sessions, in the order in which they began.
        seconds: the duration of the run.
    """

    rows: tuple[Row, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Row, ...]:
        """Return the sessions that did not pass."""
        return tuple(row for row in self.rows if row.outcome != "passed")

    @property
    def percentiles(self) -> tuple[Percentiles, ...]:
        """Return the percentiles of each kind of measurement, in the order of their first occurrence."""
        done = [measurement for row in self.rows for measurement in row.measurements]
        count = Counter((measurement.kind, measurement.name) for measurement in done)
        failed = Counter((measurement.kind, measurement.name) for measurement in done if measurement.error is not None)
        seconds: defaultdict[tuple[Kind, str], list[float]] = defaultdict(list)
        for measurement in done:
            if measurement.error is None:
                seconds[measurement.kind, measurement.name].append(measurement.seconds)
        return tuple(
            Percentiles(
                kind=kind,
                name=name,
                count=number,
                failed=failed[kind, name],
                **_percentiles(seconds[kind, name]),
            )
            for (kind, name), number in count.items()
        )

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as a JSON document, and write it to a file if `path` is given. Times are in seconds."""
        PATH.or_none.check(path=path)
        document = {
            "seconds": self.seconds,
            "sessions": len(self.rows),
            "failed": len(self.failed),
            "percentiles": [attrs.asdict(percentiles) for percentiles in self.percentiles],
            "rows": [
                {
                    **attrs.asdict(row, recurse=False),
                    "measurements": [
                        {**attrs.asdict(done, recurse=False), "error": error_text(done.error)}
                        for done in row.measurements
                    ],
                }
                for row in self.rows
            ],
        }
        return _written(json.dumps(document, indent=1) + "\n", path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as CSV with a line for each session, and write it to a file if `path` is given.

        The columns are number, outcome, error, began, seconds, and one for each kind of measurement, with the seconds
        in `Row.durations`.
        """
        PATH.or_none.check(path=path)
        names = [_name(percentiles) for percentiles in self.percentiles]
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["number", "outcome", "error", "began", "seconds", *names])
        for row in self.rows:
            durations = row.durations
            begin = [row.number, row.outcome, row.error or "", f"{row.began:.6f}", f"{row.seconds:.6f}"]
            writer.writerow(begin + [f"{durations[name]:.6f}" if name in durations else "" for name in names])
        return _written(text.getvalue(), path)

    def show(self, stream: TextIO | None = None) -> None:
        """Write the report as a table: with rich on a terminal if it is installed, else plain.

        Args:
            stream: the text stream; None: stdout.
        """
        _STREAM.check(stream=stream)
        stream = stream or sys.stdout
        if has_method(stream, "isatty") and stream.isatty():
            try:
                from rich.console import Console
            except ModuleNotFoundError:
                pass
            else:
                Console(file=stream, highlight=False).print(self)
                return
        stream.write(f"{self}\n")

    def __str__(self) -> str:
        return "\n".join([self._summary(), *columns(_HEADERS, self._cells()), *self._errors()])

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(Text(self._summary()), rich_table(_HEADERS, self._cells()), *map(Text, self._errors()))

    def _summary(self) -> str:
        outcomes = Counter(row.outcome for row in self.rows)
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        return f"{len(self.rows)} sessions in {self.seconds:.1f} s: {counts or 'none'}"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (_name(of), str(of.count), str(of.failed), *map(_ms, (of.p50, of.p95, of.p99, of.longest)))
            for of in self.percentiles
        ]

    def _errors(self) -> list[str]:
        errors = Counter(row.error for row in self.rows if row.error is not None)
        lines = [f"{count} x {error}" for error, count in errors.most_common(_MAX_SHOWN_ERRORS)]
        more = len(errors) - len(lines)
        return [*lines, f"and {more} other errors"] if more > 0 else lines


def error_text(error: BaseException | None) -> str | None:
    """Return class and text of an error as one line; None without an error."""
    return None if error is None else raised(error, LONGEST_LINE)


def _by_name(measurements: Iterable[Measurement]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for measurement in measurements:
        if measurement.error is None:
            found.setdefault(_name(measurement), []).append(measurement.seconds)
    return found


def _name(of: Measurement | Percentiles) -> str:
    return of.name if of.kind == of.name else f"{of.kind} {of.name}"


def _percentiles(seconds: Sequence[float]) -> dict[str, Any]:
    if not seconds:
        return dict.fromkeys(("p50", "p95", "p99", "longest"))
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 99
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "longest": max(seconds)}


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return the text, which is written to a file if there is a path: as a whole, or not at all if the disk is full."""
    if path is not None:
        write_file(path, text.encode())
    return text
