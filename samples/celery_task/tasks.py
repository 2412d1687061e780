"""The Celery application. It finds broker and bot in the environment, as `__main__.py` sets it."""

import os

from celery import Celery

from rtvi_sync import RTVIClient, RTVIEvent, TransportStartError
from rtvi_sync.media import NullSink

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
    client = RTVIClient.for_url(url, enable_mic=False, speaker=NullSink(), connect_timeout=15)
    words: list[str] = []
    with client, client.events("bot-llm-text", "bot-llm-stopped", timeout=60) as events:
        client.send_text(question, audio_response=False)
        for event in events:
            if event.type is RTVIEvent.BOT_LLM_STOPPED:
                return "".join(words)
            words.append(event.data.text)
    raise ConnectionError("The bot left before it had answered")
