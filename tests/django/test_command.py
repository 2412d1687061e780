"""`manage.py ask_bot`, and the settings."""

from __future__ import annotations

import re

import pytest

from rtvi_sync.testing import EmbeddedBot

from .server import run

SECRET = "hush-hush-hush"


def test_it_asks_the_bot_at_the_url() -> None:
    """The answer and its time are on one line; control characters for a terminal are removed."""
    with EmbeddedBot(replies="\x1b[2J<b>Noon</b>\nor so") as bot:
        done = run("manage.py", "ask_bot", "What time is it?", "--url", bot.ws_url)
        asked = bot.wait_for_session().wait_for_message("send-text")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\ufffd\[2J<b>Noon</b>\ufffdor so \(\d\.\d\d s\)\n", done.stdout)
    assert asked["data"]["content"] == "What time is it?"


@pytest.mark.parametrize("path", ["", "/start"])
def test_it_asks_a_server_for_the_bot(path: str) -> None:
    """The URL may be a connect endpoint's server or a runner, and may be set in the environment."""
    with EmbeddedBot() as bot:
        done = run("manage.py", "ask_bot", "Hello", RTVI_URL=bot.base_url + path)
    assert done.stdout.startswith("You said: Hello (")


def test_without_a_url_it_asks_the_built_in_bot() -> None:
    """Which is started for it, and stopped."""
    done = run("manage.py", "ask_bot", "Hello")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("You said: Hello (")


def test_a_failure_is_one_line() -> None:
    """Status 1, the reason, no traceback and no token."""
    done = run("manage.py", "ask_bot", "Hello", "--url", f"ws://127.0.0.1:1/?token={SECRET}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("CommandError: ")
    assert "cannot be reached" in done.stderr
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr


def test_a_silent_bot_is_a_failure_too() -> None:
    """A silent bot is a failure after the limit that the settings name."""
    with EmbeddedBot(ready=False) as bot:
        done = run("manage.py", "ask_bot", "Hello", "--url", bot.ws_url, RTVI_SECONDS="0.3")
    assert done.returncode == 1
    told = re.search(r"was not ready within ([0-9.]+) s", done.stderr)
    assert told is not None, done.stderr
    assert float(told[1]) < 10  # it says how long it has taken, and without the setting that is 20 s


def test_settings_are_safe_as_they_are() -> None:
    """The only warnings of Django's own check are about HTTPS; the key is never the same, unless it is given."""
    check = run("manage.py", "check", "--deploy")
    assert set(re.findall(r"security\.W\d+", check.stderr)) == {"security.W004", "security.W008", "security.W016"}
    show = ("-c", "from mysite import settings; print(settings.SECRET_KEY, settings.DEBUG, settings.ALLOWED_HOSTS)")
    first, second = (run(*show).stdout.split(maxsplit=2) for _ in range(2))
    assert first[0] != second[0]
    assert len(first[0]) > 50
    assert first[1:] == ["False", "['127.0.0.1', 'localhost', '[::1]']\n"]
    assert run(*show, DJANGO_SECRET_KEY="given").stdout.split()[0] == "given"
