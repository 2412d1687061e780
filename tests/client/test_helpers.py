"""Helpers: the package's own, and one that a user writes."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from rtvi_sync import (
    LLMHelper,
    RTVIClient,
    RTVIClientHelper,
    RTVIError,
    RTVIMessage,
)
from tests.support.clients import bot_says, memory_client, say, settle
from tests.support.garbage import collect
from tests.support.slowness import GUARD
from tests.support.threads import InThread


class SearchHelper(RTVIClientHelper):
    """A helper as a user may write it: a call of the bot's service, and an event made of its messages."""

    message_types = ("server-message", "search-result", "bot-llm-text")
    event_names = ("found", "said")

    def __init__(self, callbacks: dict[str, Callable[..., Any]] | None = None) -> None:
        super().__init__(callbacks)
        self.messages: list[RTVIMessage] = []
        self.life: list[str] = []

    def search(self, text: str) -> Any:
        arguments = [{"name": "text", "value": text}]
        return self.client.action({"service": self.service, "action": "search", "arguments": arguments}).data["result"]

    def handle_message(self, message: RTVIMessage) -> None:
        self.messages.append(message)
        if message.type == "search-result":
            self.emit("found", message.data)
        elif message.type == "bot-llm-text":
            self.emit("said", message.data["text"])

    def on_registered(self) -> None:
        self.life.append(f"registered for {self.service} of {self.client.state.value}")

    def on_unregistered(self) -> None:
        self.life.append(f"unregistered from {self.service} of {self.client.state.value}")


class AllHelper(RTVIClientHelper):
    """A helper that chooses its message types when it is registered."""

    wanted: ClassVar[list[str]] = []

    def get_message_types(self) -> list[str]:
        return self.wanted


class TestRegistration:
    def test_life(self, client: RTVIClient) -> None:
        """A helper can be registered, found and unregistered, and learns of both ends of its registration."""
        helper = SearchHelper()
        assert client.get_helper("search") is None
        assert client.register_helper("search", helper) is helper
        assert client.get_helper("search") is helper
        assert (helper.client, helper.service) == (client, "search")
        client.unregister_helper("search")
        assert client.get_helper("search") is None
        assert helper.life == ["registered for search of ready", "unregistered from search of ready"]
        client.unregister_helper("search")

    def test_a_taken_name(self, client: RTVIClient) -> None:
        """A helper under a taken name is refused, and the first stays."""
        first = client.register_helper("search", SearchHelper())
        with pytest.raises(RTVIError, match=r"unregister_helper\('search'\)"):
            client.register_helper("search", SearchHelper())
        assert client.get_helper("search") is first
        client.unregister_helper("search")
        client.register_helper("search", SearchHelper())

    def test_a_taken_helper(self, client: RTVIClient) -> None:
        """A helper serves one service of one client; once unregistered, it may serve another."""
        helper = client.register_helper("a", SearchHelper())
        other = RTVIClient()
        for call in (lambda: client.register_helper("b", helper), lambda: other.register_helper("a", helper)):
            with pytest.raises(RTVIError, match="serves 'a' already"):
                call()
        assert (client.get_helper("b"), other.get_helper("a")) == (None, None)
        assert helper.client is client
        client.unregister_helper("a")
        assert other.register_helper("b", helper).client is other

    @pytest.mark.parametrize("helper", [None, object(), SearchHelper, {"search": SearchHelper}])
    def test_what_is_no_helper(self, client: RTVIClient, helper: Any) -> None:
        """An object that is no helper is a TypeError, and the name stays free."""
        with pytest.raises(TypeError, match="RTVIClientHelper"):
            client.register_helper("search", helper)
        client.register_helper("search", SearchHelper())

    def test_types_that_are_a_text(self, client: RTVIClient) -> None:
        """A forgotten comma makes letters of a type: it is refused."""
        helper = AllHelper()
        helper.get_message_types = lambda: "server-message"  # type: ignore[assignment,return-value]
        with pytest.raises(TypeError, match="message_types must be a list of message types, not str"):
            client.register_helper("all", helper)
        assert client.get_helper("all") is None

    def test_without_a_client(self) -> None:
        """A helper that is not registered says so when it is used."""
        helper = SearchHelper()
        for call in (lambda: helper.client, lambda: helper.service, lambda: helper.search("x"), LLMHelper().run):
            with pytest.raises(RTVIError, match="register_helper"):
                call()

    def test_told_before_the_first_message(self, client: RTVIClient) -> None:
        """A helper gets no message before its on_registered() has returned."""

        class Prepares(SearchHelper):
            def on_registered(self) -> None:
                bot_says(self.client, "search-result", "too early")
                settle(self.client)
                self.life.append("ready")

            def handle_message(self, message: RTVIMessage) -> None:
                self.life.append(message.data)

        helper = client.register_helper("search", Prepares())
        bot_says(client, "search-result", "found")
        settle(client)
        assert helper.life == ["ready", "found"]

    def test_one_that_does_not_get_ready(self, client: RTVIClient) -> None:
        """An error of `on_registered()` reaches the caller, and the name and the helper stay free."""

        class Fails(SearchHelper):
            def on_registered(self) -> None:
                super().on_registered()
                if len(self.life) == 1:
                    raise OSError("no disk")

        helper = Fails()
        with pytest.raises(OSError, match="no disk"):
            client.register_helper("search", helper)
        assert client.get_helper("search") is None
        assert client.register_helper("search", helper).client is client

    def test_one_that_does_not_let_go(self, client: RTVIClient) -> None:
        """An error of `on_unregistered()` reaches the caller; the helper is released anyway."""

        class Stubborn(RTVIClientHelper):
            def on_unregistered(self) -> None:
                raise ValueError(self.service)

        helper = client.register_helper("a", Stubborn())
        with pytest.raises(ValueError, match="a"):
            client.unregister_helper("a")
        assert client.get_helper("a") is None
        assert client.register_helper("b", helper).service == "b"

    def test_before_a_session(self) -> None:
        """A helper that is registered before a session is registered once, for all sessions."""
        client = memory_client()
        helper = client.register_helper("search", SearchHelper())
        for n in (1, 2):
            with client:
                bot_says(client, "search-result", n)
                settle(client)
        assert [m.data for m in helper.messages] == [1, 2]

    def test_the_client_is_not_kept(self) -> None:
        """A helper that is kept does not keep its client, says that it is gone, and may serve another one."""
        helper = SearchHelper()
        clients = [RTVIClient()]
        clients[0].register_helper("search", helper)
        gone = weakref.ref(clients[0])
        clients.clear()
        collect()
        assert gone() is None
        with pytest.raises(RTVIError, match="register_helper"):
            _ = helper.client
        other = RTVIClient()
        assert other.register_helper("find", helper).client is other

    def test_one_of_several_threads_registers_a_helper(self, client: RTVIClient) -> None:
        """If several threads register for one service at once, one succeeds."""
        start = threading.Barrier(8)

        def register() -> bool:
            start.wait(GUARD)
            try:
                client.register_helper("search", SearchHelper())
            except RTVIError:
                return False
            return True

        threads = [InThread(register) for _ in range(8)]
        assert sum(thread.get() for thread in threads) == 1
        bot_says(client, "search-result", 1)
        settle(client)
        helper = client.get_helper("search")
        assert isinstance(helper, SearchHelper)
        assert len(helper.messages) == 1


class TestMessages:
    def test_in_order(self, client: RTVIClient) -> None:
        """Known, custom and unknown types arrive in the bot's order, among the events, on their thread; others are not
        delivered.
        """
        order: list[Any] = []
        helper = client.register_helper("search", SearchHelper())
        helper.on("found", lambda data: order.append(("found", data, threading.current_thread())))
        helper.on("said", lambda data: order.append(("said", data, threading.current_thread())))
        client.on("bot_llm_text", lambda data: order.append(("event", data.text, threading.current_thread())))
        client.on("server_message", lambda data: order.append(("server", data, threading.current_thread())))
        for n in range(3):
            bot_says(client, "bot-llm-text", {"text": f"a{n}"})
            bot_says(client, "search-result", n)
            bot_says(client, "other-type", n)
            say(client, n)
        settle(client)
        assert [(kind, data) for kind, data, _ in order] == [
            item for n in range(3) for item in (("said", f"a{n}"), ("event", f"a{n}"), ("found", n), ("server", n))
        ]
        assert len({thread for _, _, thread in order}) == 1
        assert [m.type for m in helper.messages] == ["bot-llm-text", "search-result", "server-message"] * 3

    def test_whole_messages(self, client: RTVIClient) -> None:
        """A helper gets its messages as the bot sent them, with their id."""
        helper = client.register_helper("search", SearchHelper())
        bot_says(client, "search-result", {"a": [1]}, "my-id")
        settle(client)
        assert helper.messages == [RTVIMessage("search-result", {"a": [1]}, "my-id")]

    @pytest.mark.parametrize("types", [["config"], ["error-response"], ["error"], ["config", "error", "x-1", "x-2"]])
    def test_each_once(self, old: RTVIClient, types: list[str]) -> None:
        """A message arrives once, no matter how many events it causes and how many types are wanted."""
        helper = AllHelper()
        helper.wanted = types  # type: ignore[misc]
        heard: list[str] = []
        helper.handle_message = lambda message: heard.append(message.type)  # type: ignore[method-assign]
        old.register_helper("all", helper)
        sent = [("config", {"config": []}), ("error-response", {"error": "x"}), ("error", {"error": "x"})]
        for type_, data in (*sent, ("x-1", 1), ("x-2", 2), ("x-3", 3)):
            bot_says(old, type_, data)
        settle(old)
        assert heard == [type_ for type_, _ in (*sent, ("x-1", 1), ("x-2", 2)) if type_ in types]

    def test_two_helpers(self, client: RTVIClient) -> None:
        """Each helper gets the types it asked for, in the order of registration."""
        heard: list[str] = []
        for name in ("a", "b"):
            helper = client.register_helper(name, SearchHelper())
            helper.on("found", functools.partial(heard.append, name))
        bot_says(client, "search-result", 1)
        settle(client)
        assert heard == ["a", "b"]

    def test_after_it_was_let_go(self, client: RTVIClient) -> None:
        """An unregistered helper gets no messages; other helpers still do."""
        gone, kept = SearchHelper(), SearchHelper()
        client.register_helper("a", gone)
        client.register_helper("b", kept)
        client.unregister_helper("a")
        bot_says(client, "search-result", 1)
        settle(client)
        assert (len(gone.messages), len(kept.messages)) == (0, 1)

    def test_one_that_raises(self, client: RTVIClient) -> None:
        """The error of a helper is reported as one of a handler, and affects nothing else."""
        failure = ValueError("x")

        class BrokenHelper(SearchHelper):
            def handle_message(self, message: RTVIMessage) -> None:
                raise failure

        errors: list[Any] = []
        client.on("handler_error", errors.append)
        broken = client.register_helper("a", BrokenHelper())
        other = client.register_helper("b", SearchHelper())
        bot_says(client, "search-result", 1)
        settle(client)
        assert [e.error for e in errors] == [failure]
        assert errors[0].event.message.type == "search-result"
        assert errors[0].handler == broken.handle_message
        assert len(other.messages) == 1

    def test_handlers_that_are_taken_off(self, client: RTVIClient) -> None:
        """`client.off()` of all handlers of an event leaves the helper its messages."""
        helper = client.register_helper("search", SearchHelper())
        client.off("bot-llm-text")
        client.off("unknown-message")
        bot_says(client, "search-result", 1)
        bot_says(client, "bot-llm-text", {"text": "a"})
        settle(client)
        assert [message.type for message in helper.messages] == ["search-result", "bot-llm-text"]

    def test_manual_mode_delivers_the_messages_of_a_helper(self) -> None:
        """In manual mode, process_events() delivers the messages of a helper."""
        with memory_client(events="manual") as client:
            helper = client.register_helper("search", SearchHelper())
            bot_says(client, "search-result", 1)
            assert helper.messages == []
            client.process_events()
            assert len(helper.messages) == 1

    def test_it_may_ask_the_bot(self, client: RTVIClient) -> None:
        """Blocking calls work in `handle_message()`, as in handlers."""
        answers: list[Any] = []

        class AskingHelper(RTVIClientHelper):
            message_types = ("search-result",)

            def handle_message(self, message: RTVIMessage) -> None:
                answers.append(self.client.send_client_request("more", message.data))

        client.register_helper("search", AskingHelper())
        bot_says(client, "search-result", 1)
        settle(client)
        assert answers == [1]


class TestEvents:
    def test_payload_or_nothing(self, client: RTVIClient) -> None:
        """The signature decides, as everywhere; a handler that is registered twice is called twice; `off()` ends it."""
        heard: list[Any] = []
        helper = client.register_helper("search", SearchHelper())
        nothing = helper.on("found", lambda: heard.append("nothing"))
        for _ in range(2):
            helper.on("found", heard.append)
        helper.emit("found", 1)
        assert heard == ["nothing", 1, 1]
        helper.off("found", heard.append)
        helper.off("found", print)
        helper.emit("found")
        helper.off("found", nothing)
        helper.emit("found", 2)
        assert heard == ["nothing", 1, 1, "nothing"]

    def test_callbacks(self) -> None:
        """Callbacks of a helper may be given at once, in both spellings."""
        heard: list[Any] = []
        helper = SearchHelper({"on_found": heard.append, "onSaid": heard.append})
        helper.emit("found", 1)
        helper.emit("said", 2)
        assert heard == [1, 2]

    @pytest.mark.parametrize("name", ["found", "on_fnd", "on_", "on_Found!", ""])
    def test_unknown_callbacks(self, name: str) -> None:
        """Unknown callbacks of a helper are refused, and the error says which there are."""
        with pytest.raises(TypeError, match="on_found, on_said"):
            SearchHelper({name: print})
        with pytest.raises(TypeError, match="it has none"):
            RTVIClientHelper({name: print})

    def test_names_of_events(self) -> None:
        """A helper takes the names of events in each form in which a client takes them."""
        heard: list[str] = []
        helper = LLMHelper()
        for name in ("llm_function_call", "llmFunctionCall", "llm-function-call"):
            helper.on(name, lambda _data=None, name=name: heard.append(name))
        helper.emit("llm-function-call")
        assert len(heard) == 3

    def test_unknown_events(self) -> None:
        """An unknown event raises a ValueError that lists the known ones."""
        helper = SearchHelper()
        for call in (
            lambda: helper.on("fnd", print),
            lambda: helper.off("fnd", print),
            lambda: helper.emit("fnd"),
        ):
            with pytest.raises(ValueError, match="found, said"):
                call()

    def test_what_cannot_be_called(self) -> None:
        """Coroutine functions, and functions that need more than the payload, are refused at once."""

        async def later(data: Any) -> None: ...

        for wrong in (later, lambda a, b: None, 5):
            with pytest.raises(TypeError):
                SearchHelper().on("found", wrong)  # type: ignore[type-var]
            with pytest.raises(TypeError):
                SearchHelper({"on_found": wrong})  # type: ignore[dict-item]

    def test_a_handler_that_raises(self, client: RTVIClient) -> None:
        """A handler that raises is reported as `handler_error`, and the other handlers are called."""
        heard: list[Any] = []
        errors: list[Any] = []
        client.on("handler_error", errors.append)
        helper = client.register_helper("search", SearchHelper())

        def broken() -> None:
            raise ValueError("x")

        helper.on("found", broken)
        helper.on("found", heard.append)
        bot_says(client, "search-result", 1)
        settle(client)
        assert heard == [1]
        assert [str(e.error) for e in errors] == ["x"]

    def test_each_helper_has_its_own(self) -> None:
        """Handlers are of one helper, not of its class."""
        heard: list[Any] = []
        one, other = SearchHelper(), SearchHelper()
        one.on("found", heard.append)
        other.emit("found", 1)
        assert heard == []

    def test_a_handler_that_takes_itself_off(self) -> None:
        """The other handlers are still called."""
        heard: list[Any] = []
        helper = SearchHelper()

        def first(data: Any) -> None:
            helper.off("found", first)

        helper.on("found", first)
        helper.on("found", heard.append)
        helper.emit("found", 1)
        assert heard == [1]


class TestCallsOfOnesOwn:
    def test_of_a_user(self, old: RTVIClient) -> None:
        """The methods of an application's own helper call actions of its service."""
        helper = old.register_helper("web", SearchHelper())
        assert helper.search("cats") == ["web", "search", {"text": "cats"}]
