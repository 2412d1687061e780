"""The meaning of an HTTP answer: whether it is one, and why the server refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rtvi_sync.transports.refusals import NoHTTPError, check_is_http, refusal

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("received", [b"H", b"HTTP", b"HTTP/1.1 200 OK\r\n"])
def test_the_beginning_of_an_answer(received: bytes) -> None:
    """Every prefix of a status line may still become one."""
    check_is_http(received)


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (b"\x15\x03\x03\x00\x02", "speaks TLS, not plain HTTP"),
        (b"SSH-2.0-OpenSSH", "speaks SSH, not HTTP"),
        (b"220 secret.test ESMTP", "does not speak HTTP"),
    ],
)
def test_something_else(received: bytes, text: str) -> None:
    """The caller need not wait for the rest; what a server has sent is not repeated."""
    with pytest.raises(NoHTTPError, match=text) as caught:
        check_is_http(received)
    assert "secret" not in str(caught.value)


def test_no_answer() -> None:
    """A connection that is closed at once is a broken one."""
    with pytest.raises(ConnectionError, match="closed without an answer"):
        check_is_http(b"")


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
    """A header that is neither seconds nor a date is not repeated."""
    text = refusal("it answered", status, phrase="No", retry_after=retry_after, advice="Check the token")
    assert text == f"it answered {status}: No. {told}. Check the token"


def test_the_reason_is_one_printable_line() -> None:
    """A server's text forges no line, and commands no terminal."""
    text = refusal("it answered", 404, body=json.dumps({"detail": "a\n\x1b[31m" + "b" * 2000}).encode())
    assert text.isprintable()
    assert len(text) < 600
