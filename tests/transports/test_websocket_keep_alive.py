"""A silent line is pinged, a dead peer is found in bounded time, and a living one is left alone."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from rtvi_sync import WebSocketTransport
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.transports.websocket_connection import WebSocketConnection

from ..loopback import LIMIT
from .test_websocket_connection import BINARY, Bot, blocked, on
from .test_websocket_frames import CLOSE, PING, PONG, frame

MB = 1024 * 1024


def answer(bot: Bot) -> bytes:
    """Answer the next ping, which has to come; its payload."""
    opcode, payload = bot.receive()
    assert opcode == PING
    bot.send(frame(PONG, payload))
    return payload


def test_a_silent_line_is_pinged(link):
    """A peer that answers lives on for many intervals, and the round trip is measured."""
    client, bot = link(ping_interval=0.02, ping_timeout=LIMIT)
    payloads = {answer(bot) for _ in range(5)}
    assert len(payloads) == 5
    assert client.ends == []
    bot.receive()  # the sixth ping comes after the fifth answer
    round_trip = client.connection.stats().round_trip
    assert round_trip is not None
    assert 0 < round_trip < LIMIT


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
    client, bot = link(ping_interval=0.2, ping_timeout=0.2)
    whole = frame(BINARY, b"\0" * 400)
    pause = threading.Event()
    for byte in whole[:60]:  # one message for 0.6 s
        bot.send(bytes([byte]))
        pause.wait(0.01)
    assert client.ends == []
    bot.send(whole[60:])
    assert client.received(1) == [(BINARY, b"\0" * 400)]
    client.connection.send(BINARY, b"first")
    assert bot.receive() == (BINARY, b"first")


def test_a_line_that_answers_is_looked_at_once_an_interval(link, monkeypatch):
    """The time-out of a ping that was answered wakes nobody."""
    looks: list[float] = []
    look = WebSocketConnection._watch_silence
    monkeypatch.setattr(WebSocketConnection, "_watch_silence", lambda self: (looks.append(0), look(self)))
    _, bot = link(ping_interval=0.6, ping_timeout=0.3)
    for _ in range(3):
        answer(bot)
    assert len(looks) == 3


def test_an_answer_ends_the_doubt(link):
    """After an answered ping the next one comes an interval later, with a limit of its own."""
    client, bot = link(ping_interval=0.05, ping_timeout=0.3)
    for _ in range(8):  # longer than one limit in all
        answer(bot)
    assert client.ends == []
    assert "has not answered" in str(client.ended().error)


def test_while_bytes_wait_the_peer_is_not_dead(link):
    """A ping that cannot leave proves nothing: as long as the line is blocked, the stall limit decides."""
    client, bot = link(ping_interval=0.4, ping_timeout=0.1, stall_timeout=LIMIT)
    payload = blocked(client, 8 * MB)
    threading.Event().wait(1.0)  # several limits
    assert client.ends == []
    opcode, received = bot.receive()
    if opcode == PING:  # it was the first to leave
        opcode, received = bot.receive()
    assert (opcode, received) == (BINARY, payload)


def test_a_stray_pong_is_nothing(link):
    """Pongs that answer no ping of ours are ignored, whatever is in them."""
    client, bot = link(ping_interval=None)
    for payload in (b"", b"x", struct.pack("!d", float("nan")), b"\xff" * 125):
        bot.send(frame(PONG, payload))
    bot.send(frame(BINARY, b"after"))
    assert client.received(1) == [(BINARY, b"after")]
    assert client.connection.stats().round_trip is None


def test_an_answer_that_is_repeated_is_nothing(link):
    """It sets no timer, and the round trip is that of the first."""
    client, bot = link(ping_interval=0.3, ping_timeout=LIMIT)
    payload = answer(bot)
    bot.send(frame(BINARY, b"first"))
    client.received(1)
    round_trip = client.connection.stats().round_trip
    assert round_trip is not None
    bot.send(frame(PONG, payload) * 100 + frame(BINARY, b"second"))
    client.received(2)
    assert client.connection.stats().round_trip == round_trip
    assert on(client.io, lambda: len(client.io._timers)) < 10


def test_no_interval_no_ping(link):
    """Without an interval the line stays as silent as the program."""
    client, bot = link(ping_interval=None)
    assert on(client.io, lambda: client.connection._ping_timer) is None
    bot.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        bot.sock.recv(1)


def test_a_polite_close_is_not_a_death(link):
    """A peer that does not answer our close frame: the close has its own limit, and the end is ours."""
    client, bot = link(ping_interval=0.02, ping_timeout=0.02)
    client.connection.close(0.3)
    info = client.ended()
    assert (info.initiator, info.error) == ("client", None)
    opcodes = []
    while CLOSE not in opcodes:
        opcodes.append(bot.receive()[0])


@pytest.mark.parametrize("name", ["ping_interval", "ping_timeout", "stall_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_limits_are_positive(name, seconds):
    """A limit that cannot be one is refused where it is given."""
    with pytest.raises(ValueError, match=name):
        WebSocketTransport(**{name: seconds})
