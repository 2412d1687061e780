"""The transport whose bot is a function."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync import CloseInfo, DisconnectedError, MemoryTransport, RTVIMessage
from rtvi_sync.transports.base import TransportOptions

from ..loopback import LIMIT


@pytest.fixture
def connect(attempt):
    """Connects a memory transport; its messages and its ends."""

    def call(transport, bundle=None):
        messages, ends = [], []
        options = TransportOptions(
            client_ready=RTVIMessage("client-ready", {}, "ready"),
            on_interruption=lambda: None,
            on_closed=ends.append,
            on_event=lambda *_: None,
            hub=None,
        )
        transport.initialize(options, messages.append)
        transport.init_devices()
        transport.connect(bundle, attempt.signal)
        return messages, ends

    return call


def test_the_bot_of_its_own(connect):
    """The default bot is ready, echoes, and leaves when it is asked to; what was sent is kept."""
    transport = MemoryTransport()
    messages, ends = connect(transport, {"any": "bundle"})
    assert transport.auth_bundle == {"any": "bundle"}
    transport.send_ready_message()
    transport.send_message(RTVIMessage("client-message", {"t": "x"}, "1"))
    transport.send_message(RTVIMessage("send-text", {"content": "x"}, "2"))
    assert [(message.type, message.id) for message in messages] == [("bot-ready", "ready"), ("server-response", "1")]
    transport.send_message(RTVIMessage("disconnect-bot", {}, "3"))
    assert ends == [CloseInfo(code=1000, initiator="server")]
    assert [message.id for message in transport.sent] == ["ready", "1", "2", "3"]


def test_a_bot_of_the_callers(connect):
    """The bot may answer with text, documents or messages, or with nothing."""
    answers = ['{"type": "x"}', {"type": "y"}, RTVIMessage("z")]
    transport = MemoryTransport(lambda transport, message: answers if message.id == "1" else None)
    messages, _ = connect(transport)
    transport.send_message(RTVIMessage("client-message", None, "1"))
    transport.send_message(RTVIMessage("client-message", None, "2"))
    assert messages == answers


def test_an_error_of_the_bot_reaches_the_sender(connect):
    """What the bot raises is raised where the message was sent; the connection lives."""

    def bot(transport, message):
        raise ZeroDivisionError

    transport = MemoryTransport(bot)
    messages, _ = connect(transport)
    with pytest.raises(ZeroDivisionError):
        transport.send_message(RTVIMessage("client-message"))
    transport.receive("still here")
    assert messages == ["still here"]


def test_delivering_is_never_two_threads_at_once(connect):
    """While one message is being taken, another thread's waits in the queue, and is taken by the first thread."""
    transport = MemoryTransport()
    messages, _ = connect(transport)
    begun, go_on = threading.Event(), threading.Event()

    def slow(message):
        messages.append((message, threading.current_thread()))
        if message == "first":
            begun.set()
            assert go_on.wait(LIMIT)

    transport.on_message = slow
    first = threading.Thread(target=transport.receive, args=("first",))
    first.start()
    assert begun.wait(LIMIT)
    transport.receive("second")
    assert messages == [("first", first)]
    go_on.set()
    first.join(LIMIT)
    assert messages == [("first", first), ("second", first)]


def test_a_message_received_inside_another(connect):
    """A message that arrives while one is delivered on the same thread comes after it."""
    transport = MemoryTransport()
    messages, _ = connect(transport)

    def take(message):
        if message == "first":
            transport.receive("second")
        messages.append(message)

    transport.on_message = take
    transport.receive("first")
    assert messages == ["first", "second"]


def test_the_end(connect):
    """After the end, told once, nothing is delivered or sent; without a word it is the network's."""
    transport = MemoryTransport()
    messages, ends = connect(transport)
    transport.end()
    transport.end()
    transport.receive("late")
    assert ends == [CloseInfo(initiator="network")]
    assert messages == []
    with pytest.raises(DisconnectedError):
        transport.send_message(RTVIMessage("client-message"))


def test_the_end_while_messages_wait(connect):
    """Messages that wait to be delivered when the connection ends are lost with it, also for the next session."""
    transport = MemoryTransport()
    messages, ends = connect(transport)

    def take(message):
        messages.append(message)
        if message == "first":
            transport.receive("second")
            transport.disconnect()

    transport.on_message = take
    transport.receive("first")
    assert messages == ["first"]
    assert ends == []
    again, _ = connect(transport)
    transport.receive("third")
    assert again == ["third"]
