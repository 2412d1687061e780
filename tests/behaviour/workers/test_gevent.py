"""gevent: the differences in its workers."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD

from .conftest import ROOT
from .gunicorn_server import Gunicorn

# Without it, name look-ups run in threads of gevent's own.
LOOK_UP_IN_PLACE = "import gevent\ngevent.config.resolver = 'block'\n"


def test_no_real_thread(bot: EmbeddedBot, begun: Callable[[], list[BotSession]], tmp_path: Path) -> None:
    """Thirty sessions, and a spoken turn, need no thread but the worker's own."""
    with Gunicorn(tmp_path, bot.ws_url, "gevent", head=LOOK_UP_IN_PLACE) as server:
        crowd = server.get("crowd", "30")["answer"]
        assert crowd["answers"] == 30
        assert crowd["system"] == 1
        assert crowd["package"]
        assert server.get("talk")["answer"] > 0
        assert server.get("threads")["answer"] == {"system": 1, "package": [], "takes_signals": True}
    for session in begun():
        session.wait_ended(GUARD)


@pytest.fixture(scope="module", params=["ws", "wss"])
def late(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gunicorn]:
    """Yield a server that imports the application before it is patched, and whose bot speaks TLS or does not."""
    folder = tmp_path_factory.mktemp("late")
    context = None
    head = ""
    if request.param == "wss":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        head = f"raw_env = ['SSL_CERT_FILE={folder / 'ca.pem'}']\n"
    with (
        EmbeddedBot(ssl_context=context, hangover=0.1) as bot,
        Gunicorn(folder, bot.ws_url, "gevent", preload=True, head=head) as server,
    ):
        yield server


class TestPatchedLate:
    """`--preload` without patching first: the package was imported before gevent's patches, the clients made too."""

    def test_first_sessions_at_once(self, late: Gunicorn) -> None:
        """The first sessions of a worker may start at the same moment."""
        with ThreadPoolExecutor(8) as browsers:
            assert list(browsers.map(lambda n: late.get("in_own", str(n))["answer"], range(8))) == list("01234567")

    def test_a_client_made_before_the_patches(self, late: Gunicorn) -> None:
        """A client made before the patches answers, even to several requests, and its session ends."""
        assert late.get("in_shared", "a")["answer"] == "a"
        assert late.get("many", "b")["answer"] == [f"b{n}" for n in range(8)]
        late.get("leave")
        assert late.get("threads")["answer"]["package"] == []

    def test_a_spoken_turn(self, late: Gunicorn) -> None:
        """Sources and sinks in memory work."""
        assert late.get("talk")["answer"] > 0


FORK = """
    from gevent import monkey
    monkey.patch_all()
    import os, sys
    import gevent
    from rtvi_sync import ForkedProcessError, RTVIClient, WebSocketTransport
    from rtvi_sync.media import NullSink, SilenceSource
    from tests.support import limits

    limits.change(idle_worker=0.1)
    transport = WebSocketTransport(sys.argv[1], ping_interval=0.1)
    client = RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), connect_timeout=10)
    client.on("bot_ready", lambda: None)
    client.connect()
    child = os.fork()
    if child == 0:
        gevent.sleep(0.5)
        try:
            client.send_text("x")
        except ForkedProcessError:
            print("refused", flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], client.send_client_request("echo", 1))
    client.disconnect()
"""


def test_a_fork(bot: EmbeddedBot, begun: Callable[[], list[BotSession]]) -> None:
    """The greenlets of a live session, which gevent copies into a child, do nothing there, and the parent talks on."""
    program = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK), bot.ws_url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (program.stdout, program.stderr) == ("refused\n0 1\n", "")
    assert [session.wait_ended(GUARD).code for session in begun()] == [1000]
