"""The start and the end of commands that serve a bot."""

from __future__ import annotations

import json
import signal
import socket
import sys

import pytest

from rtvi_sync import connect
from rtvi_sync.cli import main
from tests.support.processes import inherited
from tests.support.served import served
from tests.support.slowness import GUARD


def test_json_and_sigterm() -> None:
    """With --json the line is an object with both URLs; SIGTERM ends the sessions and the process."""
    with served("bot", "--port", "0", "--json") as (line, process):
        urls = json.loads(line)
        with connect(urls["ws_url"], text_only=True, connect_timeout=GUARD) as client:
            process.send_signal(signal.SIGTERM)
            assert client.wait(GUARD).initiator == "server"
        assert process.wait(GUARD) == 128 + signal.SIGTERM
    assert urls["url"].startswith("http://127.0.0.1:")


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """If a port is taken, one line names the cure."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["bot", "--port", str(taken.getsockname()[1])]) == 1
    assert capsys.readouterr().err == (
        "rtvi-sync bot: The bot cannot listen: Address already in use. Pass another --port; 0 takes any free one\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_nohup_is_respected() -> None:
    """A bot that was started with SIGHUP ignored goes on after one, and ends by SIGTERM."""
    with inherited(signal.SIGHUP, signal.SIG_IGN), served("bot", "--port", "0") as (url, process):
        process.send_signal(signal.SIGHUP)
        with connect(url, text_only=True, connect_timeout=GUARD) as client:
            assert client.connected
        process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD) == 128 + signal.SIGTERM
