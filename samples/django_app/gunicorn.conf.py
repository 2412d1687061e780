"""How gunicorn serves it, when it is started in this folder."""  # noqa: N999 (gunicorn looks for this name)

import os
import signal
from typing import Any

bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
# The sessions of pages that talk live in one process. Without such pages there may be more.
workers = 1
# A question occupies a thread until the bot has answered, and a page that talks while it is open: 16 users, 4 pages.
worker_class = "gthread"
threads = 80
# Both are longer than BOT_SECONDS: a worker that waits for an answer does not count as hung, and one that is stopped
# answers first.
timeout = graceful_timeout = 30
# From version 26 on it would take commands through a file of this user's.
control_socket_disable = True


def post_worker_init(_: Any) -> None:
    """End the pages that talk on each signal that ends the worker: it would wait for them."""
    from assistant.voice import voice

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master, which gets Ctrl-C as well, sends SIGQUIT
    for number in (signal.SIGTERM, signal.SIGQUIT):
        voice.end_pages_on(number)


def when_ready(server: Any) -> None:
    """Report that the server listens."""
    print(f"Open {server.LISTENERS[0]}/", flush=True)
