"""The Celery application. It finds broker and bot in the environment, as `__main__.py` sets it."""

import os
from typing import Any

from celery import Celery

from rtvi_sync import RTVIClient, RTVIError, is_transient

from .folder import use_folder

app = Celery("celery_task", broker=os.environ.get("CELERY_BROKER_URL"), backend="rpc://")
if "CELERY_FOLDER" in os.environ:
    use_folder(app, os.environ["CELERY_FOLDER"])


# After the first limit an exception ends the blocked call and the session; after the second the process is killed.
app.conf.task_soft_time_limit, app.conf.task_time_limit = 90, 120


@app.task(bind=True)  # type: ignore # Celery has no annotations
def ask(self: Any, question: str) -> str:
    """Return the bot's answer. Each question has its own session: tasks are independent of each other."""
    url = os.environ["RTVI_URL"]
    try:
        with RTVIClient.for_url(url, text_only=True, connect_timeout=15) as client:
            return client.ask(question, timeout=60, audio_response=False).bot_text or ""
    except RTVIError as error:
        if is_transient(error):  # another session may succeed
            raise self.retry(exc=error, countdown=2**self.request.retries) from None
        raise
