"""Messages to the bot, and calls that wait for its answer."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    MemoryTransport,
    MessageTooLargeError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
    WebSocketTransport,
    WouldDeadlockError,
    connect,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, deaf_bot, memory_client, silent_bot, transport_of
from tests.support.http_server import Answer, Request, ScriptedServer
from tests.support.loopback import Peer, Server
from tests.support.probes import requests_under_way
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread
from tests.support.waiting import until


def sent(client: RTVIClient) -> list[RTVIMessage]:
    """Return the messages that the client has sent after client-ready."""
    return transport_of(client).sent[1:]


def ask(client: RTVIClient, type_: str, data: Any = None, **options: Any) -> tuple[InThread, str]:
    """Ask on a thread; returns it and the id of the request, once that was sent."""
    before = len(transport_of(client).sent)
    thread = InThread(lambda: client.send_client_request(type_, data, **options))
    until(lambda: len(transport_of(client).sent) > before)
    return thread, transport_of(client).sent[before].id


class TestOverALimit:
    """An answer over a limit of the client fails its call at once, without a time limit too."""

    def test_json(self) -> None:
        """The call fails with the name of the limit; the session, and other calls, go on."""
        with memory_client(deaf_bot, request_timeout=None) as client:
            (thread, id_), (other, other_id) = ask(client, "much"), ask(client, "little")
            transport_of(client).receive(
                '{"label": "rtvi-ai", "type": "server-response", "id": "'
                + id_
                + '", "data": '
                + "[" * 101
                + "]" * 101
                + "}"
            )
            error = thread.error()
            assert type(error) is ProtocolError
            assert "MAX_DEPTH" in str(error)
            bot_says(client, "server-response", {"d": 1}, other_id)
            assert other.get() == 1

    def test_a_config(self, caplog: pytest.LogCaptureFixture) -> None:
        """A config that `connect()` fetches by itself, and that is over a limit, is a warning."""

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Any:
            if message.type == "client-ready":
                yield RTVIMessage("bot-ready", {"version": "0.3.0"}, message.id)
            elif message.type == "get-config":
                deep = "[" * 101 + "]" * 101
                yield f'{{"label": "rtvi-ai", "type": "config", "id": "{message.id}", "data": {deep}}}'

        with memory_client(bot, request_timeout=None) as client:
            assert client.config is None
        (said,) = [r.getMessage() for r in caplog.records if "client.config stays None" in r.getMessage()]
        assert "MAX_DEPTH" in said

    def test_bytes(self) -> None:
        """A message over `max_inbound_message_size` ends the session, and the call's error names the option."""
        with EmbeddedBot() as bot:
            transport = WebSocketTransport(bot.ws_url, max_inbound_message_size=2000)
            named = pytest.raises(DisconnectedError, match="max_inbound_message_size sets the limit")
            with RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink()) as client, named:
                client.send_client_request("echo", "x" * 3000, timeout=None)


class TestMessages:
    def test_send_message(self) -> None:
        """send_message() sends any message as it is, returns None and waits for nothing."""
        with memory_client(deaf_bot) as client:
            message = RTVIMessage("anything", {"a": [1, None]}, "my-id")
            assert client.send_message(message) is None  # type: ignore[func-returns-value]
            assert sent(client) == [message]
            assert requests_under_way(client) == 0

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda c: c.send_client_message("t"), ("client-message", {"t": "t"})),
            (lambda c: c.send_client_message("t", {"x": 1}), ("client-message", {"t": "t", "d": {"x": 1}})),
            (lambda c: c.send_client_message("t", 0), ("client-message", {"t": "t", "d": 0})),
            (
                lambda c: c.send_text("hi"),
                ("send-text", {"content": "hi", "options": {"run_immediately": True, "audio_response": True}}),
            ),
            (
                lambda c: c.send_text("hi", run_immediately=False, audio_response=False),
                ("send-text", {"content": "hi", "options": {"run_immediately": False, "audio_response": False}}),
            ),
            (lambda c: c.disconnect_bot(), ("disconnect-bot", {})),
        ],
    )
    def test_what_is_sent(self, call: Callable[[RTVIClient], None], message: tuple[str, Any]) -> None:
        """Type and data of each kind of message; every one has an id of its own."""
        with memory_client(deaf_bot) as client:
            call(client)
            call(client)
            assert [(m.type, m.data) for m in sent(client)] == [message] * 2
            assert len({m.id for m in sent(client)}) == 2

    def test_disconnect_bot(self) -> None:
        """The bot leaves: `disconnected` fires with the server as its initiator; the call itself closes nothing."""
        client = memory_client(deaf_bot)
        ended: list[Any] = []
        client.on("disconnected", ended.append)
        client.connect()
        client.disconnect_bot()
        assert client.state is TransportState.READY
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))
        client.disconnect()
        assert ended == [CloseInfo(code=1000, initiator="server")]

    @pytest.mark.parametrize("data", [object(), {"x": {1, 2}}, float("nan"), b"bytes"])
    def test_data_that_is_no_json(self, data: Any) -> None:
        """Data that JSON cannot hold is the caller's mistake; nothing is sent and the session goes on."""
        with memory_client() as client:
            for call in (client.send_client_message, client.send_client_request):
                with pytest.raises((TypeError, ValueError)):
                    call("t", data)
            assert sent(client) == []
            assert requests_under_way(client) == 0
            assert client.send_client_request("ping", 1) == 1

    def test_size_limit(self) -> None:
        """A message over the transport's limit raises before a byte is sent; one at the limit passes."""
        with memory_client(deaf_bot) as client:
            transport = transport_of(client)
            transport.max_message_size = 1000
            frame = len(transport.serialize(RTVIMessage("client-message", {"t": "t", "d": ""})).encode())
            client.send_client_message("t", "x" * (1000 - frame))
            for call in (client.send_client_message, client.send_client_request):
                with pytest.raises(MessageTooLargeError, match="1001 bytes"):
                    call("t", "x" * (1001 - frame))
            with pytest.raises(MessageTooLargeError):
                client.send_text("ü" * 999)
            assert len(sent(client)) == 1
            assert requests_under_way(client) == 0

    def test_not_ready(self) -> None:
        """Without a ready bot every call says so: before `connect()`, while connecting, and after the end."""
        calls: list[Callable[[RTVIClient], Any]] = [
            lambda c: c.send_message(RTVIMessage("x")),
            lambda c: c.send_client_message("x"),
            lambda c: c.send_client_request("x"),
            lambda c: c.send_text("x"),
            lambda c: c.disconnect_bot(),
        ]
        client = memory_client(silent_bot)
        for call in calls:
            with pytest.raises(BotNotReadyError, match=r"connect\(\)"):
                call(client)
        connecting = InThread(client.connect)
        until(lambda: client.state is TransportState.CONNECTED)
        for call in calls:
            with pytest.raises(BotNotReadyError, match="not ready yet"):
                call(client)
        client.disconnect()
        connecting.error()
        for call in calls:
            with pytest.raises(BotNotReadyError, match=r"connect\(\)"):
                call(client)
        assert sent(client) == []

    def test_not_ready_though_bot_ready_has_come(self) -> None:
        """A bot-ready that overtakes the opening of the transport does not open the gate early."""
        client = memory_client()
        transport = transport_of(client)
        real = transport.connect
        errors: list[BaseException] = []

        def connect(*arguments: Any) -> None:
            real(*arguments)
            transport.receive({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {"version": "2.2.0"}})
            try:
                client.send_text("early")
            except BotNotReadyError as error:
                errors.append(error)

        transport.connect = connect
        with client:
            assert len(errors) == 1

    @pytest.mark.parametrize(
        ("version", "message"),
        [
            ("0.3.0", RTVIMessage("client-message", {"t": "x"})),
            ("0.3.0", RTVIMessage("send-text", {})),
            ("2.2.0", RTVIMessage("get-config", {})),
        ],
    )
    def test_unsupported_by_the_bot(self, version: str, message: RTVIMessage) -> None:
        """A message that the connected bot's version does not know raises before a byte is sent."""

        def bot(transport: MemoryTransport, message: RTVIMessage) -> Any:
            if message.type == "client-ready":
                yield RTVIMessage("bot-ready", {"version": version, "config": []}, message.id)

        with memory_client(bot) as client:
            with pytest.raises(UnsupportedFeatureError, match=version):
                client.send_message(message)
            assert sent(client) == []


class TestRequests:
    def test_answers(self) -> None:
        """The result is the data of the answer, any JSON, or None without one."""
        with memory_client() as client:
            values: tuple[Any, ...] = (1, "x", {"a": [None]}, [], False)
            for data in values:
                assert client.send_client_request("echo", data) == data
            assert client.send_client_request("echo") is None

    def test_out_of_order(self) -> None:
        """Answers find their calls by id, in any order."""
        with memory_client(deaf_bot) as client:
            calls = [ask(client, "ask", n) for n in range(10)]
            for number, (_, id_) in reversed(list(enumerate(calls))):
                bot_says(client, "server-response", {"t": "ask", "d": number * 2}, id_)
            assert [thread.get() for thread, _ in calls] == [n * 2 for n in range(10)]

    def test_twice(self) -> None:
        """A second answer is ignored, and so is one to a request that was not made."""
        with memory_client(deaf_bot) as client:
            thread, id_ = ask(client, "ask")
            for value in (1, 2):
                bot_says(client, "server-response", {"t": "ask", "d": value}, id_)
            bot_says(client, "server-response", {"t": "ask", "d": 3}, "nobodys")
            bot_says(client, "server-response", {"t": "ask", "d": 3}, None)
            bot_says(client, "error-response", {"error": "x"}, "nobodys")
            assert thread.get() == 1
            assert requests_under_way(client) == 0

    def test_never(self) -> None:
        """A request without an answer raises `RequestTimeoutError`; a late answer belongs to no later call."""
        with memory_client(deaf_bot) as client:
            raises = pytest.raises(RequestTimeoutError, match=r"within 0\.2 s")
            with takes(1.0, at_least=0.2), raises as caught:
                client.send_client_request("ask", timeout=0.2)
            assert isinstance(caught.value, TimeoutError)
            assert requests_under_way(client) == 0
            bot_says(client, "server-response", {"t": "ask", "d": 1}, sent(client)[0].id)
            thread, id_ = ask(client, "ask")
            bot_says(client, "server-response", {"t": "ask", "d": 2}, id_)
            assert thread.get() == 2

    def test_default_limit(self) -> None:
        """The client's `request_timeout` counts if the call names none."""
        with memory_client(deaf_bot, request_timeout=0.1) as client, pytest.raises(RequestTimeoutError):
            client.send_client_request("ask")

    def test_no_limit(self) -> None:
        """`timeout=None` waits as long as it takes, though the client has a limit."""
        with memory_client(deaf_bot, request_timeout=0.05) as client:
            thread, id_ = ask(client, "ask", timeout=None)
            assert thread.goes_on(0.2)
            bot_says(client, "server-response", {"t": "ask", "d": 1}, id_)
            assert thread.get() == 1

    @pytest.mark.parametrize(
        ("data", "text"),
        [({"error": "not today"}, "not today"), ("plain", "plain"), (None, "no reason given"), ({"error": 5}, "no re")],
    )
    def test_an_error_response_rejects_the_request(self, data: Any, text: str) -> None:
        """An `error-response` raises `RequestRejectedError` with the message, and fires `message_error`."""
        with memory_client(deaf_bot) as client:
            with client.events("message_error", "unknown_message", timeout=GUARD) as stream:
                thread, id_ = ask(client, "ask")
                bot_says(client, "error-response", data, id_)
                error = thread.error()
                assert isinstance(error, RequestRejectedError)
                assert text in str(error)
                assert error.response == RTVIMessage("error-response", data, id_)
                assert next(stream).message == error.response
            assert client.state is TransportState.READY

    def test_a_long_refusal(self) -> None:
        """A bot's text does not blow up the exception, and cannot forge lines of a log."""
        with memory_client(deaf_bot) as client:
            thread, id_ = ask(client, "ask")
            bot_says(client, "error-response", {"error": "x\n" * 1_000_000}, id_)
            text = str(thread.error())
            assert len(text) < 1000
            assert "\n" not in text

    @pytest.mark.parametrize("data", [None, "text", 5, [], {}, {"t": 1}])
    def test_a_malformed_answer(self, data: Any) -> None:
        """An answer without data is None, whatever else is in it."""
        with memory_client(deaf_bot) as client:
            thread, id_ = ask(client, "ask")
            bot_says(client, "server-response", data, id_)
            assert thread.get() is None

    def test_an_answer_is_an_event_too(self) -> None:
        """`server_response` fires for its listeners."""
        with memory_client() as client, client.events("server_response", timeout=GUARD) as stream:
            client.send_client_request("ask", 5)
            event = next(stream)
            assert (event.data.t, event.data.d) == ("ask", 5)

    def test_an_answer_before_the_write_returns(self) -> None:
        """Invariant "registered before the write": a bot that answers inside `send_message()` is heard."""
        with memory_client() as client:
            for n in range(100):
                assert client.send_client_request("echo", n) == n

    def test_requests_of_many_threads_get_their_own_answers(self) -> None:
        """Requests of many threads at once all get their own answers."""

        def ask(n: int) -> list[Any]:
            return [client.send_client_request("echo", [n, k]) for k in range(100)]

        with memory_client() as client:
            threads = [InThread(partial(ask, n)) for n in range(8)]
            for number, thread in enumerate(threads):
                assert thread.get() == [[number, k] for k in range(100)]
            assert requests_under_way(client) == 0

    def test_a_write_that_fails(self) -> None:
        """The error of the transport is the call's, and nothing is left waiting."""
        with memory_client(deaf_bot) as client:
            transport = transport_of(client)
            real = transport.send_message

            def broken(message: RTVIMessage) -> None:
                raise OSError("broken pipe")

            transport.send_message = broken
            with pytest.raises(OSError, match="broken pipe"):
                client.send_client_request("ask")
            assert requests_under_way(client) == 0
            transport.send_message = real


class TestTheLineDies:
    @pytest.mark.parametrize("initiator", ["server", "network", "client"])
    def test_every_waiting_call(self, initiator: str) -> None:
        """Invariant "every pending call failed": all who wait get `DisconnectedError` within a second, each its own,
        with code, reason and initiator."""
        with memory_client(deaf_bot, request_timeout=None) as client:
            calls = [ask(client, "ask")[0] for _ in range(5)]
            with takes(1.0):
                if initiator == "client":
                    InThread(client.disconnect)
                else:
                    transport_of(client).end(CloseInfo(code=1012, reason="restart", initiator=initiator))
                errors = [call.error() for call in calls]
            assert all(isinstance(error, DisconnectedError) for error in errors)
            assert all(isinstance(error, ConnectionError) for error in errors)
            assert {error.initiator for error in errors} == {initiator}  # type: ignore[attr-defined]
            if initiator != "client":
                assert {(e.code, e.reason) for e in errors} == {(1012, "restart")}  # type: ignore[attr-defined]
            assert len({id(error) for error in errors}) == 5

    def test_while_the_transport_closes_slowly(self) -> None:
        """No call waits for the transport to close before learning that there will be no answer."""
        release = threading.Event()
        with memory_client(deaf_bot, request_timeout=None) as client:
            transport = transport_of(client)
            real = transport.disconnect

            def slow() -> None:
                release.wait(GUARD)
                real()

            transport.disconnect = slow
            call, _ = ask(client, "ask")
            leaving = InThread(client.disconnect)
            assert isinstance(call.error(), DisconnectedError)
            with pytest.raises(BotNotReadyError):
                client.send_text("late")
            assert not leaving.done
            release.set()
            leaving.get()

    def test_a_fatal_error_of_the_bot(self) -> None:
        """A waiting call learns the bot's reason."""
        from rtvi_sync import BotError

        with memory_client(deaf_bot, request_timeout=None) as client:
            heard: list[Any] = []
            client.on("error", heard.append)
            client.on("disconnected", heard.append)
            call, _ = ask(client, "ask")
            bot_says(client, "error", {"error": "it broke", "fatal": True})
            error = call.error()
            assert isinstance(error, DisconnectedError)
            assert "it broke" in str(error)
            assert isinstance(error.__cause__, BotError)
        assert heard[0].message == "it broke"
        assert isinstance(heard[1].error, BotError)
        assert heard[1].error.fatal is True

    def test_an_error_that_is_not_fatal(self) -> None:
        """An error that is not fatal is an event and no more."""
        with memory_client() as client, client.events("error", timeout=GUARD) as stream:
            bot_says(client, "error", {"error": "oops", "fatal": False})
            assert next(stream).data.message == "oops"
            assert client.send_client_request("ping", 1) == 1

    @pytest.mark.parametrize("how", ["drop", "close", "disconnect_bot"])
    def test_over_websocket(self, how: str) -> None:
        """A WebSocket that is dropped, or closed by the bot, ends a waiting request with `DisconnectedError`."""

        def handler(session: Any, message: Any) -> bool:
            return message["type"] == "client-message"

        with (
            EmbeddedBot(handler=handler) as bot,
            RTVIClient(
                transport=WebSocketTransport(bot.ws_url),
                mic=SilenceSource(),
                speaker=NullSink(),
                request_timeout=None,
                connect_timeout=GUARD,
            ) as client,
        ):
            session = bot.wait_for_session()
            ended = client.events("disconnected", timeout=GUARD)
            call = InThread(lambda: client.send_client_request("ask"))
            session.wait_for_message("client-message")
            with takes(1.0):
                if how == "drop":
                    session.drop()
                elif how == "close":
                    session.close(1012, "restart")
                else:
                    client.disconnect_bot()
                error = call.error()
            assert isinstance(error, DisconnectedError)
            info = next(ended).data
            assert (error.code, error.reason, error.initiator) == (info.code, info.reason, info.initiator)
            expected = {"drop": (None, "network"), "close": (1012, "server"), "disconnect_bot": (1000, "server")}
            assert (info.code, info.initiator) == expected[how]


def test_websocket_size_limit_is_of_the_frame() -> None:
    """Over WebSocket, the limit applies to the serialized frame."""
    with (
        EmbeddedBot() as bot,
        RTVIClient(
            transport=WebSocketTransport(bot.ws_url, max_message_size=2000),
            mic=SilenceSource(),
            speaker=NullSink(),
            connect_timeout=GUARD,
        ) as client,
    ):
        with pytest.raises(MessageTooLargeError, match="2000"):
            client.send_client_request("echo", "x" * 2000)
        assert client.send_client_request("echo", "x" * 1500) == "x" * 1500


def test_request_on_a_lane_of_its_own_answer() -> None:
    """A handler of `server_response` that asks again is answered."""
    with memory_client() as client:
        answers: list[Any] = []
        done = threading.Event()

        def again(response: Any) -> None:
            if response.d < 5:
                answers.append(client.send_client_request("echo", response.d + 1))
            else:
                done.set()

        client.on("server_response", again)
        client.send_client_request("echo", 0)
        assert done.wait(GUARD)
        assert answers == [1, 2, 3, 4, 5]


def test_wrong_thread_does_not_deadlock() -> None:
    """A handler that waits for another thread which waits for an event gets out by that thread's time-out."""
    with memory_client() as client:
        outcome: list[Any] = []
        done = threading.Event()

        def handler() -> None:
            outcome.append(InThread(lambda: client.wait_for("bot_llm_started", timeout=0.1)).error())
            try:
                client.wait_for("bot_llm_started")
            except WouldDeadlockError as error:
                outcome.append(error)
            done.set()

        client.on("server_message", handler)
        bot_says(client, "server-message", 1)
        assert done.wait(GUARD)
        assert [type(e) for e in outcome] == [RequestTimeoutError, WouldDeadlockError]


def test_the_peer_that_never_reads() -> None:
    """A server that accepts everything and answers nothing holds up no caller longer than its limit."""
    with Server(Peer.hold) as server:
        client = RTVIClient(transport=WebSocketTransport(f"ws://{server.authority}"), connect_timeout=0.3)
        with pytest.raises(TimeoutError):
            client.connect()


class TestUploads:
    """Files that are too large for a message."""

    LARGE = bytes(range(256)) * 8192  # 2 MiB; a message has 1 MiB

    @pytest.fixture
    def started(self, server: ScriptedServer) -> Iterator[Callable[..., tuple[RTVIClient, EmbeddedBot]]]:
        """Yield a function that connects a client to a bot whose start endpoint returns a given answer."""
        with contextlib.ExitStack() as stack:
            bot = stack.enter_context(EmbeddedBot())

            def connected(cookie: str = "a=1; Path=/", **answer: Any) -> tuple[RTVIClient, EmbeddedBot]:
                server.answers["/start"] = Answer({"ws_url": bot.ws_url, **answer}, headers={"Set-Cookie": cookie})
                named = {"name": "x", "source": {"type": "url", "url": "pipecat:1234"}, "format": "x"}
                server.answers.setdefault("/files", Answer(named))
                url = f"{server.url}/start".replace("//", "//ada:pw@")
                options: dict[str, Any] = {"text_only": True, "connect_timeout": GUARD, "proxy": False}
                client = connect(url, transport="websocket", headers={"X-Key": "mine"}, **options)
                return stack.enter_context(contextlib.closing(client)), bot

            yield connected

    @pytest.mark.parametrize("url", ["/files", "{server}/files"])
    def test_it_goes_to_the_server_that_has_started_the_bot(
        self, started: Any, server: ScriptedServer, tmp_path: Path, url: str
    ) -> None:
        """The bot gets the URL that the server answers with; smaller files go in the message as before."""
        client, bot = started(fileUploadUrl=url.format(server=server.url))
        path = tmp_path / "cat.png"
        path.write_bytes(self.LARGE)
        client.send_file(path, "look", run_immediately=False)
        client.send_file(b"small", run_immediately=False)
        _, upload = server.requests
        assert upload.path == "/files"
        assert self.LARGE in upload.body
        assert b'name="file"; filename="cat.png"\r\nContent-Type: image/png' in upload.body
        assert (upload.headers["x-key"], upload.headers["cookie"]) == ("mine", "a=1")
        assert upload.headers["authorization"] == "Basic YWRhOnB3"
        wanted = {"format": "image/png", "name": "cat.png", "source": {"type": "url", "url": "pipecat:1234"}}
        session = bot.wait_for_session(GUARD)
        message = session.wait_for_message("send-file", GUARD)
        assert (message["data"]["content"], message["data"]["file"]) == ("look", wanted)
        session.wait_for_message("send-file", GUARD, where=lambda m: m["data"]["file"]["source"]["type"] == "bytes")

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.2:{port}/files", "http://eve:x@127.0.0.1:{port}/files", "ftp://x/"]
    )
    def test_another_server_gets_no_file(self, started: Any, server: ScriptedServer, url: str) -> None:
        """Nothing is sent there, and the session goes on."""
        client, _ = started(fileUploadUrl=url.format(port=server.url.rpartition(":")[2]))
        with pytest.raises(RequestRejectedError, match="none of its own"):
            client.send_file(self.LARGE)
        assert len(server.requests) == 1
        assert client.connected

    def test_a_server_that_takes_none(self, started: Any, server: ScriptedServer) -> None:
        """The error names a server that takes uploads."""
        client, _ = started()
        with pytest.raises(MessageTooLargeError, match=r"of Pipecat's runner: -u FOLDER"):
            client.send_file(self.LARGE)
        assert len(server.requests) == 1

    def test_more_than_the_limit(self, started: Any, server: ScriptedServer, tmp_path: Path) -> None:
        """A file over the limit of uploads is not even read."""
        client, _ = started(fileUploadUrl="/files")
        path = tmp_path / "huge"
        path.touch()
        os.truncate(path, 51 * 1024 * 1024)
        with pytest.raises(MessageTooLargeError, match=r"at most 52428800 can be uploaded.*send its URL"):
            client.send_file(path)
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        ("answer", "error", "text"),
        [
            (Answer({"detail": "File exceeds 5 byte limit"}, 413), RequestRejectedError, "File exceeds 5 byte limit"),
            (Answer({"detail": "Invalid session"}, 404), RequestRejectedError, "connect again"),
            (Answer({"source": {"type": "url"}}), ProtocolError, "without naming it"),
            (Answer(["x"]), ProtocolError, "without naming it"),
            (Answer(b"<html>"), ProtocolError, "did not answer with JSON"),
            (Answer(None, 307, {"Location": "http://127.0.0.2:1/"}), RequestRejectedError, "not followed"),
        ],
    )
    def test_an_upload_that_fails(
        self, started: Any, server: ScriptedServer, answer: Answer, error: type[Exception], text: str
    ) -> None:
        """The bot is told nothing, and the session goes on."""
        client, bot = started(fileUploadUrl="/files")
        server.answers["/files"] = answer
        with pytest.raises(error, match=text):
            client.send_file(self.LARGE)
        assert client.connected
        assert all(message["type"] != "send-file" for message in bot.sessions[0].messages)

    def test_the_end_of_the_session_ends_it(self, started: Any, server: ScriptedServer) -> None:
        """An upload to a server that does not answer ends with the session, and at its limit."""
        reached, go_on = threading.Event(), threading.Event()

        def hang(_: Request) -> Answer:
            reached.set()
            assert go_on.wait(GUARD)
            return Answer({})

        client, _ = started(fileUploadUrl="/files")
        server.answers["/files"] = hang
        try:
            with pytest.raises(RequestTimeoutError):
                client.send_file(self.LARGE, timeout=0.2)
            reached.clear()
            call = InThread(lambda: client.send_file(self.LARGE, timeout=None))
            assert reached.wait(GUARD)
            client.disconnect()
            with pytest.raises(DisconnectedError):
                call.get()
        finally:
            go_on.set()

    def test_an_older_bot(self, server: ScriptedServer) -> None:
        """A bot that knows no files causes no upload."""
        with EmbeddedBot(version="1.2.0") as bot:
            server.answers["/start"] = Answer({"ws_url": bot.ws_url, "fileUploadUrl": "/files"})
            client = connect(f"{server.url}/start", transport="websocket", text_only=True, connect_timeout=GUARD)
            with client, pytest.raises(UnsupportedFeatureError):
                client.send_file(self.LARGE)
        assert len(server.requests) == 1
