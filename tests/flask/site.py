"""The application that the servers of the tests serve; its environment says where the bot is."""

from __future__ import annotations

import os
import sys

import flask
from werkzeug.serving import make_server

from rtvi_sync.flask import RTVIBlueprint

from .browser import client_for, site_of

HEARTBEAT = 0.3


def create_app() -> flask.Flask:
    """Return a relay whose times are short, and a note of the process that answers."""
    url, leave = os.environ["RTVI_BOT_URL"], float(os.environ["LEAVE_TIMEOUT"])
    app = site_of(
        RTVIBlueprint(lambda _: client_for(url), voice=True, heartbeat_interval=HEARTBEAT, leave_timeout=leave)
    )
    app.config["TESTING"] = False
    app.add_url_rule("/process", view_func=lambda: str(os.getpid()))
    return app


if __name__ == "__main__":
    make_server("127.0.0.1", 0, create_app(), threaded=True, fd=int(sys.argv[1])).serve_forever()
