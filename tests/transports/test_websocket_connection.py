"""An open WebSocket on real sockets, plain and TLS: nothing is lost, nothing blocks, and every end is told once."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import threading
import time

import pytest

from rtvi_sync.concurrency.descriptors import TooManySocketsError
from rtvi_sync.errors import DisconnectedError, ProtocolError, TransportStartError
from tests.support import limits, part_probes
from tests.support.forking import in_child
from tests.support.io_threads import hold, later_calls, on, waiting_calls
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import running
from tests.support.waiting import until
from tests.support.websocket import BINARY, CLOSE, CONT, MB, PING, PONG, TEXT, close_frame, frame
from tests.support.websocket_client import Client, blocked, over_tls_too

pytestmark = pytest.mark.inside


@pytest.fixture
def pair(link):
    """Return one client and its bot."""
    return link()


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_both_ways(pair):
    """Binary and text messages of all sizes that are encoded differently arrive whole, in order, both ways."""
    client, bot = pair
    messages = [(BINARY, bytes([n % 256]) * n) for n in (0, 1, 125, 126, 65535, 65536, 200_000)] + [(TEXT, b"text")]
    for opcode, payload in messages:
        client.connection.send(opcode, payload)
        assert bot.receive() == (opcode, payload)
        bot.send(frame(opcode, payload))
    assert client.received(len(messages)) == messages


@over_tls_too
def test_large_messages_both_ways(pair):
    """8 MB go each way at once."""
    client, bot = pair
    data = bytes(range(256)) * 32 * 1024

    def serve() -> object:
        bot.send(frame(BINARY, data))
        return bot.receive()

    with running(serve) as serving_:
        client.connection.send(BINARY, data)
        assert client.received(1) == [(BINARY, data)]
        assert serving_.get() == (BINARY, data)


def test_fragments_and_control_frames_in_between(pair):
    """A fragmented message is one message; a ping in its midst is answered at once."""
    client, bot = pair
    bot.send(frame(BINARY, b"one ", fin=False) + frame(PING, b"?") + frame(CONT, b"two", fin=True))
    assert bot.receive() == (PONG, b"?")
    assert client.received(1) == [(BINARY, b"one two")]


def test_pings_are_answered(pair):
    """Every ping is answered with its own payload; an unrequested pong is ignored."""
    client, bot = pair
    bot.send(frame(PONG, b"unasked"))
    for payload in (b"", b"x" * 125):
        bot.send(frame(PING, payload))
        assert bot.receive() == (PONG, payload)
    assert client.messages == []


@over_tls_too
@pytest.mark.parametrize("split", [0, 5, -1])
def test_what_came_with_the_handshake(link, split):
    """Bytes that were read with the handshake's answer are the start of the stream."""
    wire = frame(BINARY, b"first") + frame(BINARY, b"second")
    client, bot = link(start=False)
    bot.send(wire[split:] if split else b"")
    client.connection.start(wire[:split] if split else wire)
    assert client.received(2) == [(BINARY, b"first"), (BINARY, b"second")]


@over_tls_too
def test_what_shares_a_record_with_the_handshake(link):
    """Invariant "socket": decrypted bytes that wait in the TLS object, where no selector sees them, are read."""
    client, bot = link(start=False)
    bot.send(b"HTTP" + frame(BINARY, b"first"))
    sock = part_probes.socket_of(client.connection)
    sock.setblocking(True)
    assert sock.recv(4) == b"HTTP"
    sock.setblocking(False)
    client.connection.start()
    assert client.received(1) == [(BINARY, b"first")]


@over_tls_too
def test_many_records_at_once(pair):
    """A burst is read to its end, though the selector reports it only once."""
    client, bot = pair
    go_on = hold(client.io)
    with running(lambda: bot.send(b"".join(frame(BINARY, bytes(n)) for n in range(500)))):
        go_on.set()
        assert [len(payload) for _, payload in client.received(500)] == list(range(500))


def test_sending_before_the_start(link):
    """A message may be sent before the connection is served."""
    client, bot = link(start=False)
    client.connection.send(BINARY, b"early")
    assert bot.receive() == (BINARY, b"early")


def test_all_received_bytes_are_counted(link):
    """The counter of received bytes includes those read with the handshake's answer, and all later ones."""
    first, second = frame(BINARY, b"first"), frame(BINARY, b"the second")
    client, bot = link(first=first)
    client.received(1)
    assert client.connection.stats().bytes_received == len(first)
    bot.send(second)
    client.received(2)
    assert client.connection.stats().bytes_received == len(first) + len(second)


@over_tls_too
def test_much_is_sent_before_the_start(link):
    """Bytes that the socket did not take before the connection is served leave as soon as it is."""
    client, bot = link(start=False)
    payload = blocked(client)
    client.connection.start()
    assert bot.receive() == (BINARY, payload)
    assert client.ends == []


def test_a_message_may_be_answered_at_once(link):
    """A callback may send: it runs on the I/O thread, and no lock is held around it."""
    _, bot = link(on_message=lambda client, opcode, payload: client.connection.send(opcode, payload))
    for n in range(20):
        bot.send(frame(BINARY, bytes(n)))
        assert bot.receive() == (BINARY, bytes(n))


# -- writing against resistance ---------------------------------------------------------------------------------------


@over_tls_too
def test_a_slow_reader_gets_everything_in_order(pair):
    """Invariant "socket": several threads send more than it takes; no byte is lost or torn, order holds."""
    client, bot = pair
    senders, each = 4, 40

    def send(sender: int) -> None:
        for n in range(each):
            client.connection.send(BINARY, struct.pack("!HH", sender, n) + bytes([sender, n]) * (1000 * n))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)  # sending does not block, although the peer does not read yet
        assert not thread.is_alive()
    next_ = [0] * senders
    for _ in range(senders * each):
        opcode, payload = bot.receive()
        sender, n = struct.unpack("!HH", payload[:4])
        assert (opcode, n) == (BINARY, next_[sender])
        assert payload[4:] == bytes([sender, n]) * (1000 * n)
        next_[sender] += 1
    assert next_ == [each] * senders


@over_tls_too
def test_reading_goes_on_while_writing_is_blocked(pair):
    """A bot that does not read is still heard, and its pings are answered when it reads again."""
    client, bot = pair
    payload = blocked(client)
    bot.send(frame(BINARY, b"still here") + frame(PING, b"?"))
    assert client.received(1) == [(BINARY, b"still here")]
    assert bot.receive() == (BINARY, payload)
    assert bot.receive() == (PONG, b"?")


@over_tls_too
def test_after_a_blockage_callers_write_themselves_again(pair):
    """After a blockage, the I/O thread no longer watches for room, and callers write directly again."""
    client, bot = pair
    for _ in range(3):
        payload = blocked(client)
        assert bot.receive() == (BINARY, payload)
        until(lambda: not client.watches_writes)
        assert not client.is_blocked
        client.connection.send(BINARY, b"direct")
        assert bot.receive() == (BINARY, b"direct")


def test_a_blockage_just_when_another_one_has_ended(pair, monkeypatch):
    """Who fills the socket while the I/O thread ceases to watch for room is not forgotten."""
    client, bot = pair
    watch, come = client.io.watch_writes, [b"\x5a" * (32 * MB)]

    def watch_and_fill(channel: object, enabled: bool) -> None:
        watch(channel, enabled)
        if not enabled and come:
            client.connection.send(BINARY, come.pop())

    payload, next_ = blocked(client), come[0]
    monkeypatch.setattr(client.io, "watch_writes", watch_and_fill)
    assert bot.receive() == (BINARY, payload)
    assert bot.receive() == (BINARY, next_)


@over_tls_too
def test_much_is_written_in_turns(pair, monkeypatch):
    """A large message is written in turns, each of which the I/O thread starts by itself, and arrives whole."""
    limits.patch(monkeypatch, write_slice=0.0)
    client, bot = pair
    payload = bytes(range(256)) * 16 * 1024
    with running(lambda: [client.connection.send(BINARY, payload) for _ in range(2)]):
        assert [bot.receive() for _ in range(2)] == [(BINARY, payload)] * 2


def test_a_bot_that_reads_nothing_ends_the_session(link):
    """Bytes that wait longer than the limit without one of them leaving end the connection; no thread hangs."""
    client, _ = link(stall_timeout=0.2)
    blocked(client)
    info = client.ended()
    assert info.initiator == "network"
    assert isinstance(info.error, DisconnectedError)
    assert "has read nothing" in str(info.error)
    with pytest.raises(DisconnectedError):
        client.connection.send(BINARY, b"x")


@over_tls_too
def test_a_bot_that_only_writes_ends_the_session(link):
    """A bot that writes and reads nothing ends the session, even if only the I/O thread writes to it."""
    client, bot = link(stall_timeout=0.2)
    with client.write_lock, running(lambda: client.connection.send(BINARY, bytes(32 * MB))):
        pass
    bot.send(frame(BINARY, b"still here"))
    assert "has read nothing" in str(client.ended().error)


def test_a_bot_that_reads_a_little_and_then_nothing_ends_the_session(link):
    """A bot that takes bytes within one limit is held to the next one as well."""

    def check(limit: float) -> None:
        client, bot = link(stall_timeout=limit)
        blocked(client)
        bot.read(MB)
        assert "has read nothing" in str(client.ended().error)

    at_some_limit(check)


def test_a_bot_that_reads_slowly_does_not(link):
    """A bot that reads slowly does not end the connection as long as bytes leave within each limit."""

    def check(limit: float) -> None:
        client, bot = link(stall_timeout=limit)
        began = time.monotonic()
        payload = blocked(client, 16 * MB)
        pause = threading.Event()
        received = 0
        while time.monotonic() - began < 3 * limit:
            received += len(bot.read(256 * 1024))
            pause.wait(limit / 6)
        total = len(payload) + 14  # header and mask
        bot.read(total - received)
        client.connection.send(BINARY, b"alive")
        assert bot.receive() == (BINARY, b"alive")

    at_some_limit(check)


def test_the_stall_limit_counts_from_the_blockage(link):
    """Time during which nothing waited to be sent does not count, and a blockage that ended leaves no trace."""

    def check(limit: float) -> None:
        client, bot = link(stall_timeout=limit)
        for _ in range(3):
            payload = blocked(client, 8 * MB)
            assert bot.receive() == (BINARY, payload)
            threading.Event().wait(1.2 * limit)
        assert client.ends == []
        blocked(client)
        assert "has read nothing" in str(client.ended().error)

    at_some_limit(check)


@over_tls_too
def test_what_is_sent_during_a_send(pair):
    """A finalizer may send during a send on the same thread: the writer checks the queue again, no frame stays."""
    client, bot = pair
    on(client.io, int)  # it reads already
    client.interrupt_write(lambda: client.connection.send(BINARY, b"in between"))
    with running(lambda: client.connection.send(BINARY, b"first")):
        assert bot.receive() == (BINARY, b"first")
        assert bot.receive() == (BINARY, b"in between")


# -- audio ------------------------------------------------------------------------------------------------------------


def test_the_oldest_audio_is_dropped(pair):
    """Invariant "socket": over 1 s of queued audio the oldest is dropped and counted; other messages stay."""
    client, bot = pair
    payload = blocked(client)
    for n in range(192):
        client.connection.send(BINARY, struct.pack("!H", n), 1 / 64)
        if n % 64 == 25:
            client.connection.send(BINARY, b"control %d" % n)
    assert bot.receive() == (BINARY, payload)
    expected = [b"control 25", b"control 89"]
    for n in range(128, 192):
        expected.append(struct.pack("!H", n))
        if n == 153:
            expected.append(b"control 153")
    assert [bot.receive()[1] for _ in expected] == expected
    assert client.connection.stats().audio_unsent == 2.0


def test_audio_that_is_being_written_is_not_torn(pair):
    """An audio frame of which a part has left is sent to its end, no matter how much follows it."""
    client, bot = pair
    begun = b"\x11" * (16 * MB)
    client.connection.send(BINARY, begun, 0.5)
    for n in range(100):
        client.connection.send(BINARY, bytes([n]), 1 / 64)
    assert bot.receive() == (BINARY, begun)
    assert [bot.receive()[1] for _ in range(64)] == [bytes([n]) for n in range(36, 100)]


def test_the_system_holds_little(pair):
    """Audio that the bot does not read waits here, where old audio can be dropped, not in the system's buffers."""
    client, _ = pair
    for _ in range(400):
        client.connection.send(BINARY, bytes(10_000), 1 / 64)
    on(client.io, int)
    assert client.connection.stats().audio_unsent * 64 * 10_000 > 2 * MB


def test_one_long_audio_frame(pair):
    """More than a second of audio in one frame is sent if nothing is in its way."""
    client, bot = pair
    client.connection.send(BINARY, b"\1" * 64000, 2.0)
    assert bot.receive() == (BINARY, b"\1" * 64000)
    assert client.connection.stats().audio_unsent == 0.0


def test_the_books_are_right_after_much_audio(pair):
    """Rounding does not add up: after hours of audio nothing counts as queued that is not."""
    client, bot = pair
    for _ in range(300):
        client.connection.send(BINARY, b"ab", 0.1 / 3)
        bot.receive()
    assert client.audio_waiting == 0.0
    assert client.connection.stats().bytes_waiting == 0
    assert client.connection.stats().audio_unsent == 0.0


# -- limits -----------------------------------------------------------------------------------------------------------


def test_too_much_in_the_queue_ends_the_session(link):
    """Messages over the limit are not dropped: they end the connection, and the sender is not kept waiting."""
    client, _ = link(max_queued_bytes=MB)
    blocked(client)
    with contextlib.suppress(DisconnectedError):
        for _ in range(20):
            client.connection.send(BINARY, bytes(100_000))
    info = client.ended()
    assert info.initiator == "network"
    assert "1048576 bytes are waiting" in str(info.error)


def test_one_large_message_is_not_too_much(link):
    """A single message larger than the limit is written while it goes, and does not count as waiting."""
    client, bot = link(max_queued_bytes=MB)
    payload = blocked(client)
    assert bot.receive() == (BINARY, payload)
    assert client.ends == []


def test_a_flood_of_pings_is_bounded(link):
    """A bot that sends pings and reads no answers cannot fill the memory: small frames count with their real size."""
    client, bot = link(max_queued_bytes=2 * MB)
    blocked(client)
    flood = frame(PING) * 10_000

    def send() -> None:
        with contextlib.suppress(OSError):
            while not client.ends:
                bot.send(flood)
                most[0] = max(most[0], client.frames_waiting)

    most = [0]
    with running(send):
        info = client.ended()
    assert "bytes are waiting" in str(info.error)
    assert most[0] < 2 * MB / 128


def test_a_too_large_message_ends_the_session(link):
    """A message over the limit is refused with 1009 before it is there."""
    client, bot = link(max_message_bytes=1000)
    bot.send(b"\x82\x7f" + struct.pack("!Q", 1001))
    assert bot.receive() == (CLOSE, struct.pack("!H", 1009))
    info = client.ended()
    assert (info.code, info.initiator) == (1009, "client")
    assert type(info.error) is ProtocolError


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "going away"), (1011, "größer"), (4000, "x" * 123)])
def test_the_bot_ends_the_session(pair, code, reason):
    """Code and reason of the bot are kept, the close frame is answered with the same code, and the line is closed."""
    client, bot = pair
    bot.send(close_frame(code, reason.encode()))
    info = client.ended()
    assert (info.code, info.reason, info.initiator, info.error) == (code, reason, "server", None)
    assert bot.receive() == (CLOSE, struct.pack("!H", code))
    assert bot.at_end()


@over_tls_too
@pytest.mark.parametrize("first", [b"", frame(PING)], ids=["", "ping"])
@pytest.mark.parametrize("fails", ["our_message", "our_answer"])
def test_what_came_before_a_write_that_fails(link, first, fails):
    """If a write fails, earlier messages are delivered, and the bot's close frame says how the connection ended."""
    client, bot = link()
    bot.send(frame(BINARY, b"a word"))  # and the tickets of TLS, with which nothing can be read any more after a reset
    client.received(1)
    go_on = hold(client.io)
    bot.send(first + frame(BINARY, b"the last word") + close_frame(1000))
    bot.reset()
    if fails == "our_message":
        with contextlib.suppress(DisconnectedError):  # the thread that reads is held up
            client.connection.send(BINARY, b"too late")
    go_on.set()
    info = client.ended()
    assert client.messages[1:] == [(BINARY, b"the last word")]
    assert (info.code, info.initiator, info.error) == (1000, "server", None)


def test_what_came_before_a_blocked_write_fails(pair):
    """If bytes wait to be sent when the bot resets the line, its last words and its close frame are still read."""
    client, bot = pair
    blocked(client)
    go_on = hold(client.io)
    bot.send(frame(BINARY, b"the last word") + close_frame(1000))
    bot.reset()
    go_on.set()
    info = client.ended()
    assert client.messages == [(BINARY, b"the last word")]
    assert (info.code, info.initiator, info.error) == (1000, "server", None)


def test_sending_tells_how_the_connection_has_ended(link):
    """A message sent after the bot's close frame fails with its code and reason, also before `on_closed`."""
    errors = []

    def send(client: Client) -> None:
        with pytest.raises(DisconnectedError) as refused:
            client.connection.send(BINARY, b"too late")
        errors.append(refused.value)

    client, bot = link(on_closed=send)
    bot.send(close_frame(1013, b"Server already has a connected client"))
    client.ended()
    until(lambda: errors)
    (error,) = errors
    assert (error.code, error.reason, error.initiator) == (1013, "Server already has a connected client", "server")


def test_a_reason_is_one_line(pair):
    """A reason of several lines, which would forge lines of a log, is told as one."""
    client, bot = pair
    bot.send(close_frame(1008, b"No\ncredit"))
    assert client.ended().reason == "No credit"


def test_a_close_frame_without_code(pair):
    """No code is reported as 1005, as the RFC has it, and answered with 1000."""
    client, bot = pair
    bot.send(frame(CLOSE))
    assert (client.ended().code, client.ended().reason) == (1005, "")
    assert bot.receive() == (CLOSE, struct.pack("!H", 1000))


@over_tls_too
def test_the_client_ends_the_session(pair):
    """Our close frame has our code; when the bot has answered, close() returns and the end is ours."""
    client, bot = pair
    with running(lambda: client.connection.close(GUARD, code=1001)) as closing:
        assert bot.receive() == (CLOSE, struct.pack("!H", 1001))
        assert not closing.done
        bot.send(close_frame(1001))
        closing.get()
    assert (client.ended().code, client.ended().initiator, client.ended().error) == (1001, "client", None)
    assert bot.at_end()


def test_the_client_hears_the_bot_until_it_answers(pair):
    """Messages of the bot before its own close frame are still received; its pings need no answer any more."""
    client, bot = pair
    with running(lambda: client.connection.close(GUARD)) as closing:
        assert bot.receive()[0] == CLOSE
        bot.send(frame(BINARY, b"last words") + frame(PING) + close_frame(1000) + frame(BINARY, b"too late"))
        closing.get()
    assert client.messages == [(BINARY, b"last words")]
    assert bot.at_end()


def test_what_was_sent_before_close_arrives(pair):
    """The close frame is sent behind the queued messages; queued audio is dropped."""
    client, bot = pair
    payload = blocked(client)
    client.connection.send(BINARY, b"audio", 0.5)
    client.connection.send(BINARY, b"control")
    on(client.io, int)  # they are queued
    with running(lambda: client.connection.close(GUARD)) as closing:
        until(lambda: client.is_closing)  # the bot may well read the audio first
        assert bot.receive() == (BINARY, payload)
        assert bot.receive() == (BINARY, b"control")
        assert bot.receive() == (CLOSE, struct.pack("!H", 1000))
        bot.send(close_frame(1000))
        closing.get()


def test_a_bot_that_does_not_answer_the_close_frame(pair):
    """After the limit the line is closed anyway; the end counts as the client's."""
    client, bot = pair
    client.connection.close(0.1)
    assert (client.ended().code, client.ended().initiator) == (None, "client")
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


@over_tls_too
@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
def test_a_bot_that_hangs_up_instead_of_answering(pair, resets):
    """An end of the line after our close frame is our end, not a broken network."""
    client, bot = pair
    with running(lambda: client.connection.close(GUARD)) as closing:
        assert bot.receive()[0] == CLOSE
        if resets:
            bot.reset()
        else:
            bot.sock.close()
        closing.get()
    assert (client.ended().initiator, client.ended().error) == ("client", None)


def test_closing_at_once(pair):
    """close(0) does not wait: a close frame is tried, and the line is closed."""
    client, bot = pair
    client.connection.close(0.0)
    assert client.connection.info is not None
    assert client.connection.fileno() == -1
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()
    assert client.ended().initiator == "client"


def test_closing_when_no_time_is_left(pair):
    """The line is closed at once, which is in time."""
    client, bot = pair
    assert client.connection.close(GUARD, 0.0)
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_closing_while_writing_is_blocked(pair):
    """A bot that reads nothing holds close() up for its limit, and no longer; close(0) not at all."""
    client, _ = pair
    blocked(client)
    with takes(2.0, at_least=0.2):
        client.connection.close(0.2)
    assert client.ended().initiator == "client"


@over_tls_too
def test_closing_at_once_while_writing_is_blocked(pair):
    """close(0) throws away the messages that wait."""
    client, _ = pair
    blocked(client)
    client.connection.close(0.0)
    assert client.ended().initiator == "client"
    assert client.connection.fileno() == -1


def test_closing_again(pair):
    """close() may be called again, at once and from many threads; the connection ends once."""
    client, bot = pair
    with contextlib.ExitStack() as stack:
        closing = [stack.enter_context(running(lambda: client.connection.close(GUARD))) for _ in range(4)]
        assert bot.receive()[0] == CLOSE
        bot.send(close_frame(1000))
        for one in closing:
            one.get()
    client.connection.close(GUARD)
    client.connection.close(0.0)
    assert client.ended().code == 1000


def test_both_close_at_once(pair):
    """Close frames that cross each other are one polite end."""
    client, bot = pair
    bot.send(close_frame(1001, b"bye"))
    client.connection.close(GUARD)
    assert client.ended().code in (None, 1001)
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


def test_closing_before_the_start(link, caplog):
    """A connection that is closed before it was served is just closed; a late start does nothing."""
    client, _ = link(start=False)
    client.connection.close(0.0)
    with caplog.at_level(logging.WARNING):
        client.connection.start(frame(BINARY, b"x"))
        on(client.io, int)
    assert client.messages == []
    assert caplog.text == ""
    assert client.ended().initiator == "client"


def test_a_connection_that_cannot_be_served_ends(link, monkeypatch):
    """A connection that the system does not watch is closed, and its end has the reason; nothing is delivered."""

    def refuse(channel: object) -> None:
        raise TooManySocketsError("no room")

    client, bot = link(start=False)
    monkeypatch.setattr(client.io, "register", refuse)
    client.connection.start(frame(BINARY, b"x"))
    info = client.ended()
    assert isinstance(info.error, TransportStartError)
    assert str(info.error) == "This session cannot be served: no room"
    assert client.messages == []
    assert bot.at_end()


def test_no_timer_outlives_a_connection(link, io):
    """The I/O thread is not woken for the silence or the blockage of a connection that has ended."""
    client, _ = link(ping_interval=GUARD, stall_timeout=GUARD)
    blocked(client)
    assert later_calls(io) == 2
    client.connection.close(0.0)
    client.ended()
    assert later_calls(io) == 0


@over_tls_too
def test_the_line_ends_without_a_word(pair):
    """An end of the stream without a close frame is the network's."""
    client, bot = pair
    bot.sock.close()
    info = client.ended()
    assert (info.code, info.reason, info.initiator) == (None, "", "network")


@over_tls_too
def test_the_line_is_reset(pair):
    """A reset is the network's, with the error that the system gave."""
    client, bot = pair
    bot.reset()
    info = client.ended()
    assert (info.code, info.initiator) == (None, "network")
    # Over TLS a reset may look like the end of the stream.
    assert isinstance(info.error, OSError) or isinstance(bot.sock, ssl.SSLSocket)


@over_tls_too
def test_the_line_breaks_under_a_sender(pair):
    """A sender on a broken line does not raise the system's error: all callers see the same end."""
    client, bot = pair
    blocked(client)
    bot.reset()
    info = client.ended()
    assert (info.code, info.initiator) == (None, "network")
    with pytest.raises(DisconnectedError):
        client.connection.send(BINARY, b"x")


def test_data_after_the_close_frame_is_ignored(pair):
    """After its close frame the bot has nothing more to say."""
    client, bot = pair
    bot.send(frame(BINARY, b"a") + close_frame(1000) + frame(BINARY, b"b") + b"\xff\xff\xff")
    assert client.ended().code == 1000
    assert client.messages == [(BINARY, b"a")]


@over_tls_too
def test_a_breach_of_the_protocol(pair):
    """Messages before the breach are delivered; the bot gets the code of its offence, and the end has the error."""
    client, bot = pair
    bot.send(frame(BINARY, b"fine") + frame(BINARY, b"masked", mask=True))
    info = client.ended()
    assert (info.code, info.initiator) == (1002, "client")
    assert type(info.error) is ProtocolError
    assert client.messages == [(BINARY, b"fine")]
    assert bot.receive() == (CLOSE, struct.pack("!H", 1002))
    assert bot.at_end()


@over_tls_too
@pytest.mark.parametrize("wire", [close_frame(1011, b"broken"), frame(BINARY, mask=True)], ids=["close", "offence"])
def test_how_it_ended_survives_a_line_that_cannot_be_answered(link, wire):
    """If the answer to a close frame or a breach cannot be written, the bot's reason still counts."""
    client, bot = link(start=False)
    socket.socket.shutdown(part_probes.socket_of(client.connection), socket.SHUT_WR)
    client.connection.start()
    bot.send(wire)
    info = client.ended()
    assert (info.code, info.initiator) in [(1011, "server"), (1002, "client")]
    assert info.reason


@pytest.mark.parametrize("where", ["first", "readable", "continued"])
def test_an_error_in_a_callback_ends_the_connection(link, caplog, monkeypatch, where):
    """If a callback raises while a message is delivered, on any path, the connection fails with that error."""

    def fail(client: Client, opcode: int, payload: bytes) -> None:
        if payload.startswith(b"fail"):
            raise ValueError("mine")

    wire = frame(BINARY, b"fail")
    with caplog.at_level(logging.ERROR):
        client, bot = link(on_message=fail, first=wire if where == "first" else b"")
        if where == "readable":
            bot.send(wire)
        elif where == "continued":
            # The rest is read in a turn that no selector asked for.
            limits.patch(monkeypatch, read_slice=0.0)
            with running(lambda: _quietly(bot.send, frame(BINARY, bytes(4 * MB)) + wire)):
                client.ended()
        info = client.ended()
    assert info.initiator == "network"
    assert isinstance(info.error, ValueError)
    assert "mine" in caplog.text


def _quietly(function, *args) -> None:
    with contextlib.suppress(OSError):
        function(*args)


def test_an_error_in_the_last_callback_is_logged(link, caplog):
    """An error in `on_closed` has no effect: the connection is closed already."""

    def fail(client: Client) -> None:
        raise ValueError("mine")

    with caplog.at_level(logging.ERROR):
        client, bot = link(on_closed=fail)
        bot.send(close_frame(1000))
        assert client.ended().code == 1000
        other, other_bot = link()
        other_bot.send(frame(BINARY, b"x"))
        other.received(1)
    assert "mine" in caplog.text


def test_closing_from_a_callback_of_another(link):
    """A connection that is closed by a callback in the turn in which it is readable itself is not read any more."""
    victims: list[Client] = []

    def close_the_other(client: Client, opcode: int, payload: bytes) -> None:
        for victim in victims:
            if victim is not client:
                victim.connection.on_failure(DisconnectedError("closed by the other"))

    one, one_bot = link(on_message=close_the_other)
    two, two_bot = link(on_message=close_the_other)
    victims += [one, two]
    go_on = hold(one.io)
    one_bot.send(frame(BINARY, b"x"))
    two_bot.send(frame(BINARY, b"x"))
    go_on.set()
    deadline = time.monotonic() + GUARD
    while not (one.ends or two.ends) and time.monotonic() < deadline:
        on(one.io, int)
    on(one.io, int)
    assert sorted([len(one.messages), len(two.messages)]) == [0, 1]
    assert len(one.ends) + len(two.ends) == 1


# -- many, and forks --------------------------------------------------------------------------------------------------


@over_tls_too
def test_many_connections_on_one_thread(link, io):
    """60 connections are served by one thread, each with its own order, and all end."""
    links = [link() for _ in range(60)]
    for n in range(20):
        for client, bot in links:
            bot.send(frame(BINARY, bytes([n])))
            client.connection.send(BINARY, bytes([n]))
    for client, bot in links:
        assert client.received(20) == [(BINARY, bytes([n])) for n in range(20)]
        assert [bot.receive() for _ in range(20)] == [(BINARY, bytes([n])) for n in range(20)]
    for n, (client, bot) in enumerate(links):
        if n % 2:
            bot.send(close_frame(1000))
        else:
            client.connection.close(0.0)
        client.ended()
    assert io.thread.is_alive()


@over_tls_too
def test_a_flood_does_not_starve_the_others(link):
    """While one bot sends as fast as it can, another is answered."""
    flooded, flooding_bot = link()
    _, other_bot = link()
    stop = threading.Event()
    chunk = frame(BINARY, bytes(1000)) * 200

    def flood() -> None:
        while not stop.is_set():
            flooding_bot.send(chunk)

    with running(flood):
        flooded.received(1000)
        for n in range(20):
            other_bot.send(frame(PING, bytes([n])))
            assert other_bot.receive() == (PONG, bytes([n]))
        stop.set()


@over_tls_too
def test_a_fork_closes_only_the_copy_of_the_child(pair):
    """In the child the connection is closed, even if its lock was held; the parent's goes on."""
    client, bot = pair
    connection = client.connection

    def child() -> object:
        with contextlib.suppress(DisconnectedError):
            connection.send(BINARY, b"from the child")
            return "sent"
        connection.close(GUARD)
        connection.close(0.0)
        return connection.fileno(), connection.info is not None

    with client.write_lock:
        assert in_child(child) == (-1, True)
    bot.send(frame(BINARY, b"still here"))
    assert client.received(1) == [(BINARY, b"still here")]
    connection.send(BINARY, b"me too")
    assert bot.receive() == (BINARY, b"me too")
    bot.send(close_frame(1000))
    assert client.ended().code == 1000
    assert bot.receive()[0] == CLOSE
    assert bot.at_end()


@over_tls_too
@pytest.mark.parametrize("how", ["polite", "at once", "by the bot", "breach"])
def test_a_copy_elsewhere_does_not_keep_the_line_open(pair, how):
    """The bot sees the end although a copy of the descriptor exists, as in a child that was not forked by Python."""
    client, bot = pair
    copy = socket.socket(fileno=socket.dup(client.connection.fileno()))
    with copy:
        if how in ("polite", "at once"):
            client.connection.close(0.1 if how == "polite" else 0.0)
        else:
            bot.send(close_frame(1000) if how == "by the bot" else frame(BINARY, mask=True))
        client.ended()
        assert bot.receive()[0] == CLOSE
        assert bot.at_end()


@over_tls_too
def test_a_turn_ends_within_what_was_read(link, monkeypatch):
    """Thousands of small frames in one read are delivered in turns, and in order."""
    limits.patch(monkeypatch, read_slice=0.0)
    before_others: list[int] = []

    def wait_for_a_turn(client: Client, opcode: int, payload: bytes) -> None:
        if payload == b"0":
            client.io.call(lambda: before_others.append(len(client.messages)))

    client, _ = link(on_message=wait_for_a_turn, first=b"".join(frame(BINARY, b"%d" % n) for n in range(500)))
    assert client.received(500) == [(BINARY, b"%d" % n) for n in range(500)]
    assert before_others == [64]


@over_tls_too
def test_a_callback_that_takes_its_time_loses_nothing(link):
    """If a callback uses up the turn, the next turn delivers the read messages before it reads more."""

    def linger(client: Client, opcode: int, payload: bytes) -> None:
        if payload == b"0":
            threading.Event().wait(0.05)

    payloads = [b"%d" % n for n in range(12_000)]
    client, bot = link(on_message=linger)
    go_on = hold(client.io)
    bot.send(b"".join(frame(BINARY, payload) for payload in payloads))
    go_on.set()
    assert [payload for _, payload in client.received(len(payloads))] == payloads


class Counted:
    """A socket that counts how often it is read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.reads = 0

    def __getattr__(self, name: str):
        return getattr(self._sock, name)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.reads += 1
        return self._sock.recv(size, flags)


@over_tls_too
@pytest.mark.parametrize(("size", "reads"), [(100, 10), (5000, 20)], ids=["little", "much"])
def test_reads_in_vain(link, size, reads):
    """A little costs one read each time; after much the socket is read until it is empty."""
    client, bot = link()
    bot.send(frame(BINARY, b"begin"))
    client.received(1)
    on(client.io, int)
    with part_probes.replaced_socket(client.connection, Counted) as counted:
        for n in range(10):
            bot.send(frame(BINARY, bytes(size)))
            client.received(n + 2)
            on(client.io, int)
        # A busy machine may add one: the record of TLS had not arrived as a whole.
        assert reads <= counted.reads < reads + 5


def test_reading_on_does_not_multiply(link, io, monkeypatch):
    """However long a flood lasts, a connection has one turn at a time."""
    limits.patch(monkeypatch, read_slice=0.0)
    client, bot = link()
    stop = threading.Event()
    chunk = frame(BINARY, bytes(100)) * 1000

    def flood() -> None:
        while not stop.is_set():
            bot.send(chunk)

    with running(flood):
        client.received(5000)
        assert max(waiting_calls(io) for _ in range(20)) <= 2
        stop.set()


@over_tls_too
def test_a_busy_connection_gives_the_others_their_turn(link, monkeypatch):
    """When its turn is over the rest waits for the next one, and is read without the selector's help."""
    limits.patch(monkeypatch, read_slice=0.0)
    client, bot = link()
    bot.send(b"".join(frame(BINARY, bytes([n]) * 1000) for n in range(250)))
    assert [payload[0] for _, payload in client.received(250)] == list(range(250))
