"""Fixtures of the tests in `transport_contract`: a bot, and a transport whose callbacks are recorded."""

from __future__ import annotations

import abc
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    RTVIClient,
    RTVIMessage,
    Transport,
    TransportOptions,
    TransportState,
)
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.media import NullSink, SilenceSource

#: Takes the JSON text of a client's message; returns the JSON texts of the bot's answers. Several threads may call it.
Bot: TypeAlias = Callable[[str], list[str]]

# The limit of every call that waits in a test, in seconds.
LIMIT: Final = 30.0


class FarEnd(abc.ABC):
    """A transport under test, and the peer at its other end.

    Over a transport without messages, the peer never has a text for the `Bot`, is ready at once, and gets junk from
    `send()`. Tests that need messages are skipped.

    Attributes:
        transport: A new transport.
        auth_bundle: Argument with which `connect()` reaches the bot.
        hanging_bundle: Argument with which `connect()` waits for a silent server; None if it never waits.
        max_inbound (bytes): Size of the largest message that the bot can send.
    """

    transport: Transport
    auth_bundle: Any = {}  # noqa: RUF012 - it is never changed
    hanging_bundle: Any = None
    max_inbound: int = 1_048_576

    @abc.abstractmethod
    def send(self, text: str) -> None:
        """Send `text`, a message or junk, from the bot over the current connection. Any thread may call it."""

    @abc.abstractmethod
    def end(self) -> None:
        """End the current connection from the bot's side in good order."""

    @abc.abstractmethod
    def cut(self) -> None:
        """Break the current connection, inside one of the bot's messages if the transport allows it."""


class ContractBot:
    """The bot of the tests. It answers "echo" and "refuse" requests, and sends "repeat" back as a server message."""

    def __init__(self) -> None:
        self.is_ready = True
        # Guards `_received` and wakes threads that wait for messages. Threads that call the bot hold it briefly.
        self._changed = threading.Condition()
        self._received: list[dict[str, Any]] = []

    def __call__(self, text: str) -> list[str]:
        """Record a client's message and return the texts of the answers."""
        message = json.loads(text)
        with self._changed:
            self._received.append(message)
            self._changed.notify_all()
        type_, data = message["type"], message.get("data") or {}
        if type_ == "client-ready" and self.is_ready:
            return [self.message("bot-ready", {"version": "2.2.0", "about": {"library": "contract"}}, message["id"])]
        if type_ == "client-message" and data["t"] == "echo":
            return [self.message("server-response", data, message["id"])]
        if type_ == "client-message" and data["t"] == "refuse":
            return [self.message("error-response", {"error": "No."}, message["id"])]
        if type_ == "client-message" and data["t"] == "repeat":
            return [self.message("server-message", data.get("d"))]
        return []

    @staticmethod
    def message(type: str, data: Any = None, id: str = "0") -> str:
        """Return the JSON text of a bot's message."""
        return json.dumps({"label": "rtvi-ai", "type": type, "data": data, "id": id}, ensure_ascii=False)

    def wait_for_messages(self, type: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` messages of a type have been received, and return all of that type."""

        def matching() -> list[dict[str, Any]]:
            return [message for message in self._received if message["type"] == type]

        with self._changed:
            assert self._changed.wait_for(lambda: len(matching()) >= count, LIMIT), f"the bot heard {self._received}"
            return matching()


class SessionLog:
    """A record of the callbacks of a transport in one session. `Rig` puts it between transport and client."""

    def __init__(self, options: TransportOptions, on_message: Callable[[Any], None]) -> None:
        self.options: TransportOptions = attrs.evolve(options, on_closed=self._closed, on_messages=self._messages)
        self._forward_message, self._forward_closed = on_message, options.on_closed
        # Held during a delivery, to detect a second thread that delivers at the same time.
        self._delivering = threading.Lock()
        self.messages: int = 0
        self.ends: list[CloseInfo] = []
        self.overlapped: bool = False
        self.after_message: Callable[[], object] = lambda: None

    def message(self, message: Any) -> None:
        """Record a message and forward it to the client."""
        if not self._delivering.acquire(blocking=False):
            self.overlapped = True
            return
        after = self.after_message  # read now: while the client handles this message, a test may set another function
        try:
            self.messages += 1
            self._forward_message(message)
            after()
        finally:
            self._delivering.release()

    def _messages(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self.message(message)

    def _closed(self, info: CloseInfo) -> None:
        self.ends.append(info)
        self._forward_closed(info)


class Rig:
    """A transport between a client and the bot of the contract. Made by `TransportContract.rig()`.

    Attributes:
        far: Peer of the transport.
        bot: Bot behind the peer.
        session_logs: Callbacks of the transport, by session.
    """

    def __init__(self, far: FarEnd, bot: ContractBot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.far: FarEnd = far
        self.bot: ContractBot = bot
        self.session_logs: list[SessionLog] = []
        self._monkeypatch = monkeypatch
        initialize = far.transport.initialize

        def initialize_with_log(options: TransportOptions, on_message: Callable[[Any], None]) -> None:
            session_log = SessionLog(options, on_message)
            self.session_logs.append(session_log)
            initialize(session_log.options, session_log.message)

        monkeypatch.setattr(far.transport, "initialize", initialize_with_log)

    def client(self, **options: Any) -> RTVIClient:
        """Make a client over the transport."""
        limits = {"connect_timeout": LIMIT, "request_timeout": LIMIT, **options}
        return RTVIClient(
            transport=self.far.transport, enable_mic=False, mic=SilenceSource(), speaker=NullSink(), **limits
        )

    @contextmanager
    def session(self, **options: Any) -> Iterator[RTVIClient]:
        """Connect a client to the bot, check that it works, and disconnect it at the end."""
        client = self.client(**options)
        client.connect(self.far.auth_bundle)
        try:
            self.check_session(client)
            yield client
        finally:
            client.disconnect()

    def check_session(self, client: RTVIClient, data: Any = 1) -> None:
        """Check that a session works: the bot answers a request, or, without messages, is ready."""
        if self.far.transport.carries_messages:
            assert client.send_client_request("echo", data) == data
        else:
            assert client.state is TransportState.READY

    def waiting_calls(self, client: RTVIClient) -> list[BackgroundCall]:
        """Start a request that stays unanswered, and return the call once the bot has it; none without messages."""
        if not self.far.transport.carries_messages:
            return []
        call = BackgroundCall(lambda: client.send_client_request("never answered"))
        self.bot.wait_for_messages("client-message", 2)
        return [call]

    def check_refusal(self) -> None:
        """Check that a message is refused without a connection; skipped for transports without messages."""
        if self.far.transport.carries_messages:
            with pytest.raises(DisconnectedError):
                self.far.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "1"))

    def need_messages(self) -> None:
        """Skip the test if the transport carries no messages."""
        if not self.far.transport.carries_messages:
            pytest.skip("needs messages to the bot, which this transport does not carry")

    def check_works(self) -> None:
        """Check that the transport carries a session."""
        with self.session():
            pass

    def hold(self, method: str, *, after: bool) -> tuple[threading.Event, threading.Event]:
        """Block the transport once, before or after a method. Return the events "reached" and "resume"."""
        reached, resume = threading.Event(), threading.Event()
        original = getattr(self.far.transport, method)

        def held(*arguments: Any) -> None:
            if after:
                original(*arguments)
            if not reached.is_set():
                reached.set()
                resume.wait(LIMIT)
            if not after:
                original(*arguments)

        self._monkeypatch.setattr(self.far.transport, method, held)
        return reached, resume


class BackgroundCall:
    """A call on another thread, and its outcome."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = start_thread("contract", self._run)

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error = error

    def result(self) -> None:
        """Wait until the call returns, and raise its exception."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the call does not return"
        if self._error is not None:
            raise self._error


def descriptors() -> set[str]:
    """Return the open sockets and pipes of the process; none on systems without /proc."""
    found = set()
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:  # the descriptor of the listing itself is already closed
            continue
    return {name for name in found if any(kind in name for kind in ("socket:", "pipe:", "anon_inode:"))}
