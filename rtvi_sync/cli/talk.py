"""Talk to a bot, hands-free: by microphone and speaker, with transcript and meters; or type.

On a terminal the last two lines show the levels and the keys. Elsewhere lines are read from stdin, each is sent when
the bot has answered the one before, and the conversation ends when everything has been said and heard. Ctrl-C ends it
at any time (status 130), Ctrl-D too (0). So do SIGTERM and SIGHUP, politely.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from rtvi_sync.media import WavSource
from rtvi_sync.recording.recorder import Recorder, simulate_playback

from .arguments import header, limit, url
from .bot_address import URL_HELP, client_for
from .console import Console, LineConsole
from .console_choice import console_for
from .device_choice import NONE, microphone, speaker
from .log_filter import without_logs_of_devices
from .recording_file import keep, writable
from .screen import PlainScreen
from .talk_session import Talk

_TOKEN = "RTVI_TOKEN"  # noqa: S105 - a name
# What a recording keeps of each side: 16-bit samples of an hour take some 300 MB.
_RECORDED_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=url, metavar="URL", help=f"where the bot is: {URL_HELP}")
    parser.add_argument(
        "--mic",
        metavar="MIC",
        help="a microphone: its id or a part of its name, as `rtvi-sync devices` lists them; a WAV file, which is said "
        f"instead; or {NONE!r}, to begin muted. Without it, the system's default",
    )
    parser.add_argument(
        "--speaker",
        metavar="SPEAKER",
        help=f"a speaker, likewise; a WAV file, which is written instead; or {NONE!r}, to hear nothing",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="WAV",
        help="write both voices to this file, left yours, right the bot's; of a longer conversation, the last hour",
    )
    parser.add_argument(
        "--token",
        default=os.environ.get(_TOKEN),
        help=f"for the bot's WebSocket. Better in the environment, as {_TOKEN}: other users of this machine can read "
        "command lines",
    )
    parser.add_argument(
        "--header",
        type=header,
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="for the connect endpoint, such as 'Authorization: Bearer ...'; may be given several times",
    )
    parser.add_argument(
        "--timeout",
        type=limit,
        default=15.0,
        metavar="S",
        help="give up if the bot is not ready after so many seconds (%(default)g)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Hold the conversation; returns the exit status.

    Raises:
        RTVIError: there is no such device, no bot, or no connection any more.
        OSError: the recording cannot be written.
        KeyboardInterrupt: Ctrl-C.
        SystemExit: SIGTERM or SIGHUP.
    """
    record = writable(arguments.record, "--record") if arguments.record else None
    mic, sink = microphone(arguments.mic), speaker(arguments.speaker)
    client = client_for(
        arguments.url,
        token=arguments.token,
        headers=dict(arguments.header),
        mic=mic,
        speaker=sink,
        enable_mic=arguments.mic != NONE,
        connect_timeout=arguments.timeout,
    )
    recorder = Recorder(limit=_RECORDED_SECONDS)
    if record is not None:
        # While connecting, because a bot may speak as soon as it is there.
        client.on("connected", lambda: recorder.attach(client.tracks()))

    def voice_ended() -> bool:
        if isinstance(mic, WavSource):
            return mic.wait(0)
        return arguments.mic == NONE or client.media_state.mic.state == "error"

    with _ended_by_signals(), without_logs_of_devices():
        interruptions: Iterable[float] = ()
        try:
            with console_for() as console, contextlib.closing(client):
                _introduce(console, mic, sink)
                names = {"mic": _name(arguments.mic), "speaker": _name(arguments.speaker)}
                talk = Talk(client, console, **names, voice_ended=voice_ended)
                interruptions = talk.interruptions
                talk.hold(client.connect)
        finally:
            user, bot = recorder.stop()
            if record is not None:
                keep(
                    record, simulate_playback(user), simulate_playback(bot, interruptions), PlainScreen(sys.stdout).line
                )
    return 0


def _name(wanted: str | None) -> str:
    """What a device, or a file in its place, is called until the client knows better."""
    return Path(wanted).name if wanted else "default"


def _introduce(console: Console, mic: object, sink: object) -> None:
    if not console.attended:
        return
    if isinstance(console, LineConsole):
        console.line("Talk, or type here and press Enter. Ctrl-C leaves.")
    if isinstance(mic, str | None) and isinstance(sink, str | None):
        console.line("Use a headset, or the bot hears itself.")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have the signals that end a process end the session first, keep the recording and give the terminal back."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {
        number: signal.signal(number, leave)
        for name in ("SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
