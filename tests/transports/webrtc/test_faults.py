"""Faults of a server and of a bot: each ends in an error that names the remedy, or in a session that goes on."""

from __future__ import annotations

import asyncio
import fractions
import json
import logging
import random
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import aiortc
import av
import pytest

from rtvi_sync import DisconnectedError, RTVIClient, RTVIEvent, SmallWebRTCTransport, TransportStartError
from rtvi_sync.media import BytesSink, SilenceSource
from tests.support.http_server import Answer
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until
from tests.support.webrtc import FarLoop, RTCBot, ready_answers, rtc_bot

LIMITS: dict[str, Any] = {"connect_timeout": GUARD, "request_timeout": GUARD}


@pytest.fixture
def bot(far_loop: FarLoop) -> Iterator[RTCBot]:
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot


def check_it_connects(client: RTVIClient, bot: RTCBot) -> None:
    client.connect({"webrtc_url": f"{bot.url}/api/offer"})
    assert client.send_client_request("echo", 1) == 1
    client.disconnect()


def fail(client: RTVIClient, url: str) -> TransportStartError:
    with pytest.raises(TransportStartError) as caught:
        client.connect({"webrtc_url": url})
    return caught.value


# -- the offer --------------------------------------------------------------------------------------------------------


def answering(data: bytes) -> Callable[[Peer], None]:
    def serve(peer: Peer) -> None:
        peer.read_request()
        peer.send(data)

    return serve


def cut(peer: Peer) -> None:
    peer.read_request()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (lambda peer: None, "Check the URL, its host and port"),
        (lambda peer: peer.read_request(), "closed without an answer"),
        (cut, "See the server's log"),
        (answering(b"\x00\xff" * 500), "does not speak HTTP"),
        (answering(b"SSH-2.0-x\r\n"), "speaks SSH"),
    ],
    ids=["hangs up", "hangs up late", "in the answer", "garbage", "SSH"],
)
def test_a_server_of_another_kind(bot: RTCBot, serve: Callable[[Peer], object], said: str) -> None:
    """The error names the URL of the offer and the server found there; the client can be used again."""
    client = RTVIClient(transport=SmallWebRTCTransport(), text_only=True, **LIMITS)
    with Server(serve) as server:
        url = f"http://{server.authority}/api/offer"
        error = str(fail(client, url))
    assert url in error
    assert said in error
    check_it_connects(client, bot)


def test_a_refused_offer_is_an_error(bot: RTCBot) -> None:
    """An offer that the system refuses is an error that says so, and a later session works."""
    client = RTVIClient(transport=SmallWebRTCTransport(), text_only=True, **LIMITS)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "Connection refused" in str(fail(client, f"http://127.0.0.1:{port}/api/offer"))
    check_it_connects(client, bot)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (Answer({"detail": "one client"}, 400), 400, "ConnectionMode.SINGLE"),
        (Answer({"detail": "who?"}, 401), 401, "Pass headers="),
        (Answer({"detail": "no"}, 403), 403, "Pass headers="),
        (Answer({"detail": "Not Found"}, 404), 404, "/api/offer"),
        (Answer({"detail": "no"}, 405), 405, "Check the URL of the offer"),
        (Answer({"detail": [{"loc": ["body"], "msg": "bad"}]}, 422), 422, "another form of the offer"),
        (Answer({"detail": "oops"}, 500), 500, "oops"),
        (Answer({"detail": "busy"}, 503), 503, "Try again later"),
        (Answer(b"<!doctype html>"), 200, "did not answer with JSON"),
        (Answer(b""), None, "without an sdp"),
        (Answer(b'{"sdp": "' + b"x" * 3_000_000 + b'"}'), 200, "answered with more than 1048576 bytes"),
        (Answer([]), None, "without an sdp"),
        (Answer({"sdp": None}), None, "without an sdp"),
        (Answer({"sdp": ""}), None, "answered the offer without media"),
        (Answer({"sdp": "v=0\r\n\x00garbage"}), None, "answered the offer without media"),
        (Answer({"sdp": "m=audio\r\nm=application"}), None, "answered the offer without media"),
    ],
    ids=lambda value: f"{value.status} {str(value.body)[:20]}" if isinstance(value, Answer) else "",
)
def test_an_offer_that_is_refused(bot: RTCBot, answer: Answer, status: int | None, said: str) -> None:
    """The error of a refused offer has the status and names the remedy."""
    bot.server.answers["/refused"] = answer  # type: ignore[attr-defined]
    client = RTVIClient(transport=SmallWebRTCTransport(), text_only=True, **LIMITS)
    error = fail(client, f"{bot.url}/refused")
    assert said in str(error)
    assert error.status == status
    check_it_connects(client, bot)


SPOILED: dict[str, Callable[[str], str]] = {
    "no audio": lambda sdp: re.sub(r"(?m)^m=audio \d+", "m=audio 0", sdp),
    "no data channel": lambda sdp: re.sub(r"(?m)^m=application \d+", "m=application 0", sdp),
    "no Opus": lambda sdp: sdp.replace("opus/48000/2", "G722/8000"),
    "no candidates": lambda sdp: re.sub(r"(?m)^a=candidate.*\r\n", "", sdp),
    "no fingerprint": lambda sdp: re.sub(r"(?m)^a=fingerprint.*\r\n", "", sdp),
    "a wrong fingerprint": lambda sdp: re.sub(
        r"(?m)^(a=fingerprint:\S+) .*\r$", "\\1 " + ":".join(["AB"] * 32) + "\r", sdp
    ),
    "no ICE password": lambda sdp: re.sub(r"(?m)^a=ice-pwd.*\r\n", "", sdp),
    "half of it": lambda sdp: sdp[: len(sdp) // 2],
    "lines in disorder": lambda sdp: "\r\n".join(sorted(sdp.splitlines())) + "\r\n",
    "numbers that are none": lambda sdp: re.sub(r"(?m)^a=rtpmap:\d+", "a=rtpmap:x", sdp),
}


@pytest.mark.parametrize("how", SPOILED)
def test_an_answer_by_which_there_is_no_conversation(bot: RTCBot, how: str) -> None:
    """An answer without a usable connection is an error with advice, well before the limit."""
    bot.change = lambda answer: {**answer, "sdp": SPOILED[how](answer["sdp"])}
    client = RTVIClient(transport=SmallWebRTCTransport(), text_only=True, **LIMITS)
    with takes(2.0):
        error = str(fail(client, f"{bot.url}/api/offer"))
    assert re.search(r"[Ss]ee the|Check that|may have no network but loopback", error)
    bot.change = lambda answer: answer
    check_it_connects(client, bot)


# -- the data channel -------------------------------------------------------------------------------------------------

GARBAGE: list[str | bytes] = [
    "", " ", "garbage", "{", "[]", "null", "1e999", '{"type": 1}',
    '{"label": "rtvi-ai"}', '{"label": "rtvi-ai", "type": []}', "[" * 100_000, '{"a":' * 50_000, "\ud7ff\x00",
    '{"label": "rtvi-ai", "type": "server-response", "id": {}, "data": null}',
    '{"type": "signalling"}', '{"type": "signalling", "message": []}',
    '{"type": "signalling", "message": {"type": {}}}',
    '"signalling', '{"type": "signalling", "message": {"type": "trackStatus"}}',
    b"\x00\xff" * 1000, b"", b'{"type": "signalling"',
    '{"label": "rtvi-ai", "type": "bot-ready", "data": {"version": "2.2.0"}}', "ping: x", "x" * 200_000,
]  # fmt: skip


def test_garbage_on_the_data_channel(bot: RTCBot, caplog: pytest.LogCaptureFixture) -> None:
    """The session goes on for any data, and repeated garbage does not fill the log."""
    with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), text_only=True, **LIMITS) as client:
        for each in GARBAGE:
            bot.call.send(each)
        assert client.send_client_request("echo", "after") == "after"
        known = len(caplog.records)
        for _ in range(300):
            bot.call.send("garbage")
        assert client.send_client_request("echo", "after") == "after"
        assert len(caplog.records) <= known + 20
        assert len(bot.calls) == 1


def test_a_message_that_is_too_large(bot: RTCBot) -> None:
    """A bot that does not keep to the limit of the offer ends its session, and the error says why."""
    with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), text_only=True, **LIMITS) as client:
        bot.call.pc.sctp._remote_max_message_size = 0  # it does not look (aiortc 1.16; earlier ones never do)
        bot.call.send("x" * 262_145)
        info = client.wait(timeout=GUARD)
    assert info is not None
    assert "a message of 262145 bytes; WebRTC carries at most 262144" in str(info.error)


class Noise(aiortc.MediaStreamTrack):
    """Packets of Opus that are none."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(1)
        self.sent = 0

    async def recv(self) -> Any:
        await asyncio.sleep(0.002)
        packet = av.Packet(self._random.randbytes(self._random.randrange(1, 300)))
        packet.pts, packet.time_base = 960 * self.sent, fractions.Fraction(1, 48000)
        self.sent += 1
        return packet


def test_audio_that_is_none(bot: RTCBot) -> None:
    """The session goes on, and the sink takes the valid audio."""
    noise = Noise()
    bot.tracks = lambda: [noise]
    transport = SmallWebRTCTransport(f"{bot.url}/api/offer")
    with RTVIClient(transport=transport, mic=SilenceSource(), speaker=BytesSink(), **LIMITS) as client:
        until(lambda: noise.sent > 300)
        assert client.send_client_request("echo", "after") == "after"


def test_strangers_that_send_packets(bot: RTCBot, caplog: pytest.LogCaptureFixture) -> None:
    """Datagrams of every kind that a WebRTC port tells apart, from another peer, change nothing, and are not told."""
    chance = random.Random(1)
    with RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), text_only=True, **LIMITS) as client:
        targets = set(re.findall(r"(?m)^a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host", bot.call.offers[0]["sdp"]))
        assert targets
        for host, port in targets:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for first in (0, 1, 20, 22, 63, 64, 128, 144, 191, 255):
                    for size in (0, 1, 12, 20, 200, 1400):
                        stranger.sendto((bytes([first]) + chance.randbytes(size)), (host, int(port)))
                # STUN's own magic cookie, with attributes that are none.
                stranger.sendto(bytes.fromhex("000100082112a442") + chance.randbytes(20), (host, int(port)))
        assert client.send_client_request("echo", "after") == "after"
        assert [r for r in caplog.records if r.threadName != "far-loop" and r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["killed", "flooded"])
def test_a_bot_that_goes_in_the_middle_of_a_request(bot: RTCBot, how: str) -> None:
    """Calls that wait raise, and the end is told once."""
    client = RTVIClient(transport=SmallWebRTCTransport(f"{bot.url}/api/offer"), text_only=True, **LIMITS)
    client.connect()
    call = bot.call

    def answer(text: str) -> list[str]:
        if json.loads(text)["type"] != "client-message":
            return []
        bot.loop.call(lambda: asyncio.ensure_future(call.pc.close()))
        return ["garbage"] * 500 if how == "flooded" else []

    bot.answer = answer
    with client.events(RTVIEvent.DISCONNECTED, timeout=GUARD) as events:
        with pytest.raises(DisconnectedError):
            client.send_client_request("echo", 1)
        assert next(events).data.initiator == "network"
    client.close()
