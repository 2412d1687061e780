"""How sessions end: on which threads, in which order, how fast, and what is left."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    Event,
    RTVIClient,
    RTVIError,
    TransportState,
    signals,
)
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Latch
from rtvi_sync.concurrency.lifecycle import NoThreadError
from rtvi_sync.concurrency.pool_task import PoolTask
from rtvi_sync.session.ending import SessionEnd, SessionParts
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within
from tests.support.clients import (
    bot_says,
    deaf_bot,
    memory_client,
    session_of,
    silent_bot,
    transport_of,
    websocket_client,
)
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `disconnect()` promise half a second instead of five."""
    monkeypatch.setattr("rtvi_sync.session.limits.TEARDOWN_LIMIT", 0.5)


class TestDisconnect:
    def test_disconnected_was_delivered(self) -> None:
        """When `disconnect()` returns, `disconnected` was delivered at every door and no thread is left."""
        client = memory_client()
        heard: list[str] = []

        def receiver(sender: RTVIClient, event: Event) -> None:
            heard.append("signal")

        def slow() -> None:
            threading.Event().wait(0.1)
            heard.append("handler")

        client.on("disconnected", slow)
        signals.disconnected.connect(receiver, sender=client)
        client.connect()
        client.disconnect()
        assert heard == ["handler", "signal"]
        assert thread_names() == []
        assert client.state is TransportState.DISCONNECTED

    def test_idempotent(self) -> None:
        """It may be called at any time, any number of times."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.disconnect()
        with client:
            pass
        client.disconnect()
        client.disconnect()
        assert len(heard) == 1

    def test_no_thread_to_be_had_for_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A session that ends while the system has no thread to give ends when it has one, and not on the io thread."""
        client = memory_client()
        heard: list[str] = []
        client.on("disconnected", lambda: heard.append(threading.current_thread().name))
        client.connect()
        refused: list[PoolTask] = []

        class Refused(PoolTask):
            def start(self) -> None:
                if len(refused) < 3:
                    refused.append(self)
                    raise NoThreadError("can't start new thread")
                super().start()

        monkeypatch.setattr("rtvi_sync.session.ending.PoolTask", Refused)
        monkeypatch.setattr("rtvi_sync.session.ending.NO_THREAD_PAUSE", 0.05)  # far below the limit of disconnect()
        client.disconnect()
        ended = len(refused), [name.rpartition("-")[0] for name in heard], client.state
        assert ended == (3, ["rtvi-worker"], TransportState.DISCONNECTED)

    def test_ten_threads_at_once(self) -> None:
        """All return, none before the end, and it happens once."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.connect()
        start = threading.Barrier(10)

        def leave() -> None:
            start.wait(GUARD)
            client.disconnect()
            assert session_of(client).ending.drained.is_set()

        for thread in [InThread(leave) for _ in range(10)]:
            thread.get()
        assert len(heard) == 1
        assert thread_names() == []

    def test_on_a_thread_of_the_transports(self) -> None:
        """A transport's own thread may end the session, and a callback of the program's on it may disconnect."""
        client = memory_client()
        client.connect()

        def end() -> None:
            transport_of(client).end()
            client.disconnect()

        InThread(end).get()
        assert client.state is TransportState.DISCONNECTED

    def test_with_statement(self) -> None:
        """`with client:` connects and disconnects, also when the block raises."""
        client = memory_client()
        with client as same:
            assert same is client
            assert client.state.value == "ready"
        assert client.state is TransportState.DISCONNECTED
        with pytest.raises(ZeroDivisionError), client:
            raise ZeroDivisionError
        assert client.state is TransportState.DISCONNECTED

    def test_close_is_for_good(self) -> None:
        """After `close()` nothing can be connected any more."""
        client = memory_client()
        client.connect()
        client.close()
        client.close()
        assert client.state is TransportState.DISCONNECTED
        with pytest.raises(RTVIError, match="closed for good"):
            client.connect()

    def test_close_while_connect_begins(self) -> None:
        """However `close()` on one thread and `connect()` on another fall together, nothing is connected after both."""
        for _ in range(100):
            client = memory_client()
            connecting = InThread(client.connect)
            client.close()
            connecting.thread.join(GUARD)
            assert not client.connected
            with pytest.raises(RTVIError, match="closed for good"):
                client.connect()

    def test_reconnect_right_after_a_remote_end(self) -> None:
        """Invariant "connect() right after waits for the old session": it may be called as soon as the end is known,
        and before."""
        client = memory_client()
        for _ in range(50):
            client.connect()
            ended = client.events("disconnected", timeout=GUARD)
            transport_of(client).end()
            next(ended)
        client.connect()
        transport_of(client).end()
        client.connect()
        assert client.send_client_request("ping", 1) == 1
        client.disconnect()

    def test_order_of_the_steps(self) -> None:
        """Invariant "teardown": sends are gated and waiting calls fail before the transport is closed, `closed` after
        it; the transport is closed on a close thread."""
        client = memory_client(deaf_bot, request_timeout=None)
        transport = transport_of(client)
        real = transport.disconnect
        seen: list[Any] = []
        asking: list[InThread] = []

        def disconnect() -> None:
            seen.append(threading.current_thread().name.split("-")[1])
            seen.append(type(asking[0].error()))
            seen.append(client.state)
            try:
                client.send_text("late")
            except BotNotReadyError:
                seen.append("gated")
            real()

        transport.disconnect = disconnect
        client.on("disconnected", lambda: seen.append(transport._open))
        client.connect()
        asking.append(InThread(lambda: client.send_client_request("never")))
        until(lambda: session_of(client).channel.engine.pending._awaited)
        client.disconnect()
        assert seen == ["close", DisconnectedError, TransportState.DISCONNECTING, "gated", False]


class TestLimits:
    @pytest.mark.usefixtures("short")
    def test_a_transport_that_hangs(self, caplog: pytest.LogCaptureFixture) -> None:
        """`disconnect()` returns in time, `disconnected` is delivered, the stack of what hangs is logged, and the
        client can connect again."""
        client = memory_client()
        transport = transport_of(client)
        real = transport.disconnect
        release = threading.Event()
        heard: list[Any] = []
        client.on("disconnected", heard.append)

        def hang_here() -> None:
            release.wait(GUARD)

        transport.disconnect = hang_here
        client.connect()
        with takes(0.7):
            client.disconnect()
        assert len(heard) == 1
        assert "hang_here" in caplog.text
        assert client.state is TransportState.DISCONNECTED
        transport.disconnect = real
        release.set()
        with client:
            assert client.send_client_request("ping", 1) == 1
        until(lambda: not thread_names())

    def test_a_transport_that_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its error is logged; the session ends as any other."""
        client = memory_client()
        transport = transport_of(client)
        real = transport.disconnect
        heard: list[Any] = []
        client.on("disconnected", heard.append)

        def broken() -> None:
            raise OSError("cannot close")

        transport.disconnect = broken
        client.connect()
        client.disconnect()
        assert heard == [CloseInfo(initiator="client")]
        assert "cannot close" in caplog.text
        transport.disconnect = real
        with client:
            pass

    @pytest.mark.usefixtures("short")
    def test_a_handler_that_does_not_return(self, caplog: pytest.LogCaptureFixture) -> None:
        """At the limit its stack is logged, once, and the events of its session are dropped; those of the next session
        are not."""
        client = memory_client()
        entered, release = threading.Event(), threading.Event()
        heard: list[Any] = []

        def hang_here(data: Any) -> None:
            if data == "hang":
                entered.set()
                release.wait(GUARD)
            heard.append(data)

        client.on("server_message", hang_here)
        client.on("disconnected", lambda: heard.append("disconnected"))
        stream = client.events("server_message", timeout=GUARD)
        client.connect()
        bot_says(client, "server-message", "hang")
        bot_says(client, "server-message", "dropped")
        assert entered.wait(GUARD)
        with takes(0.7, at_least=0.3):
            client.disconnect()

        def logged() -> list[int]:
            return [record.levelno for record in caplog.records if "hang_here" in record.getMessage()]

        until(logged)  # on a busy machine the log entry follows
        assert logged() == [logging.WARNING]
        client.connect()
        bot_says(client, "server-message", "new")
        release.set()
        client.disconnect()
        assert heard == ["hang", "new", "disconnected"]
        assert [e.data for e in stream] == ["hang"]
        until(lambda: not thread_names())

    @pytest.mark.usefixtures("short")
    def test_only_the_busy_handler_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """The handlers of other clients have nothing to do with it."""
        release = threading.Event()
        entered = threading.Event()

        def another_clients_handler() -> None:
            entered.set()
            release.wait(GUARD)

        other, client = memory_client(), memory_client()
        other.on("server_message", another_clients_handler)
        with other:
            bot_says(other, "server-message")
            assert entered.wait(GUARD)
            with client:
                pass
            assert caplog.records == []
            release.set()

    def test_limits(self) -> None:
        """`disconnect()` promises five seconds."""
        from rtvi_sync.session import limits

        assert limits.TEARDOWN_LIMIT == 5.0

    def test_a_slow_disconnected_handler_that_reconnects(self) -> None:
        """A handler that works on the next session is no handler that hangs, and a failed attempt in it neither."""
        client = memory_client()
        errors: list[BaseException] = []

        def again() -> None:
            transport_of(client)._bot = silent_bot
            try:
                connect_within(client, 0.1)
            except RTVIError as error:
                errors.append(error)

        client.once("disconnected", again)
        client.connect()
        client.disconnect()
        until(lambda: errors)
        until(lambda: not thread_names())
        assert client.state is TransportState.ERROR


class TestPoliteClose:
    def test_the_bot_sees_a_normal_close(self) -> None:
        """`disconnect()` says goodbye: the server sees close code 1000, and what was sent before arrives."""

        def keep_to_itself(session: Any, message: Any) -> bool:
            return bool(message["type"] == "client-message")

        with EmbeddedBot(handler=keep_to_itself) as bot:
            client = websocket_client(bot)
            for _ in range(10):
                client.connect()
                session = bot.wait_for_session()
                for n in range(20):
                    client.send_client_message("note", n)
                client.disconnect()
                end = session.wait_ended(GUARD)
                assert [m["data"]["d"] for m in session.messages if m["type"] == "client-message"] == list(range(20))
                assert (end.code, end.initiator) == (1000, "client")

    def test_a_close_handshake_is_waited_for(self) -> None:
        """Invariant "polite close with a limit": a live session is not cut off but closed, so `disconnected` carries
        the code that the server answered with."""
        with EmbeddedBot() as bot:
            client = websocket_client(bot)
            client.connect()
            transport = transport_of(client)
            connection = transport._connection
            client.disconnect()
            assert connection.info.code == 1000


def test_a_thread_that_begins_is_in_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no identity yet, and is not taken for the one that a stuck handler is on."""
    with memory_client() as client:
        publisher = session_of(client).publisher
        until(lambda: client._dispatcher.queue.runs_on is None)
        monkeypatch.setattr(threading, "enumerate", lambda: [threading.Thread()])
        assert publisher.busy_threads() == []
        monkeypatch.undo()


class Recorded:
    """An end of a session whose parts only record, each in one list, what is called on them.

    Args:
        ready: the bot was ready.
        opened: the session was published as connected.
        parts: what parts return or raise, by their names: `disconnect`, `replaces`, `is_followed`.
    """

    def __init__(self, *, ready: bool = True, opened: bool = True, keeps: bool = False, **parts: Any) -> None:
        self.record: list[str] = []
        self._parts = parts
        self.info: CloseInfo | None = None
        self.unsent: DisconnectedError | None = None
        self.stop_limits: tuple[float, float] = 0.0, 0.0
        self.publisher = SimpleNamespace(
            was_ready=ready,
            was_opened=opened,
            manual=False,
            in_handler=False,
            overtaken=False,
            state=TransportState.READY,
            end=lambda: self._note("gate events"),
            move=lambda state: self._note(f"state {state.value}"),
            finish=self._finish,
            deliver_queued=lambda *_: self._note("deliver"),
            silence=lambda: self._note("silence"),
            busy_threads=list,
        )
        functions = SimpleNamespace(is_current=False, join=lambda _: self._noted("await functions"))
        everything: Any = SessionParts(
            transport=cast(Any, SimpleNamespace(name="fake", disconnect=lambda: self._call("disconnect"))),
            media=cast(Any, SimpleNamespace(pause=lambda: self._note("pause"), stop=self._stop)),
            publisher=cast(Any, self.publisher),
            runtime=cast(
                Any,
                SimpleNamespace(io=SimpleNamespace(is_current=False), release=lambda: self._note("release threads")),
            ),
            channel=cast(Any, SimpleNamespace(close=lambda _: self._note("fail calls"), functions=functions)),
            abort=cast(Any, SimpleNamespace(abort=lambda _: self._note("abort"))),
        )
        self.ending = SessionEnd(
            everything,
            replaces=lambda _: self._call("replaces"),
            is_followed=lambda _: self._call("is_followed"),
            keep_devices=(lambda: self._note("keep devices")) if keeps else None,
            on_closed=lambda: self._note("closed" + " too late" * self.ending.closed.is_set()),
            on_drained=self._drain,
        )
        self.ending.closes_transport = True

    def _note(self, line: str) -> None:
        self.record.append(line)

    def _noted(self, line: str) -> list[threading.Thread]:
        """Note a step that leaves no thread behind."""
        self._note(line)
        return []

    def _call(self, name: str) -> Any:
        self._note(name)
        outcome = self._parts.get(name, False)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _stop(self, *stop_limits: float) -> list[threading.Thread]:
        self.stop_limits = stop_limits[0], stop_limits[1]
        return self._noted("stop")

    def _finish(self, info: CloseInfo, unsent: DisconnectedError | None) -> Latch:
        self._note("tell")
        self.info, self.unsent = info, unsent
        told = Latch()
        told.set()
        return told

    def _drain(self) -> None:
        self._note("drained")
        self.ending.drained.set()

    def end(self, initiator: Any = "network") -> Recorded:
        """End the session, and wait until it has ended."""
        self.ending.begin_and_wait(CloseInfo(initiator=initiator))
        return self


BEGUN = ["fail calls", "gate events"]
TOLD = ["tell", "closed", "await functions", "release threads", "drained"]


def test_the_steps_of_an_end_have_their_order() -> None:
    """Calls fail first; devices pause, the transport closes, devices stop; the end is told, and then all is free."""
    ended = Recorded().end()
    steps = ["state disconnecting", "pause", "disconnect", "stop", "replaces"]
    assert ended.record == [*BEGUN, *steps, *TOLD]
    assert ended.ending.connect_done.is_set()
    assert ended.ending.closed.is_set()


def test_the_steps_after_an_attempt_have_their_order() -> None:
    """An attempt that fails is aborted first, and closes its devices unless another attempt is to have them."""
    steps = ["abort", "is_followed"]
    assert Recorded(ready=False, opened=False).end().record == [*BEGUN, *steps, "pause", "disconnect", "stop", *TOLD]
    kept = Recorded(ready=False, opened=False, keeps=True, is_followed=True).end()
    assert kept.record == [*BEGUN, *steps, "disconnect", "keep devices", *TOLD]
    opened = Recorded(ready=False, keeps=True, is_followed=True).end()
    assert "keep devices" not in opened.record, "devices that have played are the session's own"


def test_a_session_ends_once() -> None:
    """The first cause counts, however often the session is ended afterwards, also at exit."""
    ended = Recorded().end("server")
    ended.end("client")
    ended.ending.at_exit(Deadline(GUARD))
    assert ended.ending.info.initiator == "server"
    assert ended.info == CloseInfo(initiator="server")
    steps = [line for line in ended.record if line not in BEGUN]
    assert len(steps) == len({*steps})


@pytest.mark.parametrize(
    ("initiator", "dismissed", "replaced"),
    [("network", False, True), ("server", False, True), ("client", False, False), ("network", True, False)],
)
def test_which_sessions_are_replaced(initiator: str, dismissed: bool, replaced: bool) -> None:
    """A session is lost unless the application has ended it, or dismissed its bot; `disconnected` says so."""
    session = Recorded(replaces=True)
    session.ending.bot_dismissed = dismissed
    session.end(initiator)
    assert session.info == CloseInfo(initiator=cast(Any, initiator), reconnecting=replaced)
    assert (session.ending.is_replaced, "replaces" in session.record) == (replaced, replaced)


def test_messages_that_could_not_be_sent_are_told() -> None:
    """The transport's error is a part of the end, as a copy, and no other error of it is."""
    lost = DisconnectedError("3 messages were lost")
    told = Recorded(disconnect=lost).end().unsent
    assert (str(told), told is lost) == ("3 messages were lost", False)
    assert Recorded(disconnect=OSError("broken")).end().unsent is None


def test_who_must_not_wait_for_the_last_event() -> None:
    """A handler, and a function that the bot called, wait for no end that waits for them."""
    session = Recorded()
    assert not session.ending.wait_drained(Deadline(0.0))
    session.publisher.in_handler = True
    assert session.ending.wait_drained(Deadline(0.0))


def test_a_slow_sink_has_its_time_unless_the_process_exits() -> None:
    """Sinks have longer than devices, but not at exit, where all sessions share one limit."""
    devices, sinks = Recorded().end().stop_limits
    assert devices < sinks
    exiting = Recorded()
    exiting.ending.at_exit(Deadline(GUARD))
    devices, sinks = exiting.stop_limits
    assert devices == sinks
    assert exiting.record[-2:] == ["release threads", "drained"]
    assert "replaces" not in exiting.record
