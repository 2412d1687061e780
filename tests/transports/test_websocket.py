"""WebSocketTransport: where it connects to, what it takes from the wire, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.concurrency.runtime import acquire_runtime
from rtvi_sync.errors import (
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    MessageTooLargeError,
    TransportStartError,
    UnsupportedFeatureError,
)
from rtvi_sync.media import BytesSink, BytesSource, NullSink, SilenceSource
from rtvi_sync.media.manager import MediaManager
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, InterruptionFrame, MessageFrame, TextFrame, decode, encode
from rtvi_sync.protocol.states import CloseInfo
from rtvi_sync.transports import websocket as module
from rtvi_sync.transports.base import TransportOptions
from rtvi_sync.transports.net import Network
from rtvi_sync.transports.websocket import WebSocketTransport
from rtvi_sync.transports.websocket_handshake import open_websocket
from tests.support.forking import in_child
from tests.support.loopback import Server, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

from .conftest import AbandonedError
from .test_websocket_connection import Bot
from .test_websocket_frames import BINARY, CLOSE, TEXT, frame
from .test_websocket_handshake import lines_of, upgrade

READY = RTVIMessage("client-ready", {"version": "2.2.0"}, "ready")


def text_in(payload: bytes) -> str:
    """Return the text of a message of the client."""
    sent = decode(payload)
    assert isinstance(sent, MessageFrame)
    return sent.data


class BotServer(Server):
    """Accepts WebSockets and hands each to the test."""

    def __init__(self, **options) -> None:
        super().__init__(self._serve_one, **options)
        self._arrived = threading.Condition()
        self._bots: list[tuple[str, Bot]] = []
        self.after = b""

    def _serve_one(self, peer) -> None:
        head = upgrade(peer, after=self.after)
        bot = Bot(peer.sock)
        with self._arrived:
            self._bots.append((head, bot))
            self._arrived.notify_all()
        self.stopping.wait()

    def bot(self) -> Bot:
        """The bot's end of the next connection, once it was told that the client is ready."""
        bot = self.arrival()[1]
        assert '"client-ready"' in str(decode(bot.receive()[1]))
        return bot

    def arrival(self) -> tuple[str, Bot]:
        """Head of the request and the bot's end, of the next connection."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._bots, GUARD)
            return self._bots.pop(0)

    @property
    def url(self) -> str:
        return f"ws{'s' if self._tls else ''}://{self.authority}/ws"


class Session:
    """What a session gives to its transport, and what the transport told it."""

    def __init__(self, runtime, network=None, **options) -> None:
        self._changed = threading.Condition()
        self.messages: list[object] = []
        self.ends: list[CloseInfo] = []
        self.interruptions = 0
        self.media = MediaManager(**{"mic": SilenceSource(), "speaker": NullSink(), **options})
        self.media.expect(runtime)
        self.options = TransportOptions(
            client_ready=READY,
            on_interruption=self._interrupted,
            on_closed=lambda info: self._note(self.ends, info),
            on_event=lambda *_: None,
            on_messages=self._take,
            network=network or Network(ssl_context=trusting(), proxy=False),
            media=self.media,
            _runtime=runtime,
        )

    def _note(self, where: list, what: object) -> None:
        with self._changed:
            where.append(what)
            self._changed.notify_all()

    def _take(self, messages) -> None:
        for message in messages:
            self._note(self.messages, message)

    def _interrupted(self) -> None:
        with self._changed:
            self.interruptions += 1
            self._changed.notify_all()

    def begin(self, transport: WebSocketTransport) -> None:
        transport.initialize(self.options, lambda message: self._take([message]))
        transport.init_devices()

    def wait(self, condition) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, GUARD)


@pytest.fixture
def runtime():
    """The runtime of the process."""
    runtime = acquire_runtime()
    yield runtime
    runtime.release()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def server(request):
    """A server of WebSockets."""
    with BotServer(tls=serving() if request.param else None) as server:
        yield server


@pytest.fixture
def plain():
    """A server of WebSockets without TLS."""
    with BotServer() as server:
        yield server


@pytest.fixture
def opened(runtime, attempt, monkeypatch):
    """Connects transports, each with a session of its own, and disconnects all after the test."""
    pairs = []

    def connect(transport, bundle=None, session=None):
        session = session or Session(runtime)
        pairs.append((transport, session))
        session.begin(transport)
        transport.connect(bundle, attempt.signal)
        transport.send_ready_message()
        return session

    yield connect
    monkeypatch.setattr(module, "_POLITE_CLOSE_TIMEOUT", 0.02)  # these bots answer no close frame by themselves
    for transport, session in pairs:
        transport.disconnect()
        assert session.media.stop(GUARD) == []


def flush(runtime) -> None:
    """Wait until the I/O thread has done all that was given to it."""
    done = threading.Event()
    runtime.io.call(done.set)
    assert done.wait(GUARD)


# -- where to ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["ws_url", "wsUrl"])
def test_the_bundle_has_the_url(plain, opened, key):
    """Without a URL of its own the transport takes the bundle's, in either spelling; other keys do not matter."""
    opened(WebSocketTransport(), {key: plain.url, "token": None, "sessionId": "x", "iceConfig": {}})
    head, _ = plain.arrival()
    assert head.startswith("GET /ws HTTP/1.1\r\n")


def test_the_transports_own_url_wins(plain, opened):
    """A `ws_url` of the transport's is taken whatever the bundle says; then no bundle is needed."""
    opened(WebSocketTransport(plain.url), {"ws_url": "ws://127.0.0.1:9/other"})
    opened(WebSocketTransport(plain.url))
    assert [plain.arrival()[0].split(" ")[1] for _ in range(2)] == ["/ws", "/ws"]


def test_ws_url_wins_over_the_other_spelling(plain, opened):
    """If a bundle has both spellings, `ws_url` counts; an empty one does not."""
    opened(WebSocketTransport(), {"ws_url": plain.url, "wsUrl": "ws://127.0.0.1:9/"})
    opened(WebSocketTransport(), {"ws_url": "", "wsUrl": plain.url})
    plain.arrival()
    plain.arrival()


@pytest.mark.parametrize("bundle", [None, {}, {"url": "ws://x"}, {"ws_url": None}, {"ws_url": 5}, [1], "ws://x", 5])
def test_there_is_no_url(runtime, attempt, bundle):
    """A bundle without a URL is refused, and the message says what to do."""
    transport = WebSocketTransport()
    Session(runtime).begin(transport)
    with pytest.raises(InvalidTransportParamsError, match="ws_url"):
        transport.connect(bundle, attempt.signal)
    transport.disconnect()


@pytest.mark.parametrize("url", ["http://host", "host", "ws://", "ws://host:99999", "ws://user:secret@[x", ""])
def test_a_url_that_is_none(runtime, attempt, url):
    """A URL that cannot work is refused, by the constructor already if it was given there, and without its secrets."""
    with pytest.raises(InvalidTransportParamsError, match="is not a WebSocket URL: it") as caught:
        WebSocketTransport(url)
    assert "secret" not in str(caught.value)
    transport = WebSocketTransport()
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
def test_the_token_goes_into_the_query(plain, opened, own, given, query, sent):
    """The token, the transport's own before the bundle's, is appended to the URL as ``token``, encoded."""
    opened(WebSocketTransport(token=own), {"ws_url": plain.url + query, "token": given})
    head, _ = plain.arrival()
    assert parse_qs(urlsplit(head.split(" ")[1]).query) == sent
    assert "authorization" not in lines_of(head)


def test_the_token_goes_into_a_header(plain, opened):
    """With `token_in="header"` it is sent as Authorization, and does not show up in the URL."""
    opened(WebSocketTransport(token_in="header", headers={"X-Mine": "1"}), {"ws_url": plain.url, "token": "t0k"})
    head, _ = plain.arrival()
    assert lines_of(head)["authorization"] == ["Bearer t0k"]
    assert lines_of(head)["x-mine"] == ["1"]
    assert "t0k" not in head.split("\r\n")[0]


def test_nowhere_else(opened):
    """A token can go to one of two places."""
    with pytest.raises(ValueError, match='"query" or "header"'):
        WebSocketTransport(token_in="body")  # type: ignore[arg-type]


def test_a_token_that_is_no_header(runtime, attempt):
    """A token with a line break in it is refused before anything is sent, and is not shown."""
    transport = WebSocketTransport("ws://127.0.0.1:9/", token="secret\r\nEvil: 1", token_in="header")
    Session(runtime).begin(transport)
    with pytest.raises(InvalidTransportParamsError) as caught:
        transport.connect(None, attempt.signal)
    assert "secret" not in str(caught.value)
    transport.disconnect()


def test_secrets_do_not_show(runtime, attempt, caplog):
    """repr, errors and logs have neither token nor password."""
    transport = WebSocketTransport("ws://ada:secret@127.0.0.1:9/ws?key=secret", token="secret")
    assert repr(transport) == "WebSocketTransport(ws_url='ws://127.0.0.1:9/ws')"
    assert repr(WebSocketTransport()) == "WebSocketTransport(ws_url=None)"
    Session(runtime).begin(transport)
    with caplog.at_level(logging.DEBUG), pytest.raises(TransportStartError) as caught:
        transport.connect(None, attempt.signal)
    transport.disconnect()
    assert "secret" not in str(caught.value) + caplog.text


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_both_ways(server, opened):
    """A message goes out as one protobuf frame in a binary message, and one comes in as the text it was."""
    transport = WebSocketTransport(server.url)
    session = opened(transport)
    bot = server.bot()
    transport.send_message(RTVIMessage("client-message", {"t": "ü"}, "id-1"))
    opcode, payload = bot.receive()
    assert opcode == BINARY
    assert '"id-1"' in text_in(payload)
    bot.send(frame(BINARY, encode(MessageFrame(data='{"label": "rtvi-ai"}'))))
    session.wait(lambda: session.messages == ['{"label": "rtvi-ai"}'])


def test_the_ready_message(plain, opened):
    """`send_ready_message()` sends what the session gave, each time."""
    transport = WebSocketTransport(plain.url)
    session = opened(transport)
    bot = plain.bot()
    transport.send_ready_message()
    assert '"client-ready"' in text_in(bot.receive()[1])
    bot.send(frame(BINARY, encode(MessageFrame(data="heard"))))
    session.wait(lambda: session.messages == ["heard"])


def test_all_kinds_of_frames(plain, opened, runtime, caplog):
    """Audio goes to the sink, an interruption to the session; what is not for us, or is broken, is skipped."""
    sink = BytesSink()
    session = Session(runtime, speaker=sink)
    opened(WebSocketTransport(plain.url), session=session)
    bot = plain.bot()
    with caplog.at_level(logging.DEBUG):
        bot.send(frame(TEXT, b'{"label": "rtvi-ai"}'))
        bot.send(frame(BINARY, b"\xff\xff\xff"))
        bot.send(frame(BINARY, b""))
        bot.send(frame(BINARY, encode(TextFrame(text="skipped"))))
        bot.send(frame(BINARY, b"\xf2\x7f\x03abc"))  # an unknown field
        bot.send(frame(BINARY, encode(AudioRawFrame(audio=b"\1\2" * 80, sample_rate=16000))))
        bot.send(frame(BINARY, encode(InterruptionFrame())))
        bot.send(frame(BINARY, encode(MessageFrame(data="last"))))
        session.wait(lambda: session.messages == ["last"])
    assert session.interruptions == 1
    assert sink.pcm == b"\1\2" * 80
    assert "Cannot decode a message" in caplog.text
    assert "text frame" in caplog.text


def test_text_frames_are_counted_and_warned_of_once(plain, opened, runtime, caplog):
    """They are what a bot with a JSON serializer sends: the log says so once a session, and they are counted."""
    transport = WebSocketTransport(plain.url)
    session = opened(transport)
    bot = plain.bot()
    for n in range(3):
        bot.send(frame(TEXT, b'{"label": "rtvi-ai"}') * 2 + frame(BINARY, encode(MessageFrame(data=str(n)))))
    session.wait(lambda: session.messages == ["0", "1", "2"])
    assert transport.stats().text_frames_ignored == 6
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "text frames" in warning.getMessage()
    assert "ProtobufFrameSerializer" in warning.getMessage()


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (frame(TEXT, b'{"label": "rtvi-ai", "type": "bot-ready"}') * 3, "3 text frames .* ProtobufFrameSerializer"),
        (frame(BINARY, b'{"label": "rtvi-ai", "type": "bot-ready"}'), "1 messages that are not Pipecat's protobuf"),
        (b"", "See the bot's log"),
    ],
    ids=["text", "undecodable", "nothing"],
)
def test_a_bot_of_another_serializer_is_named_when_connect_times_out(plain, sent, named):
    """The error of a `connect()` whose bot did not get ready says what the transport has seen instead."""
    plain.after = sent
    client = RTVIClient(
        transport=WebSocketTransport(plain.url), connect_timeout=1.0, proxy=False, enable_mic=False, speaker=NullSink()
    )
    with pytest.raises(ConnectionTimeoutError, match=named) as caught:
        client.connect()
    assert caught.value.phase == "bot-ready"
    client.close()


def test_what_comes_together_keeps_its_order(plain, opened, runtime, monkeypatch):
    """Of frames that one read brings each is told once and in its turn, whatever kind comes between; audio is counted,
    that of a usual frame too."""
    session = Session(runtime)

    def tell(what: object) -> None:
        session._note(session.messages, what)

    monkeypatch.setattr(session.media, "receive_audio", lambda *audio: tell(audio))
    session.options = attrs.evolve(session.options, on_interruption=lambda: tell("interruption"))
    transport = WebSocketTransport(plain.url)
    opened(transport, session=session)
    pcm = [bytes([n, 0]) * 160 for n in range(3)]
    audio = [AudioRawFrame(audio=samples, sample_rate=16_000) for samples in pcm]  # from the second on it is usual
    message = [MessageFrame(data=text) for text in ("first", "second", "third")]
    together: list[Frame] = [message[0], audio[0], message[1], audio[1], message[2], InterruptionFrame(), audio[2]]

    plain.bot().send(b"".join(frame(BINARY, encode(each)) for each in together))

    session.wait(lambda: (pcm[2], 16_000, 1) in session.messages)
    flush(runtime)
    heard = [(samples, 16_000, 1) for samples in pcm]
    assert session.messages == ["first", heard[0], "second", heard[1], "third", "interruption", heard[2]]
    assert transport.stats().audio_received == pytest.approx(0.03)


def test_what_came_with_the_handshake_is_delivered(server, runtime, attempt, monkeypatch):
    """A bot may speak as soon as it has answered the handshake, in the same segment or TLS record. It is heard from
    `send_ready_message()` on: otherwise the application would get them before the event `connected`."""
    monkeypatch.setattr(module, "_POLITE_CLOSE_TIMEOUT", 0.02)
    server.after = frame(BINARY, encode(MessageFrame(data="early")))
    transport, session = WebSocketTransport(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    flush(runtime)
    assert session.messages == []
    transport.send_ready_message()
    session.wait(lambda: session.messages == ["early"])
    transport.disconnect()


def test_an_end_before_the_ready_message(server, runtime, attempt):
    """A bot that hung up as soon as it had answered the handshake: that is told then, with its reason."""
    server.after = frame(CLOSE, struct.pack("!H", 1008) + b"no")
    transport, session = WebSocketTransport(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    flush(runtime)
    assert session.ends == []
    with contextlib.suppress(DisconnectedError):  # it may be known by then
        transport.send_ready_message()
    session.wait(lambda: session.ends)
    assert (session.ends[0].code, session.ends[0].reason, session.ends[0].initiator) == (1008, "no", "server")
    transport.disconnect()


def test_a_disconnect_before_the_ready_message(server, runtime, attempt, monkeypatch):
    """It sends a close frame and waits for no answer, which it would not read; a later ready message comes too late."""
    monkeypatch.setattr(module, "_POLITE_CLOSE_TIMEOUT", 2 * GUARD)
    transport, session = WebSocketTransport(server.url), Session(runtime)
    session.begin(transport)
    transport.connect(None, attempt.signal)
    with running(transport.disconnect) as disconnecting:
        disconnecting.get()
    bot = server.arrival()[1]
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()
    with pytest.raises(DisconnectedError):
        transport.send_ready_message()
    flush(runtime)
    assert session.ends == []


def test_the_size_limit(plain, opened):
    """A serialized frame over the limit raises before a byte is sent; the connection lives."""
    transport = WebSocketTransport(plain.url, max_message_size=200)
    opened(transport)
    with pytest.raises(MessageTooLargeError, match="this transport carries 200"):
        transport.send_message(RTVIMessage("client-message", {"t": "x" * 200}))
    transport.send_message(RTVIMessage("client-message", {"t": "x"}, "id-1"))
    assert '"id-1"' in str(decode(plain.bot().receive()[1]))


def test_the_inbound_limit(plain, opened):
    """A message over the inbound limit ends the session."""
    session = opened(WebSocketTransport(plain.url, max_inbound_message_size=1000))
    plain.bot().send(b"\x82\x7f" + struct.pack("!Q", 1001))
    session.wait(lambda: session.ends)
    assert session.ends[0].code == 1009


def test_sending_without_a_connection(plain, opened, runtime):
    """Before connect(), after disconnect() and after the end there is nothing to send on."""
    transport = WebSocketTransport(plain.url)
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


def test_a_bot_that_reads_nothing(plain, opened):
    """A bot that stops reading fails the session after the limit."""
    transport = WebSocketTransport(plain.url, stall_timeout=0.2, max_message_size=64 * 1024 * 1024)
    session = opened(transport)
    transport.send_message(RTVIMessage("client-message", {"t": "x" * 16_000_000}))
    session.wait(lambda: session.ends)
    assert "has read nothing" in str(session.ends[0].error)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_polite_end(server, opened, runtime):
    """disconnect() sends a close frame and returns when the bot has answered; the session is not told what it knows."""
    transport = WebSocketTransport(server.url)
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


def test_an_end_without_an_answer(plain, opened, monkeypatch):
    """A bot that does not answer the close frame holds disconnect() up for its limit only."""
    monkeypatch.setattr(module, "_POLITE_CLOSE_TIMEOUT", 0.1)
    transport = WebSocketTransport(plain.url)
    opened(transport)
    bot = plain.bot()
    transport.disconnect()
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_the_bots_end_is_told_once(plain, opened, runtime):
    """When the bot ends the session, the session is told how, once; disconnect() then has nothing to wait for."""
    transport = WebSocketTransport(plain.url)
    session = opened(transport)
    plain.bot().send(frame(CLOSE, struct.pack("!H", 1001) + b"bye"))
    session.wait(lambda: session.ends)
    transport.disconnect()
    flush(runtime)
    assert [(info.code, info.reason, info.initiator) for info in session.ends] == [(1001, "bye", "server")]


def test_an_abandoned_attempt_does_not_wait_for_politeness(plain, opened, attempt):
    """disconnect() after an abort closes at once, without a close handshake."""
    transport = WebSocketTransport(plain.url)
    opened(transport)
    bot = plain.bot()
    attempt.abort()
    with running(transport.disconnect) as disconnecting:
        disconnecting.get()  # though the bot answers nothing
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_an_attempt_that_is_abandoned_after_the_handshake(plain, runtime, attempt, monkeypatch):
    """A connection that is there when the attempt is over, and disconnect() has been called, is not kept."""
    transport = WebSocketTransport(plain.url)
    Session(runtime).begin(transport)

    def open_and_abort(*args):
        opened = open_websocket(*args)
        attempt.abort()
        transport.disconnect()
        return opened

    monkeypatch.setattr(module, "open_websocket", open_and_abort)
    with pytest.raises(AbandonedError):
        transport.connect(None, attempt.signal)
    assert plain.arrival()[1].at_end()
    with pytest.raises(DisconnectedError):
        transport.send_message(READY)


def test_one_session_after_the_other(plain, opened, runtime):
    """After disconnect() the transport connects again; what comes late from the first session does not reach it."""
    transport = WebSocketTransport(plain.url)
    for n in range(3):
        session = opened(transport)
        bot = plain.bot()
        bot.send(frame(BINARY, encode(MessageFrame(data=str(n)))))
        session.wait(lambda session=session: session.messages)
        assert session.messages == [str(n)]
        bot.send(frame(CLOSE, struct.pack("!H", 1000)))
        session.wait(lambda session=session: session.ends)
        transport.disconnect()


def test_lost_audio_is_told(plain, opened, caplog, monkeypatch):
    """Audio that was dropped because the bot read too slowly is counted, and the log says so at the end."""
    transport = WebSocketTransport(plain.url, max_message_size=64 * 1024 * 1024)
    opened(transport)
    transport.send_message(RTVIMessage("client-message", {"t": "x" * 16_000_000}))
    for _ in range(3):
        transport.send_audio(bytes(32_000), 16000)
    monkeypatch.setattr(module, "_POLITE_CLOSE_TIMEOUT", 0.02)
    with caplog.at_level(logging.WARNING), pytest.raises(DisconnectedError, match="at least 1"):
        transport.disconnect()
    assert "2.00 s were not sent" in caplog.text


def test_disconnect_before_connect():
    """A transport that was never used can be disconnected."""
    WebSocketTransport().disconnect()


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


def test_it_carries_audio_and_no_video(plain, opened):
    """There are tracks, playback can be interrupted, and a camera or a screen is refused by name."""
    transport = WebSocketTransport(plain.url)
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


def test_a_child_has_no_connection(plain, opened):
    """In a child the transport is usable, even if its lock was held at the fork; the parent's connection stays open."""
    transport = WebSocketTransport(plain.url)
    opened(transport)

    def child() -> object:
        with pytest.raises(DisconnectedError):
            transport.send_message(READY)
        transport.disconnect()
        return "fine"

    with transport._lock:
        assert in_child(child) == "fine"
    transport.send_message(READY)
    assert '"ready"' in str(decode(plain.bot().receive()[1]))
