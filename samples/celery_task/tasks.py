"""The Celery application. It finds broker and bot in the environment, as `__main__.py` sets it."""

import os
from itertools import takewhile

from celery import Celery  # type: ignore[import-untyped]

from rtvi_sync import RTVIClient, RTVIEvent, WebSocketTransport
from rtvi_sync.media import NullSink

app = Celery("celery_task", broker=os.environ["CELERY_BROKER_URL"], backend="rpc://")
folder = os.environ.get("CELERY_FOLDER")  # for a broker that is a folder
if folder:
    app.conf.broker_transport_options = {
        "data_folder_in": folder,
        "data_folder_out": folder,
        "control_folder": folder + "/control",
        "polling_interval": 0.1,
    }


# What the network spoils may go well a moment later: those errors of the client are OSErrors as well.
@app.task(autoretry_for=(OSError,), retry_backoff=True, max_retries=3, time_limit=120)  # type: ignore # has no types
def ask(question: str) -> str:
    """What the bot answers. A session for each question: tasks are independent of each other, and of the process."""
    client = RTVIClient(
        transport=WebSocketTransport(os.environ["RTVI_URL"]), enable_mic=False, speaker=NullSink(), connect_timeout=15
    )
    with client, client.events("bot-llm-text", "bot-llm-stopped", timeout=60) as events:
        client.send_text(question, audio_response=False)
        answer = takewhile(lambda event: event.type is not RTVIEvent.BOT_LLM_STOPPED, events)
        return "".join(event.data.text for event in answer)
