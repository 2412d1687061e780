"""Why `connect()` fails: the doctor's first id that is not all right is the one whose subject is wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.support.doctor import (
    Examined,
    a_bot,
    closes,
    hanging,
    hanging_websocket,
    refuses,
    runner,
    start_endpoint,
    untrusted,
    without_tls,
)

ENTRY = "websocket (with a ProtobufFrameSerializer) or eval"


@pytest.mark.parametrize(
    ("server", "first", "finding", "cure"),
    [
        pytest.param(lambda: start_endpoint("404 Not Found"), "http", "answered 404", "whole URL", id="no_endpoint"),
        pytest.param(lambda: start_endpoint("307 Moved"), "http", "answered 307", "log", id="redirect"),
        pytest.param(hanging, "http", "the connect request", "larger --timeout", id="hanging_endpoint"),
        pytest.param(
            lambda: start_endpoint("200 OK", {"room_url": "x"}), "http", "'room_url'", "a room of Daily", id="daily"
        ),
        pytest.param(without_tls, "tls", "does not speak TLS", "meant to have none, use", id="wss_without_tls"),
        pytest.param(untrusted, "tls", "certificate is not trusted", "trust that", id="untrusted"),
        pytest.param(lambda: runner("/nope", refuses("404 No")), "path", "with 404", "the path", id="path_404"),
        pytest.param(lambda: runner("/nope", refuses("403 No")), "path", "with 403", "/ws-client", id="path_403"),
        pytest.param(lambda: runner("", refuses("404 No")), "path", "with 404", "/ws-client", id="no_path"),
        pytest.param(hanging_websocket, "path", "opening the transport", "host and port", id="hanging_websocket"),
        pytest.param(lambda: start_endpoint("401 No"), "token", "answered 401", "--header", id="key_401"),
        pytest.param(lambda: start_endpoint("403 No"), "token", "answered 403", "--header", id="key_403"),
        pytest.param(lambda: runner("/ws-client", refuses("403 No")), "token", "403", "--token", id="token_403"),
        pytest.param(lambda: runner("/ws-client", closes(1013)), "token", "busy", "one client", id="busy"),
        pytest.param(
            lambda: runner("/ws-client", closes(1000)), "entry", "before the bot was ready", ENTRY, id="closed"
        ),
        pytest.param(lambda: a_bot(ready=False), "rtvi", "to be ready", "enable_rtvi=False", id="no_rtvi"),
    ],
)
def test_the_first_thing_that_is_wrong(
    server: Callable[[], contextlib.AbstractContextManager[str]],
    first: str,
    finding: str,
    cure: str,
    doctor: Callable[..., Examined],
) -> None:
    """The first check that is not all right is the one whose subject is wrong, and it names the cure."""
    with server() as url:
        doctor(url, "--timeout", "4").assert_first(first, finding, cure)


@pytest.mark.parametrize(
    ("provider", "variables"),
    [("twilio", "TWILIO_AUTH_TOKEN"), ("telnyx", "TELNYX_API_KEY"), ("plivo", "PLIVO_AUTH_ID"), ("exotel", "")],
)
def test_a_call_that_is_refused(provider: str, variables: str, doctor: Callable[..., Examined]) -> None:
    """The cure names the entry of the provider and its variables, and no path except the one for calls."""
    with runner("/ws", closes(1000)) as url:
        examined = doctor(url, "--timeout", "4", "--transport", provider)
    examined.assert_first("entry", "before the bot was ready", f"the entry {provider} in its transport_params")
    cure = examined.checks["entry"]["cure"]
    assert variables in cure
    assert cure.endswith("It takes calls at the path /ws alone")
