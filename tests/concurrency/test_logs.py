"""The loggers of the package: an error in a filter of the application is printed, and ends nothing."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from rtvi_sync import CloseInfo, MemoryTransport, ReconnectPolicy, RTVIMessage, TransportStartError
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.transports.memory import ready_bot
from tests.support.clients import memory_client, transport_of
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


@pytest.fixture
def broken_filter() -> Iterator[None]:
    """Fail like a filter that reads a missing attribute of the record."""

    def fail(_: logging.LogRecord) -> bool:
        raise AttributeError("request_id")

    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(fail)
    package = logging.getLogger("rtvi_sync")
    package.addHandler(handler)
    yield
    package.removeHandler(handler)


@pytest.mark.usefixtures("broken_filter")
def test_a_filter_that_raises(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter's exception is printed as by handlers of `logging`, unless stderr is closed or that is switched off."""
    logger = package_logger("rtvi_sync.tests")
    logger.warning("one")
    assert "request_id" in capsys.readouterr().err
    closed = io.StringIO()
    closed.close()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", closed)
        logger.warning("two")
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger.warning("three")
    assert capsys.readouterr().err == ""


def test_the_place_in_the_program(caplog: pytest.LogCaptureFixture) -> None:
    """A record names the place of the logging call."""
    package_logger("rtvi_sync.tests").warning("here")
    assert caplog.records[0].filename == "test_logs.py"


@pytest.mark.usefixtures("broken_filter")
def test_a_session_that_is_lost_and_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """A handler raises, and the attempts fail: each is logged, and nothing hangs."""
    sessions: list[RTVIMessage] = []

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready":
            sessions.append(message)
            if len(sessions) > 1:
                raise OSError("there is no bot")
        return ready_bot(transport, message)

    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.01, max_attempts=2)
    client = memory_client(bot, reconnect=policy)
    client.on("disconnected", lambda: 1 / 0)
    client.connect()
    transport_of(client).end(CloseInfo(initiator="network"))
    assert isinstance(client.wait(GUARD).error, TransportStartError)
    client.close()
    assert "request_id" in capsys.readouterr().err
