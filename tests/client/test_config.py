"""The config of a bot: offline and connected, asked for, changed and told, by bots of every generation."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    ConfigDescription,
    ConfigOption,
    ConfigUpdateError,
    DisconnectedError,
    ForkedProcessError,
    MemoryTransport,
    MessageTooLargeError,
    OptionDescription,
    ProtocolError,
    ReconnectPolicy,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIClientConfigOption,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
)
from tests.support.clients import bot_says, deaf_bot, memory_client, settle, transport_of
from tests.support.forking import in_child
from tests.support.limits import changed
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import InThread
from tests.support.waiting import until

VOICE: list[dict[str, Any]] = [
    {"service": "vad", "options": [{"name": "params", "value": {"stop_secs": 0.3}}]},
    {"service": "tts", "options": [{"name": "voice", "value": "a"}, {"name": "speed", "value": 0}]},
]


def config_of(voice: str) -> list[RTVIClientConfigOption]:
    """Return the config `VOICE` as objects, with another voice."""
    return [
        RTVIClientConfigOption("vad", [ConfigOption("params", {"stop_secs": 0.3})]),
        RTVIClientConfigOption("tts", [ConfigOption("voice", voice), ConfigOption("speed", 0)]),
    ]


def update(voice: Any) -> list[dict[str, Any]]:
    return [{"service": "tts", "options": [{"name": "voice", "value": voice}]}]


class ConfigBot:
    """A bot with a config, of which a test decides how it behaves.

    Args:
        version: the protocol version that it speaks.
        tells: its bot-ready carries the config, as with RTVI 0.3.
        says: by type, its reply to a request instead of an answer: a text is a refusal, None is silence, a dict the
            data of the answer.
    """

    def __init__(self, version: str = "0.3.0", *, tells: bool = True, says: dict[str, Any] | None = None) -> None:
        self.version = version
        self.tells = tells
        self.says = says or {}
        self.config = copy.deepcopy(VOICE)

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
        said = self.says.get(message.type, "")
        if message.type in self.says:
            if said is not None:
                refused = isinstance(said, str)
                yield RTVIMessage(
                    "error-response" if refused else ANSWERS[message.type],
                    {"error": said} if refused else said,
                    message.id,
                )
        elif message.type == "client-ready":
            data = {"version": self.version, **({"config": self._config} if self.tells else {})}
            yield RTVIMessage("bot-ready", data, message.id)
        elif message.type == "describe-config":
            described = [{"name": "tts", "options": [{"name": "voice", "type": "string"}, {"name": "speed"}]}]
            yield RTVIMessage("config-available", {"config": described}, message.id)
        elif message.type in ("get-config", "update-config"):
            for service in message.data.get("config", []):
                self._update(service)
            yield RTVIMessage("config", {"config": self._config}, message.id)

    @property
    def _config(self) -> Any:
        return copy.deepcopy(self.config)

    def _update(self, service: dict[str, Any]) -> None:
        mine = next(entry for entry in self.config if entry["service"] == service["service"])
        for option in service["options"]:
            next(o for o in mine["options"] if o["name"] == option["name"])["value"] = option["value"]


ANSWERS = {"get-config": "config", "update-config": "config", "describe-config": "config-available"}


def sent(client: RTVIClient) -> list[str]:
    """Return the types of the messages that the client has sent."""
    return [message.type for message in transport_of(client).sent]


def told(client: RTVIClient) -> list[str]:
    """Return the list that receives the names of the events about config and actions, as they happen."""
    heard: list[str] = []
    for name in ("config", "config_updated", "config_describe", "actions_available", "message_error"):
        client.on(name, functools.partial(heard.append, name))
    return heard


class TestConnecting:
    def test_in_bot_ready(self) -> None:
        """A bot of RTVI 0.3 tells its config when it is ready; it is not asked, and no event fires."""
        client = memory_client(ConfigBot())
        heard = told(client)
        offline = client.config
        assert offline is None
        with client:
            assert client.config == config_of("a")
            assert sent(client) == ["client-ready"]
        assert heard == []

    @pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "1.4.0"])
    def test_asked_for(self, version: str) -> None:
        """Where it is not told, `connect()` asks for it before it returns; `config` fires, once."""
        client = memory_client(ConfigBot(version, tells=False))
        heard = told(client)
        with client:
            assert client.config == config_of("a")
            assert sent(client) == ["client-ready", "get-config"]
            settle(client)
            assert heard == ["config"]

    @pytest.mark.parametrize("version", ["2.0.0", "2.2.0", "3.1.0", "", "odd"])
    def test_not_asked_for(self, version: str) -> None:
        """A bot whose version has none, or tells nothing, is not asked."""
        with memory_client(ConfigBot(version, tells=False)) as client:
            assert client.config is None
            assert sent(client) == ["client-ready"]

    @pytest.mark.parametrize("version", ["0.3.0", "1.2.0"])
    def test_a_bot_that_has_none(self, version: str) -> None:
        """A bot without a config leaves `config` None, without a `message_error`; later calls about it send nothing."""
        client = memory_client(ConfigBot(version, tells=False, says={"get-config": "Unsupported type get-config"}))
        heard = told(client)
        with client:
            assert client.config is None
            for call in (client.get_bot_config, client.describe_config, lambda: client.update_config(update("b"))):
                with pytest.raises(UnsupportedFeatureError) as caught:
                    call()
                assert (caught.value.feature, caught.value.bot_version) == ("config", version)
            assert sent(client) == ["client-ready", "get-config"]
            assert client.state is TransportState.READY
            settle(client)
        assert heard == []

    def test_a_bot_that_is_asked_again_after_it_changed(self) -> None:
        """The client forgets with a session which requests its bot refused, and asks the next bot again."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": "Unsupported type get-config"})
        client = memory_client(bot)
        with client:
            pass
        bot.says = {}
        with client:
            assert client.config == config_of("a")
            assert client.get_config() == config_of("a")

    def test_a_bot_that_refuses(self) -> None:
        """Any other refusal leaves None as well; the bot may be asked again."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": "not now"})
        client = memory_client(bot)
        heard = told(client)
        with client:
            assert client.config is None
            assert heard == []
            bot.says = {}
            assert client.get_config() == config_of("a") == client.config

    def test_a_bot_that_never_answers(self, caplog: pytest.LogCaptureFixture) -> None:
        """`connect()` still returns within `request_timeout`, and a warning says why there is no config."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": None})
        client = memory_client(bot, request_timeout=0.2)
        with takes(1.0, at_least=0.2):
            client.connect()
        assert client.config is None
        assert client.state is TransportState.READY
        assert [r.message for r in caplog.records if "client.config stays None" in r.message]
        bot.says = {}
        assert client.get_config() == config_of("a")
        client.disconnect()

    def test_a_bot_that_never_answers_within_the_limit(self) -> None:
        """The wait for the config counts in the limit of `connect()`, and is no failure of it."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": None})

        def check(limit: float) -> None:
            client = memory_client(bot, request_timeout=None, connect_timeout=limit)
            with takes(limit + 1.0, at_least=limit):
                client.connect()
            assert client.config is None
            client.disconnect()

        at_some_limit(check)

    def test_a_bot_that_never_answers_without_any_limit(self) -> None:
        """A client that waits for ever for its bot does not wait for ever for a config."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": None})
        with changed(config=0.1), memory_client(bot, request_timeout=None, connect_timeout=None) as client:
            assert client.config is None

    @pytest.mark.parametrize("data", [None, 5, {"config": 5}, {"config": [{"service": 5}]}])
    def test_an_answer_that_makes_no_sense(self, data: Any) -> None:
        """An answer that is no config leaves `config` None; the session goes on."""
        with memory_client(ConfigBot("1.0.0", tells=False, says={"get-config": data or {}})) as client:
            assert client.config is None
            assert client.state is TransportState.READY

    @pytest.mark.parametrize("how", ["bot", "program"])
    def test_the_session_ends_meanwhile(self, how: str) -> None:
        """`connect()` raises how it ended, and can be called again."""
        bot = ConfigBot("1.0.0", tells=False, says={"get-config": None})
        client = memory_client(bot)
        connecting = InThread(client.connect)
        until(lambda: "get-config" in sent(client))
        if how == "bot":
            transport_of(client).end(CloseInfo(code=1012, initiator="server"))
        else:
            client.disconnect()
        error = connecting.error()
        assert isinstance(error, DisconnectedError)
        assert error.initiator == ("server" if how == "bot" else "client")
        assert client.state is TransportState.DISCONNECTED
        bot.says = {}
        with client:
            assert client.config == config_of("a")

    def test_a_session_that_ends_at_once(self) -> None:
        """A session that ends before the bot was asked for its config makes connect() raise `DisconnectedError`."""

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
            yield RTVIMessage("bot-ready", {"version": "1.0.0"}, message.id)
            transport.end(CloseInfo(code=1000, initiator="server"))

        client = memory_client(bot)
        client.on("bot_ready", client.disconnect)
        for _ in range(10):
            with pytest.raises(DisconnectedError):
                client.connect()

    def test_a_session_that_is_replaced(self) -> None:
        """With a policy that replaces it, the loss is none of `connect()`, as it were a moment later."""
        asked: list[str] = []

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
            if message.type == "client-ready":
                yield RTVIMessage("bot-ready", {"version": "1.0.0"}, message.id)
            else:
                asked.append(message.type)
                if len(asked) < 3:
                    transport.end(CloseInfo(initiator="network"))
                else:
                    yield RTVIMessage("config", {"config": VOICE}, message.id)

        with memory_client(bot, reconnect=ReconnectPolicy(initial_delay=0.01)) as client:
            until(lambda: client.config == config_of("a"))
            assert client.state is TransportState.READY
            assert client.stats().sessions == len(asked) == 3

    def test_in_a_handler_of_bot_ready(self) -> None:
        """The handler may ask for the config before `connect()` has it."""
        found: list[Any] = []
        client = memory_client(ConfigBot("1.0.0", tells=False))
        client.on("bot_ready", lambda: found.append(client.get_config()))
        with client:
            settle(client)
        assert found == [config_of("a")]


class TestConfigProperty:
    def test_a_copy(self) -> None:
        """Changes to the returned config do not reach the client or the next copy."""
        with memory_client(ConfigBot()) as client:
            first = client.config
            assert first is not None
            first[0].options[0].value["stop_secs"] = 99
            first.clear()
            assert client.config == config_of("a")

    def test_after_each_message(self) -> None:
        """`config` is the last config that was heard: of an update, of a question, or unasked for."""
        bot = ConfigBot()
        with memory_client(bot) as client:
            client.update_config(update("b"))
            assert client.config == config_of("b")
            bot.config[1]["options"][0]["value"] = "c"
            assert client.config == config_of("b")
            client.get_config()
            assert client.config == config_of("c")
            bot_says(client, "config", {"config": []})
            assert client.config == []

    def test_after_the_end(self) -> None:
        """`config` stays after `disconnect()`, until another session starts, which has its own."""
        bot = ConfigBot()
        client = memory_client(bot)
        with client:
            client.update_config(update("b"))
        kept = client.config
        assert kept == config_of("b")
        bot.version, bot.tells = "2.2.0", False
        with client:
            assert client.config is None
        assert client.config is None

    def test_after_a_reconnect(self) -> None:
        """A replaced session has the config of its own bot."""
        bot = ConfigBot("1.0.0", tells=False)
        with memory_client(bot, reconnect=ReconnectPolicy(initial_delay=0.01)) as client:
            bot.config[1]["options"][0]["value"] = "new"
            transport_of(client).end(CloseInfo(initiator="network"))
            until(lambda: client.config == config_of("new"))
            assert client.get_config() == config_of("new")

    def test_before_the_update_returns(self) -> None:
        """Handlers of `config` and `config_updated` find the new config there."""
        found: list[Any] = []
        with memory_client(ConfigBot()) as client:
            client.on("config", lambda: found.append(client.config))
            client.on("config_updated", lambda: found.append(client.config))
            client.update_config(update("b"))
            settle(client)
        assert found == [config_of("b")] * 2


class TestAsking:
    def test_get(self) -> None:
        """The bot's config as entries, by both names; the event `config` has the same and fires once each."""
        with memory_client(ConfigBot()) as client, client.events("config", timeout=GUARD) as stream:
            assert client.get_bot_config() == config_of("a")
            assert client.get_config() == config_of("a")
            for _ in range(2):
                event = next(stream)
                assert list(event.data.config) == config_of("a")
                assert event.message is not None
            assert sent(client) == ["client-ready", "get-config", "get-config"]

    def test_the_result_is_the_callers(self) -> None:
        """Changes to the returned config do not reach the client's config."""
        with memory_client(ConfigBot()) as client:
            client.get_config()[0].options[0].value["stop_secs"] = 99
            assert client.config == config_of("a")

    def test_describe(self) -> None:
        """Each service by `service`, though the wire calls it `name`; the event `config_describe` has the same."""
        expected = ConfigDescription(
            service="tts",
            options=(OptionDescription(name="voice", type="string"), OptionDescription(name="speed", type="")),
        )
        with memory_client(ConfigBot()) as client, client.events("config_describe", timeout=GUARD) as stream:
            assert client.describe_config() == [expected]
            assert list(next(stream).data.config) == [expected]

    @pytest.mark.parametrize("data", [{}, {"config": 5}, {"config": [{"options": []}]}])
    def test_answers_of_another_shape(self, data: Any) -> None:
        """An answer of another shape is a `ProtocolError` that names the place; session and known config stay."""
        client = memory_client(ConfigBot(says=dict.fromkeys(ANSWERS, data)))
        heard = told(client)
        with client:
            for call in (client.get_config, client.describe_config, lambda: client.update_config(update("b"))):
                with pytest.raises(ProtocolError, match=r"data\.config.*Check the code of the bot"):
                    call()
            settle(client)
            assert heard == []
            assert client.config == config_of("a")
            assert client.state is TransportState.READY

    def test_time_outs(self) -> None:
        """Each call has its own; the late answer is an event, and the session goes on."""
        silence = dict.fromkeys(ANSWERS, None)
        with memory_client(ConfigBot(says=silence), request_timeout=0.1) as client:
            calls: tuple[Callable[..., object], ...] = (
                client.get_config,
                client.describe_config,
                functools.partial(client.update_config, update("b")),
                functools.partial(client.get_service_options_from_config, "tts"),
                functools.partial(client.get_service_option_value_from_config, "tts", "voice"),
            )
            for call in calls:
                for options in ({}, {"timeout": 0.05}):
                    with takes(1.0), pytest.raises(RequestTimeoutError):
                        call(**options)
            waiting = InThread(lambda: client.get_config(timeout=None))
            assert waiting.goes_on(0.2)
            bot_says(client, "config", {"config": VOICE}, transport_of(client).sent[-1].id)
            assert waiting.get() == config_of("a")

    def test_a_refused_question_raises(self) -> None:
        """A refusal is a `RequestRejectedError` with the message, and a `message_error`."""
        refusals = {"get-config": "no", "describe-config": "no"}
        client = memory_client(ConfigBot(says=refusals))
        heard = told(client)
        with client:
            for call in (client.get_config, client.describe_config):
                with pytest.raises(RequestRejectedError, match="no") as caught:
                    call()
                assert caught.value.response.type == "error-response"
            settle(client)
        assert heard == ["message_error", "message_error"]

    def test_not_ready(self) -> None:
        """Without a ready bot each call says so: before, while connecting, and after the end."""
        client = memory_client(ConfigBot(says={"client-ready": None}))
        calls: list[Callable[[], object]] = [
            client.get_config,
            client.describe_config,
            lambda: client.update_config(update("b")),
            lambda: client.get_service_options_from_config("tts"),
            lambda: client.get_service_option_value_from_config("tts", "voice"),
            lambda: client.set_service_option_in_config("tts", {"name": "voice", "value": "b"}),
            lambda: client.set_config_options(update("b")),
        ]
        for call in calls:
            with pytest.raises(BotNotReadyError, match=r"connect\(\)"):
                call()
        connecting = InThread(client.connect)
        until(lambda: client.state is TransportState.CONNECTED)
        for call in calls:
            with pytest.raises(BotNotReadyError, match="not ready yet"):
                call()
        client.disconnect()
        connecting.error()
        for call in calls:
            with pytest.raises(BotNotReadyError, match=r"connect\(\)"):
                call()

    def test_a_bot_of_2(self) -> None:
        """A bot of RTVI 2 has no config: nothing is sent, and the error names the replacement."""
        with memory_client(deaf_bot) as client:
            for call in (
                client.get_config,
                client.describe_config,
                lambda: client.update_config(update("b")),
                lambda: client.get_service_options_from_config("tts"),
            ):
                with pytest.raises(UnsupportedFeatureError, match="send_client_request") as caught:
                    call()
                error = caught.value
                assert (error.feature, error.needed_version, error.bot_version) == ("config", "before 2.0", "2.2.0")
            assert sent(client) == ["client-ready"]

    def test_the_end_of_the_session_ends_waiting_calls(self) -> None:
        """The end of the session ends a waiting call with `DisconnectedError`."""
        with memory_client(ConfigBot(says=dict.fromkeys(ANSWERS, None)), request_timeout=None) as client:
            calls = [
                InThread(client.get_config),
                InThread(client.describe_config),
                InThread(lambda: client.update_config(update("b"))),
            ]
            until(lambda: len(sent(client)) == 4)
            transport_of(client).end(CloseInfo(code=1012, initiator="server"))
            for call in calls:
                error = call.error()
                assert isinstance(error, DisconnectedError)
                assert error.code == 1012


class TestUpdating:
    @pytest.mark.parametrize("config", [update("b"), [RTVIClientConfigOption("tts", [ConfigOption("voice", "b")])]])
    @pytest.mark.parametrize("interrupt", [False, True])
    def test_update(self, config: Any, interrupt: bool) -> None:
        """update_config() sends its argument only and returns the bot's config; both events fire once."""
        client = memory_client(ConfigBot())
        heard = told(client)
        with client, client.events("config", "config_updated", timeout=GUARD) as stream:
            answer = client.update_config(config, interrupt)
            assert transport_of(client).sent[-1].data == {"config": update("b"), "interrupt": interrupt}
            assert answer.type == "config"
            assert answer.data["config"][1]["options"][0]["value"] == "b"
            events = [next(stream), next(stream)]
            assert [list(event.data.config) for event in events] == [config_of("b")] * 2
            assert [event.message for event in events] == [answer] * 2
            settle(client)
        assert heard == ["config", "config_updated"]

    def test_the_callback(self) -> None:
        """`config_updated` calls `on_config_update`, and a refusal calls `on_message_error`."""
        heard: list[Any] = []
        bot = ConfigBot()
        client = memory_client(
            bot,
            callbacks={
                "on_config": lambda: heard.append("config"),
                "on_config_update": lambda data: heard.append(list(data.config)),
                "onMessageError": lambda data: heard.append(data.message),
            },
        )
        with client:
            client.update_config(update("b"))
            bot.says = {"update-config": "'nosuch'"}
            with pytest.raises(ConfigUpdateError):
                client.update_config(update("c"))
            settle(client)
        assert heard == ["config", config_of("b"), "'nosuch'"]

    def test_a_refused_update_keeps_the_known_config(self) -> None:
        """`ConfigUpdateError` has the bot's message; `message_error` fires once, no `config_updated`; the known config
        stays, and the session goes on."""
        words = "Exception processing message: 'nosuch'"
        client = memory_client(ConfigBot(says={"update-config": words}))
        heard = told(client)
        with client:
            with pytest.raises(ConfigUpdateError, match="'nosuch'") as caught:
                client.update_config(update("b"))
            assert isinstance(caught.value, RequestRejectedError)
            assert caught.value.response == RTVIMessage(
                "error-response", {"error": words}, transport_of(client).sent[-1].id
            )
            settle(client)
            assert heard == ["message_error"]
            assert client.config == config_of("a")
            assert client.get_config() == config_of("a")

    def test_answered_too_late(self) -> None:
        """The call has timed out; `config` and `config_updated` still report the change."""
        client = memory_client(ConfigBot(says={"update-config": None}))
        heard = told(client)
        with client:
            with pytest.raises(RequestTimeoutError):
                client.update_config(update("b"), timeout=0.05)
            bot_says(client, "config", {"config": update("b")}, transport_of(client).sent[-1].id)
            settle(client)
            assert heard == ["config", "config_updated"]
            assert client.config == [RTVIClientConfigOption("tts", [ConfigOption("voice", "b")])]

    def test_so_many_may_be_answered_too_late(self) -> None:
        """Of calls that have timed out the last ones are remembered: a bot that never answers fills no memory."""
        client = memory_client(ConfigBot(says={"update-config": None}))
        heard = told(client)
        with changed(late_answers=2), client:
            for _ in range(3):
                with pytest.raises(RequestTimeoutError):
                    client.update_config(update("b"), timeout=0.02)
            for message in transport_of(client).sent[1:]:
                bot_says(client, "config", {"config": VOICE}, message.id)
            settle(client)
        assert heard == ["config", "config", "config_updated", "config", "config_updated"]

    def test_by_a_message_of_the_programs_own(self) -> None:
        """`send_message()` fires the same events, and waits for nothing."""
        client = memory_client(ConfigBot())
        heard = told(client)
        with client:
            client.send_message(RTVIMessage("update-config", {"config": update("b")}))
            client.send_message(RTVIMessage("get-config", {}))
            settle(client)
            assert heard == ["config", "config_updated", "config"]
            assert client.config == config_of("b")

    @pytest.mark.parametrize("config", [None, "tts", {"service": "tts"}, [5], [{"service": "tts", "options": "x"}]])
    def test_what_is_no_config(self, config: Any) -> None:
        """An argument that is no config is a TypeError, and nothing is sent."""
        with memory_client(ConfigBot()) as client:
            with pytest.raises(TypeError):
                client.update_config(config)
            assert sent(client) == ["client-ready"]

    @pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x"])
    def test_values_that_are_no_json(self, value: Any) -> None:
        """Values that are no JSON are the caller's mistake; nothing is sent, and the session goes on."""
        with memory_client(ConfigBot()) as client:
            with pytest.raises((TypeError, ValueError)):
                client.update_config(update(value))
            assert sent(client) == ["client-ready"]
            assert client.get_config() == config_of("a")

    def test_many_at_once(self) -> None:
        """Updates of many threads each get their own answer; of each two events fire, `config` first."""
        client = memory_client(ConfigBot())
        heard: list[Any] = []
        client.on("config", lambda: heard.append("config"))
        client.on("config_updated", lambda: heard.append("updated"))

        def change(n: int) -> list[RTVIMessage]:
            return [client.update_config(update(f"{n}.{k}")) for k in range(20)]

        with client:
            threads = [InThread(functools.partial(change, n)) for n in range(5)]
            answers = [thread.get() for thread in threads]
            assert len({answer.id for each in answers for answer in each}) == 100
            settle(client)
        assert heard == ["config", "updated"] * 100

    def test_a_handler_may_update_and_ask(self) -> None:
        """A handler may update the config and read it; the update's events follow when the handler has returned."""
        client = memory_client(ConfigBot())
        heard = told(client)
        done = threading.Event()

        def handler() -> None:
            client.update_config(update("b"))
            heard.append(client.get_service_option_value_from_config("tts", "voice"))
            done.set()

        client.on("server_message", handler)
        with client:
            bot_says(client, "server-message", 1)
            assert done.wait(GUARD)
            settle(client)
        assert heard == ["b", "config", "config_updated", "config"]

    def test_manual_mode_answers_calls_without_process_events(self) -> None:
        """In manual mode, calls are answered without `process_events()`, which delivers their events in order."""
        client = memory_client(ConfigBot("1.0.0", tells=False), events="manual")
        heard = told(client)
        with client:
            assert client.config == config_of("a")
            client.update_config(update("b"))
            client.describe_config()
            assert client.config == config_of("b")
            assert heard == []
            client.process_events()
            assert heard == ["config", "config", "config_updated", "config_describe"]

    def test_over_the_limit(self) -> None:
        """A config larger than a message may be is refused before a byte is sent."""
        with memory_client(ConfigBot()) as client:
            transport_of(client).max_message_size = 1000
            with pytest.raises(MessageTooLargeError):
                client.update_config(update("x" * 1000))
            assert client.get_config() == config_of("a")

    def test_a_forked_child_can_only_read_the_known_config(self) -> None:
        """In a forked child, a call that needs the session raises `ForkedProcessError`; the config is still known."""

        def child() -> str:
            try:
                client.get_config()
            except ForkedProcessError:
                pass
            else:
                return "asked"
            return repr(client.get_service_option_value_from_config("tts", "voice", VOICE))

        with memory_client(ConfigBot()) as client:
            assert in_child(child) == "'a'"


class TestWithAConfig:
    """The four functions on a config that is given: no bot is needed, none is asked, and nothing is changed."""

    @pytest.fixture(params=["offline", "connected"])
    def client(self, request: pytest.FixtureRequest) -> Iterable[RTVIClient]:
        """Yield a client that has never been connected, and one that is."""
        client = memory_client(ConfigBot())
        if request.param == "connected":
            client.connect()
        yield client
        assert sent(client) == (["client-ready"] if request.param == "connected" else [])
        client.disconnect()

    def test_getters(self, client: RTVIClient) -> None:
        """A copy of the service's entry, or of the option's value; None for a key or option that is not there."""
        given = copy.deepcopy(VOICE)
        entry = client.get_service_options_from_config("tts", given)
        assert entry == config_of("a")[1]
        assert client.get_service_options_from_config("nosuch", given) is None
        assert client.get_service_option_value_from_config("tts", "voice", given) == "a"
        assert client.get_service_option_value_from_config("tts", "speed", given) == 0
        assert client.get_service_option_value_from_config("tts", "nosuch", given) is None
        assert client.get_service_option_value_from_config("nosuch", "voice", given) is None
        client.get_service_option_value_from_config("vad", "params", given)["stop_secs"] = 1
        assert given == VOICE

    def test_setters(self, client: RTVIClient) -> None:
        """A deep copy with the options set; an absent service is appended; the order is kept."""
        given = copy.deepcopy(VOICE)
        assert client.set_service_option_in_config("tts", {"name": "voice", "value": "b"}, given) == config_of("b")
        assert client.set_service_option_in_config("tts", [ConfigOption("voice", "b")], given) == config_of("b")
        assert client.set_config_options(update("b"), given) == config_of("b")
        appended = client.set_service_option_in_config("llm", ConfigOption("model", "large"), given)
        assert [entry.service for entry in appended] == ["vad", "tts", "llm"]
        assert client.set_config_options([{"service": "llm"}, *update("b")], given) == [
            *config_of("b"),
            RTVIClientConfigOption("llm"),
        ]
        appended[0].options[0].value["stop_secs"] = 1
        assert given == VOICE

    def test_an_empty_config(self, client: RTVIClient) -> None:
        """An empty config is a config, not the absence of one."""
        assert client.get_service_options_from_config("tts", []) is None
        assert client.get_service_option_value_from_config("tts", "voice", []) is None
        assert client.set_service_option_in_config("a", {"name": "b", "value": 1}, []) == [
            RTVIClientConfigOption("a", [ConfigOption("b", 1)])
        ]
        assert client.set_config_options([], []) == []


class TestWithoutAConfig:
    def test_getters_ask_the_bot(self) -> None:
        """Getters of a connected client ask the bot, and do not return its last known config."""
        bot = ConfigBot()
        with memory_client(bot) as client:
            bot.config[1]["options"][0]["value"] = "new"
            assert client.get_service_option_value_from_config("tts", "voice") == "new"
            assert client.get_service_options_from_config("tts") == config_of("new")[1]
            assert client.get_service_options_from_config("nosuch") is None
            assert client.get_service_option_value_from_config("tts", "nosuch") is None
            assert sent(client) == ["client-ready", *["get-config"] * 4]

    def test_setters_start_from_the_known_config(self) -> None:
        """Setters send no request; they leave the client's config and the bot's unchanged."""
        with memory_client(ConfigBot()) as client:
            assert client.set_service_option_in_config("tts", ConfigOption("voice", "b")) == config_of("b")
            assert client.set_config_options(update("b")) == config_of("b")
            assert client.config == config_of("a")
            assert sent(client) == ["client-ready"]
            client.update_config(client.set_config_options(update("b")))
            assert client.config == config_of("b")

    @pytest.mark.parametrize(
        ("bot", "error", "words"),
        [
            (ConfigBot("1.0.0", tells=False, says={"get-config": "no"}), BotNotReadyError, "Pass the config"),
            (deaf_bot, UnsupportedFeatureError, "before 2.0"),
        ],
        ids=["a bot that could have one", "a bot of RTVI 2"],
    )
    def test_a_bot_that_told_none(self, bot: Any, error: type[Exception], words: str) -> None:
        """The setters have no config to start from; the error names the argument to pass, or says that such bots have
        none.
        """
        with memory_client(bot) as client:
            for call in (
                lambda: client.set_service_option_in_config("tts", {"name": "voice", "value": "b"}),
                lambda: client.set_config_options(update("b")),
            ):
                with pytest.raises(error, match=words):
                    call()
