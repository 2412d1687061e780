"""`rtvi-sync doctor` names the faults of real bots, and none where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync.cli import main

from .conftest import BotServer

# Machines that are busy make audio uneven, which is a warning.
OF_THE_MACHINE = {"timing", "vad"}


def examined(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> tuple[str, dict[str, Any]]:
    """Return the first id that is not all right, and the findings by id."""
    main(["doctor", url, "--json", "--timeout", "60", *options])
    checks = json.loads(capsys.readouterr().out)["checks"]
    wrong = [check["id"] for check in checks if check["status"] in ("warn", "fail")]
    first = next((name for name in wrong if name not in OF_THE_MACHINE), "")
    return first, {check["id"]: check for check in checks}


def test_a_stock_bot(pipecat_stock: BotServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is wrong with a bot that has the entries of Pipecat's examples, spoken to over the eval route."""
    first, checks = examined(capsys, pipecat_stock.base_url, "--audio", "--transport", "eval")
    assert first == "", checks[first]
    assert checks["version"]["finding"] == "RTVI 2.2.0, pipecat-ai 1.14.0"
    assert checks["audio_in"]["finding"] == 'the bot heard "hello bot"'


@pytest.mark.parametrize(
    ("arguments", "first", "cure"),
    [
        (("stock", "--entries", "twilio"), "entry", "the entry websocket"),
        (("stock", "--entries", "websocket", "--no-rtvi"), "rtvi", "enable_rtvi=False"),
        (("stock", "--entries", "websocket", "--host", "127.0.0.1"), "tls", "--host localhost"),
    ],
    ids=lambda value: "_".join(value[1:]) if isinstance(value, tuple) else "",
)
def test_what_strangers_hit(
    arguments: tuple[str, ...],
    first: str,
    cure: str,
    pipecat_process: Callable[..., BotServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missing entry, a bot without RTVI and a wss:// URL without TLS are named, with their cure."""
    bot = pipecat_process(*arguments)
    timeout = ("--timeout", "10") if first == "rtvi" else ()
    found, checks = examined(capsys, bot.base_url, "--transport", "websocket", *timeout)
    assert found == first
    assert cure in checks[first]["cure"]


def test_a_token_that_is_missing(pipecat_process: Callable[..., BotServer], capsys: pytest.CaptureFixture[str]) -> None:
    """A runner that wants tokens refuses the URL of its WebSocket, and takes the URL that issues one."""
    bot = pipecat_process("runner", "--ws-auth", "token")
    assert examined(capsys, bot.ws_url)[0] == "token"
    assert examined(capsys, bot.base_url, "--transport", "websocket")[0] == ""


@pytest.mark.parametrize("fixture", ["pipecat_configured_1_2", "pipecat_configured_0_3"])
def test_older_bots(fixture: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """Bots of RTVI 1.2 and 0.3 are examined as any other, and nothing is wrong with them."""
    server: BotServer = request.getfixturevalue(fixture)
    first, checks = examined(capsys, server.base_url)
    assert first == "", checks[first]
