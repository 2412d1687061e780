"""The configuration of the gunicorn servers of pages that talk."""

import signal
from typing import Any

keepalive = 0


def post_worker_init(worker: Any) -> None:
    """End the pages with the worker, as docs/guides/flask.md recommends."""
    from tests.django.talking_site import voice

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGQUIT):
        voice.end_pages_on(number)
