"""The request that precedes a session: the default one, and the caller's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import httpx
import pytest

import rtvi_sync
from rtvi_sync import (
    AbortController,
    BotAlreadyStartedError,
    ConnectionTimeoutError,
    ConnectTimeout,
    DisconnectedError,
    MemoryTransport,
    RTVIClientConfigOption,
    RTVIClientParams,
    RTVIError,
    StartBotError,
    TransportState,
)
from tests.support.attempts import connect_within, timed_out
from tests.support.clients import bundle_of, memory_client, silent_bot, transport_of
from tests.support.http_server import Answer, ScriptedServer
from tests.support.probes import run_on_io_thread
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until


class TestDefaultRequest:
    def test_body_and_headers(self, server: ScriptedServer) -> None:
        """POST to `connect/` with config, services, request data and version, and the headers of the params."""
        server.answers["/v1/connect/"] = Answer({"ws_url": "ws://x", "token": None})
        config = [{"service": "llm", "options": [{"name": "model", "value": {"deep": [1, None]}}]}]
        params = {
            "base_url": f"{server.url}/v1",
            "headers": {"Authorization": "Bearer abc", "X-Mine": "1"},
            "request_data": {"user": "ada", "nested": {"a": [1]}},
            "services": {"llm": "together"},
            "config": config,
        }
        with memory_client(params=params) as client:
            assert bundle_of(client) == {"ws_url": "ws://x", "token": None}
        (request,) = server.requests
        assert (request.method, request.path) == ("POST", "/v1/connect/")
        assert request.body == {
            "config": config,
            "services": {"llm": "together"},
            "user": "ada",
            "nested": {"a": [1]},
            "rtvi_client_version": rtvi_sync.__version__,
        }
        assert next(iter(request.body)) == "config"
        assert request.headers["authorization"] == "Bearer abc"
        assert request.headers["x-mine"] == "1"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["user-agent"] == f"rtvi_sync/{rtvi_sync.__version__}"

    def test_mappings_that_are_no_dicts(self, server: ScriptedServer) -> None:
        """A mapping that is not a dict is sent as an object."""
        server.answers["/connect/"] = Answer({})
        given = {"headers": {"X-Mine": "1"}, "request_data": {"user": "ada"}, "services": {"llm": "together"}}
        params = {name: MappingProxyType(value) for name, value in given.items()}
        with memory_client(params={"base_url": server.url, **params}):
            pass
        (request,) = server.requests
        assert request.headers["x-mine"] == "1"
        assert request.body["user"] == "ada"
        assert request.body["services"] == {"llm": "together"}

    def test_minimal_body(self, server: ScriptedServer) -> None:
        """Without params of the program the body has an empty config and the version, and no services."""
        server.answers["/connect/"] = Answer({})
        with memory_client(params={"base_url": server.url}):
            pass
        assert server.requests[0].body == {"config": [], "rtvi_client_version": rtvi_sync.__version__}

    def test_config_objects(self, server: ScriptedServer) -> None:
        """Config entries and options may be objects, mappings, or both in one another; their order is kept."""
        server.answers["/connect/"] = Answer({})
        entries = [
            RTVIClientConfigOption(service="tts", options=[rtvi_sync.ConfigOption(name="voice", value="a")]),
            {"service": "llm", "options": [rtvi_sync.ConfigOption("model", "large")]},
            RTVIClientConfigOption("vad", [{"name": "params", "value": {}}]),  # type: ignore[list-item]
        ]
        with memory_client(params={"base_url": server.url, "config": entries}):
            pass
        assert server.requests[0].body["config"] == [
            {"service": "tts", "options": [{"name": "voice", "value": "a"}]},
            {"service": "llm", "options": [{"name": "model", "value": "large"}]},
            {"service": "vad", "options": [{"name": "params", "value": {}}]},
        ]

    def test_what_is_no_config(self, server: ScriptedServer) -> None:
        """A config that is none is refused before a request is made, with an error that says where."""
        client = memory_client(params={"base_url": server.url, "config": [{"service": "llm", "options": "large"}]})
        with pytest.raises(TypeError, match=r"config\[0\]\.options must be a list"):
            client.connect()
        assert server.requests == []

    def test_params_are_read_afresh(self, server: ScriptedServer) -> None:
        """Changes between two connects are in the second request, also if the params are replaced."""
        server.answers["/connect/"] = server.answers["/other/"] = Answer({})
        client = memory_client(params={"base_url": server.url, "request_data": {"n": 1}})
        with client:
            pass
        client.params.request_data = {"n": 2}
        with client:
            pass
        client.params = {
            "baseUrl": server.url,
            "endpoints": {"connect": "/other/"},
            "requestData": {"n": 3},
        }
        with client:
            pass
        assert [(r.path, r.body["n"]) for r in server.requests] == [("/connect/", 1), ("/connect/", 2), ("/other/", 3)]

    def test_the_answer_is_handed_over_whole(self, server: ScriptedServer) -> None:
        """The transport gets every field that the server sent."""
        answer = {"wsUrl": "ws://x", "sessionId": "1", "iceConfig": {"iceServers": []}, "mine": [1, {"a": None}]}
        server.answers["/connect/"] = Answer(answer)
        with memory_client(params={"base_url": server.url}) as client:
            assert bundle_of(client) == answer

    def test_no_request_without_base_url(self, server: ScriptedServer) -> None:
        """Without `base_url` the transport has to know where to connect."""
        with memory_client() as client:
            assert bundle_of(client) is None
        assert server.requests == []

    def test_no_request_without_endpoint(self, server: ScriptedServer) -> None:
        """`endpoints.connect` None means that there is none to call."""
        with memory_client(params={"base_url": server.url, "endpoints": {"connect": None}}) as client:
            assert bundle_of(client) is None
        assert server.requests == []

    @pytest.mark.parametrize("given", [{"ws_url": "ws://x"}, {}])
    def test_no_request_with_connection_params(self, server: ScriptedServer, given: dict[str, Any]) -> None:
        """Connection params from the caller are used unchanged, and a custom handler is not called either."""
        client = memory_client(
            params={"base_url": server.url}, custom_connect_handler=lambda *_: pytest.fail("it was called")
        )
        client.connect(given)
        assert bundle_of(client) == given
        client.disconnect()
        assert server.requests == []

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"info": "no credit", "detail": "x"}, "no credit"),
            ({"detail": "no such bot"}, "no such bot"),
            (b"<html>", "Payment Required"),
        ],
    )
    def test_refusal(self, server: ScriptedServer, body: Any, message: str) -> None:
        """A response other than 2xx is a `StartBotError` with the status and the reason; the next connect() works."""
        server.answers["/connect/"] = Answer(body, 402)
        client = memory_client(params={"base_url": server.url})
        with pytest.raises(StartBotError, match=message) as caught:
            client.connect()
        assert caught.value.status == 402
        assert client.state.value == "error"
        assert thread_names() == []
        server.answers["/connect/"] = Answer({})
        with client:
            assert client.state is TransportState.READY

    def test_redirect_within_the_origin(self, server: ScriptedServer) -> None:
        """A 307 for a missing slash is followed with method, body and headers."""
        server.answers["/connect"] = Answer({}, 307, {"Location": "/connect/"})
        server.answers["/connect/"] = Answer({"ws_url": "ws://x"})
        params = {
            "base_url": server.url,
            "endpoints": {"connect": "connect"},
            "headers": {"Authorization": "Bearer abc"},
            "request_data": {"n": 1},
        }
        with memory_client(params=params) as client:
            assert bundle_of(client) == {"ws_url": "ws://x"}
        assert [r.path for r in server.requests] == ["/connect", "/connect/"]
        assert server.requests[1].body["n"] == 1
        assert server.requests[1].headers["authorization"] == "Bearer abc"

    def test_redirect_to_another_origin(self, server: ScriptedServer) -> None:
        """A redirect to another origin is not followed, so that no credential leaves the origin."""
        server.answers["/connect/"] = Answer({}, 307, {"Location": "http://127.0.0.1:9/connect/"})
        client = memory_client(params={"base_url": server.url, "headers": {"Authorization": "Bearer abc"}})
        with pytest.raises(StartBotError, match="redirects") as caught:
            client.connect()
        assert caught.value.status == 307

    def test_http_client_of_the_callers(self, server: ScriptedServer) -> None:
        """An `httpx.Client` of the caller's makes the request and is not closed."""
        server.answers["/connect/"] = Answer({"ws_url": "ws://x"})
        with httpx.Client(headers={"X-Client": "mine"}) as http_client:
            client = memory_client(params={"base_url": server.url}, http_client=http_client)
            with client:
                assert bundle_of(client) == {"ws_url": "ws://x"}
            assert not http_client.is_closed
        assert server.requests[0].headers["x-client"] == "mine"

    def test_data_that_is_no_json(self, server: ScriptedServer) -> None:
        """Request data that cannot be sent raises before anything is, and the client can be used again."""
        client = memory_client(params={"base_url": server.url, "request_data": {"x": object()}})
        with pytest.raises(TypeError, match=r"params\.request_data\['x'\] is an object"):
            client.connect()
        assert client.state is TransportState.ERROR
        assert server.requests == []
        client.params.base_url = None
        with client:
            pass


class TestHandler:
    def test_it_gets_params_timeout_and_controller(self) -> None:
        """The handler's return value goes to the transport; it runs on a thread of ours and knows its time."""
        seen: list[Any] = []

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            seen.extend([params, timeout.remaining(), abort.signal.aborted, threading.current_thread().name])
            timeout.clear()
            seen.append(timeout.remaining())
            return {"ws_url": "ws://from-handler"}

        client = memory_client(params={"base_url": "http://x"}, custom_connect_handler=handler)
        with client:
            assert bundle_of(client) == {"ws_url": "ws://from-handler"}
        assert seen[0] is client.params
        assert GUARD - 1 < seen[1] <= GUARD
        assert seen[2] is False
        assert seen[3].startswith("rtvi-connect-")
        assert seen[4] is None

    def test_it_gets_a_timeout_without_a_limit_too(self) -> None:
        """A handler gets a timeout object even without a limit, and its remaining time is None."""
        seen: list[Any] = []

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            seen.append(timeout.remaining())
            timeout.clear()

        with memory_client(custom_connect_handler=handler, connect_timeout=None):
            pass
        assert seen == [None]

    def test_clear_does_not_end_the_deadline(self) -> None:
        """`clear()` ends the handler's own limit; the limit of `connect()` runs on until the bot is ready."""

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            timeout.clear()

        client = memory_client(silent_bot, custom_connect_handler=handler)
        timed_out("bot-ready", partial(connect_within, client))

    def test_its_exception(self) -> None:
        """An exception becomes a `StartBotError` with it as the cause, and the state is `error`."""
        error = ValueError("my server is down")

        def handler(*_: Any) -> Any:
            raise error

        client = memory_client(custom_connect_handler=handler)
        with pytest.raises(StartBotError, match="ValueError: my server is down") as caught:
            client.connect()
        assert caught.value.__cause__ is error
        assert client.state is TransportState.ERROR

    def test_its_rtvi_error(self) -> None:
        """An `RTVIError` passes unchanged."""
        error = StartBotError("mine", status=418)

        def handler(*_: Any) -> Any:
            raise error

        client = memory_client(custom_connect_handler=handler)
        with pytest.raises(StartBotError) as caught:
            client.connect()
        assert caught.value is error
        assert client.state is TransportState.ERROR

    def test_its_exit(self) -> None:
        """`sys.exit()` in a handler is raised where `connect()` was called."""

        def handler(*_: Any) -> Any:
            raise SystemExit(3)

        client = memory_client(custom_connect_handler=handler)
        with pytest.raises(SystemExit):
            client.connect()
        assert client.state is TransportState.ERROR
        assert thread_names() == []

    def test_abort_inside(self) -> None:
        """`abort()` in the handler rejects the request: `StartBotError`, state `error`."""

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            abort.abort()
            assert timeout.remaining() is None
            assert abort.signal.wait(0)
            return {"ws_url": "ws://x"}

        client = memory_client(custom_connect_handler=handler)
        with pytest.raises(StartBotError, match="aborted"):
            client.connect()
        assert client.state is TransportState.ERROR
        assert bundle_of(client) is None

    def test_abort_from_another_thread(self) -> None:
        """abort() makes `connect()` raise at once, though the handler still runs; its late result is not used."""
        controller: list[AbortController] = []
        called, release = threading.Event(), threading.Event()

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            controller.append(abort)
            called.set()
            release.wait(GUARD)
            return {"ws_url": "ws://late"}

        client = memory_client(custom_connect_handler=handler, connect_timeout=None)
        connecting = InThread(client.connect)
        assert called.wait(GUARD)
        late = [t for t in threading.enumerate() if "-connect-" in t.name]
        assert controller[0].abort()
        assert isinstance(connecting.error(), StartBotError)
        assert client.state is TransportState.ERROR
        release.set()
        late[0].join(GUARD)
        assert not late[0].is_alive()
        assert bundle_of(client) is None
        assert controller[0].abort() is False

    def test_abort_with_a_reason(self) -> None:
        """If the program aborts with an exception of its own, `connect()` raises it."""

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            abort.abort(StartBotError("the user has changed his mind"))

        with pytest.raises(StartBotError, match="changed his mind"):
            memory_client(custom_connect_handler=handler).connect()

    def test_on_abort_runs_off_the_io_thread(self) -> None:
        """Invariant "user code never runs on io": a function given to `on_abort()` runs on a close thread, and one
        that blocks holds up no call that waits for an answer."""
        names: list[str] = []
        called, blocked, release = threading.Event(), threading.Event(), threading.Event()

        def on_abort() -> None:
            names.append(threading.current_thread().name)
            blocked.set()
            release.wait(GUARD)

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            abort.signal.on_abort(on_abort)
            called.set()
            release.wait(GUARD)

        client = memory_client(custom_connect_handler=handler)
        connecting = InThread(client.connect)
        assert called.wait(GUARD)
        disconnecting = InThread(client.disconnect)
        assert blocked.wait(GUARD)
        run_on_io_thread(release.set)
        disconnecting.get()
        connecting.error()
        assert names[0].startswith("rtvi-close-")

    def test_on_abort_that_exits(self) -> None:
        """A function given to `on_abort()` that calls `sys.exit()` does not keep the session from ending."""

        def leave() -> None:
            raise SystemExit(3)

        def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
            abort.signal.on_abort(leave)

        client = memory_client(silent_bot, custom_connect_handler=handler, connect_timeout=0.2)
        for _ in range(2):
            with pytest.raises(ConnectionTimeoutError):
                client.connect()
            until(lambda: thread_names() == [])

    def test_disconnect_inside(self) -> None:
        """A handler may call `disconnect()`: it returns at once, and `connect()` raises."""

        def handler(*_: Any) -> Any:
            client.disconnect()
            return {"ws_url": "ws://x"}

        client = memory_client(custom_connect_handler=handler)
        with pytest.raises(DisconnectedError) as caught:
            client.connect()
        assert caught.value.initiator == "client"
        assert client.state is TransportState.DISCONNECTED
        assert bundle_of(client) is None

    def test_connect_inside(self) -> None:
        """A handler may not call `connect()`: an attempt is under way already."""
        raised: list[BaseException] = []

        def handler(*_: Any) -> Any:
            try:
                client.connect()
            except RTVIError as error:
                raised.append(error)

        client = memory_client(custom_connect_handler=handler)
        with client:
            pass
        assert isinstance(raised[0], BotAlreadyStartedError)

    def test_no_request_is_made_besides(self, server: ScriptedServer) -> None:
        """The handler replaces the default request."""
        with memory_client(params={"base_url": server.url}, custom_connect_handler=lambda *_: {"a": 1}):
            pass
        assert server.requests == []


def test_a_hanging_function_given_to_on_abort(limits: Callable[..., None]) -> None:
    """Invariant "connect": the program's code that runs when an attempt is abandoned cannot block it for ever."""
    limits(teardown=0.5)
    release = threading.Event()

    def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> Any:
        abort.signal.on_abort(lambda: release.wait(GUARD))
        release.wait(GUARD)

    client = memory_client(custom_connect_handler=handler, connect_timeout=0.2)
    connecting = InThread(client.connect)
    assert isinstance(connecting.error(), ConnectionTimeoutError)
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("rtvi-"):
            thread.join(GUARD)


def test_memory_transport_sees_no_headers(server: ScriptedServer) -> None:
    """`params.headers` are for requests; the transport is not told."""
    server.answers["/connect/"] = Answer({"a": 1})
    client = memory_client(params={"base_url": server.url, "headers": {"Authorization": "secret"}})
    with client:
        transport = transport_of(client)
        assert isinstance(transport, MemoryTransport)
        assert "secret" not in repr(transport.options) + repr(transport.auth_bundle)
