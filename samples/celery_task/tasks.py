"""The Celery application. It finds broker and bot in the environment, as `__main__.py` sets it."""

import os

from celery import Celery

from rtvi_sync import RTVIClient, TransportStartError

from .folder import use_folder

app = Celery("celery_task", broker=os.environ.get("CELERY_BROKER_URL"), backend="rpc://")
if "CELERY_FOLDER" in os.environ:
    use_folder(app, os.environ["CELERY_FOLDER"])


# After the first limit an exception ends the blocked call and the session; after the second the process is killed.
app.conf.task_soft_time_limit, app.conf.task_time_limit = 90, 120


# Network errors may be temporary. Errors of lost sessions and timeouts are OSErrors, too.
@app.task(autoretry_for=(OSError, TransportStartError), retry_backoff=True)  # type: ignore # Celery has no annotations
def ask(question: str) -> str:
    """Return the bot's answer. Each question has its own session: tasks are independent of each other."""
    url = os.environ["RTVI_URL"]
    with RTVIClient.for_url(url, text_only=True, connect_timeout=15) as client:
        return client.ask(question, timeout=60, audio_response=False).bot_text
