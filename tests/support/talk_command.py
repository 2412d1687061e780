"""The talk command, on pipes and on a pseudo-terminal."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


CONNECTED = "connected to rtvi_sync.testing 0.1.0, RTVI version 2.2.0"


def command(*arguments: object) -> list[str]:
    """Return the words of the command line."""
    return [sys.executable, "-W", "error", "-m", "rtvi_sync", "talk", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment variables of the command."""
    # This terminal does not answer queries of the cursor position.
    more = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**os.environ, **more}


def start(folder: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start the command on pipes."""
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class Terminal:
    """A process on a pseudo-terminal whose output is recorded. A context manager."""

    def __init__(self, folder: Path, *arguments: object, columns: int = 80, **variables: str) -> None:
        import fcntl
        import struct
        import termios

        self._keyboard, self._screen = os.openpty()
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.before = self.settings()
        self.shown = ""
        self._seen = 0
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=folder,
            env=environment() | variables,
            stdin=self._screen,
            stdout=self._screen,
            stderr=self._screen,
        )

    def settings(self) -> list[object]:
        """Return the terminal's settings: echo and the like."""
        import termios

        return list(termios.tcgetattr(self._screen))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._keyboard, keys.encode())

    def until(self, text: str) -> None:
        """Wait until a text is shown, after the one that was waited for before."""
        end = time.monotonic() + 20
        while (found := self.shown.find(text, self._seen)) < 0:
            self._read(end)
        self._seen = found + len(text)

    def finish(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        end = time.monotonic() + 20
        while self.process.poll() is None or select.select([self._keyboard], [], [], 0)[0]:
            self._read(end, 0.05)
        return self.process.returncode

    def _read(self, end: float, patience: float = 1.0) -> None:
        if select.select([self._keyboard], [], [], patience)[0]:
            # Sequences that move the cursor and set colours are removed; the process only overwrites its own text.
            self.shown += re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[=>])", "", os.read(self._keyboard, 65536).decode())
        assert time.monotonic() < end, f"the text has not come: {self.shown!r}"

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)
        os.close(self._screen)
