"""Celery without a broker: messages and results are files in a folder."""

from __future__ import annotations

from celery import Celery


def use_folder(celery: Celery, folder: str) -> None:
    """Have both sides, the worker and who gives it tasks, find each other in `folder`."""
    celery.conf.update(
        broker_url="filesystem://",
        broker_transport_options={
            "data_folder_in": f"{folder}/messages",
            "data_folder_out": f"{folder}/messages",
            "control_folder": f"{folder}/control",
            "polling_interval": 0.02,
        },
        broker_connection_retry_on_startup=False,
        result_backend=f"file://{folder}/results",
        worker_prefetch_multiplier=1,
        worker_lost_wait=0.1,
    )
