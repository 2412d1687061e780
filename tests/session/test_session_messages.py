"""The messages of one session: how they are sent and handled, and in which order."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rtvi_sync import BotNotReadyError, CloseInfo, RequestTimeoutError, RTVIMessage
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.protocol import engine
from rtvi_sync.session.session import Session
from tests.support.bare_session import bare_session, fail_calls
from tests.support.threads import running
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class Publisher:
    """An event publisher that records its calls in their order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.was_ready = True

    def end(self) -> None:
        pass

    def item_of(self, effect: engine.Deliver, *_: Any) -> str:
        self.steps.append(effect.event.snake)
        return effect.event.snake

    def enqueue(self, items: list[str], _: int) -> None:
        assert items
        self.steps.append("queue")

    def perform(self, effect: Any) -> None:
        self.steps.append(type(effect).__name__)
        if isinstance(effect, engine.Resolve) and effect.waiter is not None:
            effect.waiter.resolve(effect.message)


class Rig:
    """A session without a client: its sent messages are kept, and its events are recorded."""

    carries_messages = True

    def __init__(self, version: str = "2.2.0") -> None:
        self.publisher = Publisher()
        self.sent: list[RTVIMessage] = []
        parts = SimpleNamespace(workers=None, io=SimpleNamespace(on_end=set()))
        self.session = bare_session(Session, self, self.publisher, runtime=parts)
        self.receive("bot-ready", {"version": version})
        self.publisher.steps.clear()

    def interrupt_playback(self) -> None:
        self.publisher.steps.append("Interrupt")

    def send_message(self, message: RTVIMessage) -> None:
        self.sent.append(message)

    def receive(self, *messages: Any) -> None:
        """Receive messages together; each is a type and its data, and perhaps an id."""
        pairs = [messages] if isinstance(messages[0], str) else list(messages)
        self.session.receive_all([text_of(*pair) for pair in pairs])


def text_of(type_: str, data: Any, id_: str | None = None) -> str:
    return json.dumps({"label": "rtvi-ai", "type": type_, "data": data, "id": id_})


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_events_that_came_together_are_queued_together(rig: Rig) -> None:
    """A batch of events is queued at once."""
    rig.receive(("server-message", 1), ("server-message", 2), ("metrics", {}))
    assert rig.publisher.steps == ["server_message", "server_message", "metrics", "queue"]
    assert rig.session.messages_received == 4  # with bot-ready


def test_events_are_queued_before_what_follows_them(rig: Rig) -> None:
    """An interruption empties the speaker, so the events that preceded it are queued first."""
    rig.receive(("server-message", 1), ("bot-interrupted", None), ("server-message", 2))
    steps = rig.publisher.steps
    assert steps.index("queue") < steps.index("Interrupt")
    assert steps[0] == "server_message"
    assert steps[-2:] == ["server_message", "queue"]


def test_what_is_no_message_is_a_warning(rig: Rig) -> None:
    """The rest of the batch is still received."""
    rig.session.receive_all(["{", text_of("server-message", 1)])
    assert rig.publisher.steps == ["Warn", "server_message", "queue"]


def test_the_follower_is_told_in_the_order_of_the_wire() -> None:
    """A message sent while another thread sends one is passed to the follower, and to the transport, after that one."""
    told: list[str | None] = []

    class Slow(Rig):
        def send_message(self, message: RTVIMessage) -> None:
            if message.id == "first":
                second.start()
                second.join(0.2)  # it cannot end, unless it overtakes this one
            super().send_message(message)

    class Noting:
        def sent(self, message: RTVIMessage) -> None:
            told.append(message.id)

    rig, follower = Slow(), Noting()
    rig.session.follower = cast(Any, follower)
    second = threading.Thread(target=rig.session.send, args=(RTVIMessage("send-text", {"content": "Two"}, "second"),))
    rig.session.send(RTVIMessage("send-text", {"content": "One"}, "first"))
    second.join()
    assert told == [message.id for message in rig.sent] == ["first", "second"]


def test_a_request_gets_its_answer(rig: Rig) -> None:
    """The call returns the message with its id; sent messages are counted."""
    message = RTVIMessage("client-message", {"t": "ask", "d": None})
    with running(lambda: rig.session.request(message, Deadline(None))) as asking:
        until(lambda: rig.sent)
        rig.receive("server-response", {"t": "ask", "d": 7}, message.id)
        assert asking.get().data == {"t": "ask", "d": 7}
    assert rig.session.messages_sent == 1


def test_a_request_without_an_answer(rig: Rig) -> None:
    """The error of a request without an answer names the message and the timeout; nothing waits afterwards."""
    message = RTVIMessage("client-message", {"t": "ask", "d": None})
    with pytest.raises(RequestTimeoutError, match=r"'client-message' 'ask' request within 0\.01 s.*its code handles"):
        rig.session.request(message, Deadline(0.01))
    request = rig.session.engine.pending.take(message.id or "")
    assert request is not None
    assert request.waiter is None


def test_nothing_is_sent_unless_the_bot_is_ready(rig: Rig) -> None:
    """The error of the session is raised, and the transport is not used."""
    rig.publisher.was_ready = False
    with pytest.raises(BotNotReadyError, match="not ready"):
        rig.session.send(RTVIMessage("client-message", {"t": "tell", "d": None}))
    assert rig.sent == []
    assert rig.session.messages_sent == 0


def test_after_the_end_nothing_is_received(rig: Rig) -> None:
    """Calls that wait fail, each with an error of its own, and later messages are dropped."""
    messages = [RTVIMessage("client-message", {"t": "ask", "d": None}) for _ in range(2)]
    with (
        running(lambda: rig.session.request(messages[0], Deadline(None))) as first,
        running(lambda: rig.session.request(messages[1], Deadline(None))) as second,
    ):
        until(lambda: len(rig.session.engine.pending.ids()) == 2)
        fail_calls(rig.session, CloseInfo(initiator="server", code=1000, reason="it is over"))
        errors = [first.error(), second.error()]
    assert ["it is over" in str(error) for error in errors] == [True] * 2
    assert errors[0] is not errors[1]
    rig.receive("server-message", 1)
    assert rig.publisher.steps == []


def test_a_config_that_the_bot_does_not_send(caplog: pytest.LogCaptureFixture) -> None:
    """A bot of 0.3 has one; if it does not answer, the session goes on, with a warning."""
    rig = Rig("0.3.0")
    assert rig.session.engine.wants_config
    rig.session.fetch_config(Deadline(0.01))
    assert [message.type for message in rig.sent] == ["get-config"]
    assert "client.config stays None" in caplog.text
