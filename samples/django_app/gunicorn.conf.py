"""How gunicorn serves it, when it is started in this folder."""  # noqa: N999 (gunicorn looks for this name)

import os
from typing import Any

bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
workers = 2
# A thread waits for the bot while others serve; "sync" works too, with a process for each request under way.
worker_class = "gthread"
threads = 8
# Both are longer than BOT_SECONDS: a worker that waits for an answer does not count as hung, and one that is stopped
# answers first.
timeout = graceful_timeout = 30
# From version 26 on it would take commands through a file of this user's.
control_socket_disable = True


def when_ready(server: Any) -> None:
    """Report that the server listens."""
    print(f"Open {server.LISTENERS[0]}/", flush=True)
