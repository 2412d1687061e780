"""The engine: handshake, answers, events, and that no input makes it fail."""

from __future__ import annotations

import contextlib
import json
import platform
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rtvi_sync
from rtvi_sync.concurrency.future import Future
from rtvi_sync.errors import (
    BotError,
    ConfigUpdateError,
    ProtocolError,
    RequestRejectedError,
    RTVIError,
    UnsupportedFeatureError,
)
from rtvi_sync.events import RTVIEvent
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND
from rtvi_sync.protocol.engine import (
    PROTOCOL_VERSION,
    REPLY_TYPES,
    Close,
    Deliver,
    Engine,
    Interrupt,
    Ready,
    Reject,
    Resolve,
    Warn,
    about_this_client,
    error_text,
)
from tests.support import limits
from tests.support.probes import standard_json

from .json_values import JSON

pytestmark = pytest.mark.inside

ABOUT = {"library": "test"}


@pytest.fixture
def engine() -> Engine:
    return Engine(ABOUT)


def ready(engine: Engine, version: str = "2.2.0", **more: Any) -> Engine:
    """Complete the handshake."""
    (effect,) = engine.receive(RTVIMessage("bot-ready", {"version": version, **more}, engine.client_ready.id))
    assert isinstance(effect, Ready)
    return engine


def old(engine: Engine) -> Engine:
    """Complete the handshake with a bot that has config and actions and tells its version only."""
    return ready(engine, "1.0.0")


def asked(engine: Engine, type_: str) -> str:
    """Send a request to the bot; return its id."""
    message = RTVIMessage(type_, {})
    engine.outbound(message)
    assert message.id is not None
    return message.id


def config(voice: str) -> dict[str, Any]:
    """Return the data of a `config` message with one option."""
    return {"config": [{"service": "tts", "options": [{"name": "voice", "value": voice}]}]}


def kinds_of(effects: list[Any]) -> list[Any]:
    """Return the effects in short: the event of a delivery, the class of any other."""
    return [effect.event if isinstance(effect, Deliver) else type(effect) for effect in effects]


def unsupported(type_: str, id_: str) -> RTVIMessage:
    """Return the answer of every Pipecat to an unknown type."""
    return RTVIMessage("error-response", {"error": f"Unsupported type {type_}"}, id_)


class TestHandshake:
    def test_client_ready(self, engine: Engine) -> None:
        """`client-ready` carries the protocol version, the client's description and an id."""
        assert engine.client_ready.type == "client-ready"
        assert engine.client_ready.data == {"version": PROTOCOL_VERSION, "about": ABOUT}
        assert engine.client_ready.id
        assert Engine(ABOUT).client_ready.id != engine.client_ready.id

    def test_bot_ready(self, engine: Engine) -> None:
        """The first bot-ready completes the handshake, and tells who the bot is."""
        message = RTVIMessage("bot-ready", {"version": "2.2.0", "about": {"library": "pipecat-ai"}}, "other-id")
        assert engine.bot_ready is None
        (effect,) = engine.receive(message)
        assert isinstance(effect, Ready)
        assert effect.message == message
        assert effect.data.version == "2.2.0"
        assert engine.bot_ready is effect.data

    def test_legacy_bot_ready(self, engine: Engine) -> None:
        """The `bot-ready` of protocol 0.3 carries the bot's config."""
        data = {"version": "0.3.0", "config": [{"service": "tts", "options": [{"name": "voice", "value": "a"}]}]}
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Ready)
        assert effect.data.config is not None
        assert effect.data.config[0].service == "tts"

    @pytest.mark.parametrize("data", [None, {}])
    def test_bot_ready_without_data(self, engine: Engine, data: Any) -> None:
        """A bot that says nothing about itself is ready nevertheless."""
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Ready)

    @pytest.mark.parametrize("data", [5, "text", [], {"version": 5}, {"config": "x"}])
    def test_broken_bot_ready(self, engine: Engine, data: Any) -> None:
        """A `bot-ready` that cannot be decoded closes the session with a `ProtocolError` that names it."""
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Close)
        assert isinstance(effect.error, ProtocolError)
        assert "bot-ready" in str(effect.error)
        assert engine.bot_ready is None

    def test_metrics_may_come_first(self, engine: Engine) -> None:
        """Metrics, like anything else that a bot sends when it starts, may precede `bot-ready`."""
        (effect,) = engine.receive({"label": "rtvi-ai", "type": "metrics", "data": {"ttfb": []}})
        assert isinstance(effect, Deliver)
        assert effect.event is RTVIEvent.METRICS
        ready(engine)

    def test_a_remark_on_the_version_is_no_refusal(self, engine: Engine) -> None:
        """An `error-response` with the client-ready's id is only a warning, and causes no event or refusal; bot-ready
        follows.
        """
        (effect,) = engine.receive(
            RTVIMessage("error-response", {"error": "Client version unknown."}, engine.client_ready.id)
        )
        assert isinstance(effect, Warn)
        assert "Client version unknown." in effect.text
        ready(engine)

    def test_a_second_bot_ready(self, engine: Engine) -> None:
        """A second `bot-ready` resolves the request that it answers and is an event, but no second handshake."""
        first = ready(engine).bot_ready
        effects = engine.receive(RTVIMessage("bot-ready", {"version": "9.9.9"}, asked(engine, "client-ready")))
        assert kinds_of(effects) == [Resolve, RTVIEvent.BOT_READY]
        assert kinds_of(engine.receive(RTVIMessage("bot-ready", {}, "unasked"))) == [RTVIEvent.BOT_READY]
        assert engine.bot_ready is first

    def test_a_second_broken_bot_ready(self, engine: Engine) -> None:
        """A second `bot-ready` that cannot be decoded ends nothing."""
        assert kinds_of(ready(engine).receive(RTVIMessage("bot-ready", 5, "second"))) == [RTVIEvent.BOT_READY]


ANSWERED = {spec.type: spec.answer for spec in OUTBOUND.values() if spec.answer is not None}


class TestAnswers:
    @pytest.mark.parametrize("type_", sorted(ANSWERED.keys() - {"client-ready"}))
    def test_an_answer(self, engine: Engine, type_: str) -> None:
        """An answer first resolves the request with its id, once, and then is an event."""
        id_ = asked(old(engine), type_)
        message = RTVIMessage(ANSWERED[type_], {}, id_)
        event = INBOUND[message.type].event
        effects = engine.receive(message)
        assert effects[0] == Resolve(message)
        assert kinds_of(effects[1:]) == [event]
        assert kinds_of(engine.receive(message)) == [event]

    @pytest.mark.parametrize("type_", sorted(ANSWERED.keys() - {"client-ready"}))
    def test_no_answer(self, engine: Engine, type_: str) -> None:
        """A message without an id, with an unknown id, or of another type answers no request; the call continues to
        wait.
        """
        id_ = asked(old(engine), type_)
        answer = ANSWERED[type_]
        others = sorted(REPLY_TYPES - {answer, "error-response"})
        for message in (
            RTVIMessage(answer, {}, None),
            RTVIMessage(answer, {}, "unasked"),
            *(RTVIMessage(other, {}, id_) for other in others),
        ):
            assert kinds_of(engine.receive(message)) == [INBOUND[message.type].event]
        assert engine.receive(RTVIMessage(answer, {}, id_))[0] == Resolve(RTVIMessage(answer, {}, id_))

    @pytest.mark.parametrize("type_", sorted(INBOUND.keys() - REPLY_TYPES - {"error"}))
    def test_events_with_an_id_answer_no_request(self, engine: Engine, type_: str) -> None:
        """An event that happens to have the id of a request resolves no call."""
        effects = ready(engine).receive(RTVIMessage(type_, {}, asked(engine, "client-message")))
        assert not any(isinstance(e, (Resolve, Reject)) for e in effects)
        assert any(isinstance(e, Deliver) for e in effects)

    def test_what_has_no_answer_is_not_remembered(self, engine: Engine) -> None:
        """A message whose type has no answer in the table, or that has no id, is not remembered."""
        ready(engine)
        engine.outbound(RTVIMessage("client-message", {}, None))
        for type_ in ("send-text", "disconnect-bot", "of-my-own"):
            id_ = asked(engine, type_)
            assert kinds_of(engine.receive(RTVIMessage("server-response", {}, id_))) == [RTVIEvent.SERVER_RESPONSE]
        assert not engine.pending.ids()

    def test_the_memory_is_bounded(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Requests without a waiter are forgotten, the oldest first: an answer to one is an event only."""
        limits.patch(monkeypatch, unawaited=3)
        ready(engine)
        ids = [asked(engine, "client-message") for _ in range(5)]
        found = [kinds_of(engine.receive(RTVIMessage("server-response", {}, id_)))[0] for id_ in ids]
        assert found == [RTVIEvent.SERVER_RESPONSE] * 2 + [Resolve] * 3
        assert not engine.pending.ids()

    def test_what_a_call_waits_for_is_not_forgotten(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """A request is remembered while a call waits for it, and later forgotten in its turn."""
        limits.patch(monkeypatch, unawaited=3)
        ready(engine)
        awaited = [(RTVIMessage("client-message"), Future[RTVIMessage]()) for _ in range(3)]
        for message, waiter in awaited:
            engine.outbound(message, waiter)
        for _ in range(10):
            asked(engine, "client-message")
        for message, waiter in awaited[1:]:
            assert message.id is not None
            engine.pending.abandon(message.id, waiter)
        for _ in range(2):
            asked(engine, "client-message")
        found = [kinds_of(engine.receive(RTVIMessage("server-response", {}, message.id)))[0] for message, _ in awaited]
        assert found == [Resolve, RTVIEvent.SERVER_RESPONSE, Resolve]
        assert len(engine.pending.ids()) <= 3

    def test_the_waiter(self, engine: Engine) -> None:
        """The effect of an answer, a refusal or an answer over a limit carries it."""
        waiter = Future[RTVIMessage]()
        for answer, effect_class in (
            (lambda id_: RTVIMessage("server-response", {}, id_), Resolve),
            (lambda id_: RTVIMessage("error-response", {}, id_), Reject),
            (lambda id_: RTVIMessage("server-response", nested(101), id_), Reject),
        ):
            message = RTVIMessage("client-message")
            engine.outbound(message, waiter)
            (effect,) = (e for e in engine.receive(answer(message.id)) if isinstance(e, effect_class))
            assert effect.waiter is waiter

    @pytest.mark.parametrize(
        "message", [RTVIMessage("client-message", {}, None), RTVIMessage("send-text"), RTVIMessage("my-own")]
    )
    def test_what_has_no_answer_is_not_awaited(self, engine: Engine, message: RTVIMessage) -> None:
        """A call that waited for it would wait for ever."""
        with pytest.raises(ValueError, match="No answer can be matched"):
            engine.outbound(message, Future())


class TestRefusals:
    def test_a_refusal(self, engine: Engine) -> None:
        """A refusal rejects the request with its id, once, and is a `message_error`."""
        id_ = asked(ready(engine), "client-message")
        message = RTVIMessage("error-response", {"error": "no"}, id_)
        rejected, delivered = engine.receive(message)
        assert isinstance(rejected, Reject)
        assert rejected.id == id_
        assert type(rejected.error) is RequestRejectedError
        assert rejected.error.response == message
        assert "'client-message'" in str(rejected.error)
        assert "no" in str(rejected.error)
        assert kinds_of([delivered]) == [RTVIEvent.MESSAGE_ERROR]
        assert kinds_of(engine.receive(message)) == [RTVIEvent.MESSAGE_ERROR]

    @pytest.mark.parametrize("id_", [None, "unasked"])
    def test_of_nothing_that_was_asked(self, engine: Engine, id_: str | None) -> None:
        """A refusal that belongs to no request is a `message_error` only, and marks no feature as missing."""
        message = RTVIMessage("error-response", {"error": "Unsupported type get-config"}, id_)
        assert kinds_of(old(engine).receive(message)) == [RTVIEvent.MESSAGE_ERROR]
        asked(engine, "get-config")

    def test_by_a_bot_whose_version_is_no_line(self, engine: Engine) -> None:
        """The error is one."""
        id_ = asked(ready(engine, "2.2.0\x1b[2J\n"), "client-message")
        (rejected, _) = engine.receive(unsupported("client-message", id_))
        assert isinstance(rejected, Reject)
        assert "RTVI 2.2.0 [2J , does" in str(rejected.error)

    def test_of_a_config(self, engine: Engine) -> None:
        """An update that is refused is a `ConfigUpdateError`, and the config that is known stays."""
        ready(engine, "0.3.0", **config("a"))
        message = RTVIMessage("error-response", {"error": "'nosuch'"}, asked(engine, "update-config"))
        rejected, delivered = engine.receive(message)
        assert isinstance(rejected, Reject)
        assert isinstance(rejected.error, ConfigUpdateError)
        assert rejected.error.response == message
        assert "'nosuch'" in str(rejected.error)
        assert kinds_of([delivered]) == [RTVIEvent.MESSAGE_ERROR]
        assert engine.config is not None
        assert engine.config[0].options[0].value == "a"

    @pytest.mark.parametrize(
        ("type_", "as_well", "feature"),
        [
            ("get-config", ["get-config", "update-config", "describe-config"], "config"),
            ("update-config", ["get-config", "update-config", "describe-config"], "config"),
            ("describe-actions", ["describe-actions", "action"], "actions"),
            ("client-message", ["client-message"], "client-message"),
        ],
    )
    def test_unsupported(self, engine: Engine, type_: str, as_well: list[str], feature: str) -> None:
        """If a bot refuses a message that its version should have, the whole feature counts as unsupported."""
        id_ = asked(old(engine), type_)
        rejected, delivered = engine.receive(unsupported(type_, id_))
        assert isinstance(rejected, Reject)
        for type_ in as_well:
            with pytest.raises(UnsupportedFeatureError) as caught:
                asked(engine, type_)
            for error in (rejected.error, caught.value):
                assert isinstance(error, UnsupportedFeatureError)
                assert (error.feature, error.bot_version) == (feature, "1.0.0")
        assert kinds_of([delivered]) == [RTVIEvent.MESSAGE_ERROR]
        for other in ANSWERED.keys() - set(as_well):
            asked(engine, other)

    @pytest.mark.parametrize("text", ["unsupported type get-config", "Unsupported type action", "Unsupported type"])
    def test_other_words(self, engine: Engine, text: str) -> None:
        """Whatever sounds like it, and is not about the type that was sent, is a refusal as any other."""
        id_ = asked(old(engine), "get-config")
        rejected, _ = engine.receive(RTVIMessage("error-response", {"error": text}, id_))
        assert isinstance(rejected, Reject)
        assert type(rejected.error) is RequestRejectedError
        asked(engine, "get-config")

    @pytest.mark.parametrize("text", ["Unsupported type get-config", "not today"])
    def test_of_the_clients_own_request(self, engine: Engine, text: str) -> None:
        """The client itself requested the config, not the application, so the refusal is no event."""
        old(engine).outbound(engine.config_request)
        (rejected,) = engine.receive(RTVIMessage("error-response", {"error": text}, engine.config_request.id))
        assert isinstance(rejected, Reject)
        assert rejected.id == engine.config_request.id


class TestConfig:
    @pytest.mark.parametrize(
        ("version", "data", "wanted"),
        [
            ("0.3.0", {}, True),
            ("0.3.0", {"config": []}, False),
            ("0.3.0", config("a"), False),
            ("1.0.0", {}, True),
            ("1.4.0", {}, True),
            ("2.0.0", {}, False),
            ("3.0.0", {}, False),
            ("", {}, False),
            ("garbage", {}, False),
        ],
    )
    def test_whether_it_is_wanted(self, engine: Engine, version: str, data: Any, wanted: bool) -> None:
        """A bot that has a config by its version, but did not send it, should be asked."""
        assert not engine.wants_config
        ready(engine, version, **data)
        assert engine.wants_config is wanted
        assert (engine.config is None) is ("config" not in data)

    def test_as_last_heard(self, engine: Engine) -> None:
        """The latest valid `bot-ready` or `config` message, requested or not, sets the config."""
        ready(engine, "0.3.0", **config("a"))
        told = [engine.config]
        for message in (
            RTVIMessage("config", config("b"), asked(engine, "get-config")),
            RTVIMessage("config", config("c"), asked(engine, "update-config")),
            RTVIMessage("config", config("d"), None),
            RTVIMessage("config", {"config": "broken"}, None),
            RTVIMessage("config", None, asked(engine, "get-config")),
            RTVIMessage("config", {"config": []}, "unasked"),
        ):
            engine.receive(message)
            told.append(engine.config)
        voices = [entries and entries[0].options[0].value for entries in told]
        assert voices == ["a", "b", "c", "d", "d", "d", ()]

    def test_changes_of_the_message_do_not_change_it(self, engine: Engine) -> None:
        """Changes of a message, or of its payload, by the application do not reach the engine's config."""
        data: dict[str, Any] = {"config": [{"service": "llm", "options": [{"name": "messages", "value": []}]}]}
        ready(engine, "0.3.0", **data)
        assert engine.bot_ready is not None
        assert engine.bot_ready.config is not None
        engine.bot_ready.config[0].options[0].value.append("x")
        assert engine.config is not None
        assert engine.config[0].options[0].value == []
        engine.receive(RTVIMessage("config", data, asked(engine, "update-config")))
        data["config"][0]["options"][0]["value"].append("y")
        assert engine.config[0].options[0].value == ["x"]

    def test_updated(self, engine: Engine) -> None:
        """The answer to an update causes a `config` and then a `config_updated`, with the same payload."""
        message = RTVIMessage("config", config("b"), asked(old(engine), "update-config"))
        effects = engine.receive(message)
        assert kinds_of(effects) == [Resolve, RTVIEvent.CONFIG, RTVIEvent.CONFIG_UPDATED]
        first, second = [effect for effect in effects if isinstance(effect, Deliver)]
        assert first.decode() == second.decode()
        assert second.message == message

    def test_updated_too_late(self, engine: Engine) -> None:
        """An update is an event although no call waits for the answer any more: the config has changed."""
        id_ = asked(old(engine), "update-config")
        later = [asked(engine, "update-config") for _ in range(10)]
        assert kinds_of(engine.receive(RTVIMessage("config", config("b"), id_)))[-1] is RTVIEvent.CONFIG_UPDATED
        for id_ in later:
            assert kinds_of(engine.receive(RTVIMessage("config", config("c"), id_)))[-1] is RTVIEvent.CONFIG_UPDATED

    @pytest.mark.parametrize("type_", ["get-config", None])
    def test_not_updated(self, engine: Engine, type_: str | None) -> None:
        """Any other `config` is no update."""
        id_ = asked(old(engine), type_) if type_ is not None else None
        assert RTVIEvent.CONFIG_UPDATED not in kinds_of(engine.receive(RTVIMessage("config", config("b"), id_)))

    def test_updated_by_a_broken_message(self, engine: Engine) -> None:
        """The call has its answer, and nothing is updated."""
        message = RTVIMessage("config", {"config": 5}, asked(old(engine), "update-config"))
        assert kinds_of(engine.receive(message)) == [Resolve, RTVIEvent.CONFIG]


class TestEvents:
    def test_every_inbound_type_has_an_event(self, engine: Engine) -> None:
        """Each type of the table causes its own event, and its payload can be made of bots' data."""
        ready(engine)
        for type_, spec in INBOUND.items():
            if type_ == "error-response":
                continue
            effects = engine.receive(RTVIMessage(type_, None, None))
            (delivered,) = [e for e in effects if isinstance(e, Deliver)]
            assert delivered.event is spec.event

    def test_interruption(self, engine: Engine) -> None:
        """`bot-interrupted` drops queued playback before its event."""
        effects = ready(engine).receive({"label": "rtvi-ai", "type": "bot-interrupted"})
        assert [type(e) for e in effects] == [Interrupt, Deliver]

    def test_interruption_while_the_user_is_muted(self, engine: Engine) -> None:
        """The bot goes on to speak, so nothing is dropped, until it hears the user again."""
        ready(engine)
        effects = []
        for type_ in ("user-mute-started", "bot-interrupted", "user-mute-stopped", "bot-interrupted"):
            effects += engine.receive({"label": "rtvi-ai", "type": type_})
        assert [type(e) for e in effects] == [Deliver, Deliver, Deliver, Interrupt, Deliver]

    @pytest.mark.parametrize(
        ("data", "fatal"),
        [
            ({"error": "it broke", "fatal": True}, True),
            ({"error": "it broke", "fatal": False}, False),
            ({"error": "it broke"}, False),
            ({"error": "it broke", "fatal": "true"}, False),
            ({"error": "it broke", "fatal": 1}, False),
            (None, False),
            ("it broke", False),
        ],
    )
    def test_a_fatal_error_ends_the_session(self, engine: Engine, data: Any, fatal: bool) -> None:
        """A fatal error is delivered and ends the session; any other is delivered."""
        effects = ready(engine).receive({"label": "rtvi-ai", "type": "error", "data": data})
        assert [type(e) for e in effects] == ([Deliver, Close] if fatal else [Deliver])
        if fatal:
            error = effects[1].error  # type: ignore[union-attr]
            assert isinstance(error, BotError)
            assert error.fatal
            assert "it broke" in str(error)

    def test_unknown_types(self, engine: Engine) -> None:
        """A type from the future, or one that only clients send, is an `unknown_message`."""
        for type_ in ("from-the-future", "client-ready", "client-message"):
            message = RTVIMessage(type_, {"a": 1}, "7")
            (effect,) = ready(Engine(ABOUT)).receive(message)
            assert isinstance(effect, Deliver)
            assert effect.event is RTVIEvent.UNKNOWN_MESSAGE
            assert effect.decode() == message
        assert engine.bot_ready is None

    def test_malformed_payload(self, engine: Engine) -> None:
        """`decode()` raises the error when it is called."""
        (effect,) = ready(engine).receive({"label": "rtvi-ai", "type": "bot-output", "data": {"text": 5}})
        assert isinstance(effect, Deliver)
        with pytest.raises(ProtocolError, match=r"bot-output: data\.text: expected str, got int"):
            effect.decode()

    def test_foreign_messages(self, engine: Engine) -> None:
        """Messages with another label are ignored."""
        assert engine.receive('{"label": "other", "type": "bot-ready"}') == []
        assert engine.receive({"type": "bot-ready"}) == []

    @pytest.mark.parametrize("junk", ["", "no json", b"\xff", "[]", {"label": "rtvi-ai"}, None, 5])
    def test_junk(self, engine: Engine, junk: Any) -> None:
        """Data that is not a message causes a warning and is skipped."""
        (effect,) = engine.receive(junk)
        assert isinstance(effect, Warn)


def nested(levels: int) -> Any:
    """Return a document with a number of levels."""
    document: Any = 1
    for _ in range(levels):
        document = [document]
    return document


def test_a_message_of_a_transport_may_not_be_deeper_than_others(engine: Engine) -> None:
    """Whatever a transport hands over: copying it must not run into Python's limit of recursion."""
    config = {"config": [{"service": "llm", "options": [{"name": "a", "value": nested(5000)}]}]}
    (effect,) = ready(engine, "0.3.0").receive(RTVIMessage("config", config))
    assert isinstance(effect, Warn)
    assert engine.config is None


def text_of(
    data: str, *, id: str | None = None, type: str = "server-response", order: str = "label type id data"
) -> str:
    """Write a message with its members in an order; `data` is JSON."""
    members = {"label": '"rtvi-ai"', "type": json.dumps(type), "id": json.dumps(id), "data": data}
    return "{" + ", ".join(f'"{name}" : {members[name]}' for name in order.split()) + "}"


UNREADABLE = '{"data": [' + "1," * 100_000 + '1], "type": "bot-ready", "label": "rtvi-ai", "more": []}'


class TestOverALimit:
    """A message over one of the client's limits is skipped; its waiting request fails at once, with the name of the
    limit.
    """

    @pytest.fixture(params=["orjson", "the standard library"], autouse=True)
    def parser(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Parse in one of the ways there are."""
        with contextlib.nullcontext() if request.param == "orjson" else standard_json():
            yield

    @pytest.mark.parametrize(
        ("data", "limit"),
        [
            ("[" + "1," * 100_000 + "1]", "MAX_VALUES"),
            ("[" * 101 + "]" * 101, "MAX_DEPTH"),
            ("[" * 40_000 + "]" * 40_000, "MAX_DEPTH"),
        ],
        ids=["values", "depth", "recursion"],
    )
    @pytest.mark.parametrize("order", ["label type id data", "data id label type", "label id data type"])
    @pytest.mark.parametrize("encode", [str, str.encode], ids=["str", "bytes"])
    def test_an_answer(self, engine: Engine, data: str, limit: str, order: str, encode: Any) -> None:
        """The request that it answers fails, and no other; wherever its id stands beside the data."""
        other, mine = (asked(ready(engine) if not n else engine, "client-message") for n in range(2))
        warn, reject = engine.receive(encode(text_of(data, id=mine, order=order)))
        assert isinstance(warn, Warn)
        assert isinstance(reject, Reject)
        assert (reject.id, type(reject.error)) == (mine, ProtocolError)
        assert re.search(f"answer to the 'client-message' request .*({limit})", str(reject.error))
        (resolve, _) = engine.receive(RTVIMessage("server-response", {}, other))
        assert resolve == Resolve(RTVIMessage("server-response", {}, other))
        (late,) = engine.receive(RTVIMessage("server-response", {}, mine))
        assert isinstance(late, Deliver)

    def test_numbers_that_python_does_not_take(self, engine: Engine) -> None:
        """Too many digits are a limit of Python's, which the error names."""
        mine = asked(ready(engine), "client-message")
        with standard_json():
            _, reject = engine.receive(text_of("9" * 5000, id=mine))
        assert isinstance(reject, Reject)
        assert reject.id == mine
        assert "set_int_max_str_digits" in str(reject.error)

    @pytest.mark.parametrize("hand_over", [lambda m: m, RTVIMessage.to_dict], ids=["message", "document"])
    def test_what_a_transport_has_parsed(self, engine: Engine, hand_over: Any) -> None:
        """A message that a transport has already parsed has the same limit of depth."""
        mine = asked(ready(engine), "client-message")
        _, reject = engine.receive(hand_over(RTVIMessage("server-response", nested(101), mine)))
        assert isinstance(reject, Reject)
        assert (reject.id, "MAX_DEPTH" in str(reject.error)) == (mine, True)

    def test_an_answer_of_which_nothing_can_be_read(self, engine: Engine) -> None:
        """An unreadable answer fails all calls; a type and an id that are nested in its data are ignored."""
        ids = [asked(ready(engine) if not n else engine, "client-message") for n in range(3)]
        inner = json.dumps({"id": ids[0], "type": "metrics"})
        data = f"[{inner}, {'1,' * 100_000}{inner}]"
        text = f'{{"data": {data}, "id": "x", "type": "server-response", "label": "rtvi-ai", "more": {data}}}'
        effects = engine.receive(text)
        assert kinds_of(effects) == [Warn, Reject, Reject, Reject]
        rejects = [effect for effect in effects if isinstance(effect, Reject)]
        assert [reject.id for reject in rejects] == ids
        assert len({id(reject.error) for reject in rejects}) == 3

    @pytest.mark.parametrize("type_", ["server-message", "metrics", "my-own"])
    def test_an_event(self, engine: Engine, type_: str) -> None:
        """An event answers no request, even if it has the id of one."""
        mine = asked(ready(engine), "client-message")
        assert kinds_of(engine.receive(text_of(str(nested(101)), id=mine, type=type_))) == [Warn]
        assert kinds_of(engine.receive(text_of(str(nested(101)), type="server-response", id="unknown"))) == [Warn]

    @pytest.mark.parametrize("text", [text_of("[" + "1," * 100_000 + "1]", type="bot-ready"), UNREADABLE])
    def test_the_bot_that_is_to_be_ready(self, engine: Engine, text: str) -> None:
        """`connect()` waits for it, so the session ends, with the name of the limit."""
        (close,) = engine.receive(text)
        assert isinstance(close, Close)
        assert re.search("bot-ready .* limit .*(MAX_VALUES|MAX_DEPTH)", str(close.error))
        assert kinds_of(ready(engine).receive(text_of(str(nested(101)), type="bot-ready"))) == [Warn]

    def test_a_conversation_over_http(self) -> None:
        """A conversation that waits for no bot to be ready goes on after any message over a limit."""
        engine = Engine(ABOUT, awaits_ready=False)
        assert kinds_of(engine.receive(UNREADABLE)) == [Warn]

    def test_what_is_no_message_of_ours(self, engine: Engine) -> None:
        """A message with another label is skipped in silence, and data that is not an object is no answer."""
        asked(ready(engine), "client-message")
        assert engine.receive('{"label": "other", "data": [' + "1," * 100_000 + "1]}") == []
        assert kinds_of(engine.receive("[" * 200_000)) == [Warn]
        assert kinds_of(engine.receive('{"a":' * 50_000)) == [Warn]
        assert kinds_of(engine.receive("[" + "1," * 100_000 + "1]")) == [Warn]


class TestVersionCheck:
    @pytest.mark.parametrize(
        ("version", "type_", "allowed"),
        [
            ("0.3.0", "update-config", True),
            ("0.3.0", "client-message", False),
            ("0.3.0", "send-text", False),
            ("1.2.0", "client-message", True),
            ("1.2.0", "action", True),
            ("2.2.0", "action", False),
            ("2.2.0", "send-text", True),
            ("2.2.0", "my-own", True),
            ("garbage", "action", True),
            ("", "action", True),
        ],
    )
    def test_by_version(self, version: str, type_: str, allowed: bool) -> None:
        """What the bot's version does not know is refused before it is sent; who knows an odd version?"""
        engine = ready(Engine(ABOUT), version)
        if allowed:
            engine.outbound(RTVIMessage(type_))
        else:
            with pytest.raises(UnsupportedFeatureError, match=version):
                engine.outbound(RTVIMessage(type_))

    def test_what_was_sent_before_the_version_was_known(self, engine: Engine) -> None:
        """A type that was sent before `bot-ready` is refused if the bot's version does not know it."""
        engine.outbound(RTVIMessage("client-message"))
        ready(engine, "0.3.0")
        with pytest.raises(UnsupportedFeatureError, match=r"0\.3\.0"):
            engine.outbound(RTVIMessage("client-message"))

    def test_a_type_that_the_bot_has_shown_not_to_know(self, engine: Engine) -> None:
        """A type that is never answered is not sent again once it is known that the bot does not know it."""
        ready(engine).outbound(RTVIMessage("send-text"))
        error = engine.refused_as_unknown("send-text", "it says so")
        assert "does not know 'send-text': it says so" in str(error)
        with pytest.raises(UnsupportedFeatureError, match="refused the type before"):
            engine.outbound(RTVIMessage("send-text"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"error": "a"}, "a"),
        ({"message": "b"}, "b"),
        ({"error": "a", "message": "b"}, "a"),
        ({"error": 5, "message": "b"}, "b"),
        ("c", "c"),
        ("", "no reason given"),
        ({"error": ""}, "no reason given"),
        (None, "no reason given"),
        ([1], "no reason given"),
        ("two\nlines\x1b[31m", "two lines [31m"),
    ],
)
def test_error_text(data: Any, text: str) -> None:
    """The text of an error is found where servers put it, and made fit for a log."""
    assert error_text(RTVIMessage("error", data)) == text


def test_error_text_is_bounded() -> None:
    """error_text() returns at most 500 characters."""
    assert len(error_text(RTVIMessage("error", {"error": "x" * 10_000_000}))) <= 500


TYPES = st.sampled_from([*INBOUND, "client-ready", "unknown"]) | st.text()
IDS = st.none() | st.sampled_from("0123456789") | st.text()
MESSAGES = st.one_of(
    st.text(),
    st.binary(),
    JSON.map(json.dumps),
    JSON,
    st.fixed_dictionaries({"label": st.just("rtvi-ai"), "type": TYPES}, optional={"data": JSON, "id": IDS | JSON}),
    st.builds(RTVIMessage, TYPES, JSON, IDS),
)


@given(st.lists(MESSAGES, max_size=20))
def test_any_input_in_any_order(messages: list[Any]) -> None:
    """For any input in any order: only effects are returned, every payload can be decoded or is a `ProtocolError`, and
    the handshake completes once at most.
    """
    engine = Engine(ABOUT)
    requests = [RTVIMessage(type_, {}, id_) for id_, type_ in zip("0123456789", ANSWERED, strict=False)]
    for request in requests:
        engine.outbound(request)
    ids = {request.id for request in requests}
    handshakes = 0
    for message in messages:
        for effect in engine.receive(message):
            assert isinstance(effect, (Resolve, Reject, Deliver, Ready, Interrupt, Warn, Close))
            handshakes += isinstance(effect, Ready)
            if isinstance(effect, Deliver):
                assert isinstance(effect.event, RTVIEvent)
                try:
                    effect.decode()
                except ProtocolError as error:
                    assert len(str(error)) < 1000  # noqa: PT017 - whether it fails depends on the input
            elif isinstance(effect, Warn):
                assert len(effect.text) < 1000
            elif isinstance(effect, Resolve):
                assert effect.message.id in ids
            elif isinstance(effect, Reject):
                assert effect.id in ids
                assert isinstance(effect.error, RTVIError)
                assert len(str(effect.error)) < 1000
    assert handshakes <= 1
    assert (engine.bot_ready is not None) == (handshakes == 1)


def test_library_and_platform() -> None:
    """The versions are this package's and this system's."""
    assert about_this_client() == {
        "library": "rtvi_sync",
        "library_version": rtvi_sync.__version__,
        "platform": platform.system().lower(),
        "platform_version": platform.release(),
    }


def test_a_platform_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a name is called unknown, since the field must not be empty."""
    monkeypatch.setattr(platform, "system", lambda: "")
    assert about_this_client()["platform"] == "unknown"
