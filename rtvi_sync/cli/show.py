"""Show recordings, or a load test: turns, latencies, a page, and whether the bot became slower.

Recordings are files of client.record(), or folders with them. A load test is the JSON of Report.to_json(). With
--baseline, the latencies are compared with other recordings, question by question.

Exit status: 0 if all is well; 1 if an answer was later than --max-voice-to-voice, or the bot is slower than the
baseline; 2 if a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rtvi_sync import Recording
from rtvi_sync.media.audio_files import write_file
from rtvi_sync.protocol.recording_rows import loads
from rtvi_sync.protocol.text import clean, one_line
from rtvi_sync.recording.compare import MIN_CHANGE, Comparison, compare
from rtvi_sync.recording.export import FORMATS, write_words
from rtvi_sync.recording.lanes import failure_in_words
from rtvi_sync.recording.page import render
from rtvi_sync.recording.page.data import recordings_data
from rtvi_sync.recording.percentiles import MEASURES, percentiles_of
from rtvi_sync.recording.summary import (
    CHANGES,
    NOT_JUDGED,
    change_rows,
    in_ms,
    left_out_in_words,
    summary,
    words_of,
)
from rtvi_sync.recording.tables import columns, rich_table

from .arguments import add_json_option, limit, seconds, wrong_usage

_MAX_TEXT = 48  # length limit of a cell, in characters
# The fields of a load test's session that the page needs.
_ROW = {"number", "outcome", "kind", "error", "began", "seconds", "audio", "lost_seconds", "measurements"}
_TURNS = ("turn", "who began", "user", "bot", "voice to voice", "first token", "first audio", "status")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("paths", nargs="+", metavar="FILE|DIR", help="recordings, folders of them, or one load test")
    add_json_option(parser)
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a page with all recordings, or the load test")
    parser.add_argument(
        "--embed-audio", action="store_true", help="put the audio into the page, in place of a WAV file"
    )
    parser.add_argument(
        "--export",
        nargs=2,
        action="append",
        default=[],
        metavar=("FORMAT", "OUT"),
        help=f"write one recording as {', '.join(FORMATS)}; may be given several times",
    )
    parser.add_argument(
        "--max-voice-to-voice", type=limit, metavar="S", help="fail if an answer was heard later than after S seconds"
    )
    parser.add_argument(
        "--baseline", metavar="FILE|DIR", help="compare with these recordings; fail if the bot is slower now"
    )
    parser.add_argument(
        "--min-change",
        type=seconds,
        default=MIN_CHANGE,
        metavar="S",
        help="ignore changes up to S seconds (%(default)g)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        if len(arguments.paths) == 1 and arguments.paths[0].endswith(".json"):
            try:
                return _show_load_test(arguments, _load_test(arguments.paths[0]))
            except (KeyError, TypeError, AttributeError):
                raise ValueError(
                    f"{arguments.paths[0]} is damaged: fields that Report.to_json() writes are missing"
                ) from None
        recordings = _recordings(arguments.paths)
        baseline = _recordings([arguments.baseline]) if arguments.baseline is not None else None
        _check_outputs(arguments, [*recordings, *(baseline or ())])
        _check_exports(arguments, recordings)
        return _show(arguments, recordings, baseline)
    except (OSError, ValueError) as error:
        return wrong_usage("show", error)


def _recordings(paths: Sequence[str]) -> tuple[Recording, ...]:
    try:
        found = Recording.load_all(*paths)
    except OSError as error:
        raise _unreadable(error) from None
    if not found:
        raise ValueError(f"There is no recording in {', '.join(paths)}: client.record() writes them, as .jsonl")
    return found


def _unreadable(error: OSError) -> ValueError:
    return ValueError(f"{error.filename} cannot be read: {error.strerror}" if error.filename else str(error))


def _check_outputs(arguments: argparse.Namespace, recordings: Sequence[Recording]) -> None:
    outputs = [Path(path) for _, path in arguments.export]
    for path in outputs if arguments.html is None else [arguments.html, *outputs]:
        for recording in recordings:
            recording.check_output(path)


def _check_exports(arguments: argparse.Namespace, recordings: Sequence[Recording]) -> None:
    for name, _ in arguments.export:
        if name not in FORMATS:
            raise ValueError(f"--export knows no {name!r}: give one of {', '.join(FORMATS)}")
    if arguments.export and len(recordings) != 1:
        raise ValueError(f"--export writes one recording, not {len(recordings)}: name one file")


def _show(arguments: argparse.Namespace, recordings: Sequence[Recording], baseline: Sequence[Recording] | None) -> int:
    turns = [turn for recording in recordings for turn in recording.turns()]
    comparison = None
    if baseline is not None:
        before = [turn for recording in baseline for turn in recording.turns()]
        comparison = compare(before, turns, arguments.min_change)
    late = list(_late(recordings, arguments.max_voice_to_voice))
    is_ok = not late and not (comparison is not None and comparison.is_slower)
    if arguments.html is not None:
        title = recordings[0].path.stem if len(recordings) == 1 else f"{len(recordings)} recordings"
        folder = arguments.html.parent
        data = recordings_data(recordings, comparison, folder=folder, embed_audio=arguments.embed_audio)
        write_words(arguments.html, render(title, data))
    for name, path in arguments.export:
        recordings[0].export(path, name)
    if arguments.json:
        print(json.dumps({**summary(recordings, comparison), "ok": is_ok}, indent=1, default=str))
        return 0 if is_ok else 1
    for recording in recordings:
        _print_recording(recording)
    rows = [
        (words_of(measure), str(of.count), in_ms(of.p50), in_ms(of.p95), in_ms(of.max))
        for measure, of in percentiles_of(turns).items()
    ]
    _print_table(("ms", "turns", "p50", "p95", "slowest"), rows)
    if comparison is not None:
        _print_comparison(comparison)
    for line in late:
        print(clean(line))
    return 0 if is_ok else 1


def _late(recordings: Sequence[Recording], most: float | None) -> Iterator[str]:
    for recording in recordings:
        for turn in recording.turns():
            if most is not None and turn.voice_to_voice is not None and turn.voice_to_voice > most:
                yield (
                    f"too late: turn {turn.number} of {recording.path} was heard after {turn.voice_to_voice:.3f} s, "
                    f"the limit is {most:g} s"
                )


def _print_recording(recording: Recording) -> None:
    facts = [str(recording.path), recording.bot, f"{recording.seconds:.1f} s", f"{len(recording.turns())} turns"]
    if recording.is_cut:
        facts.append("cut: its process was killed")
    lost = sum(float(row.get("seconds") or 0.0) for row in recording.lost)
    if lost:
        facts.append(f"{lost:.1f} s of audio are missing")
    print(clean(", ".join(filter(None, facts))))
    rows = [
        (
            str(turn.number),
            {"audio": "user spoke", "text": "user typed"}.get(turn.modality or "", "bot"),
            one_line(_shown(turn.user_text), _MAX_TEXT),
            one_line(_shown(turn.spoken_text if turn.interrupted else turn.bot_text), _MAX_TEXT),
            *(in_ms(getattr(turn, measure)) for measure in MEASURES),
            turn.status.replace("_", " "),
        )
        for turn in recording.turns()
    ]
    if rows:
        _print_table(_TURNS, rows, texts=4)
    for turn in recording.turns():
        if why := failure_in_words(turn, recording.rows):
            print(clean(one_line(f"turn {turn.number} failed: {why}")))


def _shown(text: str | None) -> str:
    """Return the words of one side for a table."""
    return "(not known)" if text is None else text


def _print_comparison(comparison: Comparison) -> None:
    print("compared with the baseline:")
    _print_table(CHANGES, change_rows(comparison), texts=2)
    for line in left_out_in_words(comparison):
        print(clean(line))
    if comparison.is_in_part:
        print(NOT_JUDGED, file=sys.stderr)


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
    if sys.stdout.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            pass
        else:
            Console(highlight=False).print(rich_table(headers, rows, texts))
            return
    print(*columns(headers, rows, texts), sep="\n")


# -- load tests -------------------------------------------------------------------------------------------------------


def _load_test(path: str) -> dict[str, Any]:
    """Return the report of a load test."""
    try:
        report = loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise _unreadable(error) from None
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict) or not isinstance(report.get("rows"), list) or "percentiles" not in report:
        raise ValueError(f"{path} is not the JSON of a load test: Report.to_json() writes it")
    if not all(isinstance(row, dict) and row.keys() >= _ROW for row in report["rows"]):
        raise KeyError("rows")
    return report


def _show_load_test(arguments: argparse.Namespace, report: dict[str, Any]) -> int:
    if arguments.baseline is not None or arguments.export or arguments.max_voice_to_voice is not None:
        raise ValueError(
            "A load test has no recording, which --baseline, --export and --max-voice-to-voice need. "
            "`rtvi-sync load --max-p95 'answer first audio' S` limits its times; client.record() in the function of "
            "its --scenario makes recordings"
        )
    if arguments.html is not None:
        name = Path(arguments.paths[0]).name
        write_file(arguments.html, render(name, {"kind": "load", "name": name, "report": report}).encode())
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"{report['sessions']} sessions in {report['seconds']:.1f} s, {report['failed']} failed")
        rows = [
            (
                clean(each["name"] if each["kind"] == each["name"] else f"{each['kind']} {each['name']}"),
                str(each["count"]),
                *(in_ms(each[name]) for name in ("p50", "p95", "p99", "longest")),
            )
            for each in report["percentiles"]
        ]
        _print_table(("ms", "count", "p50", "p95", "p99", "longest"), rows)
        for line in (*report["errors"], *report["sides"]):
            print(clean(line))
    return 1 if report["failed"] else 0
