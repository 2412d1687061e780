"""Signals interrupt a send: no frame is incomplete, lost or sent twice, and nothing blocks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[2]

# Sends from the main thread while a timer strikes every fraction of a millisecond, then compares the arrived data. A
# strike may interrupt another, but no more than a few: on a busy machine they would never end.
SCRIPT = """
import signal, ssl, sys, threading, time
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.transports.websocket_connection import WebSocketConnection
from tests.support.measuring import in_coverage
from tests.support.websocket import BINARY, CLOSE, MB, Bot, tcp_pair

tls, handler_sends, size = sys.argv[1] == "tls", sys.argv[2] == "sends", int(sys.argv[3])
ours, theirs = tcp_pair(tls)
io, ended = IOThread(), threading.Event()
connection = WebSocketConnection(
    ours, io, on_messages={}, on_closed=lambda _: ended.set(),
    max_message_bytes=MB, max_queued_bytes=256 * MB, stall_timeout=60.0,
)
connection.start()
arrived = []

def read():
    bot = Bot(theirs)
    bot.sock.settimeout(60)
    while True:
        opcode, payload = bot.receive()
        if opcode == CLOSE:
            theirs.close()
            return
        arrived.append(payload)

reader = threading.Thread(target=read)
reader.start()
answered, struck, armed, depth = [], 0, False, 0

class Struck(BaseException):
    pass

def strike(_, frame):
    global struck, armed, depth
    if depth < 3:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
    if in_coverage(frame):
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        return
    depth += 1
    try:
        struck += 1
        number = struck  # a strike during this one has another
        if handler_sends:
            payload = b"handler %d" % number
            connection.send(BINARY, payload)
            answered.append(payload)
        elif armed:
            armed = False
            raise Struck
    finally:
        depth -= 1
        if strikes:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)

strikes = True
signal.signal(signal.SIGALRM, strike)
sent, tried, began = [], 0, time.monotonic()
signal.setitimer(signal.ITIMER_REAL, 0.001)
while time.monotonic() - began < 0.5 or struck < 200:
    tried += 1
    payload = b"%d " % tried + bytes(size)
    try:
        armed = True
        connection.send(BINARY, payload)
        armed = False
    except Struck:
        continue
    sent.append(payload)
strikes = False
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
connection.close(60.0)
reader.join(60)
assert not reader.is_alive()
io.close()
io.thread.join(10)
main = [payload for payload in arrived if not payload.startswith(b"handler")]
assert len(set(main)) == len(main), "doubled"
assert all(payload.endswith(bytes(size)) for payload in main), "torn"
numbers = [int(payload.split()[0]) for payload in main]
assert numbers == sorted(numbers), "out of order"
lost = set(sent) - set(main)
assert not lost, f"{len(lost)} lost"
# One strike may interrupt another, so their order is open.
assert sorted(payload for payload in arrived if payload.startswith(b"handler")) == sorted(answered)
print(f"{len(sent)} sent, {len(arrived)} arrived, {struck} strikes")
"""


@pytest.mark.parametrize("size", [10, 60_000], ids=["small", "large"])
@pytest.mark.parametrize("handler", ["raises", "sends"])
@pytest.mark.parametrize("line", ["plain", "tls"])
def test_a_signal_during_a_send(line, handler, size):
    """A handler that raises tears nothing, and one that sends itself deadlocks nothing: all arrives, once, in order."""
    command = [sys.executable, "-c", SCRIPT, line, handler, str(size)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=6 * GUARD)
    assert done.returncode == 0, done.stderr
    assert "strikes" in done.stdout
