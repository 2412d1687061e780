"""The sample's project under a real gunicorn, and a browser without scripts."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs

from tests.support.slowness import GUARD
from tests.support.web_server import WebServer

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "samples" / "django_app"


def environ(**variables: str) -> dict[str, str]:
    """Return the environment of a program that uses the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RTVI_", "DJANGO_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **variables}


@attrs.frozen
class Reply:
    """The answer of a server."""

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
        """Make one request on a connection of its own."""
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


def serve(log: Path, worker: str, bot_url: str) -> WebServer:
    """Return a server of the project, with two workers.

    Args:
        log: a file for its output.
        worker: gunicorn's worker class.
        bot_url: where the bot is.
    """
    return WebServer(
        ["-m", "gunicorn", "-b", "fd://{}", "-k", worker, "--threads", "8", "mysite.wsgi"],
        log,
        cwd=PROJECT,
        env=environ(RTVI_URL=bot_url, RTVI_SECONDS="8"),
    )


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
