"""Handlers and signals: their arguments, their order, and the effect of a handler that fails."""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from typing import Any, cast

import pytest

from rtvi_sync import (
    Event,
    HandlerError,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    TransportState,
    messages,
    signals,
)
from tests.support.clients import bot_says, memory_client, say, settle, transport_of
from tests.support.garbage import collect
from tests.support.probes import listeners, queued_events
from tests.support.slowness import GUARD
from tests.support.threads import InThread


class TestRegistration:
    @pytest.mark.parametrize("name", ["server-message", "server_message", "serverMessage", RTVIEvent.SERVER_MESSAGE])
    def test_every_name_of_an_event(self, client: RTVIClient, name: str | RTVIEvent) -> None:
        """The member, its value, its snake_case and its wire type name the same event at all three doors."""
        spelling: Any = name  # type checkers know the names as literals
        heard: list[Any] = []
        client.on(spelling, heard.append)
        with client.events(spelling, timeout=GUARD) as stream:
            say(client, "x")
            assert next(stream).data == "x"
        settle(client)
        client.off(spelling, heard.append)
        say(client, "y")
        settle(client)
        assert heard == ["x"]

    def test_unknown_event(self, client: RTVIClient) -> None:
        """A name that no event has is refused at once, with a suggestion, everywhere."""
        misspelt: Any = "bot_redy"
        for call in (
            lambda: client.on(misspelt, print),
            lambda: client.once(misspelt, print),
            lambda: client.off(misspelt),
            lambda: client.wait_for(misspelt),
            lambda: client.events("bot_ready", misspelt),
        ):
            with pytest.raises(ValueError, match="bot_ready"):
                call()
        with pytest.raises(AttributeError, match="bot_redy"):
            _ = signals.bot_redy

    def test_payload_or_nothing(self, client: RTVIClient) -> None:
        """The signature decides whether a handler gets the payload."""
        heard: list[Any] = []

        class Thing:
            def __call__(self, data: Any) -> None:
                heard.append(("object", data))

            def method(self) -> None:
                heard.append("method")

        thing = Thing()
        for handler in (
            lambda data: heard.append(("one", data)),
            lambda: heard.append("none"),
            lambda data=None: heard.append(("default", data)),
            lambda *data: heard.append(("star", *data)),
            lambda **more: heard.append(("keywords", more)),
            lambda *, more=1: heard.append(("keyword-only", more)),
            functools.partial(lambda a, data: heard.append((a, data)), "partial"),
            thing,
            thing.method,
        ):
            client.on("server_message", handler)
        say(client, 1)
        settle(client)
        assert heard == [
            ("one", 1),
            "none",
            ("default", 1),
            ("star", 1),
            ("keywords", {}),
            ("keyword-only", 1),
            ("partial", 1),
            ("object", 1),
            "method",
        ]

    def test_built_in_functions(self, client: RTVIClient) -> None:
        """Methods of built-in objects do as handlers."""
        items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        texts: list[Any] = []
        flag = threading.Event()
        client.on("server_message", texts.append)
        client.on("server_message", items.put)
        client.on("server_message", flag.set)
        say(client, "x")
        assert flag.wait(GUARD)
        assert (texts, items.get(timeout=GUARD)) == (["x"], "x")

    def test_too_many_arguments(self, client: RTVIClient) -> None:
        """A handler that needs more than the payload could not be called."""
        with pytest.raises(TypeError, match="more arguments"):
            client.on("server_message", cast("Any", lambda a, b: None))

    def test_generator_functions_are_refused(self, client: RTVIClient) -> None:
        """A generator function is refused as a handler, because a call of it runs nothing."""

        def handler(data: Any) -> Any:
            yield data

        with pytest.raises(TypeError, match="generator function"):
            client.on("server_message", handler)

    def test_coroutine_functions_are_refused(self, client: RTVIClient) -> None:
        """A coroutine function would never run: it is refused at every door."""

        async def handler(data: Any) -> None: ...

        async def receiver(client: RTVIClient, event: Event) -> None: ...

        class Async:
            async def __call__(self, data: Any) -> None: ...

        for wrong in (handler, functools.partial(handler), Async()):
            with pytest.raises(TypeError, match="coroutine function"):
                client.on("server_message", wrong)
        with pytest.raises(TypeError, match="coroutine function"):
            signals.server_message.connect(receiver, sender=client)

    def test_decorators(self, client: RTVIClient) -> None:
        """`on` and `once` are decorators too and leave the function as it is."""
        heard: list[Any] = []

        @client.on("server_message")
        def each(data: Any) -> None:
            heard.append(("on", data))

        @client.once("server_message")
        def first() -> None:
            heard.append("once")

        say(client, 1, 2)
        settle(client)
        assert heard == [("on", 1), "once", ("on", 2)]
        first()
        assert heard[-1] == "once"

    def test_on_returns_its_handler(self, client: RTVIClient) -> None:
        """on() returns its handler, so that a lambda can be removed."""
        heard: list[Any] = []
        handler = client.on("server_message", lambda data: heard.append(data))
        client.off("server_message", handler)
        say(client, 1)
        settle(client)
        assert heard == []

    def test_once_is_once(self, client: RTVIClient) -> None:
        """A once() handler runs once, also if it registers itself again, raises, or is taken off before."""
        heard: list[Any] = []

        def again(data: Any) -> None:
            heard.append(data)
            if data < 3:
                client.once("server_message", again)

        def raising(data: Any) -> None:
            heard.append("raising")
            raise ValueError

        client.once("server_message", again)
        client.once("server_message", raising)
        never = client.once("server_message", lambda: heard.append("never"))
        client.off("server_message", never)
        say(client, 1, 2, 3, 4)
        settle(client)
        assert heard == [1, "raising", 2, 3]

    def test_off(self, client: RTVIClient) -> None:
        """`off()` removes one handler, bound methods included, or all of an event; removing a missing one is no
        error.
        """

        class Listener:
            heard: list[Any] = []  # noqa: RUF012

            def hear(self, data: Any) -> None:
                self.heard.append(data)

        one = Listener()
        two: list[Any] = []
        client.on("server_message", one.hear)
        client.on("server_message", two.append)
        client.off("server_message", one.hear)
        client.off("server_message", one.hear)
        say(client, 1)
        settle(client)
        assert (one.heard, two) == ([], [1])
        client.on("server_message", one.hear)
        client.off("server_message")
        say(client, 2)
        settle(client)
        assert (one.heard, two) == ([], [1])

    def test_handlers_may_be_changed_in_a_handler(self, client: RTVIClient) -> None:
        """A change made in a handler counts from the next event on."""
        heard: list[Any] = []

        def change(data: Any) -> None:
            heard.append(data)
            client.off("server_message", change)
            client.on("server_message", lambda data: heard.append(("new", data)))

        client.on("server_message", change)
        say(client, 1, 2)
        settle(client)
        assert heard == [1, ("new", 2)]

    def test_handlers_are_held_strongly(self, client: RTVIClient) -> None:
        """A handler that nothing else refers to is called."""
        heard: list[Any] = []
        client.on("server_message", lambda data: heard.append(data))
        collect()
        say(client, 1)
        settle(client)
        assert heard == [1]

    def test_handlers_outlive_sessions(self) -> None:
        """A handler that is registered once is called in every session."""
        client = memory_client()
        heard: list[Any] = []
        client.on("bot_ready", lambda: heard.append("ready"))
        for _ in range(3):
            with client:
                pass
        assert heard == ["ready"] * 3

    def test_registration_on_many_threads(self, client: RTVIClient) -> None:
        """Handlers that are registered and taken off on many threads at once are all counted for."""
        heard: list[int] = []

        def work(number: int) -> None:
            for _ in range(200):
                extra = client.on("metrics", lambda: None)
                client.off("metrics", extra)
            client.on("server_message", lambda: heard.append(number))

        for thread in [InThread(functools.partial(work, n)) for n in range(8)]:
            thread.get()
        say(client, 1)
        settle(client)
        assert sorted(heard) == list(range(8))
        assert listeners(client)[1] == 8


class TestOrder:
    def test_three_doors_in_order(self, client: RTVIClient) -> None:
        """All three doors see all events in the order of their arrival; one handler runs at a time, never on an I/O
        thread."""
        heard: list[tuple[str, Any]] = []
        running: list[int] = []
        names: set[str] = set()

        def note(door: str, data: Any) -> None:
            running.append(1)
            assert len(running) == 1
            names.add(threading.current_thread().name.split("-")[1])
            heard.append((door, data))
            running.pop()

        def receiver(sender: RTVIClient, event: Event) -> None:
            assert sender is client
            note("signal", event.data)

        client.on("server_message", lambda data: note("handler", data))
        signals.server_message.connect(receiver, sender=client)
        with client.events("server_message", timeout=GUARD) as stream:
            say(client, *range(300))
            streamed = [next(stream).data for _ in range(300)]
        settle(client)
        assert streamed == list(range(300))
        assert heard == [(door, n) for n in range(300) for door in ("handler", "signal")]
        assert names == {"worker"}

    def test_order_across_events(self, client: RTVIClient) -> None:
        """Events of different types keep their order."""
        heard: list[str] = []
        for name in ("bot_llm_started", "bot_llm_text", "bot_llm_stopped"):
            client.on(name, functools.partial(heard.append, name))
        for _ in range(50):
            bot_says(client, "bot-llm-started")
            bot_says(client, "bot-llm-text", {"text": "a"})
            bot_says(client, "bot-llm-stopped")
        settle(client)
        assert heard == ["bot_llm_started", "bot_llm_text", "bot_llm_stopped"] * 50

    def test_a_blocking_handler_holds_up_its_client_only(self, client: RTVIClient) -> None:
        """Another client's handlers run while one blocks, and so do requests of the same client."""
        release = threading.Event()
        blocked = threading.Event()

        def block() -> None:
            blocked.set()
            release.wait(GUARD)

        client.on("server_message", block)
        say(client, 1)
        assert blocked.wait(GUARD)
        with memory_client() as other:
            heard = threading.Event()
            other.on("server_message", heard.set)
            say(other, 1)
            assert heard.wait(GUARD)
        assert client.send_client_request("ping", 1) == 1
        release.set()

    def test_received_at_and_message(self, client: RTVIClient) -> None:
        """An `Event` tells its type, payload, time of arrival and message."""
        with client.events(timeout=GUARD) as stream:
            before = time.monotonic()
            bot_says(client, "bot-llm-text", {"text": "hi", "future": 1})
            after = time.monotonic()
            event = next(stream)
        assert event.type is RTVIEvent.BOT_LLM_TEXT
        assert event.data == messages.BotLLMTextData(text="hi", extra={"future": 1})
        assert before <= event.received_at <= after
        assert event.message == RTVIMessage("bot-llm-text", {"text": "hi", "future": 1}, None)


class TestPayloads:
    @pytest.mark.parametrize("data", [{"any": ["json", 1, None]}, "just a string", 5, None, [], False])
    def test_server_message_is_any_json(self, client: RTVIClient, data: Any) -> None:
        """`server_message` hands over any JSON value that the bot sends."""
        with client.events("server_message", timeout=GUARD) as stream:
            say(client, data)
            assert next(stream).data == data

    def test_unknown_types(self, client: RTVIClient) -> None:
        """A type that is unknown becomes `unknown_message` with the message as its payload."""
        with client.events("unknown_message", timeout=GUARD) as stream:
            bot_says(client, "from-the-future", {"a": 1})
            assert next(stream).data == RTVIMessage("from-the-future", {"a": 1}, None)

    def test_malformed_payload(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """Data of the wrong shape becomes `unknown_message` and a warning that names the mistake."""
        with client.events(timeout=GUARD) as stream:
            bot_says(client, "bot-llm-text", {"text": 5})
            event = next(stream)
        assert event.type is RTVIEvent.UNKNOWN_MESSAGE
        assert event.data == RTVIMessage("bot-llm-text", {"text": 5}, None)
        assert "bot-llm-text: data.text: expected str, got int" in caplog.text

    def test_warnings_do_not_flood_the_log(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A bot that breaks the protocol in every message does not fill the log."""
        client.on("bot_llm_text", lambda: None)
        for _ in range(500):
            bot_says(client, "bot-llm-text", {"text": 5})
            transport_of(client).receive("no json")
        assert 10 <= len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 30

    def test_what_nobody_listens_to_is_not_queued(self) -> None:
        """An event without a handler is not queued, and its data is not decoded."""
        with memory_client(max_queued_events=1) as client:
            for _ in range(1000):
                bot_says(client, "bot-llm-text", {"text": 5})
            assert queued_events(client) == 0
            assert client.state is TransportState.READY

    def test_payloads_are_frozen(self, client: RTVIClient) -> None:
        """A handler cannot change the payload of the next one."""
        with client.events("bot_llm_text", timeout=GUARD) as stream:
            bot_says(client, "bot-llm-text", {"text": "hi"})
            data = next(stream).data
        with pytest.raises(AttributeError):
            data.text = "changed"  # type: ignore[misc]


class TestMisbehaviour:
    @pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
    def test_a_handler_that_raises(
        self, client: RTVIClient, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A handler's exception is logged and published, and affects no other handler, signal or event."""
        heard: list[Any] = []
        failures: list[Any] = []

        def broken(data: Any) -> None:
            raise error

        def receiver(sender: RTVIClient, event: Event) -> None:
            failures.append(event.data)

        client.on("server_message", broken)
        client.on("server_message", heard.append)
        client.on("handler_error", failures.append)
        signals.handler_error.connect(receiver, sender=client)
        say(client, 1, 2)
        settle(client)
        assert heard == [1, 2]
        assert len(failures) == 4
        assert all(isinstance(f, HandlerError) and f.error is error and f.handler is broken for f in failures)
        assert failures[0].event.data == 1
        assert len([r for r in caplog.records if "'serverMessage' raised" in r.getMessage()]) == 2
        assert client.send_client_request("ping", 1) == 1

    def test_a_receiver_that_raises(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A signal's receiver that raises does not keep the event from the others."""
        heard: list[Any] = []

        def broken(sender: RTVIClient, event: Event) -> None:
            raise ValueError("mine")

        def fine(sender: RTVIClient, event: Event) -> None:
            heard.append(event.data)

        signals.server_message.connect(broken, sender=client)
        signals.server_message.connect(fine, sender=client)
        say(client, 1)
        settle(client)
        assert heard == [1]
        assert "mine" in caplog.text

    def test_a_handler_of_handler_error_that_raises(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A handler of `handler_error` that raises is logged, and that is the end of it."""

        def broken() -> None:
            raise ValueError("again")

        client.on("server_message", broken)
        client.on("handler_error", broken)
        say(client, 1)
        settle(client)
        assert len([r for r in caplog.records if r.exc_info]) == 2

    def test_a_receiver_with_a_wrong_signature(self, client: RTVIClient, caplog: pytest.LogCaptureFixture) -> None:
        """A receiver that cannot be called is logged as any error of a handler."""

        def wrong(only_one: Any) -> None: ...

        signals.server_message.connect(wrong, sender=client)
        say(client, 1)
        settle(client)
        assert "positional argument" in caplog.text

    def test_deep_recursion_in_a_handler(self, client: RTVIClient) -> None:
        """A handler that runs into the recursion limit is an error as any other."""
        failures: list[Any] = []

        def deep() -> None:
            deep()

        client.on("server_message", deep)
        client.on("handler_error", failures.append)
        say(client, 1)
        settle(client)
        assert isinstance(failures[0].error, RecursionError)
