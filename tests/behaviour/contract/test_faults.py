"""A transport may raise any exception: the caller gets the right error at once, and nothing is left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import DeviceError, RTVIClient, TransportStartError, TransportState
from rtvi_sync.testing.transport_contract import FarEnd
from tests.support.slowness import GUARD
from tests.support.threads import running
from tests.support.wire import ContractBot

from .far_ends import FAR_ENDS


class OutOfPaperError(Exception):
    """An unexpected exception."""


@pytest.fixture(params=FAR_ENDS)
def far(request: pytest.FixtureRequest, hanging_port: int) -> Iterator[FarEnd]:
    """Yield each transport in its turn."""
    with FAR_ENDS[request.param](ContractBot(), hanging_port) as far:
        yield far


@pytest.fixture
def client(far: FarEnd) -> Iterator[RTVIClient]:
    """Yield a client over `far`."""
    client = RTVIClient(transport=far.transport, enable_mic=False, connect_timeout=GUARD, request_timeout=GUARD)
    yield client
    client.disconnect()
    assert client.state in (TransportState.DISCONNECTED, TransportState.ERROR)


@pytest.fixture
def break_method(far: FarEnd, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, BaseException], None]:
    """Let a method of the transport do its work, and then raise."""

    def call(method: str, error: BaseException) -> None:
        original = getattr(far.transport, method)

        def broken(*arguments: Any) -> None:
            if method != "send_ready_message":  # after it the bot may be ready, and connect() over
                original(*arguments)
            raise error

        monkeypatch.setattr(far.transport, method, broken)

    return call


def works(client: RTVIClient, far: FarEnd) -> None:
    """Check that the client connects and asks."""
    client.connect(far.auth_bundle)
    assert client.send_client_request("echo", 1) == 1
    client.disconnect()


@pytest.mark.parametrize("method", ["initialize", "init_devices", "connect", "send_ready_message"])
class TestWhileConnecting:
    """An error on the connect thread is raised to the caller of `connect()`."""

    def test_anything(self, far: FarEnd, client: RTVIClient, break_method: Any, method: str, monkeypatch: Any) -> None:
        """An error that is not the package's becomes the cause of one that is; the next attempt succeeds."""
        break_method(method, OutOfPaperError("Out of paper."))
        with pytest.raises(
            TransportStartError, match=rf"The {far.transport.name} transport .*: Out of paper"
        ) as caught:
            client.connect(far.auth_bundle)
        assert isinstance(caught.value.__cause__, OutOfPaperError)
        assert client.state is TransportState.ERROR
        monkeypatch.undo()
        works(client, far)

    def test_our_own(self, far: FarEnd, client: RTVIClient, break_method: Any, method: str) -> None:
        """An error of the package passes unchanged."""
        break_method(method, DeviceError("No paper.", devices=["mic"]))
        with pytest.raises(DeviceError, match="No paper"):
            client.connect(far.auth_bundle)

    def test_no_exception(self, far: FarEnd, client: RTVIClient, break_method: Any, method: str) -> None:
        """A SystemExit in a method of the transport leaves connect() as it is."""
        break_method(method, SystemExit(3))
        with pytest.raises(SystemExit):
            client.connect(far.auth_bundle)


def test_media_that_do_not_start(far: FarEnd, client: RTVIClient, break_method: Any) -> None:
    """start_media() is called on the thread that delivers bot-ready; its error is raised to the caller of connect()."""
    break_method("start_media", OutOfPaperError("Out of paper."))
    with pytest.raises(TransportStartError, match="Out of paper"):
        client.connect(far.auth_bundle)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("send_message", lambda client: client.send_client_request("echo")),
        ("send_message", lambda client: client.send_client_message("echo")),
        ("enable_mic", lambda client: client.enable_mic(False)),
        ("tracks", lambda client: client.tracks()),
        ("stats", lambda client: client.stats()),
    ],
    ids=["request", "message", "enable_mic", "tracks", "stats"],
)
def test_while_the_session_lasts(
    far: FarEnd, client: RTVIClient, break_method: Any, monkeypatch: Any, method: str, call: Any
) -> None:
    """An exception on the caller's thread reaches the caller unchanged, and the session continues."""
    client.connect(far.auth_bundle)
    break_method(method, OutOfPaperError("Out of paper."))
    with running(lambda: call(client)) as outcome, pytest.raises(OutOfPaperError):
        outcome.get()
    monkeypatch.undo()
    assert client.send_client_request("echo", 1) == 1


def test_playback_that_cannot_be_interrupted(
    far: FarEnd, client: RTVIClient, break_method: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure to interrupt playback is logged, and the event is delivered."""
    break_method("interrupt_playback", OutOfPaperError("Out of paper."))
    client.connect(far.auth_bundle)
    with client.events("bot-interrupted", timeout=GUARD) as events, caplog.at_level(logging.ERROR):
        far.send(ContractBot.message("bot-interrupted"))
        next(events)
    assert "Out of paper" in caplog.text


def test_an_end_that_fails(
    far: FarEnd, client: RTVIClient, break_method: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """disconnect() logs the error, returns, and reports the end; the client connects again."""
    break_method("disconnect", OutOfPaperError("Out of paper."))
    client.connect(far.auth_bundle)
    with client.events("disconnected", timeout=GUARD) as events, caplog.at_level(logging.ERROR):
        client.disconnect()
        assert next(events).data.initiator == "client"
    assert "Out of paper" in caplog.text
    monkeypatch.undo()
    works(client, far)
