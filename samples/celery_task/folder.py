"""A folder in the place of a message broker: what Celery sends is a file in it. For one machine, to try things."""

import time
import uuid
from pathlib import Path
from typing import Any

from celery import Celery  # type: ignore[import-untyped]
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """As kombu has it, except that a message appears with all that is in it: a worker that reads half of one dies."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override] # it is named in two ways
        unfinished = Path(self.data_folder_out, f"{time.time_ns()}_{uuid.uuid4()}")  # they are taken by name
        unfinished.write_text(dumps(message), encoding="utf-8")  # type: ignore[no-untyped-call]
        unfinished.rename(f"{unfinished}.{queue}.msg")


class Transport(filesystem.Transport):
    """Of messages that are files."""

    Channel = Channel


def use_folder(app: Celery, folder: str) -> None:
    """Have both sides, the worker and who gives it tasks, find each other in `folder`."""
    for name in ("messages", "processed", "control"):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
    app.conf.broker_url = "filesystem://localhost/"
    app.conf.broker_transport = f"{__name__}:Transport"
    app.conf.broker_transport_options = {
        "data_folder_in": f"{folder}/messages",
        "data_folder_out": f"{folder}/messages",
        "processed_folder": f"{folder}/processed",
        "store_processed": True,  # else they pass through the system's folder for temporary files
        "control_folder": f"{folder}/control",
        "polling_interval": 0.05,
    }
