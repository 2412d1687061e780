"""The arguments of a client."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    APIRequest,
    InvalidTransportParamsError,
    MemoryTransport,
    RTVIClient,
    RTVIClientOptions,
    RTVIClientParams,
    SmallWebRTCTransport,
    TransportState,
    WebSocketTransport,
)
from rtvi_sync.media import SilenceSource
from tests.support.clients import memory_client, silent_bot


class TestQuietConstructor:
    def test_no_thread_no_io_no_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The constructor starts no thread, opens no socket and asks no source for anything."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("the constructor does something")

        class Source(SilenceSource):
            sample_rate_hz = property(refuse)
            read = refuse

        before = threading.enumerate()
        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        client = RTVIClient(
            transport=WebSocketTransport("wss://nowhere.invalid"),
            params={"base_url": "https://nowhere.invalid"},
            mic=Source(),
            timeout=1000,
            callbacks={"on_bot_ready": print},
        )
        assert threading.enumerate() == before
        assert client.state is TransportState.DISCONNECTED
        assert client.connected is False
        client.disconnect()
        client.close()


class TestReprs:
    SECRET = "s3cret"

    def test_no_secret_is_shown(self) -> None:
        """Whatever a program prints of these objects, no credential is in it."""
        transport = WebSocketTransport(f"wss://bot.example/ws?token={self.SECRET}", token=self.SECRET)
        params = RTVIClientParams(
            base_url=f"https://user:{self.SECRET}@api.example/v1?key={self.SECRET}",
            headers={"Authorization": self.SECRET},
            request_data={"password": self.SECRET},
            config=[{"service": "llm", "options": [{"name": "api_key", "value": self.SECRET}]}],
        )
        options = RTVIClientOptions(
            transport=transport, params=params, proxy=f"http://user:{self.SECRET}@proxy.example:3128"
        )
        request = APIRequest(
            endpoint=f"https://user:{self.SECRET}@api.example/start?key={self.SECRET}",
            headers={"Authorization": self.SECRET},
            request_data={"password": self.SECRET},
        )
        for thing in (transport, params, options, request, RTVIClient(options)):
            assert self.SECRET not in repr(thing)
        assert "api.example/v1" in repr(params)
        assert "'Authorization': ..." in repr(params)
        assert "api.example/start" in repr(request)

    def test_client(self) -> None:
        """A client shows its state and the name of its transport."""
        assert repr(memory_client()) == "<RTVIClient disconnected, memory transport>"
        assert repr(RTVIClient()) == "<RTVIClient disconnected, no transport>"

    @pytest.mark.parametrize(
        ("constructor", "shown"),
        [
            (partial(RTVIClient, {"urll": 1}), "<RTVIClient, not constructed>"),
            (partial(WebSocketTransport, "ftp://x"), "WebSocketTransport(ws_url=None)"),
            (partial(SmallWebRTCTransport, "ftp://x"), "SmallWebRTCTransport(webrtc_url=None)"),
        ],
    )
    def test_in_a_traceback_of_the_constructor(self, constructor: Callable[[], object], shown: str) -> None:
        """A traceback that shows locals has the object that was not constructed."""
        with pytest.raises((TypeError, InvalidTransportParamsError)) as caught:
            constructor()
        report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert f"self = {shown}" in "".join(report.format())

    def test_version(self) -> None:
        """The client tells the package's version."""
        import rtvi_sync

        assert RTVIClient().version == rtvi_sync.__version__


def test_no_transport() -> None:
    """A client without a transport cannot connect, and the error names the arguments to pass."""
    with pytest.raises(InvalidTransportParamsError, match=r"transport=WebSocketTransport\(\)"):
        RTVIClient().connect()
    assert RTVIClient().transport_expiry is None


def test_one_transport_for_two_clients() -> None:
    """A transport serves one session at a time; a second client gets an error, and the first is undisturbed."""
    transport = MemoryTransport()
    first, second = (RTVIClient(transport=transport, connect_timeout=5) for _ in range(2))
    with first:
        with pytest.raises(InvalidTransportParamsError, match="another client"):
            second.connect()
        assert first.send_client_request("ping", 1) == 1
    with second:
        assert second.send_client_request("ping", 2) == 2


def test_a_bot_that_never_comes_is_no_thread() -> None:
    """Making a hundred clients costs no thread."""
    clients = [memory_client(silent_bot) for _ in range(100)]
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]
    del clients
