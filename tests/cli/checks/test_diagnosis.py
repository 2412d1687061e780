"""Findings, and those that are made of errors."""

from __future__ import annotations

import pytest

from rtvi_sync import RTVIError
from rtvi_sync.cli.checks.diagnosis import blocked, of_error

pytestmark = pytest.mark.inside


def test_an_error_has_its_advice() -> None:
    """The first sentence of an error is the finding, the others are the cure, unless the check knows a better one."""
    error = RTVIError("http://a.b/start answered 404: Not found. Check the URL (a.b). See the log")
    found = of_error(error)
    assert (found.status, found.text, found.cure) == (
        "fail",
        "http://a.b/start answered 404: Not found",
        "Check the URL (a.b). See the log",
    )
    assert of_error(error, "Start the bot").cure == "Start the bot"
    assert of_error(TimeoutError()).text == "TimeoutError"
    assert of_error(TimeoutError()).cure == "See the bot's log"


def test_texts_of_peers_are_one_line() -> None:
    """Control characters are removed."""
    assert of_error(RTVIError("a \x1b[2J\nb")).text == "a  [2J b"


def test_a_check_that_needs_another_one() -> None:
    """A check that was not done names the one that it needs."""
    assert (blocked("port").status, blocked("port").text) == ("skipped", "needs port")
