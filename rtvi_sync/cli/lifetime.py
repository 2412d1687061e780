"""The lifetime of a command: it ends cleanly at a signal, and a server runs until one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from rtvi_sync import RTVIError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch
from rtvi_sync.testing import EmbeddedBot, ReplayBot

# Errors of a port that another program uses, or that the system reserves.
_PORT_ERRORS = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit at SIGTERM and SIGHUP, so that session, recording and terminal end cleanly."""

    def exit_process(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {
        number: signal.signal(number, exit_process)
        for name in ("SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None
        and signal.getsignal(number) is not signal.SIG_IGN  # set by nohup for SIGHUP
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(bot: EmbeddedBot | ReplayBot, *, as_json: bool) -> None:
    """Run a bot and print its URL, then the URL of its WebSocket; block until the process is told to end.

    Args:
        bot: Bot before its start.
        as_json: True to print JSON.

    Raises:
        RTVIError: Its port cannot be used.
        OSError: It cannot listen for another reason.
        KeyboardInterrupt, SystemExit: The process was told to end. The bot has stopped.
    """
    with exit_on_signals():
        try:
            bot.start()
        except OSError as error:
            if error.errno not in _PORT_ERRORS:
                raise
            raise RTVIError(
                f"The bot cannot listen: {os.strerror(error.errno)}. Pass another --port; 0 takes any free one"
            ) from error
        try:
            if as_json:
                print(json.dumps({"url": bot.base_url, "ws_url": bot.ws_url}), flush=True)
            else:
                print(bot.base_url, bot.ws_url, sep="\n", flush=True)
                if sys.stdout.isatty():
                    print("Ctrl-C ends the bot.", flush=True)
            Latch().wait(Deadline(None))  # Ctrl-C interrupts this on every system
        finally:
            bot.stop()
