"""The time and the connections of the doctor."""

from __future__ import annotations

import math
import re
import threading
from typing import Any

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.cli.checks import CHECKS, Examination, examine
from rtvi_sync.cli.checks.diagnosis import Diagnosis
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.testing import EmbeddedBot
from tests.support.by_ear import EarTransport
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


NOT_BY_TELEPHONE = {"version", "answer", "function_reporting", "mute", "vad", "limits"}


def examined_by_ear(transport: EarTransport, *, speaks: bool) -> dict[str, Diagnosis]:
    """Return the findings about a bot that is only heard."""
    options: dict[str, Any] = {"token": None, "headers": None, "connect_timeout": GUARD, "transport": transport}
    # The bot is the transport's; only the first check uses the server at the URL.
    with EmbeddedBot() as bot, Examination(bot.ws_url, options, question="Hello", speaks=speaks) as exam:
        return {result.id: result.finding for result in examine(exam)}


def test_a_bot_that_is_only_heard() -> None:
    """Checks that need messages are skipped, and the others use the audio."""
    found = examined_by_ear(EarTransport(answers=(0.3, math.inf, 0.3), greeting=0.4), speaks=True)
    assert {name for name, each in found.items() if each.text == "not by telephone"} == NOT_BY_TELEPHONE
    assert not {name for name, each in found.items() if each.status in ("warn", "fail")}
    assert found["greeting"].text == "the bot speaks first: 0.4 s"
    assert re.match(r"heard after \d+ ms, 24000 Hz in frames", found["audio_out"].text)
    assert found["audio_in"].text == "the bot answered the spoken words: 0.3 s"
    assert re.match(r"the bot was interrupted \d+ ms after", found["interruption"].text)
    assert found["timing"].status == found["local"].status == "ok"


def test_a_bot_that_is_only_heard_and_not_spoken_to() -> None:
    """Without --audio there is its greeting to hear, or nothing."""
    found = examined_by_ear(EarTransport(greeting=0.4), speaks=False)
    assert found["audio_out"].text == "24000 Hz"
    found = examined_by_ear(EarTransport(), speaks=False)
    assert found["audio_out"].text == "the bot does not speak first (--audio speaks to the bot)"
    assert not {name for name, each in found.items() if each.status == "fail"}


def test_a_bot_that_is_only_heard_and_says_nothing() -> None:
    """A bot that does not answer speech fails."""
    found = examined_by_ear(EarTransport(answers=(0,)), speaks=True)
    assert (found["audio_out"].status, found["audio_out"].text) == ("fail", "there was nothing to hear")
    assert (found["audio_in"].status, found["audio_in"].text) == ("fail", "the bot did not answer the spoken words")
    assert found["timing"].text == "needs audio_out"


def test_no_check_begins_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks without time left are skipped, and none fails by it."""
    monkeypatch.setattr("rtvi_sync.cli.checks.examination.SECONDS", 0.0)
    with EmbeddedBot() as bot, examination(bot.base_url, 0.001) as exam:
        exam.limit.remaining()
        threading.Event().wait(0.01)  # longer than the limit
        results = [*examine(exam)]
    late = {result.finding.text for result in results if result.id in ("http", "rtvi", "answer")}
    assert late <= {"there was no time left", "needs port"}


def test_a_bot_that_takes_all_the_time() -> None:
    """The checks share one limit: when a silent bot has used it up, the remaining checks are skipped."""
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
