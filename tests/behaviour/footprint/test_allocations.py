"""The memory that a message takes: while it waits for its handler, and afterwards."""

from __future__ import annotations

import gc
import sys

import pytest

from benchmarks import parts
from benchmarks.peers.ours import Ours
from benchmarks.scenarios.session import Counting
from benchmarks.server import Command
from rtvi_sync import MemoryTransport, RTVIClient
from tests.support.waiting import until

MANY = 1000


def held() -> tuple[int, int]:
    """Count the blocks of memory that are in use, and the objects that the garbage collector looks at."""
    gc.collect()
    return sys.getallocatedblocks(), len(gc.get_objects())


def more(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    """Return the new objects."""
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.matrix
def test_a_message_that_waits() -> None:
    """A message that waits for its handler takes 15 blocks of memory and 4 tracked objects at most, and leaves none."""
    transport = MemoryTransport()
    client = RTVIClient(transport=transport, events="manual")
    heard: list[object] = []
    client.on("user-transcription", heard.append)

    def receive() -> None:
        for _ in range(MANY):
            transport.receive(parts.TEXT)

    def handle() -> int:
        count = 0
        while some := client.process_events(0):
            count += some
        heard.clear()
        return count

    with client:
        handle()
        for _ in range(3):  # objects that are kept and reused exist by then
            receive()
            assert handle() == MANY
        before = held()
        receive()
        waiting = held()
        assert handle() == MANY
        after = held()

    blocks, objects = more(before, waiting)
    assert MANY < blocks <= 15.1 * MANY
    assert MANY < objects <= 4.1 * MANY
    blocks, objects = more(before, after)
    assert blocks < MANY / 20
    assert objects < MANY / 20


@pytest.mark.parametrize("work", ["events", "audio down", "audio up", "requests"])
def test_nothing_is_left(work: str, url: str) -> None:
    """After thousands of messages through a WebSocket, handled on the client's threads, memory is as full as before.

    The bot's first seconds of audio may still be kept for a turn then, and are let go.
    """
    counting = Counting()
    client = Ours(url, counting)

    def burst(command: str, number: int, events: int) -> None:
        counting.expect(events)
        client.request(command, {"n": number})
        counting.wait()

    def do() -> None:
        if work == "events":
            burst(Command.EVENTS, 2 * MANY, events=2 * MANY)
        elif work == "audio down":
            burst(Command.AUDIO, 2 * MANY, events=1)
        for _ in range(MANY // 20):
            if work == "audio up":
                client.send_frames(20)
            for _ in range(20 if work == "requests" else 1):
                client.request(Command.ECHO)

    client.connect()
    for _ in range(2):  # objects that are kept and reused exist by then
        do()
    before = held()
    do()

    def is_as_before() -> bool:
        blocks, objects = more(before, held())
        return blocks < MANY / 10 and objects < MANY / 20

    until(is_as_before, "memory is as full as before")
    client.close()
