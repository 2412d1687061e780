"""The sample as `run.py sample django_app` starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.processes import free_port
from tests.support.slowness import GUARD

from .server import ROOT, Browser, environ


def start(*arguments: str, **variables: str) -> tuple[psutil.Popen, str]:
    """Start the program; return it, and the address that its server prints, at which it listens by then."""
    port = free_port()
    program = psutil.Popen(
        [sys.executable, "-m", "samples.django_app", "--port", str(port), *arguments],
        cwd=ROOT,
        env=environ(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to all processes of its foreground
    )
    url = f"http://127.0.0.1:{port}/"
    assert any(url in line for line in program.stdout)
    socket.create_connection(("127.0.0.1", port), GUARD).close()
    return program, url


def stop(program: psutil.Popen, number: int) -> tuple[int, list[psutil.Process]]:
    """Stop it; return its exit status, and the processes that are left."""
    processes = program.children(recursive=True)
    try:
        if number == signal.SIGINT:
            os.killpg(program.pid, number)
        else:
            program.send_signal(number)
        program.communicate(timeout=GUARD)
        return program.returncode, [process for process in processes if process.is_running()]
    finally:
        for process in (program, *processes):
            if process.is_running():
                process.kill()
        program.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_its_own_bot_until_it_is_stopped(number: int) -> None:
    """With gunicorn, several workers and one bot; Ctrl-C and SIGTERM leave no process."""
    program, url = start()
    try:
        browser = Browser(url)
        assert [browser.ask("Hello").json["answer"] for _ in range(3)] == ["You said: Hello"] * 3
    finally:
        left = stop(program, number)
    assert left == (0, [])


def test_without_gunicorn_djangos_own_server_does(tmp_path: Path) -> None:
    """Without gunicorn, Django's own server is used, with any bot; the bot's greeting is not the answer."""
    hidden = "import sys; sys.modules['gunicorn'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    answer = Reply("It is me.", call="who", result={"name": "Ada"})
    with EmbeddedBot(greeting="Hello, ask me.", replies=[answer]) as bot:
        program, url = start("--url", bot.ws_url, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
        try:
            assert Browser(url).ask("Who is there?").json["answer"] == "It is me."
        finally:
            left = stop(program, signal.SIGINT)
    assert left == (0, [])
