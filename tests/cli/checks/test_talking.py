"""Faults in a bot's answers, reports and hearing: the doctor's first id that is not all right names the wrong
subject."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import pytest

from rtvi_sync.testing import BotSession, Fault, Reply
from tests.support.doctor import Examined, a_bot


def hears_nothing_more(session: BotSession, message: dict[str, Any]) -> None:
    """Mute the user for good."""
    if message["type"] == "client-ready":
        session.send({"label": "rtvi-ai", "type": "user-mute-started"})


def leaves(session: BotSession, message: dict[str, Any]) -> None:
    """Close the connection at the first question."""
    if message["type"] == "send-text":
        session.close(1011)


def calls(report_level: Literal["none", "full"]) -> Reply:
    """Return a reply that calls a function, and reports so much of it."""
    return Reply("Noon.", call=("get_time", {"city": "Oslo"}), result={"hour": 12}, report_level=report_level)


@pytest.mark.parametrize(
    ("server", "first", "finding", "cure"),
    [
        pytest.param(lambda: a_bot(faults=[Fault("error")]), "answer", "The model failed", "its key", id="no_answer"),
        pytest.param(lambda: a_bot(handler=leaves), "answer", "1011", "log", id="left"),
        pytest.param(
            lambda: a_bot(replies=calls("none")),
            *("function_reporting", "without names", "RTVIObserverParams"),
            id="nameless_function",
        ),
        pytest.param(
            lambda: a_bot(replies=Reply("Noon.", say="")), "audio_out", "text", "audio_out_enabled", id="mute_bot"
        ),
        pytest.param(
            lambda: a_bot(handler=hears_nothing_more), "mute", "has muted the user", "user_mute_strategies", id="muted"
        ),
    ],
)
def test_the_first_thing_that_is_wrong(
    server: Callable[[], contextlib.AbstractContextManager[str]],
    first: str,
    finding: str,
    cure: str,
    doctor: Callable[..., Examined],
) -> None:
    """The first check that is not all right is the one whose subject is wrong, and it names the cure."""
    with server() as url:
        doctor(url, "--timeout", "4").assert_first(first, finding, cure)


def test_an_old_bot(doctor: Callable[..., Examined]) -> None:
    """A bot of RTVI 0.3 is examined as any other."""
    with a_bot(version="0.3.0") as url:
        examined = doctor(url)
    assert (examined.status, examined.document["rtvi"]) == (0, "0.3.0")
    assert examined.first == ""


def test_a_version_of_many_digits(doctor: Callable[..., Examined]) -> None:
    """A version that is no number is shown, whatever its length."""

    def introduce(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "client-ready":
            about = {"library": "pipecat-ai", "library_version": "9" * 5000}
            ready = {"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {"version": "2.2.0", "about": about}}
            session.send(ready)
        elif message["type"] == "send-text":
            session.close()
        return True

    with a_bot(handler=introduce) as url:
        check = doctor(url).checks["version"]
    assert (check["status"], check["finding"][:26]) == ("ok", "RTVI 2.2.0, pipecat-ai 999")


def test_a_bot_that_does_not_hear(doctor: Callable[..., Examined]) -> None:
    """A bot that hears nothing fails when it is spoken to, and is not judged by it otherwise."""
    with a_bot(speech_threshold=30000.0) as url:
        examined = doctor(url, "--audio")
    assert examined.first == "audio_in"
    assert "audio_in_enabled" in examined.checks["audio_in"]["cure"]
