"""Commands that serve a bot until they are told to end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.support.talk_command import environment


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that serves a bot; yield its first line and the process."""
    words = [sys.executable, "-W", "error", "-m", "rtvi_sync", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()
