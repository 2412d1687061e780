"""The fault table as data: what goes wrong, when in a session's life, and what a session that lives through it does."""

from __future__ import annotations

import random
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
#: After these somebody waits until a limit has passed, or has many bytes to handle one by one.
SLOW: Final = (faults.Drop, faults.BlackHole, faults.Split)
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
    """Where the parts of a clean session lie in the bytes of its two connections. Without TLS the beginnings are 0."""

    request: int
    answer: int
    answer_end: int
    upgrade: int
    upgraded: int
    upgraded_end: int


#: The name of all moments that are chosen by chance.
ANYWHERE: Final = "any byte"


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
        phases: what `connect()` may say that it was waiting for.
        sure: it comes, whatever happens.
        in_real_time: audio flows. A busy machine would not keep up with it byte by byte, so it is split into eights.
    """

    name: str
    arm: Callable[[Scenario], object] = lambda _: None
    act: Callable[[Scenario], object] = lambda _: None
    tls_only: bool = False
    refusable: bool = True
    ends: bool = False
    phases: tuple[str, ...] = ("bot-ready",)
    sure: bool = True
    in_real_time: bool = False

    def __str__(self) -> str:
        return self.name if self.sure else ANYWHERE

    @property
    def harms(self) -> list[Harm]:
        """What can be done at this moment."""
        harms = [harm for harm in HARMS if harm is not REFUSAL or self.refusable]
        if self.in_real_time:
            split = faults.Split(8)
            return [attrs.evolve(harm, fault=split) if harm.name == "split" else harm for harm in harms]
        return harms


_PHASES: Final = {"HTTP": ("http",), "WebSocket": ("transport", "bot-ready")}


def at_byte(
    line: str,
    name: str,
    counted_in: Direction,
    where: Callable[[Landmarks], int],
    *,
    tls_only: bool = False,
    refusable: bool = False,
) -> Moment:
    """When so many bytes of a connection, "HTTP" or "WebSocket", have passed."""

    def arm(scenario: Scenario) -> None:
        proxy = scenario.http if line == "HTTP" else scenario.ws
        scenario.strike(proxy, where(scenario.landmarks), counted_in)

    return Moment(f"{line} {name}", arm, tls_only=tls_only, refusable=refusable, phases=_PHASES[line])


def anywhere(rng: random.Random) -> Moment:
    """After any number of bytes of a session in which large messages go both ways."""
    line, counted_in = rng.choice(tuple(_PHASES)), rng.choice(DIRECTIONS)
    # Half of them in the handshakes, half in all there is.
    byte = rng.randrange(1, rng.choice((2_000, 50_000)))

    def act(scenario: Scenario) -> None:
        receive_large(scenario)
        send_large(scenario)

    moment = at_byte(line, f"byte {byte} {counted_in}", counted_in, lambda _: byte)
    return attrs.evolve(moment, act=act, phases=(*_PHASES["HTTP"], *_PHASES["WebSocket"]), sure=False)


def while_idle(scenario: Scenario) -> None:
    """The session is ready and nothing is under way."""
    scenario.strike_now()


def receive_large(scenario: Scenario) -> None:
    """The bot sends a large message."""
    with scenario.client.events("server-message", timeout=scenario.request_timeout) as events:
        scenario.bot_sends({"label": "rtvi-ai", "type": "server-message", "data": scenario.large})
        for event in events:
            scenario.compare(event.data, scenario.large)
            break


def send_large(scenario: Scenario) -> None:
    """The client sends a large message, and gets it back."""
    scenario.compare(scenario.client.send_client_request("echo", scenario.large), scenario.large)


def in_inbound_frame(scenario: Scenario) -> None:
    """Half of a large message of the bot's has passed."""
    scenario.strike_now(scenario.large_bytes // 2, "to_client")
    receive_large(scenario)


def in_outbound_frame(scenario: Scenario) -> None:
    """Half of a large message of the client's has passed."""
    scenario.strike_now(scenario.large_bytes // 2, "to_server")
    send_large(scenario)


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
    at_byte("HTTP", "accept", "to_server", lambda _: 0, refusable=True),
    at_byte("HTTP", "client hello", "to_server", lambda _: 100, tls_only=True),
    at_byte("HTTP", "certificate", "to_client", lambda _: 300, tls_only=True),
    at_byte("HTTP", "request head", "to_server", lambda at: at.request + 30),
    at_byte("HTTP", "answer head", "to_client", lambda at: at.answer + 30),
    at_byte("HTTP", "answer body", "to_client", lambda at: at.answer_end - 5),
    at_byte("WebSocket", "accept", "to_server", lambda _: 0, refusable=True),
    at_byte("WebSocket", "client hello", "to_server", lambda _: 100, tls_only=True),
    at_byte("WebSocket", "certificate", "to_client", lambda _: 300, tls_only=True),
    at_byte("WebSocket", "request", "to_server", lambda at: at.upgrade + 30),
    at_byte("WebSocket", "answer", "to_client", lambda at: at.upgraded + 30),
    at_byte("WebSocket", "open", "to_client", lambda at: at.upgraded_end),
    Moment("before bot-ready", lambda scenario: scenario.on("client-ready", while_idle)),
    at_byte("WebSocket", "bot-ready", "to_client", lambda at: at.upgraded_end + 30),
    Moment("idle", act=while_idle),
    Moment("in an inbound frame", act=in_inbound_frame),
    Moment("in an outbound frame", act=in_outbound_frame),
    Moment("while calls wait", act=while_calls_wait),
    Moment("while audio flows", act=while_audio_flows, in_real_time=True),
    Moment("in disconnect", act=in_disconnect, ends=True),
    Moment("while the bot leaves", act=while_the_bot_leaves, ends=True),
]
