"""A page to talk to a bot: a Flask application keeps the session, and relays voice and text.

    python3 run.py sample flask_app --url http://localhost:7860

Without a URL it talks to the embedded bot. Then open the address that it prints.
"""

import argparse
import atexit
import importlib.util
import signal
import sys
from typing import TYPE_CHECKING, Any

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot

if TYPE_CHECKING:
    from flask import Flask

# There must be more threads than open event streams: 16 sessions with 4 pages each.
THREADS = 80


def load(bot_url: str | None) -> "Flask":
    """Return the application. It is made in the process that runs it: a bot's threads would not survive a fork."""
    from .app import create_app

    if bot_url is None:
        bot = EmbeddedBot()
        bot.start()
        atexit.register(bot.stop)
        bot_url = bot.ws_url
    return create_app(bot_url)


def end_streams(worker: Any) -> None:
    """End the streams, and with them the sessions, on each signal that ends the worker: it would wait for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master, which gets Ctrl-C as well, sends SIGQUIT
    for number in (signal.SIGTERM, signal.SIGQUIT):
        worker.wsgi.blueprints["rtvi"].end_streams_on(number)


def tell(port: int) -> None:
    """Report that the server listens."""
    print(f"Open http://127.0.0.1:{port}/", flush=True)


def serve_with_gunicorn(bot_url: str | None, port: int) -> None:
    """Serve the application with gunicorn, in one process with threads."""
    from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

    class Server(BaseApplication):  # type: ignore[misc] # gunicorn has no annotations
        """As `gunicorn --worker-class gthread --workers 1 ...` does it: sessions live in one process."""

        def load_config(self) -> None:
            self.cfg.set("bind", f"127.0.0.1:{port}")
            self.cfg.set("worker_class", "gthread")
            self.cfg.set("workers", 1)
            self.cfg.set("threads", THREADS)
            self.cfg.set("when_ready", lambda _: tell(port))
            self.cfg.set("post_worker_init", end_streams)
            if "control_socket_disable" in self.cfg.settings:  # from version 26 on it takes commands through a file
                self.cfg.set("control_socket_disable", True)

        def load(self) -> "Flask":
            return load(bot_url)

    Server().run()


def serve_with_werkzeug(bot_url: str | None, port: int) -> None:
    """Serve the application with Werkzeug, where gunicorn does not run."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", port, load(bot_url), threaded=True)
    tell(port)
    server.serve_forever()


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample flask_app")
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    import flask  # noqa: F401 - so that its absence is reported here, and not by the web server

    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, and not when the first visitor asks
    if importlib.util.find_spec("gunicorn") is not None:
        serve_with_gunicorn(given.url, given.port)
    else:  # it does not run on Windows
        serve_with_werkzeug(given.url, given.port)


if __name__ == "__main__":
    sys.exit(run_program(main))
