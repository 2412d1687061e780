"""Run many sessions with a bot at once, and report failures, the times of answers, and lost audio.

Each session asks the questions of --text, then --wav and --sample, and waits for each answer. With --scenario
it calls your function with the connected client instead.

Exit status: 0 if all is well; 1 if more sessions failed than --max-failed; 2 if a file cannot be used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rtvi_sync import RTVIError
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
        "--out", type=Path, metavar="DIR", help="write load.json, load.csv and load.html to this folder"
    )
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report as a page")
    add_json_option(parser)
    parser.add_argument(
        "--max-failed", type=count_or_zero, default=0, metavar="N", help="sessions that may fail (%(default)s)"
    )
    add_connect_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
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
            scenario,
            arguments.sessions,
            lambda: MeasuredClient.for_url(arguments.url, **options),
            concurrency=arguments.at_once,
            spawn_rate=arguments.rate,
            progress=True,
        )
    except KeyboardInterrupt as interrupt:
        (report,) = interrupt.args or (None,)
        if report is not None:
            _tell(arguments, report)
        return _INTERRUPTED
    return 0 if _tell(arguments, report) else 1


def _tell(arguments: argparse.Namespace, report: Report) -> bool:
    """Print and write the report; return whether few enough sessions failed."""
    is_ok: bool = len(report.failed) <= arguments.max_failed
    if arguments.json:
        print(json.dumps({**json.loads(report.to_json()), "ok": is_ok}, indent=1))
    else:
        report.show()
    # Written after printing, because the disk may be full.
    if arguments.out is not None:
        report.to_json(arguments.out / "load.json")
        report.to_csv(arguments.out / "load.csv")
        report.to_html(arguments.out / "load.html")
    if arguments.html is not None:
        report.to_html(arguments.html)
    return is_ok


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
