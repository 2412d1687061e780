"""The fault table as data: what goes wrong, when in a session's life, and what a session that lives through it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from rtvi_sync.testing import faults
from rtvi_sync.testing.faults import DIRECTIONS, Direction

if TYPE_CHECKING:
    from .scenario import Scenario

# -- what ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Harm:
    """One fault in one direction.

    Attributes:
        name: of the fault.
        fault: None: new connections are refused.
        way: where the bytes that it acts on go; None: both ways.
        harmless: nothing is lost by it, so the session must live.
        falsifies: it may turn plain content into other content that is as good.
    """

    name: str
    fault: faults.Fault | None
    way: Direction | None
    harmless: bool = False
    falsifies: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.way or 'both ways'}"


_HARMLESS: Final[dict[str, faults.Fault]] = {
    "delay": faults.Delay(0.03),
    "split": faults.Split(),
    "coalesce": faults.Coalesce(1_000_000, 0.05),
    "throttle": faults.Throttle(100_000),
}
_FALSIFYING: Final[dict[str, faults.Fault]] = {
    "drop": faults.Drop(7),
    "corrupt": faults.Corrupt(),
    "garble": faults.Corrupt(None, 0xFF),
}
_CUTTING: Final[dict[str, faults.Fault]] = {
    "swallow": faults.Drop(),
    "half-close": faults.HalfClose(),
    "reset": faults.Reset(),
    "black hole": faults.BlackHole(),
}
NOTHING: Final = Harm("nothing", None, None, harmless=True)
REFUSAL: Final = Harm("refuse", None, None)
HARMS: Final = [
    REFUSAL,
    *(Harm(name, fault, way, harmless=True) for name, fault in _HARMLESS.items() for way in DIRECTIONS),
    *(Harm(name, fault, way, falsifies=True) for name, fault in _FALSIFYING.items() for way in DIRECTIONS),
    *(Harm(name, fault, way) for name, fault in _CUTTING.items() for way in (*DIRECTIONS, None)),
]

# -- when ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Landmarks:
    """Where the parts of a clean session lie in the bytes of its two connections. Without TLS most are 0."""

    request: int
    answer: int
    answer_end: int
    upgrade: int
    upgraded: int


@attrs.frozen
class Moment:
    """When the fault strikes.

    Attributes:
        name: as it stands in the table.
        arm: prepares the strike before `connect()`.
        act: what happens when the bot is ready: strikes, if `arm` has not, and uses the session.
        tls_only: it exists only with TLS.
        refusable: new connections can be refused then.
        ends: the session ends in it, fault or no fault.
    """

    name: str
    arm: Callable[[Scenario], object] = lambda _: None
    act: Callable[[Scenario], object] = lambda _: None
    tls_only: bool = False
    refusable: bool = True
    ends: bool = False

    def __str__(self) -> str:
        return self.name

    def harms(self, *, secure: bool) -> list[Harm]:
        """What can be done at this moment."""
        # A connection that is reset before either end has begun with TLS: CPython up to 3.12 leaves the socket that it
        # was about to make to the garbage collector, so that by chance a descriptor stays behind for a while.
        early = secure and self.name.endswith("accept")
        return [
            harm
            for harm in HARMS
            if (harm is not REFUSAL or self.refusable) and not (early and isinstance(harm.fault, faults.Reset))
        ]


def in_http(counted_in: Direction, where: Callable[[Landmarks], int]) -> Callable[[Scenario], object]:
    """When so many bytes of the connect request's connection have passed."""
    return lambda scenario: scenario.strike(scenario.http, where(scenario.landmarks), counted_in)


def in_ws(counted_in: Direction, where: Callable[[Landmarks], int]) -> Callable[[Scenario], object]:
    """When so many bytes of the WebSocket's connection have passed."""
    return lambda scenario: scenario.strike(scenario.ws, where(scenario.landmarks), counted_in)


def while_idle(scenario: Scenario) -> None:
    """The session is ready and nothing is under way."""
    scenario.strike_now()


def in_inbound_frame(scenario: Scenario) -> None:
    """Half of a large message of the bot's has passed."""
    with scenario.client.events("server-message", timeout=scenario.request_timeout) as events:
        scenario.strike_now(scenario.large_bytes // 2, "to_client")
        scenario.bot_sends({"label": "rtvi-ai", "type": "server-message", "data": scenario.large})
        for event in events:
            scenario.compare(event.data, scenario.large)
            break


def in_outbound_frame(scenario: Scenario) -> None:
    """Half of a large message of the client's has passed."""
    scenario.strike_now(scenario.large_bytes // 2, "to_server")
    scenario.compare(scenario.client.send_client_request("echo", scenario.large), scenario.large)


def while_calls_wait(scenario: Scenario) -> None:
    """The bot has eight requests, and answers them right after."""
    scenario.make_calls(8)


def while_audio_flows(scenario: Scenario) -> None:
    """The user and the bot speak."""
    scenario.converse()
    scenario.strike_now()
    if scenario.harm.harmless:
        scenario.converse()


def in_disconnect(scenario: Scenario) -> None:
    """The first byte of the client's close frame has passed."""
    scenario.strike_now(1, "to_server")
    scenario.client.disconnect()


def while_the_bot_leaves(scenario: Scenario) -> None:
    """The first byte of the bot's close frame has passed."""
    scenario.strike_now(1, "to_client")
    scenario.bot_leaves()


MOMENTS: Final = [
    Moment("HTTP accept", in_http("to_server", lambda _: 0)),
    Moment("HTTP client hello", in_http("to_server", lambda _: 100), tls_only=True, refusable=False),
    Moment("HTTP certificate", in_http("to_client", lambda _: 300), tls_only=True, refusable=False),
    Moment("HTTP request head", in_http("to_server", lambda at: at.request + 30), refusable=False),
    Moment("HTTP answer head", in_http("to_client", lambda at: at.answer + 30), refusable=False),
    Moment("HTTP answer body", in_http("to_client", lambda at: at.answer_end - 5), refusable=False),
    Moment("WebSocket accept", in_ws("to_server", lambda _: 0)),
    Moment("WebSocket client hello", in_ws("to_server", lambda _: 100), tls_only=True, refusable=False),
    Moment("WebSocket certificate", in_ws("to_client", lambda _: 300), tls_only=True, refusable=False),
    Moment("WebSocket request", in_ws("to_server", lambda at: at.upgrade + 30), refusable=False),
    Moment("WebSocket answer", in_ws("to_client", lambda at: at.upgraded + 30), refusable=False),
    Moment("before bot-ready", lambda scenario: scenario.on("client-ready", while_idle)),
    Moment("idle", act=while_idle),
    Moment("in an inbound frame", act=in_inbound_frame),
    Moment("in an outbound frame", act=in_outbound_frame),
    Moment("while calls wait", act=while_calls_wait),
    Moment("while audio flows", act=while_audio_flows),
    Moment("in disconnect", act=in_disconnect, ends=True),
    Moment("while the bot leaves", act=while_the_bot_leaves, ends=True),
]
