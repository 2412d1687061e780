"""Web servers, each a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from tests.support.slowness import GUARD

S = TypeVar("S", bound="WebServer")


class WebServer:
    """A web server. Use it as a context manager, or call `start()`, and `kill()` at the end.

    Its socket listens from the start, so that the port is known, and requests wait in it while there is no worker.

    Args:
        arguments: of Python; "{}" stands for the descriptor of the socket.
        log: a file for its output.
        cwd: where it runs.
        env: its environment.
    """

    url: str
    address: tuple[str, int]
    process: subprocess.Popen[bytes]

    def __init__(self, arguments: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._log = log
        self._cwd = cwd
        self._env = env

    def start(self) -> None:
        """Start the process."""
        with socket.create_server(("127.0.0.1", 0)) as listener, self._log.open("w") as log:
            self.address = listener.getsockname()
            self.url = "http://{}:{}".format(*self.address)
            self.process = subprocess.Popen(
                [sys.executable, *(word.replace("{}", str(listener.fileno())) for word in self._arguments)],
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
            )

    def workers(self) -> list[psutil.Process]:
        """Return the children of the process, also those that have ended and that it has not reaped yet."""
        try:
            return list(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> int:
        """Tell the server to end; return its exit status."""
        self.process.terminate()
        return self.process.wait(GUARD)

    def kill(self) -> None:
        """Kill the server and its workers."""
        _kill(self.workers())
        self.process.kill()
        self.process.wait(GUARD)

    def log(self) -> str:
        """Return the output of the server and the application."""
        return self._log.read_text()

    def __enter__(self: S) -> S:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers = self.workers()
        try:
            self.stop()
        finally:
            self.kill()
            _kill(workers)
            if exc is not None:
                sys.stderr.write(self.log())


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
