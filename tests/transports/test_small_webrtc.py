"""The WebRTC transport, with a bot at its other end in this process."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import socket
import subprocess
import sys
import threading
import time
import types
from typing import Any

import httpx
import pytest
from aiortc import rtcrtpreceiver, rtcrtpsender
from aiortc.codecs import vpx

from rtvi_sync import (
    DisconnectedError,
    InvalidTransportParamsError,
    MessageTooLargeError,
    MissingExtraError,
    RTVIClient,
    RTVIError,
    SmallWebRTCTransport,
    TransportStartError,
    connect,
)
from rtvi_sync.media import BytesSink, BytesSource, NullSink, SilenceSource, VideoFrame
from tests.support import limits, part_probes
from tests.support.fake_camera import Pictures
from tests.support.fake_peer import FakePeer
from tests.support.http_server import Answer, scripted_server
from tests.support.pcm import bytes_of, rms
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until
from tests.support.webrtc import SESSION, Film, Tone, ready_answers, rtc_bot, unreachable

LIMITS: dict[str, Any] = {"connect_timeout": GUARD, "request_timeout": GUARD}


@pytest.fixture
def bot(far_loop):
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot


@pytest.fixture
def client(bot):
    made = []

    def make(transport=None, **options):
        transport = transport or SmallWebRTCTransport(f"{bot.url}/api/offer")
        if not {"mic", "text_only"} & set(options):
            options["text_only"] = True
        made.append(RTVIClient(transport=transport, **{**LIMITS, **options}))
        return made[-1]

    yield make
    for each in made:
        each.close()


# -- where the bot is --------------------------------------------------------------------------------------------------


def test_a_bot_that_a_server_starts(bot, client):
    """`/start` answers with a session, and the offer goes to it, with the headers and the application's own client."""
    with httpx.Client(headers={"X-From": "mine"}, trust_env=False) as own:
        it = client(SmallWebRTCTransport(headers={"X-Own": "1"}), http_client=own, params={"headers": {"X-Key": "k"}})
        it.params.base_url = bot.url
        it.start_bot_and_connect(f"{bot.url}/start")
        assert it.send_client_request("echo", {"a": 1}) == {"a": 1}
    start, offer = bot.server.requests
    assert start.body["transport"] == "webrtc"
    assert offer.path == f"/sessions/{SESSION}/api/offer"
    assert [offer.headers.get(name) for name in ("x-key", "x-own", "x-from")] == ["k", "1", "mine"]


def test_a_bot_whose_server_redirects(bot, client):
    """The offer goes beside the address that has answered, with the user and password of the one that was given."""
    bot.server.answers["/start"] = Answer({}, 307, {"Location": "//eve:theirs@" + bot.url[7:] + "/v2/start"})
    bot.server.answers["/v2/start"] = Answer({"sessionId": SESSION})
    bot.server.answers[f"/v2/sessions/{SESSION}/api/offer"] = bot.offered
    it = client(SmallWebRTCTransport())
    it.start_bot_and_connect(f"{bot.url}/start".replace("//", "//ada:mine@"))
    assert [request.headers["authorization"] for request in bot.server.requests] == ["Basic YWRhOm1pbmU="] * 3


def test_an_offer_to_any_address(bot, client):
    """A server that listens on all addresses may name `0.0.0.0`: the offer goes to the host that was asked."""
    start = answers_with(bot.server, bot.url.replace("127.0.0.1", "0.0.0.0") + "/api/offer")
    client(SmallWebRTCTransport()).start_bot_and_connect(start)
    assert bot.server.requests[-1].headers["host"] == bot.url[7:]


def test_start_bot_then_connect(bot, client):
    """The answer of `start_bot()`, given to `connect()`, still belongs to the request that it answers."""
    it = client(SmallWebRTCTransport())
    it.connect(it.start_bot(f"{bot.url}/start"))
    assert it.send_client_request("echo", 1) == 1


#: Headers that a start endpoint must not choose, and one that it may.
CHOSEN = {
    "Host": "internal.example",
    "Cookie": "a=theirs",
    "Authorization": "Basic theirs",
    "proxy-authorization": "Basic theirs",
    "Transfer-Encoding": "chunked",
    "Content-Length": "5",
    "Expect": "100-continue",
    "Connection": "theirs",
    "Upgrade": "theirs",
    "X-Forwarded-Host": "internal.example",
    "X-Host": "internal.example",
    "X-HTTP-Host-Override": "internal.example",
    "X-HTTP-Method-Override": "DELETE",
    "Origin": "http://internal.example",
    "X-Room": "5",
}


@pytest.fixture
def starter():
    """Return a server of its own, whose `/start` names an offer at another one."""
    with scripted_server() as server:
        yield server


def answers_with(starter, url, key="webrtcUrl"):
    """Let `/start` name `url` for the offer, in one of the forms of such answers."""
    params = {"headers": CHOSEN, "request_data": {"room": 5}}
    bundle = {"webrtcRequestParams": {**params, "endpoint": url}} if key == "endpoint" else {key: url}
    starter.answers["/start"] = Answer({"webrtcRequestParams": params, **bundle})
    return f"{starter.url}/start"


@pytest.mark.parametrize("key", ["webrtcUrl", "webrtc_url", "endpoint"])
@pytest.mark.parametrize("transport", ["webrtc", "auto"])
def test_no_offer_goes_to_a_server_that_another_one_names(bot, starter, key, transport):
    """A start endpoint cannot make the client send a request to a server beside it."""
    start = answers_with(starter, f"{bot.url}/api/offer?x=1", key)
    with pytest.raises(RTVIError, match=re.escape(f"allowed_origins=['{bot.url}']")):
        connect(start, transport=transport, text_only=True, connect_timeout=GUARD)
    assert bot.server.requests == []


def test_an_origin_that_is_allowed_by_name(bot, starter, client, caplog):
    """The offer goes there; of the headers that the start endpoint names, it has none that a server must not choose."""
    transport = SmallWebRTCTransport(allowed_origins=["https://other.example", f"{bot.url}/"])
    it = client(transport, params={"headers": {"Authorization": "mine"}})
    it.start_bot_and_connect(answers_with(starter, f"{bot.url}/api/offer"), headers={"Cookie": "a=mine"})
    (offer,) = bot.server.requests
    assert offer.headers["x-room"] == "5"
    assert offer.headers["host"] == bot.url.removeprefix("http://")
    assert offer.body["request_data"] == {"room": 5}
    assert not re.search("theirs|mine|internal|DELETE|continue", str(offer.headers))
    assert f"{len(CHOSEN) - 1} were left out" in caplog.text


def test_the_server_of_the_start_endpoint(bot, client):
    """The start endpoint's server takes the offer without being named; the application's headers take precedence."""
    start = answers_with(bot.server, f"{bot.url}/api/offer", "endpoint")
    it = client(SmallWebRTCTransport(headers={"Authorization": "mine", "x-room": "6"}))
    it.start_bot_and_connect(start)
    offer = bot.server.requests[-1]
    assert (offer.headers["authorization"], offer.headers["x-room"]) == ("mine", "6")
    assert "cookie" not in offer.headers


def test_an_offer_of_the_application_s_own_goes_where_it_says(bot, client):
    """The arguments of `connect()` are used unchanged, headers included."""
    it = client(SmallWebRTCTransport())
    params = {"endpoint": f"{bot.url}/api/offer", "headers": {"Authorization": "mine", "Cookie": "a=mine"}}
    it.connect({"webrtcRequestParams": params})
    (offer,) = bot.server.requests
    assert (offer.headers["authorization"], offer.headers["cookie"]) == ("mine", "a=mine")


def test_cookies_go_with_the_offers_of_that_attempt(bot, client):
    """A load balancer finds the machine of the session by them, also when the connection is negotiated once more."""
    bot.server.answers["/start"] = Answer({"sessionId": SESSION}, headers={"Set-Cookie": "AWSALB=theirs; Path=/"})
    it = client(SmallWebRTCTransport(headers={"Cookie": "own=mine"}))
    for _ in range(2):
        it.start_bot_and_connect(f"{bot.url}/start", headers={"Cookie": "start=mine"})
        bot.call.signal("renegotiate")
        until(lambda: len(bot.calls[-1].offers) == 2)
        it.disconnect()
    sent = [request.headers.get("cookie") for request in bot.server.requests]
    assert sent == ["start=mine", *["own=mine; AWSALB=theirs"] * 2] * 2


def test_cookies_stay_on_their_host(bot, starter, client):
    """An offer to a server that is allowed by name has none of them."""
    url = bot.url.replace("127.0.0.1", "localhost")
    starter.answers["/start"] = Answer({"webrtcUrl": f"{url}/api/offer"}, headers={"Set-Cookie": "a=theirs; Path=/"})
    client(SmallWebRTCTransport(allowed_origins=[url])).start_bot_and_connect(f"{starter.url}/start")
    assert "cookie" not in bot.server.requests[-1].headers


def test_cookies_of_an_http_client_of_the_application_s_own(bot, client):
    """An HTTP client of the application's own sends each cookie that it keeps once."""
    bot.server.answers["/start"] = Answer({"sessionId": SESSION}, headers={"Set-Cookie": "a=theirs; Path=/"})
    with httpx.Client(cookies={"own": "mine"}, trust_env=False) as own:
        client(SmallWebRTCTransport(), http_client=own).start_bot_and_connect(f"{bot.url}/start")
    assert sorted(bot.server.requests[-1].headers["cookie"].split("; ")) == ["a=theirs", "own=mine"]


def test_a_login_that_a_server_names(bot, client):
    """No request has a user and password of the start endpoint's choice."""
    start = answers_with(bot.server, bot.url.replace("//", "//eve:theirs@") + "/api/offer")
    with pytest.raises(InvalidTransportParamsError, match="user and password, which are not sent") as caught:
        client(SmallWebRTCTransport()).start_bot_and_connect(start)
    assert "theirs" not in str(caught.value)
    assert [request.path for request in bot.server.requests] == ["/start"]


@pytest.mark.parametrize(
    "wrong", ["", "bot.example", "ws://bot.example", "http://bot.example/api", "http://a:b@bot.example", "http://*:1"]
)
def test_what_is_no_origin(wrong):
    """A value in `allowed_origins` that is no origin is refused where it is given."""
    with pytest.raises(InvalidTransportParamsError, match=r"allowed_origins has .* not an origin"):
        SmallWebRTCTransport(allowed_origins=["http://bot.example", wrong])


def test_https_must_stay_https(fake_call):
    """A bundle received over https must not lead to an address in plain text, unless that is allowed by name."""
    url = f"{fake_call.server.url}/api/offer"
    for allowed in (False, True):
        fake_call.transport = SmallWebRTCTransport(url, allow_insecure=allowed)
        fake_call.transport.secure_bundle = True
        _, connecting = fake_call.attempt()
        if allowed:
            connecting.get()
        else:
            with pytest.raises(InvalidTransportParamsError, match="allow_insecure=True"):
                connecting.get()
    assert len(fake_call.server.requests) == 1


@pytest.mark.parametrize("url", ["", "ws://bot.example/ws", "bot.example/api/offer", "http://bot.example:port/"])
def test_what_is_no_url_of_an_offer(url):
    """A `webrtc_url` that cannot take offers is refused where it is given."""
    with pytest.raises(InvalidTransportParamsError, match="is not the URL of an offer: it"):
        SmallWebRTCTransport(url)


def test_a_server_that_refuses_the_offer(bot, client):
    """A refused offer is an error of the transport, with advice for offers."""
    bot.server.answers["/api/offer"] = Answer({"detail": "Cannot create new connection"}, 400)
    with pytest.raises(TransportStartError, match=r"ConnectionMode\.SINGLE") as caught:
        client().connect()
    assert caught.value.status == 400


def test_without_the_extra(monkeypatch):
    """Without the extra, one line names the package to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"install .*\[webrtc\]") as caught:
        SmallWebRTCTransport()
    assert "\n" not in str(caught.value)


def abandon_at(client, step):
    """Connect, and disconnect when the transport waits for `step`."""
    call = InThread(client.connect)
    until(lambda: client.transport.waiting_for() == step)
    client.disconnect()
    with pytest.raises(DisconnectedError):
        call.get()


# -- failures while it opens -------------------------------------------------------------------------------------------


def test_the_step_in_the_error(bot, client):
    """The error names the step that the transport waits for while it connects, and no step afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}/offer"
        it = client(SmallWebRTCTransport(url))
        abandon_at(it, f"an answer of {url} to the offer")
    assert it.transport.waiting_for() == ""


def test_a_firewall(bot, client):
    """If no packet is answered, the error names the cure, and shows no address."""

    bot.change = unreachable
    transport = SmallWebRTCTransport(f"{bot.url}/api/offer", ice_timeout=0.2)
    with pytest.raises(
        TransportStartError, match=r"No network packet came .*\?transport=tcp.* or use WebSocket"
    ) as caught:
        client(transport).connect()
    assert "(our addresses: host; the bot's: host)" in str(caught.value)


def test_a_machine_without_a_network(fake_call, monkeypatch):
    """An offer without candidates would wait for ever."""
    monkeypatch.setattr(FakePeer, "sdp", re.sub("(?m)^a=candidate.*\n", "", FakePeer.sdp))
    _, connecting = fake_call.attempt()
    with pytest.raises(TransportStartError, match="no network but loopback"):
        connecting.get()


def test_an_attempt_that_is_given_up(bot, client):
    """While ICE is under way nothing is left of it, and the transport connects again."""
    bot.change = unreachable
    transport = SmallWebRTCTransport(f"{bot.url}/api/offer", ice_timeout=None)
    abandon_at(client(transport), "ICE: a network packet from the bot")
    bot.change = lambda answer: answer
    assert client(transport).connect().version == "2.2.0"


def test_a_connection_without_a_bot(far_loop):
    """Pipecat's server opens one though `bot()` has failed, or has no entry for it: the error says so."""
    with rtc_bot(far_loop, lambda _: []) as silent:
        transport = SmallWebRTCTransport(f"{silent.url}/api/offer")
        client = RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), connect_timeout=GUARD)
        connects = InThread(client.connect)
        until(lambda: client.state == "connected")
        assert 'entry "webrtc" in its transport_params' in (transport.diagnosis() or "")
        client.close()
        assert isinstance(connects.error(), DisconnectedError)
        assert transport.diagnosis() is None


def test_an_attempt_that_ends_late(fake_call, monkeypatch):
    """An abandoned attempt does not change the reports of the next one."""
    hanging, go_on = threading.Event(), threading.Event()
    make = FakePeer.__init__

    def hang_at_first(peer, *given):
        make(peer, *given)
        if not hanging.is_set():
            hanging.set()
            assert go_on.wait(GUARD)

    monkeypatch.setattr(FakePeer, "__init__", hang_at_first)
    monkeypatch.setattr(FakePeer, "waits", True)
    transport = fake_call.transport
    controller, first = fake_call.attempt()
    assert hanging.wait(GUARD)
    controller.abort(DisconnectedError("abandoned"))
    transport.disconnect()
    assert transport.waiting_for() == ""
    _, second = fake_call.attempt()
    until(lambda: transport.waiting_for() == "a network packet")
    said = transport.diagnosis()
    go_on.set()
    assert isinstance(first.error(), DisconnectedError)
    assert (transport.waiting_for(), transport.diagnosis()) == ("a network packet", said)
    transport.disconnect()
    second.error()


# -- in a session ------------------------------------------------------------------------------------------------------


def test_sizes(bot, client):
    """A bot may take less than the transport would send: it says so in its answer."""
    bot.change = lambda answer: {
        **answer,
        "sdp": answer["sdp"].replace("size:262144", "size:9000").replace("65536", "9000"),
    }
    it = client()
    it.connect()
    with pytest.raises(MessageTooLargeError, match="this bot takes 9000 over WebRTC"):
        it.send_client_message("note", "x" * 9000)
    assert it.send_client_request("echo", "x" * 8000) == "x" * 8000


def mic_is_on(bot):
    """Return the last state of the microphone that was sent to the bot."""
    return [enabled for receiver, enabled in bot.call.statuses if receiver == 0][-1]


def test_tracks_are_told(bot, client):
    """The bot receives the state of each track when the channel opens, and each change."""
    it = client(mic=SilenceSource(), speaker=NullSink())
    it.connect()
    until(lambda: bot.call.statuses == [(0, True), (1, False), (2, False)])
    it.enable_mic(False)
    until(lambda: not mic_is_on(bot))
    it.enable_mic(True)
    until(lambda: mic_is_on(bot))
    assert bot.call.pings > 0


def test_a_microphone_that_is_off_and_audio_in_its_place(bot, client):
    """Sent audio must be heard: Pipecat 0.0.73 drops the audio of a microphone that it believes to be off."""
    it = client(mic=SilenceSource(), speaker=NullSink(), enable_mic=False)
    it.connect()
    until(lambda: bot.call.statuses == [(0, False), (1, False), (2, False)])
    with pytest.raises(TimeoutError):
        it.ask(bytes(3200), 1.0, sample_rate_hz=16000)  # a bot that says nothing
    until(lambda: bot.call.statuses[3:] == [(0, True), (0, False)])


def test_a_camera_that_dies_is_told(bot, client):
    """A camera that dies is reported to the bot, and so is its recovery."""

    class Dying(Pictures):
        dead = False

        def read(self):
            if self.dead:
                raise OSError("unplugged")
            return super().read()

    camera = Dying(80)
    it = client(mic=SilenceSource(), speaker=NullSink(), cam=camera)
    it.connect()
    it.enable_cam(True)
    until(lambda: bot.call.statuses[3:] == [(1, True)])
    camera.dead = True
    until(lambda: bot.call.statuses[4:] == [(1, False)])
    camera.dead = False
    it.enable_cam(True)
    until(lambda: bot.call.statuses[5:] == [(1, True)])


def test_another_negotiation(bot, client):
    """When the bot asks for it, a new offer names the connection, and the session goes on."""
    it = client()
    it.connect()
    bot.call.signal("renegotiate")
    until(lambda: len(bot.call.offers) == 2)
    assert bot.call.offers[1]["pc_id"] == f"Bot#{id(bot.call)}"
    assert it.send_client_request("echo", 2) == 2
    assert len(bot.calls) == 1


def test_another_negotiation_that_fails(bot, client, caplog):
    """Another negotiation that fails is logged, and the session goes on."""
    it = client()
    it.connect()
    bot.server.answers["/api/offer"] = Answer({"detail": "no"}, 500)
    bot.call.signal("renegotiate")
    until(lambda: "asked to renegotiate the connection, which failed" in caplog.text)
    assert it.send_client_request("echo", 2) == 2


def test_another_negotiation_without_a_thread(bot, client, caplog, monkeypatch):
    """Without a thread for it another negotiation fails with a line in the log, and the next one is not affected."""
    it = client()
    it.connect()
    part_probes.refuse_renegotiation(monkeypatch)
    bot.call.signal("renegotiate")
    until(lambda: "can't start new thread" in caplog.text)
    monkeypatch.undo()
    bot.call.signal("renegotiate")
    until(lambda: len(bot.call.offers) == 2)


@pytest.mark.parametrize(("how", "initiator"), [("leave", "server"), ("drop", "network")])
def test_the_bot_ends_the_session(bot, client, how, initiator):
    """The end of a session by the bot is told once, and later calls raise."""
    it = client()
    it.connect()
    with it.events("disconnected", timeout=GUARD) as events:
        getattr(bot.call, how)()
        assert next(events).data.initiator == initiator
    with pytest.raises(DisconnectedError):
        it.transport.send_message(it.transport.options.client_ready)


@pytest.mark.parametrize(("size", "samples"), [(65_536, 960), (262_144, 480)])
def test_packets_of_the_voice(bot, client, size, samples):
    """Packets of the voice are short, unless the bot's library may be one that hears nothing in them."""
    bot.change = lambda answer: {
        **answer,
        "sdp": re.sub("max-message-size:[0-9]+", f"max-message-size:{size}", answer["sdp"]),
    }
    client(mic=SilenceSource(), speaker=NullSink()).connect()
    until(lambda: len(bot.call.frames[0]) > 3)
    assert {frame.samples for frame in bot.call.frames[0]} == {samples}


def test_counters(bot, client):
    """Counters have audio in seconds and bytes as far as they are measured, and stay after the end."""
    it = client(mic=SilenceSource(), speaker=BytesSink())
    it.connect()
    until(lambda: it.stats().audio_sent > 0.1)
    until(lambda: it.stats().bytes_received)
    it.disconnect()
    stats = it.stats()
    assert stats.bytes_sent > 0
    assert stats.bytes_waiting == 0


def test_how_the_network_is(bot, client, monkeypatch):
    """The round trip and the jitter of the bot's voice are measured in seconds; before, both are None."""
    limits.patch(monkeypatch, rtc_ping=0.02)
    for module in (rtcrtpsender, rtcrtpreceiver):  # reports arrive each 50 ms, not 0.5 to 1.5 s
        monkeypatch.setattr(module, "random", types.SimpleNamespace(random=lambda: -0.45))
    bot.tracks = lambda: [Tone(samples_of_tone)]
    it = client(mic=SilenceSource(), speaker=NullSink())
    assert (it.stats().round_trip, it.stats().audio_jitter) == (None, None)
    it.connect()
    until(lambda: it.stats().round_trip is not None and it.stats().audio_jitter)
    stats = it.stats()
    assert 0 <= stats.round_trip < GUARD
    assert 0 < stats.audio_jitter < GUARD
    assert stats.audio_lost == 0


def test_a_camera_from_the_start(bot):
    """connect() with a camera prefers WebRTC to the WebSocket, and the bot sees the pictures."""
    devices: dict[str, Any] = {"mic": SilenceSource(), "speaker": NullSink(), "cam": Pictures(80), **LIMITS}
    with connect(bot.url, enable_cam=True, **devices) as it:
        assert isinstance(it.transport, SmallWebRTCTransport)
        until(lambda: len(bot.call.frames[1]) > 1)
    assert [request.body.get("transport") for request in bot.server.requests] == ["webrtc", None]


def samples_of_tone(first, count, rate=24000, hz=300, peak=8000):
    return bytes_of(int(peak * math.sin(2 * math.pi * hz * n / rate)) for n in range(first, first + count))


def test_audio_both_ways(bot, client):
    """The microphone's audio arrives at the same level, and the bot's voice as 24 kHz mono."""
    bot.tracks = lambda: [Tone(samples_of_tone)]
    sink = BytesSink()
    it = client(mic=BytesSource(samples_of_tone(0, 16000 * 3, 16000, 400), 16000), speaker=sink)
    it.connect()
    until(lambda: len(sink.pcm) > 24000)
    until(lambda: len(bot.call.frames[0]) > 40)
    until(lambda: it.stats().audio_jitter is not None)
    it.disconnect()
    heard = b"".join(bytes(frame.planes[0])[: 4 * frame.samples] for frame in bot.call.frames[0][15:35])
    assert 20 * abs(math.log10(rms(heard) / (8000 / math.sqrt(2)))) < 0.5
    assert sink.sample_rate_hz == 24000
    stats = it.stats()
    assert (stats.audio_unsent, stats.audio_lost, stats.audio_concealed) == (0, 0, 0)
    assert stats.audio_jitter is not None
    # aiortc's encoder, the bot's, makes mono 3 dB too quiet.
    assert 20 * abs(math.log10(rms(sink.pcm[9600:19200]) / 4000)) < 0.5


def test_pictures_both_ways(bot, client):
    """Camera and screen can be turned on at any moment, and the bot's pictures have a track."""
    bot.tracks = lambda: [None, Film(200)]
    it = client(mic=SilenceSource(), speaker=NullSink(), cam=Pictures(80))
    it.connect()
    call = bot.call
    assert call.frames[1] == []
    it.enable_cam(True)
    until(lambda: (1, True) in call.statuses)
    until(lambda: len(call.frames[1]) > 3)
    picture = call.frames[1][-1].reformat(format="rgb24", threads=1).to_ndarray()
    assert picture.shape == (120, 160, 3)
    assert abs(int(picture[60, 80, 0]) - 80) < 12
    until(lambda: it.tracks().bot.video is not None)
    shown = next(it.tracks().bot.video.frames(buffer=1))
    assert (shown.width, shown.height) == (160, 120)
    assert abs(shown.image[0] - 200) < 12
    it.enable_cam(False)
    until(lambda: call.statuses[-1] == (1, False))
    screen = Pictures(30)
    until(lambda: it.transport.send_screen(screen.read()) or call.frames[2])
    assert len(call.offers) == 1


def test_the_newest_picture_wins(bot, client, monkeypatch):
    """While a picture is encoded, later ones are dropped but the newest: none waits behind another."""
    encoding, go_on = threading.Event(), threading.Event()
    encode = vpx.Vp8Encoder.encode

    def slow(self, picture, force_keyframe=False):
        encoding.set()
        assert go_on.wait(GUARD)
        return encode(self, picture, force_keyframe)

    class Brighter(Pictures):
        gray = 20

        def read(self):
            self.gray += 1
            return VideoFrame(image=bytes([self.gray]) * 3 * 32 * 32, width=32, height=32, timestamp=time.monotonic())

    camera = Brighter(0)
    it = client(mic=SilenceSource(), speaker=NullSink(), cam=camera)
    monkeypatch.setattr(vpx.Vp8Encoder, "encode", slow)
    it.connect()
    it.enable_cam(True)
    assert encoding.wait(GUARD)
    until(lambda: camera.gray > 60)
    before = camera.gray
    go_on.set()
    until(lambda: len(bot.call.frames[1]) > 1)
    first, second = (int(frame.to_ndarray(format="gray")[16, 16]) for frame in bot.call.frames[1][:2])
    assert first < 40
    assert second > before - 10  # a level may be some units off
    it.enable_cam(False)


def test_limits_of_pictures(bot, client):
    """A picture is made to fit, in its shape, and has at most the bits that it may have."""
    transport = SmallWebRTCTransport(
        f"{bot.url}/api/offer", cam_size=(80, 100), cam_bitrate=60_000, screen_size=(64, 64)
    )
    it = client(transport, mic=SilenceSource(), speaker=NullSink(), cam=Pictures(80))
    it.connect()
    it.enable_cam(True)
    until(lambda: bot.call.frames[1])
    assert (bot.call.frames[1][0].width, bot.call.frames[1][0].height) == (80, 60)
    screen = Pictures(30)
    until(lambda: it.transport.send_screen(screen.read()) or bot.call.frames[2])
    assert (bot.call.frames[2][0].width, bot.call.frames[2][0].height) == (64, 48)
    assert "H264" not in bot.call.offers[0]["sdp"].split("m=video")[1]


def test_a_picture_that_waits_at_the_end(bot, client, monkeypatch):
    """`send_video()` that waits behind a picture that is being encoded is woken by the end, and raises."""
    encoding, go_on = threading.Event(), threading.Event()

    def hang(*_):
        encoding.set()
        assert go_on.wait(GUARD)
        raise LookupError("the session has ended")

    monkeypatch.setattr(vpx.Vp8Encoder, "encode", hang)
    it = client()
    it.connect()
    sending = []

    def send_more():
        sending.append(InThread(lambda: it.transport.send_video(Pictures(1).read())))
        return encoding.wait(0.05)

    until(send_more)
    sending.append(InThread(lambda: it.transport.send_video(Pictures(1).read())))
    assert sending[-1].goes_on(0.05)
    it.disconnect()
    assert isinstance(sending[-1].error(), DisconnectedError)
    go_on.set()
    for each in sending:
        each.thread.join(GUARD)


def test_a_bot_that_is_silent(bot, client):
    """The endless zeros of a silent bot are no audio: nothing is played."""
    bot.tracks = lambda: [Tone(lambda _, count: bytes(2 * count))]
    sink = BytesSink()
    it = client(mic=SilenceSource(), speaker=sink)
    it.connect()
    until(lambda: it.stats().audio_received > 0.2)
    it.disconnect()
    assert sink.pcm == b""


def test_an_interruption_voids_what_is_on_its_way(fake_call):
    """Speech from before it is dropped; after a silence the bot is heard again."""
    sink = BytesSink()
    it = RTVIClient(transport=fake_call.transport, mic=SilenceSource(), speaker=sink, **LIMITS)
    connecting = InThread(it.connect)
    until(lambda: fake_call.peers and any("client-ready" in text for text in fake_call.peer.texts))
    peer = fake_call.peer
    (ready,) = [json.loads(text) for text in peer.texts if "client-ready" in text]
    for answer in ready_answers(json.dumps(ready)):
        peer.events.on_text(answer)
    connecting.get()
    before, speech = b"\x00\x08" * 480, b"\x00\x10" * 480
    for pcm in (before, None, speech, bytes(960), speech):
        if pcm is None:
            fake_call.transport.interrupt_playback()
        else:
            peer.events.on_audio(pcm, 24000, 1)
    it.disconnect()
    assert sink.pcm.removeprefix(before) == bytes(960) + speech


def test_nothing_of_it_is_imported():
    """`import rtvi_sync`, and even a transport that is not connected, load no asyncio, aiortc or av."""
    program = (
        "import sys, rtvi_sync; rtvi_sync.RTVIClient(transport=rtvi_sync.SmallWebRTCTransport()); "
        "print([name for name in ('aiortc', 'av', 'aioice', 'asyncio', 'httpx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=GUARD, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_its_repr_shows_no_secret():
    """A user and a password in the URL are not shown."""
    assert "secret" not in repr(SmallWebRTCTransport("http://user:secret@bot.example/api/offer"))
