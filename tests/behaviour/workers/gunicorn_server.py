"""Gunicorn with the application of the tests, as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support.slowness import GUARD

from .conftest import ROOT

# Patched before anything is imported, as docs/embedding.md tells those who use `--preload`.
PATCH_FIRST = "from gevent import monkey\nmonkey.patch_all()\n"


class Gunicorn:
    """A master with one worker. Use it as a context manager: it is stopped at the end.

    Args:
        folder: for its configuration and its log.
        bot_url: where its clients connect to.
        worker: gunicorn's worker class.
        preload: import the application in the master.
        connect_early: connect a client when the application is imported.
        head: lines of Python at the beginning of its configuration.
        settings: gunicorn's.
    """

    def __init__(
        self,
        folder: Path,
        bot_url: str,
        worker: str,
        *,
        preload: bool = False,
        connect_early: bool = False,
        head: str = "",
        **settings: Any,
    ) -> None:
        self.connected = connect_early
        self._folder = folder
        self._bot_url = bot_url
        self._head = head
        self._settings = {
            "worker_class": worker,
            "threads": 4 if worker == "gthread" else 1,
            "preload_app": preload,
            "graceful_timeout": 5,
            "keepalive": 0,
            "control_socket_disable": True,
            **settings,
        }

    def configure(self, **settings: Any) -> None:
        """Write its configuration, which it reads at its start and on SIGHUP."""
        self._settings |= settings
        lines = [f"{name} = {value!r}\n" for name, value in self._settings.items()]
        (self._folder / "gunicorn.conf.py").write_text(self._head + "".join(lines))

    def __enter__(self) -> Gunicorn:
        # Opened here, so that the port is known, and requests wait in it while there is no worker.
        with socket.create_server(("127.0.0.1", 0)) as listener, open(self._folder / "log", "w") as log:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.configure(bind=f"fd://{listener.fileno()}")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "-c", self._folder / "gunicorn.conf.py", f"{__package__}.app"],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "RTVI_BOT_URL": self._bot_url,
                    "RTVI_CONNECT_EARLY": "1" if self.connected else "",
                },
                cwd=self._folder,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
            )
        self.pid = self._process.pid
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers = self.workers() if self._process.poll() is None else []
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(GUARD)
        finally:
            self._process.kill()
            self._process.wait()
            for worker in workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
            if exc is not None:
                sys.stderr.write(self.log())

    def workers(self) -> list[psutil.Process]:
        """The master's children, also those that have ended and that it has not reaped yet."""
        return psutil.Process(self.pid).children(recursive=True)

    def signal(self, number: int) -> None:
        """Send a signal to the master."""
        self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait until the master has ended; its exit code."""
        return self._process.wait(timeout)

    def log(self) -> str:
        """What it and the application have written."""
        return (self._folder / "log").read_text()

    def get(self, view: str, word: str = "") -> Any:
        """What a view of the application answers, and the process that did."""
        with urllib.request.urlopen(f"{self.url}/{view}?word={word}", timeout=GUARD) as answer:
            return json.load(answer)
