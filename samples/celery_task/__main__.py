"""Questions to a bot as Celery tasks, in a worker with two processes.

    python3 run.py sample celery_task --url http://localhost:7860 "What time is it?" "And in Oslo?"

Without a URL it asks the embedded bot, which repeats the question. Without --broker, messages travel through files in a
temporary folder; --broker redis://localhost, say, uses a real broker.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


@contextlib.contextmanager
def worker() -> Iterator[None]:
    """Run a Celery worker in a process of its own, as `celery -A samples.celery_task.tasks worker` starts it."""
    command = ["celery", "-A", "samples.celery_task.tasks", "worker", "--concurrency=2", "--loglevel=CRITICAL"]
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()  # it completes its current tasks
        process.wait()


def check_broker(app: Any) -> None:
    """Raise RTVIError if Celery's broker cannot be used: the worker would try for long, and say it by a traceback."""
    try:
        with app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1)
    except Exception as error:  # noqa: BLE001 - the library of each broker has errors of its own
        cure = "See that it runs, and that the package for it is installed, such as celery[redis]"
        raise RTVIError(f"Celery's broker cannot be used: {error}. {cure}") from None


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample celery_task", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--broker", help="URL of Celery's broker")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?", "And in Rome?"])
    given = parser.parse_args()
    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, before the first task
    with contextlib.ExitStack() as stack:
        if given.broker:
            os.environ["CELERY_BROKER_URL"] = given.broker
        else:
            os.environ["CELERY_FOLDER"] = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["RTVI_URL"] = given.url or stack.enter_context(EmbeddedBot()).ws_url
        from celery.exceptions import TimeoutError as TaskTimeoutError

        from .tasks import app, ask

        if given.broker:
            check_broker(app)
        stack.enter_context(worker())
        # All questions are sent first; the answers are printed in the order of the questions.
        for question, answer in [(question, ask.delay(question)) for question in given.questions]:
            try:
                words = answer.get(timeout=120, propagate=False)
            except TaskTimeoutError:
                raise RTVIError(f"{question!r} was not answered within 120 s") from None
            if answer.failed():
                raise RTVIError(f"The task failed: {words}")
            print(question, "->", words, flush=True)


if __name__ == "__main__":
    sys.exit(run_program(main))
