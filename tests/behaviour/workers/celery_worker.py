"""A worker of Celery. Messages and results are files: no broker is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from celery import Celery

from samples.celery_task.folder import use_folder
from tests.support.slowness import GUARD

from .conftest import ROOT


class Worker:
    """A Celery worker in its own process, and the application's side, which gives it tasks.

    Args:
        folder: Folder for messages, results and the log.
        process: The worker.
        celery: The Celery application that sends tasks.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], celery: Celery) -> None:
        self.process = process
        self._folder = folder
        self._celery = celery

    def send(self, view: str, word: str = "", **options: Any) -> Any:
        """Give a task to the worker, and return the answer of the application's view."""
        return self._celery.send_task("view", [view, word], **options)

    def do(self, view: str, word: str = "") -> Any:
        """Give it a task and wait for the result."""
        return self.result(self.send(view, word))

    def result(self, task: Any) -> Any:
        return task.get(timeout=GUARD, interval=0.01)

    def children(self) -> dict[int, psutil.Process]:
        """Return the processes that do the tasks, by number; those too that have ended and were not reaped yet."""
        return {child.pid: child for child in psutil.Process(self.process.pid).children()}

    def log(self) -> str:
        return (self._folder / "log").read_text()


@contextlib.contextmanager
def celery_worker(folder: Path, bot_url: str, *options: str, **environment: str) -> Iterator[Worker]:
    """Yield a worker, which is killed at the end unless it was stopped before."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", f"{__package__}.tasks", "worker", "--without-mingle", *options],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "RTVI_BOT_URL": bot_url,
                "RTVI_CELERY_FOLDER": str(folder),
                "PYTHONFAULTHANDLER": "1",
                **environment,
            },
            stdout=log,
            stderr=log,
        )
        try:
            with Celery(backend=f"file://{folder}") as celery:
                use_folder(celery, str(folder))
                yield Worker(folder, process, celery)
        finally:
            if process.poll() is None:
                main = psutil.Process(process.pid)
                for left in [*main.children(), main]:
                    left.send_signal(signal.SIGABRT)  # it writes where its threads are
                process.wait()
                sys.stderr.write((folder / "log").read_text())
