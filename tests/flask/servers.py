"""Real web servers with the relay."""

from __future__ import annotations

import os
from pathlib import Path

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.web_server import WebServer

ROOT = Path(__file__).parents[2]
GUNICORN = ["-m", "gunicorn", "tests.flask.site:create_app()", "--bind", "fd://{}", "--workers", "1"]
GUNICORN += ["--config", "tests/flask/gunicorn_conf.py", "--graceful-timeout"]
SERVERS = {
    "gthread": [*GUNICORN, "20", "--worker-class", "gthread", "--threads", "20"],
    "preload": [*GUNICORN, "1", "--worker-class", "gthread", "--threads", "20", "--preload"],
    "gevent": [*GUNICORN, "20", "--worker-class", "gevent"],
    "sync": [*GUNICORN, "1"],
    "werkzeug": ["-m", "tests.flask.site", "{}"],
}


def server_of(kind: str, bot: EmbeddedBot, folder: Path, leave: float = GUARD) -> WebServer:
    """Return a server whose application relays to `bot`."""
    variables = {"RTVI_BOT_URL": bot.ws_url, "LEAVE_TIMEOUT": str(leave), "XDG_RUNTIME_DIR": str(folder)}
    return WebServer(SERVERS[kind], folder / f"{kind}.log", cwd=ROOT, env={**os.environ, **variables})
