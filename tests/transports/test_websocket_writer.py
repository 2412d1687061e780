"""The writer of a connection, and a signal handler that strikes the main thread while the system takes a frame."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable

import pytest

from rtvi_sync.protocol.states import BY_CLIENT
from rtvi_sync.transports.websocket_frames import masked_frame
from rtvi_sync.transports.websocket_writer import FrameWriter, Outgoing
from tests.support import limits, part_probes
from tests.support.loopback import trusting
from tests.support.slowness import GUARD
from tests.support.threads import InThread, running, switch_interval
from tests.support.waiting import until
from tests.support.websocket import BINARY, CLOSE, MB, PONG, Bot, tcp_pair

if sys.platform == "linux":
    import fcntl
    import termios

pytestmark = pytest.mark.inside


@contextlib.contextmanager
def struck_in_the_next_system_call(handler):
    """Have another thread run only when this one waits for the system, and then a signal strike: it runs `handler`
    on this thread, as soon as the system call is done. If the other thread is too slow, there is no strike.
    """
    now, over = threading.Lock(), threading.Event()
    now.acquire()

    def strike() -> None:
        now.acquire()
        if not over.is_set():
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        with running(strike), switch_interval(GUARD):
            now.release()
            yield
            over.set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def read(sock: socket.socket, size: int) -> bytes:
    """Return up to this many bytes."""
    data = bytearray()
    with contextlib.suppress(BlockingIOError):
        while len(data) < size:
            data += sock.recv(MB)
    return bytes(data)


def send_and_be_struck(size: int) -> bool:
    """Send a frame of this many bytes; return False if no signal arrived during the call."""
    ours, theirs = tcp_pair(False)
    frame, arrived, free = b"x" * size, bytearray(), []
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)

        def use_elsewhere() -> bool:
            got = writer.lock.acquire(timeout=GUARD / 10)
            if got:
                writer.lock.release()
            return got

        def handler() -> None:
            sys.setswitchinterval(0.005)
            with running(use_elsewhere) as elsewhere:
                free.append(elsewhere.get())
            arrived.extend(read(theirs, size))  # now the socket has room for the next frames
            writer.send(Outgoing(b"handler", 0.0))

        with struck_in_the_next_system_call(handler):
            writer.send(Outgoing(frame, 0.0))
            struck = bool(free)
        if not struck:
            return False
        while len(arrived) < size + len(b"handler"):
            writer.flush(room=True)
            arrived += read(theirs, size)
        # Python 3.10 runs signal handlers after forward jumps, too, and so under the lock.
        assert free == [True] or sys.version_info < (3, 11)
        assert arrived == frame + b"handler"
        assert writer.bytes_sent == len(arrived)
        return True


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no signal to strike with")
@pytest.mark.parametrize("size", [MB, 32 * MB], ids=["whole", "part"])
def test_a_handler_that_strikes_while_the_system_takes_a_frame(size):
    """A signal handler that interrupts a write may wait for other writers; its message follows the whole frame."""
    until(lambda: send_and_be_struck(size))  # on a busy machine the signal is often late


def test_a_part_that_the_main_thread_wrote_and_did_not_tell_of():
    """A part of a frame that a sender wrote without waking the I/O thread is completed by the next sender."""
    ours, theirs = tcp_pair(False)
    frame, arrived = b"x" * (32 * MB), bytearray()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)
        assert writer.send(Outgoing(frame, 0.0))
        with running(lambda: writer.send(Outgoing(b"next", 0.0))) as elsewhere:
            assert elsewhere.get(), "the I/O thread has to be told"
        assert writer.blocked
        while len(arrived) < len(frame) + len(b"next"):
            writer.flush(room=True)
            arrived += read(theirs, len(frame))
        assert arrived == frame + b"next"
        assert not writer.blocked


def test_the_main_thread_sends_after_the_end():
    """A frame after the close frame is refused, even if the socket would take it."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        writer, late = FrameWriter(ours, MB), Outgoing(b"late", 0.0)
        writer.send_close(Outgoing(b"close", 0.0), BY_CLIENT)
        assert not writer.send(late)
        assert late.refused
        assert read(theirs, MB) == b"close"
        writer.end()


def test_the_main_thread_does_not_overtake():
    """A frame that another thread could not write, because the lock was held, is sent first."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, MB)
        with writer.lock, running(lambda: writer.send(Outgoing(b"first ", 0.0))) as elsewhere:
            assert not elsewhere.get(), "the writer checks the queue again"
        assert len(writer.arrived) == 1
        assert writer.send(Outgoing(b"second ", 0.0)), "the I/O thread has to be told"
        writer.flush()
        assert not writer.send(Outgoing(b"third", 0.0))
        assert theirs.recv(MB, socket.MSG_PEEK).startswith(b"first second ")
        assert writer.bytes_sent == len(b"first second third")


def test_audio_that_the_main_thread_sent_is_counted():
    """Sent audio is counted in seconds; audio that waits for the socket is not."""
    ours, theirs = tcp_pair(False)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, 64 * MB)
        assert not writer.send(Outgoing(b"x", 0.02))
        assert writer.audio_sent == 0.02
        assert writer.send(Outgoing(b"x" * (32 * MB), 0.5))
        writer.flush()
        assert writer.audio_sent == 0.02


def test_nobody_writes_for_long(monkeypatch):
    """However much the socket takes: a sender leaves the rest to the I/O thread, and that serves the others in
    between."""
    limits.patch(monkeypatch, write_slice=0.0)
    size = 3 * limits.value_of("write_chunk")
    ours, theirs = tcp_pair(True)
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours, MB)
        with running(lambda: writer.send(Outgoing(bytes(size), 0.0))) as elsewhere:
            assert elsewhere.get(), "the I/O thread has to be told"
        turns = 1
        while writer.blocked:
            writer.flush(room=True)
            turns += 1
        assert (turns, writer.bytes_sent) == (3, size)


class Narrow(socket.socket):
    """A socket that takes a few bytes at a time, or fails; `sent` has the bytes taken.

    Attributes:
        takes: how many bytes each `send()` takes; an error: it raises that. The last one applies to all later calls.
        on_send: called before each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes: list[int | BaseException] = [MB]
        self.on_send = lambda: None
        self.sent = bytearray()

    def send(self, data, flags=0):
        self.on_send()
        size = self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]
        if isinstance(size, BaseException):
            raise size
        self.sent += data[:size]
        return len(data[:size])


@contextlib.contextmanager
def narrow_writer(max_bytes=MB, takes=()):
    """Yield a writer to a socket that takes the sizes in `takes`, and the socket."""
    with Narrow() as sock:
        sock.takes = [*takes] or sock.takes
        yield FrameWriter(sock, max_bytes), sock


def message(text, audio=0.0):
    """Return a frame of a binary message, or of audio."""
    return Outgoing(b"\x82" + text, audio)


def texts(sent):
    """Return the texts in the frames of `message()`, and in close frames."""
    return [part.decode() for part in bytes(sent).replace(b"\x88", b"\x82").split(b"\x82")[1:]]


def write_all(writer):
    """Write the data that waits for the socket, as the I/O thread does: for some milliseconds at a time."""
    while writer.blocked:
        writer.flush(room=True)


FULL = BlockingIOError()


def test_a_short_write_is_continued():
    """Each byte of a frame is written once, however few the socket takes, before the next frame."""
    with narrow_writer(takes=[4, FULL, 2]) as (writer, sock):
        writer.send(message(b"first frame"))
        writer.flush()
        assert writer.blocked
        assert bytes(sock.sent) == b"\x82fir"
        writer.send(message(b"second"))
        write_all(writer)
        assert texts(sock.sent) == ["first frame", "second"]
        assert writer.bytes_sent == len(sock.sent)
        assert (writer.blocked, writer.bytes_waiting, writer.bytes_left) == (False, 0, 0)


def test_a_frame_that_arrives_during_a_write_is_written_by_the_writer():
    """A frame of a thread that finds the lock held waits for no later frame."""
    with narrow_writer() as (writer, sock):
        sock.on_send = lambda: sock.sent.count(b"\x82") < 3 and writer.send(message(b"during"))
        writer.send(message(b"first"))
        writer.flush()
        assert texts(sock.sent)[:2] == ["first", "during"]
        assert not writer.arrived


def test_a_failed_write_is_the_last():
    """A writer whose socket has failed keeps the error, wakes the I/O thread, writes no more, and refuses frames."""
    broken = BrokenPipeError()
    with narrow_writer(takes=[2, broken, broken, 5]) as (writer, sock):
        writer.send(message(b"first"))
        assert writer.flush()
        assert writer.failure is broken
        late = message(b"late")
        assert not writer.send(late)
        assert late.refused
        writer.flush(room=True)
        assert bytes(sock.sent) == b"\x82f"
        assert writer.end() == (1, len(b"irst"))


def test_the_queue_holds_its_limit_and_no_more():
    """A queue of exactly `max_bytes` is no failure, and one byte more is one; small frames count with their memory."""
    size = message(b"x").size
    assert size > 100, "a frame of two bytes takes more memory than these"
    for more in (0, 1):
        with narrow_writer(10 * size, takes=[FULL]) as (writer, _):
            writer.send(message(b"begun"))  # it waits for the socket, no longer in the queue
            writer.flush()
            for _ in range(9):
                writer.send(message(b"x"))
            writer.send(message(b"x" * (1 + more)))
            writer.flush()
            assert (writer.failure is None) == (more == 0)
            assert writer.bytes_waiting == 10 * size + more


def test_the_oldest_audio_is_dropped():
    """Of more than a second of queued audio the oldest is dropped and counted, except a frame that is partly sent."""
    with narrow_writer(takes=[FULL]) as (writer, sock):
        writer.send(message(b"begun", 0.5))
        writer.flush()
        before = writer.bytes_waiting
        for number in range(6):
            writer.send(message(b"audio %d" % number, 0.25))
            writer.send(message(b"message %d" % number))
        writer.flush()
        assert writer.audio_unsent == 0.5
        waiting = [message(b"audio 0")] * 4 + [message(b"message 0")] * 6
        assert writer.bytes_waiting - before == sum(item.size for item in waiting)
        sock.takes = [MB]
        write_all(writer)
        sent = texts(sock.sent)
        assert [text for text in sent if "message" not in text] == ["begun", "audio 2", "audio 3", "audio 4", "audio 5"]
        assert [text for text in sent if "message" in text] == [f"message {number}" for number in range(6)]
        assert writer.audio_sent == 1.5


def test_a_second_of_audio_is_queued():
    """Exactly a second of audio waits for the socket, and none of it is dropped."""
    with narrow_writer(takes=[FULL]) as (writer, _):
        writer.send(message(b"begun"))
        writer.flush()
        for _ in range(4):
            writer.send(message(b"audio", 0.25))
        writer.flush()
        assert writer.audio_unsent == 0.0


def test_the_close_frame_comes_behind_messages_and_instead_of_audio():
    """Queued messages precede the close frame, also those that no thread has queued yet; audio does not."""
    with narrow_writer(takes=[FULL]) as (writer, sock):
        writer.send(message(b"begun"))
        writer.flush()
        writer.send(message(b"queued"))
        writer.send(message(b"audio", 0.5))
        writer.flush()
        writer.send(message(b"arrived"))
        assert writer.arrived, "the main thread leaves the rest to the I/O thread"
        close = Outgoing(b"\x88bye", 0.0)
        writer.send_close(close, BY_CLIENT)
        assert writer.bytes_waiting == close.size + message(b"queued").size + message(b"arrived").size
        sock.takes = [MB]
        write_all(writer)
        assert texts(sock.sent) == ["begun", "queued", "arrived", "bye"]
        assert writer.audio_unsent == 0.0, "audio that is dropped at the close is not lost"


def test_what_was_not_sent_at_the_end_is_counted():
    """Messages count that are queued, have arrived, or were written in part; audio and the close frame do not."""
    with narrow_writer(takes=[3, FULL]) as (writer, _):
        writer.send(message(b"begun"))
        writer.flush()
        writer.send(message(b"queued"))
        writer.send(message(b"audio", 0.5))
        writer.flush()
        writer.send(message(b"arrived"))
        assert writer.arrived
        rest = len(b"gun") + len(b"\x82queued") + len(b"\x82arrived")
        assert writer.end() == (3, rest)
        assert writer.bytes_waiting == 0


def test_progress_is_the_last_byte_that_the_socket_took():
    """A socket that takes bytes slowly is told from one that takes none."""
    with narrow_writer(takes=[1, FULL, 1, FULL]) as (writer, _):
        writer.send(message(b"slow"))
        writer.flush()
        moments = [writer.progress_at]
        writer.flush(room=True)
        moments.append(writer.progress_at)
        writer.flush(room=True)
        moments.append(writer.progress_at)
    assert 0.0 < moments[0] < moments[1] == moments[2]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_two_threads_send_at_once(tls):
    """Whatever two threads send at once arrives whole, each frame once, in the order of its thread."""
    count, size = 800, MB // 16
    ours, theirs = tcp_pair(tls)
    over = threading.Event()
    with ours, theirs, switch_interval(1e-6):
        ours.setblocking(False)
        theirs.settimeout(GUARD)
        writer = FrameWriter(ours, 2 * count * 2 * size)

        def send(name: bytes) -> None:
            for number in range(count):
                writer.send(Outgoing(b"%s%06d" % (name, number) + name * (size - 7), 0.0))

        def write_the_rest() -> None:
            while not over.is_set():
                writer.flush(room=True)
                over.wait(0.001)

        def receive() -> list[bytes]:
            frames = []
            with theirs.makefile("rb") as stream:
                for _ in range(2 * count):
                    frame = stream.read(size)
                    assert frame == frame[:7] + frame[:1] * (size - 7), "the frame is torn"
                    frames.append(frame[:7])
            return frames

        with running(receive) as receiver, running(write_the_rest):
            try:
                with running(lambda: send(b"a")), running(lambda: send(b"b")):
                    pass
                frames = receiver.get()
            finally:
                over.set()
        assert [frame for frame in frames if frame[:1] == b"a"] == [b"a%06d" % number for number in range(count)]
        assert [frame for frame in frames if frame[:1] == b"b"] == [b"b%06d" % number for number in range(count)]
        assert writer.bytes_sent == 2 * count * size


# -- the end ---------------------------------------------------------------------------------------------------------


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
            threading.Event().wait(0.01)  # for acknowledgements of the bytes that the peer's system took
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
    with writer_and_peer(cipher is not None, context) as (writer, peer):

        def send(payload: bytes, audio: float = 0.0) -> None:
            writer.send(Outgoing(masked_frame(BINARY, payload), audio))
            writer.flush()

        def unread(sock: socket.socket, unacknowledged: Callable[[socket.socket], int]) -> int:
            until(lambda: unacknowledged(sock) == 0)
            return struct.unpack("i", fcntl.ioctl(peer.sock.fileno(), termios.FIONREAD, bytes(4)))[0]

        part_probes.replace_held_bytes(monkeypatch, unread)
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
    """If the close starts after a sender has passed the check, its message is sent or refused, and not accepted and
    lost.
    """
    with writer_and_peer(False) as (writer, _):
        late = Outgoing(masked_frame(BINARY, b"late"), 0.0)
        close = Outgoing(masked_frame(CLOSE, b""), 0.0)
        part_probes.close_during_send(writer, close, lambda: InThread(lambda: writer.send(late)).get())
        assert late.refused
