"""Sessions over WebRTC in the children of multiprocessing, in gunicorn, Celery, gevent and a notebook's kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.kernel import Kernel, running_kernel
from tests.support.processes import python, rest_of
from tests.support.slowness import GUARD
from tests.support.ticking import TICKING
from tests.support.webrtc import FarLoop, RTCBot, far_loop, ready_answers, rtc_bot  # noqa: F401 - a fixture

from .celery_worker import celery_worker
from .conftest import ROOT, WARNINGS
from .gunicorn_server import Gunicorn

pytestmark = pytest.mark.matrix


@pytest.fixture
def bot(far_loop: FarLoop) -> Iterator[RTCBot]:  # noqa: F811 - the fixture above
    """Run a bot; at the end all of its sessions must have been ended by their clients."""
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot
        assert bot.calls
        assert all(call.closed.wait(GUARD) for call in bot.calls)


@pytest.fixture
def offers(bot: RTCBot) -> str:
    """Return where it takes offers."""
    return f"{bot.url}/api/offer"


@pytest.mark.parametrize(
    ("method", "style"),
    [("fork", "process"), ("fork", "os_fork"), ("spawn", "pool"), ("forkserver", "executor"), ("preloaded", "process")],
)
def test_children(offers: str, method: str, style: str) -> None:
    """Clients made at import and in the child work there, several at once, beside a live session of the parent's."""
    program = subprocess.run(
        [sys.executable, "-m", "tests.behaviour.workers.parent", method, style],
        env={**os.environ, "RTVI_BOT_URL": offers, "PYTHONWARNINGS": WARNINGS},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * GUARD,
    )
    assert (program.returncode, program.stderr) == (0, "")
    told = json.loads(program.stdout)
    assert told["parent"][1] == "d"
    answers = {
        (child["view"], json.dumps(child["answer"])) for child in told["children"] if child["view"] != "in_early"
    }
    assert answers == {("in_shared", '"a"'), ("in_own", '"b"'), ("many", json.dumps([f"c{n}" for n in range(8)]))}
    refusals = [child["answer"]["text"] for child in told["children"] if child["view"] == "in_early"]
    assert bool(refusals) is (method in ("fork", "preloaded"))
    assert all("Make and connect a client in the child process" in text for text in refusals)


@pytest.mark.parametrize("worker_class", ["sync", "gthread", "gevent"])
def test_gunicorn(offers: str, tmp_path: Path, worker_class: str) -> None:
    """A client made before the fork answers in a worker, so does one made there, and the end is in good order."""
    with Gunicorn(tmp_path, offers, worker_class, preload=worker_class != "gevent") as server:
        assert server.get("in_shared", "a")["answer"] == "a"
        assert server.get("many", "b")["answer"] == [f"b{n}" for n in range(8)]
        assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_celery(offers: str, tmp_path: Path) -> None:
    """A client made before the fork works in a prefork worker, and so does one that is made there."""
    with celery_worker(tmp_path, offers, "--concurrency", "1", RTVI_CONNECT_EARLY="1") as worker:
        assert worker.do("in_early")["answer"]["state"] == "disconnected"
        assert worker.do("in_shared", "a")["answer"] == "a"
        assert worker.do("in_own", "b")["answer"] == "b"
        worker.process.terminate()
        assert worker.process.wait(GUARD) == 0


GEVENT = f"""{TICKING}
    import sys
    from rtvi_sync import RTVIClient, SmallWebRTCTransport
    from rtvi_sync.media import BytesSink, ToneSource
    from tests.support.threads import thread_names

    def talk(n):
        client = RTVIClient(transport=SmallWebRTCTransport(sys.argv[1]), mic=ToneSource(duration=0.3),
                            speaker=BytesSink(), connect_timeout=60)
        with client:
            gevent.sleep(0.5)
            return client.send_client_request("echo", n), client.stats().audio_sent > 0.3

    jobs = [gevent.spawn(talk, n) for n in range(3)]
    gevent.joinall(jobs)
    ticker.kill()
    print([job.value for job in jobs], len(ticks) > 30, thread_names())
"""


def test_gevent(offers: str) -> None:
    """Three sessions at once in a patched process run side by side, and nothing is left."""
    with python(GEVENT, offers, executable=sys.executable) as process:
        out, err = rest_of(process)
    assert (out, err) == ("[(0, True), (1, True), (2, True)] True []\n", "")


CELL = """
import asyncio, threading
from rtvi_sync import RTVIClient, SmallWebRTCTransport
assert asyncio.get_running_loop().is_running()
client = RTVIClient(transport=SmallWebRTCTransport({url!r}), text_only=True, connect_timeout=60)
client.connect()
print(client.send_client_request("echo", "from a cell"))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """Run a kernel; its library keeps sockets until the module's end."""
    with running_kernel() as kernel:
        yield kernel


def test_a_notebook(offers: str, kernel: Kernel) -> None:
    """A cell blocks beside the kernel's own loop, a later one finds the session, and the kernel's end ends it."""
    assert kernel.run(CELL.format(url=offers)) == "from a cell\n"
    assert kernel.run("client.send_client_request('echo', 'later')") == "'later'"
    kernel.stop()
