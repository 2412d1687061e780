"""A Django project: a page, a JSON view and a management command that ask a bot, and a page that talks with it.

    python3 run.py sample django_app --url http://localhost:7860

Without a URL it is the embedded bot. Then open the address that the web server prints when it listens.
"""

import argparse
import contextlib
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot

HERE = Path(__file__).parent


def serve(bot_url: str, port: int) -> int:
    """Run the web server until it or this program ends."""
    environ = {"DJANGO_SECRET_KEY": secrets.token_urlsafe(50), **os.environ, "RTVI_URL": bot_url, "PORT": str(port)}
    command = ["-m", "gunicorn", "mysite.wsgi"]
    if os.name != "posix" or importlib.util.find_spec("gunicorn") is None:
        command = ["manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    # Ctrl-C reaches all processes of a terminal. gunicorn's workers, interrupted and told to stop at once, may hang: so
    # it is for this process alone, which tells the server.
    server = subprocess.Popen([sys.executable, *command], cwd=HERE, env=environ, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample django_app")
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    import rtvi_sync.django  # noqa: F401 - so that the absence of Django is reported here, and not by the web server

    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, and not when the first visitor asks
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda *_: sys.exit(0))  # so that the server and the bot are stopped
    with contextlib.ExitStack() as stack:
        # In a process that does not fork: the bot's threads would not be there in the workers.
        url = given.url or stack.enter_context(EmbeddedBot()).ws_url
        return serve(url, given.port)


if __name__ == "__main__":
    sys.exit(run_program(main))
