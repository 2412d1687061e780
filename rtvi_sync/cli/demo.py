"""Hold a spoken conversation with a bot, without a microphone, speaker or key.

Plays the utterances of a WAV file, waits for the bot's answer after each, and prints the transcript, the bot's
latencies and the path of the recording of both voices.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from rtvi_sync import RTVIClient, RTVIError, Turn
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.recording import latency
from rtvi_sync.testing import EmbeddedBot

from .arguments import (
    URL_HELP,
    add_connect_options,
    check_different,
    connect_options,
    describe_bot,
    limit,
    recorded,
    seconds,
    url,
    writable_wav,
)
from .demo_session import DemoSession
from .screen import Screen, screen_for
from .scripted_speech import SHIPPED, ScriptedSpeech, load_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--url",
        type=url,
        help=f"address of the bot: {URL_HELP}. Without it, the demo starts the embedded bot",
    )
    parser.add_argument(
        "--speech",
        type=Path,
        default=SHIPPED,
        metavar="WAV",
        help="your part of the conversation, cut at its pauses. A .txt file beside it, with one line for each part, "
        "gives the embedded bot the words",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("conversation.wav"),
        metavar="WAV",
        help="recording of the conversation (%(default)s); its messages are beside it (.jsonl)",
    )
    parser.add_argument(
        "--seconds", type=limit, default=60.0, metavar="S", help="end the conversation after S seconds (%(default)g)"
    )
    parser.add_argument(
        "--greeting",
        type=seconds,
        default=3.0,
        metavar="S",
        help="with --url: wait up to S seconds for the bot to speak first (%(default)g)",
    )
    add_connect_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Hold the conversation, and return the exit status.

    Raises:
        RTVIError: The file has no speech, the bot cannot be reached, or the conversation ended early. In the last case,
            its latencies and its recording are reported first.
        OSError: The recording cannot be written.
        KeyboardInterrupt: Ctrl-C was pressed. The report precedes it, too.
    """
    speech = load_script(arguments.speech)
    out = writable_wav(arguments.out, "--out")
    check_different({"--speech": arguments.speech, "--out": out})
    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(screen_for())
        address, greeting = arguments.url, arguments.greeting
        if address is None:
            bot = stack.enter_context(EmbeddedBot(transcripts=speech.words))
            address, greeting = bot.base_url, 0.0
            _print_bot_introduction(screen, speech)
        # The speech replaces a silent microphone, so that the bot hears the pauses, too.
        silence = SilenceSource(speech.sample_rate_hz)
        client = RTVIClient.for_url(address, **connect_options(arguments), mic=silence, speaker=NullSink())
        next_steps = stack.enter_context(contextlib.ExitStack())  # printed after the name of the recording
        stack.enter_context(recorded(client, out, screen.print_line))
        session = DemoSession(client, screen)
        problem: BaseException | None = None
        with contextlib.closing(client):
            session.print_timed(describe_bot(client.connect()))
            try:
                session.run(speech, greeting=greeting, timeout=arguments.seconds)
            except (RTVIError, KeyboardInterrupt) as error:
                problem = error
        _report(screen, client.turns())
        if problem is not None:
            raise problem
        if arguments.url is None:
            next_steps.callback(screen.print_line, "Talk to a bot of yours: rtvi-sync talk http://localhost:7860")
        rows, page = (arguments.out.with_suffix(suffix) for suffix in (".jsonl", ".html"))
        next_steps.callback(screen.print_line, f"See this one: rtvi-sync show {rows} --html {page}")
    return 0


_EMBEDDED_BOT = """\
This is the embedded bot. It detects speech, but has no speech recognition, no language model and no voice.
The words of its transcripts {words}, and it answers with the audio of what you said.
Use --url URL to talk to a real bot.
"""


def _print_bot_introduction(screen: Screen, speech: ScriptedSpeech) -> None:
    words = f"are read from {speech.words_from.name}" if speech.words_from else "are missing"
    for line in _EMBEDDED_BOT.format(words=words).split("\n"):
        screen.print_line(line)


def _report(screen: Screen, turns: Sequence[Turn]) -> None:
    asked = [turn for turn in turns if turn.initiator == "user"]
    if asked:
        # Without the questions, which are to be read above.
        headers, *rows = ((*row[:2], *row[latency.TEXTS :]) for row in (latency.HEADERS, *latency.as_rows(asked)))
        screen.print_line("")
        screen.print_table(latency.TITLE, headers, rows, texts=2)
        screen.print_line("")
