"""Exceptions in every kind of code that a program gives to the package: named, logged, and other code is unaffected."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import attrs
import httpx
import pytest

from rtvi_sync import (
    AbortController,
    DeviceError,
    DisconnectedError,
    Event,
    MemoryTransport,
    RTVIClient,
    RTVIClientParams,
    RTVIError,
    StartBotError,
    TransportStartError,
    TransportState,
    signals,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import memory_client, ready_bot, say, settle, transport_of, websocket_client
from tests.support.probes import process_events
from tests.support.slowness import GUARD
from tests.support.threads import InThread, own_threads
from tests.support.waiting import until


class Mine(Exception):  # noqa: N818 - it is the program's
    """The exception of the program's code."""


@attrs.define
class Fault:
    """Raises where it is called, until it is switched off."""

    error: BaseException = attrs.field(factory=lambda: Mine("a mistake of mine"))
    over: bool = False
    struck: int = 0

    def strike(self, *_: Any, **__: Any) -> None:
        """Strike, called in the program's code."""
        if not self.over:
            self.struck += 1
            raise self.error


@attrs.define
class Scene:
    """A client with faulty code.

    Attributes:
        client: The client.
        act: Function that makes the code run, with the client connected if `connected`.
        raises: Exception of `act`; None: no exception.
        says: Text of the error, or else of the log, in addition to the code's own text.
        keeps: True if the exception is raised unchanged.
        connected: True if the code runs in a session.
    """

    client: RTVIClient
    act: Callable[[], Any]
    raises: type[BaseException] | None = None
    says: str = ""
    keeps: bool = False
    connected: bool = True


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot for the sessions with media."""
    with EmbeddedBot(hangover=0.1) as bot:
        yield bot


# -- code that runs on events -----------------------------------------------------------------------------------------


def speaks(client: RTVIClient) -> Callable[[], Any]:
    """Have the bot say something, and wait until all have heard it."""

    def act() -> None:
        say(client, "hello")
        if not process_events(client):
            settle(client)

    return act


def handler(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client()
    client.on("server_message", fault.strike)
    return Scene(client, speaks(client), says="'serverMessage' raised")


def handler_in_manual_mode(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client(events="manual")
    client.on("server_message", fault.strike)
    return Scene(client, speaks(client), says="'serverMessage' raised")


def callback(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client(callbacks={"on_server_message": fault.strike})
    return Scene(client, speaks(client), says="'serverMessage' raised")


def receiver(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client()

    def receive(sender: RTVIClient, event: Event) -> None:
        fault.strike()

    client.receive = receive  # type: ignore[attr-defined]
    signals.server_message.connect(receive, sender=client)
    return Scene(client, speaks(client), says="'serverMessage' raised")


def handler_of_the_end(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client()
    client.on("disconnected", fault.strike)
    return Scene(client, client.disconnect, says="'disconnected' raised")


def predicate(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot)

    def act() -> None:
        client.send_text("hello")
        client.wait_for("bot_stopped_speaking", where=fault.strike, timeout=GUARD)

    return Scene(client, act, raises=Mine, keeps=True)


# -- code that starts a bot -------------------------------------------------------------------------------------------


def connect_handler(fault: Fault, _: EmbeddedBot) -> Scene:
    client = memory_client(custom_connect_handler=fault.strike)
    return Scene(client, client.connect, raises=StartBotError, says="Mine", connected=False)


def function_on_abort(fault: Fault, _: EmbeddedBot) -> Scene:
    given = threading.Event()

    def connect(params: RTVIClientParams, timeout: Any, abort: AbortController) -> Any:
        abort.signal.on_abort(fault.strike)
        given.set()
        if not fault.over:
            abort.signal.wait(GUARD)
            abort.signal.raise_if_aborted()
        return {}

    def act() -> None:
        connecting = InThread(client.connect)
        assert given.wait(GUARD)
        client.disconnect()
        raise connecting.error()

    client = memory_client(custom_connect_handler=connect)
    return Scene(client, act, raises=DisconnectedError, says="on_abort() raised", connected=False)


def hook_of_the_http_client(fault: Fault, bot: EmbeddedBot) -> Scene:
    http_client = httpx.Client(event_hooks={"request": [fault.strike]})
    client = memory_client(http_client=http_client)

    def act() -> None:
        try:
            client.start_bot(f"{bot.base_url}/start")
        finally:
            http_client.close()

    return Scene(client, act, raises=StartBotError, says="The http_client raised Mine", connected=False)


# -- transports -------------------------------------------------------------------------------------------------------


class FaultyTransport(MemoryTransport):
    """A transport of the program's, one method of which raises."""

    def __init__(self, fault: Fault, method: str) -> None:
        super().__init__()
        real = getattr(self, method)

        def struck(*arguments: Any) -> Any:
            fault.strike()
            return real(*arguments)

        setattr(self, method, struck)


def opening(method: str, says: str) -> Callable[[Fault, EmbeddedBot], Scene]:
    def build(fault: Fault, _: EmbeddedBot) -> Scene:
        client = RTVIClient(transport=FaultyTransport(fault, method), connect_timeout=GUARD)
        return Scene(client, client.connect, raises=TransportStartError, says=says, connected=False)

    build.__name__ = f"transport_{method}"
    return build


def closing(fault: Fault, _: EmbeddedBot) -> Scene:
    client = RTVIClient(transport=FaultyTransport(fault, "disconnect"))
    return Scene(client, client.disconnect, says="Closing the memory transport failed")


def interrupting(fault: Fault, _: EmbeddedBot) -> Scene:
    client = RTVIClient(transport=FaultyTransport(fault, "interrupt_playback"))

    def act() -> None:
        transport_of(client).options.on_interruption()

    return Scene(client, act, says="could not drop the bot's audio")


def sending(fault: Fault, _: EmbeddedBot) -> Scene:
    transport = FaultyTransport(Fault(over=True), "send_message")
    client = RTVIClient(transport=transport)

    def act() -> None:
        transport.send_message = fault.strike  # type: ignore[method-assign]
        try:
            client.send_client_request("echo", 1)
        finally:
            del transport.send_message

    return Scene(client, act, raises=Mine, keeps=True)


def memory_bot(fault: Fault, _: EmbeddedBot) -> Scene:
    def bot(transport: MemoryTransport, message: Any) -> Any:
        if message.type == "client-message" and message.data["t"] == "fault":
            fault.strike()
        return ready_bot(transport, message)

    client = memory_client(bot)
    return Scene(client, lambda: client.send_client_message("fault"), raises=Mine, keeps=True)


# -- sources and sinks ------------------------------------------------------------------------------------------------


class Source:
    """A source of the program's."""

    def __init__(self, fault: Fault, method: str) -> None:
        self._fault, self._method = fault, method

    def _maybe(self, method: str) -> None:
        if method == self._method:
            self._fault.strike()

    @property
    def sample_rate_hz(self) -> int:
        self._maybe("sample_rate_hz")
        return 16000

    def read(self, frames: int) -> bytes:
        self._maybe("read")
        return bytes(2 * frames)

    def close(self) -> None:
        self._maybe("close")


class Sink:
    """A sink of the program's."""

    def __init__(self, fault: Fault, method: str) -> None:
        self._fault, self._method = fault, method

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        if self._method == "write":
            self._fault.strike()

    def drop(self) -> None:
        if self._method == "drop":
            self._fault.strike()

    def close(self) -> None:
        if self._method == "close":
            self._fault.strike()


def reported(client: RTVIClient, act: Callable[[], Any]) -> Callable[[], Any]:
    """Do `act()`, and wait for the `device_error` about it."""

    def act_and_wait() -> None:
        with client.events("device_error", timeout=GUARD) as errors:
            act()
            assert "a mistake of mine" in str(next(errors).data)

    return act_and_wait


def source_rate(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot, mic=Source(fault, "sample_rate_hz"))
    return Scene(client, client.connect, raises=DeviceError, says="no usable sample_rate_hz", connected=False)


def source_read(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot, mic=Source(fault, "read"))

    def act() -> None:
        reported(client, client.connect)()
        assert client.state is TransportState.READY

    return Scene(client, act, says="Source failed", connected=False)


def source_close(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot, mic=Source(fault, "close"))
    return Scene(client, client.disconnect, says="Source")


def sink_write(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot, speaker=Sink(fault, "write"))

    def act() -> None:
        reported(client, lambda: client.send_text("hello"))()
        assert client.state is TransportState.READY

    return Scene(client, act, says="Sink failed")


def sink_close(fault: Fault, bot: EmbeddedBot) -> Scene:
    client = websocket_client(bot, speaker=Sink(fault, "close"))
    return Scene(client, client.disconnect, says="Sink")


SCENES = [
    handler,
    handler_in_manual_mode,
    callback,
    receiver,
    handler_of_the_end,
    predicate,
    connect_handler,
    function_on_abort,
    hook_of_the_http_client,
    opening("initialize", "could not be prepared: Mine: a mistake of mine"),
    opening("init_devices", "could not be prepared: Mine: a mistake of mine"),
    opening("connect", "failed to connect: Mine: a mistake of mine"),
    opening("send_ready_message", "could not send client-ready: Mine: a mistake of mine"),
    opening("start_media", "could not start its media: Mine: a mistake of mine"),
    sending,
    interrupting,
    closing,
    memory_bot,
    source_rate,
    source_read,
    source_close,
    sink_write,
    sink_close,
]


def assert_nobody_else_is_hurt(client: RTVIClient, bystander: RTVIClient) -> None:
    """Check that the client can have another session, and that the session of another client continues."""
    client.connect()
    assert client.send_client_request("echo", 1) == 1
    client.disconnect()
    assert bystander.send_client_request("echo", 2) == 2
    assert bystander.state is TransportState.READY


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_exception(
    scene: Callable[[Fault, EmbeddedBot], Scene], bot: EmbeddedBot, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of the application is raised or logged with its origin, and no other client is affected."""
    fault = Fault()
    with memory_client() as bystander, caplog.at_level(logging.WARNING):
        given = scene(fault, bot)
        client = given.client
        if given.connected:
            client.connect()
        if given.raises is None:
            given.act()
        else:
            with pytest.raises(given.raises) as caught:
                given.act()
            if given.keeps:
                assert caught.value is fault.error
        assert fault.struck
        client.disconnect()
        told = caplog.text + (str(caught.value) if given.raises is not None else "")
        assert given.says in told
        assert given.keeps or "a mistake of mine" in told
        fault.over = True
        assert_nobody_else_is_hurt(client, bystander)
    until(lambda: not own_threads())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_exit(scene: Callable[[Fault, EmbeddedBot], Scene], bot: EmbeddedBot) -> None:
    """`sys.exit()` there ends no thread that others need; where it can be raised to a caller, it may be."""
    fault = Fault(error=SystemExit("a mistake of mine"))
    with memory_client() as bystander:
        given = scene(fault, bot)
        client = given.client
        if given.connected:
            client.connect()
        with suppress(SystemExit, RTVIError):
            given.act()
        assert fault.struck
        client.disconnect()
        fault.over = True
        assert_nobody_else_is_hurt(client, bystander)
    until(lambda: not own_threads())
