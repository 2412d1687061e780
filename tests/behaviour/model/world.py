"""Two clients, a bot, and a line with faults between them: the world of the model test."""

from __future__ import annotations

import faulthandler
import functools
import gc
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import attrs

from rtvi_sync import DisconnectedError, Event, ReconnectPolicy, RTVIClient, RTVIEvent, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import BotSession, EmbeddedBot, FaultProxy, Injection
from rtvi_sync.testing.faults import ConnectionFault, Direction
from tests.support.loopback import serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import open_descriptors, package_threads

from .ears import Ears
from .operations import CONNECT, OPERATIONS, REQUEST, Operation

CLIENTS: Final = 2
#: Time that a busy machine may add to a limit, in seconds.
GRACE: Final = 5.0
_FLOOD: Final = 50
_PING_INTERVAL: Final = 0.3
_PING_TIMEOUT: Final = 1.0
_RECONNECT: Final = ReconnectPolicy(max_attempts=2, initial_delay=0.02, stable_after=0.1)
_SOON: Final = 3.0


#: Counts over all examples of this process, by kind ("operation", "error", "fault", "example") and name.
TALLY: Final[Counter[tuple[str, str]]] = Counter()


def operations_so_far() -> int:
    """Return the number of operations of clients."""
    return sum(number for (kind, _), number in TALLY.items() if kind == "operation")


def tell(tally: Counter[tuple[str, str]]) -> list[str]:
    """Print the counts of all steps, and how they ended."""
    total: Counter[str] = Counter()
    for (kind, _), number in tally.items():
        total[kind] += number
    errors = Counter({name: number for (kind, name), number in tally.items() if kind == "error"})
    told = ", ".join(f"{number} {name}" for name, number in errors.most_common())
    done = f"{total['operation']} operations of clients and {total['fault']} faults in {total['example']} examples"
    return [f"model test: {done} ({told})"]


@attrs.define(eq=False)
class Call:
    """One call of an operation, and its outcome.

    Attributes:
        inside: True if it was made in a handler.
        error, text: Class and words of its error; not the error itself, whose traceback keeps the client.
        handed_out: Number of events.
        unfinished: Types of the events before the last of those whose handlers had not returned by then.
    """

    client: int
    name: str
    operation: Operation
    inside: bool
    took: float = 0.0
    result: Any = None
    error: type[BaseException] | None = None
    text: str = ""
    handed_out: int = 0
    unfinished: tuple[RTVIEvent, ...] = ()


@attrs.frozen(kw_only=True)
class Options:
    """How the clients of an example are made."""

    manual: bool
    secure: bool
    reconnect: bool


@attrs.define(eq=False)
class Party:
    """A client, and the test's knowledge about it.

    Attributes:
        live: True if it has a session; False if it has none; None if only the client knows.
        closed: True if it is closed for good, or about to be.
    """

    client: RTVIClient
    ears: Ears
    live: bool | None = False
    closed: bool = False


class World:
    """All that one example acts on."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.threads_before, self.descriptors_before = package_threads(), open_descriptors()
        self.bot = EmbeddedBot(
            ssl_context=serving() if options.secure else None, handler=_obey, on_request={"refuse": _refuse}
        )
        self.bot.start()
        self.http, self.ws = FaultProxy.before(self.bot.base_url), FaultProxy.before(self.bot.ws_url)
        for proxy in (self.http, self.ws):
            proxy.start()
        self.injections: list[Injection] = []
        self.calls: list[Call] = []
        self.parties = [self.new_party() for _ in range(CLIENTS)]
        self.past: list[Ears] = []
        self.refused = False

    def new_party(self) -> Party:
        """Return a client that has done nothing yet."""
        options = self.options
        client = RTVIClient(
            transport=WebSocketTransport(
                self.ws.url(self.bot.ws_url), ping_interval=_PING_INTERVAL, ping_timeout=_PING_TIMEOUT
            ),
            params={"base_url": self.http.url(self.bot.base_url)},
            connect_timeout=CONNECT,
            request_timeout=REQUEST,
            events="manual" if options.manual else "thread",
            ssl_context=_trusting() if options.secure else None,
            proxy=False,
            mic=SilenceSource(),
            speaker=NullSink(),
            reconnect=_RECONNECT if options.reconnect else None,
        )
        return Party(client, Ears(client, manual=options.manual))

    def replace(self, number: int) -> None:
        """Put another client in the place of one that is not used any more."""
        self.past.append(self.parties[number].ears)
        self.parties[number] = self.new_party()

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, number: int, name: str, client: RTVIClient, *, inside: bool = False) -> Call:
        """Make one call, on this thread."""
        party, operation = self.parties[number], OPERATIONS[name]
        ears = party.ears
        party.closed = party.closed or name == "close"
        call = Call(number, name, operation, inside)
        began = time.monotonic()
        try:
            if operation.delivers:
                with ears.delivering():
                    call.result = operation.act(client, ears)
            else:
                call.result = operation.act(client, ears)
            if operation.waits:
                events, call.result = call.result, None
                call.handed_out = len(events)
                call.unfinished = _unfinished_before(events, ears)
        except Exception as error:
            call.error, call.text = type(error), str(error)
        call.took = time.monotonic() - began
        self.calls.append(call)
        TALLY["operation", name] += 1
        if call.error is not None:
            TALLY["error", call.error.__name__] += 1
        return call

    def together(self, calls: Sequence[tuple[int, int, str]]) -> list[Call]:
        """Make calls on several threads at once: (thread, client, operation); the calls of a thread run one by one."""
        before = len(self.calls)
        numbers = {number for _, number, _ in calls}
        settled = {number for number in numbers if self.parties[number].ears.at_rest}
        by_thread: dict[int, list[tuple[int, str]]] = {}
        for worker, number, name in calls:
            by_thread.setdefault(worker, []).append((number, name))

        def work(own: list[tuple[int, str]]) -> None:
            for number, name in own:
                self.call(number, name, self.parties[number].client)

        threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in by_thread.values()]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + sum(OPERATIONS[name].limit + GRACE for _, _, name in calls)
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback()
            raise AssertionError(f"a call never returned: one of {calls}")
        made = self.calls[before:]
        for number in numbers:
            self._learn(number, [call for call in made if call.client == number], number in settled)
        return made

    def arm(self, number: int, name: str, at: RTVIEvent | None = None, made: list[Call] | None = None) -> None:
        """Let the next handler of a client, or the next one of an event, make a call, which is added to `made`."""
        party = self.parties[number]
        if party.live and OPERATIONS[name].lifecycle:
            party.live = None
        made = made if made is not None else []
        party.ears.arm(lambda client: made.append(self.call(number, name, client, inside=True)), at)

    @property
    def calm(self) -> bool:
        """True: nothing happens to connections."""
        return not self.injections and not self.refused

    def _learn(self, number: int, calls: list[Call], at_rest: bool) -> None:
        party = self.parties[number]
        changes = [call for call in calls if call.operation.lifecycle]
        at_rest = at_rest and party.ears.at_rest
        if not changes:
            return
        if len(calls) > 1 or not at_rest or party.closed:
            party.live = None
            return
        (call,) = calls
        if call.name in ("disconnect", "close"):
            party.live = False
        elif call.name == "disconnect_bot" and call.error is None:
            party.live = None
        elif call.name not in ("disconnect_bot", "start_bot") and call.error is None:
            party.live = True if self.calm else None

    # -- faults -------------------------------------------------------------------------------------------------------

    def strike(self, fault: ConnectionFault, way: Direction | None, where: str, after_bytes: int) -> None:
        """Do harm to the newest session, or to future connections."""
        proxy = self.http if where == "requests to come" else self.ws
        line = proxy.connections[-1] if where == "the line" and proxy.connections else proxy
        self.injections.append(line.inject(fault, way, after_bytes=after_bytes))
        self.lose_certainty()
        TALLY["fault", "strike"] += 1

    def refuse(self) -> None:
        """Let no client in any longer."""
        self.http.refuse()
        self.ws.refuse()
        self.refused = True
        TALLY["fault", "refuse"] += 1

    def heal(self) -> None:
        """Do no more harm."""
        for injection in self.injections:
            injection.lift()
        self.injections.clear()
        for proxy in (self.http, self.ws):
            proxy.accept()
        self.refused = False

    def lose_certainty(self) -> None:
        """Expect that sessions may end by themselves from now on."""
        for party in self.parties:
            if party.live:
                party.live = None

    def bot_acts(self, act: str) -> None:
        """Let the bot do something to its sessions."""
        for session in self.bot.sessions:
            try:
                if act == "close":
                    session.close(1011, "out of memory")
                elif act == "drop":
                    session.drop()
                else:
                    session.send({"label": "rtvi-ai", "type": "server-message", "data": act})
            except DisconnectedError:
                continue
        if act in ("close", "drop"):
            self.lose_certainty()

    def drop(self, number: int) -> None:
        """Drop a client as it is, and see that it is collected, with a warning if it was connected."""
        party = self.parties[number]
        was_live = party.live and party.client.connected
        gone = weakref.ref(party.client)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del party
            self.replace(number)
            limit = time.monotonic() + _SOON
            while gone() is not None and time.monotonic() < limit:
                gc.collect()
                threading.Event().wait(0.01)
        assert gone() is None, "a client that was dropped is not collected"
        seen = [warning.category for warning in caught]
        assert not was_live or seen.count(ResourceWarning) == 1, seen

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End all that there is."""
        self.heal()
        try:
            for number, party in enumerate(self.parties):
                party.ears.disarm()
                at_rest = party.ears.at_rest
                self.together([(0, number, "disconnect")])
                if not at_rest:
                    # A handler that was about to connect may have started a session that this call did not know.
                    limit = time.monotonic() + GUARD
                    while not party.ears.at_rest and time.monotonic() < limit:
                        threading.Event().wait(0.01)
                    self.together([(0, number, "disconnect")])
                if self.options.manual:
                    self.together([(0, number, "process_events")])
        finally:
            for proxy in (self.http, self.ws):
                proxy.stop()
            self.bot.stop()

    def left_behind(self) -> str:
        """Return threads and descriptors that were not there before, after a moment in which they may go."""
        limit = time.monotonic() + _SOON
        while True:
            gc.collect()
            threads = [thread.name for thread in package_threads() - self.threads_before]
            opened = {n: t for n, t in open_descriptors().items() if self.descriptors_before.get(n) != t}
            if not threads and not opened:
                return ""
            if time.monotonic() > limit:
                return f"threads {threads}, descriptors {opened}"
            threading.Event().wait(0.01)


def _unfinished_before(events: list[Event], ears: Ears) -> tuple[RTVIEvent, ...]:
    """Return, of the events before the last one that was handed out, those whose receiver has not returned."""
    heard = ears.heard.copy()
    earlier = heard
    for index, one in enumerate(heard):
        if events and one.event() is events[-1]:
            earlier = heard[:index]
    return tuple(one.type for one in earlier if events and not one.done)


_trusting: Final = functools.cache(trusting)


def _obey(session: BotSession, message: dict[str, Any]) -> bool:
    if message["type"] != "client-message":
        return False
    wish = message["data"].get("t")
    if wish == "flood":
        for number in range(_FLOOD):
            session.send({"label": "rtvi-ai", "type": "server-message", "data": number})
    return wish in ("flood", "never")


def _refuse(data: Any) -> Any:
    raise ValueError(f"no {data!r} here")
