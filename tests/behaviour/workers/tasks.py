"""The Celery application of the tests: a view of the web application as a task; messages and results are files."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from samples.celery_task.folder import use_folder

from . import app

celery = Celery(backend=f"file://{os.environ['RTVI_CELERY_FOLDER']}")
celery.conf.worker_lost_wait = 0.1
celery.conf.worker_prefetch_multiplier = 1
use_folder(celery, os.environ["RTVI_CELERY_FOLDER"])


@celery.task(name="view")
def view(name: str, word: str) -> Any:
    """Return the answer of a view in the child that does the task."""
    return {"pid": os.getpid(), "answer": app.VIEWS[f"/{name}"](word)}
