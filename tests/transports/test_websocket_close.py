"""What was sent before `disconnect()`: it leaves while the server takes it, and what is left is told."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import struct
import sys
import threading
import time

import pytest

from rtvi_sync import CloseInfo, DisconnectedError, ReconnectPolicy, RTVIClient, TransportState, WebSocketTransport
from rtvi_sync.media import NullSink
from rtvi_sync.transports import websocket_writer
from rtvi_sync.transports.websocket_frames import masked_frame
from rtvi_sync.transports.websocket_writer import FrameWriter, Outgoing
from tests.support import limits
from tests.support.clients import session_of, transport_of
from tests.support.loopback import trusting
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import running
from tests.support.waiting import until
from tests.support.websocket import BINARY, CLOSE, MB, PONG, TEXT, Bot, frame, tcp_pair
from tests.support.websocket_bots import BotServer, message_frame, text_in

if sys.platform == "linux":
    import fcntl
    import termios

MESSAGES, SIZE = 20, 500_000


@contextlib.contextmanager
def connected(to: BotServer, kind=WebSocketTransport, **options):
    """Yield a client whose bot is ready, the bot's end of the line, and a list of how the session ended."""
    ends: list[CloseInfo] = []
    transport = kind(to.url)
    client = RTVIClient(
        transport=transport, ssl_context=trusting(), proxy=False, enable_mic=False, speaker=NullSink(), **options
    )
    client.on("disconnected", ends.append)
    with running(client.connect) as connecting:
        bot = to.arrival()[1]
        bot.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        message = message_in(bot.receive())
        while message["type"] != "client-ready":
            message = message_in(bot.receive())
        ready = {"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": {"version": "2.2.0"}}
        bot.send(message_frame(kind, json.dumps(ready)))
        connecting.get()
    try:
        yield client, bot, ends
    finally:
        client.close()


def send_all(client: RTVIClient) -> None:
    for n in range(MESSAGES):
        client.send_client_message("note", [n, "x" * SIZE])


def message_in(received: tuple[int, bytes]) -> dict:
    opcode, payload = received
    assert opcode in (BINARY, TEXT)
    return json.loads(payload if opcode == TEXT else text_in(payload))


def number_in(received: tuple[int, bytes]) -> int:
    """Return which of `send_all()`'s messages a frame is."""
    return message_in(received)["data"]["d"][0]


def test_messages_leave_as_long_as_the_server_takes_them(server, monkeypatch):
    """A server that reads slowly, for longer than one that reads nothing is waited for, gets all, then the close."""
    limits.patch(monkeypatch, teardown=GUARD)

    def check(limit: float) -> None:
        limits.patch(monkeypatch, polite_close=limit)
        with connected(server) as (client, bot, ends):
            send_all(client)
            with running(client.disconnect) as disconnecting:
                until(lambda: client.state is TransportState.DISCONNECTING)
                slow_until = time.monotonic() + 1.5 * limit
                numbers = []
                while time.monotonic() < slow_until:
                    numbers.append(number_in(bot.receive()))
                    threading.Event().wait(limit / 5)
                numbers += [number_in(bot.receive()) for _ in range(MESSAGES - len(numbers))]
                assert bot.receive() == (CLOSE, struct.pack("!H", 1000))
                bot.send(frame(CLOSE, struct.pack("!H", 1000)))
                disconnecting.get()
        assert numbers == list(range(MESSAGES))
        assert ends == [CloseInfo(initiator="client")]

    at_some_limit(check)


def test_messages_that_leave_too_slowly_are_told(server, monkeypatch):
    """A server that goes on reading, but would not have all in time, ends the close no later than another one."""
    limits.patch(monkeypatch, teardown=60.0)
    limits.patch(monkeypatch, sending_share=0.5 / 48.0)  # of the transport's 48 s: 0.5 s
    with connected(server) as (client, bot, ends):
        send_all(client)
        with takes(1.0, at_least=0.5), running(client.disconnect) as disconnecting:
            while not disconnecting.done:
                with contextlib.suppress(OSError):  # the client has closed it already
                    bot.sock.recv(64 * 1024)
                threading.Event().wait(0.02)
    assert "Messages were lost, at least " in str(ends[0].error)


def test_what_could_not_leave_is_told(kind, server, caplog):
    """A server that reads nothing ends the close after the timeout. The messages that it did not take are the error
    of `disconnected` and one warning; they cause no reconnect, whatever the policy would say."""
    asked: list[BaseException] = []

    def retry_on(error: BaseException) -> bool:
        asked.append(error)
        return True

    policy = ReconnectPolicy(retry_on=retry_on)
    with connected(server, kind, reconnect=policy) as (client, _, ends), caplog.at_level(logging.WARNING):
        send_all(client)
        client.disconnect()
        (info,) = ends
        assert (info.initiator, info.reconnecting, type(info.error)) == ("client", False, DisconnectedError)
        assert "Messages were lost, at least " in str(info.error)
        assert [record.getMessage() for record in caplog.records] == [str(info.error)]
        assert client.stats().reconnects == 0
        assert asked == []


def closes(bot: Bot) -> None:
    bot.send(frame(CLOSE, struct.pack("!H", 1000)))


@pytest.mark.parametrize(
    ("leave", "error"), [(closes, "Messages were lost"), (Bot.reset, "reset")], ids=["closes", "resets"]
)
def test_a_server_that_ends_first(kind, plain, caplog, leave, error):
    """What it had not read by then is told in the same way, also if a new session follows. A broken connection has an
    error of its own."""
    policy = ReconnectPolicy(initial_delay=GUARD, retry_on=lambda _: True)
    with connected(plain, kind, reconnect=policy) as (client, bot, ends), caplog.at_level(logging.WARNING):
        send_all(client)
        leave(bot)
        until(lambda: ends)
        (info,) = ends
        assert (info.code, info.reconnecting) == (1000 if leave is closes else None, True)
        assert error in str(info.error)
        (told,) = [line for line in caplog.messages if line.startswith("Messages were lost, at least ")]
        assert "disconnect" not in told


def test_an_io_thread_that_comes_late(plain, monkeypatch):
    """A close that is not done in time says so: then it is not known what has left."""
    limits.patch(monkeypatch, teardown=0.5)
    with connected(plain) as (client, _, ends):
        release = threading.Event()
        session_of(client).runtime.io.call(release.wait)
        client.send_client_message("note")
        client.disconnect()
        assert "may be lost" in str(ends[0].error)
        release.set()


def test_an_abort_of_a_finished_attempt(plain):
    """`abort()` of a connect handler's controller loses no message of the session: its bot is ready."""
    controllers = []

    def handler(_params, _timeout, abort):
        controllers.append(abort)

    with connected(plain, custom_connect_handler=handler) as (client, bot, ends):
        assert not controllers[0].abort()
        send_all(client)
        with running(client.disconnect) as disconnecting:
            assert [number_in(bot.receive()) for _ in range(MESSAGES)] == list(range(MESSAGES))
            assert bot.receive()[0] == CLOSE
            closes(bot)
            disconnecting.get()
    assert ends == [CloseInfo(initiator="client")]


def test_a_transport_that_says_what_was_lost(caplog):
    """A transport of the application's says so by raising `DisconnectedError`; another session can follow."""
    from tests.support.clients import memory_client

    client = memory_client()
    ends: list[CloseInfo] = []
    client.on("disconnected", ends.append)
    transport = transport_of(client)
    close = transport.disconnect

    def disconnect() -> None:
        close()
        raise DisconnectedError("3 messages were lost")

    transport.disconnect = disconnect
    client.connect()
    client.disconnect()
    transport.disconnect = close
    assert str(ends[0].error) == "3 messages were lost"
    assert [record.getMessage() for record in caplog.records] == ["3 messages were lost"]
    with client:
        pass
    assert ends[1].error is None


def test_the_exit_leaves_less_time():
    """`time_to_close()` stays below the limit that the end of the session has, at the exit of the interpreter too."""
    from rtvi_sync.concurrency.deadline import Deadline
    from tests.support.clients import memory_client

    client, times = memory_client(), []
    transport = transport_of(client)
    close = transport.disconnect

    def disconnect() -> None:
        times.append(transport.options.time_to_close())
        close()

    transport.disconnect = disconnect
    client.connect()
    client.disconnect()
    client.connect()
    session_of(client).at_exit(Deadline(1.0))
    assert 1.0 < times[0] < 4.0
    assert 0.0 < times[1] < 1.0


# -- the writer -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def writer_and_peer(tls: bool, context: ssl.SSLContext | None = None):
    ours, theirs = tcp_pair(tls, context)
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ours.setblocking(False)
        writer = FrameWriter(ours, MB)
        yield writer, Bot(theirs)
        writer.end()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is unacknowledged")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("what", ["message", "audio", "pong"])
def test_what_the_system_holds(tls, what):
    """Messages that the system took and the peer has not acknowledged are counted; audio and control frames are not."""
    opcode, audio = (PONG, 0.0) if what == "pong" else (BINARY, 0.02 if what == "audio" else 0.0)
    with writer_and_peer(tls) as (writer, peer):
        writer.send(Outgoing(masked_frame(BINARY, b"heard"), 0.0))
        writer.flush()
        assert peer.receive() == (BINARY, b"heard")
        until(lambda: writer.bytes_left == 0)
        while writer.bytes_left == 0 and not writer.blocked:  # until the peer's window is full
            for _ in range(100):
                writer.send(Outgoing(masked_frame(opcode, b"x" * 100), audio))
                writer.flush()
            threading.Event().wait(0.01)  # for acknowledgements of what the peer's system did take
        messages, size = writer.end()
    assert (messages > 0, size > 0) == (what == "message", what == "message")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is unacknowledged")
@pytest.mark.parametrize("cipher", [None, "TLS 1.3", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_message_before_much_audio(monkeypatch, cipher, lost):
    """A line that is dead from a message on, however much audio follows, loses this message, and audio is none."""
    context = trusting()
    if cipher not in (None, "TLS 1.3"):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(cipher)
    acknowledged = websocket_writer._unacknowledged
    with writer_and_peer(cipher is not None, context) as (writer, peer):

        def send(payload: bytes, audio: float = 0.0) -> None:
            writer.send(Outgoing(masked_frame(BINARY, payload), audio))
            writer.flush()

        def unread(sock: socket.socket) -> int:
            until(lambda: acknowledged(sock) == 0)
            return struct.unpack("i", fcntl.ioctl(peer.sock.fileno(), termios.FIONREAD, bytes(4)))[0]

        monkeypatch.setattr(websocket_writer, "_unacknowledged", unread)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MB)
        send(b"heard")
        assert peer.receive() == (BINARY, b"heard")
        if lost:
            send(b"lost")
        for _ in range(20):
            send(b"x" * 650, 0.02)
        send(b"x" * 20_000, 0.5)  # two records of TLS
        assert writer.end()[0] == int(lost)


def test_a_message_that_meets_the_close_is_sent_or_refused():
    """A sender that has passed the check when the close begins is not told that its message was accepted."""
    with writer_and_peer(False) as (writer, _):
        late = Outgoing(masked_frame(BINARY, b"late"), 0.0)

        def close_meanwhile(item: Outgoing) -> bool:
            writer.send_close(Outgoing(masked_frame(CLOSE, b""), 0.0))
            writer.lock.acquire()  # the I/O thread is writing
            return False

        writer._write_directly = close_meanwhile
        with running(lambda: writer.send(late)) as sending:
            sending.get()
        writer.lock.release()
        assert late.refused
