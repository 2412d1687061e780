"""Bots, transports and servers that the tests of the client have in common."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rtvi_sync import MemoryTransport, RTVIClient, RTVIMessage, WebSocketTransport
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.transports.memory import ready_bot
from tests.slowness import GUARD

#: Long enough for anything that happens at all, on a machine that is busy with other things.
SOON = GUARD


def memory_client(bot: Any = ready_bot, **options: Any) -> RTVIClient:
    """A client of a bot that is a function."""
    options.setdefault("connect_timeout", SOON)
    return RTVIClient(transport=MemoryTransport(bot), **options)


def transport_of(client: RTVIClient) -> Any:
    """The transport that `client` was made with."""
    return client._manager.transport


def silent_bot(transport: MemoryTransport, message: RTVIMessage) -> None:
    """A bot that never says anything."""


def deaf_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
    """A bot that is ready and answers nothing."""
    if message.type == "client-ready":
        yield from ready_bot(transport, message)


def bot_says(client: RTVIClient, type_: str, data: Any = None, id: str | None = None) -> None:
    """Have the bot of a memory transport send a message."""
    transport_of(client).receive(RTVIMessage(type_, data, id))


def say(client: RTVIClient, *texts: Any) -> None:
    """Have the bot send a `server_message` for each of `texts`."""
    for text in texts:
        bot_says(client, "server-message", text)


def settle(client: RTVIClient) -> None:
    """Wait until everything that has arrived was delivered to all listeners."""
    done = threading.Event()
    client.once("metrics", done.set)
    bot_says(client, "metrics", {})
    assert done.wait(SOON)


def websocket_client(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    """A client of an embedded bot, over WebSocket, with a source and a sink that make no noise."""
    options = {"mic": SilenceSource(), "speaker": NullSink(), "connect_timeout": SOON, **options}
    return RTVIClient(transport=WebSocketTransport(bot.ws_url), **options)


def server_message(text: Any) -> RTVIMessage:
    """A message that becomes a `server_message` event with the payload `text`."""
    return RTVIMessage("server-message", text, None)


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process still prints until its end, on its standard output and error.

    Not `communicate()`: that reads the pipe itself and misses what `readline()` has taken out of it beyond the line.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    rest = process.stdout.read(), process.stderr.read()
    process.wait(GUARD)
    return rest


class InThread:
    """Runs a function on a thread; `result()` waits for it and returns or raises what it did."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._function = function
        self.thread = threading.Thread(target=self._run, name="test", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._function()
        except BaseException as error:
            self._error = error

    def done(self, timeout: float = 0.0) -> bool:
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def result(self, timeout: float = SOON) -> Any:
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "the thread has not come back"
        try:
            if self._error is not None:
                raise self._error
            return self._outcome
        finally:
            self._error = None

    def error(self, timeout: float = SOON) -> BaseException:
        """What it raised."""
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "the thread has not come back"
        assert self._error is not None, f"it returned {self._outcome!r} and raised nothing"
        return self._error


def threads_of_package() -> list[str]:
    """Names of the live threads that the package started, without those that only wait for something to do."""
    stop_idle_threads()
    # One that was told to end by another test may be on its way out.
    names = (thread.name for thread in threading.enumerate())
    return sorted(name for name in names if name.startswith("rtvi-") and not name.startswith("rtvi-idle-"))


def own_threads() -> list[str]:
    """The same without those of embedded bots, which are the test's."""
    return [name for name in threads_of_package() if not name.startswith("rtvi-bot-")]


def workers_of_package() -> list[str]:
    return [name for name in threads_of_package() if "-worker-" in name]


def descriptors() -> int:
    """How many descriptors the process has open, without those of threads that only wait for something to do."""
    stop_idle_threads()
    return len(os.listdir("/proc/self/fd"))


def until(condition: Callable[[], Any], timeout: float = SOON) -> None:
    """Wait for something that only others know of; fails after `timeout` seconds."""
    pause, limit = threading.Event(), time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "it has not come true"
        pause.wait(0.005)


ROOT = Path(__file__).parents[2]


def python(script: str, *arguments: str, executable: str = sys.executable) -> subprocess.Popen[str]:
    """Start a Python process that runs `script`; use it as a context manager and bound every wait.

    Args:
        script: indented as one likes.
        arguments: for the script.
        executable: a Python of any version; it uses the packages of this one.
    """
    packages = os.pathsep.join([str(ROOT), *(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))])
    return subprocess.Popen(
        [executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": packages, "PYTHONUNBUFFERED": "1"},
    )


def run_python(
    script: str, *arguments: str, timeout: float = 30.0, executable: str = sys.executable
) -> tuple[int, str, str]:
    """Run `script` in a fresh process. Returns exit code, stdout and stderr."""
    with python(script, *arguments, executable=executable) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"the process hangs\n{out}\n{err}") from None
    return process.returncode, out, err
