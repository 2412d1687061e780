"""The time and the connections of the doctor."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.cli.checks import CHECKS, Examination, examine
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.testing import EmbeddedBot
from tests.support.doctor import IDS, nothing
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


def examination(url: str, timeout: float) -> Examination:
    """Return an examination of a bot."""
    options: dict[str, Any] = {"token": None, "headers": {}, "connect_timeout": timeout, "transport": "auto"}
    return Examination(url, options, question="Hello", speaks=False)


def test_all_checks_are_there() -> None:
    """Each check has an id of its own, and needs one before it."""
    ids = [check.id for check in CHECKS]
    assert ids == IDS
    assert all(check.needs in ("", *ids[:number]) for number, check in enumerate(CHECKS))


def test_no_check_begins_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is no time for is skipped, and nothing fails by it."""
    monkeypatch.setattr("rtvi_sync.cli.checks.examination.SECONDS", 0.0)
    with EmbeddedBot() as bot, examination(bot.base_url, 0.001) as exam:
        exam.limit.remaining()
        threading.Event().wait(0.01)  # longer than the limit
        results = [*examine(exam)]
    late = {result.finding.text for result in results if result.id in ("http", "rtvi", "answer")}
    assert late <= {"there was no time left", "needs port"}


def test_a_bot_that_takes_all_the_time() -> None:
    """The checks share one limit: what a bot that never answers leaves no time for is skipped."""
    with EmbeddedBot() as bot, examination(bot.base_url, GUARD) as exam:
        assert exam.trial.ready is not None
        exam.limit = Deadline(0.5)  # the wait for a greeting takes longer
        texts = {result.id: result.finding.text for result in examine(exam)}
    assert texts["answer"] == texts["audio_in"] == texts["ping"] == texts["limits"] == "there was no time left"


def test_devices_that_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound system that hangs is left behind, and the check says so."""
    release = threading.Event()
    monkeypatch.setattr(RTVIClient, "get_all_mics", lambda _: release.wait(GUARD) and [])
    monkeypatch.setattr("rtvi_sync.cli.checks.surroundings.LOOK", 0.01)
    with nothing() as url, examination(url, 1.0) as exam:
        local = [*examine(exam)][-1]
        release.set()
    assert (local.id, local.finding.status) == ("local", "ok")
    assert "no list of devices in time" in local.finding.text


def test_a_name_that_is_looked_up_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of the doctor's own that hangs is left behind."""
    monkeypatch.setattr("rtvi_sync.cli.checks.examination.OPENING", 0.01)
    monkeypatch.setattr("rtvi_sync.cli.checks.examination.GRACE", 0.01)
    release = threading.Event()
    with nothing() as url, examination(url, 1.0) as exam:
        with pytest.raises(TimeoutError):
            exam.open(exam.parts, lambda *_: release.wait(GUARD))
        release.set()
