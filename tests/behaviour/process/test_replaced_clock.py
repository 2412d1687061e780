"""A process whose clock a tool for tests has replaced: limits still pass, and voices are sent in real time."""

from __future__ import annotations

import sys

import pytest

from tests.support.processes import run_python

#: The replacement of the clock, by tool: statements that define the context manager `stopped()`.
TOOLS = {
    "freezegun": "from freezegun import freeze_time\nstopped = lambda: freeze_time('2026-01-01')",
    "time-machine": "import time_machine\nstopped = lambda: time_machine.travel(0, tick=False)",
    "a fixture": """
import time
from contextlib import contextmanager
from unittest import mock
@contextmanager
def stopped():
    with mock.patch.multiple("time", monotonic=lambda: 7.0, perf_counter=lambda: 7.0, time=lambda: 7.0):
        yield
""",
}

LIMITS = """
import socket
import sys
from rtvi_sync import RTVIClient, RTVIError, ReconnectPolicy, WebSocketTransport, connect
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import EmbeddedBot

def outcome(call):
    try:
        return call()
    except (RTVIError, TimeoutError) as error:
        return type(error).__name__

with EmbeddedBot(hangover=0.2, handler=lambda _, message: message["type"] == "client-message") as bot:
    with connect(bot.ws_url, mic=False, speaker=False, connect_timeout=30) as client, stopped():
        print("request", outcome(lambda: client.send_client_request("nothing", timeout=0.1)))
        print("event", outcome(lambda: client.wait_for("bot-interrupted", timeout=0.1)))
        print("text", outcome(lambda: client.ask("hello", timeout=30).bot_text))
        print("voice", outcome(lambda: client.ask(ToneSource(duration=0.3), timeout=30).status))
with socket.create_server(("127.0.0.1", 0)) as silent, stopped():
    url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
    print("connect", outcome(lambda: connect(url, text_only=True, connect_timeout=0.1)))
with stopped():
    policy = ReconnectPolicy(max_attempts=None, max_elapsed=0.1, initial_delay=0.01)
    client = RTVIClient(transport=WebSocketTransport(url), mic=False, speaker=False, reconnect=policy)
    print("repeated", outcome(client.connect))
"""

EXPECTED = """request RequestTimeoutError
event RequestTimeoutError
text You said: hello
voice complete
connect ConnectionTimeoutError
repeated TransportStartError
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_limits_pass(tool: str) -> None:
    """Requests, waits, spoken questions and repeated attempts end as they do beside a clock that runs."""
    assert run_python(TOOLS[tool] + LIMITS) == (0, EXPECTED, "")


def test_the_package_is_imported_while_the_clock_stands_still() -> None:
    """A limit passes also if the first import of the package is inside `freeze_time()`."""
    script = "from freezegun import freeze_time\nstopped = lambda: freeze_time('2026-01-01')\nwith stopped():\n"
    indented = "".join(f"    {line}\n" for line in LIMITS.splitlines())
    assert run_python(script + indented, executable=sys.executable) == (0, EXPECTED, "")
