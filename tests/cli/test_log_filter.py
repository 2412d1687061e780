"""Logs that are suppressed while a command shows a conversation."""

from __future__ import annotations

import logging

import pytest

from rtvi_sync.cli.log_filter import suppress_device_logs

pytestmark = pytest.mark.inside


def test_device_logs_are_suppressed_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The logs of devices and the stacks of blocked threads are suppressed, and afterwards appear again."""
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media.manager", "concurrency.lifecycle")]
    with suppress_device_logs():
        for logger in loggers:
            logger.error("not seen")
    for logger in loggers:
        logger.error("seen")
    assert [record.getMessage() for record in caplog.records] == ["seen", "seen"]
