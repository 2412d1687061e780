"""The configuration of the gunicorn servers of the tests."""

import signal
from typing import Any

# With keep-alive, an ending worker would wait two seconds for more requests on a connection.
keepalive = 0


def post_worker_init(worker: Any) -> None:
    """End the pages' streams with the worker, as docs/guides/flask.md recommends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGQUIT):
        worker.wsgi.blueprints["rtvi"].end_streams_on(number)
