"""A load test in a new process: what the package loads at first is not measured as the bot's time."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import authority, serving
from tests.support.processes import run_python
from tests.support.webrtc import FarLoop, far_loop, ready_answers, rtc_bot  # noqa: F401 - a fixture

# Prints whether the clock starts after the import of HTTP, and the modules that connecting imports. By then the file
# with the trusted authorities is gone, so they are loaded, too.
SCRIPT = """
    import os, sys
    from rtvi_sync.testing import MeasuredClient, run_many

    def make():
        print("httpx" in sys.modules)
        return MeasuredClient.for_url(sys.argv[1])

    def connect(client):
        os.remove(os.environ["SSL_CERT_FILE"])
        before = set(sys.modules)
        client.connect()
        print(sorted(set(sys.modules) - before))

    report = run_many(lambda client: None, 1, make, connect=connect)
    assert not report.failed, report
"""


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the processes of a test trust the authority of the tests."""
    authority().cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


def loaded_late(url: str) -> tuple[bool, list[str]]:
    status, out, errors = run_python(SCRIPT, url, executable=sys.executable)
    assert (status, errors) == (0, "")
    is_early, late = map(ast.literal_eval, out.splitlines())
    return is_early, late


def test_connect_by_websocket() -> None:
    """Connecting by HTTP and a WebSocket, with TLS, loads nothing."""
    with EmbeddedBot(ssl_context=serving()) as bot:
        assert loaded_late(bot.base_url) == (True, [])


def test_connect_by_webrtc(far_loop: FarLoop) -> None:  # noqa: F811 - the fixture above
    """Connecting by WebRTC loads nothing, apart from parts of cryptography that aiortc asks for when it connects."""
    with rtc_bot(far_loop, ready_answers) as bot:
        is_early, late = loaded_late(f"{bot.url}/api/offer")
    assert is_early
    assert {name.partition(".")[0] for name in late} <= {"cryptography"}
