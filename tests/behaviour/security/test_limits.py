"""All input has a limit: in size, in depth, in number, and in cost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, memory_client, transport_of
from tests.support.probes import standard_json
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until
from tests.support.wire import frames

ROOT = Path(__file__).parents[3]
MB = 2**20
# The most values that a message may have.
MAX_VALUES = 100_000


def message(data: str, type_: str = "server-message", id_: str = '"1"') -> str:
    """Return a message whose data is this JSON."""
    return f'{{"label": "rtvi-ai", "type": "{type_}", "id": {id_}, "data": {data}}}'


def on_the_wire(text: str) -> bytes:
    """Return a message as a bot sends it."""
    return frames.encode(frames.MessageFrame(data=text))


def field(number: int, payload: bytes) -> bytes:
    """Return a field of protobuf with a length."""

    def varint(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    return varint(number << 3 | 2) + varint(len(payload)) + payload


# -- the cost of messages ---------------------------------------------------------------------------------------------

SIZE = 8 * MB
HEAVY: dict[str, Callable[[], bytes]] = {
    "lists": lambda: on_the_wire(message("[" + ",".join(["[]"] * (SIZE // 3)) + "]")),
    "objects": lambda: on_the_wire(message("[" + ",".join(['{"a":{}}'] * (SIZE // 9)) + "]")),
    "keys": lambda: on_the_wire(message("{" + ",".join(f'"{n:x}":0' for n in range(SIZE // 10)) + "}")),
    "numbers": lambda: on_the_wire(message("[" + ",".join(["1.5"] * (SIZE // 4)) + "]")),
    "depth": lambda: on_the_wire(message("[" * SIZE)),
    "depth of objects": lambda: on_the_wire(message('{"a":' * (SIZE // 5))),
    "a number": lambda: on_the_wire(message("9" * SIZE)),
    "a text": lambda: on_the_wire(message('"' + "a" * SIZE + '"')),
    "a text with escapes": lambda: on_the_wire(message('"' + "\\u0000" * (SIZE // 6) + '"')),
    "a type": lambda: on_the_wire(message("{}", type_="x" * SIZE)),
    "an id": lambda: on_the_wire(message("{}", type_="server-response", id_='"' + "9" * SIZE + '"')),
    "an error": lambda: on_the_wire(message('{"error": "' + "x" * SIZE + '"}', type_="error")),
    "a refusal": lambda: on_the_wire(message('{"error": "' + "x" * SIZE + '"}', type_="error-response")),
    "no JSON": lambda: on_the_wire("x" * SIZE),
    "no frame": lambda: b"\xff" * SIZE,
    "unknown fields": lambda: field(99, b"xx") * (SIZE // 5),
    "nested groups": lambda: b"\x9b\x06" * (SIZE // 2),
    "the same field again and again": lambda: field(4, field(1, b"{}")) * (SIZE // 6),
    "audio": lambda: frames.encode(frames.AudioRawFrame(audio=bytes(SIZE), sample_rate=24_000)),
    "audio of many channels": lambda: frames.encode(
        frames.AudioRawFrame(audio=bytes(SIZE), sample_rate=24_000, num_channels=32)
    ),
    "audio at an impossible rate": lambda: frames.encode(
        frames.AudioRawFrame(audio=bytes(SIZE), sample_rate=2**32 - 1)
    ),
    "audio of impossible channels": lambda: frames.encode(
        frames.AudioRawFrame(audio=bytes(SIZE), sample_rate=24_000, num_channels=2**32 - 1)
    ),
}


def test_heavy_messages() -> None:
    """For any message of 8 MB the process grows by at most 20 times its size, the session continues, and the log stays
    short.
    """
    with EmbeddedBot() as bot:
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("heavy_client.py"), bot.ws_url],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            session = bot.wait_for_session(GUARD)
            session.wait_for_message("client-ready", GUARD)

            def peak() -> int:
                session.send({"label": "rtvi-ai", "type": "server-message", "data": "mark"})
                return int(process.stdout.readline())  # type: ignore[union-attr]

            sizes = {"nothing": peak()}
            for name, make in HEAVY.items():
                session.send_raw(make())
                sizes[name] = peak()
            session.send({"label": "rtvi-ai", "type": "server-message", "data": "end"})
            log = process.stderr.read()
        assert process.returncode == 0, log
    assert max(sizes.values()) < sizes["nothing"] + 20 * SIZE // MB, sizes
    assert 0 < len(log) < 20_000
    assert len(log.splitlines()) < 60


# -- the number of values ---------------------------------------------------------------------------------------------


def received(text: str | bytes) -> Any:
    """Return the data of a message that a client has received.

    Raises:
        RefusedError: the client did not take it; with the words of its log.
    """
    log = Log()
    logger = logging.getLogger("rtvi_sync")
    logger.addHandler(log)
    try:
        with memory_client() as client, client.events("server_message", timeout=GUARD) as events:
            transport_of(client).receive(text)
            transport_of(client).receive(message('"the next"'))
            data = next(events).data
            if data == "the next":
                raise RefusedError(log.text)
            return data
    finally:
        logger.removeHandler(log)


class RefusedError(Exception):
    """A message was not taken."""


class Log(logging.Handler):
    """Keeps all log records."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()


@pytest.fixture(params=["orjson", "the standard library", "bytes"])
def decode(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    """Yield a function that returns the data of a message, received in one of the possible ways."""
    if request.param == "bytes":
        yield lambda text: received(text.encode())
    elif request.param == "orjson":
        yield received
    else:
        with standard_json():
            yield received


def test_the_number_of_values(decode: Callable[[str], Any]) -> None:
    """A message may have as many values as the limit says, including those in the envelope, and not one more."""
    own = 5  # the envelope itself and its four values, less the list
    most = MAX_VALUES - own
    assert len(decode(message("[" + ",".join(["1"] * most) + "]"))) == most
    for value in ("1", "[]", "{}", '"x"', '"\\\\"', '{"a":1}', "[[[]]]"):
        with pytest.raises(RefusedError, match="more than 100000 values"):
            decode(message("[" + ",".join([value] * (most + 1)) + "]"))


@pytest.mark.parametrize("text", ["a, [b], {c}", '"\\"', ",\\", "\n[", "\u00fc, \u20ac\U0001f600,"])
def test_prose_is_not_taken_for_values(decode: Callable[[str], Any], text: str) -> None:
    """Commas and brackets inside a text do not count as values, in any number and any surroundings."""
    prose = text * 150_000
    assert decode(message(json.dumps([prose, [prose[:10]]], ensure_ascii=False))) == [prose, [prose[:10]]]


@pytest.mark.parametrize(("first", "then"), [('"', '\\"'), ("", '\\"'), ("", '"'), ('"', "\\"), ("", '"\\')])
def test_counting_goes_over_the_text_once(first: str, then: str) -> None:
    """No sequence of quotes and backslashes makes the counting restart at each of them."""
    text = message(first + then * 499_999 + "," * MAX_VALUES)
    # It takes a tenth of a second; by the square of the length it would take an hour.
    with takes(10), pytest.raises(RefusedError):
        received(text)


# -- the queues of handlers -------------------------------------------------------------------------------------------


def test_what_waits_is_counted_as_it_is_kept() -> None:
    """Small messages that are full of values do not fill the memory behind the limit of the queue's bytes."""
    release = threading.Event()
    client = memory_client(max_queued_bytes=MB)
    client.on("bot_llm_started", lambda: release.wait(GUARD))
    client.on("server_message", lambda _: None)
    client.connect()
    bot_says(client, "bot-llm-started")
    text = message("[" + ",".join(["[]"] * 1000) + "]")
    tracemalloc.start()
    for _ in range(2000):
        transport_of(client).receive(text)
    # Memory of decoding only: other threads of this process, such as those in bots, do not count.
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/rtvi_sync/protocol/*")])
    tracemalloc.stop()
    kept = sum(each.size for each in ours.statistics("filename"))
    until(lambda: not client.connected)
    release.set()
    client.close()
    assert MB / 2 < kept < 4 * MB


# -- text that only looks like a number -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["9" * 5000, "-" + "9" * 5000, "1e99999", "-1e-99999", "NaN", "1" + "0" * 400 + ".5"])
def test_numbers_of_any_size(data: str) -> None:
    """A number is a number, infinity or nonsense, at once; handlers can print their numbers."""
    try:
        value = received(message(data))
    except RefusedError as error:
        assert len(str(error)) < 300  # noqa: PT017 - it depends on the parser
    else:
        assert len(repr(value)) < 500
