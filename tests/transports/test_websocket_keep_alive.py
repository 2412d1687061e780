"""A silent line is pinged, a dead peer is found in bounded time, and a living one is left alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import struct
import sys
import threading
import time

import pytest

from rtvi_sync import WebSocketTransport
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.protocol.frames import MessageFrame, encode
from tests.support.io_threads import hold, on, timers
from tests.support.processes import python
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.waiting import until
from tests.support.websocket import BINARY, CLOSE, PING, PONG, Bot, frame
from tests.support.websocket_bots import BotServer, text_in
from tests.support.websocket_client import Client, blocked, hold_up_after_reading, over_tls_too

pytestmark = pytest.mark.inside

MB = 1024 * 1024


def answer(bot: Bot) -> bytes:
    """Answer the next ping, which has to arrive; return its payload."""
    opcode, payload = bot.receive()
    assert opcode == PING
    bot.send(frame(PONG, payload))
    return payload


def test_a_silent_line_is_pinged(link):
    """A peer that answers lives on for many intervals, and the round trip is measured."""
    client, bot = link(ping_interval=0.02, ping_timeout=GUARD)
    payloads = {answer(bot) for _ in range(5)}
    assert len(payloads) == 5
    assert client.ends == []
    bot.receive()  # the sixth ping follows the fifth answer
    round_trip = client.connection.stats().round_trip
    assert round_trip is not None
    assert 0 < round_trip < GUARD


@over_tls_too
def test_a_dead_peer_is_found(link):
    """A peer that answers nothing ends the connection once interval and limit have passed, not before."""
    began = time.monotonic()
    client, bot = link(ping_interval=0.1, ping_timeout=0.2)
    assert bot.receive()[0] == PING
    info = client.ended()
    assert time.monotonic() - began >= 0.3
    assert (info.initiator, info.code) == ("network", None)
    assert isinstance(info.error, DisconnectedError)
    assert "has not answered a ping" in str(info.error)


def test_any_byte_is_a_sign_of_life(link):
    """A peer that is busy sending, and answers no ping, is not dead: it is not even pinged."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=limit, ping_timeout=limit / 5)
        pause = threading.Event()
        for byte in frame(BINARY, b"\0" * 100):  # one message for two intervals
            bot.send(bytes([byte]))
            pause.wait(limit / 50)
        assert client.received(1) == [(BINARY, b"\0" * 100)]
        client.connection.send(BINARY, b"first")
        assert bot.receive() == (BINARY, b"first")

    at_some_limit(check)


def test_an_answer_ends_the_doubt(link):
    """After an answered ping the next one is sent an interval later, with a limit of its own."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=limit / 6, ping_timeout=limit)
        for _ in range(8):  # longer than one limit in all
            answer(bot)
        assert "has not answered" in str(client.ended().error)

    at_some_limit(check)


def test_while_bytes_wait_the_peer_is_not_dead(link):
    """A ping that cannot leave proves nothing: as long as the line is blocked, the stall limit decides."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=2 * limit, ping_timeout=limit, stall_timeout=GUARD)
        payload = blocked(client, 8 * MB)
        threading.Event().wait(6 * limit)
        assert client.ends == []
        opcode, received = bot.receive()
        if opcode == PING:  # it was the first to leave
            opcode, received = bot.receive()
        assert (opcode, received) == (BINARY, payload)

    at_some_limit(check)


def test_a_stray_pong_is_nothing(link):
    """Pongs that answer no ping of ours are ignored, whatever is in them."""
    client, bot = link(ping_interval=None)
    for payload in (b"", b"x", struct.pack("!d", float("nan")), b"\xff" * 125):
        bot.send(frame(PONG, payload))
    bot.send(frame(BINARY, b"after"))
    assert client.received(1) == [(BINARY, b"after")]
    assert client.connection.stats().round_trip is None


def test_an_answer_that_is_repeated_is_nothing(link):
    """A repeated pong sets no timer, and the round trip ends with the first one."""
    client, bot = link(ping_interval=0.3, ping_timeout=GUARD)
    payload = answer(bot)
    bot.send(frame(BINARY, b"first"))
    client.received(1)
    round_trip = client.connection.stats().round_trip
    assert round_trip is not None
    bot.send(frame(PONG, payload) * 100 + frame(BINARY, b"second"))
    client.received(2)
    assert client.connection.stats().round_trip == round_trip
    assert timers(client.io) < 10


def test_no_interval_no_ping(link):
    """Without an interval no ping is sent."""
    client, bot = link(ping_interval=None)
    assert timers(client.io) == 0
    bot.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        bot.sock.recv(1)


def test_a_polite_close_is_not_a_death(link):
    """A peer that does not answer our close frame: the close has its own limit, and the end is ours."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=limit, ping_timeout=limit)
        assert bot.receive()[0] == PING
        with takes(GUARD, at_least=3 * limit):
            client.connection.close(3 * limit)
        info = client.ended()
        assert (info.initiator, info.error) == ("client", None)
        opcodes = []
        while CLOSE not in opcodes:
            opcodes.append(bot.receive()[0])

    at_some_limit(check)


def test_without_a_ping_timeout_silence_ends_nothing(link):
    """`ping_timeout=None` means no limit: a ping in each interval keeps the line open until the peer speaks again."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=limit, ping_timeout=None)
        pings = [bot.receive() for _ in range(5)]
        assert {opcode for opcode, _ in pings} == {PING}
        assert client.ends == []
        sent = [struct.unpack("!d", payload)[0] for _, payload in pings]
        assert all(later - earlier >= limit for earlier, later in itertools.pairwise(sent))
        bot.send(b"".join(frame(PONG, payload) for _, payload in pings) + frame(BINARY, b"awake"))
        assert client.received(1) == [(BINARY, b"awake")]
        round_trip = client.connection.stats().round_trip
        assert round_trip is not None, "the answer to the last ping has come within the interval"
        assert 0 < round_trip <= time.monotonic() - sent[-1]
        assert bot.receive()[0] == PING, "the silence after the answer is watched again"

    at_some_limit(check)


@over_tls_too
def test_no_pings_pile_up_behind_a_blocked_line(link):
    """No ping is sent behind waiting data, which keeps the line as busy as a ping would, even without a limit for the
    answer.
    """
    client, bot = link(ping_interval=0.02, ping_timeout=None)
    payload = blocked(client, 8 * MB)
    before = client.connection.stats().bytes_waiting
    pass_time(0.3)
    assert client.connection.stats().bytes_waiting - before < 300, "more than one ping waits"
    while (received := bot.receive())[0] == PING:
        pass
    assert received == (BINARY, payload)


def test_without_a_stall_timeout_a_slow_reader_ends_nothing(link):
    """`stall_timeout=None` means no limit: no timer is set, and the waiting data leaves when the peer reads again."""
    client, bot = link(stall_timeout=None)
    payload = blocked(client, 8 * MB)
    on(client.io, int)
    assert timers(client.io) == 0
    assert bot.receive() == (BINARY, payload)
    assert client.ends == []


# -- timers that run late ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held_up(client: Client):
    """Keep the I/O thread from everything, as a stopped process or a busy interpreter does."""
    go_on = hold(client.io)
    try:
        yield
    finally:
        go_on.set()


def pass_time(seconds: float) -> None:
    """Return when the clock of the timers has advanced by `seconds`."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end)


@over_tls_too
def test_a_pong_that_lies_in_the_socket_counts(link):
    """A ping timeout that runs late reads the arrived data before it judges: the peer has answered in time."""

    def check(limit: float) -> None:
        client, bot = link(ping_interval=limit / 4, ping_timeout=limit)
        opcode, payload = bot.receive()
        assert opcode == PING
        with held_up(client):
            bot.send(frame(PONG, payload))
            assert select.select([client.connection], [], [], GUARD)[0], "the pong has not arrived"
            pass_time(1.5 * limit)
        answer(bot)  # of the next ping

    at_some_limit(check)


def test_a_timer_that_is_held_up_after_it_has_read(link, monkeypatch):
    """A look at a silent line that is held up in its midst judges by the time at which it has read."""
    reached, go_on = hold_up_after_reading(monkeypatch)
    client, bot = link(ping_interval=0.05, ping_timeout=2.0)
    opcode, payload = bot.receive()
    assert opcode == PING
    assert reached.wait(GUARD)
    bot.send(frame(PONG, payload))
    assert select.select([client.connection], [], [], GUARD)[0], "the pong has not arrived"
    pass_time(2.1)
    go_on.set()
    answer(bot)  # of the next ping
    assert client.ends == []


@over_tls_too
def test_a_peer_that_read_meanwhile_has_not_stalled(link):
    """A stall limit that runs late writes to the socket before it judges: the peer has read in time."""

    def check(limit: float) -> None:
        client, bot = link(stall_timeout=limit)
        payload = blocked(client, 8 * MB)
        with held_up(client):
            received = bot.sock.recv(1)
            while select.select([], [client.connection], [], 0)[1] == []:
                received += bot.sock.recv(65536)
            pass_time(1.3 * limit)
        bot.read(len(payload) + 14 - len(received))

    at_some_limit(check)


STOPPED = """
    import os, signal, sys
    from rtvi_sync import RTVIClient, WebSocketTransport
    from rtvi_sync.media import NullSink
    from tests.support.part_probes import run_on_io_thread
    limit = float(sys.argv[2])
    transport = WebSocketTransport(sys.argv[1], ping_interval=limit / 2, ping_timeout=limit)
    with RTVIClient(transport=transport, enable_mic=False, speaker=NullSink()) as client:
        sys.stdin.readline()
        run_on_io_thread(client, lambda: os.kill(os.getpid(), signal.SIGSTOP))  # stopped before it reads
        print(client.wait_for("server-message").data, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_process_that_was_stopped_goes_on():
    """A client process that is stopped while its ping is out, for longer than the timeout, keeps its session."""

    def check(limit: float) -> None:
        with BotServer() as server, python(STOPPED, server.url, str(limit), executable=sys.executable) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            _, bot = server.arrival()
            ready = json.loads(text_in(bot.receive()[1]))
            bot.send(message("bot-ready", {"version": "2.2.0"}, ready["id"]))
            opcode, payload = bot.receive()
            assert opcode == PING
            process.stdin.write("\n")
            process.stdin.flush()
            try:
                assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
                bot.send(frame(PONG, payload))
                pass_time(1.6 * limit)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            answer(bot)
            bot.send(message("server-message", "still here"))
            while (received := bot.receive())[0] != CLOSE:
                assert received[0] in (PING, PONG)
            bot.send(frame(CLOSE, received[1]))
            assert process.stdout.read() == "still here\n"
            assert process.wait(GUARD) == 0

    at_some_limit(check)


def message(type_: str, data: object, id_: str | None = None) -> bytes:
    """Return a message of the bot as a WebSocket frame."""
    text = json.dumps({"label": "rtvi-ai", "type": type_, "id": id_, "data": data})
    return frame(BINARY, encode(MessageFrame(data=text)))


@pytest.mark.parametrize("name", ["ping_interval", "ping_timeout", "stall_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_limits_are_positive(name, seconds):
    """A limit that cannot be one is refused where it is given."""
    with pytest.raises(ValueError, match=name):
        WebSocketTransport(**{name: seconds})
