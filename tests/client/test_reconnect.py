"""When a client replaces a lost session, if the program asks for it, and which state it keeps."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import queue
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    BotAlreadyStartedError,
    BotError,
    BotNotReadyError,
    BotReadyData,
    CloseInfo,
    ConnectionTimeoutError,
    DisconnectedError,
    EventStream,
    MemoryTransport,
    ProtocolError,
    ReconnectingData,
    ReconnectPolicy,
    RequestRejectedError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    RTVIMessage,
    StartBotError,
    TransportStartError,
    is_transient,
    signals,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import (
    deaf_bot,
    memory_client,
    ready_bot,
    silent_bot,
    transport_of,
    websocket_client,
)
from tests.support.forking import in_child
from tests.support.http_server import Answer, Request, ScriptedServer
from tests.support.limits import changed
from tests.support.moments import at
from tests.support.probes import forget_what_follows, is_retrying, session_has_ended, set_bot, waiting_calls
from tests.support.slowness import GUARD, Stopwatch, at_some_limit, takes
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until

NETWORK = CloseInfo(initiator="network")
QUICK = ReconnectPolicy(initial_delay=0.01, max_delay=0.05, stable_after=0.05)
# Long enough that nothing happens while a test looks.
SLOW = ReconnectPolicy(initial_delay=1000.0, max_delay=1000.0)


class Telling:
    """Collects a client's reports about its sessions, in order."""

    NAMES = ("connected", "bot_ready", "bot_disconnected", "disconnected", "reconnecting", "reconnect_failed")

    def __init__(self, client: RTVIClient) -> None:
        self.heard: list[tuple[str, Any]] = []
        for name in self.NAMES:
            client.on(RTVIEvent(name), lambda data=None, name=name: self.heard.append((name, data)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.heard]

    def data(self, name: str) -> list[Any]:
        return [data for heard, data in self.heard if heard == name]


class MoodyBot:
    """A bot that follows its instructions, session after session, and is ready after the last one."""

    def __init__(self, *moods: BaseException | str) -> None:
        self.moods = list(moods)
        self.begun = 0

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type != "client-ready":
            yield from ready_bot(transport, message)
            return
        self.begun += 1
        mood = self.moods.pop(0) if self.moods else "ready"
        if isinstance(mood, BaseException):
            raise mood
        yield from ready_bot(transport, message)
        if mood == "flighty":
            threading.Thread(target=transport.end, args=(NETWORK,)).start()


@contextlib.contextmanager
def reconnecting_client(bot: Any = ready_bot, policy: ReconnectPolicy = QUICK, **options: Any) -> Iterator[RTVIClient]:
    """Yield a client that has connected; end all that it leaves."""
    client = memory_client(bot, reconnect=policy, **options)
    try:
        yield client
    finally:
        client.close()
        until(lambda: not thread_names())


def lose(client: RTVIClient, info: CloseInfo = NETWORK) -> None:
    transport_of(client).end(info)


def pending(client: RTVIClient) -> None:
    """Wait until the client waits for its next attempt."""
    until(lambda: is_retrying(client))


# -- the course of a reconnection -------------------------------------------------------------------------------------


def test_a_lost_session_is_replaced() -> None:
    """The lost session is told to its end, then the attempt, then the new session as any other; handlers are kept."""
    with reconnecting_client() as client:
        telling = Telling(client)
        client.connect()
        until(lambda: "bot_ready" in telling.names)  # it may be told after connect() has returned
        with client.events("bot_ready", timeout=GUARD) as ready:
            lose(client)
            assert next(ready).data.version == "2.2.0"
        assert client.state == "ready"
        assert client.send_client_request("echo", "again") == "again"
        until(lambda: telling.names.count("bot_ready") == 2)
        assert telling.names == [
            *("connected", "bot_ready", "bot_disconnected", "disconnected"),
            *("reconnecting", "connected", "bot_ready"),
        ]
        assert [info.reconnecting for info in telling.data("disconnected")] == [True]
        (told,) = telling.data("reconnecting")
        assert isinstance(told, ReconnectingData)
        assert (told.attempt, told.max_attempts) == (1, 10)
        assert isinstance(told.error, DisconnectedError)
        assert told.error.initiator == "network"
        until(lambda: client.stats().reconnects == 1)  # it is counted by the thread that has connected
        assert client.stats().sessions == 2


def test_over_a_real_socket() -> None:
    """A server that restarts and one that vanishes without a word are both reconnected to, mute as before."""
    with EmbeddedBot() as bot, websocket_client(bot, reconnect=QUICK) as client:
        client.enable_mic(False)
        ended = iter((lambda s: s.close(1012), lambda s: s.close(1011), lambda s: s.drop()))
        for end in ended:
            session = bot.wait_for_session()
            ready = InThread(lambda: client.wait_for("bot_ready", timeout=GUARD))
            until(lambda: waiting_calls(client))
            end(session)
            ready.get()
            assert not client.is_mic_enabled
            assert client.send_client_request("echo", 1) == 1
        client.disconnect()


def test_off_unless_asked_for() -> None:
    """Without a policy a lost session stays lost."""
    client = memory_client()
    client.connect()
    lose(client)
    until(lambda: not thread_names())
    assert client.state == "disconnected"


@pytest.mark.parametrize(
    "info",
    [
        CloseInfo(code=1000, initiator="server"),
        CloseInfo(initiator="server", error=BotError("it is broken", fatal=True)),
        CloseInfo(initiator="server", error=ProtocolError("what?")),
        CloseInfo(code=1008, reason="policy", initiator="server"),
        CloseInfo(code=4001, initiator="server"),
    ],
    ids=lambda info: f"{info.code} {info.error}",
)
def test_an_end_that_is_meant_stays(info: CloseInfo) -> None:
    """A bot that has ended the session, for good or for bad, is not bothered again."""
    with reconnecting_client() as client:
        telling = Telling(client)
        client.connect()
        lose(client, info)
        until(lambda: not thread_names())
        assert telling.heard[-1] == ("disconnected", info)
        assert client.state == "disconnected"


def test_it_goes_on_trying() -> None:
    """Each attempt is announced: number, a random delay below the growing limit, and why the last one failed."""
    bot = MoodyBot("ready", *(TransportStartError(f"no {n}", status=503) for n in range(4)))
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.04, stable_after=0.05)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: telling.names.count("bot_ready") == 2)
        told = telling.data("reconnecting")
        assert [data.attempt for data in told] == [1, 2, 3, 4, 5]
        assert [str(data.error) for data in told[1:]] == ["no 0", "no 1", "no 2", "no 3"]
        assert all(0 <= data.delay <= limit for data, limit in zip(told, (0.01, 0.02, 0.04, 0.04, 0.04), strict=True))
        assert len({data.delay for data in told}) > 1
        assert "reconnect_failed" not in telling.names


def test_it_gives_up() -> None:
    """After the last attempt `reconnect_failed` says why, calls that wait for a session raise, and connect() works."""
    bot = MoodyBot("ready", *(TransportStartError(f"no {n}") for n in range(3)))
    policy = ReconnectPolicy(max_attempts=3, initial_delay=0.02, max_delay=0.02)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        until(lambda: "bot_ready" in telling.names)
        waiting = InThread(lambda: client.wait_for("reconnect_failed", timeout=GUARD))
        until(lambda: waiting_calls(client))
        lose(client)
        with pytest.raises(DisconnectedError, match="no 2"):
            client.wait_for("bot_ready", timeout=GUARD)
        assert waiting.get().data.attempts == 3
        until(lambda: not thread_names())
        (failed,) = telling.data("reconnect_failed")
        assert (failed.attempts, str(failed.error)) == (3, "no 2")
        assert telling.names[-1] == "reconnect_failed"
        assert bot.begun == 4
        client.connect()
        assert client.send_client_request("echo", 1) == 1


def test_a_refusal_ends_it_at_once() -> None:
    """An error that is permanent stops the attempts at once."""
    bot = MoodyBot("ready", TransportStartError("who are you?", status=401))
    with reconnecting_client(bot) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        (failed,) = telling.data("reconnect_failed")
        assert failed.attempts == 1
        assert failed.error.status == 401
        assert bot.begun == 2


# -- the client's state during a reconnection, and the errors of calls ------------------------------------------------


def states_of(client: RTVIClient) -> list[str]:
    """Return the states that `client` tells from now on."""
    states: list[str] = []
    client.on("transport_state_changed", lambda state: states.append(str(state)))
    return states


REPLACED = ["initializing", "initialized", "connecting", "connected"]


def test_the_states_of_attempts() -> None:
    """Between attempts the state is `disconnected`, and when none follows: `error` is for a connect() that failed."""
    bot = MoodyBot("ready", TransportStartError("no 0"), TransportStartError("no 1"), "ready")
    between: list[str] = []
    with reconnecting_client(bot) as client:
        client.connect()
        states, telling = states_of(client), Telling(client)
        client.on("reconnecting", lambda: between.append(states[-1]))
        lose(client)
        until(lambda: "bot_ready" in telling.names)
        assert between == ["disconnected"] * 3
        failed = [*REPLACED, "disconnecting", "disconnected"]
        assert states == ["disconnecting", "disconnected", *failed, *failed, *REPLACED, "ready"]


def test_the_states_when_it_gives_up() -> None:
    """The state stays `disconnected` after the last attempt; an application's connect() that fails sets `error`."""
    bot = MoodyBot("ready", TransportStartError("who are you?", status=401), TransportStartError("still no"))
    with reconnecting_client(bot) as client:
        client.connect()
        states, telling = states_of(client), Telling(client)
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        assert client.state == "disconnected"
        assert states[-1] == "disconnected"
        with pytest.raises(TransportStartError, match="still no"):
            client.connect()
        assert client.state == "error"


def refused_by(server: ScriptedServer, client: RTVIClient) -> None:
    """Lose the session of `client`, whose server then refuses to start another bot."""
    server.answers["/connect/"] = Answer({"info": "the key has expired"}, 401)
    gave_up = threading.Event()
    client.once("reconnect_failed", gave_up.set)
    lose(client)
    assert gave_up.wait(GUARD)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.send_text("hello"),
        lambda client: client.send_client_request("echo", 1),
        lambda client: client.get_bot_config(),
        lambda client: client.disconnect_bot(),
    ],
    ids=["send_text", "send_client_request", "get_bot_config", "disconnect_bot"],
)
@pytest.mark.parametrize("disconnects", [False, True])
def test_calls_say_why_it_gave_up(server: ScriptedServer, call: Any, disconnects: bool) -> None:
    """After the last attempt a call that needs the bot tells why that failed, in its words and as its cause, whether
    or not the program has called disconnect() since."""
    server.answers["/connect/"] = Answer({})
    with reconnecting_client(params={"base_url": server.url}) as client:
        client.connect()
        refused_by(server, client)
        if disconnects:
            client.disconnect()
        with pytest.raises(BotNotReadyError, match=r"after 1 attempt: .*the key has expired.*connect\(\)") as told:
            call(client)
        cause = told.value.__cause__
        assert isinstance(cause, StartBotError)
        assert cause.status == 401


def test_the_next_session_forgets_why_it_gave_up(server: ScriptedServer) -> None:
    """Errors describe the last session, and not an earlier one."""
    server.answers["/connect/"] = Answer({})
    with reconnecting_client(params={"base_url": server.url}) as client:
        client.connect()
        refused_by(server, client)
        server.answers["/connect/"] = Answer({})
        client.connect()
        client.disconnect()
        with pytest.raises(BotNotReadyError, match=r"This client ended the session"):
            client.send_text("hello")


def test_why_no_session_could_begin() -> None:
    """An attempt that has not even a session, for want of descriptors, is reported as any other."""

    def none_left(*_: object) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    policy = ReconnectPolicy(max_attempts=2, initial_delay=0.01, max_delay=0.02)
    with reconnecting_client(policy=policy) as client:
        telling = Telling(client)
        client.connect()
        until(lambda: "bot_ready" in telling.names)
        with at("a session takes its threads", none_left), at("the reconnect thread takes its threads", none_left):
            lose(client)
            until(lambda: "reconnect_failed" in telling.names)
            (failed,) = telling.data("reconnect_failed")
            assert failed.attempts == 2
            assert isinstance(failed.error, TransportStartError)
        with pytest.raises(BotNotReadyError, match=r"Too many open files.*ulimit -n"):
            client.send_text("hello")
        assert client.state == "disconnected"


def test_a_thread_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no thread for the attempts makes the client give up, and send_text() say why."""
    start = threading.Thread.start

    def none_left(thread: threading.Thread) -> None:
        if "reconnect" in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with reconnecting_client() as client:
        telling = Telling(client)
        client.connect()
        monkeypatch.setattr(threading.Thread, "start", none_left)
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        with pytest.raises(BotNotReadyError, match="can't start new thread"):
            client.send_text("hello")


def test_no_attempt_after_the_elapsed_limit() -> None:
    """With `max_elapsed` no attempt starts after the limit."""
    policy = ReconnectPolicy(max_attempts=None, max_elapsed=2.0, initial_delay=0.02, max_delay=0.02)

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if begun:
            raise TransportStartError("no")
        begun.append(time.monotonic())
        return ready_bot(transport, message)

    begun: list[float] = []
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        assert telling.data("reconnect_failed")[0].attempts > 1


def test_a_session_that_does_not_last_is_a_failed_attempt() -> None:
    """A server that accepts each session and ends it at once meets growing delays and the limit of attempts."""
    bot = MoodyBot("ready", *["flighty"] * 9)
    policy = ReconnectPolicy(max_attempts=3, initial_delay=0.01, max_delay=0.02, stable_after=GUARD)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        assert [data.attempt for data in telling.data("reconnecting")] == [1, 2, 3]
        assert telling.names.count("bot_ready") == 4
        assert bot.begun == 4


def test_a_loss_is_told_after_the_last_attempt() -> None:
    """A close thread that reports a loss after the client has given up does not start to replace the session again."""
    bot = MoodyBot("ready", "flighty")
    policy = ReconnectPolicy(max_attempts=1, initial_delay=0.01, max_delay=0.02, stable_after=GUARD)
    told = threading.Event()

    def late(go_on: Callable[[], object], number: int) -> None:
        if number == 2:
            until(lambda: "reconnect_failed" in telling.names)
            until(lambda: not any("-reconnect-" in name for name in thread_names()))
        go_on()
        if number == 2:
            told.set()

    with at("a loss is passed on", late), reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        assert told.wait(GUARD)
        until(lambda: not thread_names())
        assert telling.names[-1] == "reconnect_failed"
        assert bot.begun == 2


def test_a_session_that_lasts_begins_a_new_count() -> None:
    """Losses that lie apart do not add up."""
    policy = ReconnectPolicy(max_attempts=1, initial_delay=0.01, max_delay=0.02, stable_after=0.05)
    with reconnecting_client(policy=policy) as client:
        telling = Telling(client)
        client.connect()
        for times in (2, 3, 4):
            lose(client)
            until(partial(lambda times: telling.names.count("bot_ready") == times, times))
            until(lambda: not any("-reconnect-" in name for name in thread_names()))
        assert [data.attempt for data in telling.data("reconnecting")] == [1, 1, 1]
        until(lambda: client.stats().reconnects == 3)


def test_a_session_that_does_not_last_and_was_meant_to_end() -> None:
    """A new session that the bot ends on purpose is simply over."""
    with reconnecting_client(policy=ReconnectPolicy(initial_delay=0.01, stable_after=GUARD)) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: telling.names.count("bot_ready") == 2)
        lose(client, CloseInfo(code=1000, initiator="server"))
        until(lambda: not thread_names())
        assert telling.names[-1] == "disconnected"


# -- the request ------------------------------------------------------------------------------------------------------


def single_use(server: ScriptedServer, path: str) -> list[str]:
    """Let an endpoint issue a new token for each request; return the list of tokens."""
    given: list[str] = []

    def answer(_: Request) -> Answer:
        given.append(f"token-{len(given)}")
        return Answer({"token": given[-1]})

    server.answers[path] = answer
    return given


@pytest.mark.parametrize("way", ["connect", "start", "handler", "given"])
def test_what_an_attempt_connects_with(server: ScriptedServer, way: str) -> None:
    """Request and handler are called again, so that tokens are fresh; the parameters of connect() are used again."""
    given = single_use(server, "/connect/")
    single_use(server, "/start")
    options: dict[str, Any] = {"params": {"base_url": server.url}}
    if way == "handler":
        given = []

        def handler(*_: Any) -> Any:
            given.append(f"token-{len(given)}")
            return {"token": given[-1]}

        options["custom_connect_handler"] = handler
    with reconnecting_client(**options) as client:
        transport = transport_of(client)
        if way == "start":
            given.clear()
            client.start_bot_and_connect(f"{server.url}/start")
        else:
            client.connect({"token": "mine"} if way == "given" else None)
        seen = [transport.auth_bundle["token"]]
        for _ in range(2):
            lose(client)
            until(lambda: client.state == "disconnected" or client.stats().sessions > len(seen))
            until(lambda: client.state == "ready" and client.stats().sessions > len(seen))
            seen.append(transport.auth_bundle["token"])
        assert seen == (["mine"] * 3 if way == "given" else ["token-0", "token-1", "token-2"])


def test_each_attempt_has_the_limit_of_connect() -> None:
    """A bot that does not get ready within connect_timeout is a failed attempt, and another one follows."""
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.05, max_attempts=None)

    def check(limit: float) -> None:
        with reconnecting_client(policy=policy, connect_timeout=limit) as client:
            telling = Telling(client)
            client.connect()
            set_bot(client, silent_bot)
            lose(client)
            until(lambda: telling.names.count("reconnecting") >= 2)
            set_bot(client, ready_bot)
            until(lambda: telling.names.count("bot_ready") == 2)
            assert isinstance(telling.data("reconnecting")[1].error, ConnectionTimeoutError)

    at_some_limit(check)


# -- the program's word -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["disconnect", "close"])
def test_disconnect_ends_the_waiting(end: str) -> None:
    """disconnect() and close() while the client waits for its next attempt: no attempt follows, no thread is left."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        lose(client)
        pending(client)
        with takes(5.0):
            getattr(client, end)()
        assert thread_names() == []
        assert client.stats().sessions == 1


@pytest.mark.parametrize("event", ["disconnected", "reconnecting", "bot_disconnected"])
def test_disconnect_in_a_handler(event: str) -> None:
    """disconnect() in the handler that reports the loss: no attempt follows."""
    with reconnecting_client(policy=SLOW) as client:
        client.on(RTVIEvent(event), client.disconnect)
        client.connect()
        lose(client)
        until(lambda: not thread_names())
        assert client.stats().sessions == 1
        assert client.state == "disconnected"


def test_disconnect_before_the_first_attempt() -> None:
    """disconnect() while connect() imports the code that repeats it: no attempt is made."""
    begins, go_on = threading.Event(), threading.Event()

    def slowly(proceed: Callable[[], Any], _: object) -> Any:
        begins.set()
        assert go_on.wait(GUARD)
        return proceed()

    bot, policy = MoodyBot(), attrs.evolve(QUICK, first_connect=True)
    with at("connect() prepares to repeat itself", slowly), reconnecting_client(bot, policy) as client:
        connecting = InThread(client.connect)
        assert begins.wait(GUARD)
        client.disconnect()
        go_on.set()
        assert isinstance(connecting.error(), DisconnectedError)
        assert (bot.begun, client.state) == (0, "disconnected")


def test_disconnect_ends_an_attempt() -> None:
    """disconnect() while an attempt is under way ends it, and no other follows."""
    entered = threading.Event()

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if bots:
            entered.set()
            return ()
        bots.append(1)
        return ready_bot(transport, message)

    bots: list[int] = []
    with reconnecting_client(bot) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        assert entered.wait(GUARD)
        client.disconnect()
        assert thread_names() == []
        assert client.stats().sessions == 2
        assert "reconnect_failed" not in telling.names


def test_disconnect_while_an_attempt_begins() -> None:
    """disconnect() while an attempt makes its session, which no other thread sees yet, leaves no session."""
    begins, go_on = threading.Event(), threading.Event()

    def slowly(proceed: Callable[[], Any], _: object) -> Any:
        begins.set()
        assert go_on.wait(GUARD)
        return proceed()

    with reconnecting_client() as client:
        telling = Telling(client)
        client.connect()
        with at("a session is made", slowly):
            lose(client)
            assert begins.wait(GUARD)
            disconnecting = InThread(client.disconnect)
            until(lambda: not is_retrying(client))
            go_on.set()
            disconnecting.get()
        assert thread_names() == []
        assert client.state == "disconnected"
        assert telling.names.count("connected") == 1


def test_connect_takes_over() -> None:
    """connect() while the client waits: it connects at once, and the waiting is over."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        lose(client)
        pending(client)
        client.connect()
        assert client.state == "ready"
        until(lambda: not any("-reconnect-" in name for name in thread_names()))
        assert (client.stats().sessions, client.stats().reconnects) == (2, 0)
        lose(client)
        pending(client)  # the new session is looked after as well


def test_disconnect_after_connect_has_taken_over() -> None:
    """disconnect() ends the session of that connect(), though the rule still thinks about a failed attempt."""
    thinks, goes_on = threading.Event(), threading.Event()

    def rule(error: BaseException) -> bool:
        if isinstance(error, TransportStartError):
            thinks.set()
            goes_on.wait(GUARD)
        return True

    policy = attrs.evolve(QUICK, retry_on=rule)
    with reconnecting_client(MoodyBot("ready", TransportStartError("no")), policy) as client:
        client.connect()
        lose(client)
        assert thinks.wait(GUARD)
        client.connect()
        client.disconnect()
        goes_on.set()
        assert client.state == "disconnected"


def test_disconnect_as_an_attempt_fails() -> None:
    """The state remains the lost session's, because no `connect()` of the application has failed."""
    disconnected = threading.Event()

    class Leaving(MemoryTransport):
        def connect(self, auth_bundle: Any, abort_signal: Any) -> None:
            if client.stats().sessions == 2:
                abort_signal.on_abort(disconnect)  # the attempt has failed, and is ending
            super().connect(auth_bundle, abort_signal)

    def disconnect() -> None:
        client.disconnect()
        disconnected.set()

    transport = Leaving(MoodyBot("ready", TransportStartError("no")))
    client = RTVIClient(transport=transport, reconnect=QUICK, connect_timeout=GUARD)
    with contextlib.closing(client):
        client.connect()
        lose(client)
        assert disconnected.wait(GUARD)
        assert (client.state, client.stats().sessions) == ("disconnected", 2)


def test_a_session_that_was_replaced_while_a_signal_handler_ran() -> None:
    """connect() raises a signal handler's error, and leaves no session, not even the one that replaced its own."""

    class EnoughError(Exception):
        pass

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready" and client.stats().sessions == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            assert handles.wait(GUARD)
        yield from ready_bot(transport, message)

    def handle(*_: object) -> None:
        handles.set()
        until(lambda: client.state == "ready")
        lose(client)
        until(lambda: client.state == "ready" and client.stats().reconnects == 1)
        raise EnoughError

    handles = threading.Event()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with reconnecting_client(bot) as client:
            with pytest.raises(EnoughError):
                client.connect()
            assert client.state == "disconnected"
            until(lambda: not [name for name in thread_names() if "reconnect" in name])
            assert client.stats().sessions == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_connect_in_the_handler_of_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    """A program that connects by itself when it is told of the loss has one session, not two, and no log says that the
    client connects.
    """
    caplog.set_level("INFO", "rtvi_sync")
    with reconnecting_client() as client:
        failures: list[BaseException] = []
        client.on("handler_error", lambda data: failures.append(data.error))
        client.connect()
        client.once("disconnected", client.connect)
        telling = Telling(client)
        lose(client)
        until(lambda: client.state == "ready" and client.stats().sessions == 2)
        assert client.send_client_request("echo", 1) == 1
        assert (client.stats().reconnects, failures) == (0, [])
        until(lambda: not [name for name in thread_names() if "close" in name or "reconnect" in name])
        assert "reconnecting" not in telling.names
        assert "The session is lost" not in caplog.text


@pytest.mark.parametrize("connects", [True, False])
def test_start_bot_in_the_handler_of_disconnected(connects: bool, server: ScriptedServer) -> None:
    """If start_bot(), alone or after connect(), fails in that handler, the lost session is not replaced, and calls that
    wait for the next session end.
    """
    failed: list[BaseException] = []
    server.answers["/start"] = Answer({"info": "no"}, 500)

    def begin_again() -> None:
        for call in (client.connect, lambda: client.start_bot(f"{server.url}/start"))[not connects :]:
            try:
                call()
            except RTVIError as error:
                failed.append(error)

    with reconnecting_client(MoodyBot("ready", StartBotError("no"))) as client:
        telling = Telling(client)
        client.connect()
        client.once("disconnected", begin_again)
        with client.events("metrics", timeout=GUARD) as waiting:
            lose(client)
            assert [*waiting] == []
        until(lambda: not thread_names())
        assert len(failed) == client.stats().sessions == 1 + connects
        assert "reconnecting" not in telling.names


def test_connect_while_an_attempt_is_under_way() -> None:
    """connect() during an attempt is refused as during any other; the attempt goes on."""
    go_on, entered = threading.Event(), threading.Event()

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if bots:
            entered.set()
            assert go_on.wait(GUARD)
        bots.append(1)
        return ready_bot(transport, message)

    bots: list[int] = []
    with reconnecting_client(bot) as client:
        client.connect()
        lose(client)
        assert entered.wait(GUARD)
        with pytest.raises(BotAlreadyStartedError):
            client.connect()
        # A call that needs the bot does not advise to wait for a connect() that does not exist either.
        with pytest.raises(BotNotReadyError, match=r"attempt 1 of 10.*call wait_until_ready\(\)") as told:
            client.send_text("hello")
        assert isinstance(told.value.__cause__, DisconnectedError)
        go_on.set()
        until(lambda: client.state == "ready")
        until(lambda: client.stats().reconnects == 1)


def test_what_a_call_is_told_meanwhile() -> None:
    """A call that needs the bot says that the client reconnects, when, and how to wait for it."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        lose(client)
        pending(client)
        said = r"attempt 1 of 10 within \d+\.\d s.*call wait_until_ready\(\)"
        with pytest.raises(BotNotReadyError, match=said) as told:
            client.send_text("hello")
        assert isinstance(told.value.__cause__, DisconnectedError)
        assert "call connect()" not in str(told.value.__cause__)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            CloseInfo(initiator="server", code=1000),
            "There is no bot (The bot ended the session (code 1000)): call connect() first",
        ),
        (
            NETWORK,
            "There is no bot: The connection to the bot was lost; the client reconnects by itself; "
            "call wait_until_ready() before you try again",
        ),
    ],
    ids=["meant", "lost"],
)
def test_what_a_call_is_told_after_a_session_that_replaced_another(info: CloseInfo, said: str) -> None:
    """The end of a session that has replaced a lost one is told as it is: the attempt that made it is over."""
    told = queue.SimpleQueue[str]()
    with reconnecting_client(policy=ReconnectPolicy(initial_delay=0.01, stable_after=GUARD)) as client:
        client.connect()
        with client.events("bot_ready", timeout=GUARD) as ready:
            lose(client)
            next(ready)
        until(lambda: not is_retrying(client))

        def ask() -> None:
            with pytest.raises(RTVIError) as caught:
                client.send_text("Are you there?")
            told.put(str(caught.value))

        client.on("disconnected", ask)
        lose(client, info)
        assert told.get(timeout=GUARD) == said


def test_what_a_call_is_told_before_the_first_attempt_is_planned() -> None:
    """A call before the first attempt is planned raises an error that says that the client reconnects."""
    told = queue.SimpleQueue[str]()
    with reconnecting_client(policy=SLOW) as client:

        def ask() -> None:
            try:
                client.send_text("hello")
            except BotNotReadyError as error:
                told.put(str(error))

        client.on("disconnected", ask)
        client.connect()
        lose(client)
        assert told.get(timeout=GUARD) == (
            "There is no bot: The connection to the bot was lost; the client reconnects by itself; "
            "call wait_until_ready() before you try again"
        )


def test_an_attempt_of_connect_is_no_lost_session() -> None:
    """Ctrl-C may arrive between two transports, when the first session has no successor yet: then none follows."""
    policy = ReconnectPolicy()
    with contextlib.closing(memory_client(silent_bot, reconnect=policy, connect_timeout=0.05)) as client:
        with pytest.raises(ConnectionTimeoutError):
            client.connect()
        forget_what_follows(client)
        with pytest.raises(BotNotReadyError, match=r"the last attempt to connect failed"):
            client.send_text("hello")


def test_an_action_before_the_first_attempt_is_planned(server: ScriptedServer) -> None:
    """An action before the first attempt is planned is refused, and not sent by HTTP to a bot of its own."""
    told = queue.SimpleQueue[BaseException]()
    with reconnecting_client(policy=SLOW, params={"base_url": server.url}) as client:

        def act() -> None:
            until(lambda: session_has_ended(client))
            try:
                client.action({"service": "llm", "action": "run"})
            except RTVIError as error:
                told.put(error)

        client.on("disconnected", act)
        client.connect({})
        lose(client)
        assert isinstance(told.get(timeout=GUARD), BotNotReadyError)
    assert server.requests == []


def test_what_a_call_is_told_after_disconnect() -> None:
    """After the application has stopped the reconnection, it has to start the next session itself."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        lose(client)
        pending(client)
        client.disconnect()
        with pytest.raises(BotNotReadyError, match=r"lost\): call connect\(\) first"):
            client.send_text("hello")


def test_calls_that_wait_fail_as_ever() -> None:
    """A request that waits when the session is lost raises; it is not sent again by itself."""
    with reconnecting_client(deaf_bot) as client:
        client.connect()
        waiting = InThread(lambda: client.send_client_request("never"))
        until(lambda: len(transport_of(client).sent) == 2)
        lose(client)
        assert isinstance(waiting.error(), DisconnectedError)
        until(lambda: client.stats().reconnects == 1)
        assert [message.type for message in transport_of(client).sent].count("client-message") == 1


def test_retry_on_decides() -> None:
    """The program's own rule sees the error of the loss and of each failed attempt, and is believed."""
    asked: list[BaseException] = []

    def rule(error: BaseException) -> bool:
        asked.append(error)
        return not isinstance(error, StartBotError)

    bot = MoodyBot("ready", TransportStartError("no", status=404), StartBotError("no"))
    policy = ReconnectPolicy(initial_delay=0.01, retry_on=rule)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client, CloseInfo(code=1000, initiator="server"))
        until(lambda: "reconnect_failed" in telling.names)
        kinds = list(dict.fromkeys(type(error) for error in asked))
        assert kinds == [DisconnectedError, TransportStartError, StartBotError]


def test_what_a_call_is_told_while_the_rule_decides() -> None:
    """The client may reconnect, so the error does not advise to call connect()."""
    asked, decided = threading.Event(), threading.Event()

    def rule(_: BaseException) -> bool:
        asked.set()
        return decided.wait(GUARD)

    with reconnecting_client(policy=ReconnectPolicy(initial_delay=0.01, retry_on=rule)) as client:
        client.connect()
        lose(client)
        assert asked.wait(GUARD)
        with pytest.raises(
            BotNotReadyError, match=r"the client may reconnect by itself; call wait_until_ready\(\)"
        ) as told:
            client.send_text("hello")
        assert is_transient(told.value)
        decided.set()
        client.wait_until_ready(GUARD)


def test_a_rule_that_disconnects() -> None:
    """disconnect() inside of the rule returns at once, and no attempt follows whatever the rule answers."""
    watch = Stopwatch()

    def rule(_: BaseException) -> bool:
        with watch:
            client.disconnect()
        return True

    with reconnecting_client(policy=ReconnectPolicy(initial_delay=0.01, retry_on=rule)) as client:
        client.connect()
        lose(client)
        until(lambda: not thread_names())
        assert client.stats().sessions == 1
        assert watch.took > 0
        assert watch.given < 5.0


def test_a_rule_that_disconnects_after_a_failed_attempt(caplog: pytest.LogCaptureFixture) -> None:
    """A retry_on rule may disconnect, though it runs on the thread for which `disconnect()` waits elsewhere."""
    done = threading.Event()

    def rule(error: BaseException) -> bool:
        if isinstance(error, TransportStartError):
            client.disconnect()
            done.set()
        return True

    policy = ReconnectPolicy(initial_delay=0.01, retry_on=rule)
    with reconnecting_client(MoodyBot("ready", TransportStartError("no")), policy) as client:
        client.connect()
        lose(client)
        assert done.wait(GUARD)
        until(lambda: not thread_names())
        assert client.stats().reconnects == 0
    assert "retry_on" not in caplog.text


def test_the_log_tells_a_failed_attempt_from_a_lost_session(caplog: pytest.LogCaptureFixture) -> None:
    """The log warns of the loss of a session once, and of each attempt that fails after it, with its number."""
    caplog.set_level("INFO", "rtvi_sync")
    bot = MoodyBot("ready", TransportStartError("no way"), TransportStartError("no way again."), "ready")
    with reconnecting_client(bot, attrs.evolve(QUICK, max_attempts=4)) as client:
        client.connect()
        lose(client)
        until(lambda: client.stats().reconnects == 1)
        until(lambda: len(caplog.records) == 4)
    told = [re.sub(r"within .* s", "soon", record.getMessage()) for record in caplog.records]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    assert told == [
        "The session is lost: The connection to the bot was lost. The client makes attempt 1 of 4 soon",
        "Attempt 1 to replace the lost session failed: no way. The client makes attempt 2 of 4 soon",
        "Attempt 2 to replace the lost session failed: no way again. The client makes attempt 3 of 4 soon",
        "The lost session was replaced, by attempt 3",
    ]


def test_a_failed_attempt_of_a_repeated_connect_is_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """While `connect()` repeats, no other call says that it has failed; the error and the log have the attempt."""
    policy = ReconnectPolicy.forever(initial_delay=0.01, max_attempts=2)
    moody, was_sent = MoodyBot(TransportStartError("no way")), threading.Event()

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        assert not moody.begun or was_sent.wait(GUARD)
        yield from moody(transport, message)

    refused: list[BotNotReadyError] = []
    with reconnecting_client(bot, policy) as client:

        @client.on("reconnecting")
        def send() -> None:
            try:
                client.send_client_message("hello")
            except BotNotReadyError as error:
                refused.append(error)
            was_sent.set()

        client.connect()
    (error,) = refused
    attempt = r"attempt 2 of 2 within 0\.0 s"
    assert re.fullmatch(rf"There is no bot yet: connect\(\) makes {attempt}; call wait_until_ready\(\).*", str(error))
    assert isinstance(error.__cause__, TransportStartError)
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert re.fullmatch(rf"Attempt 1 to connect failed: no way\. The client makes {attempt}", told)


@pytest.mark.parametrize("answer", [True, False])
def test_a_rule_that_starts_a_bot(answer: bool, server: ScriptedServer) -> None:
    """A session whose rule starts a bot is not replaced, no event says that it is, or why it is not, and no rule is
    asked again.
    """
    asked: list[type[BaseException]] = []

    def rule(error: BaseException) -> bool:
        asked.append(type(error))
        if isinstance(error, TransportStartError):  # of the first attempt
            with pytest.raises(StartBotError):
                client.start_bot(server.url)
            return answer
        return True

    bot, policy = MoodyBot("ready", TransportStartError("no")), ReconnectPolicy(initial_delay=0.01, retry_on=rule)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: client.state == "error")
        until(lambda: not thread_names())
        assert telling.names.count("reconnecting") == 1
        assert "reconnect_failed" not in telling.names
        assert asked == [DisconnectedError, TransportStartError]


@pytest.mark.parametrize("status", [200, 500])
def test_a_bot_is_started_instead(status: int, server: ScriptedServer) -> None:
    """Nothing replaces the session any more: wait() returns when the bot cannot be started, or with disconnect()."""
    server.answers["/start"] = Answer({"url": "ws://there"}, status)
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        waits = InThread(lambda: client.wait(GUARD))
        until(lambda: waiting_calls(client))
        lose(client)
        pending(client)
        if status == 200:
            client.start_bot(f"{server.url}/start")
            client.disconnect()
        else:
            with pytest.raises(StartBotError):
                client.start_bot(f"{server.url}/start")
        info = waits.get()
        assert (info.initiator, info.reconnecting) == ("client" if status == 200 else "network", False)
        assert client.wait(GUARD) == info


def test_the_rule_is_asked_once() -> None:
    """The rule is asked once for each loss and for each failed attempt."""
    asked: list[BaseException] = []

    def rule(error: BaseException) -> bool:
        asked.append(error)
        return len(asked) < 4

    bot = MoodyBot("ready", TransportStartError("no"), "flighty", TransportStartError("no"))
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.01, stable_after=GUARD, retry_on=rule)
    with reconnecting_client(bot, policy) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        kinds = [DisconnectedError, TransportStartError, DisconnectedError, TransportStartError]
        assert [type(error) for error in asked] == kinds
        assert telling.data("reconnect_failed")[0].attempts == 3


def test_a_rule_that_takes_its_time() -> None:
    """While the rule is thinking the transport is closed already, and waiting calls have failed."""
    asked, answer = threading.Event(), threading.Event()

    def rule(_: BaseException) -> bool:
        asked.set()
        return answer.wait(GUARD) and False

    with reconnecting_client(deaf_bot, ReconnectPolicy(retry_on=rule)) as client:
        client.connect()
        waiting = InThread(lambda: client.send_client_request("never"))
        until(lambda: len(transport_of(client).sent) == 2)
        transport_of(client).options.on_closed(NETWORK)
        assert asked.wait(GUARD)
        assert isinstance(waiting.error(), DisconnectedError)
        with pytest.raises(DisconnectedError):
            transport_of(client).send_audio(b"", 16_000)
        answer.set()


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_a_rule_that_raises(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """An exception in the program's rule is logged and taken for a no; the session ends as any other."""

    def rule(_: BaseException) -> bool:
        raise kind

    with reconnecting_client(policy=ReconnectPolicy(retry_on=rule)) as client:
        client.connect()
        lose(client)
        until(lambda: not thread_names())
        assert client.state == "disconnected"
        assert "retry_on of the reconnect policy raised" in caplog.text


def test_a_handler_that_exits() -> None:
    """A connect handler that calls sys.exit() in an attempt ends the attempts, and that is told."""

    def handler(*_: Any) -> Any:
        if telling.names:
            sys.exit("enough")
        return {}

    with reconnecting_client(custom_connect_handler=handler) as client:
        telling = Telling(client)
        client.connect()
        lose(client)
        until(lambda: "reconnect_failed" in telling.names)
        assert isinstance(telling.data("reconnect_failed")[0].error, SystemExit)


def test_manual_mode_reconnects() -> None:
    """In manual mode the client reconnects, too; its events wait until they are processed."""
    with reconnecting_client(events="manual") as client:
        telling = Telling(client)
        client.connect()
        with client.events("reconnecting", "bot-ready", timeout=GUARD) as events:
            lose(client)
            assert [next(events).type.value for _ in range(2)] == ["reconnecting", "botReady"]
        assert client.state == "ready"
        assert telling.names[-3:] == ["reconnecting", "connected", "bot_ready"]


def test_signals_tell_it_too() -> None:
    """`signals.reconnecting` is sent with the client, as any event is."""
    heard: list[Any] = []

    def receiver(client: RTVIClient, event: Any) -> None:
        heard.append((client, event.data.attempt))

    with reconnecting_client() as client, signals.reconnecting.connected_to(receiver, sender=client):
        client.connect()
        lose(client)
        until(lambda: client.stats().reconnects == 1)
        assert heard == [(client, 1)]


def test_whoever_waits_for_a_session_is_told() -> None:
    """wait_for('bot_ready') survives the loss, and ends when the program gives up: by disconnect(), then and there."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        waiting = InThread(lambda: client.wait_for("bot_ready"))
        until(lambda: waiting_calls(client))
        other = InThread(lambda: client.wait_for("server_message"))
        until(lambda: waiting_calls(client) == 2)
        lose(client)
        assert isinstance(other.error(), DisconnectedError)
        pending(client)
        assert not waiting.done
        client.disconnect()
        assert isinstance(waiting.error(), DisconnectedError)


def test_whoever_waits_is_told_while_the_thread_that_reconnects_begins() -> None:
    """disconnect() ends a call that waits for the next session while the reconnect thread starts."""
    told = threading.Event()

    def late(go_on: Callable[[], Any], _: object) -> Any:
        thread = go_on()
        assert told.wait(GUARD)
        return thread

    with at("the reconnect thread starts", late), reconnecting_client(policy=SLOW) as client:
        client.connect()
        waiting = InThread(lambda: client.wait_for("bot_ready"))
        until(lambda: waiting_calls(client))
        lose(client)
        pending(client)
        client.disconnect()
        try:
            assert isinstance(waiting.error(), DisconnectedError)
        finally:
            told.set()


def test_whoever_waits_is_told_though_a_handler_holds_up_the_loss() -> None:
    """Calls that wait for a session end with disconnect() though a handler holds up the events of the lost session."""
    go_on = threading.Event()
    with changed(teardown=0.2), reconnecting_client(policy=SLOW) as client:
        client.on("bot_disconnected", lambda: go_on.wait(GUARD))
        client.connect()
        waiting = [InThread(client.wait), InThread(lambda: client.wait_for("bot_ready"))]
        lost = InThread(lambda: client.wait_for("server_message"))
        until(lambda: waiting_calls(client) == 3)
        lose(client)
        pending(client)
        client.disconnect()
        go_on.set()
        assert waiting[0].get() == CloseInfo(initiator="client")
        assert isinstance(waiting[1].error(), DisconnectedError)
        error = lost.error()
        assert isinstance(error, DisconnectedError)
        assert error.initiator == "network"
        assert client.wait(GUARD) == CloseInfo(initiator="client")


def test_the_handlers_of_bot_ready_have_a_bot() -> None:
    """A handler of bot_ready that runs before the thread that has queued the event goes on can send a text, and its
    turn is followed.
    """
    told = threading.Event()
    answers: list[Any] = []

    def event(go_on: Callable[[], object], type_: object) -> None:
        go_on()
        if type_ is RTVIEvent.BOT_READY and client.stats().sessions == 2:
            assert told.wait(GUARD)

    with at("an event is queued", event), reconnecting_client() as client:
        client.connect()

        @client.on("bot_ready")
        def ready() -> None:
            try:
                client.send_text("Hello!")
                client.turns()
                answers.append("sent")
            finally:
                told.set()

        lose(client)
        assert told.wait(GUARD)
        assert answers == ["sent"]
        until(lambda: [turn.user_text for turn in client.turns()] == ["Hello!"])


def test_whoever_waits_is_told_of_a_disconnect_in_a_handler() -> None:
    """disconnect() in the handler of `disconnected` ends a call that waits for the next session."""
    with reconnecting_client(policy=SLOW) as client:
        client.on("disconnected", client.disconnect)
        client.connect()
        waiting = InThread(lambda: client.wait_for("bot_ready"))
        until(lambda: waiting_calls(client))
        lose(client)
        assert isinstance(waiting.error(), DisconnectedError)


def test_a_refused_disconnect_bot_changes_nothing() -> None:
    """While the bot is not ready it cannot be asked to leave, and a later loss is replaced."""
    refused: list[BaseException] = []

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any]:
        if message.type == "client-ready" and not refused:
            try:
                client.disconnect_bot()
            except BotNotReadyError as error:
                refused.append(error)
        return ready_bot(transport, message)

    with reconnecting_client(bot) as client:
        client.connect()
        assert refused
        lose(client)
        until(lambda: client.stats().reconnects == 1)


def test_a_second_connect_is_refused_and_not_repeated() -> None:
    """Whatever the rule says: the session goes on, and no attempt can succeed before it has ended."""
    policy = ReconnectPolicy.forever(initial_delay=0.01, retry_on=lambda _: True)
    with reconnecting_client(policy=policy) as client:
        client.connect()
        with pytest.raises(BotAlreadyStartedError):
            client.connect()
        assert client.connected


# -- leftovers --------------------------------------------------------------------------------------------------------


def test_a_client_that_is_dropped_meanwhile_is_collected() -> None:
    """A client that waits for its next attempt is not kept by that: dropped, it is gone, and so is the thread."""

    def abandoned() -> weakref.ref[RTVIClient]:
        client = memory_client(reconnect=SLOW)
        client.on("reconnecting", lambda: client.version)
        client.connect()
        lose(client)
        pending(client)
        return weakref.ref(client)

    gone = abandoned()

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    until(is_gone)
    until(lambda: not thread_names())


def test_a_client_that_is_dropped_before_an_attempt_has_no_session() -> None:
    """The dropped client's session maker is collected later, because its parts refer to each other, and starts no
    session.
    """
    bot, asked, dropped = MoodyBot(), threading.Event(), threading.Event()

    def retry(_: BaseException) -> bool:
        asked.set()
        return dropped.wait(GUARD)

    def lost() -> weakref.ref[RTVIClient]:
        policy = ReconnectPolicy.forever(initial_delay=0.01, max_delay=0.05, retry_on=retry)
        client = memory_client(bot, reconnect=policy)
        client.connect()
        lose(client)
        return weakref.ref(client)

    gc.disable()
    try:
        gone = lost()
        assert asked.wait(GUARD)
        until(lambda: gone() is None)
        dropped.set()
        until(lambda: not thread_names())
    finally:
        gc.enable()
    assert bot.begun == 1


def test_a_stream_that_is_opened_once_it_gave_up(server: ScriptedServer) -> None:
    """A stream opened in the handler of reconnect_failed waits for the session that the application starts, however
    late the reconnect thread goes on.
    """
    opened: queue.SimpleQueue[EventStream[BotReadyData]] = queue.SimpleQueue()
    is_open = threading.Event()

    def publish_and_wait(go_on: Callable[[], object], event: object) -> None:
        go_on()
        if event is RTVIEvent.RECONNECT_FAILED:
            assert is_open.wait(GUARD)

    def open_stream(_: object) -> None:
        opened.put(client.events("bot_ready", timeout=GUARD))
        is_open.set()

    server.answers["/connect/"] = Answer({})
    paused = at("an event between sessions is queued", publish_and_wait)
    with paused, reconnecting_client(params={"base_url": server.url}) as client:
        client.on("reconnect_failed", open_stream)
        client.connect()
        refused_by(server, client)
        until(lambda: not any("reconnect" in name for name in thread_names()))
        server.answers["/connect/"] = Answer({})
        with opened.get(timeout=GUARD) as stream:
            client.connect()
            assert next(stream).data.version


def test_no_session_begins_before_it_has_told_that_it_gave_up(server: ScriptedServer) -> None:
    """A session that the application starts while the client gives up starts after `reconnect_failed` is queued, so
    that the event is not lost, and a stream that waits for a session does not end.
    """
    connecting: list[InThread] = []

    def connect_first(go_on: Callable[[], object], event: object) -> None:
        if event is RTVIEvent.RECONNECT_FAILED:
            server.answers["/connect/"] = Answer({})
            connecting.append(InThread(client.connect))
            assert connecting[0].goes_on(0.2)
        go_on()

    server.answers["/connect/"] = Answer({})
    moment = at("an event between sessions is queued", connect_first)
    with moment, reconnecting_client(params={"base_url": server.url}) as client:
        telling = Telling(client)
        client.connect()
        refused_by(server, client)
        connecting[0].get()
        until(lambda: telling.names.count("bot_ready") == 2)
        assert telling.names.index("reconnect_failed") < telling.names.index("connected", 2)


def test_a_forked_child_makes_no_attempts() -> None:
    """The attempts belong to the parent: a forked child makes none, and may connect by itself."""
    with reconnecting_client(policy=SLOW) as client:
        client.connect()
        lose(client)
        pending(client)

        def child() -> None:
            with contextlib.suppress(BotNotReadyError):
                client.send_text("hello")
                os._exit(3)
            assert client.wait(GUARD).initiator == "network"
            client.connect()
            assert client.send_client_request("echo", 1) == 1
            client.disconnect()
            assert thread_names() == []

        in_child(child)
        pending(client)


def test_an_action_in_a_forked_child(server: ScriptedServer) -> None:
    """An action in a forked child goes out as without a session: the parent's is not the child's to wait for."""
    with reconnecting_client(policy=SLOW, params={"base_url": server.url}) as client:
        client.connect({})
        lose(client)
        pending(client)

        def child() -> None:
            with pytest.raises(RequestRejectedError, match="404"):
                client.action({"service": "llm", "action": "run"})

        in_child(child)
        until(lambda: len(server.requests) == 1)
        with pytest.raises(BotNotReadyError):
            client.action({"service": "llm", "action": "run"})


def test_a_stream_in_a_forked_child_after_it_gave_up(server: ScriptedServer) -> None:
    """A stream opened after the client gave up waits, in a forked child, for the session that the child starts, however
    late the reconnect thread goes on.
    """
    forked = threading.Event()

    def publish_and_wait(go_on: Callable[[], object], event: object) -> None:
        go_on()
        if event is RTVIEvent.RECONNECT_FAILED:
            assert forked.wait(GUARD)

    server.answers["/connect/"] = Answer({})
    paused = at("an event between sessions is queued", publish_and_wait)
    with paused, reconnecting_client(params={"base_url": server.url}) as client:
        client.connect()
        refused_by(server, client)
        server.answers["/connect/"] = Answer({})
        stream = client.events("bot_ready", timeout=GUARD)

        def child() -> None:
            client.connect()
            assert next(stream).data.version
            client.disconnect()

        in_child(child)
        stream.close()
        forked.set()
