"""Run scenario files of Pipecat's `pipecat eval` against a bot, over any transport.

A PATH is a file, or a folder of files. Scenarios may need functions of yours, given as MODULE:FUNCTION or
FILE.py:FUNCTION: --judge (question, answer, criterion) returns True, False or "continue"; --tts (text) returns PCM and
its sample rate, or a WAV file's bytes; --transcribe (pcm, sample_rate_hz) returns the words; --next-line (turns,
simulation) plays a simulated caller. A bot that doesn't listen yet is waited for, up to 5 s and in vain only once.

Exit status: 0 if all scenarios passed; 1 if one failed; 2 if an argument or a file is wrong, before any connection; 3
if none failed, but something was not judged, or the transport does not report it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rtvi_sync import RTVIError
from rtvi_sync.errors import ScenarioFileError
from rtvi_sync.testing import scenarios
from rtvi_sync.testing.load.progress import LoadProgress
from rtvi_sync.testing.scenarios.hooks import Hooks
from rtvi_sync.testing.scenarios.judging import ChatJudge
from rtvi_sync.testing.scenarios.media import check_media
from rtvi_sync.testing.scenarios.model import Scenario
from rtvi_sync.testing.scenarios.report import ScenarioResult, json_lines, junit
from rtvi_sync.testing.scenarios.run import PATIENCE, RunOptions, ScenarioRun
from rtvi_sync.testing.scenarios.suite import MakeRun, ScenarioSuite

from .arguments import (
    URL_HELP,
    USAGE,
    add_connect_options,
    check_different,
    count,
    limit,
    url,
    writable_path,
    wrong_usage,
)
from .functions import function_at

_INTERRUPTED = 130
_INCOMPLETE = 3
_KEY_VARIABLE = "RTVI_JUDGE_KEY"
_MAX_NAME = 100
# Pipecat's defaults for a model or endpoint that a file's `eval` does not name.
_OLLAMA = ("http://localhost:11434/v1", "gemma4:12b")
_OPENAI = ("https://api.openai.com/v1", None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("paths", type=Path, nargs="+", metavar="PATH", help="a scenario file, or a folder of scenario files")
    add("--url", type=url, required=True, metavar="URL", help=URL_HELP)
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run only this scenario, by FILE/SCENARIO or its own name; may be given several times",
    )
    add(
        "--judge",
        metavar="J",
        help="MODULE:FUNCTION; or the http(s):// URL of a server with OpenAI's interface, usually ending in /v1; or "
        "'file' for the model in each file's 'eval'. Without it, criteria are not judged",
    )
    add("--judge-model", metavar="M", help=f"model on that server; its key is read from {_KEY_VARIABLE}")
    add("--tts", metavar="M:F", help="voice of speaking users")
    add("--transcribe", metavar="M:F", help="transcription of speaking bots")
    add("--next-line", metavar="M:F", help="player of simulated callers")
    add("--concurrency", type=count, default=1, metavar="N", help="number of scenarios at the same time (%(default)s)")
    add(
        "--timeout",
        type=limit,
        default=60.0,
        metavar="S",
        help="limit in seconds for an expectation without 'within_ms' (%(default)g)",
    )
    add("--junit", type=Path, metavar="F", help="write the results as JUnit XML")
    add("--json", type=Path, metavar="F", help="write the results as lines of JSON, like Pipecat's results.jsonl")
    add(
        "--record", type=Path, metavar="DIR", help="keep recordings in this folder, with a page for each one not passed"
    )
    add("-v", "--verbose", action="store_true", help="also show the expectations of passed scenarios")
    add_connect_options(parser, limit_option="--connect-timeout")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        chosen = _chosen(arguments)
        names = _file_names([scenario.full_name for scenario in chosen])
        runs = [
            _maker(arguments, scenario, hooks, name)
            for scenario, hooks, name in zip(chosen, _hooks(arguments, chosen), names, strict=True)
        ]
        runs[0](PATIENCE)  # reports faults in the shared arguments at once
        files = {"--junit": arguments.junit, "--json": arguments.json}
        check_different(files)
        for option, path in files.items():
            if path is not None:
                writable_path(path, option)
        if arguments.record is not None:
            arguments.record.mkdir(parents=True, exist_ok=True)
    except _WrongFilesError as error:
        for line in error.lines:
            print(f"rtvi-sync eval: {line}", file=sys.stderr)
        return USAGE
    except (OSError, TypeError, ValueError, RTVIError) as error:
        return wrong_usage("eval", error)
    progress = LoadProgress(len(runs), shown=None, what="scenarios")
    suite = ScenarioSuite(runs, arguments.concurrency, lambda result: _tell(result, arguments.verbose), progress)
    try:
        suite.run()
    except KeyboardInterrupt:
        progress.hide()
        print(f"rtvi-sync eval: interrupted after {len(suite.results)} of {len(runs)} scenarios", file=sys.stderr)
        return _INTERRUPTED
    finally:
        progress.close()
        over = {result.name for result in suite.results}
        _write(arguments, suite.results, [each.full_name for each in chosen if each.full_name not in over])
    if arguments.record is not None:
        print(f"recordings, with a page for each scenario that did not pass: {arguments.record}")
    return _summary(suite.results)


class _WrongFilesError(Exception):
    """Some scenario files are invalid."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(*lines)
        self.lines = lines


def _chosen(arguments: argparse.Namespace) -> list[Scenario]:
    """Return the scenarios to run.

    Raises:
        _WrongFilesError: A file is invalid. The error has the faults of all files.
        ValueError: There are no scenarios.
    """
    found: list[Scenario] = []
    faults: list[str] = []
    for path in arguments.paths:
        try:
            loaded = scenarios.load(path)
            found += loaded
            check_media(loaded)
        except ScenarioFileError as error:
            faults += str(error).splitlines()
    names = Counter(scenario.full_name for scenario in found)
    for name, times in names.items():
        if times > 1:
            paths = ", ".join(dict.fromkeys(str(each.path) for each in found if each.full_name == name))
            faults.append(
                f"{times} scenarios are named {name!r}, in {paths}: pass each file once, and give them other names"
            )
    if faults:
        raise _WrongFilesError(faults)
    for name in arguments.only:
        if not any(name in (each.full_name, each.name) for each in found):
            raise ValueError(f"--only {name}: there is none of this name among {', '.join(names) or 'no scenarios'}")
    chosen = [each for each in found if not arguments.only or {each.full_name, each.name} & {*arguments.only}]
    if not chosen:
        raise ValueError(f"there are no scenarios in {', '.join(map(str, arguments.paths))}")
    return chosen


def _hooks(arguments: argparse.Namespace, chosen: Sequence[Scenario]) -> list[Hooks]:
    """Return the functions that each scenario needs beside the bot.

    Raises:
        ValueError, TypeError, OSError: An argument is invalid.
    """
    given = {"tts": arguments.tts, "transcribe": arguments.transcribe, "next_line": arguments.next_line}
    functions = {
        name: function_at(place, f"--{name.replace('_', '-')}") for name, place in given.items() if place is not None
    }
    if arguments.judge == "file":
        return [Hooks(judge=_judge_of(scenario), **functions) for scenario in chosen]
    hooks = Hooks(judge=_judge(arguments), **functions)
    return [hooks] * len(chosen)


def _judge(arguments: argparse.Namespace) -> Callable[..., Any] | None:
    given, model = arguments.judge, arguments.judge_model
    if given is None or not given.startswith(("http://", "https://")):
        if model is not None:
            raise ValueError("--judge-model is for the server that --judge names by its URL")
        return None if given is None else function_at(given, "--judge")
    if not model:
        raise ValueError(f"--judge {given} needs --judge-model, the name of a model there")
    return ChatJudge(given, model, os.environ.get(_KEY_VARIABLE) or None)


def _judge_of(scenario: Scenario) -> ChatJudge | None:
    """Return the judge that a scenario's file names, if the scenario needs one."""
    needs = scenario.simulation is not None or any(each.eval for turn in scenario.turns for each in turn.expect)
    if not needs:
        return None
    options = scenario.judge.eval
    service = options.get("service", "ollama")
    if "factory" in options or service not in ("ollama", "openai"):
        raise ValueError(
            f"--judge file: the 'eval' of {scenario.full_name} ({scenario.path}) makes a service of Pipecat; pass "
            "--judge with the URL of a server, or with a function"
        )
    endpoint, model = _OLLAMA if service == "ollama" else _OPENAI
    endpoint, model = options.get("endpoint") or endpoint, options.get("model") or model
    if not model:
        raise ValueError(f"--judge file: the 'eval' of {scenario.full_name} ({scenario.path}) names no model")
    return ChatJudge(endpoint, model, os.environ.get(_KEY_VARIABLE) or None)


def _maker(arguments: argparse.Namespace, scenario: Scenario, hooks: Hooks, name: str) -> MakeRun:
    """Return a function that creates the run of a scenario, with this name for its recording."""
    options = RunOptions(
        transport=arguments.transport,
        timeout=arguments.timeout,
        connect_timeout=arguments.connect_timeout,
        token=arguments.token,
        headers=dict(arguments.header) or None,
        record=None if arguments.record is None else arguments.record / name,
    )
    return partial(ScenarioRun, scenario, arguments.url, hooks, options)


def _file_names(names: Sequence[str]) -> list[str]:
    """Return the names of scenarios as unique file names, even if letter case is ignored."""
    plain = [name.replace("/", "-") for name in names]
    shown = [re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:_MAX_NAME] for name in plain]
    uses = Counter(name.casefold() for name in shown)
    return [
        # ".." is a folder, and a recording's own suffix is not part of its name.
        short
        if short == whole and uses[short.casefold()] == 1 and not re.search(r"^\.|\.(jsonl|wav)$", short)
        else f"{short.lstrip('.')}-{zlib.crc32(name.encode()):08x}"
        for name, whole, short in zip(names, plain, shown, strict=True)
    ]


def _tell(result: ScenarioResult, is_verbose: bool) -> None:
    print(result.report(verbose=is_verbose), flush=True)


def _write(arguments: argparse.Namespace, results: Sequence[ScenarioResult], not_run: Sequence[str]) -> None:
    if arguments.json is not None:
        arguments.json.write_text(json_lines(results), encoding="utf-8")
    if arguments.junit is not None:
        arguments.junit.write_text(junit(results, not_run), encoding="utf-8")


def _summary(results: Sequence[ScenarioResult]) -> int:
    """Print the count of each verdict; return the exit status."""
    verdicts = Counter(result.verdict for result in results)
    words = [
        f"{verdicts[verdict]} {verdict.replace('_', ' ')}"
        for verdict in ("passed", "failed", "not_judged", "unsupported")
        if verdicts[verdict]
    ]
    print(f"{len(results)} scenario{'' if len(results) == 1 else 's'}: {', '.join(words)}")
    if verdicts["failed"]:
        return 1
    return 0 if verdicts["passed"] == len(results) else _INCOMPLETE
