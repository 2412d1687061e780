"""Strikes a client at random moments of its calls, and checks that it works afterwards.

Run as a script: ``python -m tests.behaviour.life.hammer KIND SECONDS SEED`` prints the result as JSON.

`KIND` is the interruption: Ctrl-C; a signal handler that calls the package during a call; or a finalizer that does so,
on any thread where the garbage collector runs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rtvi_sync import RTVIClient, RTVIError, TransportState, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.behaviour.life.blocking import tell
from tests.support.clients import memory_client, say, transport_of
from tests.support.measuring import AFTER_COVERAGE, in_coverage
from tests.support.probes import process_events
from tests.support.slowness import GUARD, Stopwatch, metronome
from tests.support.threads import own_threads
from tests.support.waiting import until

#: No call takes so long, in seconds; one that runs into a limit of the package takes five.
TOO_LONG = 2.5

Act = Callable[[RTVIClient], Any]


# -- the calls that are struck ----------------------------------------------------------------------------------------


def connect(client: RTVIClient) -> None:
    client.connect()


def enter_and_leave(client: RTVIClient) -> None:
    with client:
        client.send_client_request("echo", 1)


def disconnect(client: RTVIClient) -> None:
    client.disconnect()


def request(client: RTVIClient) -> None:
    for number in range(20):
        client.send_client_request("echo", number)


def send(client: RTVIClient) -> None:
    for number in range(50):
        client.send_client_message("note", number)


def register(client: RTVIClient) -> None:
    for _ in range(50):
        client.off("metrics", client.on("metrics", lambda: None))


def iterate(client: RTVIClient) -> None:
    for _ in range(10):
        with client.events("server_response", timeout=2) as events:
            client.send_client_request("echo", 1)
            next(events, None)  # over memory a reaction may end the session where its event is about to be queued


def wait(client: RTVIClient) -> None:
    for _ in range(5):
        with contextlib.suppress(TimeoutError):
            client.wait_for("server_message", timeout=0.0003)


def process(client: RTVIClient) -> None:
    for _ in range(20):
        client.process_events(0.00001)


def switch(client: RTVIClient) -> None:
    for _ in range(10):
        client.enable_mic(False)
        client.enable_mic(True)
        client.tracks()


def listen(client: RTVIClient) -> None:
    track = client.tracks().local.audio
    if track is not None:
        for _ in range(2):
            next(track.frames(), None)


# -- whose it is ------------------------------------------------------------------------------------------------------


def over_memory(_: str) -> RTVIClient:
    return memory_client(callbacks={"on_server_response": lambda data: None})


def in_manual_mode(_: str) -> RTVIClient:
    client = memory_client(events="manual", callbacks={"on_transport_state_changed": lambda state: None})
    client.on("server_message", lambda data: None)
    return client


def over_websocket(url: str) -> RTVIClient:
    return RTVIClient(transport=WebSocketTransport(url), mic=SilenceSource(), speaker=NullSink(), connect_timeout=5)


#: The action, the client for it, and whether it is connected before.
SCENES: list[tuple[Act, Callable[[str], RTVIClient], bool]] = [
    (connect, over_memory, False),
    (connect, over_websocket, False),
    (enter_and_leave, over_memory, False),
    (enter_and_leave, over_websocket, False),
    (disconnect, over_memory, True),
    (disconnect, over_websocket, True),
    (disconnect, in_manual_mode, True),
    (request, over_memory, True),
    (request, over_websocket, True),
    (send, over_memory, True),
    (send, over_websocket, True),
    (register, over_memory, True),
    (iterate, over_memory, True),
    (iterate, in_manual_mode, True),
    (wait, over_websocket, True),
    (wait, in_manual_mode, True),
    (process, in_manual_mode, True),
    (switch, over_websocket, True),
    (listen, over_websocket, True),
]


# -- the interruptions ------------------------------------------------------------------------------------------------


class Reactions:
    """The actions of a signal handler or a finalizer, one at random: none waits for the bot."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._busy = threading.local()
        self.under_way: list[RTVIClient] = []  # one for each call in progress, on any thread
        self.count = 0

    def react(self, client: RTVIClient) -> None:
        """Do something with `client`; an error of the package is a fine answer."""
        if getattr(self._busy, "now", False):
            return
        if threading.current_thread().name.startswith("rtvi-bot-"):
            return  # collected on a thread of the bot's: in a program that is another process
        self._busy.now = True
        self.under_way.append(client)
        self.count += 1
        try:
            self._rng.choice(self._all)(self, client)
        except (RTVIError, TimeoutError):
            pass
        finally:
            self.under_way.pop()
            self._busy.now = False

    def _send(self, client: RTVIClient) -> None:
        client.send_client_message("note", "from a reaction")

    def _disconnect(self, client: RTVIClient) -> None:
        client.disconnect()

    def _register(self, client: RTVIClient) -> None:
        client.off("metrics", client.on("metrics", lambda: None))

    def _switch(self, client: RTVIClient) -> None:
        client.enable_mic(client.is_mic_enabled)
        client.tracks()

    _all = (_send, _disconnect, _register, _switch)


class Trap:
    """Garbage that reacts when it is collected, wherever that is."""

    def __init__(self, reactions: Reactions, client: RTVIClient) -> None:
        self._reactions = reactions
        self._client = client
        self.me = self

    def __del__(self) -> None:
        self._reactions.react(self._client)


class Hammer:
    """Plays scenes at random and interrupts them."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = kind
        self._rng = random.Random(seed)
        self._reactions = Reactions(random.Random(seed))
        self._armed = False
        self._client: RTVIClient | None = None
        self.strikes = 0
        self.problems: list[str] = []

    def handle(self, _: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if not self._armed:
            return
        if in_coverage(frame):
            signal.setitimer(signal.ITIMER_REAL, AFTER_COVERAGE)
            return
        self._armed = False
        if self._kind == "ctrl-c":
            raise KeyboardInterrupt
        assert self._client is not None
        self._reactions.react(self._client)
        if self._kind == "exit":
            raise SystemExit

    def play(self, url: str) -> str:
        """Play one scene; return its name."""
        act, make, connected = self._rng.choice(SCENES)
        client = make(url)
        name = f"{act.__name__} {make.__name__}"
        if connected:
            client.connect()
        with self._timed(name):
            self._strike_during(lambda: act(client), client)
            if self._kind == "finalizer":
                gc.collect()
                until(lambda: not self._reactions.under_way)
        with self._timed(f"what follows {name}"):
            self._check(client)
        return name

    def _strike_during(self, call: Callable[[], Any], client: RTVIClient) -> None:
        self._client = client
        try:
            if self._kind == "finalizer":
                for _ in range(5):
                    Trap(self._reactions, client)
                call()
            else:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, self._rng.uniform(1e-5, self._rng.choice((4e-4, 4e-3))))
                call()
                self._armed = False
        except (KeyboardInterrupt, SystemExit):
            self.strikes += 1
        except RTVIError:
            # A reaction has ended the session.
            if self._kind == "ctrl-c":
                raise
        finally:
            self._client = None

    def _check(self, client: RTVIClient) -> None:
        """Check that the client does all that it could before."""
        client.disconnect()
        client.connect()
        assert client.send_client_request("echo", [1]) == [1]
        if isinstance(transport_of(client), WebSocketTransport):
            client.enable_mic(True)
            assert next(client.tracks().local.audio.frames(), None)  # type: ignore[union-attr]
        else:
            heard: list[Any] = []
            client.on("server_message", heard.append)
            say(client, 7)
            process_events(client)
            until(lambda: heard == [7])
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        with Stopwatch() as watch:
            try:
                yield
            except BaseException:
                self.problems.append(f"{what}: {traceback.format_exc()}")
        if watch.given > TOO_LONG:
            self.problems.append(f"{what} took {watch.took:.1f} s, {watch.given:.1f} s on an idle machine")

    def _count(self) -> int:
        return self.strikes if self._kind in ("ctrl-c", "exit") else self._reactions.count

    def run(self, seconds: float, strikes: int) -> dict[str, Any]:
        """Play scenes for a time, and until a number of strikes has hit; return the counts."""
        played: dict[str, int] = {}
        with EmbeddedBot() as bot:
            ends = time.monotonic() + seconds
            while (time.monotonic() < ends or self._count() < strikes) and len(self.problems) < 5:
                name = self.play(bot.ws_url)
                played[name] = played.get(name, 0) + 1
            gc.collect()
        try:
            until(lambda: not own_threads())
        except AssertionError:
            self.problems.append(f"left behind: {own_threads()}")
        return {"played": played, "strikes": self._count(), "problems": self.problems}


def main(kind: str, seconds: float, strikes: int, seed: int) -> None:
    """Hammer, and print the result."""
    metronome()  # not first where a signal may strike
    faulthandler.dump_traceback_later(seconds + 3 * GUARD, exit=True)
    logging.disable(logging.CRITICAL)
    hammer = Hammer(kind, seed)
    # Python can only report an exception of a handler inside a finalizer or the callback of a weak reference.
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda args: hammer.problems.append(f"{args.thread} died: {args.exc_value!r}")
    signal.signal(signal.SIGALRM, hammer.handle)
    if kind == "finalizer":
        gc.set_threshold(7, 2, 2)
    tell(json.dumps(hammer.run(seconds, strikes)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
