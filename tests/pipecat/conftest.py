"""Real Pipecat bots as fixtures: each is a process of its own, run by the Python of a Pipecat environment."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import attrs
import httpx
import pytest

from tests.support.required import missing
from tests.support.slowness import GUARD

_BOTS = Path(__file__).parent / "bots"
# Kind of bot -> version of Pipecat, program with its arguments
_KINDS = {
    "echo": ("1.14.0", "echo.py"),
    "talk": ("1.14.0", "talk.py"),
    "standalone": ("1.14.0", "standalone.py"),
    "runner": ("1.14.0", "runner.py"),
    "stock": ("1.14.0", "stock.py"),
    "showcase": ("1.14.0", "showcase.py"),
    "rehearsed": ("1.14.0", "rehearsed.py"),
    "configured-1.2": ("0.0.108", "configured_1_2.py"),
    "configured-0.3": ("0.0.73", "configured_0_3.py"),
    "stock-1.13": ("1.13.0", "stock.py"),
    "eval-server-1.5": ("1.5.0", "eval_server.py"),
    "interim-2.0": ("1.5.0", "interim.py"),
    "interim-1.3": ("1.2.1", "interim.py"),
    "echo-0.3": ("0.0.73", "configured_0_3.py", "--echo"),
    "webrtc-0.3": ("0.0.62", "webrtc_0_3.py"),
    "scripted-2.2": ("1.14.0", "scripted.py"),
    "scripted-2.0": ("1.5.0", "scripted.py"),
    "scripted-1.2": ("0.0.108", "scripted.py"),
    "scripted-0.3": ("0.0.73", "scripted_0_3.py"),
}
# Versions that only tests with the mark "matrix" need
_MATRIX = {"1.13.0", "1.5.0", "1.2.1", "0.0.62"}
_START_TIMEOUT = 4 * GUARD  # Pipecat imports much
_LOG_TAIL = 8000


@attrs.frozen
class BotServer:
    """A bot program that listens on 127.0.0.1.

    Attributes:
        base_url: HTTP: `POST /connect` (the runner: `POST /start`) and the controls of bots/serving.py.
        ws_url: the bot's WebSocket. The runner with `--ws-auth token` refuses it without a token of `/start`.
        process: the program. Signal or kill it as you like if `pipecat_process` made it.
        log: the text that it wrote to its standard error.
    """

    base_url: str
    ws_url: str
    process: subprocess.Popen[bytes]
    log: Path

    def control(self, name: str, **params: Any) -> int:
        """Have the bot do something (see bots/serving.py); return how many sessions that concerned."""
        reply = httpx.post(f"{self.base_url}/control/{name}", json=params, timeout=GUARD, trust_env=False)
        reply.raise_for_status()
        return int(reply.json()["sessions"])

    def live_sessions(self, expected: int | None = None, timeout: float = GUARD) -> int:
        """Return the number of live sessions; with `expected`, wait up to `timeout` seconds until it is that number."""
        query = {} if expected is None else {"expected": expected, "timeout": timeout}
        url = f"{self.base_url}/control/sessions"
        reply = httpx.get(url, params=query, timeout=timeout + 10, trust_env=False)
        reply.raise_for_status()
        return int(reply.json()["live"])

    def follow(self, script: Mapping[str, Any]) -> None:
        """Have a scripted bot follow a script in its next session (see bots/script.py)."""
        httpx.post(f"{self.base_url}/script", json=script, timeout=GUARD, trust_env=False).raise_for_status()

    def kill(self) -> None:
        """End the process at once, also a stopped one, and wait for its end."""
        _end(self.process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(GUARD)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_LOG_TAIL:]


def _interpreter(version: str) -> str:
    variable = f"RTVI_PIPECAT_{version.replace('.', '_')}"
    python = os.environ.get(variable)
    if not python:
        option = "--matrix" if version in _MATRIX else "--real"
        missing(f"Pipecat {version} is not installed ({variable} is not set): run `python3 run.py test {option}`")
    return python


@attrs.frozen
class _Launcher:
    """Starts bot programs.

    Attributes:
        directory: where they run and where their logs are.
        lifeline: the reading end of a pipe without a writer. It ends with this process, and the bots with it.
    """

    directory: Path
    lifeline: int

    def start(self, kind: str, *args: str) -> BotServer:
        """Start a bot and wait until it listens."""
        version, program, *options = _KINDS[kind]
        python = _interpreter(version)
        log = self.directory / f"{kind}-{len(list(self.directory.iterdir()))}.log"
        environment = {"LOGURU_LEVEL": "INFO", **os.environ, "RTVI_BOT_ENDS_WITH_STDIN": "1"}
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [python, str(_BOTS / program), *options, *args],
                stdin=self.lifeline,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=self.directory,
            )
        assert process.stdout is not None
        # One line is all that a bot writes there: nothing is left to read, no pipe to keep.
        with process.stdout:
            line = _first_line(process.stdout)
        if not line.endswith(b"\n"):
            _end(process)
            pytest.fail(f"the {kind} bot did not start\n{_tail(log)}", pytrace=False)
        return BotServer(**json.loads(line), process=process, log=log)


def _first_line(output: IO[bytes]) -> bytes:
    """Return a program's first line, or as much of it as arrived before its end or the timeout."""
    deadline = time.monotonic() + _START_TIMEOUT
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(output.fileno(), 4096)
            if not chunk:
                break
            line += chunk
    return line


class Shared:
    """Long-lived processes, one for each kind, started at first use."""

    def __init__(self, launcher: _Launcher) -> None:
        self._launcher = launcher
        self._servers: dict[str, BotServer] = {}

    def server(self, kind: str) -> BotServer:
        """Return the server of a kind without any session: a new one if the last test killed it or left a session."""
        server = self._servers.get(kind)
        if server is not None and not self._is_idle(server):
            server.kill()
            server = None
        if server is None:
            server = self._servers[kind] = self._launcher.start(kind)
        return server

    def running(self, kind: str) -> BotServer:
        """Return the server of a kind that was started, whatever sessions it has."""
        return self._servers[kind]

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()

    @staticmethod
    def _is_idle(server: BotServer) -> bool:
        try:
            return server.process.poll() is None and server.live_sessions(expected=0) == 0
        except httpx.HTTPError:
            return False


# Used by every test here, so that the pipe is there before anyone counts the descriptors of a test.
@pytest.fixture(scope="session", autouse=True)
def _launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Launcher]:
    reading, writing = os.pipe()
    yield _Launcher(directory=tmp_path_factory.mktemp("pipecat"), lifeline=reading)
    os.close(writing)
    os.close(reading)


@pytest.fixture(scope="session")
def shared_bots(_launcher: _Launcher) -> Iterator[Shared]:
    shared = Shared(_launcher)
    yield shared
    shared.close()


@pytest.fixture
def pipecat_echo(shared_bots: Shared) -> BotServer:
    """Return a bot of Pipecat 1.14.0 behind FastAPI: sends the user's audio back, 16 kHz both ways."""
    return shared_bots.server("echo")


@pytest.fixture
def pipecat_talk(shared_bots: Shared) -> BotServer:
    """Return Pipecat 1.14.0 behind FastAPI: hears "hello bot" in every utterance, answers and speaks (24 kHz)."""
    return shared_bots.server("talk")


@pytest.fixture
def pipecat_standalone(shared_bots: Shared) -> BotServer:
    """Return the talking bot on Pipecat's standalone server: one client at a time, messages up to 1 MiB."""
    return shared_bots.server("standalone")


@pytest.fixture
def pipecat_runner(shared_bots: Shared) -> BotServer:
    """Return the talking bot in Pipecat's development runner, `-t websocket`, without tokens."""
    return shared_bots.server("runner")


@pytest.fixture
def pipecat_stock(shared_bots: Shared) -> BotServer:
    """Return the talking bot in Pipecat's development runner, with entries eval, twilio and webrtc: `ws_url` is /ws."""
    return shared_bots.server("stock")


@pytest.fixture
def pipecat_rehearsed(shared_bots: Shared) -> BotServer:
    """Return a bot in Pipecat's development runner that obeys scenarios, by any door: `ws_url` is /ws."""
    return shared_bots.server("rehearsed")


@pytest.fixture
def pipecat_0_3(shared_bots: Shared) -> BotServer:
    """Return a bot of Pipecat 0.0.73 (RTVI 0.3) behind FastAPI: the configured bot as an echo of the user's audio."""
    return shared_bots.server("echo-0.3")


@pytest.fixture
def pipecat_showcase(shared_bots: Shared) -> BotServer:
    """Return Pipecat 1.14.0 behind FastAPI: the talking bot, which shows every message of RTVI 2.2 on demand."""
    return shared_bots.server("showcase")


@pytest.fixture
def pipecat_configured_1_2(shared_bots: Shared) -> BotServer:
    """Return Pipecat 0.0.108 (RTVI 1.2) behind FastAPI: talks, has client messages, a configuration and actions."""
    return shared_bots.server("configured-1.2")


@pytest.fixture
def pipecat_configured_0_3(shared_bots: Shared) -> BotServer:
    """Return Pipecat 0.0.73 (RTVI 0.3) behind FastAPI: talks, has a configuration and actions, also over HTTP."""
    return shared_bots.server("configured-0.3")


class PipecatProcesses:
    """Starts bot programs for one test: `pipecat_process("runner", "--ws-auth", "token")`."""

    def __init__(self, launcher: _Launcher) -> None:
        self._launcher = launcher
        self.servers: list[BotServer] = []

    def __call__(self, kind: str, *args: str) -> BotServer:
        """Start a bot; `kind` is a key of `_KINDS`, `args` are more arguments of its program."""
        server = self._launcher.start(kind, *args)
        self.servers.append(server)
        return server


@pytest.fixture
def pipecat_process(_launcher: _Launcher) -> Iterator[Callable[..., BotServer]]:
    """Start bots of this test's own, which it may kill, stop or signal; they end with the test."""
    processes = PipecatProcesses(_launcher)
    yield processes
    for server in processes.servers:
        server.kill()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory as one that needs a real part."""
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("real")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test the logs of its bots."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            servers = value.servers if isinstance(value, PipecatProcesses) else [value]
            for server in servers:
                if isinstance(server, BotServer):
                    report.sections.append((f"bot log: {server.log.name}", _tail(server.log)))
    return report
