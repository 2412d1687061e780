"""`events()` and `wait_for()`."""

from __future__ import annotations

import threading
import warnings
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    Event,
    EventStream,
    RequestTimeoutError,
    RTVIClient,
    RTVIEvent,
    TransportState,
)
from tests.support.clients import bot_says, memory_client, say, settle, silent_bot, transport_of
from tests.support.garbage import collect
from tests.support.probes import waiting_calls
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread
from tests.support.waiting import until


def waiting(client: RTVIClient, call: Any) -> InThread:
    """Run `call()` on a thread and return when it listens."""
    before = waiting_calls(client)
    thread = InThread(call)
    until(lambda: waiting_calls(client) > before)
    return thread


@pytest.mark.parametrize("event", ["connected", "bot_connected", "bot_ready"])
def test_the_beginning_of_a_session_that_is_ready_is_not_waited_for(event: str) -> None:
    """`wait_for()` after `connect()` waits for the next session, also if handlers have not run yet."""
    client = memory_client(events="manual")
    begun: list[Any] = []
    client.on(RTVIEvent(event), begun.append)
    client.connect()
    try:
        with pytest.raises(RequestTimeoutError):
            client.wait_for(RTVIEvent(event), timeout=0.05)
        assert len(begun) == 1, "the handler has run, and the event was not taken for a later one"
    finally:
        client.disconnect()


class TestEvents:
    def test_it_begins_with_the_call(self) -> None:
        """Events between `events()` and the first `next()` are not lost."""
        with memory_client() as client:
            stream = client.events("server_message", timeout=GUARD)
            say(client, 1, 2)
            assert [next(stream).data, next(stream).data] == [1, 2]

    def test_several_types_and_none(self) -> None:
        """events() yields the events it was asked for in their order, all of them if none is named."""
        with memory_client(track_turns=False) as client:
            some = client.events("bot-llm-started", RTVIEvent.SERVER_MESSAGE, timeout=GUARD)
            everything = client.events(timeout=GUARD)
            bot_says(client, "bot-llm-started")
            bot_says(client, "bot-llm-stopped")
            say(client, 1)
            assert [e.type for e in (next(some), next(some))] == [RTVIEvent.BOT_LLM_STARTED, RTVIEvent.SERVER_MESSAGE]
            assert [next(everything).type.snake for _ in range(3)] == [
                "bot_llm_started",
                "bot_llm_stopped",
                "server_message",
            ]

    def test_context_manager(self) -> None:
        """After the block no events are collected; iterating on yields the earlier ones."""
        with memory_client() as client:
            with client.events("server_message", timeout=GUARD) as stream:
                say(client, 1)
                settle(client)
            say(client, 2)
            assert [e.data for e in stream] == [1]
            assert waiting_calls(client) == 0

    def test_it_ends_with_the_session(self) -> None:
        """The iterator returns the events until the end, `disconnected` last, and stops."""
        client = memory_client()
        client.connect()
        stream = client.events(timeout=GUARD)
        say(client, 1)
        client.disconnect()
        types = [e.type.snake for e in stream]
        assert types == [
            "server_message",
            "transport_state_changed",
            "bot_disconnected",
            "transport_state_changed",
            "disconnected",
        ]
        assert next(stream, None) is None

    def test_opened_before_connect(self) -> None:
        """A stream opened before connect() sees the session from its first event on, and ends with it."""
        client = memory_client()
        stream = client.events("bot_ready", "disconnected", timeout=GUARD)
        with client:
            assert next(stream).type is RTVIEvent.BOT_READY
        assert [e.type for e in stream] == [RTVIEvent.DISCONNECTED]

    def test_opened_between_sessions(self) -> None:
        """A stream opened between two sessions belongs to the next one."""
        client = memory_client()
        with client:
            pass
        stream = client.events("server_message", timeout=GUARD)
        with client:
            say(client, 2)
            assert next(stream).data == 2
        assert list(stream) == []

    def test_opened_in_the_disconnected_handler(self) -> None:
        """A stream opened in the handler of `disconnected` belongs to the next session."""
        client = memory_client()
        streams: list[Any] = []
        client.once("disconnected", lambda: streams.append(client.events("server_message", timeout=GUARD)))
        with client:
            pass
        with client:
            say(client, 2)
            assert next(streams[0]).data == 2
        assert list(streams[0]) == []

    def test_it_ends_with_a_failed_attempt(self) -> None:
        """A call that waits for a bot that does not get ready ends."""
        client = memory_client(silent_bot, connect_timeout=0.1)
        stream = client.events("bot_ready")
        with pytest.raises(TimeoutError):
            client.connect()
        assert list(stream) == []

    def test_timeout(self) -> None:
        """The limit is for each event; it raises `RequestTimeoutError`, and the stream goes on."""
        with memory_client() as client:
            stream = client.events("server_message", timeout=0.1)
            raises = pytest.raises(RequestTimeoutError, match=r"serverMessage event within 0\.1 s")
            with takes(1.0, at_least=0.1), raises as caught:
                next(stream)
            assert isinstance(caught.value, TimeoutError)
            say(client, 1)
            assert next(stream).data == 1

    def test_no_time_at_all(self) -> None:
        """A limit of 0 polls."""
        with memory_client() as client:
            stream = client.events("server_message", timeout=0)
            with pytest.raises(RequestTimeoutError):
                next(stream)
            say(client, 1)
            settle(client)
            assert next(stream).data == 1

    def test_close_ends_the_wait_for_another_session(self) -> None:
        """After close() no session can start, so a call that waits for one raises."""
        client = memory_client()
        iterating = waiting(client, lambda: list(client.events()))
        awaiting = waiting(client, lambda: client.wait_for("bot-ready"))
        client.close()
        assert iterating.get() == []
        with pytest.raises(DisconnectedError):
            awaiting.get()

    @pytest.mark.parametrize("was_connected", [True, False])
    def test_after_close(self, was_connected: bool) -> None:
        """A stream that is opened when no session can start any more ends at once."""
        client = memory_client()
        if was_connected:
            client.connect()
        client.close()
        assert list(client.events(timeout=GUARD)) == []
        for event in ("bot_ready", "metrics"):
            with pytest.raises(DisconnectedError, match=r"before the .* event arrived"):
                client.wait_for(event, timeout=GUARD)

    def test_closed_by_another_thread(self) -> None:
        """A call that waits in it stops."""
        with memory_client() as client:
            stream = client.events("server_message")
            reading = InThread(lambda: list(stream))
            stream.close()
            assert reading.get() == []

    def test_handlers_of_earlier_events_have_returned(self) -> None:
        """When an event is returned, every handler of earlier events has returned; handlers of the same event may still
        run.
        """
        with memory_client() as client:
            order: list[Any] = []
            release = threading.Event()

            def slow(data: Any) -> None:
                if data == 1:
                    release.wait(GUARD)
                order.append(data)

            client.on("server_message", slow)
            stream = client.events("server_message", timeout=GUARD)
            impatient = client.events("server_message", timeout=0.05)
            say(client, 1, 2)
            assert next(stream).data == 1
            assert order == []
            assert next(impatient).data == 1
            with pytest.raises(RequestTimeoutError):
                next(impatient)
            release.set()
            assert next(stream).data == 2
            assert order[0] == 1

    def test_a_forgotten_stream_is_collected(self) -> None:
        """A stream without a reference costs nothing."""
        with memory_client() as client:
            stream = client.events("server_message")
            assert waiting_calls(client) == 1
            del stream
            collect()
            assert waiting_calls(client) == 0

    def test_many_streams_on_many_threads(self) -> None:
        """Each gets every event in order."""

        def read(stream: EventStream) -> list[Any]:
            return [next(stream).data for _ in range(200)]

        with memory_client() as client:
            streams = [client.events("server_message", timeout=GUARD) for _ in range(8)]
            readers = [InThread(partial(read, stream)) for stream in streams]
            say(client, *range(200))
            for reader in readers:
                assert reader.get() == list(range(200))

    def test_iteration_survives_the_client(self) -> None:
        """A client that is dropped while a thread iterates ends the iteration."""
        client = memory_client()
        client.connect()
        stream = client.events("disconnected", timeout=GUARD)
        reading = InThread(lambda: [e.type for e in stream])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del client
            collect()
        assert reading.get() == [RTVIEvent.DISCONNECTED]


class TestWaitFor:
    def test_it_returns_the_event(self) -> None:
        """The next event of the type."""
        with memory_client() as client:
            call = waiting(client, lambda: client.wait_for("server_message", timeout=GUARD))
            say(client, "x", "y")
            event = call.get()
            assert isinstance(event, Event)
            assert event.data == "x"

    def test_where(self) -> None:
        """The first for which the condition holds."""
        with memory_client() as client:
            call = waiting(client, lambda: client.wait_for("server_message", where=lambda e: e.data > 3, timeout=GUARD))
            say(client, 1, 2, 5, 6)
            assert call.get().data == 5

    def test_where_that_raises(self) -> None:
        """An exception of where= is raised to the caller."""
        with memory_client() as client:
            call = waiting(client, lambda: client.wait_for("server_message", where=lambda e: 1 / 0, timeout=GUARD))
            say(client, 1)
            assert isinstance(call.error(), ZeroDivisionError)

    def test_timeout_covers_all_events(self) -> None:
        """Events that do not fit do not prolong it."""
        with memory_client() as client:
            stop = threading.Event()

            def chatter() -> None:
                while not stop.wait(0.02):
                    say(client, 1)

            talking = InThread(chatter)
            with takes(1.0, at_least=0.2), pytest.raises(RequestTimeoutError):
                client.wait_for("server_message", where=lambda e: False, timeout=0.2)
            stop.set()
            talking.get()

    @pytest.mark.parametrize("initiator", ["server", "network", "client"])
    def test_the_session_ends_first(self, initiator: str) -> None:
        """`DisconnectedError` with code, reason and initiator, within a second."""
        with memory_client() as client:
            call = waiting(client, lambda: client.wait_for("server_message"))
            if initiator == "client":
                client.disconnect()
            else:
                transport_of(client).end(CloseInfo(code=1012, reason="bye", initiator=initiator))
            error = call.error()
            assert isinstance(error, DisconnectedError)
            assert error.initiator == initiator
            if initiator != "client":
                assert (error.code, error.reason) == (1012, "bye")

    @pytest.mark.parametrize("event", ["disconnected", "bot_disconnected"])
    def test_awaiting_the_end(self, event: str) -> None:
        """The end itself can be waited for."""
        with memory_client() as client:
            call = waiting(client, lambda: client.wait_for(RTVIEvent(event), timeout=GUARD))
            transport_of(client).end(CloseInfo(code=1000, initiator="server"))
            assert call.get().type.snake == event

    def test_awaiting_the_state_at_the_end(self) -> None:
        """The session's last state can be waited for."""
        with memory_client() as client:
            call = waiting(
                client,
                lambda: client.wait_for(
                    "transport_state_changed", where=lambda e: e.data is TransportState.DISCONNECTED, timeout=GUARD
                ),
            )
            client.disconnect()
            assert call.get().data == "disconnected"

    @pytest.mark.parametrize("event", ["server_message", "disconnected"])
    def test_the_session_has_ended_already(self, event: str) -> None:
        """A wait for an event of a session that has ended raises `DisconnectedError` at once."""
        client = memory_client()
        client.connect()
        transport_of(client).end(CloseInfo(code=1012, reason="restart", initiator="server"))
        client.wait(GUARD)
        with pytest.raises(DisconnectedError, match=r"connect\(\)") as caught:
            client.wait_for(RTVIEvent(event))
        assert (caught.value.code, caught.value.reason, caught.value.initiator) == (1012, "restart", "server")
        with client:
            call = waiting(client, lambda: client.wait_for("server_message", timeout=GUARD))
            say(client, 1)
            assert call.get().data == 1

    def test_the_beginning_may_be_awaited_before(self) -> None:
        """Events of a session's start may be waited for before the session, also after an earlier session."""
        client = memory_client()
        for _ in range(2):
            call = waiting(client, lambda: client.wait_for("bot_ready", timeout=GUARD))
            client.connect()
            assert call.get().type is RTVIEvent.BOT_READY
            client.disconnect()

    def test_any_event_may_be_awaited_before_the_first_session(self) -> None:
        """A thread that is started before `connect()` is not turned away."""
        client = memory_client()
        call = waiting(client, lambda: client.wait_for("server_message", timeout=GUARD))
        with client:
            say(client, 1)
            assert call.get().data == 1

    def test_nothing_is_left_of_a_wait(self) -> None:
        """Waits that are over cost nothing."""
        with memory_client() as client:
            for _ in range(5):
                with pytest.raises(RequestTimeoutError):
                    client.wait_for("server_message", timeout=0.01)
            assert waiting_calls(client) == 0


def test_the_end_never_slips_by() -> None:
    """A wait ends even if it starts at the moment in which the session ends."""
    for attempt in range(100):
        client = memory_client()
        client.connect()
        event = "disconnected" if attempt % 2 else "server_message"
        call = InThread(partial(client.wait_for, event))
        transport_of(client).end(CloseInfo(initiator="network"))
        call.thread.join(GUARD)
        assert not call.thread.is_alive()
        client.disconnect()
