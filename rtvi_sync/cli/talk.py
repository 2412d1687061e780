"""Talk to a bot hands-free, by microphone and speaker, with transcript and meters; or type.

On a terminal, the last two lines show the levels and the keys. Otherwise lines are read from stdin: each is sent after
the bot has answered the one before, the conversation ends after the last answer (status 1 if the bot ends it earlier),
and only devices named by --mic and --speaker are used. In a telephone call, a line is keys: 0-9, * and #. Ctrl-C
(status 130) or Ctrl-D (0) ends the conversation at any time. SIGTERM and SIGHUP end the session first, then the
process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TextIO

from rtvi_sync import RTVIClient
from rtvi_sync.installation import install_command
from rtvi_sync.media import WavSource
from rtvi_sync.media.devices.echo_canceller import is_available
from rtvi_sync.session.connect_request import TELEPHONY

from .arguments import (
    URL_HELP,
    add_connect_options,
    check_different,
    connect_options,
    recorded,
    url,
    writable_wav,
)
from .console import Console, LineConsole
from .device_choice import DEFAULT, NONE, select_mic, select_speaker, suppress_device_logs
from .lifetime import exit_on_signals
from .screen import PlainScreen, screen_for
from .scripted_speech import silence_after
from .talk_session import TalkSession


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=url, metavar="URL", help=f"address of the bot: {URL_HELP}")
    parser.add_argument(
        "--mic",
        metavar="MIC",
        help="microphone: its id or a part of its name, as `rtvi-sync devices` lists them; an audio file to play; "
        f"{DEFAULT!r} for the system's default (the default on a terminal); or {NONE!r} to start muted (the default "
        "elsewhere)",
    )
    parser.add_argument(
        "--speaker",
        metavar="SPEAKER",
        help=f"speaker: its id or name; a WAV file to write instead; {DEFAULT!r}; or {NONE!r} for no output",
    )
    parser.add_argument(
        "--no-echo-cancellation",
        action="store_true",
        help="send the microphone's audio unchanged. By default the bot's voice is removed, if the extra aec is "
        "installed, and microphone and speaker are devices",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="WAV",
        help="write both voices to this file (left: you, right: the bot), and all messages beside it (.jsonl)",
    )
    add_connect_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Hold the conversation, and return the exit status.

    Raises:
        RTVIError: A device does not exist, the bot cannot be reached, or the connection was lost.
        OSError: The recording cannot be written.
        KeyboardInterrupt: Ctrl-C was pressed.
        SystemExit: SIGTERM or SIGHUP was received.
    """
    record = writable_wav(arguments.record, "--record") if arguments.record else None
    # In a pipeline or a service, no device is looked for unless an option names one.
    default = DEFAULT if sys.stdin is not None and sys.stdin.isatty() else NONE
    mic_name, speaker_name = arguments.mic or default, arguments.speaker or default
    mic, sink = select_mic(mic_name), select_speaker(speaker_name)
    mic_file, speaker_file = getattr(mic, "path", None), getattr(sink, "path", None)
    check_different({"--mic": mic_file, "--speaker": speaker_file, "--record": record})
    has_echo = isinstance(mic, str | None) and isinstance(sink, str | None)
    echo_cancellation = has_echo and not arguments.no_echo_cancellation and is_available()
    client = RTVIClient.for_url(
        arguments.url,
        **connect_options(arguments),
        mic=mic,
        speaker=sink,
        enable_mic=mic_name != NONE,
        echo_cancellation=echo_cancellation,
    )

    # An answer may arrive during the silence at the end of a file.
    mic_silence = silence_after(mic.pcm, mic.sample_rate_hz) if isinstance(mic, WavSource) else 0.0

    def mic_ended() -> bool:
        if isinstance(mic, WavSource):
            return mic.wait(0)
        return mic_name == NONE or client.media_state.mic.state == "error"

    hint = f"talk, or type {'keys (0-9 * #)' if arguments.transport in TELEPHONY else 'here'} and press Enter"
    print_line = PlainScreen(sys.stdout).print_line
    with (
        exit_on_signals(),
        suppress_device_logs(),
        recorded(client, record, print_line),
        console_for(hint=hint) as console,
        contextlib.closing(client),
    ):
        _print_introduction(console, hint, has_echo=has_echo, echo_cancellation=echo_cancellation)
        # Used until the client knows a device's own name. A file keeps this name.
        names = {"mic": Path(mic_name).name, "speaker": Path(speaker_name).name}
        session = TalkSession(client, console, **names, mic_ended=mic_ended, mic_silence=mic_silence)
        session.run(client.connect)
    return 0


def console_for(stdin: TextIO | None = None, stdout: TextIO | None = None, *, hint: str = "") -> Console:
    """Return the console for two streams (None: this process's): with prompt_toolkit on a terminal if installed.

    `hint` is shown while the input line is empty.
    """
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    if stdin is None or not stdin.isatty():
        return LineConsole(stdin, screen_for(stdout))
    if stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown"):
        try:
            from .terminal import TerminalConsole

            return TerminalConsole(stdout, hint)
        except ModuleNotFoundError:
            print(f"For meters and keys: {install_command('cli')}", file=sys.stderr)
    # The terminal itself echoes typed text, so nothing may be drawn over it.
    return LineConsole(stdin, PlainScreen(stdout))


def _print_introduction(console: Console, hint: str, *, has_echo: bool, echo_cancellation: bool) -> None:
    if not console.interactive:
        return
    if isinstance(console, LineConsole):
        console.print_line(f"{hint.capitalize()}. Ctrl-C ends.")
    if echo_cancellation:
        console.print_line("Echo cancellation is on (--no-echo-cancellation turns it off).")
    elif has_echo:
        console.print_line(f"Use a headset, or the bot hears itself. {install_command('aec')} cancels the echo.")
