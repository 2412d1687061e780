"""The bots that WebRTC is measured with, each in a process of its own: Pipecat's, and one that costs little."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_STOCK = _ROOT / "tests/pipecat/bots/stock.py"
_STOCK_OPTIONS = ("--echo", "--entries", "webrtc,websocket", "--pictures", "640x480")


def pipecat_python() -> str | None:
    """Return the Python that has Pipecat; None if it is unavailable."""
    return os.environ.get("RTVI_PEER_PIPECAT")


@contextlib.contextmanager
def pipecat_bot() -> Iterator[str]:
    """Run Pipecat's own runner within the block, with bots that send voice and pictures back; yield its address."""
    python = pipecat_python()
    assert python is not None
    environ = {"LOGURU_LEVEL": "WARNING", "RTVI_BOT_ENDS_WITH_STDIN": "1"}
    with _running([python, _STOCK, *_STOCK_OPTIONS], environ) as line:
        url: str = json.loads(line)["base_url"]
        yield url


@contextlib.contextmanager
def packet_bot() -> Iterator[str]:
    """Run the bot of `packet_bot` within the block; yield its address."""
    with _running([sys.executable, "-m", "benchmarks.packet_bot"], {}) as line:
        yield line


@contextlib.contextmanager
def _running(command: Sequence[str | Path], environ: Mapping[str, str]) -> Iterator[str]:
    """Run a bot that ends with its input, and yield the line that it prints when it listens."""
    pipe = subprocess.PIPE
    bot = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=_ROOT, env={**os.environ, **environ}
    )
    assert bot.stdin is not None
    assert bot.stdout is not None
    with bot:  # waits for the process
        yield bot.stdout.readline().strip()
        bot.stdin.close()
