"""The bot of samples/local_bot: its environment, its questions and its process. Standard library only."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from .environments import INSTALL_SECONDS, install, pinned_environment, read_pins
from .machine import LOG, ROOT, SetupError, run_quietly, started

LOCAL_BOT = ROOT / "samples" / "local_bot"
# Minor versions of Python 3 on which Pipecat runs. PocketSphinx has no wheel for 3.12 everywhere, and is built there.
_MINORS = (11, 13, 12)
_START_SECONDS = 120.0
_INTERVAL = 0.1
# Runs the bot until standard input ends, which it also does if this process is killed.
_PROGRAM = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
runpy.run_module("samples.local_bot", run_name="__main__", alter_sys=True)
"""


def local_bot_environment(seconds: float = INSTALL_SECONDS) -> Path:
    """Return the Python of the local bot's environment, which is installed within a time limit, but for WebRTC."""
    what = "the local bot (0.6 GB)"
    return pinned_environment("local-bot", _MINORS, LOCAL_BOT / "requirements.txt", what, seconds)


def add_webrtc(python: Path) -> Path:
    """Install the packages for the bot's entry `webrtc`, and return the environment's Python."""
    install(python, read_pins(LOCAL_BOT / "requirements-webrtc.txt"), "the packages for webrtc (0.3 GB)")
    return python


def speak_questions(python: Path, wav: Path) -> Path:
    """Have espeak-ng speak the questions into a file, and return its path."""
    if not run_quietly([python, "-m", "samples.local_bot.questions", wav], cwd=ROOT):
        raise SetupError(f"espeak-ng does not speak here; {LOG} has its error")
    return wav


@contextlib.contextmanager
def serve_local_bot(python: Path, log: Path = LOG) -> Iterator[str]:
    """Run the local bot, and yield its URL when it listens. Its output is appended to a log file."""
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        log.open("ab") as output,
        started(
            [python, "-c", _PROGRAM, "--host", "localhost", "--port", port],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            start_new_session=True,  # so that Ctrl-C ends the conversation before it ends the bot
        ) as child,
    ):
        try:
            _wait_until_it_listens(child, port, log)
            yield f"http://localhost:{port}"
        finally:
            child.kill()  # its conversation is over
            child.communicate()


def _wait_until_it_listens(child: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("localhost", port), _INTERVAL).close()
            return
        time.sleep(_INTERVAL)
    raise SetupError(f"it does not start; {log} has its output")
