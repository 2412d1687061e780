"""Which dialect a session speaks: the bot's version decides, whatever the bot makes of ours.

Each bot sends the messages that its release of Pipecat sends to a client of 2.2.0.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import UnsupportedFeatureError
from rtvi_sync.events import RTVIEvent
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol.dialects import FIELDS, INBOUND, OUTBOUND, VERSIONS, supports
from rtvi_sync.protocol.engine import PROTOCOL_VERSION, Deliver, Engine, Ready, Warn

pytestmark = pytest.mark.inside

ABOUT = {"library": "test"}
CONFIG = [{"service": "tts", "options": [{"name": "voice", "value": "a"}]}]
# The types beyond those that every bot knows (client-ready, disconnect-bot, audio, results of function calls).
OF_0_3 = {"describe-config", "get-config", "update-config", "describe-actions", "action"}
OF_1_0 = OF_0_3 | {"client-message", "send-text", "append-to-context"}
OF_1_3 = OF_1_0 | {"ui-event", "ui-snapshot", "ui-cancel-task"}
OF_1_4 = OF_1_3 - {"ui-cancel-task"} | {"ui-cancel-job-group"}
OF_2_0 = OF_1_4 - OF_0_3 - {"append-to-context"} | {"dtmf", "dtmf.button"}
OF_2_1 = OF_2_0 - {"dtmf.button"} | {"dtmf.buttons"}
OF_2_2 = OF_2_1 | {"send-file"}
ALL = {*OUTBOUND, *FIELDS}
OF_EVERY_BOT = {"client-ready", "disconnect-bot", "raw-audio", "raw-audio-batch", "llm-function-call-result"}


@attrs.frozen(kw_only=True)
class Bot:
    """A bot's answer to our `client-ready`, and the messages that it takes."""

    remark: str = ""
    data: Any
    version: str
    knows: set[str]


def incompatible(server: str) -> str:
    """Return the warning of a bot of another major version."""
    return f"RTVI version 2.2.0 is not compatible with server protocol {server}. Compatibility issues may occur."


BOTS = {
    "0.3: ignores our data, tells its config": Bot(
        data={"version": "0.3.0", "config": CONFIG}, version="0.3.0", knows=OF_0_3
    ),
    "1.0: does not mind, keeps its config back": Bot(data={"version": "1.0.0"}, version="1.0.0", knows=OF_1_0),
    "1.1: tells about itself": Bot(
        data={"version": "1.1.0", "about": {"library": "pipecat-ai", "library_version": "0.0.98"}},
        version="1.1.0",
        knows=OF_1_0,
    ),
    "1.2 of Pipecat 0.0.108: does not mind": Bot(data={"version": "1.2.0"}, version="1.2.0", knows=OF_1_0),
    "1.2 of Pipecat 1.0: warns in vain": Bot(
        remark=incompatible("1.2.0"), data={"version": "1.2.0"}, version="1.2.0", knows=OF_1_0
    ),
    "1.3: warns in vain": Bot(remark=incompatible("1.3.0"), data={"version": "1.3.0"}, version="1.3.0", knows=OF_1_3),
    "1.4: warns in vain": Bot(remark=incompatible("1.4.0"), data={"version": "1.4.0"}, version="1.4.0", knows=OF_1_4),
    "2.0": Bot(data={"version": "2.0.0"}, version="2.0.0", knows=OF_2_0),
    "2.1": Bot(data={"version": "2.1.0"}, version="2.1.0", knows=OF_2_1),
    "2.2: says the same": Bot(
        data={"version": "2.2.0", "capabilities": {"audio_in": True}}, version="2.2.0", knows=OF_2_2
    ),
    "echoes our version": Bot(data={"version": PROTOCOL_VERSION}, version="2.2.0", knows=OF_2_2),
    "2.3: not published yet": Bot(data={"version": "2.3.0", "new": {"a": 1}}, version="2.3.0", knows=OF_2_2),
    "3.0: from the future, warns": Bot(
        remark=incompatible("3.0.0"), data={"version": "3.0.0", "new": 1}, version="3.0.0", knows=OF_2_2
    ),
    "2.1, without a patch level": Bot(data={"version": "2.1"}, version="2.1", knows=OF_2_1),
    "abc: no valid version": Bot(data={"version": "abc"}, version="abc", knows=ALL),
    "no version": Bot(data={}, version="", knows=ALL),
    "no data": Bot(data=None, version="", knows=ALL),
    "finds our version malformed": Bot(
        remark="Invalid client version format (2.2.0). Compatibility issues may occur.",
        data={"version": "2.2.0"},
        version="2.2.0",
        knows=OF_2_2,
    ),
    "does not see our version": Bot(
        remark="Client version unknown. Compatibility issues may occur.",
        data={"version": "2.2.0"},
        version="2.2.0",
        knows=OF_2_2,
    ),
}


def refusal(engine: Engine, type_: str) -> UnsupportedFeatureError | None:
    """Return the engine's reason for refusing a message of this type."""
    try:
        engine.outbound(RTVIMessage(type_, {}))
    except UnsupportedFeatureError as error:
        return error
    return None


@pytest.mark.parametrize("bot", BOTS.values(), ids=BOTS)
def test_the_bot_decides(bot: Bot) -> None:
    """Every bot gets the same client-ready; its answer completes the handshake and permits exactly the messages that it
    knows.

    A remark with the id of client-ready is logged, and is no refusal and no event. It is not logged if the bot is of
    an older version, which the client speaks, too.
    """
    engine = Engine(ABOUT)
    assert engine.client_ready.data == {"version": "2.2.0", "about": ABOUT}
    if bot.remark:
        effects = engine.receive(RTVIMessage("error-response", {"error": bot.remark}, engine.client_ready.id))
        warned = [effect.text for effect in effects if isinstance(effect, Warn)]
        assert len(effects) == len(warned) == (0 if bot.version.startswith("1.") else 1)
        assert all(bot.remark in text for text in warned)
        assert engine.bot_ready is None
    (effect,) = engine.receive(RTVIMessage("bot-ready", bot.data, engine.client_ready.id))
    assert isinstance(effect, Ready)
    assert engine.version == effect.data.version == bot.version
    passed = {type_ for type_ in OUTBOUND if not refusal(engine, type_)}
    fields = {name for name in FIELDS if supports(name, engine.version)}
    assert passed | fields == bot.knows | OF_EVERY_BOT
    for type_ in OUTBOUND.keys() - passed:
        error = refusal(engine, type_)
        assert error is not None
        assert (error.feature, error.bot_version) == (OUTBOUND[type_].feature, bot.version)
        assert error.needed_version


def test_every_version_is_among_these_bots() -> None:
    """No version that Pipecat announces is left out."""
    assert {f"{major}.{minor}.0" for major, minor in VERSIONS} <= {bot.version for bot in BOTS.values()}


@pytest.mark.parametrize("version", ["0.3.0", "1.2.0", "2.2.0", "3.0.0", "abc", ""])
def test_what_a_bot_sends_is_understood_whatever_it_announces(version: str) -> None:
    """The table's versions limit outbound messages, not inbound ones: a bot may be ahead of its version."""
    engine = Engine(ABOUT)
    engine.receive(RTVIMessage("bot-ready", {"version": version}, engine.client_ready.id))
    for type_, spec in INBOUND.items():
        delivered = [effect for effect in engine.receive(RTVIMessage(type_, {}, None)) if isinstance(effect, Deliver)]
        assert [effect.event for effect in delivered] == [spec.event]


def test_a_message_of_a_version_to_come() -> None:
    """A type that no published bot has is an `unknown_message`, and nothing else."""
    engine = Engine(ABOUT)
    engine.receive(RTVIMessage("bot-ready", {"version": "2.3.0"}, engine.client_ready.id))
    message = RTVIMessage("bot-hologram", {"a": 1}, None)
    (effect,) = engine.receive(message)
    assert isinstance(effect, Deliver)
    assert (effect.event, effect.decode()) == (RTVIEvent.UNKNOWN_MESSAGE, message)


@given(version=st.text() | st.from_regex(r"\d{1,6}\.\d{1,6}(\..{0,5})?"), type_=st.sampled_from(sorted(OUTBOUND)))
def test_any_version_opens_or_refuses(version: str, type_: str) -> None:
    """Whatever a bot calls its version: a message passes, or is refused with feature, need and that version."""
    engine = Engine(ABOUT)
    engine.receive(RTVIMessage("bot-ready", {"version": version}, engine.client_ready.id))
    error = refusal(engine, type_)
    assert error is None or (error.feature and error.needed_version and error.bot_version == version)
