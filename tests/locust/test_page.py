"""The page of a load test, by one process; `test_distributed.py` has the page of several."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rtvi_sync.testing import EmbeddedBot
from tests.support.load_page import sessions_in
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]


def alone(url: str, folder: Path, page: Path) -> subprocess.CompletedProcess[str]:
    """Let the one user of a process call a bot, and fail in its task."""
    (folder / "locustfile.py").write_text(FAILING)
    options = ["--headless", "--users=1", "--host", url, "--rtvi-html", str(page)]
    return subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(folder / "locustfile.py"), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )


FAILING = """
import gevent
from locust import task
from rtvi_sync.locust import RTVIUser

class Caller(RTVIUser):
    @task
    def call(self):
        if self.client.turns():  # the second call
            gevent.spawn(self.environment.runner.quit)
            gevent.sleep(60)
        with self.client as client:
            client.send_text("Hello", audio_response=False)
            client.wait_for_answer(60)
            assert not "sold out"
"""


def test_a_task_that_fails(tmp_path: Path) -> None:
    """A session whose task raises has failed on the page, though all that was measured of it went well."""
    with EmbeddedBot() as bot:
        alone(bot.ws_url, tmp_path, tmp_path / "page.html")
    (session,) = sessions_in(tmp_path / "page.html")
    assert (session["outcome"], session["error"]) == (
        "failed",
        'AssertionError: locustfile.py:15: assert not "sold out"',
    )
    assert {done["error"] for done in session["measurements"]} == {None}


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """A test does not start if there can be no folder for its page, and tells if the page cannot be written."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with EmbeddedBot() as bot:
        early = alone(bot.ws_url, tmp_path, tmp_path / "file" / "page.html")
        late = alone(bot.ws_url, tmp_path, tmp_path / "folder")
    assert early.returncode == 1
    assert "NotADirectoryError" in early.stderr or "FileExistsError" in early.stderr
    assert re.search(r"The page .*folder cannot be written: .*directory", late.stderr)
