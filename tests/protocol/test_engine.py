"""The engine: handshake, answers, events, and that no input makes it fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import BotError, ProtocolError, UnsupportedFeatureError
from rtvi_sync.events import RTVIEvent
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol.dialects import INBOUND
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
    error_text,
)

from .test_envelope import JSON

ABOUT = {"library": "test"}


@pytest.fixture
def engine() -> Engine:
    return Engine(ABOUT)


def ready(engine: Engine, version: str = "2.2.0") -> Engine:
    """Complete the handshake."""
    (effect,) = engine.receive(RTVIMessage("bot-ready", {"version": version}, engine.client_ready.id))
    assert isinstance(effect, Ready)
    return engine


class TestHandshake:
    def test_client_ready(self, engine: Engine) -> None:
        """It carries the protocol version, who we are, and an id."""
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
        """That of protocol 0.3 carries the bot's config."""
        data = {"version": "0.3.0", "config": [{"service": "tts", "options": [{"name": "voice", "value": "a"}]}]}
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Ready)
        assert effect.data.config[0].service == "tts"

    @pytest.mark.parametrize("data", [None, {}])
    def test_bot_ready_without_data(self, engine: Engine, data: Any) -> None:
        """A bot that says nothing about itself is ready nevertheless."""
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Ready)

    @pytest.mark.parametrize("data", [5, "text", [], {"version": 5}, {"config": "x"}])
    def test_broken_bot_ready(self, engine: Engine, data: Any) -> None:
        """One that cannot be understood ends the session with an error that says what is wrong."""
        (effect,) = engine.receive(RTVIMessage("bot-ready", data, "1"))
        assert isinstance(effect, Close)
        assert isinstance(effect.error, ProtocolError)
        assert "bot-ready" in str(effect.error)
        assert engine.bot_ready is None

    def test_metrics_may_come_first(self, engine: Engine) -> None:
        """As anything else may that a bot sends when it starts."""
        (effect,) = engine.receive({"label": "rtvi-ai", "type": "metrics", "data": {"ttfb": []}})
        assert isinstance(effect, Deliver)
        assert effect.event is RTVIEvent.METRICS
        ready(engine)

    def test_a_remark_on_the_version_is_no_refusal(self, engine: Engine) -> None:
        """An `error-response` with the client-ready's id is a warning, neither event nor refusal; bot-ready follows."""
        (effect,) = engine.receive(
            RTVIMessage("error-response", {"error": "Client version unknown."}, engine.client_ready.id)
        )
        assert isinstance(effect, Warn)
        assert "Client version unknown." in effect.text
        ready(engine)

    def test_a_second_bot_ready(self, engine: Engine) -> None:
        """It answers a second client-ready: an event as others, and no second handshake."""
        first = ready(engine).bot_ready
        effects = engine.receive(RTVIMessage("bot-ready", {"version": "9.9.9"}, "second"))
        assert [type(e) for e in effects] == [Resolve, Deliver]
        assert effects[1].event is RTVIEvent.BOT_READY  # type: ignore[union-attr]
        assert engine.bot_ready is first

    def test_a_second_broken_bot_ready(self, engine: Engine) -> None:
        """It ends nothing."""
        effects = ready(engine).receive(RTVIMessage("bot-ready", 5, "second"))
        assert [type(e) for e in effects] == [Resolve, Deliver]


class TestAnswers:
    @pytest.mark.parametrize("type_", sorted(REPLY_TYPES - {"bot-ready", "error-response"}))
    def test_replies(self, engine: Engine, type_: str) -> None:
        """A reply resolves the call with its id and is an event, in this order."""
        effects = ready(engine).receive(RTVIMessage(type_, {}, "7"))
        assert [type(e) for e in effects] == [Resolve, Deliver]
        assert effects[0].message.id == "7"  # type: ignore[union-attr]
        assert effects[1].event is INBOUND[type_].event  # type: ignore[union-attr]

    @pytest.mark.parametrize("type_", sorted(REPLY_TYPES - {"bot-ready", "error-response"}))
    def test_replies_without_an_id(self, engine: Engine, type_: str) -> None:
        """They answer nobody."""
        (effect,) = ready(engine).receive(RTVIMessage(type_, {}, None))
        assert isinstance(effect, Deliver)

    @pytest.mark.parametrize("type_", sorted(INBOUND.keys() - REPLY_TYPES - {"error"}))
    def test_events_with_an_id_answer_nobody(self, engine: Engine, type_: str) -> None:
        """An event that happens to have an id resolves no call."""
        effects = ready(engine).receive(RTVIMessage(type_, {}, "7"))
        assert not any(isinstance(e, (Resolve, Reject)) for e in effects)
        assert any(isinstance(e, Deliver) for e in effects)

    def test_refusal(self, engine: Engine) -> None:
        """An error-response rejects the call with its id and is a `message_error`."""
        message = RTVIMessage("error-response", {"error": "no"}, "7")
        rejected, delivered = ready(engine).receive(message)
        assert rejected == Reject(message, "no")
        assert isinstance(delivered, Deliver)
        assert delivered.event is RTVIEvent.MESSAGE_ERROR


class TestEvents:
    def test_every_inbound_type_has_an_event(self, engine: Engine) -> None:
        """Each type of the table causes its own event, and its payload can be made of what bots send."""
        ready(engine)
        for type_, spec in INBOUND.items():
            if type_ == "error-response":
                continue
            effects = engine.receive(RTVIMessage(type_, None, None))
            (delivered,) = [e for e in effects if isinstance(e, Deliver)]
            assert delivered.event is spec.event

    def test_interruption(self, engine: Engine) -> None:
        """`bot-interrupted` voids queued playback before anybody hears of it."""
        effects = ready(engine).receive({"label": "rtvi-ai", "type": "bot-interrupted"})
        assert [type(e) for e in effects] == [Interrupt, Deliver]

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
    def test_errors(self, engine: Engine, data: Any, fatal: bool) -> None:
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
            assert effect.decode() is message
        assert engine.bot_ready is None

    def test_malformed_payload(self, engine: Engine) -> None:
        """`decode()` raises what is wrong, when somebody wants to know."""
        (effect,) = ready(engine).receive({"label": "rtvi-ai", "type": "bot-output", "data": {"text": 5}})
        assert isinstance(effect, Deliver)
        with pytest.raises(ProtocolError, match=r"bot-output: data\.text: expected str, got int"):
            effect.decode()

    def test_foreign_messages(self, engine: Engine) -> None:
        """Messages with another label are nobody's business."""
        assert engine.receive('{"label": "other", "type": "bot-ready"}') == []
        assert engine.receive({"type": "bot-ready"}) == []

    @pytest.mark.parametrize(
        "junk", ["", "no json", b"\xff", "[]", {"label": "rtvi-ai"}, RTVIMessage(["x"]), RTVIMessage(None), None, 5]
    )
    def test_junk(self, engine: Engine, junk: Any) -> None:
        """What is no message is warned of and skipped."""
        (effect,) = engine.receive(junk)
        assert isinstance(effect, Warn)


class TestGate:
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
            engine.check_outbound(RTVIMessage(type_))
        else:
            with pytest.raises(UnsupportedFeatureError, match=version):
                engine.check_outbound(RTVIMessage(type_))


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
    """However much a bot has to say."""
    assert len(error_text(RTVIMessage("error", {"error": "x" * 10_000_000}))) <= 500


TYPES = st.sampled_from([*INBOUND, "client-ready", "unknown"]) | st.text()
MESSAGES = st.one_of(
    st.text(),
    st.binary(),
    JSON.map(json.dumps),
    JSON,
    st.fixed_dictionaries(
        {"label": st.just("rtvi-ai"), "type": TYPES}, optional={"data": JSON, "id": st.none() | st.text() | JSON}
    ),
    st.builds(RTVIMessage, TYPES, JSON, st.none() | st.text()),
)


@given(st.lists(MESSAGES, max_size=20))
def test_any_input_in_any_order(messages: list[Any]) -> None:
    """Whatever comes, in whatever order: only effects come out, every payload can be decoded or is a `ProtocolError`,
    and the handshake completes once at most."""
    engine = Engine(ABOUT)
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
            elif isinstance(effect, (Resolve, Reject)):
                assert effect.message.id is None or isinstance(effect.message.id, str)
    assert handshakes <= 1
    assert (engine.bot_ready is not None) == (handshakes == 1)
