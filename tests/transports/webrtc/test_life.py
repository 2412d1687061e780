"""WebRTC sessions and the process: exit, fork, collection, reconnecting, leaks."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import weakref
from typing import Any

import psutil
import pytest

from rtvi_sync import ReconnectPolicy, RTVIClient, SmallWebRTCTransport, TransportState
from rtvi_sync.media import NullSink, SilenceSource
from tests.support import part_probes
from tests.support.forking import in_child
from tests.support.processes import python
from tests.support.slowness import GUARD, takes
from tests.support.threads import count_descriptors, thread_names
from tests.support.waiting import until
from tests.support.webrtc import BOT_PROGRAM, ready_answers, rtc_bot

LIMITS: dict[str, Any] = {"connect_timeout": GUARD, "request_timeout": GUARD, "text_only": True}

PROGRAM = """
import sys
import aiortc  # its import takes as long as all the rest
from rtvi_sync import RTVIClient, SmallWebRTCTransport
client = RTVIClient(
    transport=SmallWebRTCTransport(sys.argv[1], ice_timeout=None), text_only=True, connect_timeout=100
)
"""
LIVE = """
client.connect()
print("now", flush=True)
"""


@pytest.fixture
def bot(far_loop):
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot


def start(program, arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    return process


def test_exit_with_a_live_session(bot):
    """The bot sees the end, and nothing is written to the standard error."""
    process = start(PROGRAM + LIVE, [f"{bot.url}/api/offer"])
    with takes(at_most=5.0):
        _, errors = process.communicate(timeout=GUARD)
    assert (process.returncode, errors) == (0, "")
    assert bot.call.closed.wait(GUARD)


def test_a_thread_that_runs_a_loop_of_its_own(bot):
    """Calls work on a thread that runs a loop of its own, as a notebook's main thread does, and block that loop."""

    async def main():
        with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), **LIMITS) as client:
            return client.send_client_request("echo", 1)

    assert asyncio.run(main()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_sessions_of_its_own(bot):
    """A child talks to the bot by a client of its own, and the parent's session goes on."""
    with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), **LIMITS) as client:
        until(lambda: bot.calls and bot.calls[0].channel is not None)

        def child():
            with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), **LIMITS) as own:
                return own.send_client_request("echo", "child")

        assert in_child(child) == "child"
        assert client.send_client_request("echo", "parent") == "parent"


def test_a_dropped_client_ends_its_session(bot):
    """Nothing of the loop, of aiortc or of this package keeps a client alive."""
    transport = SmallWebRTCTransport(f"{bot.url}/api/offer")
    client = RTVIClient(transport=transport, **LIMITS)
    client.connect()
    call = bot.call
    dropped: list[weakref.ref[Any]] = [weakref.ref(client), weakref.ref(part_probes.peer_of(transport))]
    del transport
    with pytest.warns(ResourceWarning, match="dropped while connected"):
        del client
    assert call.closed.wait(GUARD)

    def is_gone() -> bool:
        gc.collect()
        return [each() for each in dropped] == [None, None]

    until(is_gone)


def test_a_lost_session_is_replaced(bot):
    """`ReconnectPolicy` makes a new one, with an offer of its own."""
    transport = SmallWebRTCTransport(f"{bot.url}/api/offer")
    with RTVIClient(transport=transport, reconnect=ReconnectPolicy(initial_delay=0.01), **LIMITS) as client:
        bot.call.drop()
        until(lambda: len(bot.calls) == 2 and client.state is TransportState.READY)
        assert client.send_client_request("echo", 1) == 1


@pytest.mark.matrix
def test_many_sessions_leave_nothing():
    """Each of 50 leaves no thread, descriptor or task, and less than 50 kB; later ones less than 30 kB."""
    with part_probes.held_loop() as loop, python(BOT_PROGRAM, "127.0.0.1") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())
        transport = SmallWebRTCTransport(f"{url}/api/offer")
        client = RTVIClient(
            transport=transport, mic=SilenceSource(), speaker=NullSink(), **{**LIMITS, "text_only": False}
        )
        left, sizes = [], []
        for _ in range(7):
            for _ in range(10):
                client.connect()
                assert client.send_client_request("echo", 1) == 1
                client.disconnect()
            gc.collect()
            until(lambda: part_probes.left_on_loop(loop)[0] == 0)
            left.append((count_descriptors(), thread_names()))
            sizes.append(psutil.Process().memory_info().rss)
        process.stdin.close()
        process.wait(GUARD)
    assert left[1:] == left[:-1]
    assert (sizes[-1] - sizes[1]) / 50 < 50_000
    assert (sizes[-1] - sizes[3]) / 30 < 30_000
