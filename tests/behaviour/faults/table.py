"""The fault table as data: the faults, the moments of a session, and the actions of the session at each moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from rtvi_sync.testing import faults
from rtvi_sync.testing.faults import DIRECTIONS, Direction

if TYPE_CHECKING:
    from .scenario import Scenario

# -- faults ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Harm:
    """One fault in one direction.

    Attributes:
        name: of the fault.
        fault: None: new connections are refused.
        direction: of the bytes that it acts on; None: both ways.
        harmless: no byte is lost, so the session must survive.
        falsifies: it may turn plain content into other valid content.
    """

    name: str
    fault: faults.ConnectionFault | None
    direction: Direction | None
    harmless: bool = False
    falsifies: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.direction or 'both ways'}"


_HARMLESS: Final[dict[str, faults.ConnectionFault]] = {
    "delay": faults.Delay(0.03),
    "split": faults.Split(),
    "coalesce": faults.Coalesce(1_000_000, 0.05),
    "throttle": faults.Throttle(100_000),
}
_FALSIFYING: Final[dict[str, faults.ConnectionFault]] = {
    "drop": faults.Drop(7),
    "corrupt": faults.Corrupt(),
    "garble": faults.Corrupt(None, 0xFF),
}
_CUTTING: Final[dict[str, faults.ConnectionFault]] = {
    "swallow": faults.Drop(),
    "half-close": faults.HalfClose(),
    "reset": faults.Reset(),
    "black hole": faults.BlackHole(),
}
#: After these a call waits until its limit passes, or many bytes are processed one by one.
SLOW: Final = (faults.Drop, faults.BlackHole, faults.Split)
NOTHING: Final = Harm("nothing", None, None, harmless=True)
REFUSAL: Final = Harm("refuse", None, None)
HARMS: Final = [
    REFUSAL,
    *(Harm(name, fault, direction, harmless=True) for name, fault in _HARMLESS.items() for direction in DIRECTIONS),
    *(Harm(name, fault, direction, falsifies=True) for name, fault in _FALSIFYING.items() for direction in DIRECTIONS),
    *(Harm(name, fault, direction) for name, fault in _CUTTING.items() for direction in (*DIRECTIONS, None)),
]

# -- moments ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Landmarks:
    """The positions of the parts of a clean session in its two connections. Without TLS the beginnings are 0."""

    request: int
    answer: int
    answer_end: int
    upgrade: int
    upgraded: int
    upgraded_end: int


#: The name of all random moments.
ANYWHERE: Final = "any byte"


@attrs.frozen
class Moment:
    """The moment at which the fault takes effect.

    Attributes:
        name: Name in the table.
        arm: Function that prepares the injection before `connect()`.
        act: Function to call when the bot is ready: injects the fault if `arm` has not, and uses the session.
        tls_only: True if the moment exists only with TLS.
        refusable: True if new connections can be refused then.
        ends: True if the session ends then, with and without a fault.
        phases: Phases that an error of `connect()` may name.
        sure: True if every session reaches the moment.
        in_real_time: True if audio is streamed. A busy machine would not keep up with single bytes, so chunks have 8.
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
        """Return the faults that are possible at this moment."""
        harms = [harm for harm in HARMS if harm is not REFUSAL or self.refusable]
        if self.in_real_time:
            split = faults.Split(8)
            return [attrs.evolve(harm, fault=split) if harm.name == "split" else harm for harm in harms]
        return harms


_PHASES: Final = {"HTTP": ("http",), "WebSocket": ("transport", "bot-ready")}


def at_byte(
    connection: str,
    name: str,
    counted_in: Direction,
    where: Callable[[Landmarks], int],
    *,
    tls_only: bool = False,
    refusable: bool = False,
) -> Moment:
    """Return the moment at which `where(landmarks)` bytes of a connection, "HTTP" or "WebSocket", have passed."""

    def arm(scenario: Scenario) -> None:
        proxy = scenario.http if connection == "HTTP" else scenario.ws
        scenario.strike(proxy, where(scenario.landmarks), counted_in)

    return Moment(f"{connection} {name}", arm, tls_only=tls_only, refusable=refusable, phases=_PHASES[connection])


def anywhere(rng: random.Random) -> Moment:
    """Return the moment after a random number of bytes of a session in which large messages go both ways."""
    connection, counted_in = rng.choice(tuple(_PHASES)), rng.choice(DIRECTIONS)
    # Half of the moments are in the handshakes, half anywhere in the session.
    byte = rng.randrange(1, rng.choice((2_000, 50_000)))

    def act(scenario: Scenario) -> None:
        receive_large(scenario)
        send_large(scenario)

    moment = at_byte(connection, f"byte {byte} {counted_in}", counted_in, lambda _: byte)
    return attrs.evolve(moment, act=act, phases=(*_PHASES["HTTP"], *_PHASES["WebSocket"]), sure=False)


def while_idle(scenario: Scenario) -> None:
    """Inject the fault while the session is ready and idle."""
    scenario.strike_now()


def receive_large(scenario: Scenario) -> None:
    """Send a large message from the bot, and wait for it."""
    with scenario.client.events("server-message", timeout=scenario.request_timeout) as events:
        scenario.bot_sends({"label": "rtvi-ai", "type": "server-message", "data": scenario.large})
        for event in events:
            scenario.compare(event.data, scenario.large)
            break


def send_large(scenario: Scenario) -> None:
    """Send a large message from the client, and wait for its echo."""
    scenario.compare(scenario.client.send_client_request("echo", scenario.large), scenario.large)


def in_inbound_frame(scenario: Scenario) -> None:
    """Inject the fault when half of a bot's large message has passed."""
    scenario.strike_now(scenario.large_bytes // 2, "to_client")
    receive_large(scenario)


def in_outbound_frame(scenario: Scenario) -> None:
    """Inject the fault when half of a client's large message has passed."""
    scenario.strike_now(scenario.large_bytes // 2, "to_server")
    send_large(scenario)


def while_calls_wait(scenario: Scenario) -> None:
    """Inject the fault when the bot has eight requests, before it answers them."""
    scenario.make_calls(8)


def while_audio_flows(scenario: Scenario) -> None:
    """Inject the fault while the user and the bot speak."""
    scenario.converse()
    scenario.strike_now()
    if scenario.harm.harmless:
        scenario.converse()


def in_disconnect(scenario: Scenario) -> None:
    """Inject the fault after the first byte of the client's close frame."""
    scenario.strike_now(1, "to_server")
    scenario.client.disconnect()


def while_the_bot_closes(scenario: Scenario) -> None:
    """Inject the fault after the first byte of the bot's close frame."""
    scenario.strike_now(1, "to_client")
    scenario.bot_closes()


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
    Moment("while the bot leaves", act=while_the_bot_closes, ends=True),
]
#: The moments from the opened WebSocket on.
IN_SESSION: Final = MOMENTS[[moment.name for moment in MOMENTS].index("WebSocket open") :]
