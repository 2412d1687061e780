"""Hold a spoken conversation with a bot: no microphone, no loudspeaker and no key are needed.

Says a WAV file, part by part, hears the bot out after each, and shows what is said, how fast the bot reacts, and
where the recording of both voices is.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rtvi_sync import BotReadyData, RTVIClient, RTVIError, StartBotError, WebSocketTransport
from rtvi_sync.notes import latency
from rtvi_sync.notes.recording import Recorder, find_resampler, played, write_conversation
from rtvi_sync.testing import EmbeddedBot

from .conversation import Conversation, Ear
from .screen import Screen, screen_for
from .speech import SHIPPED, Mouth, Speech, load_speech

_CONNECT_TIMEOUT = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--url",
        type=_url,
        help="where a bot is: ws:// or wss:// of its WebSocket; http:// or https:// of its connect endpoint's server "
        "(POST URL/connect), or, ending in /start, of a Pipecat runner (http://localhost:7860/start). Without it the "
        "demo starts a bot of its own",
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
        "--timeout", type=_seconds, default=60.0, metavar="S", help="break off after so many seconds (%(default)g)"
    )
    parser.add_argument(
        "--greeting",
        type=_seconds,
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
    out: Path = arguments.out.absolute()
    if not os.access(out.parent, os.W_OK):
        raise RTVIError(f"Cannot write {out}: give --out a file in a directory that exists and is yours")
    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(screen_for())
        url, greeting = arguments.url, arguments.greeting
        if url is None:
            bot = stack.enter_context(EmbeddedBot(transcripts=speech.words))
            url, greeting = bot.base_url, 0.0
            _introduce_built_in_bot(screen, speech)
        mouth, ear, recorder = Mouth(speech.sample_rate_hz), Ear(), Recorder(limit=arguments.timeout + 60.0)
        client, connect = _client_for(url, mouth, ear)
        # While connecting, because a bot may speak as soon as it is there.
        client.on("connected", lambda: recorder.attach(client.tracks()))
        talk = Conversation(client, mouth, ear, screen)
        problem: BaseException | None = None
        with contextlib.closing(client):
            talk.note(_description_of(_connected(connect, url)))
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


def _client_for(url: str, mouth: Mouth, ear: Ear) -> tuple[RTVIClient, Callable[[], BotReadyData]]:
    """A client, and what connects it."""
    direct, starts = url.startswith("ws"), _starts(url)
    client = RTVIClient(
        transport=WebSocketTransport(url if direct else None),
        params=None if direct or starts else {"base_url": url.rstrip("/").removesuffix("/connect")},
        mic=mouth,
        speaker=ear,
        connect_timeout=_CONNECT_TIMEOUT,
    )
    return client, partial(client.start_bot_and_connect, url) if starts else client.connect


def _starts(url: str) -> bool:
    return url.startswith("http") and urlsplit(url).path.rstrip("/").endswith("/start")


def _connected(connect: Callable[[], BotReadyData], url: str) -> BotReadyData:
    try:
        return connect()
    except StartBotError as error:
        if error.status != 404 or _starts(url):
            raise
        raise StartBotError(f"{error} (the address of a Pipecat runner ends in /start)", status=404) from error


def _description_of(ready: BotReadyData) -> str:
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"


def _report(screen: Screen, talk: Conversation, recorder: Recorder, out: Path) -> None:
    user, bot = recorder.stop()
    sounds = latency.moments_of_sound(user), latency.moments_of_sound(bot)
    latencies = latency.measure(talk.said, *sounds, talk.finals, talk.texts, talk.interruptions)
    if latencies:
        screen.line("")
        screen.table(latency.TITLE, latency.HEADERS, latency.as_rows(latencies))
        screen.line("")
    sides = played(user), played(bot, talk.interruptions)
    files = write_conversation(out, *sides, find_resampler())
    if files == [out]:
        screen.line(f"The conversation is in {out} (left: you, right: the bot)")
    elif files:
        screen.line("Each side has a file of its own, because the sample rates differ and soxr is not installed")
        screen.line(f'(pip install "rtvi_sync[resample]"). They begin at the same moment: {", ".join(map(str, files))}')


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname
    except ValueError:
        fits = None
    if not fits:  # the text is not repeated: it may hold a key
        raise argparse.ArgumentTypeError("a URL is needed that begins with http://, https://, ws:// or wss://")
    return parts.geturl()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
