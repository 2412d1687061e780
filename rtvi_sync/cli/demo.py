"""Hold a spoken conversation with a bot: no microphone, no loudspeaker and no key are needed.

Says a WAV file, part by part, hears the bot out after each, and shows what is said, how fast the bot reacts, and
where the recording of both voices is.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.recording import latency
from rtvi_sync.recording.recorder import Recorder, simulate_playback
from rtvi_sync.testing import EmbeddedBot

from .arguments import seconds, url
from .bot_address import URL_HELP, greeting_of
from .demo_session import Conversation, Ear
from .recording_file import keep, writable
from .screen import Screen, screen_for
from .scripted_speech import SHIPPED, Mouth, Speech, load_speech

_CONNECT_TIMEOUT = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--url",
        type=url,
        help=f"where a bot is: {URL_HELP}. Without it the demo starts a bot of its own",
    )
    parser.add_argument(
        "--speech",
        type=Path,
        default=SHIPPED,
        metavar="WAV",
        help="what you say; it is cut at its pauses. A .txt file beside it, one line for each part, tells the built-in "
        "bot the words",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("conversation.wav"),
        metavar="WAV",
        help="where the conversation is written (%(default)s)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="break off after so many seconds (%(default)g)"
    )
    parser.add_argument(
        "--greeting",
        type=seconds,
        default=3.0,
        metavar="S",
        help="with --url: wait so many seconds whether the bot speaks first (%(default)g)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Hold the conversation; returns the exit status.

    Raises:
        RTVIError: there is no speech, no bot or no connection; or the conversation came to no good end, after what
            there was of it has been reported.
        OSError: the recording cannot be written.
        KeyboardInterrupt: Ctrl-C; it is reported likewise.
    """
    speech = load_speech(arguments.speech)
    out = writable(arguments.out, "--out")
    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(screen_for())
        address, greeting = arguments.url, arguments.greeting
        if address is None:
            bot = stack.enter_context(EmbeddedBot(transcripts=speech.words))
            address, greeting = bot.base_url, 0.0
            _introduce_built_in_bot(screen, speech)
        mouth, ear, recorder = Mouth(speech.sample_rate_hz), Ear(), Recorder(limit=arguments.timeout + 60.0)
        client = RTVIClient.for_url(address, mic=mouth, speaker=ear, connect_timeout=_CONNECT_TIMEOUT)
        # While connecting, because a bot may speak as soon as it is there.
        client.on("connected", lambda: recorder.attach(client.tracks()))
        talk = Conversation(client, mouth, ear, screen)
        problem: BaseException | None = None
        with contextlib.closing(client):
            talk.note(greeting_of(client.connect()))
            recorder.attach(client.tracks())
            try:
                talk.hold(speech, greeting=greeting, timeout=arguments.timeout)
            except (RTVIError, KeyboardInterrupt) as error:
                problem = error
                talk.end_of_turn()
        _report(screen, talk, recorder, out)
    if problem is None and not talk.answers:
        problem = RTVIError("The bot has not answered at all")
    if problem is not None:
        raise problem
    return 0


_BUILT_IN_BOT = """\
This is the built-in bot. It hears that you speak, but has no speech recognition, no language model and no voice:
the words of its transcripts {words}, and it answers with the sound of what you said.
A real bot is reached with --url URL.
"""


def _introduce_built_in_bot(screen: Screen, speech: Speech) -> None:
    words = f"are read from {speech.words_from.name}" if speech.words_from else "are missing"
    for line in _BUILT_IN_BOT.format(words=words).split("\n"):
        screen.line(line)


def _report(screen: Screen, talk: Conversation, recorder: Recorder, out: Path) -> None:
    user, bot = recorder.stop()
    sounds = latency.audible_timestamps(user), latency.audible_timestamps(bot)
    latencies = latency.measure(talk.said, *sounds, talk.finals, talk.texts, talk.interruptions)
    if latencies:
        screen.line("")
        screen.table(latency.TITLE, latency.HEADERS, latency.as_rows(latencies))
        screen.line("")
    keep(out, simulate_playback(user), simulate_playback(bot, talk.interruptions), screen.line)
