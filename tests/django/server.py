"""The sample's project under a real gunicorn, and a browser without scripts."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs
import psutil

from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "samples" / "django_app"


def environ(**variables: str) -> dict[str, str]:
    """The environment of a program that uses the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RTVI_", "DJANGO_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **variables}


@attrs.frozen
class Reply:
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        assert self.headers.get_content_type() == "application/json"
        return json.loads(self.text)


class Browser:
    """Keeps the cookie and the token of the page, and sends them with each form."""

    def __init__(self, url: str) -> None:
        self._url = url
        page = self.request("GET", "/")
        assert page.status == 200, page.text
        self.page = page
        self._cookie = page.headers["Set-Cookie"].partition(";")[0]
        (self._token,) = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=GUARD)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def post(self, path: str, question: str, **headers: str) -> Reply:
        """Send the form."""
        form = urlencode({"question": question, "csrfmiddlewaretoken": self._token})
        kind = "application/x-www-form-urlencoded"
        return self.request("POST", path, form, **{"Content_Type": kind, "Cookie": self._cookie, **headers})

    def ask(self, question: str) -> Reply:
        """Ask by the JSON view."""
        return self.post("/ask", question)


class Gunicorn:
    """The project, served by two workers. Use it as a context manager: it is stopped at the end.

    Args:
        log: a file for what it writes.
        worker: gunicorn's worker class.
        bot_url: where the bot is.
    """

    def __init__(self, log: Path, worker: str, bot_url: str) -> None:
        self._log = log
        self._worker = worker
        self._bot_url = bot_url

    def __enter__(self) -> Gunicorn:
        # Opened here, so that the port is known, and requests wait in it while there is no worker.
        with socket.create_server(("127.0.0.1", 0)) as listener, self._log.open("w") as log:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            bind = f"fd://{listener.fileno()}"
            self.master = psutil.Popen(
                [sys.executable, "-m", "gunicorn", "-b", bind, "-k", self._worker, "--threads", "8", "mysite.wsgi"],
                cwd=PROJECT,
                env=environ(RTVI_URL=self._bot_url, RTVI_SECONDS="8"),
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
            )
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        workers = self.workers() if self.master.is_running() else []
        try:
            self.stop()
        finally:
            for process in (self.master, *workers):
                if process.is_running():
                    process.kill()
            self.master.wait()
            if exc is not None:
                sys.stderr.write(self.log())

    def workers(self) -> list[psutil.Process]:
        """The master's children, also those that have ended and that it has not reaped."""
        children: list[psutil.Process] = self.master.children()
        return children

    def stop(self) -> int:
        """Tell the master to stop; its exit status."""
        if self.master.poll() is None:
            self.master.send_signal(signal.SIGTERM)
        status: int = self.master.wait(GUARD)
        return status

    def log(self) -> str:
        """What it has written."""
        return self._log.read_text()


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the project's folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environ(**variables),
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
