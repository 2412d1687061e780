"""Ask a bot one question, typed or spoken from a file, and print its answer.

stdout has only the bot's text; its errors are on stderr.

Exit status: 0 if the bot answered; 1 if the answer is missing or incomplete; 2 if the arguments are wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from rtvi_sync import BotReadyData, RTVIClient, RTVIError, Turn
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.conversation.follow import about_bot
from rtvi_sync.media import AudioSource, NullSink
from rtvi_sync.protocol.text import clean, one_line
from rtvi_sync.recording.percentiles import MEASURES
from rtvi_sync.recording.summary import turn_as_data

from .arguments import (
    SAMPLE_HELP,
    URL_HELP,
    add_connect_options,
    add_json_option,
    check_different,
    check_takes_text,
    connect_options,
    question_file,
    recorded,
    url,
    words,
    writable_wav,
    wrong_usage,
)
from .screen import PlainScreen
from .scripted_speech import sample

# The fields of a JSON answer, from `turn_as_data()`.
_OF_TURN = ("spoken_text", "status", "calls", *MEASURES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=url, metavar="URL", help=f"address of the bot: {URL_HELP}")
    parser.add_argument("text", nargs="?", type=words, metavar="TEXT", help="typed question")
    parser.add_argument("--wav", type=Path, metavar="FILE", help="spoken question, an audio file")
    parser.add_argument("--sample", action="store_true", help=SAMPLE_HELP)
    parser.add_argument("--out", type=Path, metavar="WAV", help="write the bot's speech to this file")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="WAV",
        help="write both voices to this file (left: you, right: the bot), and all messages beside it (.jsonl)",
    )
    add_json_option(parser)
    add_connect_options(parser, timeout=30.0, late="the bot has not answered")


def run(arguments: argparse.Namespace) -> int:
    """Ask the question, and return the exit status.

    Raises:
        RTVIError: The answer is incomplete, or the recording is.
        OSError: A file cannot be written.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    try:
        question = _question(arguments)
        if arguments.text is not None:
            check_takes_text(arguments)
        out = writable_wav(arguments.out, "--out") if arguments.out else None
        record = writable_wav(arguments.record, "--record") if arguments.record else None
        check_different({"--wav": arguments.wav, "--out": out, "--record": record})
    except RTVIError as error:
        return wrong_usage("ask", error)
    deadline = Deadline(arguments.timeout)
    client = RTVIClient.for_url(arguments.url, **connect_options(arguments), mic=False, speaker=NullSink())
    ready: BotReadyData | None = None
    turn: Turn | None = None
    problem: RTVIError | OSError | None = None
    try:
        with recorded(client, record, PlainScreen(sys.stderr).print_line), contextlib.closing(client):
            try:
                ready = client.connect()
                turn = client.ask(question, round(deadline.remaining() or 0.0, 2))
                problem = _fault_of(turn)
            except RTVIError as error:
                turn, problem = getattr(error, "turn", None), error
        if out is not None and turn is not None and turn.audio:
            turn.audio.save(out)
            print(f"The bot's voice is in {out}", file=sys.stderr)
    except (RTVIError, OSError) as error:  # a file's error, which must not cost the answer
        problem = problem or error
    if arguments.json:
        print(json.dumps(_document(ready, turn, problem), indent=1, default=str))
        return 0 if problem is None else 1
    if turn is not None:
        _print_answer(turn)
    if problem is not None:
        raise problem
    return 0


def _question(arguments: argparse.Namespace) -> str | AudioSource:
    """Return the question.

    Raises:
        RTVIError: There is no question or more than one, or the file cannot be read.
    """
    if (arguments.text is not None) + (arguments.wav is not None) + arguments.sample != 1:
        raise RTVIError("Pass one question: TEXT, --wav FILE or --sample")
    if arguments.sample:
        return sample()
    if arguments.wav is None:
        text: str = arguments.text
        return text
    return question_file(arguments.wav)


def _print_answer(turn: Turn) -> None:
    for line in (turn.bot_text or "").splitlines():
        print(one_line(line, len(line)))
    if turn.bot_text is None and turn.audio:
        print(f"The bot spoke for {turn.audio.seconds:.1f} s; its words are unknown", file=sys.stderr)
    for reported in turn.errors:
        print(f"The bot reports an error: {clean(reported.message)}", file=sys.stderr)


def _fault_of(turn: Turn) -> RTVIError | None:
    """Return the fault of an answer; None if it is complete."""
    if turn.status == "interrupted":
        return RTVIError(
            "The answer was interrupted. See the bot's log for the audio that it took for the user's voice"
        )
    if turn.status == "failed":
        return RTVIError("The session ended before the answer was complete. See the bot's log")
    if not turn.bot_text and not turn.audio:
        return RTVIError("The bot did not answer. `rtvi-sync doctor` looks for the cause")
    return None


def _document(ready: BotReadyData | None, turn: Turn | None, problem: RTVIError | OSError | None) -> dict[str, Any]:
    data = {} if turn is None else turn_as_data(turn)
    return {
        "ok": problem is None,
        "text": data.get("bot_text"),
        **{name: data.get(name) for name in _OF_TURN},
        "errors": [] if turn is None else [error.message for error in turn.errors],
        "rtvi": None if ready is None else ready.version,
        "bot": None if ready is None else about_bot(ready),
        "error": None if problem is None else str(problem),
    }
