"""A folder as a message broker: each of Celery's messages is a file in it. For experiments on one machine."""

import time
import uuid
from pathlib import Path
from typing import Any

from celery import Celery
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """kombu's channel, except that a message appears complete: a worker that reads half of one dies."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override] # kombu has two names for it
        unfinished = Path(self.data_folder_out, f"{time.time_ns()}_{uuid.uuid4()}")  # read in the order of names
        unfinished.write_text(dumps(message), encoding="utf-8")  # type: ignore[no-untyped-call]
        unfinished.rename(f"{unfinished}.{queue}.msg")


class Transport(filesystem.Transport):
    """A transport whose messages are files."""

    Channel = Channel


def use_folder(app: Celery, folder: str) -> None:
    """Configure an application so that its worker and its callers exchange messages in `folder`."""
    for name in ("messages", "processed", "control"):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
    app.conf.broker_url = "filesystem://localhost/"
    app.conf.broker_transport = f"{__name__}:Transport"
    app.conf.broker_transport_options = {
        "data_folder_in": f"{folder}/messages",
        "data_folder_out": f"{folder}/messages",
        "processed_folder": f"{folder}/processed",
        "store_processed": True,  # otherwise they pass through the system's temporary folder
        "control_folder": f"{folder}/control",
        "polling_interval": 0.05,
    }
