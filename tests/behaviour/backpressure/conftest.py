"""A bot in its own process, and clients of it, over any transport that has a socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import EvalTransport, RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[3]

#: Runs a test, or all of a module, once over each transport; without it `bot` is reached over protobuf.
BY_TRANSPORT = pytest.mark.parametrize(
    "bot", [WebSocketTransport, EvalTransport], ids=["websocket", "eval"], indirect=True
)


@attrs.frozen
class BotProcess:
    """A flooding bot. A stopped one is like a frozen machine: its kernel accepts a little data, the bot none."""

    ws_url: str
    process: subprocess.Popen[str]
    transport: type[WebSocketTransport | EvalTransport]

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def bot(request: pytest.FixtureRequest) -> Iterator[BotProcess]:
    """Yield a flooding bot in its own process, so that the test process's memory is the client's alone."""
    command = [sys.executable, "-m", "tests.behaviour.backpressure.flooding_bot"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environ) as process:
        assert process.stdout is not None
        try:
            transport = getattr(request, "param", WebSocketTransport)
            yield BotProcess(process.stdout.readline().strip(), process, transport)
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def client_of(bot: BotProcess, *, transport: dict[str, Any] | None = None, **options: Any) -> RTVIClient:
    options = {"mic": SilenceSource(), "speaker": NullSink(), "enable_mic": False, "connect_timeout": GUARD, **options}
    return RTVIClient(transport=bot.transport(bot.ws_url, **transport or {}), **options)
