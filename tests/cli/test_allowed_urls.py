"""Which URLs a coding agent may connect to."""

from __future__ import annotations

import pytest

from rtvi_sync import InvalidTransportParamsError
from rtvi_sync.cli.allowed_urls import AllowedURLs

pytestmark = pytest.mark.inside


def is_allowed(url: str, *prefixes: str) -> bool:
    """Return whether a URL may be reached; a refusal names it without its secrets."""
    fault = ""
    try:
        AllowedURLs.of(*prefixes).check(url)
    except InvalidTransportParamsError as error:
        fault = str(error)
    assert "s3cret" not in fault
    return not fault


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://localhost:7860",
            "ws://LOCALHOST/ws",
            "https://127.0.0.1/start",
            "wss://127.8.9.10:1/ws?token=s3cret",
        ),
        *("ws://[::1]:7860/ws", "http://user:s3cret@localhost/start"),
    ],
)
def test_this_machine(url: str) -> None:
    """Without any --allow-url, names and addresses of this machine may be reached."""
    assert is_allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com", "ws://10.0.0.7/ws", "ws://[fe80::1]/ws", "ws://0.0.0.0/ws", "http://2130706433"),
        *("http://localhost.example.com", "http://127.0.0.1.example.com", "http://localhost@example.com"),
        *("ws://127.0.0.1:s3cret@example.com/ws", "http://example.com?localhost", "http://example.com#@localhost"),
        *("http://localhost\\@example.com", "ftp://localhost", "localhost", "", "http://", " http://localhost"),
    ],
)
def test_other_machines(url: str) -> None:
    """Other machines may not be reached, whatever part of a URL looks like this one."""
    assert not is_allowed(url)


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("https://example.com/start", "https://example.com"),
        ("https://example.com:443/start", "https://EXAMPLE.com/"),
        ("wss://example.com/ws?token=s3cret", "https://example.com"),
        ("ws://10.0.0.7:7860/ws", "http://10.0.0.7:7860"),
        ("http://10.0.0.7:7860/start", "ws://10.0.0.7:7860"),
        ("https://example.com/bots/a/start", "https://example.com/bots"),
        ("https://example.com/bots/", "https://example.com/bots"),
        ("https://example.com/bots", "https://example.com/bots/"),
    ],
)
def test_the_beginning_of_a_url(url: str, prefix: str) -> None:
    """Scheme, host and port are the same, and the path starts with the same segments; ws is http, and wss https."""
    assert is_allowed(url, "https://other.example", prefix)


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("http://localhost:7860", "https://example.com"),
        ("https://example.com.evil.org", "https://example.com"),
        ("https://sub.example.com", "https://example.com"),
        ("http://example.com", "https://example.com"),
        ("ws://example.com", "wss://example.com"),
        ("https://example.com:8443", "https://example.com"),
        ("https://example.com@evil.org", "https://example.com"),
        ("https://example.com/botstore", "https://example.com/bots"),
        ("https://example.com/bots/../admin", "https://example.com/bots"),
        ("https://example.com/bots/%2e%2E/admin", "https://example.com/bots"),
        ("https://example.com/bots/..%2fadmin", "https://example.com/bots"),
    ],
)
def test_another_beginning(url: str, prefix: str) -> None:
    """A URL that only looks alike is refused, and so is this machine unless it is named."""
    assert not is_allowed(url, prefix)


@pytest.mark.parametrize(
    "prefix",
    ["example.com", "ftp://example.com", "https://", "https://user:s3cret@example.com", "https://e.com?a=s3cret", "h#"],
)
def test_what_is_no_beginning(prefix: str) -> None:
    """A prefix that cannot be compared is refused where it is given, without its secrets."""
    with pytest.raises(ValueError, match="it ") as raised:
        AllowedURLs.of(prefix)
    assert "s3cret" not in str(raised.value)
