"""A session whose process has no descriptor left: calls that need none work; the others raise an error that says so."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.processes import run_python
from tests.support.selection import some_of
from tests.support.slowness import GUARD

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the system has no limit that a process can set")

# In a fresh process each: the imports of one call would spare another one its own, and a warm process has them all.
SCRIPT = """
import resource, sys

from rtvi_sync import ReconnectPolicy, RTVIClient, RTVIError, RTVIEvent
from rtvi_sync.media import NullSink, SilenceSource

SPEECH = b"\\1\\x20" * 8000


def expect(client):
    with client.expect(within=60) as expect:
        client.send_text("Hello")
        expect.text("Yes")


def ask_in_turn(client):
    client.ask("Hello", timeout=60)
    client.ask(SPEECH, timeout=60, sample_rate_hz=16000)
    return [repr(turn) for turn in client.turns()]


CALLS = {
    "ask": ask_in_turn,
    "ask at another rate": lambda client: client.ask(SPEECH, timeout=60, sample_rate_hz=24000),
    "listen": lambda client: (client.send_text("Hello"), client.listen(60)),
    "barge_in": lambda client: client.barge_in("Stop", after="server-message").cancel(),
    "expect": expect,
    "turns": lambda client: client.turns(),
    "stats": lambda client: client.stats(),
    "wait_until_ready": lambda client: client.wait_until_ready(60),
    "send_client_request": lambda client: client.send_client_request("echo", 1),
    "on": lambda client: [client.on(event, lambda: None) for event in RTVIEvent],
    "events": lambda client: client.events().close(),
    "describe_actions": lambda client: client.describe_actions(),
    "switch": lambda client: (client.update_mic(SilenceSource()), client.enable_mic(False), client.tracks()),
    "disconnect": lambda client: client.disconnect(),
}
url, name = sys.argv[1:]
client = RTVIClient.for_url(
    url,
    mic=SilenceSource(),
    speaker=NullSink(),
    connect_timeout=60,
    request_timeout=60,
    reconnect=ReconnectPolicy(),
)
client.connect()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
try:
    CALLS[name](client)
    print("works")
except RTVIError as error:
    print(type(error).__name__, error)
finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
with client:
    client.ask("Hello", timeout=60)
"""

CALLS = "ask listen barge_in turns stats wait_until_ready send_client_request switch disconnect"


def call(name: str, **options: Any) -> str:
    """Make a call in a session whose process has no descriptor left; return the process's report."""
    with EmbeddedBot(replies="Yes.", **options) as bot:
        code, out, err = run_python(SCRIPT, bot.ws_url, name, timeout=2 * GUARD, executable=sys.executable)
    assert (code, err) == (0, ""), err
    return out.strip()


@pytest.mark.parametrize("name", some_of(CALLS.split(), "ask", "barge_in", "turns", "disconnect"))
def test_what_needs_no_descriptor_works(name: str) -> None:
    """`connect()` has imported the modules that a session needs."""
    assert call(name) == "works"


@pytest.mark.parametrize("name", some_of(["expect", "on", "events", "describe_actions"], "on"))
def test_what_imports_the_payloads_of_further_messages(name: str) -> None:
    """The error gives advice, and the session continues."""
    says = call(name, version="1.0.0", actions={})
    assert re.fullmatch("RTVIError .* could not be imported: .* Close files and connections .*", says, re.DOTALL)


def test_audio_that_a_library_is_to_convert() -> None:
    """Converting audio imports a library on first use; the error says how to fix it."""
    assert re.fullmatch("works|(DeviceError|MissingExtraError) .*", call("ask at another rate"), re.DOTALL)


LOST = """
import logging, resource, sys

from rtvi_sync import ReconnectPolicy, RTVIClient, RTVIEvent

logging.getLogger("rtvi_sync").setLevel(logging.ERROR)  # without the failed attempts
policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.1, max_attempts=None)
with RTVIClient.for_url(sys.argv[1], text_only=True, connect_timeout=60, reconnect=policy) as client:
    events = client.events(RTVIEvent.RECONNECTING, RTVIEvent.RECONNECT_FAILED, timeout=60)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    client.send_client_message("leave")
    print([next(events).type.value for _ in range(3)])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.wait_until_ready(60)
    print(client.ask("Hello", timeout=60).bot_text)
"""


def test_a_lost_session_is_replaced_when_there_is_one() -> None:
    """The code that repeats attempts has been imported, too: those without a descriptor fail, and a later one works."""

    def leave(session: BotSession, message: Any) -> bool:
        if leaves := message["type"] == "client-message":
            session.close(1011, "restart")
        return leaves

    with EmbeddedBot(replies="Yes.", handler=leave) as bot:
        code, out, err = run_python(LOST, bot.ws_url, timeout=2 * GUARD, executable=sys.executable)
    assert (code, err) == (0, ""), err
    assert out.splitlines() == [str(["reconnecting"] * 3), "Yes."]
