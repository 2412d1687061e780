"""The address and content of an offer, and the answers that lead to a conversation."""

from __future__ import annotations

import json
import sys

import pytest
from aiortc import RTCIceServer
from aiortc.rtcicetransport import connection_kwargs

from rtvi_sync.errors import InvalidTransportParamsError, TransportStartError
from rtvi_sync.transports.base import StartRequest
from rtvi_sync.transports.webrtc import signalling
from rtvi_sync.transports.webrtc.signalling import answer_of, candidates, ice_servers, target_of

pytestmark = pytest.mark.inside

START = StartRequest(url="https://bot.example/app/start?a=1", headers={"Authorization": "Bearer secret"})
SDP = """v=0
a=fingerprint:sha-256 AB:CD
m=audio 40000 UDP/TLS/RTP/SAVPF 96
a=candidate:1 1 udp 2130706431 192.0.2.2 40000 typ host
a=candidate:2 1 UDP 1677722111 198.51.100.7 40001 typ srflx raddr 192.0.2.2 rport 40000
m=application 40000 UDP/DTLS/SCTP webrtc-datachannel
a=max-message-size:262144
""".replace("\n", "\r\n")


def target(bundle, url=None, headers=(), start=START):
    return target_of(bundle, url, dict(headers), start, "")


def test_a_session_that_was_started():
    """The offer goes beside the start endpoint, with the headers of its request; the session's name is quoted."""
    found = target({"sessionId": "a/b#1"}, headers={"X-Own": "1"})
    assert found.url == "https://bot.example/app/sessions/a%2Fb%231/api/offer"
    assert found.headers == {"Authorization": "Bearer secret", "X-Own": "1"}


@pytest.mark.parametrize(
    "bundle",
    [
        {"webrtc_url": "https://bot.example/offer"},
        {"webrtcUrl": "https://BOT.example:443/offer"},
        {"webrtcRequestParams": {"endpoint": "https://bot.example/offer", "headers": {"X": "1"}}},
    ],
)
def test_an_address_in_the_bundle(bundle):
    """An address in the bundle may be another service, so that the start request's headers are not sent to it."""
    found = target(bundle)
    assert found.url == "https://bot.example/offer"
    assert "Authorization" not in found.headers


def test_the_transport_s_own_address_comes_first():
    """The transport's own URL and headers take precedence; the bundle provides the bot's data."""
    params = {"endpoint": "http://two.example", "headers": {"X": "2"}, "requestData": {"a": [1]}}
    found = target({"webrtcRequestParams": params}, "http://own.example/offer", {"X": "1"})
    assert (found.url, found.headers, found.request_data) == ("http://own.example/offer", {"X": "1"}, {"a": [1]})


@pytest.mark.parametrize(
    ("bundle", "start", "advice"),
    [
        (None, None, r"SmallWebRTCTransport\(webrtc_url='http://host:7860/api/offer'\)"),
        ({"sessionId": "secret"}, None, "let the client start the bot"),
        ({"ws_url": "ws://secret"}, None, "use WebSocketTransport"),
        ({"room_url": "secret"}, START, "a room of Daily, which needs another transport"),
        ({"dailyRoom": "secret", "sessionId": "1"}, START, "a room of Daily, which needs another transport"),
        ({"url": "secret", "token": "secret", "sessionId": "1"}, START, "a room of LiveKit, which needs another"),
        ({"moq": {}, "sessionId": "1"}, START, "a broadcast over MoQ, which needs another transport"),
        ({"color": "secret"}, START, "Let the server start the bot for webrtc, or pass"),
        ({"webrtc_url": "ftp://bot.example"}, None, "is not the URL of an offer"),
        ({"webrtc_url": "ftp://bot.example"}, START, "is not the URL of an offer"),
        ({"webrtc_url": "http://bot.example/secret"}, START, r"allowed_origins=\['http://bot.example:80'\]"),
        ({"webrtc_url": "https://bot.example:8443/secret"}, START, "at another server"),
        ({"sessionId": "1", "iceConfig": {"iceServers": ["http://x"]}}, START, "an unusable iceConfig"),
    ],
)
def test_bundles_without_an_address(bundle, start, advice):
    """The error names the remedy, and shows no value."""
    with pytest.raises(InvalidTransportParamsError, match=advice) as caught:
        target(bundle, start=start)
    assert "secret" not in str(caught.value)


def test_ice_servers_of_the_server():
    """The runner sends them in the form of browsers, with one URL or several."""
    config = {"iceServers": [{"urls": "stun:a:1"}, {"urls": ["turn:b:2"], "username": "u", "credential": "secret"}]}
    found = target({"sessionId": "1", "iceConfig": config}).ice_servers
    assert [(server.urls, server.username, server.credential) for server in found] == [
        (("stun:a:1",), None, None),
        (("turn:b:2",), "u", "secret"),
    ]
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        ("stun:a", TypeError),
        ([5], TypeError),
        ([{}], TypeError),
        ([{"urls": []}], TypeError),
        ([{"urls": "stun:a", "username": 5}], TypeError),
        (["http://a"], ValueError),
        (["stun://a"], ValueError),
        (["turn:a?transport=quic"], ValueError),
        (["stun:a?transport=udp"], ValueError),
        (["stun:a:b"], ValueError),
        (["stuns:a"], ValueError),
        (["turns:a?transport=udp"], ValueError),
        (["stun:[::1]:3478"], ValueError),
        (["stun:a:70000"], ValueError),
        (["turn:a:0?transport=tcp"], ValueError),
        (["turn:user:secret@a"], ValueError),
        (["TURN:a"], ValueError),
        ([{"urls": iter(["stun:a"])}], TypeError),
        (["stun:a"] * 21, ValueError),
        ([{"urls": ["turn:a"] * 11, "username": "u", "credential": "secret"}] * 2, ValueError),
    ],
)
def test_ice_servers_that_are_none(servers, error):
    """A wrong setting is named where it is given: aiortc would only say "malformed uri"."""
    with pytest.raises(error, match="ice_servers") as caught:
        ice_servers(servers)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["stun:a", "stun:a.b-c:5349", "turn:192.0.2.1:3478?transport=tcp", "turn:a?transport=udp", "turns:a"]
)
def test_urls_of_ice_servers(url):
    """aiortc uses every URL that is accepted here."""
    (server,) = ice_servers([url])
    assert server.urls == (url,)
    assert connection_kwargs([RTCIceServer(urls=url)])


def test_servers_of_the_bots_server_that_cannot_be_used(caplog):
    """Servers of the bot's server that cannot be used are left out with a warning, and the others are used."""
    unusable = ["turns:a?transport=udp", "turn:[2001:db8::1]:3478", "TURN:a", "stun:a:70000", "turn:user:secret@a"]
    servers = [{"urls": [*unusable, "turns:a"], "username": "u", "credential": "secret"}, "stuns:b"]
    (server,) = ice_servers(servers, by_server=True)
    assert (server.urls, server.username) == (("turns:a",), "u")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "left out (6); the first is 'turns:a?transport=udp': STUN over TLS" in record.getMessage()
    assert "secret" not in caplog.text


def test_the_offer():
    """The offer has Pipecat's form, with data for the bot only if there are any."""
    body = json.loads(signalling.offer_body("v=0", "Bot#1", None))
    assert body == {"sdp": "v=0", "type": "offer", "pc_id": "Bot#1", "restart_pc": False}
    assert json.loads(signalling.offer_body("v=0", None, {"a": 1}))["request_data"] == {"a": 1}


def test_an_answer():
    """The name of an answer, its limit for messages and the kinds of its addresses are read."""
    answer = answer_of({"sdp": SDP, "type": "answer", "pc_id": "Bot#1"}, "http://bot")
    assert (answer.pc_id, answer.max_message_size, answer.takes_short_packets) == ("Bot#1", 262144, True)
    assert candidates(SDP) == ["host 192.0.2.2 (udp)", "srflx 198.51.100.7 (udp)"]
    old = answer_of({"sdp": SDP.replace("a=max-message-size:262144", "a=x")}, "http://bot")
    assert (old.pc_id, old.max_message_size, old.takes_short_packets) == (None, 65536, False)


@pytest.mark.parametrize(
    ("said", "takes"), [("1", 1), ("0", sys.maxsize), ("9" * 5000, 10**15 - 1)], ids=["1", "0", "5000 digits"]
)
def test_the_largest_message(said, takes):
    """0 means any size (RFC 8841), so that the transport's own limit counts; any number of digits is read."""
    document = {"sdp": SDP.replace("size:262144", f"size:{said}")}
    assert answer_of(document, "http://bot").max_message_size == takes


def addresses(count):
    return "".join(f"a=candidate:{n} 1 udp 1 192.0.2.2 {n} typ host\r\n" for n in range(count))


def test_an_answer_with_many_addresses():
    """A bot with a hundred addresses is reached, also if each of four media has all of them."""
    assert answer_of({"sdp": SDP + 4 * addresses(98)}, "http://bot")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "without an sdp"),
        ({"sdp": None}, "without an sdp"),
        ({"sdp": "v=0\r\n"}, "answered the offer without media"),
        ({"sdp": SDP.replace("m=audio 40000", "m=audio 0")}, "has refused the audio"),
        ({"sdp": SDP.replace("m=application 40000", "m=application 0")}, "has refused the data channel"),
        ({"sdp": SDP.replace("a=candidate", "a=other")}, "without an address of the bot"),
        ({"sdp": SDP.replace("a=fingerprint", "a=other")}, "without a fingerprint"),
        ({"sdp": SDP.replace("m=audio 40000", "m=audio")}, "has refused the audio"),
        ({"sdp": SDP + addresses(99)}, "and 101 addresses of the bot"),
        ({"sdp": SDP + addresses(99).replace("\r\n", "\r")}, "and 101 addresses of the bot"),
        ({"sdp": SDP + "a=rtcp-fb:* nack\r\n" * 994}, "with 1001 lines"),
        ({"sdp": SDP + "a=group:BUNDLE" + " 0" * 50_000}, "characters; at most 100000"),
    ],
)
def test_answers_without_a_conversation(document, text):
    """An answer that aiortc would accept, and then wait or be silent, is an error at once."""
    with pytest.raises(TransportStartError, match=text):
        answer_of(document, "http://bot")


def test_signalling_messages():
    """The bot receives the state of tracks; its signalling messages are recognised, and anything else is left to
    RTVI.
    """
    status = {"type": "trackStatus", "receiver_index": 1, "enabled": False}
    assert json.loads(signalling.track_status(1, enabled=False)) == {"type": "signalling", "message": status}
    assert signalling.signalled({"type": "signalling", "message": {"type": "peerLeft"}}) == "peerLeft"
    assert signalling.signalled({"type": "signalling", "message": 5}) == ""
    assert signalling.signalled({"type": "bot-ready"}) is None
    assert signalling.signalled([]) is None
