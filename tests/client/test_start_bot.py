"""`start_bot()` and `start_bot_and_connect()`."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import (
    APIRequest,
    BotAlreadyStartedError,
    BotNotReadyError,
    CloseInfo,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    StartBotError,
    TransportState,
    WebSocketTransport,
)
from rtvi_sync.media import SilenceSource
from tests.support.attempts import timed_out
from tests.support.clients import bundle_of, manager_of, memory_client, transport_of
from tests.support.forking import in_child
from tests.support.http_server import Answer, Request, ScriptedServer, scripted_server
from tests.support.loopback import Peer, Server
from tests.support.moments import at
from tests.support.probes import is_retrying, run_on_io_thread
from tests.support.processes import run_python
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, own_threads, thread_names
from tests.support.waiting import until


class TestStartBot:
    def test_start_bot_posts_its_data_and_does_not_connect(self, server: ScriptedServer) -> None:
        """start_bot() posts the transport's name and the given data, returns the answer and does not connect."""
        server.answers["/start"] = Answer({"wsUrl": "ws://x", "token": None})
        client = memory_client(
            params={"base_url": server.url, "request_data": {"a": 1, "b": 1}, "headers": {"X-A": "1", "X-B": "1"}}
        )
        states: list[TransportState] = []
        client.on("transport_state_changed", states.append)
        answer = client.start_bot(f"{server.url}/start", {"b": 2, "body": {"x": 1}}, {"X-B": "2"})
        assert answer == {"wsUrl": "ws://x", "token": None}
        (request,) = server.requests
        assert request.body == {"transport": "memory", "a": 1, "b": 2, "body": {"x": 1}}
        assert (request.headers["x-a"], request.headers["x-b"]) == ("1", "2")
        assert client.state is TransportState.AUTHENTICATED
        assert thread_names() == []
        client.connect(answer)
        assert bundle_of(client) == answer
        client.disconnect()
        assert len(server.requests) == 1
        assert states[:3] == [TransportState.AUTHENTICATING, TransportState.AUTHENTICATED, TransportState.INITIALIZING]

    def test_bot_started(self, server: ScriptedServer) -> None:
        """The event `bot_started` has the answer, after `start_bot()` and on the way of `start_bot_and_connect()`."""
        server.answers["/start"] = Answer({"sessionId": "7"})
        client = memory_client()
        heard: list[Any] = []
        client.on("bot_started", lambda data: heard.append(data.response))
        client.on("bot_ready", lambda: heard.append("ready"))
        client.start_bot(f"{server.url}/start")
        client.disconnect()
        client.start_bot_and_connect(f"{server.url}/start")
        client.disconnect()
        assert heard == [{"sessionId": "7"}, {"sessionId": "7"}, "ready"]
        heard.clear()
        client.connect(client.start_bot(f"{server.url}/start"))
        client.disconnect()
        assert heard == [{"sessionId": "7"}, "ready"], "the session tells it again"

    def test_other_origin(self, server: ScriptedServer) -> None:
        """Headers and data of the params are for `base_url`'s origin only; another port is another origin."""
        server.answers["/start"] = Answer({})
        client = memory_client(
            params={"base_url": "http://127.0.0.1:1", "request_data": {"a": 1}, "headers": {"X-A": "1"}}
        )
        client.start_bot(f"{server.url}/start", {"b": 2})
        assert server.requests[0].body == {"transport": "memory", "b": 2}
        assert "x-a" not in server.requests[0].headers

    @pytest.mark.parametrize("base_url", [None, "nonsense", "http://[", "http://127.0.0.1:notaport"])
    def test_without_a_sensible_base_url(self, server: ScriptedServer, base_url: str | None) -> None:
        """Headers of the params are not sent if `base_url` has no origin."""
        server.answers["/start"] = Answer({})
        client = memory_client(params={"base_url": base_url, "headers": {"X-A": "1"}})
        client.start_bot(f"{server.url}/start")
        assert "x-a" not in server.requests[0].headers

    @pytest.mark.parametrize("data", [{"transport": "daily"}, {"transport": None}])
    def test_transport_of_the_callers(self, server: ScriptedServer, data: dict[str, Any]) -> None:
        """A `transport` that the caller sets is left as it is."""
        server.answers["/start"] = Answer({})
        memory_client().start_bot(f"{server.url}/start", data)
        assert server.requests[0].body == data

    def test_without_a_transport(self, server: ScriptedServer) -> None:
        """start_bot() works without a transport, and names the transport `custom` then."""
        server.answers["/start"] = Answer({"a": 1})
        assert RTVIClient().start_bot(f"{server.url}/start") == {"a": 1}
        assert server.requests[0].body == {"transport": "custom"}

    def test_the_websocket_transport_has_the_runners_name(self, server: ScriptedServer) -> None:
        """Pipecat's runner calls it "websocket"."""
        server.answers["/start"] = Answer({})
        RTVIClient(transport=WebSocketTransport()).start_bot(f"{server.url}/start")
        assert server.requests[0].body == {"transport": "websocket"}

    @pytest.mark.parametrize("as_mapping", [False, True])
    def test_api_request(self, server: ScriptedServer, as_mapping: bool) -> None:
        """start_bot() takes an `APIRequest`, or a mapping with the keys of the JavaScript client."""
        server.answers["/start"] = Answer({})
        url = f"{server.url}/start"
        request: Any = (
            {"endpoint": url, "headers": {"X-A": "1"}, "requestData": {"n": 1}}
            if as_mapping
            else APIRequest(endpoint=url, headers={"X-A": "1"}, request_data={"n": 1})
        )
        memory_client().start_bot(request)
        assert server.requests[0].body == {"transport": "memory", "n": 1}
        assert server.requests[0].headers["x-a"] == "1"

    def test_api_request_and_parts(self) -> None:
        """An APIRequest is whole; further parts are a mistake."""
        with pytest.raises(TypeError, match="either an APIRequest or its parts"):
            memory_client().start_bot(APIRequest(endpoint="http://x"), {"n": 1})

    def test_refusal(self, server: ScriptedServer) -> None:
        """A refusal raises `StartBotError` with the status; the state is `error`, and the next call works."""
        server.answers["/start"] = Answer({"detail": "Transport 'webrtc' is not allowed."}, 400)
        client = memory_client()
        with pytest.raises(StartBotError, match="not allowed") as caught:
            client.start_bot(f"{server.url}/start")
        assert caught.value.status == 400
        assert client.state.value == "error"
        server.answers["/start"] = Answer({})
        client.start_bot(f"{server.url}/start")
        assert client.state is TransportState.AUTHENTICATED

    def test_timeout(self) -> None:
        """start_bot() has its own limit in seconds; when it passes, the state is `error` and no thread is left."""
        client = memory_client(connect_timeout=None)
        with Server(Peer.hold) as server:
            url = f"http://127.0.0.1:{server.port}/start"
            timed_out("http", lambda limit: client.start_bot(url, timeout=limit))
            assert client.state is TransportState.ERROR
            until(lambda: thread_names() == [])

    def test_a_limit_that_passes_before_anything_began(self) -> None:
        """The thread of the request does not run in time: the error does not blame the server."""
        run = threading.Event()

        def late(go_on: Callable[[], object], role: object) -> object:
            if role == "connect":
                assert run.wait(GUARD)
            return go_on()

        with (
            at("a thread of the pool gets a task", late),
            pytest.raises(ConnectionTimeoutError, match="waiting until its thread runs") as caught,
        ):
            memory_client(connect_timeout=0.05).start_bot("http://127.0.0.1:1/start")
        run.set()
        until(lambda: own_threads() == [])
        assert caught.value.phase == "begin"

    def test_the_clients_limit(self) -> None:
        """Without one of its own the limit of the client applies."""
        client = memory_client(connect_timeout=0.3)
        with Server(Peer.hold) as server, pytest.raises(ConnectionTimeoutError):
            client.start_bot(f"http://127.0.0.1:{server.port}/start")

    def test_disconnect_from_another_thread(self) -> None:
        """`disconnect()` abandons it."""
        asked = threading.Event()

        def serve(peer: Peer) -> None:
            asked.set()
            peer.hold()

        client = memory_client(connect_timeout=None)
        with Server(serve) as server:
            starting = InThread(lambda: client.start_bot(f"http://127.0.0.1:{server.port}/start"))
            assert asked.wait(GUARD)
            client.disconnect()
            error = starting.error()
        assert isinstance(error, DisconnectedError)
        assert error.initiator == "client"
        assert client.state is TransportState.DISCONNECTED

    def test_disconnect_after_it(self, server: ScriptedServer) -> None:
        """After a bot was started and not connected to, `disconnect()` returns the client to its first state."""
        server.answers["/start"] = Answer({})
        client = memory_client()
        client.start_bot(f"{server.url}/start")
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED
        assert thread_names() == []

    def test_during_a_session(self, server: ScriptedServer) -> None:
        """While a session is active there is nothing to start, and the session goes on."""
        with memory_client() as client:
            with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
                client.start_bot(f"{server.url}/start")
            assert client.send_client_request("ping", 1) == 1
        assert server.requests == []

    def test_what_is_told_of_the_last_session_meanwhile(self, server: ScriptedServer) -> None:
        """An event of the last session does not change the state while a bot is being started."""
        client = memory_client()

        def answer(_: Request) -> Answer:
            manager_of(client).publish(RTVIEvent.RECONNECT_FAILED, None)
            manager_of(client).end_waiting_streams(CloseInfo())
            return Answer({})

        server.answers["/start"] = answer
        client.start_bot(f"{server.url}/start")
        assert client.state.value == "authenticated"
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED

    def test_start_bot_and_connect(self, server: ScriptedServer) -> None:
        """start_bot_and_connect() makes one request, passes its answer to the transport and returns the ready bot."""
        server.answers["/start"] = Answer({"wsUrl": "ws://x"})
        client = memory_client(params={"base_url": server.url, "headers": {"X-A": "1"}})
        states: list[TransportState] = []
        client.on("transport_state_changed", states.append)
        bot = client.start_bot_and_connect(f"{server.url}/start", {"n": 1})
        assert bot.version == "2.2.0"
        assert bundle_of(client) == {"wsUrl": "ws://x"}
        client.disconnect()
        assert [str(s) for s in states] == [
            "initializing",
            "initialized",
            "authenticating",
            "authenticated",
            "connecting",
            "connected",
            "ready",
            "disconnecting",
            "disconnected",
        ]
        assert [r.body for r in server.requests] == [{"transport": "memory", "n": 1}]
        assert server.requests[0].headers["x-a"] == "1"

    def test_start_bot_and_connect_has_one_limit(self, server: ScriptedServer) -> None:
        """The limit covers the bot's readiness too."""
        server.answers["/start"] = Answer({})
        client = memory_client(lambda *_: None, connect_timeout=None)
        timed_out("bot-ready", lambda limit: client.start_bot_and_connect(f"{server.url}/start", timeout=limit))

    def test_start_bot_and_connect_without_a_transport(self, server: ScriptedServer) -> None:
        """A bot that no client could talk to is not started."""
        with pytest.raises(InvalidTransportParamsError):
            RTVIClient().start_bot_and_connect(f"{server.url}/start")
        assert server.requests == []

    @pytest.mark.parametrize("endpoint", ["/start", "start", "ftp://x/start", "http://", ""])
    def test_no_url(self, endpoint: str) -> None:
        """Something that is no HTTP URL is a `StartBotError`, and no hang."""
        client = memory_client()
        with pytest.raises(StartBotError):
            client.start_bot(endpoint)
        assert client.state is TransportState.ERROR

    def test_after_close(self, server: ScriptedServer) -> None:
        """A closed client starts nothing."""
        client = memory_client()
        client.close()
        with pytest.raises(RTVIError, match="closed for good"):
            client.start_bot(f"{server.url}/start")
        assert server.requests == []


# -- one at a time ----------------------------------------------------------------------------------------------------


class SlowServer:
    """A server that answers requests to start a bot on command.

    Attributes:
        url: where bots are started.
        asked: set when a request arrives.
        answer: set it to answer the waiting requests.
        requests: how many arrived.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self.url = f"{server.url}/start"
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.requests = server.requests
        server.answers["/start"] = self._respond

    def _respond(self, _: Request) -> Answer:
        self.asked.set()
        assert self.answer.wait(GUARD)
        return Answer({"started": len(self.requests)})


@pytest.fixture
def slow() -> Iterator[SlowServer]:
    with scripted_server() as server:
        running = SlowServer(server)
        yield running
        running.answer.set()


def starts(client: RTVIClient, server: SlowServer) -> InThread:
    """Call `start_bot()` on a thread of its own, which waits for the server's answer."""
    starting = InThread(lambda: client.start_bot(server.url))
    assert server.asked.wait(GUARD)
    return starting


WHAT_BEGINS: dict[str, Callable[[RTVIClient, str], Any]] = {
    "start_bot": lambda client, url: client.start_bot(url),
    "connect": lambda client, _: client.connect(),
    "start_bot_and_connect": lambda client, url: client.start_bot_and_connect(url),
}


@pytest.mark.parametrize("call", WHAT_BEGINS)
def test_nothing_else_begins_meanwhile(slow: SlowServer, call: str) -> None:
    """While a bot is being started, calls that would start another one are refused; the first goes on."""
    client = memory_client()
    starting = starts(client, slow)
    with pytest.raises(BotAlreadyStartedError, match=r"start_bot\(\) is under way.*disconnect\(\)"):
        WHAT_BEGINS[call](client, slow.url)
    assert client.state.value == "authenticating"
    slow.answer.set()
    assert starting.get() == {"started": 1}
    assert client.state is TransportState.AUTHENTICATED
    client.connect(starting.get())
    client.disconnect()
    assert len(slow.requests) == 1


@pytest.mark.parametrize("call", ["start_bot_and_connect", "connect"])
def test_start_bot_while_an_attempt_is_under_way(slow: SlowServer, call: str) -> None:
    """No bot is started while the client connects already; the attempt goes on."""
    base_url = slow.url.removesuffix("/start")
    client = memory_client(params={"base_url": base_url, "endpoints": {"connect": "start"}})
    connecting = InThread(lambda: WHAT_BEGINS[call](client, slow.url))
    assert slow.asked.wait(GUARD)
    with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
        client.start_bot(slow.url)
    slow.answer.set()
    connecting.get()
    assert client.state is TransportState.READY
    client.disconnect()
    assert len(slow.requests) == 1


def test_devices_stay_open_if_connect_is_refused(slow: SlowServer) -> None:
    """A call that cannot start closes only devices that it has opened."""
    client = RTVIClient(transport=MemoryTransport(audio=True), mic=SilenceSource(), speaker=False)
    client.init_devices()
    track = client.tracks().local.audio
    assert track is not None
    starting = starts(client, slow)
    with pytest.raises(BotAlreadyStartedError):
        client.connect()
    assert client.tracks().local.audio is track
    client.disconnect()
    assert client.tracks().local.audio is None
    assert isinstance(starting.error(), DisconnectedError)


def test_many_threads_start_a_bot(slow: SlowServer) -> None:
    """Of several calls at once one goes out."""
    client = memory_client()
    together = threading.Barrier(8)

    def start() -> Any:
        together.wait(GUARD)
        return client.start_bot(slow.url)

    calls = [InThread(start) for _ in range(8)]
    until(lambda: sum(call.done for call in calls) == 7)
    slow.answer.set()
    outcomes: list[Any] = []
    for call in calls:
        try:
            outcomes.append(call.get())
        except BotAlreadyStartedError as error:
            outcomes.append(type(error))
    assert outcomes.count(BotAlreadyStartedError) == 7
    assert len(slow.requests) == 1
    client.disconnect()


@pytest.mark.parametrize("end", ["disconnect", "close"])
def test_the_end_is_waited_for(slow: SlowServer, end: str) -> None:
    """When `disconnect()` or `close()` returns, the call has ended and the state is `disconnected`."""
    client = memory_client(connect_timeout=None)
    states: list[str] = []
    client.on("transport_state_changed", lambda state: states.append(str(state)))

    def late(go_on: Callable[[], object], state: object) -> object:
        if state is TransportState.DISCONNECTED:
            threading.Event().wait(0.2)  # as on a busy machine
        return go_on()

    with at("a state is set", late):
        starting = starts(client, slow)
        getattr(client, end)()
        assert client.state is TransportState.DISCONNECTED
        assert own_threads() == []
    error = starting.error()
    assert isinstance(error, DisconnectedError)
    assert error.initiator == "client"
    until(lambda: states == ["authenticating", "disconnected"])


def test_disconnect_on_the_thread_that_reads(slow: SlowServer) -> None:
    """A finalizer may run there: the call ends, and that thread does not wait for it."""
    client = memory_client(connect_timeout=None)
    starting, raised = starts(client, slow), queue.SimpleQueue[BaseException | None]()

    def disconnect() -> None:
        try:
            client.disconnect()
        except BaseException as error:
            raised.put(error)
        else:
            raised.put(None)

    run_on_io_thread(disconnect)
    assert raised.get(timeout=GUARD) is None
    assert isinstance(starting.error(), DisconnectedError)
    until(lambda: client.state is TransportState.DISCONNECTED)


def test_a_session_that_is_ended_on_the_thread_that_reads() -> None:
    """`disconnect()` on the thread that reads returns after the session has started to end."""
    with memory_client() as client:
        raised = queue.SimpleQueue[BaseException]()

        def disconnect() -> None:
            client.disconnect()
            try:
                client.send_text("late")
            except RTVIError as error:
                raised.put(error)

        run_on_io_thread(disconnect)
        assert isinstance(raised.get(timeout=GUARD), BotNotReadyError | DisconnectedError)
        until(lambda: client.state is TransportState.DISCONNECTED)


def test_disconnect_while_several_calls_try(slow: SlowServer) -> None:
    """Calls that were refused do not change which session `disconnect()` ends."""
    client = memory_client(connect_timeout=None)
    starting = starts(client, slow)
    for _ in range(3):
        with pytest.raises(BotAlreadyStartedError):
            client.start_bot(slow.url)
    client.disconnect()
    assert client.state is TransportState.DISCONNECTED
    assert isinstance(starting.error(), DisconnectedError)
    slow.answer.set()
    client.start_bot(slow.url)
    client.disconnect()


def test_disconnect_as_the_answer_comes(server: ScriptedServer) -> None:
    """Whether `disconnect()` or the answer is first, the state is `disconnected` at the end."""
    server.answers["/start"] = Answer({})
    client = memory_client()
    for _ in range(20):
        starting = InThread(lambda: client.start_bot(f"{server.url}/start"))
        until(lambda: client.state is not TransportState.DISCONNECTED)
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED
        with contextlib.suppress(DisconnectedError):
            starting.get()


def test_close_after_it(server: ScriptedServer) -> None:
    """A client that is closed with a bot that was started is `disconnected`."""
    server.answers["/start"] = Answer({})
    client = memory_client()
    states: list[str] = []
    client.on("transport_state_changed", lambda state: states.append(str(state)))
    client.start_bot(f"{server.url}/start")
    client.close()
    assert client.state is TransportState.DISCONNECTED
    until(lambda: states[-1] == "disconnected")


def test_a_handler_may_start_a_bot(slow: SlowServer) -> None:
    """A handler may start a bot; a second thread is refused during the call, and `disconnect()` ends it."""
    client = memory_client(connect_timeout=None)
    failures: list[BaseException] = []
    client.on("handler_error", lambda data: failures.append(data.error))
    client.connect()
    client.once("disconnected", lambda: client.start_bot(slow.url) and None)
    InThread(client.disconnect).get()
    assert slow.asked.wait(GUARD)
    with pytest.raises(BotAlreadyStartedError):
        client.start_bot(slow.url)
    client.disconnect()
    assert client.state is TransportState.DISCONNECTED
    until(lambda: [type(error) for error in failures] == [DisconnectedError])


def test_disconnect_in_a_handler(slow: SlowServer) -> None:
    """A handler of the client ends the call of another thread."""
    client = memory_client(connect_timeout=None)
    seen: list[str] = []

    @client.once("transport_state_changed")
    def _(_: Any) -> None:
        assert slow.asked.wait(GUARD)
        client.disconnect()
        seen.append(str(client.state))

    error = InThread(lambda: client.start_bot(slow.url)).error()
    assert isinstance(error, DisconnectedError)
    until(lambda: seen == ["disconnected"])


def test_an_action_beside_it(slow: SlowServer) -> None:
    """Requests of actions change no state: several may be under way, beside a bot that is being started."""
    base_url = slow.url.removesuffix("/start")
    client = memory_client(params={"base_url": base_url, "endpoints": {"action": "start"}}, request_timeout=None)
    starting = starts(client, slow)
    acting = [InThread(lambda: client.action({"service": "tts", "action": "say"})) for _ in range(3)]
    until(lambda: len(slow.requests) == 4)
    assert client.state.value == "authenticating"
    client.disconnect()
    assert own_threads() == []
    for call in (starting, *acting):
        error = call.error()
        assert isinstance(error, DisconnectedError)
        assert error.initiator == "client"
    assert client.state is TransportState.DISCONNECTED


def test_many_actions_that_hang() -> None:
    """`disconnect()` waits a moment for all of them together, and not for one after the other."""
    begun, go_on = queue.SimpleQueue[bool](), threading.Event()

    def hang(*_: object) -> Iterator[bytes]:
        begun.put(True)
        go_on.wait(GUARD)
        yield b""

    client = memory_client(params={"base_url": "http://127.0.0.1:1"}, request_timeout=None)
    with at("an action is posted", hang):
        acting = [InThread(lambda: client.action({"service": "tts", "action": "say"})) for _ in range(30)]
        for _ in acting:
            begun.get(timeout=GUARD)
        with takes(1.0):
            client.disconnect()
        for call in acting:
            assert isinstance(call.error(), DisconnectedError)
        go_on.set()


def test_a_client_that_reconnects(slow: SlowServer) -> None:
    """`start_bot()` takes over from a client that waits for its next attempt: there is one bot, not two."""
    client = memory_client(reconnect=ReconnectPolicy(initial_delay=1000.0, max_delay=1000.0))
    client.connect()
    transport_of(client).end(CloseInfo(initiator="network"))
    until(lambda: is_retrying(client))
    slow.answer.set()
    bundle = client.start_bot(slow.url)
    until(lambda: not any("-reconnect-" in name for name in thread_names()))
    client.connect(bundle)
    assert (client.stats().sessions, client.stats().reconnects) == (2, 0)
    client.close()


def test_a_forked_child_may_start_a_bot_of_its_own(slow: SlowServer) -> None:
    """A call that is under way at the fork is the parent's: the child may start a bot of its own."""
    client = memory_client()
    starting = starts(client, slow)

    def child() -> tuple[str, Any]:
        before = str(client.state)
        client.disconnect()
        with Server(lambda peer: peer.answer("200 OK", b"{}")) as server:
            return before, client.start_bot(f"http://127.0.0.1:{server.port}/start")

    assert in_child(child) == ("disconnected", {})
    assert client.state is TransportState.AUTHENTICATING
    slow.answer.set()
    starting.get()
    client.disconnect()


def test_at_exit(slow: SlowServer) -> None:
    """A call that is under way on a daemon thread does not keep the interpreter from exiting."""
    code, out, err = run_python(
        """
        import sys, threading
        from rtvi_sync import RTVIClient

        client = RTVIClient(timeout=None)
        begun = threading.Event()
        client.on("transport_state_changed", lambda _: begun.set())
        threading.Thread(target=client.start_bot, args=(sys.argv[1],), daemon=True).start()
        begun.wait()
        print(client.state)
        """,
        slow.url,
    )
    assert (code, out.split(), err) == (0, ["authenticating"], "")


def test_ctrl_c_ends_the_start_of_a_bot(slow: SlowServer) -> None:
    """Ctrl-C ends the call, the state is `disconnected`, and another bot can be started."""
    client = memory_client(connect_timeout=None)
    main = threading.get_ident()

    def strike() -> None:
        assert slow.asked.wait(GUARD)
        signal.pthread_kill(main, signal.SIGINT)

    striking = InThread(strike)
    with pytest.raises(KeyboardInterrupt):
        client.start_bot(slow.url)
    striking.get()
    assert client.state is TransportState.DISCONNECTED
    assert own_threads() == []
    slow.answer.set()
    client.start_bot(slow.url)
    client.disconnect()
