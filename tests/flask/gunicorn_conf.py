"""The configuration of the gunicorn servers of the tests."""

import signal
from typing import Any

# A worker that is told to end would wait two seconds for what may still come on a connection.
keepalive = 0


def post_worker_init(worker: Any) -> None:
    """As docs/flask.md recommends it."""
    worker.wsgi.blueprints["rtvi"].end_streams_on(signal.SIGTERM)
