"""The error text for a server that cannot be reached."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from rtvi_sync.transports.failures import failure_text, hung_up, status_of
from rtvi_sync.transports.net import ProxyError
from rtvi_sync.transports.refusals import NoHTTPError
from rtvi_sync.transports.tls import NoTLSError

pytestmark = pytest.mark.inside


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
        ("https://127.0.0.1:8/connect?key=secret", "If the server has no TLS, use http://127.0.0.1:8/connect"),
        ("wss://192.168.0.7:8/ws", "address, 'ws://192.168.0.7:8/ws'"),
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
    assert text.endswith("Do something.")
