"""Gunicorn with the application of the tests, as a separate process."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.slowness import GUARD
from tests.support.web_server import WebServer

from .conftest import ROOT

# Patched before all imports, as docs/guides/web.md advises for `--preload`.
PATCH_FIRST = "from gevent import monkey\nmonkey.patch_all()\n"


class Gunicorn(WebServer):
    """A master with one worker.

    Args:
        folder: Folder for its configuration and its log.
        bot_url: Address for its clients to connect to.
        worker: gunicorn's worker class.
        preload: True to import the application in the master.
        connect_early: True to connect a client when the application is imported.
        head: Lines of Python at the start of its configuration.
        settings: Settings of gunicorn.
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
        super().__init__(
            ["-m", "gunicorn", "-c", str(folder / "gunicorn.conf.py"), "-b", "fd://{}", f"{__package__}.app"],
            folder / "log",
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "RTVI_BOT_URL": bot_url,
                "RTVI_CONNECT_EARLY": "1" if connect_early else "",
            },
        )
        self.connected = connect_early
        self._folder = folder
        self._head = head
        self._settings = {
            "worker_class": worker,
            "threads": 4 if worker == "gthread" else 1,
            "preload_app": preload,
            "graceful_timeout": 5,
            "keepalive": 0,
            "control_socket_disable": True,
        }
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        """Write its configuration, which it reads at its start and on SIGHUP."""
        self._settings |= settings
        lines = [f"{name} = {value!r}\n" for name, value in self._settings.items()]
        (self._folder / "gunicorn.conf.py").write_text(self._head + "".join(lines))

    def get(self, view: str, word: str = "") -> Any:
        """Return the answer of a view of the application, and the process that gave it."""
        with urllib.request.urlopen(f"{self.url}/{view}?word={word}", timeout=GUARD) as answer:
            return json.load(answer)
