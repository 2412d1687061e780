"""Actions without a session (`POST /action` of the embedded bot), and the record of HTTP requests."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

from .bot_client import WRITTEN, action, ask, outline

HELLO = action("llm:append_to_messages", messages=[{"role": "user", "content": "Hello"}], run_immediately=True)


def double(number: int) -> int:
    return 2 * number


def posted(data: Any, id: str = "abc") -> dict[str, Any]:
    """Return the message of an action."""
    return {"id": id, "label": "rtvi-ai", "type": "action", "data": data}


def post(bot: EmbeddedBot, body: Any, **headers: str) -> tuple[int, str, bytes]:
    """Return status, content type and body of the response to a request for actions."""
    connection = http.client.HTTPConnection(bot.base_url.removeprefix("http://"), timeout=GUARD)
    try:
        connection.request("POST", "/action", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def events(bot: EmbeddedBot, *actions: Any, **headers: str) -> list[dict[str, Any]]:
    """Return the messages that actions cause."""
    status, kind, body = post(bot, {"actions": list(actions)}, **headers)
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    lines = body.decode().split("\n\n")
    assert lines[-1] == ""
    assert {line[:6] for line in lines[:-1]} == {"data: "}
    return [json.loads(base64.b64decode(line[6:])) for line in lines[:-1]]


def test_one_action() -> None:
    """The action is answered, then the server's own action, and then the language model replies in text."""
    with EmbeddedBot(version="0.3.0", replies="One two. Three.") as bot:
        messages = events(bot, posted(HELLO))

    assert messages[0] == {"label": "rtvi-ai", "type": "action-response", "id": "abc", "data": {"result": True}}
    assert messages[1] == {"label": "rtvi-ai", "type": "action-response", "id": "END", "data": {"result": True}}
    assert outline(messages[2:]) == [
        "user-llm-text Hello",
        *WRITTEN,
    ]


def test_several_actions_in_one_request() -> None:
    """Actions in one request share a context and are answered in order; a refused one does not affect the others."""
    read = action("llm:get_context")
    with EmbeddedBot(actions={"my:double": double}, replies="Hi.") as bot:
        for _ in range(2):
            messages = events(
                bot,
                posted(action("my:double", number=4), "1"),
                posted(action("my:nosuch"), "2"),
                posted({"service": "my"}, "3"),
                posted(action("tts:say", text="Hi", interrupt=True), "4"),
                posted(HELLO, "5"),
                posted(read, "6"),
            )

            assert [(item["id"], item["type"]) for item in messages[:7]] == [
                ("1", "action-response"),
                ("2", "error-response"),
                ("3", "error-response"),
                ("4", "action-response"),
                ("5", "action-response"),
                ("6", "action-response"),
                ("END", "action-response"),
            ]
            assert messages[0]["data"] == {"result": 8}
            assert messages[1]["data"] == {"error": "Action my:nosuch not registered"}
            assert messages[2]["data"]["error"].startswith("Invalid message: ")
            assert messages[5]["data"] == {"result": [{"role": "user", "content": "Hello"}]}
            assert outline(messages[7:])[0] == "user-llm-text Hello"


@pytest.mark.parametrize(
    ("stream", "accept", "kind"),
    [
        (True, None, "text/event-stream; charset=utf-8"),
        (True, "*/*", "text/event-stream; charset=utf-8"),
        (True, "text/event-stream, application/json", "text/event-stream; charset=utf-8"),
        (True, "application/json", "application/json"),
        (False, "text/event-stream", "application/json"),
    ],
)
def test_one_document_instead_of_a_stream(stream: bool, accept: str | None, kind: str) -> None:
    """Clients that accept JSON only, and all clients with `action_stream=False`, get the first answer only."""
    headers = {} if accept is None else {"Accept": accept}
    with EmbeddedBot(version="0.3.0", actions={"my:double": double}, action_stream=stream) as bot:
        status, got, body = post(bot, {"actions": [posted(action("my:double", number=2))]}, **headers)

    assert (status, got) == (200, kind)
    if kind == "application/json":
        assert json.loads(body) == {"label": "rtvi-ai", "type": "action-response", "id": "abc", "data": {"result": 4}}


@pytest.mark.parametrize(
    "body", [None, [], {}, {"actions": {}}, {"actions": [1]}, {"actions": [{"type": "action"}]}, {"actions": []}]
)
def test_a_malformed_request(body: Any) -> None:
    """A malformed request is refused with 422 and a reason."""
    with EmbeddedBot(version="0.3.0") as bot:
        status, kind, answer = post(bot, body)

    assert (status, kind) == (422, "application/json")
    assert json.loads(answer)["detail"].startswith("1 validation error")


def test_a_bot_without_actions() -> None:
    """A bot without actions has no endpoint for them, for any method."""
    with EmbeddedBot() as bot:
        assert post(bot, {"actions": [posted(HELLO)]})[0] == 404
        assert ask(f"{bot.base_url}/action", "GET", None)[:2] == (404, {"detail": "Not Found"})
    with EmbeddedBot(actions={}) as bot:
        assert ask(f"{bot.base_url}/action", "GET", None)[:2] == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("path", ["/connect", "/start", "/action"])
def test_required_headers(path: str) -> None:
    """If one is missing or has another value, the response is 401; a browser's preflight needs none."""
    body = json.dumps({"actions": [posted(HELLO)]}).encode()
    with EmbeddedBot(actions={}, action_stream=False, headers={"Authorization": "Bearer x", "X-Key": "k"}) as bot:
        url = bot.base_url + path
        refused = [
            ask(url, body=body),
            ask(url, body=body, Authorization="Bearer x"),
            ask(url, body=body, Authorization="Bearer y", X_Key="k"),
        ]

        assert [answer[:2] for answer in refused] == [(401, {"detail": "Unauthorized"})] * 3
        assert ask(url, body=body, authorization="Bearer x", x_key="k")[0] == 200
        assert ask(url, "OPTIONS", None)[0] == 200


@pytest.mark.parametrize("stream", [True, False])
def test_quirks_leave_a_request_unanswered(stream: bool) -> None:
    """As with real servers, an action that fails and all later ones stay unanswered; stop() ends the wait."""
    actions = [
        posted(action("my:double", number=1)),
        posted(action("my:double")),
        posted(action("my:double", number=1)),
    ]
    bot = EmbeddedBot(version="0.3.0", actions={"my:double": double}, quirks=True, action_stream=stream)
    bot.start()
    connection = http.client.HTTPConnection(bot.base_url.removeprefix("http://"), timeout=GUARD)
    try:
        connection.request("POST", "/action", json.dumps({"actions": actions if stream else actions[1:]}))
        if stream:
            response = connection.getresponse()
            assert response.readline().startswith(b"data: ")
            assert response.readline() == b"\n"
        stopping = threading.Timer(0.1, bot.stop)
        stopping.start()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            (response.read() if stream else connection.getresponse())
        stopping.join(GUARD)
    finally:
        connection.close()
        bot.stop()


def test_requests_are_kept() -> None:
    """A test can read method, path, headers and body of all HTTP requests; the repr hides headers and body."""
    with EmbeddedBot() as bot:
        ask(f"{bot.base_url}/connect/?a=1", body=b'{"rtvi_client_version": "0.3.2"}', X_Key="k")
        ask(f"{bot.base_url}/nosuch", body=b"no json")
        connect, other = bot.requests

    assert (connect.method, connect.path, connect.body) == ("POST", "/connect/?a=1", {"rtvi_client_version": "0.3.2"})
    assert connect.headers["x-key"] == "k"
    assert (other.path, other.body) == ("/nosuch", None)
    assert repr(connect) == "BotRequest(method='POST', path='/connect/?a=1')"
    assert EmbeddedBot().requests == []
