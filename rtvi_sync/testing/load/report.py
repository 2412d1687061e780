"""The report of a load test: a row for each session, percentiles over all, a table, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TextIO, TypeAlias

import attrs

from rtvi_sync import ClientStats, RTVIError
from rtvi_sync.conversation.audio import account_of
from rtvi_sync.media.audio_files import write_file
from rtvi_sync.protocol.recording_rows import Redactor
from rtvi_sync.protocol.text import LONGEST_LINE, one_line, raised
from rtvi_sync.protocol.validation import NAME, PATH, Rule, has_method
from rtvi_sync.recording.page import render
from rtvi_sync.recording.percentiles import percentile
from rtvi_sync.recording.tables import columns, rich_table
from rtvi_sync.testing.load.measured import Kind, Measurement

if TYPE_CHECKING:
    from rich.console import Group

Outcome: TypeAlias = Literal["passed", "not connected", "failed", "interrupted"]

_HEADERS: Final = ("ms", "count", "failed", "p50", "p95", "p99", "longest")
# The number of different errors in a table; the rows have all errors.
_MAX_SHOWN_ERRORS: Final = 10
# The number of sessions that a table names for each error.
_MAX_NAMED: Final = 8
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(?= s\b)")


_AUDIO: Final = ("sent", "late", "not_taken", "received", "concealed", "not_played")
_SIDES: Final = {
    "questions that the bot did not hear, though they were said": "not_heard",
    "answers that were not complete in time": "late_answers",
}
_LOSSES: Final = {
    "the user's audio that this process or its source was late with": "late",
    "the user's audio that the bot or the network did not take (over WebRTC: that this process was too busy for)": (
        "not_taken"
    ),
    "the bot's audio that the network lost or delayed": "concealed",
    "the bot's audio that this process did not play": "not_played",
}
# Seconds. A shorter loss is one late frame, which every busy machine has.
_LEAST: Final = 0.1

_STREAM: Final = Rule("a text stream", lambda stream: has_method(stream, "write")).or_none


@attrs.frozen(kw_only=True)
class RowAudio:
    """Audio of a session in seconds: sent, received, and lost on each side.

    Attributes:
        sent: User's audio that this process handed to the system.
        late: User's audio that this process, or the source, did not deliver in time.
        not_taken: User's audio that was dropped because the server (the bot or the network) read too slowly. Over
            WebRTC, because this process was too busy.
        received: Bot's audio that arrived.
        concealed: Bot's audio that was lost on the network, or arrived too late (WebRTC).
        not_played: Bot's audio that was dropped because the sink was too slow.
        max_delay: Longest delay of a part of the user's audio: how late the sending thread was at most.
    """

    sent: float = 0.0
    late: float = 0.0
    not_taken: float = 0.0
    received: float = 0.0
    concealed: float = 0.0
    not_played: float = 0.0
    max_delay: float = 0.0

    @classmethod
    def of(cls, stats: ClientStats) -> RowAudio:
        """Return the audio figures from a client's counters."""
        account = account_of(stats, stats)
        return cls(
            sent=account.sent,
            late=account.late,
            not_taken=account.not_taken,
            received=stats.audio_received,
            concealed=stats.audio_concealed,
            not_played=stats.speaker_dropped_seconds,
            max_delay=stats.mic_max_delay,
        )


class LostSeconds(NamedTuple):
    """Lost audio of a session, in seconds.

    Attributes:
        sent: User's audio that the bot did not get, or got late.
        received: Bot's audio that was not played.
    """

    sent: float
    received: float


@attrs.frozen(kw_only=True)
class Row:
    """One session.

    Attributes:
        number: Position in the order of the sessions' starts, from 0.
        outcome: "passed"; "not connected": there was no client or no session; "failed": the scenario raised, or did not
            end in time; "interrupted": Ctrl-C.
        error: Error text with its type; None if the session passed.
        kind: `kind` of the error, such as "not_heard" or "timeout"; None if it has none.
        traceback: Traceback of the error.
        began (seconds): Start, counted from the start of the run.
        seconds (seconds): Duration, from before the creation of the client until after its close.
        measurements: Measurements in the order of completion.
        audio: Audio figures of the last session.
    """

    number: int
    outcome: Outcome
    error: str | None = None
    kind: str | None = None
    traceback: str | None = attrs.field(default=None, repr=False)
    began: float
    seconds: float
    measurements: tuple[Measurement, ...] = attrs.field(default=(), repr=False)
    audio: RowAudio = attrs.field(factory=lambda: RowAudio(), repr=False)

    @property
    def not_heard(self) -> int:
        """Number of spoken questions that the bot did not hear: it reported no speech or words of the user."""
        return sum(kind_of(done.error) == "not_heard" for done in self.measurements)

    @property
    def late_answers(self) -> int:
        """Number of incomplete answers to questions that the bot received."""
        return sum(done.kind == "answer" and kind_of(done.error) == "timeout" for done in self.measurements)

    @property
    def is_unanswered(self) -> bool:
        """True if no part of any answer arrived, not even late."""
        answers = [done for done in self.measurements if done.kind == "answer"]
        return bool(answers) and all(kind_of(done.error) == "timeout" and done.name != "complete" for done in answers)

    @property
    def lost_seconds(self) -> LostSeconds:
        """Lost audio on each side; `audio` has the causes."""
        audio = self.audio
        return LostSeconds(sent=audio.late + audio.not_taken, received=audio.concealed + audio.not_played)

    @property
    def durations(self) -> dict[str, float]:
        """Seconds by kind and name ("request get-order"); the median of several measurements."""
        return {name: median(seconds) for name, seconds in _by_name(self.measurements).items() if seconds}


@attrs.frozen(kw_only=True)
class Percentiles:
    """The durations of one kind of measurement over all sessions, in seconds. None if all failed.

    Attributes:
        kind: "connect", "request", "answer" or "step".
        name: "connect", "start_bot" or "start_bot_and_connect" for a connect; the type of a request, such as the one
            given to `send_client_request()`; "first text", "first audio" or "complete" for an answer; your name for a
            step.
        count: Number of measurements, including failures.
        failed: Number of failures, which the percentiles leave out.
        p50, p95, p99: Percentiles.
        longest: Maximum.
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
    """The result of `run_many()`. `print(report)` shows a table; rich's `print()` shows a rich table.

    Attributes:
        rows: Sessions, in the order of their starts.
        seconds (seconds): Duration of the run.
        date: Start in UTC: "2026-11-28T09:00:00Z"; "" if unknown, like the next three.
        url: URL of the bot, without secret parts.
        transport: Name of the first connected session's transport.
        rate: Maximum number of sessions that could start in a second.
        secrets: Keys and tokens of the clients, which an error may quote. The report shows `***` instead.
    """

    rows: tuple[Row, ...]
    seconds: float
    date: str = ""
    url: str = ""
    transport: str = ""
    rate: float | None = None
    secrets: frozenset[str] = attrs.field(default=frozenset(), repr=False)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The sessions that did not pass."""
        return tuple(row for row in self.rows if row.outcome != "passed")

    @property
    def percentiles(self) -> tuple[Percentiles, ...]:
        """The percentiles of each kind of measurement, in the order of first occurrence."""
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
                p50=percentile(seconds[kind, name], 0.5),
                p95=percentile(seconds[kind, name], 0.95),
                p99=percentile(seconds[kind, name], 0.99),
                longest=max(seconds[kind, name], default=None),
            )
            for (kind, name), number in count.items()
        )

    def __getitem__(self, name: str) -> Percentiles:
        """Return the percentiles in a line of the table, such as `report["answer first audio"].p95`.

        Raises:
            KeyError: No session has measured this. The text lists the measured names.
        """
        NAME.check(name=name)
        found = {_name(percentiles): percentiles for percentiles in self.percentiles}
        if name not in found:
            raise KeyError(f"nothing is measured as {name!r}; measured: {', '.join(map(repr, found)) or 'nothing'}")
        return found[name]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as a JSON document, and write it to a file if `path` is given.

        Times are in seconds. The keys are:

        * `date`, `url`, `transport`, `rate`, `seconds`: as in the report.
        * `sessions`, `failed`, `unanswered`: numbers of sessions; `not_heard`, `late_answers`: sums over the rows.
        * `audio`: sums of `sent`, `late`, `not_taken`, `received`, `concealed`, `not_played`; `max_delay`: the maximum.
        * `errors`, `sides`: the lines below the table.
        * `percentiles`: for each `Percentiles`, its attributes.
        * `rows`: for each `Row`, its attributes, with `not_heard`, `late_answers` and `lost_seconds`. A measurement has
          the attributes of `Measurement`, with the error as text.
        """
        PATH.or_none.check(path=path)
        document = {
            "date": self.date,
            "url": self.url,
            "transport": self.transport,
            "rate": self.rate,
            "seconds": self.seconds,
            "sessions": len(self.rows),
            "failed": len(self.failed),
            "not_heard": sum(row.not_heard for row in self.rows),
            "late_answers": sum(row.late_answers for row in self.rows),
            "unanswered": sum(row.is_unanswered for row in self.rows),
            "audio": {name: sum(getattr(row.audio, name) for row in self.rows) for name in _AUDIO},
            "max_delay": self._max_delay,
            "errors": self._errors(),
            "sides": self._sides(),
            "percentiles": [attrs.asdict(percentiles) for percentiles in self.percentiles],
            "rows": [
                {
                    **attrs.asdict(row, recurse=False),
                    "not_heard": row.not_heard,
                    "late_answers": row.late_answers,
                    "lost_seconds": row.lost_seconds._asdict(),
                    "audio": attrs.asdict(row.audio),
                    "measurements": [
                        {**attrs.asdict(done, recurse=False), "error": error_text(done.error)}
                        for done in row.measurements
                    ],
                }
                for row in self.rows
            ],
        }
        return _written(json.dumps(self._redactor.value(document), indent=1) + "\n", path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as CSV with a line for each session, and write it to a file if `path` is given.

        The columns are number, outcome, kind, error, began, seconds, not_heard, late_answers, two for `lost_seconds`
        ("lost sent"), one for each field of `RowAudio` ("audio sent"), and one for each kind of measurement, with the
        seconds in `Row.durations`.
        """
        PATH.or_none.check(path=path)
        names = [_name(percentiles) for percentiles in self.percentiles]
        text = io.StringIO()
        writer = csv.writer(text)
        audio = [field.name for field in attrs.fields(RowAudio)]
        masked = self._redactor.text
        writer.writerow(
            [
                *("number", "outcome", "kind", "error", "began", "seconds", "not_heard", "late_answers"),
                *(f"lost {side}" for side in LostSeconds._fields),
                *(f"audio {name}" for name in audio),
                *names,
            ]
        )
        for row in self.rows:
            durations = row.durations
            begin = [row.number, row.outcome, row.kind or "", masked(row.error or "")]
            begin += [f"{row.began:.6f}", f"{row.seconds:.6f}"]
            begin += [row.not_heard, row.late_answers, *(f"{seconds:.3f}" for seconds in row.lost_seconds)]
            begin += [f"{getattr(row.audio, name):.3f}" for name in audio]
            writer.writerow(begin + [f"{durations[name]:.6f}" if name in durations else "" for name in names])
        return _written(text.getvalue(), path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return an HTML page with the report, and write it to a file if `path` is given.

        It shows the distribution of each measurement, the sessions over time, failures, lost audio, and all sessions.
        """
        PATH.or_none.check(path=path)
        name = "" if path is None else os.path.basename(os.fspath(path))
        return _written(render("Load test", {"kind": "load", "name": name, "report": json.loads(self.to_json())}), path)

    def show(self, stream: TextIO | None = None) -> None:
        """Write the report as a table: a rich table on a terminal with rich, otherwise plain text.

        Args:
            stream: Text stream; None for stdout.
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
        lines = [self._summary(), *columns(_HEADERS, self._cells()), *self._errors(), *self._sides()]
        return "\n".join(lines)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(
            Text(self._summary(), "red" if self.failed else "green"),
            rich_table(_HEADERS, self._cells()),
            *(Text(line, "red") for line in self._errors()),
            *(Text(line, "yellow") for line in self._sides()),
        )

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
        """Return a line for each error, with its sessions. Errors that differ only in seconds share a line."""
        masked = self._redactor.text
        groups: defaultdict[tuple[str | None, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.error is not None:
                groups[row.kind, _DURATION.sub("\0", row.error)].append(row)
        found = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
        lines = [
            f"{len(rows)} x {masked(_in_common(rows))}{f' [{kind}]' if kind else ''} {_named(rows)}"
            for (kind, _), rows in found[:_MAX_SHOWN_ERRORS]
        ]
        more = len(found) - len(lines)
        return [*lines, f"and {more} other errors"] if more > 0 else lines

    def _sides(self) -> list[str]:
        """Return a line for each side that lost audio, a question or an answer."""
        lines = []
        if silent := sum(row.is_unanswered for row in self.rows):
            lines.append(f"{_sessions(silent)} got no answer at all: the bot, or its process, may be overloaded")
        for what, name in _SIDES.items():
            counts = [getattr(row, name) for row in self.rows if getattr(row, name) and not row.is_unanswered]
            if counts:
                lines.append(f"{what}: {sum(counts)} in {_sessions(len(counts))}")
        for what, name in _LOSSES.items():
            losses = [getattr(row.audio, name) for row in self.rows]
            losses = [seconds for seconds in losses if seconds >= _LEAST]
            if losses:
                lines.append(f"{what}: {sum(losses):.1f} s in {_sessions(len(losses))}, at most {max(losses):.1f} s")
        losing = sum(max(row.lost_seconds) >= _LEAST for row in self.rows)
        if losing or any(row.audio.sent for row in self.failed):
            lost = f"{_sessions(losing)} lost audio: the bot or this machine is overloaded; " if losing else ""
            lines.append(
                f"{lost}the thread of this process that sends was at most {1000 * self._max_delay:.0f} ms late"
            )
        return lines

    @property
    def _redactor(self) -> Redactor:
        return Redactor(self.secrets)

    @property
    def _max_delay(self) -> float:
        return max((row.audio.max_delay for row in self.rows), default=0.0)


def _in_common(rows: Sequence[Row]) -> str:
    """Return the common text of errors that differ only in seconds, with "…" for the differing parts."""
    parts = zip(*(_DURATION.split(row.error or "") for row in rows), strict=True)
    return "".join(part[0] if len(set(part)) == 1 else "…" for part in parts)


def _named(rows: Sequence[Row]) -> str:
    """Return the numbers of a group's first sessions, in words."""
    numbers = [str(row.number) for row in rows[:_MAX_NAMED]] + ["…"] * (len(rows) > _MAX_NAMED)
    return f"(session{'s' if len(rows) > 1 else ''} {', '.join(numbers)})"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def kind_of(error: BaseException | None) -> str | None:
    """Return the kind of an error of this package; None if it has none."""
    kind = getattr(error, "kind", None)
    return kind if isinstance(error, RTVIError) and isinstance(kind, str) else None


def error_text(error: BaseException | None) -> str | None:
    """Return an error's class and text as one line; None without an error.

    An error without a text, such as a bare `assert`, gets the line of the scenario that raised it.
    """
    if error is None:
        return None
    text = raised(error, LONGEST_LINE)
    frames = traceback.extract_tb(error.__traceback__)
    if text == type(error).__name__ and frames:
        text = f"{text}: {Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}"
    return one_line(text, LONGEST_LINE)


def _by_name(measurements: Iterable[Measurement]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for measurement in measurements:
        if measurement.error is None:
            found.setdefault(_name(measurement), []).append(measurement.seconds)
    return found


def _name(of: Measurement | Percentiles) -> str:
    return of.name if of.kind == of.name else f"{of.kind} {of.name}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return the text, and write it to a file if a path is given. If the disk is full, no part is written."""
    if path is not None:
        write_file(path, text.encode())
    return text
