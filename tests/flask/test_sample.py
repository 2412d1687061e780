"""The sample as a program: its pages, by either server, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import free_port
from tests.support.slowness import GUARD

from .browser import SAME_ORIGIN, wait_until_ready

ROOT = Path(__file__).parents[2]
WITHOUT_GUNICORN = """
import runpy, sys
sys.modules["gunicorn"] = None
runpy.run_module("samples.flask_app", run_name="__main__", alter_sys=True)
"""


@contextmanager
def sample(folder: Path, *command: str, **options: Any) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """Yield the sample, started so that it answers, and a browser for it."""
    log = folder / "sample.log"
    while True:
        port = free_port()
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, *command, "--port", str(port)],
                cwd=ROOT,
                env={"PATH": "", "XDG_RUNTIME_DIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                **options,
            )
        assert process.stdout is not None
        told = process.stdout.readline()
        if told or "already in use" not in log.read_text():
            break
        process.communicate(timeout=GUARD)  # another process was given the same free port
    try:
        assert told.decode() == f"Open http://127.0.0.1:{port}/\n", log.read_text()
        # Who is told to open it need not try twice.
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=SAME_ORIGIN, timeout=GUARD) as http:
            yield http, process
    finally:
        process.terminate()
        process.communicate(timeout=GUARD)


@pytest.mark.parametrize(
    "command", [("-m", "samples.flask_app"), ("-c", WITHOUT_GUNICORN)], ids=["gunicorn", "werkzeug"]
)
def test_the_sample_serves_its_page(command: tuple[str, ...], tmp_path: Path) -> None:
    """A page without a line of script in it, under a policy that allows none, and a session with the embedded bot."""
    with sample(tmp_path, *command) as (http, process):
        page = http.get("/")
        assert ("gunicorn" in page.headers["Server"]) == (command[0] == "-m")
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert re.findall(r"<script[^>]*>([^<]*)</script>", page.text) == [""]
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", page.text)
        for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert http.get(address).status_code == 200
        assert "innerHTML" not in http.get("/bot/rtvi-voice.js").text
        assert http.cookies.get("session")
        assert http.post("/bot/session", json={}).status_code == 201
        wait_until_ready(lambda: http.get("/bot/session").json())
        assert http.get("/", headers={"Host": "evil.example"}).status_code == 400
        process.terminate()
        assert process.wait(GUARD) in (0, -15)
        assert "Control socket" not in (tmp_path / "sample.log").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn does not run there")
def test_ctrl_c_while_a_page_is_open(tmp_path: Path) -> None:
    """A terminal interrupts the server and its worker: the stream and the session end in good order. gunicorn, which
    would wait for the stream, does not kill the worker."""
    command = "-m", "samples.flask_app", "--url"
    with EmbeddedBot() as bot, sample(tmp_path, *command, bot.ws_url, start_new_session=True) as (http, process):
        http.get("/")
        assert http.post("/bot/session", json={}).status_code == 201
        wait_until_ready(lambda: http.get("/bot/session").json())
        with http.stream("GET", "/bot/events") as stream:
            parts = stream.iter_lines()
            next(parts)
            os.killpg(process.pid, signal.SIGINT)
            for _ in parts:
                pass
        assert bot.wait_for_session().wait_ended(GUARD).code == 1000
        process.wait(GUARD)
