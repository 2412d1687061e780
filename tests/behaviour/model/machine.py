"""The state machine: the possible steps, in any order, and the checks after each step."""

from __future__ import annotations

import threading
import time
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rtvi_sync import BotAlreadyStartedError, ConnectionTimeoutError, RTVIEvent
from rtvi_sync.testing import faults
from rtvi_sync.testing.faults import DIRECTIONS

from .invariants import (
    AT_REST,
    OF_CALLS,
    OF_CLIENTS,
    a_blocked_handler_holds_up_nothing_else,
    connect_works_in_the_last_handler,
)
from .operations import OPERATIONS
from .world import CLIENTS, GRACE, TALLY, Call, Options, World

_THREADS: Final = 3
_FAULTS: Final[tuple[faults.ConnectionFault, ...]] = (
    faults.Delay(0.005),
    faults.Split(3),
    faults.Coalesce(10_000, 0.01),
    faults.Throttle(200_000),
    faults.Drop(3),
    faults.Drop(),
    faults.Corrupt(),
    faults.Corrupt(None, 0xFF),
    faults.BlackHole(),
    faults.HalfClose(),
    faults.Reset(),
)
_CALL: Final = st.tuples(st.integers(0, _THREADS - 1), st.integers(0, CLIENTS - 1), st.sampled_from([*OPERATIONS]))
_CLIENT: Final = st.integers(0, CLIENTS - 1)


def _strike(*where: str) -> st.SearchStrategy[tuple[faults.ConnectionFault, faults.Direction | None, str, int]]:
    """Draw a fault: its kind, its direction, its target, and after how many bytes."""
    return st.tuples(
        st.sampled_from(_FAULTS),
        st.sampled_from((*DIRECTIONS, None)),
        st.sampled_from(where),
        st.sampled_from((0, 0, 100, 400, 2_000)),
    )


class ClientMachine(RuleBasedStateMachine):
    """Random calls on random threads, faults, a bot with a will of its own."""

    world: World

    @initialize(manual=st.booleans(), secure=st.sampled_from((False, False, True)), reconnect=st.booleans())
    def begin(self, manual: bool, secure: bool, reconnect: bool) -> None:
        """Start with a bot and two clients."""
        self.world = World(Options(manual=manual, secure=secure, reconnect=reconnect))
        self.checked = 0
        TALLY["example", ""] += 1

    # -- steps --------------------------------------------------------------------------------------------------------

    @rule(number=_CLIENT, name=st.sampled_from([*OPERATIONS]))
    def alone(self, number: int, name: str) -> None:
        """Make one call, whose outcome is known because nothing else runs."""
        party = self.world.parties[number]
        live, sure = party.live, self.world.calm and party.ears.at_rest and not party.closed
        made = next(made for made in self.world.together([(0, number, name)]) if not made.inside)
        if sure and live is not None:
            self._expect(made, live)
        if party.live is False and name == "disconnect" and party.ears.at_rest:
            for check in AT_REST:
                check(party)

    @rule(calls=st.lists(_CALL, min_size=2, max_size=8))
    def together(self, calls: list[tuple[int, int, str]]) -> None:
        """Make several calls on several threads at once."""
        self.world.together(calls)

    @rule(
        number=_CLIENT,
        strikes=st.lists(_strike("the line"), max_size=2),
        calls=st.lists(_CALL, min_size=2, max_size=8),
    )
    def in_a_session(
        self,
        number: int,
        strikes: list[tuple[faults.ConnectionFault, faults.Direction | None, str, int]],
        calls: list[tuple[int, int, str]],
    ) -> None:
        """Make calls while at least one client has a session at the start; its line may fail during them."""
        if self._connect(number):
            self.alone(number, "request(echo)")
        for strike in strikes:
            self.world.strike(*strike)
        self.world.together(calls)

    @rule(number=_CLIENT, name=st.sampled_from([*OPERATIONS]))
    def in_a_handler(self, number: int, name: str) -> None:
        """Make a call in the next handler."""
        self.world.arm(number, name)

    @rule(number=_CLIENT)
    def a_handler_blocks(self, number: int) -> None:
        """Make requests of both clients while a handler of one client does not return."""
        if self.world.options.manual or not all(map(self._connect, range(CLIENTS))):
            return
        entered, leave = threading.Event(), threading.Event()

        def block(_: object) -> None:
            entered.set()
            leave.wait(GRACE)

        self.world.parties[number].ears.arm(block)
        try:
            self.world.bot_acts("say")
            assert entered.wait(GRACE), "an event does not come"
            calls = self.world.together([(each, each, "request(echo)") for each in range(CLIENTS)])
        finally:
            leave.set()
        a_blocked_handler_holds_up_nothing_else(calls)

    @rule(number=_CLIENT)
    def connect_in_the_last_handler(self, number: int) -> None:
        """Connect in the handler of `disconnected`."""
        if not self._connect(number):
            return
        made: list[Call] = []
        self.world.arm(number, "connect", at=RTVIEvent.DISCONNECTED, made=made)
        self.alone(number, "disconnect")
        if self.world.options.manual:
            self.alone(number, "process_events")
        limit = time.monotonic() + GRACE
        while not made and time.monotonic() < limit:
            threading.Event().wait(0.001)
        connect_works_in_the_last_handler(made[0])

    @rule(strike=_strike("the line", "lines to come", "requests to come"))
    def strike(self, strike: tuple[faults.ConnectionFault, faults.Direction | None, str, int]) -> None:
        """Let something happen to a connection, after a number of bytes."""
        self.world.strike(*strike)

    @rule(act=st.sampled_from(("close", "drop", "say", "refuse", "heal")))
    def others_act(self, act: str) -> None:
        """Let the bot close, drop, or say something; let no client in; make the line whole again."""
        if act == "refuse":
            self.world.refuse()
        elif act == "heal":
            self.world.heal()
        else:
            self.world.bot_acts(act)

    @rule(number=_CLIENT)
    def drop(self, number: int) -> None:
        """Drop a client; another one takes its place."""
        self.world.drop(number)

    # -- checks -------------------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        """Check everything that is true of calls and of clients."""
        if not hasattr(self, "world"):
            return
        calls = self.world.calls[self.checked :]
        self.checked += len(calls)
        for call in calls:
            for check in OF_CALLS:
                check(call)
        for party in self.world.parties:
            for look in OF_CLIENTS:
                look(party.ears)
        for number, party in enumerate(self.world.parties):
            if party.closed:
                self.world.replace(number)

    def teardown(self) -> None:
        """End all; nothing is left."""
        if not hasattr(self, "world"):
            return
        try:
            self.world.end()
            self.holds()
            for party in self.world.parties:
                for check in AT_REST:
                    check(party)
            for ears in self.world.past:
                for look in OF_CLIENTS:
                    look(ears)
        finally:
            self.world.parties.clear()
            left = self.world.left_behind()
        assert left == ""

    def _connect(self, number: int) -> bool:
        """Let a client have a session, and nothing disturb it. False if it has none: the machine was too busy."""
        self.world.heal()
        self.world.parties[number].ears.disarm()
        self.alone(number, "disconnect")
        if self.world.options.manual:
            self.alone(number, "process_events")
        self.alone(number, "connect")
        return self.world.parties[number].live is True

    @staticmethod
    def _expect(call: Call, live: bool) -> None:
        name, error = call.name, call.error
        if name in ("connect", "connect(given)", "start_bot", "start_bot_and_connect"):
            if live:
                assert error is BotAlreadyStartedError, call
            else:
                # On a busy machine half a second may be too little.
                assert error in (None, ConnectionTimeoutError), call
        elif name == "request(echo)" and live:
            assert (error, call.result) == (None, "still there?"), call
