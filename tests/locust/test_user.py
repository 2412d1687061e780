"""The reports and the remains of Locust's users, in a process that Locust has patched."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.installed import install_command
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]


def never(_: BotSession, message: dict[str, Any]) -> bool:
    """Return a bot that does not answer one kind of request."""
    return message["type"] == "client-message" and message["data"]["t"] == "never"


@pytest.fixture(scope="module")
def lives() -> Iterator[tuple[dict[str, Any], list[BotSession]]]:
    """Yield the findings of `users.py`, and the sessions that the bots still have while it runs."""
    pipe = subprocess.PIPE
    with (
        EmbeddedBot(handler=never, replies="No.", hangover=0.1) as bot,
        EmbeddedBot(ready=False) as mute,
        subprocess.Popen(
            [sys.executable, "-m", "tests.locust.users", bot.ws_url, mute.ws_url],
            cwd=ROOT,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        limit = threading.Timer(4 * GUARD, process.kill)  # it runs a dozen load tests
        limit.start()
        found = process.stdout.readline()
        sessions = [*bot.sessions, *mute.sessions]
        for session in sessions.copy():
            with contextlib.suppress(RequestTimeoutError):
                session.wait_ended(GUARD)
                sessions.remove(session)
        _, errors = process.communicate("\n")
        limit.cancel()
        assert (process.returncode, errors) == (0, "")
        yield json.loads(found), sessions


def test_entries(lives: tuple[dict[str, Any], list[BotSession]]) -> None:
    """A session, its spoken answer, a request and a step, each with its time and the context of the user."""
    entries = lives[0]["entries"]
    assert [(entry["request_type"], entry["name"]) for entry in entries] == [
        ("CONNECT", "connect"),
        ("ANSWER", "first text"),
        ("ANSWER", "first audio"),
        ("ANSWER", "complete"),
        ("REQUEST", "order"),
        ("STEP", "nothing"),
        ("REQUEST", "never"),
    ]
    assert all(entry["context"] == {"who": "me"} and entry["response_time"] > 0 for entry in entries)
    assert [entry["exception"] for entry in entries] == [None] * 6 + ["RequestTimeoutError"]
    assert entries[4]["response_length"] == len('{"number": 7}')
    text, audio, complete = (entry["response_time"] for entry in entries[1:4])
    assert [text, audio] == pytest.approx([1000 * seconds for seconds in lives[0]["turn"]])
    assert 50 < text < complete  # milliseconds: of 100 ms of silence a part is over before
    began = [entry["start_time"] for entry in entries]
    assert began[0] < began[1] < began[4] < began[5]


def test_without_a_host(lives: tuple[dict[str, Any], list[BotSession]]) -> None:
    """A user with no valid address ends the test as a failure, which names the missing part."""
    (absent, *statuses), (wrong, *more), (unknown, *others), (unfit, *last) = lives[0]["no host"]
    assert absent.startswith("No host: pass --host")
    assert re.match(r"No bot is reached at the host \(--host .*put ws://", wrong)
    assert unknown.startswith("transport must be a Transport or one of 'auto', ")
    assert "which the transport 'webrtc' does not use" in unfit
    assert [*statuses, *more, *others, *last] == [1] * 4


@pytest.mark.parametrize("way", ["connecting", "asking", "hearing", "waiting", "sleeping", "flapping"])
def test_killed(lives: tuple[dict[str, Any], list[BotSession]], way: str) -> None:
    """A user that is stopped ends, whatever it is doing."""
    assert lives[0]["running"][way] == 0


def test_nothing_is_left(lives: tuple[dict[str, Any], list[BotSession]]) -> None:
    """Users who were killed leave no greenlet, no descriptor and no session."""
    found, sessions = lives
    assert found["left"] == []
    assert sessions == []


@pytest.mark.parametrize("missing", ["locust", "gevent"])
def test_the_package_does_not_need_locust(missing: str) -> None:
    """`import rtvi_sync` loads neither, and without one of them `rtvi_sync.locust` names the package to install."""
    script = """
import sys
import rtvi_sync.testing
assert not {"locust", "gevent"} & set(sys.modules)
sys.modules[sys.argv[1]] = None
try:
    import rtvi_sync.locust
except rtvi_sync.MissingExtraError as error:
    print(error)
"""
    command = [sys.executable, "-c", script, missing]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD)
    assert done.stderr == ""
    assert done.stdout == f'rtvi_sync.locust needs the extra "locust". Install it with: {install_command("locust")}\n'
