"""Load tests of voice bots with Locust: its users talk, and durations are reported like Locust's requests.

    # locustfile.py, for `locust -f locustfile.py --host http://localhost:7860`
    from locust import between, task

    from rtvi_sync.locust import RTVIUser


    class Caller(RTVIUser):
        wait_time = between(1, 3)

        @task
        def call(self):
            with self.client:
                self.client.send_text("What time is it?")
                self.client.wait_for_answer(timeout=10)

A user's `client` is an `RTVIClient` that measures the duration of its calls and of the bot's answers; see
docs/guides/load.md. Locust patches the process with gevent when it is imported, so an application has to import it
first; the `locust` command does so. It needs the extra `locust`.
"""

from ..errors import MissingExtraError

try:
    from .user import RTVIUser
except ModuleNotFoundError as _error:
    if _error.name not in ("locust", "gevent"):  # a dependency of locust
        raise
    raise MissingExtraError("rtvi_sync.locust", "locust") from _error

__all__ = ["RTVIUser"]
