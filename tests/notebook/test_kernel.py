"""Notebooks in a real kernel, whose main thread runs an asyncio loop."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

from .kernel import CellError, Kernel, running_kernel

SETUP = """
import asyncio, threading, time
from rtvi_sync import *
from rtvi_sync.media import NullSink, ToneSource
from rtvi_sync.notebook import Conversation
from tests.support.threads import end_idle_threads
from rtvi_sync.testing import EmbeddedBot

markup = "<script>alert('x')</script>"
reply = markup + " one two three four five six seven eight nine ten."
bot = EmbeddedBot(transcripts=markup, replies=reply, hangover=0.2).start()

def new_client(**options):
    return RTVIClient(transport=WebSocketTransport(bot.ws_url), speaker=NullSink(), connect_timeout=10, **options)

def session_threads():
    end_idle_threads()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-")]
    return [thread for thread in threads if not thread.name.startswith("rtvi-bot-")]
"""

# The threads of a session that the bot ended may need a moment.
ALL_GONE = """
deadline = time.monotonic() + 5
while (session_threads() or bot.sessions) and time.monotonic() < deadline:
    threading.Event().wait(0.01)
print(session_threads(), len(bot.sessions))
"""


# So may the session of a client that was dropped.
ONE_SESSION = """
deadline = time.monotonic() + 5
while len(bot.sessions) > 1 and time.monotonic() < deadline:
    threading.Event().wait(0.01)
print(len(bot.sessions))
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Kernel]:
    """Yield one kernel for all tests."""
    with running_kernel() as kernel:
        kernel.run(SETUP)
        yield kernel
        kernel.run("bot.stop()")


@pytest.fixture
def kernel(shared: Kernel) -> Iterator[Kernel]:
    """Return the kernel; no thread or session may be left after a test."""
    shared.displays.clear()
    shared.pages.clear()
    yield shared
    assert shared.run("client.close()" + ALL_GONE) == "[] 0\n"


def text_of(page: str) -> str:
    """Return the visible text of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def test_the_transcript_follows_in_its_cell_while_another_one_runs(kernel: Kernel) -> None:
    """Blocking calls work beside the kernel's loop; updates arrive during them, at a limited rate; the last is
    shown."""
    kernel.run("assert asyncio.get_running_loop().is_running()")
    began = time.monotonic()
    kernel.run("client = new_client(mic=ToneSource(440, 0.3)); talk = Conversation(client); display(talk)")
    assert text_of(*kernel.displays.values()) == "disconnected"
    kernel.run("client.connect()")
    kernel.run("client.wait_for('bot-stopped-speaking', timeout=10)")
    markup, words = "<script>alert('x')</script>", "one two three four five six seven eight nine ten."
    assert text_of(*kernel.displays.values()) == f"you {markup}bot {markup} {words}ready"
    assert not any("<script" in page for page in kernel.pages)
    pages, seconds = len(kernel.pages), time.monotonic() - began
    assert 3 <= pages <= 5 + 10 * seconds
    # While the bot speaks, its unspoken words are faint. A busy machine may show a turn only after its end.
    for _ in range(20):
        if any("<span" in page for page in kernel.pages):
            break
        kernel.run("client.ask('Hello')")
    else:
        pytest.fail("nothing was ever faint")
    kernel.run("client.disconnect()")
    assert text_of(*kernel.displays.values()).endswith("This client ended the session")
    assert len(kernel.displays) == 1
    assert "<audio" in kernel.run("talk.audio._repr_html_()")
    assert "first audio" in kernel.run("talk.latency")


def test_an_interrupted_cell_leaves_the_client_usable(kernel: Kernel) -> None:
    """The stop button raises KeyboardInterrupt in a blocked call, and has no other effect."""
    kernel.run("client = new_client(enable_mic=False); talk = Conversation(client); display(talk); client.connect()")
    for call in ("client.wait_for('server-message')", "next(client.events('server-message'))"):
        request = kernel.start(f"print('waiting', flush=True); {call}")
        kernel.wait_for_output(request, "waiting")
        kernel.interrupt()
        with pytest.raises(CellError, match="KeyboardInterrupt"):
            kernel.finish(request)
        assert kernel.run("client.send_client_request('echo', 'still here', timeout=5)") == "'still here'"
    kernel.run("with client.events('bot-llm-stopped', timeout=10) as e: client.send_text('Hello'); next(e)")
    assert "you Hello" in text_of(*kernel.displays.values())


def test_an_interrupted_connect_may_be_run_again(kernel: Kernel) -> None:
    """No part of the attempt is left."""
    kernel.run("silent = EmbeddedBot(ready=False); silent.start()")
    kernel.run("client = RTVIClient(transport=WebSocketTransport(), enable_mic=False, speaker=NullSink())")
    request = kernel.start("print('waiting', flush=True); client.connect({'ws_url': silent.ws_url})")
    kernel.wait_for_output(request, "waiting")
    kernel.interrupt()
    with pytest.raises(CellError, match="KeyboardInterrupt"):
        kernel.finish(request)
    kernel.run("silent.stop()")
    assert "BotReadyData" in kernel.run("client.connect({'ws_url': bot.ws_url})")


def test_a_connect_that_is_run_again_says_what_to_do(kernel: Kernel) -> None:
    """The session continues, and the error names the call that ends it."""
    kernel.run("client = new_client(enable_mic=False); client.connect()")
    with pytest.raises(CellError, match=r"BotAlreadyStartedError: .*disconnect\(\)"):
        kernel.run("client.connect()")
    assert kernel.run("client.send_client_request('echo', 1, timeout=5)") == "1"


def test_an_error_shows_the_lines_of_the_notebook_alone(kernel: Kernel) -> None:
    """The cells' own calls are shown, the message, and what the cell itself was handling; no line of the package."""
    kernel.run("client = RTVIClient(transport=WebSocketTransport('ws://127.0.0.1:1'), speaker=NullSink())")
    kernel.run("def begin():\n    client.connect()")
    with pytest.raises(CellError) as raised:
        kernel.run("begin()")
    lines = raised.value.lines
    assert next(line for line in lines if line.startswith("----> ")).endswith("begin()")
    assert any("client.connect" in line for line in lines)
    assert lines[-2].startswith("TransportStartError: ")
    assert lines[-1].startswith("See: rtvi-sync explain ")
    assert len(lines) < 15
    assert not any("rtvi_sync/" in line for line in lines)
    with pytest.raises(CellError) as raised:
        kernel.run("try:\n    1 / 0\nexcept ZeroDivisionError:\n    new_client().ask('Hi')")
    assert any(line.startswith("ZeroDivisionError") for line in raised.value.lines)
    assert "rtvi_sync/" in kernel.run("import sys, traceback; ''.join(traceback.format_exception(sys.last_value))")


def test_the_stop_button_shows_no_error_that_did_not_happen(kernel: Kernel) -> None:
    """The lines around the wait raise nothing else."""
    kernel.run("client = new_client(enable_mic=False); client.connect()")
    request = kernel.start("print('waiting', flush=True); client.wait_for('server-message')")
    kernel.wait_for_output(request, "waiting")
    kernel.interrupt()
    with pytest.raises(CellError) as raised:
        kernel.finish(request)
    assert not any("WouldDeadlockError" in line for line in raised.value.lines)


def test_a_cell_that_creates_the_client_may_be_run_again(kernel: Kernel) -> None:
    """The old client is dropped, which ends its session; only the new one is followed."""
    cell = "client = new_client(enable_mic=False); talk = Conversation(client); display(talk); client.connect()"
    for _ in range(3):
        kernel.run(cell)
    kernel.run("with client.events('bot-llm-stopped', timeout=10) as e: client.send_text('Hello'); next(e)")
    shown = [text_of(page) for page in kernel.displays.values()]
    assert len(shown) == 3
    assert [text for text in shown if "you Hello" in text] == shown[-1:]
    assert kernel.run(ONE_SESSION) == "1\n"


@pytest.mark.usefixtures("shared")  # the first kernel of a process leaves Jupyter's event loop behind
def test_a_session_that_is_left_open_ends_with_the_kernel() -> None:
    """Stopping the kernel closes the session: the bot sees an ordinary end."""
    with EmbeddedBot() as bot, running_kernel() as kernel:
        kernel.run(SETUP.partition("markup =")[0])
        kernel.run(f"client = RTVIClient(transport=WebSocketTransport({bot.ws_url!r}), enable_mic=False)")
        kernel.run("talk = Conversation(client); display(talk); client.connect()")
        session = bot.wait_for_session()
        kernel.stop()
        end = session.wait_ended(GUARD)
    assert (end.code, end.initiator) == (1000, "client")
