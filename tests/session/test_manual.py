"""`events="manual"`: handlers run when the program asks for it."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    TransportState,
    Turn,
    WouldDeadlockError,
)
from tests.support.clients import bot_says, memory_client, say, silent_bot, transport_of
from tests.support.probes import session_has_ended
from tests.support.scripted_talk import TalkingBot, hangs_up
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, thread_names, workers_of_package
from tests.support.waiting import until


def manual(**options: Any) -> tuple[RTVIClient, list[Any]]:
    client = memory_client(events="manual", **options)
    heard: list[Any] = []
    client.on("server_message", heard.append)
    return client, heard


def test_nothing_runs_by_itself() -> None:
    """Handlers run inside `process_events()` only, on the calling thread; no queue thread is started."""
    client, heard = manual()
    names: list[str] = []
    client.on("server_message", lambda: names.append(threading.current_thread().name))
    with client:
        say(client, 1, 2)
        assert heard == []
        assert workers_of_package() == []
        assert client.process_events() == 2
        assert heard == [1, 2]
        assert set(names) == {threading.current_thread().name}
        assert client.process_events() == 0


def test_count() -> None:
    """`process_events()` counts events, once each however many listen, and not those without a listener."""
    client, _ = manual()
    client.on("server_message", lambda: None)
    stream = client.events("server_message")
    with client:
        say(client, 1, 2, 3)
        bot_says(client, "bot-llm-started")
        assert client.process_events() == 3
    assert client.process_events() == 0
    assert [e.data for e in stream] == [1, 2, 3]


def test_only_what_is_queued() -> None:
    """Events that handlers cause are left to the next call, so that the first one ends."""
    client, heard = manual()
    client.on("server_message", lambda n: say(client, n + 1))
    with client:
        say(client, 1)
        assert client.process_events() == 1
        assert client.process_events() == 1
        assert heard == [1, 2]


def test_timeout() -> None:
    """process_events() waits for a first event as long as it is told, and not at all by default."""
    client, heard = manual()
    with client:
        with takes(0.1):
            assert client.process_events() == 0
        with takes(1.0, at_least=0.15):
            assert client.process_events(timeout=0.15) == 0
        timer = threading.Timer(0.05, say, (client, 1))
        timer.start()
        assert client.process_events(timeout=GUARD) == 1
        timer.join()
        timer = threading.Timer(0.05, say, (client, 2))
        timer.start()
        assert client.process_events(timeout=None) == 1
        timer.join()
    assert heard == [1, 2]


def test_wait_for_delivers_meanwhile() -> None:
    """`wait_for()` runs the handlers of earlier events on the calling thread."""
    client, heard = manual()

    def speak() -> None:
        say(client, 1, 2)
        bot_says(client, "bot-llm-started")

    with client:
        timer = threading.Timer(0.05, speak)
        timer.start()
        client.wait_for("bot_llm_started", timeout=GUARD)
        assert heard == [1, 2]
        timer.join()


def test_events_delivers_meanwhile() -> None:
    """Iterating over a stream runs the handlers of earlier events."""
    client, heard = manual()
    with client:
        stream = client.events("bot_llm_started", timeout=GUARD)
        say(client, 1)
        bot_says(client, "bot-llm-started")
        next(stream)
        assert heard == [1]


def test_wait_for_times_out() -> None:
    """With nothing queued, and with events that are not the one."""
    client, heard = manual()
    with client:
        with pytest.raises(RequestTimeoutError):
            client.wait_for("bot_llm_started", timeout=0.05)
        say(client, 1)
        with pytest.raises(RequestTimeoutError):
            client.wait_for("bot_llm_started", timeout=0.05)
        assert heard == [1]


def test_wait_for_and_the_end() -> None:
    """Events queued before the end can still be waited for; then the wait raises `DisconnectedError`."""
    client, heard = manual()
    client.connect()
    stream = client.events("bot_llm_started")
    bot_says(client, "bot-llm-started")
    say(client, 1)
    transport_of(client).end(CloseInfo(code=1012, initiator="server"))
    until(lambda: session_has_ended(client))
    assert client.wait_for("disconnected", timeout=GUARD).data.code == 1012
    assert next(stream).type.snake == "bot_llm_started"
    assert heard == [1]
    with pytest.raises(DisconnectedError):
        client.wait_for("server_message", timeout=GUARD)
    client.disconnect()


def test_disconnected_is_delivered_by_process_events() -> None:
    """`disconnect()` returns without waiting for delivery, and `process_events()` delivers the remaining events."""
    client, heard = manual()
    ended: list[Any] = []
    client.on("disconnected", ended.append)
    client.connect()
    say(client, 1)
    with takes(0.5):
        client.disconnect()
    assert thread_names() == []
    assert (heard, ended) == ([], [])
    assert client.process_events() == 2
    assert heard == [1]
    assert ended[0].initiator == "client"


def test_session_after_session_without_processing() -> None:
    """Unprocessed events wait in order over several sessions."""
    client, heard = manual()
    order: list[str] = []
    client.on("bot_ready", lambda: order.append("ready"))
    client.on("disconnected", lambda: order.append("disconnected"))
    for n in range(3):
        with client:
            say(client, n)
    assert client.process_events() == 9
    assert order == ["ready", "disconnected"] * 3
    assert heard == [0, 1, 2]


def test_connect_and_disconnect_in_a_handler() -> None:
    """connect() and disconnect() work inside handlers of manual mode."""
    client, heard = manual()
    states: list[TransportState] = []

    def again(data: Any) -> None:
        if data == "again":
            client.disconnect()
            states.append(client.state)
            client.connect()
            states.append(client.state)

    client.on("server_message", again)
    with client:
        say(client, "again")
        client.process_events()
        assert states == [TransportState.DISCONNECTED, TransportState.READY]
        assert client.send_client_request("ping", 1) == 1
        say(client, "new")
        client.process_events()
        assert heard == ["again", "new"]


def test_a_failed_connect() -> None:
    """A failed attempt needs no processing either."""
    client, _ = manual(bot=silent_bot, connect_timeout=0.1)
    with pytest.raises(TimeoutError):
        client.connect()
    assert client.state is TransportState.ERROR
    assert client.process_events() == 0


def test_process_events_in_a_handler() -> None:
    """process_events() in a handler raises `WouldDeadlockError`."""
    client, _ = manual()
    errors: list[Any] = []
    client.on("handler_error", lambda failure: errors.append(failure.error))
    client.on("server_message", lambda: client.process_events(timeout=GUARD))
    client.on("server_message", lambda: client.wait_for("bot_ready"))
    with client:
        say(client, 1)
        assert client.process_events() == 1
    assert [type(e) for e in errors] == [WouldDeadlockError] * 2


def test_process_events_in_thread_mode() -> None:
    """In thread mode, process_events() raises an error that names `events='manual'`."""
    with memory_client() as client, pytest.raises(RTVIError, match="events='manual'"):
        client.process_events()


class TestWhileTurnsAreFollowed:
    """The application does not see events that the package queues to follow turns."""

    def test_it_waits_for_an_event(self) -> None:
        """While turns are followed, process_events() waits until it has delivered an event to a handler."""
        client, heard = manual(bot=TalkingBot())
        with client:
            client.turns()
            client.send_text("one")
            assert client.process_events() == 0
            client.send_text("two")  # it has woken the call when `say()` runs
            timer = threading.Timer(0.05, say, (client, 1))
            timer.start()
            assert client.process_events(timeout=GUARD) == 1
            timer.join()
        assert heard == [1]

    def test_a_turn_is_an_event(self) -> None:
        """process_events() delivers the end of a turn that is over because time has passed."""
        ended: list[Turn] = []
        client, _ = manual(bot=TalkingBot(lambda text: None))
        client.on("turn_ended", ended.append)
        with client:
            client.send_text("one")
            bot_says(client, "error", {"error": "no key", "fatal": False})
            assert client.process_events(timeout=GUARD) == 1
        assert [(turn.user_text, turn.status) for turn in ended] == [("one", "failed")]

    def test_the_end_of_the_session(self) -> None:
        """The end of the session ends the wait of process_events(), so that a loop of such calls can end."""
        client, _ = manual(bot=TalkingBot())
        with client:
            client.turns()
            client.process_events()
            timer = threading.Timer(0.05, hangs_up, (client,))
            timer.start()
            assert client.process_events(timeout=None) == 0
            assert not client.connected
            timer.join()

    def test_a_function(self) -> None:
        """While turns are followed, process_events() runs the function that the bot calls."""
        client, _ = manual(bot=TalkingBot())
        called: list[str] = []
        client.register_function_call_handler("f", lambda call: called.append(call.tool_call_id))
        with client:
            client.turns()
            client.process_events()
            bot_says(client, "llm-function-call", {"function_name": "f", "tool_call_id": "1", "arguments": {}})
            assert client.process_events(timeout=GUARD) == 1
        assert called == ["1"]


def test_two_threads() -> None:
    """Two threads that process at once: handlers run one at a time, each event once, and all in order."""
    client, _ = manual()
    heard: list[int] = []
    running: list[int] = []

    def handler(number: int) -> None:
        running.append(1)
        assert len(running) == 1
        heard.append(number)
        running.pop()

    client.on("server_message", handler)
    with client:
        counts = [0, 0]
        stop = threading.Event()

        def work(index: int) -> None:
            while not stop.is_set():
                counts[index] += client.process_events(timeout=0.01)

        threads = [InThread(partial(work, index)) for index in range(2)]
        say(client, *range(2000))
        until(lambda: len(heard) == 2000)
        stop.set()
        for thread in threads:
            thread.get()
        assert sum(counts) == 2000
        assert heard == list(range(2000))


def test_a_waiting_thread_gets_its_event_while_another_is_in_a_handler() -> None:
    """The event of a stream is handed out though the thread that delivered it is busy with a later one."""
    client, _ = manual()
    entered, release = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait(GUARD)

    client.on("bot_llm_stopped", block)
    with client:
        stream = client.events("bot_llm_started", timeout=GUARD)
        bot_says(client, "bot-llm-started")
        bot_says(client, "bot-llm-stopped")
        processing = InThread(client.process_events)
        assert entered.wait(GUARD)
        assert InThread(lambda: next(stream)).get().type.snake == "bot_llm_started"
        waiting = InThread(lambda: next(client.events("bot_ready", timeout=0.2)))
        assert isinstance(waiting.error(), RequestTimeoutError)
        release.set()
        assert processing.get() == 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_handler_is_the_callers(error: BaseException) -> None:
    """On the program's own thread `sys.exit()` in a handler exits; the next call goes on."""
    client, heard = manual()

    def leave(data: Any) -> None:
        if data == 1:
            raise error

    client.on("server_message", leave)
    with client:
        say(client, 1, 2)
        with pytest.raises(type(error)):
            client.process_events()
        assert client.process_events() == 1
        assert heard == [1, 2]


def test_an_exit_while_the_last_events_are_delivered() -> None:
    """Streams end even so."""
    client, _ = manual()
    client.on("disconnected", lambda: (_ for _ in ()).throw(SystemExit(3)))
    stream = client.events("server_message", timeout=GUARD)
    with client:
        say(client, 1)
    with pytest.raises(SystemExit):
        client.process_events()
    assert [e.data for e in stream] == [1]


def test_an_error_in_a_handler_is_not() -> None:
    """An ordinary exception is logged and published as in thread mode."""
    client, heard = manual()
    failures: list[Any] = []
    client.on("handler_error", failures.append)
    client.on("server_message", lambda: 1 / 0)
    with client:
        say(client, 1, 2)
        assert client.process_events() == 2
    assert heard == [1, 2]
    assert [type(f.error) for f in failures] == [ZeroDivisionError] * 2


def test_requests_need_no_processing() -> None:
    """An answer wakes its caller though no events are processed."""
    client, _ = manual()
    with client:
        assert client.send_client_request("ping", 1) == 1
