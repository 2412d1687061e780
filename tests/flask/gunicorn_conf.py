"""The configuration of the gunicorn servers of the tests."""

import signal
from typing import Any

# A worker that is told to end would wait two seconds for what may still come on a connection.
keepalive = 0


def post_worker_init(worker: Any) -> None:
    """End the pages' streams on SIGTERM, as docs/flask.md recommends."""
    worker.wsgi.blueprints["rtvi"].end_streams_on(signal.SIGTERM)
