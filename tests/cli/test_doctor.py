"""`rtvi-sync doctor`: a healthy bot, secrets, the table, and exit statuses."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.doctor import IDS, Examined, a_bot, hanging, nothing, start_endpoint
from tests.support.loopback import Front, Peer, Server
from tests.support.slowness import GUARD
from tests.support.talk_command import environment


def test_a_healthy_bot(doctor: Callable[..., Examined]) -> None:
    """Nothing is wrong with a bot that greets, calls a function, answers, hears and can be interrupted."""
    with a_bot(
        transcripts="Hello bot.",
        replies={"Hello": Reply("Noon.", call=("get_time", {"city": "Oslo"}), result={"hour": 12})},
    ) as url:
        examined = doctor(url, "--audio", "--ask", "Hello, what time is it?")
    assert (examined.status, examined.document["ok"]) == (0, True)
    assert examined.document["rtvi"] == "2.2.0"
    checks = examined.checks
    done = {name for name, check in checks.items() if check["status"] in ("ok", "warn")}
    assert done >= {*IDS} - {"tls", "eval", "interruption"}
    assert "Good day." in checks["greeting"]["finding"]
    assert "get_time(city)" in checks["function_reporting"]["finding"]
    assert "24000 Hz" in checks["audio_out"]["finding"]
    assert "Hello bot." in checks["audio_in"]["finding"]


def test_a_phone_bot(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --audio the last line says that the bot was not heard; with it, nothing is wrong."""
    with EmbeddedBot() as bot:
        call = ["doctor", bot.ws_url, "--transport", "twilio"]
        assert main(call) == 0
        last = "Nothing is wrong so far. Pass --audio to check whether a phone bot answers."
        assert capsys.readouterr().out.splitlines()[-1] == last
        assert main([*call, "--audio"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "Nothing is wrong with the bot."


def test_wss_that_is_healed(doctor: Callable[..., Examined]) -> None:
    """A server that advertises wss:// on its plain port works, with a warning, which is status 3 with --strict."""
    with (
        EmbeddedBot(greeting="Good day.") as bot,
        Front(bot.ws_url, '{"wsUrl": "wss://127.0.0.1:{port}/ws-client"}') as front,
    ):
        examined = doctor(f"http://{front.authority}", "--strict")
    assert (examined.first, examined.document["ok"], examined.status) == ("tls", True, 3)
    assert "--host localhost" in examined.checks["tls"]["cure"]


def test_no_secret_is_shown(doctor: Callable[..., Examined]) -> None:
    """Login and query of the URL, tokens and headers are not in the JSON."""
    with start_endpoint("401 No") as url:
        secret = url.replace("http://", "http://ada:canary81c2@") + "/start?key=canary81c2"
        examined = doctor(secret, "--token", "canary81c2", "--header", "X-Key: canary81c2")
    assert examined.first == "token"
    assert "canary81c2" not in json.dumps(examined.document)


def test_a_server_that_quotes_the_request(doctor: Callable[..., Examined]) -> None:
    """A refusal that quotes the request is told without its keys."""

    def quote(peer: Peer) -> None:
        head, _ = peer.read_request()
        peer.answer("400 Bad Request", json.dumps({"detail": f"not understood: {head}"}).encode())

    with Server(quote) as server:
        examined = doctor(f"http://{server.authority}/start?key=canary81c2", "--header", "X-Key: canary93d4")
    assert "not understood: POST /start?key=***" in examined.checks["http"]["finding"]
    assert "canary" not in json.dumps(examined.document)


def test_a_table_of_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each check has a line, with its cure below, in 80 columns; those that could not be done are one list."""
    monkeypatch.setenv("COLUMNS", "80")
    with nothing() as url:
        assert main(["doctor", url]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("FAIL  port  ")
    assert lines[1].strip().startswith("> Start the bot")
    assert "not checked without port: http, tls, path," in lines[-4]
    assert lines[-1] == "1 failed, 0 with warnings. Start with port."


@pytest.mark.parametrize("no_color", ["", "1"])
def test_marks_have_colours_on_a_terminal(no_color: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the mark of a failure and the summary are red, unless NO_COLOR is set."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    with nothing() as url:
        assert main(["doctor", url]) == 1
    shown = terminal.getvalue()
    assert ("\x1b[31mFAIL  \x1b[0mport" in shown, "\x1b[31m1 failed, 0 with warnings" in shown) == (not no_color,) * 2
    assert "FAIL  " in shown


def test_ctrl_c_ends_it() -> None:
    """Ctrl-C ends it with the status 130, and nothing on stderr."""
    with hanging() as url:
        words = [sys.executable, "-W", "error", "-m", "rtvi_sync", "doctor", url]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ok    port")
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=GUARD) == ("", "")
    assert process.returncode == 130
