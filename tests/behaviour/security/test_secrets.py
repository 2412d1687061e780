"""Secrets are sent to their target and shown nowhere: no log at any level, no repr, no error, no command.

A word found nowhere else stands in every place that may hold a secret. Sessions succeed, and fail in every phase and in
every possible way; then all text that a person could have read is searched for the word.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rtvi_sync import (
    APIRequest,
    Endpoints,
    ReconnectPolicy,
    RTVIClient,
    RTVIClientOptions,
    RTVIClientParams,
    RTVIError,
    RTVIEvent,
    WebSocketTransport,
)
from rtvi_sync.cli import main
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support import part_probes
from tests.support.loopback import Peer, Proxy, Server, serving, trusting
from tests.support.probes import behind
from tests.support.slowness import GUARD

SECRET = "canary5f3a"
LOGIN = f"ada:{SECRET}"
# As it stands in an Authorization header.
ENCODED = base64.b64encode(LOGIN.encode()).decode()
ANSWER = {"Content-Type": f"application/json; {SECRET}", "Set-Cookie": f"session={SECRET}", "X-Trace": SECRET}


def with_secrets(url: str, path: str = "") -> str:
    """Return a URL with user, password and a key."""
    scheme, _, authority = url.partition("://")
    return f"{scheme}://{LOGIN}@{authority}{path}?key={SECRET}"


class Answering(Server):
    """An HTTP server that always answers the same, and with secrets in its headers."""

    def __init__(self, status: str, document: Any, *headers: str, tls: ssl.SSLContext | None = None) -> None:
        lines = [f"{name}: {value}" for name, value in ANSWER.items()]
        body = document if isinstance(document, bytes) else json.dumps(document).encode()

        def answer(peer: Any) -> None:
            self.requests.append(peer.read_request())
            peer.answer(status, body, *lines, *headers)

        super().__init__(answer, tls=tls)
        self.requests: list[tuple[str, bytes]] = []
        self._scheme = "https" if tls else "http"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.authority}"


class Eyes:
    """Sees all that a program and its user may see of a client."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self._seen: list[str] = []

    def look_at(self, *things: object) -> None:
        """Record how objects look in a log or a debugger."""
        for thing in things:
            self._seen += [repr(thing), str(thing)]

    def look_at_error(self, error: BaseException | None) -> None:
        """Record an error and all that a traceback shows of its causes."""
        while error is not None:
            self.look_at(error, error.args)
            error = error.__cause__ or error.__context__

    def look_at_client(self, client: RTVIClient) -> None:
        """Record everything public that a client hands out, and the objects behind it."""
        self.look_at(client, client.params, client.params.endpoints, client.state, client.stats(), client.tracks())
        self.look_at(*behind(client))

    @property
    def found(self) -> list[str]:
        """Each thing that had the secret in it."""
        # Not `caplog.text`: its format leaves out fields that others may show.
        lines = [f"{r.name} {r.getMessage()} {r.args!r} {r.exc_text or ''}" for r in self._log.records]
        return [text for text in [*self._seen, *lines] if SECRET in text or ENCODED in text]


@pytest.fixture
def eyes(caplog: pytest.LogCaptureFixture) -> Eyes:
    """Let every logger record everything."""
    caplog.set_level(logging.DEBUG)
    for name in ("rtvi_sync", "httpx", "httpcore", "websocket", "asyncio", "concurrent", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    return Eyes(caplog)


def params_for(base_url: str) -> dict[str, Any]:
    """Return parameters with secrets in all of them."""
    return {
        "base_url": with_secrets(base_url),
        "endpoints": {"connect": f"connect?token={SECRET}"},
        "headers": {"Authorization": f"Bearer {SECRET}"},
        "request_data": {"api_key": SECRET},
        "config": [{"service": "llm", "options": [{"name": "api_key", "value": SECRET}]}],
    }


def transport_to(ws_url: str | None = None, **options: Any) -> WebSocketTransport:
    """Return a transport with secrets in all of its arguments."""
    return WebSocketTransport(
        with_secrets(ws_url) if ws_url else None, token=SECRET, headers={"X-Api-Key": SECRET}, **options
    )


def client_of(transport: WebSocketTransport, **options: Any) -> RTVIClient:
    """Return a client without devices and proxies."""
    options = {"proxy": False, "ssl_context": trusting(), "connect_timeout": 10.0, **options}
    return RTVIClient(transport=transport, enable_mic=False, speaker=NullSink(), **options)


def fail(eyes: Eyes, client: RTVIClient, call: Callable[[], Any] | None = None) -> BaseException:
    """Have a call fail, by default `connect()`, and look at all there is to see of it."""
    seen: list[Any] = []
    for event in RTVIEvent:
        client.on(event, seen.append)
    with pytest.raises(RTVIError) as caught:
        (call or client.connect)()
    client.close()
    eyes.look_at_error(caught.value)
    eyes.look_at_client(client)
    eyes.look_at(*seen)
    return caught.value


# -- success ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("token_in", ["query", "header"])
@pytest.mark.parametrize("own_http_client", [False, True], ids=["", "http_client"])
def test_a_session(eyes: Eyes, tls: bool, token_in: Any, own_http_client: bool) -> None:
    """Everything arrives where it belongs; nothing is shown of a session with secrets all over it."""
    seen: list[Any] = []
    context = serving() if tls else None
    with EmbeddedBot(ssl_context=context) as bot, contextlib.ExitStack() as stack:
        answer = {"ws_url": f"{with_secrets(bot.ws_url)}", "token": SECRET, "iceConfig": {"credential": SECRET}}
        server = stack.enter_context(Answering("200 OK", answer, tls=context))
        proxy = stack.enter_context(Proxy())
        http_client = None
        if own_http_client:
            http_client = stack.enter_context(
                httpx.Client(verify=trusting(), trust_env=False, headers={"X-Own": SECRET}, cookies={"own": SECRET})
            )
        client = client_of(
            WebSocketTransport(headers={"X-Api-Key": SECRET}, token_in=token_in),
            params=params_for(server.url),
            proxy=f"http://{LOGIN}@{proxy.authority}",
            http_client=http_client,
        )
        for event in RTVIEvent:
            client.on(event, seen.append)
        with client:
            session = bot.wait_for_session()
            eyes.look_at_client(client)
            bundle = answer
        client.connect(bundle)
        client.disconnect()
        client.start_bot_and_connect(APIRequest(f"{server.url}/start?key={SECRET}", {"X-A": SECRET}, {"b": SECRET}))
        client.close()
        eyes.look_at_client(client)
    # It was all used:
    (head, body), *_ = server.requests
    assert head.startswith(f"POST /connect?key={SECRET}&token={SECRET} ")
    assert f"Authorization: Bearer {SECRET}" in head
    assert SECRET in body.decode()
    assert session.headers["x-api-key"] == SECRET
    assert session.headers["authorization"] == (f"Bearer {SECRET}" if token_in == "header" else f"Basic {ENCODED}")
    assert (f"token={SECRET}" in session.path) is (token_in == "query")
    assert f"Proxy-Authorization: Basic {ENCODED}" in proxy.heads[0]
    # And it was not shown:
    eyes.look_at(*seen)
    assert eyes.found == []


def test_what_a_program_makes_clients_with(eyes: Eyes) -> None:
    """Options, parameters and requests can be printed and logged."""
    params = RTVIClientParams(**params_for("https://api.example"))
    request = APIRequest(with_secrets("https://api.example"), {"X-A": SECRET}, {"b": SECRET})
    transport = transport_to("wss://bot.example")
    eyes.look_at(params, params.endpoints, Endpoints(connect=f"/c?k={SECRET}", action=f"/a?k={SECRET}"), request)
    eyes.look_at(RTVIClientOptions(transport=transport, params=params, proxy=f"http://{LOGIN}@proxy.example"))
    eyes.look_at(transport, RTVIClientParams(base_url=f"ada:{SECRET}@forgot.the.scheme"))
    eyes.look_at(APIRequest(f"https://h/#{SECRET}"), APIRequest(f"https://ada:{SECRET}/odd@h/"))
    assert eyes.found == []


# -- failures: the connect request ------------------------------------------------------------------------------------

ECHO = {"detail": [{"loc": ["body", "api_key"], "msg": "Bad key", "input": SECRET, "ctx": {"given": SECRET}}]}


def speaking(text: str) -> Callable[[Peer], None]:
    """Return a handler that reads a request and sends a text."""

    def handle(peer: Peer) -> None:
        peer.read_request()
        peer.send(text.encode())

    return handle


ANSWERS: dict[str, Callable[[], Server]] = {
    "unauthorized": lambda: Answering("401 Unauthorized", {"nothing": SECRET}),
    "a validation error that repeats the input": lambda: Answering("422 Unprocessable", ECHO),
    "not JSON": lambda: Answering("200 OK", f"<p>{SECRET}".encode()),
    "too much": lambda: Answering("200 OK", SECRET.encode() * 150_000),
    "compressed": lambda: Answering("200 OK", SECRET.encode(), "Content-Encoding: gzip"),
    "no HTTP": lambda: Server(speaking(f"{SECRET}\r\n\r\n")),
    "a broken header": lambda: Server(speaking(f"HTTP/1.1 200 OK\r\nSet Cookie: {SECRET}\r\n\r\n")),
    "nothing": lambda: Server(lambda peer: peer.read_request()),
    "a redirect elsewhere": lambda: Answering(
        "307 There", {}, f"Location: http://{LOGIN}@elsewhere.example/?token={SECRET}"
    ),
    "a redirect in a circle": lambda: Answering("307 Here", {}, f"Location: /connect?next={SECRET}"),
    "a bundle of another kind": lambda: Answering("200 OK", [SECRET]),
    "a bundle without URL": lambda: Answering("200 OK", {"token": SECRET}),
    "a URL of another kind": lambda: Answering("200 OK", {"ws_url": f"javascript:{LOGIN}@x"}),
    "a URL that is none": lambda: Answering("200 OK", {"ws_url": f"wss//{LOGIN}@bot.example"}),
    "a URL with a slash in its password": lambda: Answering("200 OK", {"ws_url": f"ws://ada:x/{LOGIN}@bot.example"}),
}


@pytest.mark.parametrize("own_http_client", [False, True], ids=["", "http_client"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_connect_request_that_fails(eyes: Eyes, answer: str, own_http_client: bool) -> None:
    """For any answer of a server, the error does not repeat the secrets of either side."""
    with ANSWERS[answer]() as server, contextlib.ExitStack() as stack:
        http_client = stack.enter_context(httpx.Client(trust_env=False)) if own_http_client else None
        params = params_for(f"http://{server.authority}")
        client = client_of(WebSocketTransport(headers={"X": SECRET}), params=params, http_client=http_client)
        error = fail(eyes, client)
    assert server.connections > 0
    assert eyes.found == []
    assert str(error)


def test_a_hook_that_raises_with_the_whole_url(eyes: Eyes) -> None:
    """`raise_for_status()` shows the URL; of its error nothing is kept."""
    hooks = {"response": [lambda response: response.raise_for_status()]}
    with Answering("500 Oops", {}) as server, httpx.Client(trust_env=False, event_hooks=hooks) as http_client:
        fail(eyes, client_of(WebSocketTransport(), params=params_for(server.url), http_client=http_client))
    assert eyes.found == []


@pytest.mark.parametrize("kind", ["certificate", "plain", "refused", "no such host", "no URL", "proxy", "bad proxy"])
@pytest.mark.parametrize("phase", ["http", "start_bot", "transport"])
def test_a_server_that_cannot_be_reached(eyes: Eyes, kind: str, phase: str) -> None:
    """A certificate, a name or a proxy that fails makes an error without secrets."""
    options: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        where = "127.0.0.1:9"
        if kind in ("certificate", "plain"):
            tls = serving("elsewhere.test") if kind == "certificate" else None

            def answer(peer: Peer) -> None:
                peer.sock.recv(1)
                peer.answer("400 Bad", SECRET.encode())

            where = stack.enter_context(Server(answer, tls=tls)).authority
        elif kind == "no such host":
            where = "no-such-name.invalid"
        elif kind == "no URL":
            where = f"{LOGIN}:x"
        elif kind == "proxy":
            proxy = stack.enter_context(Proxy(refuse="407 Proxy Authentication Required"))
            options["proxy"] = f"http://{LOGIN}@{proxy.authority}"
        elif kind == "bad proxy":
            options["proxy"] = f"socks5://{LOGIN}@proxy.example"
        if phase == "transport":
            with contextlib.suppress(RTVIError):  # the constructor reports "no URL"
                fail(eyes, client_of(transport_to(f"wss://{where}/"), **options))
        elif phase == "http":
            fail(eyes, client_of(transport_to(), params=params_for(f"https://{where}"), **options))
        else:
            client = client_of(transport_to(), params=params_for("https://api.example"), **options)
            request = APIRequest(with_secrets(f"https://{where}"), {"X-A": SECRET}, {"b": SECRET})
            fail(eyes, client, lambda: client.start_bot(request))
    assert eyes.found == []


def test_an_invalid_url_of_the_transports_own(eyes: Eyes) -> None:
    """The constructor refuses it without repeating it whole."""
    for url in (f"{LOGIN}@bot.example", f"https://{LOGIN}@bot.example/?k={SECRET}", f"ws://ada:x{SECRET}@[::1/"):
        with pytest.raises(RTVIError) as caught:
            WebSocketTransport(url)
        eyes.look_at_error(caught.value)
    assert eyes.found == []


@pytest.mark.parametrize("where", ["params", "params changed in place", "request", "transport", "token"])
@pytest.mark.parametrize("bad", ["\r\nEvil: 1", "\n", "\0", "\u00fc", " "])
def test_headers_that_are_not_valid(eyes: Eyes, where: str, bad: str) -> None:
    """A key that was read with its line break is refused, unseen, and nothing is sent."""
    value = SECRET + bad
    give: dict[str, Callable[[], object]] = {
        "params": lambda: RTVIClientParams(headers={"X-Key": value}),
        "request": lambda: RTVIClient().start_bot(server.url, headers={"X-Key": value}),
        "transport": lambda: WebSocketTransport(bot.ws_url, headers={"X-Key": value}),
        "token": lambda: WebSocketTransport(bot.ws_url, token=value, token_in="header"),
    }
    with Answering("200 OK", {"ws_url": "ws://127.0.0.1:9"}) as server, EmbeddedBot() as bot:
        if where == "params changed in place":
            params = RTVIClientParams(base_url=server.url, headers={})
            assert params.headers is not None
            params.headers["X-Key"] = value
            fail(eyes, client_of(transport_to(), params=params))
        else:
            with pytest.raises(ValueError, match="cannot be sent") as caught:
                give[where]()
            eyes.look_at_error(caught.value)
        assert server.connections == 0
        assert bot.sessions == []
    assert eyes.found == []


# -- failures: devices, the transport, the bot ------------------------------------------------------------------------


def test_devices_that_fail(eyes: Eyes) -> None:
    """The first phase fails before anything secret is used."""
    client = RTVIClient(transport=transport_to("ws://127.0.0.1:9"), mic="no such device", proxy=False)
    fail(eyes, client)
    assert eyes.found == []


@pytest.mark.parametrize(
    "status", ["200 OK", "301 There", "400 Bad", "401 No", "403 No", "404 No", "500 Oops", "101 Up"]
)
def test_a_handshake_that_is_refused(eyes: Eyes, status: str) -> None:
    """The error of a refused handshake repeats no part of the request or the answer."""
    with Answering(
        status, SECRET.encode(), f"Location: ws://x/?t={SECRET}", f"Sec-WebSocket-Accept: {SECRET}"
    ) as server:
        fail(eyes, client_of(transport_to(f"ws://{server.authority}")))
    assert SECRET in server.requests[0][0]
    assert eyes.found == []


def test_plain_after_tls(eyes: Eyes) -> None:
    """The error shows the refused URL without its secrets."""
    with Answering("200 OK", {"ws_url": with_secrets("ws://127.0.0.1:9")}, tls=serving()) as server:
        fail(eyes, client_of(WebSocketTransport(), params=params_for(server.url)))
    assert eyes.found == []


@pytest.mark.parametrize("end", ["silence", "close", "fatal", "drop", "garbage"])
def test_a_bot_that_does_not_get_ready(eyes: Eyes, end: str) -> None:
    """The last phase fails: by the limit, by the bot, by the line, by nonsense."""

    def handler(session: Any, message: Any) -> bool:
        if end == "close":
            session.close(4000, "no")
        elif end == "fatal":
            session.send({"label": "rtvi-ai", "type": "error", "data": {"error": "no", "fatal": True}})
        elif end == "drop":
            session.drop()
        elif end == "garbage":
            session.send({"label": "rtvi-ai", "type": "bot-ready", "data": {"version": {"secret": SECRET}}})
        return True

    with EmbeddedBot(handler=handler) as bot:
        fail(eyes, client_of(transport_to(bot.ws_url), connect_timeout=0.5 if end == "silence" else 10.0))
    assert eyes.found == []


def test_a_session_that_is_lost_and_replaced(eyes: Eyes) -> None:
    """The events of reconnecting, and the errors of waiting calls, do not contain the secret."""
    seen: list[Any] = []
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.01, max_attempts=2)

    def swallow(session: Any, message: Any) -> bool:
        return message["type"] == "client-message"

    with EmbeddedBot(handler=swallow) as bot:
        client = client_of(transport_to(bot.ws_url), reconnect=policy, request_timeout=0.1)
        for event in RTVIEvent:
            client.on(event, seen.append)
        client.connect()
        with pytest.raises(RTVIError) as unanswered:
            client.send_client_request("login", {"password": SECRET})
        eyes.look_at_error(unanswered.value)
        with client.events("bot_ready", timeout=GUARD) as again:
            bot.wait_for_session().drop()
            next(again)
        eyes.look_at_client(client)
        bot.stop()
        with contextlib.suppress(RTVIError):
            client.wait_for("reconnect_failed", timeout=GUARD)
        client.close()
    eyes.look_at(*(thing for thing in seen if not isinstance(thing, str)))
    assert eyes.found == []


def test_messages_that_cannot_be_sent(eyes: Eyes) -> None:
    """The error of a message that is too large or no JSON names its type, and not its content."""
    with EmbeddedBot() as bot, client_of(transport_to(bot.ws_url)) as client:
        for data in (SECRET * 200_000, {"key": {SECRET}}, float("nan")):
            with pytest.raises((RTVIError, TypeError, ValueError)) as caught:
                client.send_client_message("login", data)
            eyes.look_at_error(caught.value)
    assert eyes.found == []


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["ws://{login}@127.0.0.1:9/?token={secret}", "http://{login}@127.0.0.1:9/?token={secret}",
     "http://{login}@127.0.0.1:9/start?token={secret}", "{login}@127.0.0.1:9", "ftp://127.0.0.1/{secret}",
     "http://[{secret}", "ws:{secret}"],
)  # fmt: skip
def test_the_command_line(eyes: Eyes, url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A URL with secrets in it is not repeated, even if it is none."""
    given = url.format(login=LOGIN, secret=SECRET)
    with contextlib.suppress(SystemExit):
        assert main(["demo", "--url", given, "--out", str(tmp_path / "x.wav")]) == 1
    shown = capsys.readouterr()
    assert shown.err
    eyes.look_at(shown.out, shown.err)
    assert eyes.found == []


def test_a_conversation_on_the_command_line(
    eyes: Eyes, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation on the command line does not show the secrets of its URL."""
    part_probes.replace_conversation(monkeypatch, "demo", lambda *_, **__: None)
    with EmbeddedBot() as bot:
        main(["demo", "--url", with_secrets(bot.ws_url), "--out", str(tmp_path / "x.wav")])
        assert SECRET in bot.wait_for_session().path
    shown = capsys.readouterr()
    assert "connected to" in shown.out
    eyes.look_at(shown.out, shown.err)
    assert eyes.found == []
