"""The Autobahn test suite: its fuzzing server says and does whatever a server may and may not, and we echo."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.net.dial import Network
from rtvi_sync.net.upgrade import open_websocket
from rtvi_sync.transports.websocket_connection import WebSocketConnection
from rtvi_sync.transports.websocket_frames import BINARY, TEXT
from tests.support.required import missing
from tests.support.slowness import GUARD

pytestmark = [pytest.mark.inside, pytest.mark.matrix, pytest.mark.timeout(900)]

MB = 1024 * 1024
CASE_LIMIT = 120.0
AGENT = "rtvi_sync"

# The suite's verdicts for a correct client, or for a case that it does not judge.
GOOD = {"OK", "INFORMATIONAL"}
# Invalid text in fragments is refused when the message is complete; earlier would be better.
FAST_FAILING = ("6.4.",)
# Compression, which is never asked for: a small message could grow to any size.
COMPRESSION = ("12.", "13.")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yield the address of the fuzzing server, and the folder of its reports."""
    suite = os.environ.get("RTVI_AUTOBAHN")
    if not suite:
        missing("the Autobahn test suite is not installed (RTVI_AUTOBAHN is not set): run `run.py test --matrix`")
    folder = tmp_path_factory.mktemp("autobahn")
    program = Path(__file__).with_name("fuzzing_server.py")
    log = folder / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [suite, program, folder],
            env={**os.environ, "PYTHONPATH": str(Path(suite).parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            port = process.stdout.readline()
            assert port, log.read_text()
            yield f"ws://127.0.0.1:{int(port)}", folder
        finally:
            process.kill()


class Echo:
    """A session that returns each message, until the server has sent enough."""

    def __init__(self, io: IOThread, url: str) -> None:
        self.messages: list[bytes] = []
        self._over = threading.Event()
        attempt = AbortController(Deadline(CASE_LIMIT), TimeoutError)
        sock, leftover, detach = open_websocket(urlsplit(url), {}, Network(proxy=False), attempt.signal)
        self._connection = WebSocketConnection(
            sock,
            io,
            on_messages={opcode: partial(self._answer, opcode) for opcode in (TEXT, BINARY)},
            on_closed=lambda _: self._over.set(),
            max_message_bytes=16 * MB,
            max_queued_bytes=64 * MB,
            stall_timeout=CASE_LIMIT,
        )
        detach()
        self._connection.start(leftover)

    def _answer(self, opcode: int, payloads: list[bytes]) -> None:
        self.messages = payloads[-1:]
        with contextlib.suppress(DisconnectedError):
            for payload in payloads:
                self._connection.send(opcode, payload)

    def wait(self) -> None:
        assert self._over.wait(CASE_LIMIT), "the case does not end"


@pytest.fixture(scope="module")
def io():
    """Yield one I/O thread for all cases."""
    thread = IOThread()
    yield thread
    thread.close()
    thread.thread.join(GUARD)


def tell(counts: Counter[str]) -> list[str]:
    """Return the line of the summary."""
    return [
        f"Autobahn: {sum(counts.values())} cases: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    ]


def test_every_case(server, io, show_table):
    """Every case is passed; those about compression, which is never asked for, count as not implemented."""
    url, folder = server
    asking = Echo(io, f"{url}/getCaseCount")
    asking.wait()
    for number in range(1, int(asking.messages[0]) + 1):
        Echo(io, f"{url}/runCase?case={number}&agent={AGENT}").wait()
    Echo(io, f"{url}/updateReports?agent={AGENT}").wait()
    reports = json.loads((folder / "index.json").read_text())[AGENT]
    show_table(tell, Counter(report["behavior"] for report in reports.values()))
    assert len(reports) > 500
    wrong = {}
    for case, report in reports.items():
        good = GOOD
        if case.startswith(FAST_FAILING):
            good = GOOD | {"NON-STRICT"}
        elif case.startswith(COMPRESSION):
            good = {"UNIMPLEMENTED"}
        if report["behavior"] not in good or report["behaviorClose"] not in GOOD:
            wrong[case] = (report["behavior"], report["behaviorClose"])
    assert wrong == {}
