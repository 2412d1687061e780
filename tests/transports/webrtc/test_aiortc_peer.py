"""The engine on aiortc, between two ends in this process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import re
import traceback
import types

import pytest
from aiortc import rtcsctptransport

from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.loop_thread import acquire_loop
from rtvi_sync.errors import TransportStartError
from rtvi_sync.media import VideoFrame
from rtvi_sync.transports.webrtc import aiortc_peer as module
from rtvi_sync.transports.webrtc.aiortc_peer import AiortcPeer
from rtvi_sync.transports.webrtc.peer import ICEServer, MediaLimits, PeerEvents, PeerStats
from rtvi_sync.transports.webrtc.signalling import candidates
from tests.support import limits, part_probes
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until
from tests.support.webrtc import Call, RTCBot, ready_answers, result_of

pytestmark = pytest.mark.inside

LIMITS = MediaLimits()


class Heard:
    """The reports of a peer."""

    def __init__(self):
        self.texts: list[str | bytes] = []
        self.ends: list[str] = []
        self.events = PeerEvents(
            on_text=self.texts.append,
            on_audio=lambda *_: None,
            on_video=lambda _: None,
            wants_video=lambda: False,
            on_closed=self.ends.append,
        )


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def loop():
    loop = acquire_loop()
    yield loop
    loop.release()
    stop_idle_threads()


@pytest.fixture
def peer(loop, heard):
    peer = AiortcPeer(loop, [], LIMITS, heard.events)
    yield peer
    result_of(peer.close(0.0))


@pytest.fixture
def call(far_loop):
    bot = RTCBot(far_loop, ready_answers)
    call = Call(bot)
    bot.calls.append(call)
    yield call
    bot.close()


def connect(peer, call, far_loop, change=lambda sdp: sdp, **options):
    offer = result_of(peer.offer())
    answer = far_loop.run(call.answer({"sdp": offer, "type": "offer"}))
    result_of(peer.accept(change(answer["sdp"]), **options))


def test_the_offer(peer):
    """Audio with Opus alone, camera, screen and data channel, on one port, with all candidates."""
    sdp = result_of(peer.offer())
    kinds = [line.split()[0] for line in sdp.splitlines() if line.startswith("m=")]
    assert kinds == ["m=audio", "m=video", "m=video", "m=application"]
    audio, camera, screen = sdp.split("m=")[1:4]
    assert [line for line in audio.splitlines() if "rtpmap" in line] == ["a=rtpmap:96 opus/48000/2"]
    assert "a=sendrecv" in audio
    assert "a=sendrecv" in camera
    assert "a=sendonly" in screen
    assert candidates(sdp)
    (size,) = re.findall(r"a=max-message-size:(\d+)", sdp)
    assert 65_536 <= int(size) <= limits.value_of("rtc_message")


def test_texts_go_both_ways(peer, call, heard, far_loop):
    """Texts go both ways, in order, and the counters count."""
    connect(peer, call, far_loop)
    for n in range(5):
        peer.send_text(json.dumps({"type": "note", "n": n}))
    until(lambda: len(call.texts) == 5)
    call.send("hello")
    until(lambda: heard.texts == ["hello"])
    assert [json.loads(text)["n"] for text in call.texts] == [0, 1, 2, 3, 4]
    assert peer.bytes_waiting == 0
    measured: list[PeerStats] = []
    peer.measure(measured.append)
    until(lambda: measured)
    assert measured[0].packets_received > 0
    assert measured[0].bytes_sent > 0


def test_what_waits_is_sent_at_the_end(peer, call, far_loop):
    """A polite end follows the messages; the bot sees the channel close."""
    connect(peer, call, far_loop)
    for n in range(50):
        peer.send_text(json.dumps({"type": "note", "n": n, "text": "x" * 2000}))
    assert result_of(peer.close(5.0)) == 0
    assert call.closed.wait(GUARD)
    assert len(call.texts) == 50
    peer.send_text("{}")  # too late, and no harm


def spoil_line(call, change):
    """Let `change` handle each packet of data for the bot; its argument is a function that delivers the packet."""
    sctp = call.pc.sctp
    take = sctp._handle_data

    async def handle(packet):
        is_data = packet[12] == 0  # behind the header of SCTP
        await (change(lambda: take(packet)) if is_data else take(packet))

    sctp._handle_data = handle


async def never(_):
    """Lose a packet."""


NOTE = json.dumps({"type": "note", "text": "x" * 200_000})


def test_a_large_message_over_a_slow_line(peer, call, far_loop, monkeypatch):
    """The end waits until the bot has all of it, as long as the bot takes some."""
    limits.patch(monkeypatch, rtc_polite_close=0.05)
    connect(peer, call, far_loop)

    async def slowly(take):
        await asyncio.sleep(0.002)
        await take()

    spoil_line(call, slowly)
    peer.send_text(NOTE)
    assert result_of(peer.close(GUARD)) == 0
    assert call.texts == [NOTE]


def test_a_large_message_over_a_dead_line(peer, call, far_loop, monkeypatch):
    """If the bot takes nothing, the end gives up, and tells how much is lost."""
    limits.patch(monkeypatch, rtc_stall=0.1)
    connect(peer, call, far_loop)
    spoil_line(call, never)
    peer.send_text(NOTE)
    with takes(1.0):
        unsent = result_of(peer.close(GUARD))
    assert unsent == len(NOTE)


def test_a_lost_packet_at_the_end(peer, call, far_loop):
    """The library sends it again after a second, for which the end waits."""
    connect(peer, call, far_loop)
    lost: list[object] = []

    async def lose_first(take):
        if lost:
            await take()
        lost.append(take)

    spoil_line(call, lose_first)
    peer.send_text('{"type": "note"}')
    assert result_of(peer.close(GUARD)) == 0
    assert call.texts == ['{"type": "note"}']


def test_pings_are_no_loss(peer, call, far_loop, monkeypatch):
    """Packets that the connection sends by itself do not make an end over a dead line an error."""
    limits.patch(monkeypatch, rtc_polite_close=0.05)
    connect(peer, call, far_loop)
    spoil_line(call, never)
    peer.send_text("ping: 1")
    assert result_of(peer.close(GUARD)) == 0


def test_a_library_that_fails_to_close(peer, call, far_loop):
    """The rest is still closed, so that no call waits for a picture that is never taken."""
    connect(peer, call, far_loop)
    connection = part_probes.rtc_of(peer)
    close = connection.close

    async def fail():
        await close()
        raise LookupError("a fault of aiortc")

    connection.close = fail
    with pytest.raises(LookupError):
        result_of(peer.close(0.0))
    assert [track.readyState for track in part_probes.own_tracks_of(peer)] == ["ended"] * 3
    connection.close = close


def test_short_packets(peer, call, far_loop):
    """Each 20 ms of audio are two packets on the wire, in order."""
    connect(peer, call, far_loop, short_packets=True)
    arrived = []

    async def take(packet, arrival_time_ms):
        arrived.append(packet)

    call.pc.getTransceivers()[0].receiver._handle_rtp_packet = take
    for _ in range(3):
        peer.send_audio(bytes(640), 16000)
    until(lambda: len(arrived) == 6)
    first = arrived[0]
    assert [(each.sequence_number - first.sequence_number) % 2**16 for each in arrived] == [*range(6)]
    assert [(each.timestamp - first.timestamp) % 2**32 for each in arrived] == [*range(0, 6 * 480, 480)]


async def fail():
    """Fail as an encoder may."""
    raise LookupError("a fault")


def test_audio_that_cannot_be_sent(peer, call, heard, far_loop):
    """Audio that cannot be sent ends the connection: the bot would never hear the user again."""
    connect(peer, call, far_loop)
    part_probes.own_tracks_of(peer)[0].recv = fail
    for _ in range(2):  # aiortc waits for the first one already
        peer.send_audio(bytes(640), 16000)
    until(lambda: heard.ends)
    assert heard.ends == ["the WebRTC library has failed to send the user's audio; see its warning in the log"]


def test_a_picture_that_cannot_be_sent(peer, call, heard, far_loop, caplog):
    """A picture that cannot be sent is logged, the next ones are dropped, and the connection goes on."""
    connect(peer, call, far_loop)
    part_probes.own_tracks_of(peer)[1].recv = fail
    picture = VideoFrame(image=bytes(3 * 32 * 32), width=32, height=32, timestamp=0.0)
    peer.send_video(picture, is_screen=False)
    until(lambda: "Sending a picture of the camera failed" in caplog.text)
    assert result_of(peer.send_video(picture, is_screen=False)) is False
    peer.send_text('{"type": "note"}')
    until(lambda: call.texts)
    assert heard.ends == []


def test_a_bot_that_answers_ice_no_longer(peer, call, heard, far_loop, monkeypatch):
    """A bot that stops answering ICE ends the connection, with an error that names possible causes."""
    limits.patch(monkeypatch, consent_interval=0.01)
    connect(peer, call, far_loop)
    limits.patch(monkeypatch, consent=-1.0)
    until(lambda: heard.ends)
    assert heard.ends == [
        "the bot no longer answers ICE: this machine or the bot's is too busy, or the way to it is blocked"
    ]


def test_the_bot_closes(peer, call, heard, far_loop):
    """The closing of the data channel is the end, once."""
    connect(peer, call, far_loop)
    call.drop()
    until(lambda: heard.ends)
    assert heard.ends == ["the bot has closed the connection without saying that it leaves"]


def test_the_bot_closes_dtls_alone(peer, call, heard, far_loop):
    """A bot that closes DTLS without closing the data channel ends the session with a reason."""
    connect(peer, call, far_loop)

    async def silence(*_):
        """Send no packet of its own."""

    async def close_dtls():
        vars(call.pc.sctp).update(_abort=silence, _transmit=silence)
        await call.pc.sctp.transport.stop()

    far_loop.run(close_dtls())

    def has_ended():
        peer.send_audio(bytes(640), 16000)  # audio that cannot be sent then is no failure of the microphone
        return heard.ends

    until(has_ended)
    assert heard.ends == ["the bot has closed the connection without saying that it leaves"]


def test_packets_of_messages_pass_everywhere():
    """Packets of messages have at most 1280 bytes with the headers of SCTP, DTLS, UDP and IPv6."""
    assert rtcsctptransport.USERDATA_MAX_LENGTH + 12 + 16 + 37 + 8 + 40 <= 1280


def test_a_wrong_fingerprint(peer, call, far_loop):
    """DTLS fails: the error says at which step, and why."""

    def change(sdp):
        lines = sdp.splitlines(keepends=True)
        return "".join(
            "a=fingerprint:sha-256 " + ":".join(["AB"] * 32) + "\r\n" if "sha-256" in x else x for x in lines
        )

    with pytest.raises(ConnectionError, match=r"waiting for the DTLS handshake has failed: .* fingerprint"):
        connect(peer, call, far_loop, change)


def test_ice_that_fails(peer, call, far_loop):
    """ICE fails at once if the answer has no address of the bot."""
    with pytest.raises(ConnectionError, match="waiting for ICE: a network packet from the bot has failed"):
        connect(peer, call, far_loop, lambda sdp: re.sub(r"(?m)^a=candidate:.*\n", "", sdp))


def test_an_answer_that_cannot_be_used(peer, call, far_loop):
    """Without Opus there is no common codec."""
    with pytest.raises(TransportStartError, match="answer to the offer cannot be used"):
        connect(peer, call, far_loop, lambda sdp: sdp.replace("opus/48000/2", "G722/8000"))


def test_an_answer_that_cannot_be_used_and_is_long(peer, call, far_loop):
    """aiortc's quotation of the answer is short and printable in the error and its traceback."""
    with pytest.raises(TransportStartError, match="answer to the offer cannot be used") as caught:
        connect(peer, call, far_loop, lambda sdp: sdp.replace("a=setup:", "a=setup:\x1b[2J" + "x" * 500_000))
    shown = "".join(traceback.format_exception(caught.value))
    assert "x" * 400 in shown
    assert len(shown) < 10_000
    assert "\x1b" not in shown


def test_steps(peer, call, far_loop):
    """The steps of the connection, for the error of a connect() that takes too long."""
    assert peer.step.startswith("ICE")
    connect(peer, call, far_loop)
    assert peer.step == "the data channel"


def test_an_end_before_the_beginning(loop, heard):
    """Nothing to close, and nothing to wait for."""
    peer = AiortcPeer(loop, [ICEServer(urls=("turn:127.0.0.1:9",), username="u", credential="c")], LIMITS, heard.events)
    assert result_of(peer.close(1.0)) == 0


def test_an_offer_after_the_end(loop, heard, monkeypatch):
    """An offer after the end is refused, because nothing would close it; so is one that was asking servers by then."""
    peer = AiortcPeer(loop, [], LIMITS, heard.events)
    result_of(peer.close(0.0))
    with pytest.raises(ConnectionError, match="has ended"):
        result_of(peer.offer())
    assert part_probes.rtc_of(peer) is None
    other = AiortcPeer(loop, [], LIMITS, heard.events)

    async def slow(servers):
        with contextlib.suppress(asyncio.CancelledError):
            other.close(0.0)
            await asyncio.sleep(GUARD)
        return servers

    monkeypatch.setattr(module, "reachable_first", slow)
    with pytest.raises(ConnectionError, match="has ended"):
        result_of(other.offer())
    assert part_probes.rtc_of(other) is None
    result_of(other.close(0.0))


def test_no_secrets_in_the_log(peer, call, far_loop, caplog):
    """aiortc and aioice log addresses and passwords below warnings: not on the package's thread."""
    caplog.set_level(logging.DEBUG)
    for name in ("aioice.ice", "aiortc.rtcpeerconnection", "aiortc.rtcicetransport"):
        caplog.set_level(logging.DEBUG, name)
    connect(peer, call, far_loop)
    peer.send_text('{"type": "note"}')
    until(lambda: call.texts)
    ours = [record for record in caplog.records if (record.threadName or "").startswith("rtvi-loop")]
    assert [record.getMessage() for record in ours if record.name.partition(".")[0] in ("aiortc", "aioice")] == []


def test_it_has_what_a_peer_has():
    """The engine fits the interface, names and parameters."""
    from rtvi_sync.transports.webrtc.peer import Peer

    for name, wanted in vars(Peer).items():
        if not name.startswith("_") and inspect.isfunction(wanted):
            found = inspect.signature(getattr(AiortcPeer, name))
            assert list(found.parameters) == list(inspect.signature(wanted).parameters), name


def test_counters_that_fail(peer, caplog):
    """Counters that cannot be read, which happens each second, are logged once."""
    result_of(peer.offer())
    part_probes.rtc_of(peer).getStats = None
    for _ in range(2):
        peer.measure(pytest.fail)
    result_of(peer.offer())
    assert [r.getMessage() for r in caplog.records if r.exc_info] == [
        "The counters of a connection cannot be read; a bot that dies is noticed late"
    ]


def test_lost_packets_are_counted(peer):
    """Lost packets are counted; the negative count of duplicated packets is 0."""
    report = {"audio": types.SimpleNamespace(type="inbound-rtp", kind="audio", packetsLost=3, jitter=480)}

    async def get_stats():
        return report

    result_of(peer.offer())
    part_probes.rtc_of(peer).getStats = get_stats
    measured: list[PeerStats] = []
    for lost, counted in ((3, 3), (-1, 0)):
        report["audio"].packetsLost = lost
        peer.measure(measured.append)
        until(lambda: measured)
        stats = measured.pop()
        assert (stats.audio_lost, stats.jitter) == (counted, 0.01)
