"""The common base of the transports over one WebSocket: their URLs, and how a session starts and ends."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
from urllib.parse import parse_qs, urlsplit

import pytest

from rtvi_sync import EvalTransport, RTVIClient, WebSocketTransport
from rtvi_sync.errors import (
    DisconnectedError,
    InvalidTransportParamsError,
    TransportStartError,
    UnsupportedFeatureError,
)
from rtvi_sync.media import BytesSink, BytesSource, NullSink
from rtvi_sync.messages import RTVIMessage
from tests.support import limits, part_probes
from tests.support.abandoning import AbandonedError
from tests.support.forking import in_child
from tests.support.loopback import Peer, Server
from tests.support.protobuf import AudioRawFrame, MessageFrame, decode, encode
from tests.support.slowness import GUARD
from tests.support.threads import running
from tests.support.websocket import BINARY, CLOSE, TEXT, Bot, frame, lines_of, upgrade
from tests.support.websocket_bots import READY, Session, flush, message_frame

#: `EvalTransport` adds them to the query; see test_eval.py.
FLAGS = ("capture_bot_audio", "user_audio")


def target_of(head):
    """Return the path of a handshake, and its query without the flags of a transport."""
    url = urlsplit(head.split(" ")[1])
    return url.path, {name: values for name, values in parse_qs(url.query).items() if name not in FLAGS}


# -- where to ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["ws_url", "wsUrl"])
def test_the_bundle_has_the_url(kind, plain, opened, key):
    """Without a URL of its own the transport takes the bundle's, in either spelling; other keys do not matter."""
    opened(kind(), {key: plain.url, "token": None, "sessionId": "x", "iceConfig": {}})
    assert target_of(plain.arrival()[0]) == ("/ws", {})


def test_the_transports_own_url_wins(kind, plain, opened):
    """A `ws_url` of the transport's is taken whatever the bundle says; then no bundle is needed."""
    opened(kind(plain.url), {"ws_url": "ws://127.0.0.1:9/other"})
    opened(kind(plain.url))
    assert [target_of(plain.arrival()[0])[0] for _ in range(2)] == ["/ws", "/ws"]


def test_ws_url_wins_over_the_other_spelling(kind, plain, opened):
    """If a bundle has both spellings, `ws_url` counts; an empty one does not."""
    opened(kind(), {"ws_url": plain.url, "wsUrl": "ws://127.0.0.1:9/"})
    opened(kind(), {"ws_url": "", "wsUrl": plain.url})
    plain.arrival()
    plain.arrival()


@pytest.mark.parametrize("bundle", [None, {}, {"url": "ws://x"}, {"ws_url": None}, {"ws_url": 5}, [1], "ws://x", 5])
def test_there_is_no_url(kind, runtime, attempt, bundle):
    """A bundle without a URL is refused, and the message names the remedy."""
    transport = kind()
    Session(runtime).begin(transport)
    with pytest.raises(InvalidTransportParamsError, match="ws_url"):
        transport.connect(bundle, attempt.signal)
    transport.disconnect()


@pytest.mark.parametrize("url", ["http://host", "host", "ws://", "ws://host:99999", "ws://user:secret@[x", ""])
def test_a_url_that_is_none(kind, runtime, attempt, url):
    """A URL that cannot work is refused, by the constructor already if it was given there, and without its secrets."""
    with pytest.raises(InvalidTransportParamsError, match="is not a WebSocket URL: it") as caught:
        kind(url)
    assert "secret" not in str(caught.value)
    transport = kind()
    Session(runtime).begin(transport)
    with pytest.raises(InvalidTransportParamsError):
        transport.connect({"ws_url": url}, attempt.signal)
    transport.disconnect()


@pytest.mark.parametrize(
    ("own", "given", "query", "sent"),
    [
        (None, "a b&c", "", {"token": ["a b&c"]}),
        ("mine", "theirs", "", {"token": ["mine"]}),
        ("mine", None, "?x=1", {"x": ["1"], "token": ["mine"]}),
        (None, None, "?x=1", {"x": ["1"]}),
        (None, "", "", {}),
        ("", "theirs", "", {}),
        (None, 5, "", {}),
    ],
)
def test_the_token_goes_into_the_query(kind, plain, opened, own, given, query, sent):
    """The token, the transport's own before the bundle's, is appended to the URL as ``token``, encoded."""
    opened(kind(token=own), {"ws_url": plain.url + query, "token": given})
    head, _ = plain.arrival()
    assert target_of(head) == ("/ws", sent)
    assert "authorization" not in lines_of(head)


def test_the_token_goes_into_a_header(kind, plain, opened):
    """The token is sent as Authorization with `token_in="header"`, and is not in the URL."""
    opened(kind(token_in="header", headers={"X-Mine": "1"}), {"ws_url": plain.url, "token": "t0k"})
    head, _ = plain.arrival()
    assert lines_of(head)["authorization"] == ["Bearer t0k"]
    assert lines_of(head)["x-mine"] == ["1"]
    assert "t0k" not in head.split("\r\n")[0]


def test_nowhere_else(kind, opened):
    """A token can go to one of two places."""
    with pytest.raises(ValueError, match='"query" or "header"'):
        kind(token_in="body")


def test_a_token_that_is_no_header(kind):
    """A token with a line break in it is refused where it is given, and is not shown."""
    with pytest.raises(ValueError, match="token cannot be sent") as caught:
        kind("ws://127.0.0.1:9/", token="secret\r\nEvil: 1", token_in="header")
    assert "secret" not in str(caught.value)


def test_secrets_do_not_show(kind, runtime, attempt, caplog):
    """repr, errors and logs show no token and no password."""
    transport = kind("ws://ada:secret@127.0.0.1:9/ws/secret?key=secret", token="secret")
    assert repr(transport) == f"{kind.__name__}(ws_url='ws://127.0.0.1:9/ws/...')"
    assert repr(kind()) == f"{kind.__name__}(ws_url=None)"
    Session(runtime).begin(transport)
    with caplog.at_level(logging.DEBUG), pytest.raises(TransportStartError) as caught:
        transport.connect(None, attempt.signal)
    transport.disconnect()
    assert "secret" not in str(caught.value) + caplog.text


# -- the start -------------------------------------------------------------------------------------------------------


def test_the_ready_message(kind, plain, opened):
    """`send_ready_message()` sends the session's message, each time."""
    transport = kind(plain.url)
    session = opened(transport)
    bot = plain.bot()
    transport.send_ready_message()
    assert b'"client-ready"' in bot.receive()[1]
    bot.send(message_frame(kind, "heard"))
    session.wait(lambda: session.messages == ["heard"])


def test_what_came_with_the_handshake_is_delivered(kind, server, runtime, attempt, monkeypatch):
    """A bot may speak as soon as it has answered the handshake, in the same segment or TLS record. It is heard from
    `send_ready_message()` on: otherwise the application would get them before the event `connected`."""
    limits.patch(monkeypatch, polite_close=0.02)
    server.after = message_frame(kind, "early")
    transport, session = kind(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    flush(runtime)
    assert session.messages == []
    transport.send_ready_message()
    session.wait(lambda: session.messages == ["early"])
    transport.disconnect()


def test_an_end_before_the_ready_message(kind, server, runtime, attempt):
    """The end of a bot that hung up right after the handshake is reported after the ready message, with its reason."""
    server.after = frame(CLOSE, struct.pack("!H", 1008) + b"no")
    transport, session = kind(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    flush(runtime)
    assert session.ends == []
    transport.send_ready_message()
    session.wait(lambda: session.ends)
    assert (session.ends[0].code, session.ends[0].reason, session.ends[0].initiator) == (1008, "no", "server")
    with contextlib.suppress(DisconnectedError):  # the ready message may not have reached it
        transport.disconnect()


@pytest.mark.parametrize("fails_first", ["write", "read"])
def test_a_server_that_hangs_up_at_once(kind, monkeypatch, fails_first):
    """The error names the settings that the bot may lack."""

    def reset(peer: Peer) -> None:
        upgrade(peer)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()

    if fails_first == "write":
        part_probes.after_handshake(monkeypatch, lambda sock: select.select([sock], [], []))  # for the reset
    with Server(reset) as server:
        client = RTVIClient(transport=kind(f"ws://{server.authority}/ws"), text_only=True, connect_timeout=GUARD)
        what_it_lacks = r"hung up before the bot had sent anything.* needs the entry"
        with pytest.raises(DisconnectedError, match=what_it_lacks) as caught:
            client.connect()
    assert ("transport='eval' may reach it" in str(caught.value)) is (kind is WebSocketTransport)


def test_a_disconnect_before_the_ready_message(kind, server, runtime, attempt, monkeypatch):
    """A disconnect before the ready message waits for no answer to its close frame; a later ready message raises."""
    limits.patch(monkeypatch, polite_close=2 * GUARD)
    transport, session = kind(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    with running(transport.disconnect) as disconnecting:
        disconnecting.get()
    bot = server.arrival()[1]
    while bot.receive()[0] != CLOSE:
        pass  # a transport may have something to say before
    assert bot.at_end()
    with pytest.raises(DisconnectedError):
        transport.send_ready_message()
    flush(runtime)
    assert session.ends == []


def test_the_inbound_limit(kind, plain, opened):
    """A message over the inbound limit ends the session."""
    session = opened(kind(plain.url, max_inbound_message_size=1000))
    plain.bot().send(b"\x82\x7f" + struct.pack("!Q", 1001))
    session.wait(lambda: session.ends)
    assert session.ends[0].code == 1009


def test_sending_without_a_connection(kind, plain, opened, runtime):
    """Before connect(), after disconnect() and after the end there is nothing to send on."""
    transport = kind(plain.url)
    message = RTVIMessage("client-message")
    with pytest.raises(DisconnectedError, match="call connect"):
        transport.send_message(message)
    session = opened(transport)
    plain.bot().sock.close()
    session.wait(lambda: session.ends)
    with pytest.raises(DisconnectedError, match="call connect"):
        transport.send_message(message)
    transport.disconnect()
    with pytest.raises(DisconnectedError, match="call connect"):
        transport.send_message(message)


def test_a_bot_that_reads_nothing(kind, plain, opened):
    """A bot that stops reading fails the session after the limit."""
    transport = kind(plain.url, stall_timeout=0.2, max_message_size=64 * 1024 * 1024)
    session = opened(transport)
    transport.send_message(RTVIMessage("client-message", {"t": "x" * 16_000_000}))
    session.wait(lambda: session.ends)
    assert "has read nothing" in str(session.ends[0].error)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_polite_end(kind, server, opened, runtime):
    """disconnect() sends a close frame and returns when the bot has answered; the session gets no report of its own
    action.
    """
    transport = kind(server.url)
    session = opened(transport)
    bot = server.bot()
    with running(transport.disconnect) as disconnecting:
        assert bot.receive() == (CLOSE, struct.pack("!H", 1000))
        assert not disconnecting.done
        bot.send(frame(CLOSE, struct.pack("!H", 1000)))
        disconnecting.get()
    flush(runtime)
    assert session.ends == []
    transport.disconnect()


def test_an_end_without_an_answer(kind, plain, opened, monkeypatch):
    """A bot that does not answer the close frame holds disconnect() up for its limit only."""
    limits.patch(monkeypatch, polite_close=0.1)
    transport = kind(plain.url)
    opened(transport)
    bot = plain.bot()
    transport.disconnect()
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_the_bots_end_is_told_once(kind, plain, opened, runtime):
    """When the bot ends the session, the session is told how, once; disconnect() then has nothing to wait for."""
    transport = kind(plain.url)
    session = opened(transport)
    plain.bot().send(frame(CLOSE, struct.pack("!H", 1001) + b"bye"))
    session.wait(lambda: session.ends)
    transport.disconnect()
    flush(runtime)
    assert [(info.code, info.reason, info.initiator) for info in session.ends] == [(1001, "bye", "server")]


def test_an_abandoned_attempt_does_not_wait_for_politeness(kind, plain, opened, attempt):
    """disconnect() after an abort closes at once, without a close handshake."""
    transport = kind(plain.url)
    opened(transport)
    bot = plain.bot()
    attempt.abort()
    with running(transport.disconnect) as disconnecting:
        disconnecting.get()  # though the bot answers nothing
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_an_attempt_that_is_abandoned_after_the_handshake(kind, plain, runtime, attempt, monkeypatch):
    """A connection that is there when the attempt is over, and disconnect() has been called, is not kept."""
    transport = kind(plain.url)
    Session(runtime).begin(transport)

    def give_up(_: socket.socket) -> None:
        attempt.abort()
        transport.disconnect()

    part_probes.after_handshake(monkeypatch, give_up)
    with pytest.raises(AbandonedError):
        transport.connect(None, attempt.signal)
    assert plain.arrival()[1].at_end()
    with pytest.raises(DisconnectedError):
        transport.send_message(READY)


@pytest.mark.parametrize("is_read", [False, True], ids=["before", "after"])
def test_an_attempt_that_is_abandoned_before_the_bot_is_ready(kind, plain, runtime, attempt, is_read, monkeypatch):
    """An abandoned attempt, before or after `client-ready`, is not closed politely: waiting messages are dropped, and
    no error reports them.
    """
    limits.patch(monkeypatch, polite_close=0.02)
    transport = kind(plain.url)
    Session(runtime).begin(transport)
    transport.connect(None, attempt.signal)
    if is_read:
        transport.send_ready_message()
    for _ in range(20):
        transport.send_message(RTVIMessage("client-message", {"t": "note", "d": "x" * 500_000}, "1"))
    if is_read:
        attempt.abort()
    transport.disconnect()


def test_the_counters_are_those_of_the_last_session(kind, plain, opened, runtime):
    """The counters stay after disconnect(), and the next session starts with new ones."""
    transport = kind(plain.url)
    session = opened(transport)
    plain.bot().send(frame(CLOSE, struct.pack("!H", 1000)))
    session.wait(lambda: session.ends)
    before = transport.stats().bytes_sent
    transport.disconnect()
    assert transport.stats().bytes_sent == before > 0
    Session(runtime).begin(transport)
    assert transport.stats().bytes_sent == 0
    with pytest.raises(DisconnectedError, match="is not open"):
        transport.send_message(READY)


def test_a_message_after_the_end_tells_how_the_session_ended(kind, plain, opened):
    """A message that is sent after `disconnect()` fails with the code and the reason of the server's end."""
    transport = kind(plain.url)
    session = opened(transport)
    bot = plain.bot()
    bot.send(frame(CLOSE, struct.pack("!H", 1013) + b"Come back later"))
    session.wait(lambda: session.ends)
    transport.disconnect()
    with pytest.raises(DisconnectedError) as caught:
        transport.send_message(READY)
    assert (caught.value.code, caught.value.reason, caught.value.initiator) == (1013, "Come back later", "server")


def test_one_session_after_the_other(kind, plain, opened, runtime):
    """After disconnect() the transport connects again; late messages of the first session do not reach the second."""
    transport = kind(plain.url)
    for n in range(3):
        session = opened(transport)
        bot = plain.bot()
        bot.send(message_frame(kind, str(n)))
        session.wait(lambda session=session: session.messages)
        assert session.messages == [str(n)]
        bot.send(frame(CLOSE, struct.pack("!H", 1000)))
        session.wait(lambda session=session: session.ends)
        transport.disconnect()


def test_lost_audio_is_told(kind, plain, opened, caplog, monkeypatch):
    """Audio that was dropped because the bot read too slowly is counted, and the log says so at the end."""
    transport = kind(plain.url, max_message_size=64 * 1024 * 1024)
    opened(transport)
    transport.send_message(RTVIMessage("client-message", {"t": "x" * 16_000_000}))
    for _ in range(3):
        transport.send_audio(bytes(32_000), 16000)
    limits.patch(monkeypatch, polite_close=0.02)
    with caplog.at_level(logging.WARNING), pytest.raises(DisconnectedError, match="at least 1"):
        transport.disconnect()
    assert "2.00 s were not sent" in caplog.text


def test_disconnect_before_connect(kind):
    """A transport that was never used can be disconnected."""
    kind().disconnect()


# -- devices ----------------------------------------------------------------------------------------------------------


def test_a_session_may_have_other_devices(plain, opened, runtime):
    """The devices are the session's: another client's session on the same transport speaks and hears with its own."""
    transport = WebSocketTransport(plain.url)
    sinks = BytesSink(), BytesSink()
    for n, sink in enumerate(sinks):
        session = opened(
            transport, session=Session(runtime, speaker=sink, mic=BytesSource(bytes([n, 0]) * 1600, 16000))
        )
        bot = plain.bot()
        transport.start_media()
        payload = decode(bot.receive()[1])
        assert isinstance(payload, AudioRawFrame)
        assert set(payload.audio[::2]) == {n}
        bot.send(frame(BINARY, encode(AudioRawFrame(audio=bytes([n, 0]) * 80, sample_rate=16000))))
        bot.send(frame(BINARY, encode(MessageFrame(data="heard"))))
        session.wait(lambda session=session: session.messages)
        with running(transport.disconnect):
            while bot.receive()[0] != CLOSE:
                pass
            bot.send(frame(CLOSE, struct.pack("!H", 1000)))
        session.media.stop(GUARD)
    assert [set(sink.pcm[::2]) for sink in sinks] == [{0}, {1}]


def test_it_carries_audio_and_no_video(kind, plain, opened):
    """A WebSocket transport has tracks and playback to interrupt, and refuses a camera or a screen by name."""
    transport = kind(plain.url)
    session = opened(transport)
    assert (transport.supports_audio, transport.supports_video) == (True, False)
    assert transport.tracks() == session.media.tracks()
    assert transport.tracks().bot.audio is not None
    transport.enable_mic(False)
    assert not session.media.settings.mic
    transport.interrupt_playback()
    for enable, feature in ((transport.enable_cam, "cam"), (transport.enable_screen_share, "screen-share")):
        enable(False)
        with pytest.raises(UnsupportedFeatureError) as caught:
            enable(True)
        assert caught.value.feature == feature


# -- forks ------------------------------------------------------------------------------------------------------------


def test_a_child_has_no_connection(kind, plain, opened):
    """In a child the transport is usable, even if its lock was held at the fork; the parent's connection stays open."""
    transport = kind(plain.url)
    opened(transport)

    def child() -> object:
        with pytest.raises(DisconnectedError):
            transport.send_message(READY)
        transport.disconnect()
        return "fine"

    with part_probes.lock_of(transport):
        assert in_child(child) == "fine"
    transport.send_message(READY)
    assert b'"ready"' in plain.bot().receive()[1]


@pytest.mark.parametrize(("ends", "said"), [("closed", "code 1011"), ("reset", "connection to the bot was lost")])
def test_a_server_that_hangs_up_after_the_handshake(kind, ends, said):
    """If the server hangs up after the handshake, as Pipecat's runner does, the error names the missing entry."""

    def hang_up(peer: Peer) -> None:
        upgrade(peer)
        bot = Bot(peer.sock)
        bot.receive()
        if ends == "closed":
            bot.send(frame(CLOSE, (1011).to_bytes(2, "big")))

    with Server(hang_up) as server:
        transport = kind(f"ws://{server.authority}/ws")
        client = RTVIClient(transport=transport, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD)
        with pytest.raises(DisconnectedError, match=f"{said}.* before the bot was ready.*entry '{transport.name}'"):
            client.connect()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(CLOSE, (1008).to_bytes(2, "big") + b"No credit\n"), r"\(code 1008: No credit\)"),
        (frame(TEXT, b"{}") + frame(CLOSE, (1000).to_bytes(2, "big")), r"\(code 1000\)"),
    ],
    ids=["says why", "is no bot"],
)
def test_a_server_that_sends_something_and_ends(sent, said):
    """The error refers to the server's log, and does not advise the call that has failed."""

    def end(peer: Peer) -> None:
        upgrade(peer)
        bot = Bot(peer.sock)
        bot.receive()
        bot.send(sent)
        bot.receive()

    with Server(end) as server:
        transport = EvalTransport(f"ws://{server.authority}/ws")
        client = RTVIClient(transport=transport, text_only=True, connect_timeout=GUARD)
        with pytest.raises(DisconnectedError, match=f"{said} before the bot was ready. See the bot's log$"):
            client.connect()
