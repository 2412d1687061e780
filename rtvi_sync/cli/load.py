"""Run many sessions with a bot at once, and report failures, the times of answers, and lost audio.

Each session asks the questions of --text, then --wav and --sample, and waits for each answer. With --scenario
it calls your function with the connected client instead. With --duration it does so again until the time is over.

Exit status: 0 if all is well; 1 if more sessions failed than --max-failed, or a --max-p95 was exceeded; 2 if a file
cannot be used.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rtvi_sync import RTVIError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.protocol.text import clean
from rtvi_sync.testing import MeasuredClient, Report, run_many
from rtvi_sync.testing.load.many import Scenario

from .arguments import (
    SAMPLE_HELP,
    URL_HELP,
    add_connect_options,
    add_json_option,
    check_takes_text,
    connect_options,
    count,
    count_or_zero,
    limit,
    question_file,
    rate,
    url,
    words,
    writable_path,
    wrong_usage,
)
from .functions import function_at
from .scripted_speech import sample

_INTERRUPTED = 130
# A row of the report. The names of requests and steps are the scenario's.
_ROW = re.compile(r"connect|start_bot(_and_connect)?|answer (first text|first audio|complete)|(request|step) .+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=url, metavar="URL", help=URL_HELP)
    parser.add_argument("--sessions", type=count, required=True, metavar="N", help="number of sessions")
    parser.add_argument(
        "--at-once", type=count, default=500, metavar="N", help="maximum number of sessions at a time (%(default)s)"
    )
    parser.add_argument(
        "--rate", type=rate, default=50.0, metavar="R", help="maximum number of starts in a second (%(default)g)"
    )
    parser.add_argument(
        "--text",
        type=words,
        action="append",
        default=[],
        metavar="T",
        help="typed question; may be given several times",
    )
    parser.add_argument(
        "--wav",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="spoken question; may be given several times",
    )
    parser.add_argument("--sample", action="store_true", help=SAMPLE_HELP)
    parser.add_argument(
        "--answer-timeout", type=limit, default=30.0, metavar="S", help="fail if an answer takes longer (%(default)g)"
    )
    parser.add_argument("--scenario", metavar="FILE.py:FUNCTION", help="function of the client, in place of questions")
    parser.add_argument(
        "--duration",
        type=limit,
        metavar="S",
        help="repeat the questions, or the function, in each session until S seconds have passed",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write load.json, load.csv and load.html to this folder"
    )
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report as a page")
    add_json_option(parser)
    parser.add_argument(
        "--max-failed", type=count_or_zero, default=0, metavar="N", help="sessions that may fail (%(default)s)"
    )
    parser.add_argument(
        "--max-p95",
        nargs=2,
        action="append",
        default=[],
        metavar=("ROW", "S"),
        help="fail if the p95 of a row of the report, such as 'answer first audio', is above S seconds; may be given "
        "several times",
    )
    add_connect_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        limits = _limits(arguments)
        scenario = _scenario(arguments)
        if arguments.text:
            check_takes_text(arguments)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            for name in ("load.json", "load.csv", "load.html"):
                writable_path(arguments.out / name, "--out")
        if arguments.html is not None:
            writable_path(arguments.html, "--html")
    except (OSError, ValueError, RTVIError) as error:
        return wrong_usage("load", error)
    options = connect_options(arguments)
    try:
        report = run_many(
            scenario if arguments.duration is None else _repeated(scenario, arguments.duration),
            arguments.sessions,
            lambda: MeasuredClient.for_url(arguments.url, **options),
            concurrency=arguments.at_once,
            spawn_rate=arguments.rate,
            progress=True,
        )
    except KeyboardInterrupt as interrupt:
        (report,) = interrupt.args or (None,)
        if report is not None:
            _tell(arguments, report, limits)
        return _INTERRUPTED
    return 0 if _tell(arguments, report, limits) else 1


def _tell(arguments: argparse.Namespace, report: Report, limits: Sequence[tuple[str, float]]) -> bool:
    """Print and write the report; return whether few enough sessions failed, and none of `limits` was exceeded."""
    exceeded = list(_exceeded(report, limits))
    is_ok: bool = len(report.failed) <= arguments.max_failed and not exceeded
    if arguments.json:
        print(json.dumps({**json.loads(report.to_json()), "ok": is_ok}, indent=1))
    else:
        report.show()
    for line in exceeded:
        print(clean(line), file=sys.stderr)
    # Written after printing, because the disk may be full.
    if arguments.out is not None:
        report.to_json(arguments.out / "load.json")
        report.to_csv(arguments.out / "load.csv")
        report.to_html(arguments.out / "load.html")
    if arguments.html is not None:
        report.to_html(arguments.html)
    return is_ok


def _limits(arguments: argparse.Namespace) -> list[tuple[str, float]]:
    """Return the rows and seconds of --max-p95.

    Raises:
        ValueError: There is no such row, or the limit is not a number of seconds above zero.
    """
    for row, _ in arguments.max_p95:
        if not _ROW.fullmatch(row):
            raise ValueError(
                f"--max-p95: the report has no row {row!r}: give 'connect', 'answer first text', 'answer first audio', "
                "'answer complete', or 'request' or 'step' with a name"
            )
    try:
        return [(row, limit(most)) for row, most in arguments.max_p95]
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--max-p95: {error}") from None


def _exceeded(report: Report, limits: Sequence[tuple[str, float]]) -> Iterator[str]:
    for row, most in limits:
        try:
            p95 = report[row].p95
        except KeyError as error:
            yield f"--max-p95: {error.args[0]}"
            continue
        if p95 is None or p95 > most:
            measured = "unknown, because all failed" if p95 is None else f"{p95:.3f} s"
            yield f"too slow: the p95 of {row!r} is {measured}; the limit is {most:g} s"


def _repeated(scenario: Scenario, seconds: float) -> Scenario:
    """Return a function that calls `scenario` at least once, and until `seconds` have passed."""

    def repeat(client: MeasuredClient) -> None:
        deadline = Deadline(seconds)
        scenario(client)
        while not deadline.expired:
            scenario(client)

    return repeat


def _scenario(arguments: argparse.Namespace) -> Scenario:
    """Return the function that each session runs.

    Raises:
        ValueError: These arguments give no function.
        RTVIError, OSError: A file cannot be read.
    """
    questions: list[str | Path] = [*arguments.text, *arguments.wav]
    if arguments.scenario is not None:
        if questions or arguments.sample:
            raise ValueError("--scenario asks by itself: leave out --text, --wav and --sample, or --scenario")
        return function_at(arguments.scenario, "--scenario")
    for path in arguments.wav:
        question_file(path)  # otherwise each session would fail
    if not (questions or arguments.sample):
        raise ValueError("There is nothing to ask: pass --text, --wav, --sample or --scenario FILE.py:FUNCTION")

    def ask(client: MeasuredClient) -> None:
        for question in [*questions, *([sample()] if arguments.sample else [])]:
            client.ask(question, arguments.answer_timeout)

    return ask
