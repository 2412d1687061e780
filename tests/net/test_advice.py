"""The texts of refusals and failures, and their advice."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from rtvi_sync.net.advice import (
    NoHTTPError,
    NoTLSError,
    ProxyError,
    failure_text,
    hung_up,
    refusal,
    status_of,
)

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"detail": "No token."}, "No token"),
        ({"info": "old", "detail": "new"}, "old"),
        ({"error": {"code": 7, "message": "No credit"}}, "No credit"),
        ({"detail": [{"loc": ["body", "x"], "msg": "missing", "input": "secret"}]}, "body.x: missing"),
        ({"error": {"code": 7}}, '{"code": 7}'),
        ({"something": "else"}, "Not Found"),
        ([1], "Not Found"),
    ],
)
def test_the_reason_is_in_the_body(document: Any, reason: str) -> None:
    """The reason is taken from where Pipecat, FastAPI and others put it; else it is the standard phrase."""
    text = refusal("http://host answered", 404, body=json.dumps(document).encode())
    assert text == f"http://host answered 404: {reason}"
    assert "secret" not in text


@pytest.mark.parametrize(
    ("scheme", "advice"), [("http", "use https://"), ("ws", "use wss://"), ("https", "See"), ("wss", "See")]
)
def test_a_server_that_requires_tls(scheme: str, advice: str) -> None:
    """A scheme with TLS is advised, unless the URL has one: then a proxy in front has asked without it."""
    text = refusal(
        "The server answered",
        400,
        body=b"The plain HTTP request was sent to HTTPS port",
        scheme=scheme,
        advice="See its log",
    )
    assert advice in text
    assert "ss://" not in text.replace("wss://", "")


@pytest.mark.parametrize("sent", [None, "Bearer abc", "Basic YWRhOnB3"])
def test_a_server_that_requires_a_login(sent: str | None) -> None:
    """A login that was sent has been refused; without one, the error says where to put it."""
    text = refusal("It answered", 401, challenge="Basic realm=x", authorization=sent, scheme="https", advice="See")
    is_refused = sent is not None and sent.startswith("Basic")
    assert ("does not accept the user and password" in text) is is_refused
    assert ("https://USER:PASSWORD@HOST" in text) is not is_refused
    assert "YWRhOnB3" not in text


def test_without_a_usable_body() -> None:
    """The phrase of the answer counts, then the standard one, then there is none."""
    assert refusal("it answered", 404, phrase="Gone Fishing", body=b"<html>") == "it answered 404: Gone Fishing"
    assert refusal("it answered", 404) == "it answered 404: Not Found"
    assert refusal("it answered", 799) == "it answered 799: no reason given"


@pytest.mark.parametrize(
    ("status", "retry_after", "told"),
    [
        (429, "7", "Try again in 7 s"),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", "Try again after Wed, 21 Oct 2026 07:28:00 GMT"),
        (429, None, "Try again later"),
        (503, "soon\x1b[2J", "Try again later"),
        (404, "3", "Try again in 3 s"),
    ],
)
def test_when_to_try_again(status: int, retry_after: str | None, told: str) -> None:
    """A header that is not seconds or a date is not repeated."""
    text = refusal("it answered", status, phrase="No", retry_after=retry_after, advice="Check the token")
    assert text == f"it answered {status}: No. {told}. Check the token"


def test_the_reason_is_one_printable_line() -> None:
    """A server's text forges no line, and commands no terminal."""
    text = refusal("it answered", 404, body=json.dumps({"detail": "a\n\x1b[31m" + "b" * 2000}).encode())
    assert text.isprintable()
    assert len(text) < 600


# -- failures ----------------------------------------------------------------------------------------------------------


def text_of(error: BaseException | None, url: str = "ws://host.test:1/") -> str:
    """Return the text for an error."""
    return failure_text(error, "it failed", urlsplit(url), advice="Do something.")


def caused_by(cause: BaseException) -> BaseException:
    """Return an error with a cause, as httpx and websocket-client raise it."""
    error = RuntimeError("outer")
    error.__cause__ = cause
    return error


def test_an_unknown_error_has_the_callers_words() -> None:
    """Reason and advice are the caller's if nothing better is known."""
    assert text_of(OSError("x")) == text_of(None) == "it failed. Do something."


def test_a_proxy_speaks_for_itself() -> None:
    """The error of a proxy names it; its status is the status of the failure."""
    refused = caused_by(ProxyError("The proxy p answered 407: log in", 407))
    assert text_of(refused) == "The proxy p answered 407: log in"
    assert status_of(refused) == 407
    assert status_of(OSError("x")) is None


@pytest.mark.parametrize("error", [NoHTTPError("no"), ConnectionResetError(), BrokenPipeError()])
def test_a_plain_url_of_a_server_with_tls(error: BaseException) -> None:
    """A server that hangs up on plain text, or answers something else, may have TLS; one behind wss:// has it."""
    assert "a server with TLS needs wss://" in text_of(caused_by(error))
    assert "needs wss" not in text_of(caused_by(error), "wss://host.test/")


def test_a_server_that_hangs_up() -> None:
    """A connection that was made and ended, not one that was refused."""
    assert hung_up(caused_by(ConnectionResetError()))
    assert not hung_up(caused_by(ConnectionRefusedError()))


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("https://127.0.0.1:8/connect?key=secret", "If it is meant to have none, use http://127.0.0.1:8/connect"),
        ("wss://192.168.0.7:8/ws", "use 'ws://192.168.0.7:8/ws'"),
    ],
)
def test_a_private_server_without_tls(url: str, advice: str) -> None:
    """On this machine and in a private network the plain address is the likely one."""
    text = text_of(caused_by(NoTLSError("no TLS")), url)
    assert advice in text
    assert "secret" not in text


def test_a_public_server_without_tls() -> None:
    """Elsewhere an attacker may have sent the plain answer: nothing advises to do without TLS."""
    text = text_of(caused_by(NoTLSError("no TLS")), "wss://host.example/ws")
    assert "ws://" not in text
    assert text.endswith("Check the URL, its host and port")
