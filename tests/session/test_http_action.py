"""Actions without a session: one request over HTTP each, whose messages go the way of a session's."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from rtvi_sync import (
    ActionEndpointNotSetError,
    ActionResponseData,
    BotError,
    BotLLMTextData,
    DisconnectedError,
    MemoryTransport,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    RTVIMessage,
    TransportState,
)
from tests.support.garbage import collect
from tests.support.loopback import Peer, Server
from tests.support.processes import run_python
from tests.support.slowness import GUARD, Stopwatch, at_some_limit, takes
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until

RUN = {"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "value": True}]}
EVENTS = "Content-Type: text/event-stream; charset=utf-8"


def message(type_: str, data: Any = None, id: str | None = None) -> dict[str, Any]:
    """Return a message as it stands in an event."""
    return RTVIMessage(type_, data, id).to_dict()


def response(id: str, result: Any = True) -> dict[str, Any]:
    return message("action-response", {"result": result}, id)


def text(word: str) -> dict[str, Any]:
    return message("bot-llm-text", {"text": word})


class Turn:
    """One request, and the answer that a test gives to it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.head, body = peer.read_request()
        self.body = json.loads(body)
        self.action = self.body["actions"][0]
        self.id = self.action["id"]

    def begin(self) -> None:
        """Start an event stream."""
        self.peer.send(
            f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )

    def say(self, *messages: Any) -> None:
        """Send events."""
        for each in messages:
            event = b"data: " + base64.b64encode(json.dumps(each).encode()) + b"\n\n"
            self.peer.send(b"%x\r\n%b\r\n" % (len(event), event))

    def end(self) -> None:
        """End the stream as one ends it."""
        self.peer.send(b"0\r\n\r\n")

    def stream(self, *messages: Any) -> None:
        """Answer with the whole stream."""
        self.begin()
        self.say(*messages)
        self.end()

    def answer(self, document: Any, status: str = "200 OK") -> None:
        """Answer with one JSON document instead."""
        self.peer.answer(status, json.dumps(document).encode(), "Content-Type: application/json")


class ActionServer(Server):
    """An endpoint for actions that answers by `respond(turn)` and keeps all turns."""

    def __init__(self, respond: Callable[[Turn], object]) -> None:
        super().__init__(self._serve_turn)
        self._respond = respond
        self.turns: list[Turn] = []

    def _serve_turn(self, peer: Peer) -> None:
        turn = Turn(peer)
        self.turns.append(turn)
        self._respond(turn)

    @property
    def url(self) -> str:
        return f"http://{self.authority}"


@contextlib.contextmanager
def serving(respond: Callable[[Turn], object], **options: Any) -> Iterator[tuple[RTVIClient, ActionServer]]:
    """Yield a client without a transport, and its server."""
    with ActionServer(respond) as server:
        client = RTVIClient(**{"params": {"base_url": server.url}, "request_timeout": GUARD, **options})
        yield client, server
        client.close()


def silent(turn: Turn) -> None:
    """Answer nothing."""
    turn.peer.server.reached.set()
    turn.peer.hold()


def begun(turn: Turn) -> None:
    """Say something, and then nothing more."""
    turn.begin()
    turn.say(text("one"))
    turn.peer.server.reached.set()
    turn.peer.hold()


def listen(client: RTVIClient, *events: str) -> list[tuple[str, Any]]:
    """Return the list of the events and data that handlers of `events` receive, in order."""
    heard: list[tuple[str, Any]] = []
    for event in events:
        client.on(RTVIEvent(event), lambda data, event=event: heard.append((event, data)))
    return heard


def act_and_settle(client: RTVIClient, heard: list[Any], count: int) -> RTVIMessage:
    """Call `action()` and wait until its events were handled."""
    answer = client.action(RUN)
    until(lambda: len(heard) >= count)
    return answer


# -- requests and responses -------------------------------------------------------------------------------------------


def test_an_action_is_posted_beside_the_request_data() -> None:
    """The action goes as a message in `actions`, beside the request data, with the headers of the parameters."""
    params = {"request_data": {"bot": "a", "actions": "not these"}, "headers": {"X-Key": "k"}}
    with serving(lambda turn: turn.stream(response(turn.id))) as (client, server):
        client.params = {**params, "base_url": f"{server.url}/v1?x=1"}
        answer = client.action(RUN)
    (turn,) = server.turns
    assert turn.head.startswith("POST /v1/action/?x=1 HTTP/1.1\r\n")
    assert "X-Key: k\r\n" in turn.head
    assert "text/event-stream, application/json\r\n" in turn.head
    assert turn.body == {"bot": "a", "actions": [{"label": "rtvi-ai", "type": "action", "id": turn.id, "data": RUN}]}
    assert (answer.id, answer.type, answer.label) == (turn.id, "action-response", "rtvi-ai")
    assert answer.data == {"result": True}
    assert thread_names() == []


def test_path_of_its_own() -> None:
    """`endpoints.action` is read when the action is called."""
    with serving(lambda turn: turn.stream(response(turn.id))) as (client, server):
        client.params.endpoints.action = "do/this"
        client.action(RUN)
    assert server.turns[0].head.startswith("POST /do/this HTTP/1.1\r\n")


def test_messages_go_to_the_handlers_in_their_order() -> None:
    """Every message reaches the handlers it would reach in a session, those behind the response too."""

    def respond(turn: Turn) -> None:
        turn.stream(
            message("bot-llm-started"), response(turn.id, 5), response("END"), text("a"), text("b"), message("odd", 1)
        )

    with serving(respond) as (client, _):
        heard = listen(client, "bot_llm_started", "action_response", "bot_llm_text", "unknown_message")
        assert act_and_settle(client, heard, 6).data == {"result": 5}
    assert [event for event, _ in heard] == [
        "bot_llm_started", "action_response", "action_response", "bot_llm_text", "bot_llm_text", "unknown_message",
    ]  # fmt: skip
    assert heard[1][1] == ActionResponseData(result=5)
    assert heard[3][1] == BotLLMTextData(text="a")


def test_it_returns_after_the_end_of_the_stream() -> None:
    """The response alone does not end the call; by the end every event has been queued."""
    may_end = threading.Event()

    def respond(turn: Turn) -> None:
        turn.begin()
        turn.say(response(turn.id), text("a"))
        assert may_end.wait(GUARD)
        turn.say(text("b"))
        turn.end()

    with serving(respond, events="manual") as (client, _):
        heard = listen(client, "bot_llm_text")
        acting = InThread(lambda: client.action(RUN))
        until(lambda: client.stats().events_queued == 1)
        assert acting.goes_on(0.1)
        may_end.set()
        acting.get()
        assert heard == []  # in manual mode only the application delivers them
        assert client.process_events() == 2
        assert [data.text for _, data in heard] == ["a", "b"]


def test_one_document() -> None:
    """A server may answer with the response alone, as JSON."""
    with serving(lambda turn: turn.answer(response(turn.id, [1]))) as (client, _):
        heard = listen(client, "action_response")
        assert act_and_settle(client, heard, 1).data == {"result": [1]}


@pytest.mark.parametrize("data", [5, [], "text"])
def test_a_result_of_the_wrong_shape(data: Any) -> None:
    """The answer to the action itself has to make sense."""
    refused = pytest.raises(ProtocolError, match="action-response: data")
    with serving(lambda turn: turn.answer(message("action-response", data, turn.id))) as (client, _), refused:
        client.action(RUN)


def test_messages_of_others_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """A message with another label is skipped; data of the wrong shape is delivered as an unknown message."""

    def respond(turn: Turn) -> None:
        turn.stream({"label": "other", "type": "x"}, {}, message("bot-llm-text", 7), response(turn.id))

    with serving(respond) as (client, _):
        heard = listen(client, "bot_llm_text", "unknown_message", "action_response")
        act_and_settle(client, heard, 2)
    assert [event for event, _ in heard] == ["unknown_message", "action_response"]
    assert "breaks the protocol" in caplog.text


def test_a_result_with_another_id_is_an_event() -> None:
    """A stream with a response to something else only lacks the answer."""
    with serving(lambda turn: turn.stream(response("END"))) as (client, _):
        heard = listen(client, "action_response")
        with pytest.raises(ProtocolError, match=r"without a response to this action.*endpoints\.action"):
            client.action(RUN)
        until(lambda: heard)


# -- refusals and failures --------------------------------------------------------------------------------------------


def test_a_refused_action() -> None:
    """The bot refuses within HTTP 200: the error has its message. The refusal and the messages after it are events,
    too.
    """

    def respond(turn: Turn) -> None:
        turn.stream(message("error-response", {"error": "no such action"}, turn.id), text("after"))

    with serving(respond) as (client, _):
        heard = listen(client, "message_error", "bot_llm_text")
        with pytest.raises(RequestRejectedError, match="no such action") as caught:
            client.action(RUN)
        assert caught.value.status is None
        assert caught.value.response.type == "error-response"
        until(lambda: len(heard) == 2)
    assert [event for event, _ in heard] == ["message_error", "bot_llm_text"]


@pytest.mark.parametrize("key", ["info", "detail"])
def test_a_refused_request(key: str) -> None:
    """An HTTP error is a refusal with its status and its text, which is cut."""
    with (
        serving(lambda turn: turn.answer({key: "no bot\n" + "x" * 5000}, "500 Oops")) as (client, _),
        pytest.raises(RequestRejectedError, match="answered 500: no bot x") as caught,
    ):
        client.action(RUN)
    assert caught.value.status == 500
    assert len(str(caught.value)) < 700
    assert client.state is TransportState.DISCONNECTED


def test_a_server_that_cannot_be_reached() -> None:
    """A server that cannot be reached is a broken connection, with no secret in the error, and no thread is left."""
    client = RTVIClient(params={"base_url": "http://127.0.0.1:9?key=secret"})
    with pytest.raises(DisconnectedError, match="refused") as caught:
        client.action(RUN)
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.initiator == "network"
    assert "secret" not in str(caught.value)
    assert thread_names() == []


def test_a_stream_that_breaks_off() -> None:
    """A stream that breaks off is a broken connection, even after the response; earlier messages are delivered."""

    def respond(turn: Turn) -> None:
        turn.begin()
        turn.say(response(turn.id), text("a"))

    with serving(respond) as (client, _):
        heard = listen(client, "bot_llm_text")
        with pytest.raises(DisconnectedError, match="failed") as caught:
            client.action(RUN)
        assert caught.value.initiator == "network"
        until(lambda: heard)


@pytest.mark.parametrize("respond", [silent, begun])
def test_a_server_that_never_answers(respond: Callable[[Turn], None]) -> None:
    """The limit is one for the whole call; when it passes nothing is left behind."""
    with serving(respond) as (client, _):
        with takes(2.0), pytest.raises(RequestTimeoutError, match=r"within 0\.3 s"):
            client.action(RUN, timeout=0.3)
        until(lambda: not thread_names())


def test_the_clients_limit() -> None:
    """Without a limit of its own the client's `request_timeout` holds."""
    with serving(silent, request_timeout=0.2) as (client, _), pytest.raises(RequestTimeoutError, match=r"0\.2 s"):
        client.action(RUN)


DEEP = json.loads("[" * 101 + "]" * 101)


def test_an_answer_over_a_limit() -> None:
    """The action fails with the name of the limit, and without a word about its endpoint, which is the right one."""
    with serving(lambda turn: turn.stream(response(turn.id, DEEP))) as (client, _), pytest.raises(ProtocolError) as it:
        client.action(RUN)
    assert "is over a limit of this client: A 'action-response' message holds more than 100 levels" in str(it.value)
    assert "endpoint" not in str(it.value)


def test_another_message_over_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """A message over a limit is skipped with a warning, as in a session."""

    def respond(turn: Turn) -> None:
        later = message("bot-ready", DEEP)
        turn.stream(message("server-message", DEEP), text("one"), response(turn.id), later)

    with serving(respond) as (client, _):
        assert [each.type for each in client.action_stream(RUN)] == ["bot-llm-text", "action-response"]
    assert caplog.text.count("over a limit of this client; it is skipped") == 2


@pytest.mark.parametrize(
    ("params", "missing"),
    [({}, "base_url"), ({"base_url": ""}, "base_url"),
     ({"base_url": "http://127.0.0.1:9", "endpoints": {"action": None}}, r"endpoints\.action")],
)  # fmt: skip
def test_no_endpoint(params: dict[str, Any], missing: str) -> None:
    """Without an endpoint for actions the call is refused, and the error names the setting."""
    client = RTVIClient(params=params)
    with pytest.raises(ActionEndpointNotSetError, match=rf"connect\(\) first, or set client\.params\.{missing}"):
        client.action(RUN)
    with pytest.raises(ActionEndpointNotSetError):
        next(iter(client.action_stream(RUN)))


@pytest.mark.parametrize("base_url", ["nonsense", "ftp://x", "http://[", "http://"])
def test_a_base_url_that_is_none(base_url: str) -> None:
    """A `base_url` that is no URL has no endpoint either."""
    with pytest.raises(ActionEndpointNotSetError, match="is not the URL of a server: it"):
        RTVIClient(params={"base_url": base_url}).action(RUN)


def test_a_header_that_is_not_valid() -> None:
    """Headers are checked where they are given."""
    with pytest.raises(ValueError, match="value of the header 'X' is not valid"):
        RTVIClient(params={"base_url": "http://127.0.0.1:9", "headers": {"X": "a\n"}})


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html>", "text/html"),
        (b"[1]", "application/json"),
        (b'{"label": "rtvi-ai", "type": 5}', "application/json"),
        (b"[" * 5000, "application/json"),
        (b'{"label": "rtvi-ai", "type": "x", "data": [' + b"[]," * 100_001 + b"1]}", "application/json"),
        (b"data: " + base64.b64encode(b"no JSON") + b"\n\n", "text/event-stream"),
        (b"data: {}\n\n", "text/event-stream"),
    ],
)
def test_answers_of_another_shape(body: bytes, content_type: str) -> None:
    """An answer that is not JSON, not a message, or too large is refused with a hint at the endpoint."""

    def respond(turn: Turn) -> None:
        turn.peer.answer("200 OK", body, f"Content-Type: {content_type}")

    with (
        serving(respond) as (client, _),
        pytest.raises(ProtocolError, match="endpoint that takes actions without a session") as caught,
    ):
        client.action(RUN)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("body", [b"", b"{}", b'{"status": "ok"}'])
def test_answers_without_a_message(body: bytes) -> None:
    """JSON that is no message of RTVI's is not the answer."""
    with (
        serving(lambda turn: turn.peer.answer("200 OK", body)) as (client, _),
        pytest.raises(ProtocolError, match="without a response to this action"),
    ):
        client.action(RUN)


def test_a_fatal_error() -> None:
    """A fatal error of the bot ends the turn as it would end a session; its event precedes the end."""

    def respond(turn: Turn) -> None:
        turn.stream(message("error", {"error": "out of order", "fatal": True}), response(turn.id))

    with serving(respond) as (client, _):
        heard = listen(client, "error")
        with pytest.raises(BotError, match="out of order") as caught:
            client.action(RUN)
        assert caught.value.fatal
        until(lambda: heard)


def test_arguments_that_are_not_json() -> None:
    """Arguments that are not JSON are the caller's error, and nothing is sent."""
    with serving(lambda turn: turn.stream()) as (client, server):
        with pytest.raises(TypeError, match=r"action\['arguments'\]\[0\]\['value'\] is an object"):
            client.action({**RUN, "arguments": [{"name": "x", "value": object()}]})
        assert server.turns == []


# -- the stream -------------------------------------------------------------------------------------------------------


def test_a_stream_hands_out_messages_as_they_come() -> None:
    """Each message is there before the server sends the next one, whatever its id; its event was queued before."""
    heard_of = threading.Semaphore(0)

    def respond(turn: Turn) -> None:
        turn.begin()
        for each in (text("a"), response(turn.id), response("END"), text("b")):
            turn.say(each)
            assert heard_of.acquire(timeout=GUARD)
        turn.end()

    with serving(respond, events="manual") as (client, _):
        heard = listen(client, "bot_llm_text", "action_response")
        kinds = []
        for received in client.action_stream(RUN):
            kinds.append((received.type, received.data))
            client.process_events()
            assert len(heard) == len(kinds)
            heard_of.release()
    assert kinds == [
        ("bot-llm-text", {"text": "a"}),
        ("action-response", {"result": True}),
        ("action-response", {"result": True}),
        ("bot-llm-text", {"text": "b"}),
    ]


def test_the_limit_of_a_stream_is_one_for_each_message() -> None:
    """A stream may take longer than its limit, and the program may take its time between two messages."""

    def check(limit: float) -> None:
        taken = threading.Semaphore(0)

        def respond(turn: Turn) -> None:
            turn.begin()
            for word in "abcd":
                turn.peer.server.stopping.wait(limit / 3)
                turn.say(text(word))
            turn.say(response(turn.id))
            turn.end()
            taken.release()

        with serving(respond) as (client, _):
            stream = client.action_stream(RUN, timeout=limit)
            assert next(stream).data == {"text": "a"}
            assert taken.acquire(timeout=GUARD)
            threading.Event().wait(1.2 * limit)  # the program is slow, and that is no failure of the server's
            assert [received.type for received in stream] == ["bot-llm-text"] * 3 + ["action-response"]

    at_some_limit(check)


def test_a_stream_whose_next_message_does_not_come() -> None:
    """The limit passes while one message is waited for, and nothing is left behind."""

    def begin(client: RTVIClient, timeout: float) -> Iterator[RTVIMessage]:
        """Return a stream whose first message has arrived, with the smallest limit that allows it."""
        stream = client.action_stream(RUN, timeout=timeout)
        try:
            assert next(stream).data == {"text": "one"}
        except RequestTimeoutError:
            assert timeout < GUARD
            return begin(client, 2 * timeout)
        return stream

    with serving(begun) as (client, _):
        stream = begin(client, 0.4)
        with pytest.raises(RequestTimeoutError):
            next(stream)
        assert list(stream) == []
        until(lambda: not thread_names())


def test_a_stream_of_a_refused_action() -> None:
    """The refusal is handed out like every message, and raised at the end."""

    def respond(turn: Turn) -> None:
        turn.stream(message("error-response", {"error": "no"}, turn.id), text("after"))

    with serving(respond) as (client, _):
        stream = client.action_stream(RUN)
        assert [next(stream).type for _ in range(2)] == ["error-response", "bot-llm-text"]
        with pytest.raises(RequestRejectedError, match="no"):
            next(stream)


@pytest.mark.parametrize("way", ["close", "drop", "break"])
def test_a_stream_that_is_left_early(way: str) -> None:
    """An iterator that is closed, or dropped, abandons the request: the server finds the connection closed."""
    ended = threading.Event()

    def respond(turn: Turn) -> None:
        turn.begin()
        turn.say(text("a"))
        turn.peer.wait_for_end()
        ended.set()

    with serving(respond) as (client, _):
        if way == "break":
            for _ in client.action_stream(RUN):
                break
        else:
            stream = client.action_stream(RUN)
            next(stream)
            if way == "close":
                stream.close()
            del stream
        collect()
        assert ended.wait(GUARD)
        until(lambda: not thread_names())


def test_a_stream_is_read_no_faster_than_it_is_taken() -> None:
    """A server that floods a program which takes its time is held up by the network, and fills no memory."""
    sent = [0]

    def respond(turn: Turn) -> None:
        turn.begin()
        with contextlib.suppress(OSError):
            while True:
                turn.say(text("x" * 100_000))
                sent[0] += 1

    def is_held_up() -> bool:
        before = sent[0]
        return not threading.Event().wait(0.2) and sent[0] == before

    with serving(respond) as (client, _):
        heard = listen(client, "bot_llm_text")
        with contextlib.closing(client.action_stream(RUN)) as stream:
            for _ in range(3):
                next(stream)
            until(is_held_up)  # the system's buffers may grow for a while
            assert sent[0] < 200
            assert len(heard) == 3


# -- ends from elsewhere ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["disconnect", "close"])
@pytest.mark.parametrize("respond", [silent, begun])
def test_it_is_abandoned(respond: Callable[[Turn], None], end: str) -> None:
    """`disconnect()` and `close()` on another thread end the call, and nothing is left behind."""
    with serving(respond, request_timeout=None) as (client, server):
        acting = InThread(lambda: client.action(RUN))
        assert server.reached.wait(GUARD)
        getattr(client, end)()
        error = acting.error()
        assert isinstance(error, DisconnectedError)
        assert error.initiator == "client"
        until(lambda: not thread_names())


def test_after_disconnect_and_close() -> None:
    """After `disconnect()` the client goes on; one that was closed for good does nothing any more."""
    with serving(lambda turn: turn.stream(response(turn.id))) as (client, server):
        client.disconnect()
        client.action(RUN)
        client.close()
        with pytest.raises(RTVIError, match="closed for good"):
            client.action(RUN)
        assert len(server.turns) == 1


@pytest.mark.parametrize("call", [RTVIClient.action, lambda client, action: list(client.action_stream(action))])
def test_ctrl_c_ends_the_call_and_its_connection(call: Callable[[RTVIClient, Any], Any]) -> None:
    """Ctrl-C ends the call at once, the server finds the connection closed, and the client works on."""
    ended = threading.Event()

    def respond(turn: Turn) -> None:
        if ended.is_set():
            turn.stream(response(turn.id))
            return
        os.kill(os.getpid(), signal.SIGINT)
        turn.peer.wait_for_end()
        ended.set()

    with serving(respond, request_timeout=None) as (client, _):
        with pytest.raises(KeyboardInterrupt):
            call(client, RUN)
        assert ended.wait(GUARD)
        until(lambda: not thread_names())
        assert client.action(RUN).data == {"result": True}


def test_a_forked_child() -> None:
    """A child has no thread for its parent's stream, and is told so instead of waiting for ever."""
    code, out, err = run_python(
        """
        import os, threading
        from rtvi_sync import ForkedProcessError, RTVIClient
        from tests.session.test_http_action import RUN, begun, serving

        with serving(begun) as (client, _):
            stream = client.action_stream(RUN)
            next(stream)
            pid = os.fork()
            if pid == 0:
                try:
                    next(stream)
                except ForkedProcessError:
                    os._exit(7)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            stream.close()
        """
    )
    assert (code, out.split()) == (0, ["7"]), err


# -- beside other things ----------------------------------------------------------------------------------------------


def test_a_handler_may_act() -> None:
    """A handler of the same client may act: it waits for the server, and the events follow it."""

    def respond(turn: Turn) -> None:
        turn.stream(response(turn.id, len(server.turns)), text(f"of {len(server.turns)}"))

    with serving(respond) as (client, server):
        results: list[Any] = []
        heard = listen(client, "bot_llm_text")

        @client.once("bot_llm_text")
        def again(data: BotLLMTextData) -> None:
            results.append((data.text, client.action(RUN).data["result"], len(heard)))

        assert client.action(RUN).data == {"result": 1}
        until(lambda: len(heard) == 2)
    assert results == [("of 1", 2, 1)]
    assert [data.text for _, data in heard] == ["of 1", "of 2"]


def test_in_a_handler_it_waits_for_nothing_else() -> None:
    """The call inside a handler returns when the server has ended, not when some limit has passed."""
    watch = Stopwatch()

    with serving(lambda turn: turn.stream(response(turn.id), text("a"))) as (client, _):

        @client.once("bot_llm_text")
        def again() -> None:
            with watch:
                client.action(RUN)

        client.action(RUN)
        until(lambda: watch.took)
    assert watch.given < 0.9


def test_several_at_once() -> None:
    """Actions on several threads each get their own answer, in whichever order the answers arrive."""
    count = 8
    everybody = threading.Barrier(count)

    def respond(turn: Turn) -> None:
        everybody.wait(GUARD)
        turn.stream(text("x"), response("END"), response(turn.id, turn.action["data"]["arguments"][0]["value"]))

    with serving(respond) as (client, _):
        heard = listen(client, "bot_llm_text")

        def act(number: int) -> Any:
            return client.action({**RUN, "arguments": [{"name": "n", "value": number}]}).data["result"]

        acting = [InThread(partial(act, number)) for number in range(count)]
        assert [each.get() for each in acting] == list(range(count))
        until(lambda: len(heard) == count)


def test_beside_a_session() -> None:
    """A session may start during an action; during the session, actions go to its bot."""
    may_end = threading.Event()

    def respond(turn: Turn) -> None:
        turn.peer.server.reached.set()
        assert may_end.wait(GUARD)
        turn.stream(response(turn.id, "over HTTP"))

    def bot(_: MemoryTransport, asked: RTVIMessage) -> Iterator[RTVIMessage]:
        if asked.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": "0.3.0", "config": []}, asked.id)
        elif asked.type == "action":
            yield RTVIMessage("action-response", {"result": "in the session"}, asked.id)

    with serving(respond, transport=MemoryTransport(bot)) as (client, server):
        acting = InThread(lambda: client.action(RUN))
        assert server.reached.wait(GUARD)
        client.connect({"a": "bundle"})
        assert client.action(RUN).data == {"result": "in the session"}
        may_end.set()
        assert acting.get().data == {"result": "over HTTP"}
        assert client.state is TransportState.READY
        client.disconnect()
        assert client.action(RUN).data == {"result": "over HTTP"}
    assert len(server.turns) == 2


def test_states_stay() -> None:
    """A single turn is no session: no state is entered and no session counted."""
    with serving(lambda turn: turn.stream(response(turn.id))) as (client, _):
        heard = listen(client, "transport_state_changed")
        client.action(RUN)
        assert heard == []
        assert client.state is TransportState.DISCONNECTED
        assert client.stats().sessions == 0


def test_events_that_nobody_handles_in_time() -> None:
    """A queue that is full ends the turn: events are never dropped in silence."""

    def respond(turn: Turn) -> None:
        turn.stream(*(text(str(number)) for number in range(20)), response(turn.id))

    with serving(respond, events="manual", max_queued_events=10) as (client, _):
        listen(client, "bot_llm_text")
        with pytest.raises(RTVIError, match="the queue is full; the action is abandoned"):
            client.action(RUN)
        assert client.process_events() == 10


def test_the_callers_client() -> None:
    """A client of the caller's makes the request, and is not closed."""
    asked: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json=response(asked[-1]["actions"][0]["id"], 1))

    with httpx.Client(transport=httpx.MockTransport(handle)) as own:
        client = RTVIClient(params={"base_url": "http://server.test"}, http_client=own)
        assert client.action(RUN).data == {"result": 1}
        assert not own.is_closed
    assert len(asked) == 1


@pytest.mark.parametrize("theirs", [False, True])
def test_secrets(caplog: pytest.LogCaptureFixture, theirs: bool) -> None:
    """Secrets in the URL, the headers and the request data are sent, and appear in no log and no error."""
    for name in ("", "rtvi_sync", "httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)

    def respond(turn: Turn) -> None:
        if len(server.turns) == 1:
            turn.stream(response(turn.id), response("END"))
        else:
            turn.peer.answer("500 Oops", b"", "Set-Cookie: a=canary5f3a")

    with serving(respond) as (client, server), httpx.Client(trust_env=False) as own:
        client = RTVIClient(
            params={
                "base_url": server.url.replace("//", "//ada:canary5f3a@") + "?key=canary5f3a",
                "headers": {"X-Key": "canary5f3a"},
                "request_data": {"key": "canary5f3a"},
            },
            http_client=own if theirs else None,
        )
        client.action(RUN)
        with pytest.raises(RequestRejectedError) as caught:
            client.action(RUN)
    assert "key=canary5f3a" in server.turns[0].head
    assert server.turns[0].body["key"] == "canary5f3a"
    assert "canary5f3a" not in str(caught.value)
    assert caplog.records
    assert not [record.getMessage() for record in caplog.records if "canary5f3a" in record.getMessage()]


def test_what_is_dropped_with_it() -> None:
    """A failed call and its error do not keep the client alive."""
    with serving(lambda turn: turn.answer({}, "500 Oops")) as (client, _):
        with pytest.raises(RequestRejectedError):
            client.action(RUN)
        gone = weakref.ref(client)
        client.close()
    del client
    collect()
    assert gone() is None
