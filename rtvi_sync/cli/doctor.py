"""Find out why a bot cannot be reached, or does not answer, hear or speak, and how to fix it.

Connects to the bot, types a question, and checks each step in the order in which things go wrong. With --audio it also
speaks to the bot, and interrupts it. It ends at most 20 s after --timeout.

Exit status: 0 if nothing is wrong; 1 if something is; 2 if the arguments are wrong; with --strict, 3 if there are only
warnings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Sequence
from typing import Final

from rtvi_sync.conversation.follow import about_bot
from rtvi_sync.net.urls import printable

from .arguments import URL_HELP, add_connect_options, add_json_option, connect_options, url, words
from .checks import Examination, Result, examine
from .checks.diagnosis import Status
from .screen import Screen, Style, screen_for

_WARNED = 3
# Columns before a finding, and the maximum width.
_INDENT = 36
_MAX_WIDTH = 110
_MIN_TEXT = 30
_MARKS: Final[dict[Status, tuple[str, Style]]] = {
    "ok": ("ok", "good"),
    "warn": ("warn", "warning"),
    "fail": ("FAIL", "error"),
    "skipped": ("-", "faint"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=url, metavar="URL", help=f"address of the bot: {URL_HELP}")
    parser.add_argument("--audio", action="store_true", help="also speak to the bot, and interrupt it")
    parser.add_argument("--ask", type=words, default="Hello", metavar="TEXT", help="typed question (%(default)s)")
    parser.add_argument("--strict", action="store_true", help="return status 3 if there are warnings")
    add_json_option(parser)
    add_connect_options(parser, timeout=30.0)


def run(arguments: argparse.Namespace) -> int:
    """Run all checks, and return the exit status.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    options = connect_options(arguments)
    with Examination(arguments.url, options, question=arguments.ask, speaks=arguments.audio) as exam:
        if arguments.json:
            results = [*examine(exam)]
            ready = exam.trial.ready if results[0].finding.status == "ok" else None
            document = {
                "ok": not _count(results, "fail"),
                "url": printable(arguments.url),
                "rtvi": None if ready is None else ready.version,
                "bot": None if ready is None else about_bot(ready),
                "checks": [result.as_data() for result in results],
            }
            print(json.dumps(document, indent=1))
        else:
            with screen_for() as screen:
                results = _show(exam, screen)
    if _count(results, "fail"):
        return 1
    return _WARNED if arguments.strict and _count(results, "warn") else 0


def _show(exam: Examination, screen: Screen) -> list[Result]:
    """Print a line for each check as it ends, and one for all skipped checks."""
    results = []
    for result in examine(exam, lambda name: screen.show_partial(f"      {name} ...")):
        results.append(result)
        if not result.finding.needs:
            _print_result(result, screen)
    missing: dict[str, list[str]] = {}
    for result in results:
        if result.finding.needs:
            missing.setdefault(result.finding.needs, []).append(result.id)
    for needed, names in missing.items():
        for line in textwrap.wrap(f"not checked without {needed}: {', '.join(names)}", _width()):
            screen.print_line(line, "faint")
    screen.print_line(*_summary(results, is_unheard=exam.is_only_heard and not exam.speaks))
    return results


def _print_result(result: Result, screen: Screen) -> None:
    finding = result.finding
    ms = round(1000 * (result.seconds or 0.0))
    took = f"{ms:,} ms" if ms else ""
    mark, style = _MARKS[finding.status]
    head = f"{result.id:<20}{took:>8}  "
    width = max(_width() - _INDENT, _MIN_TEXT)
    texts = textwrap.wrap(finding.text, width) or [""]
    if finding.cure:
        texts += textwrap.wrap(finding.cure, width, initial_indent="> ", subsequent_indent="  ")
    screen.print_line(head + texts[0], style, f"{mark:<6}")
    for text in texts[1:]:
        screen.print_line(" " * _INDENT + text)


def _summary(results: Sequence[Result], *, is_unheard: bool) -> tuple[str, Style]:
    failed, warned = _count(results, "fail"), _count(results, "warn")
    if not failed and not warned:
        if is_unheard:
            return "Nothing is wrong so far. Pass --audio to check whether a phone bot answers.", "warning"
        return "Nothing is wrong with the bot.", "good"
    worst: Status = "fail" if failed else "warn"
    first = next(result.id for result in results if result.finding.status == worst)
    return f"{failed} failed, {warned} with warnings. Start with {first}.", _MARKS[worst][1]


def _count(results: Sequence[Result], status: str) -> int:
    return sum(result.finding.status == status for result in results)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)
