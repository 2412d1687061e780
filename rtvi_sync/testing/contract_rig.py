"""What the tests of `transport_contract` work with: a bot, and a transport whose every word is noted."""

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

from rtvi_sync import CloseInfo, RTVIClient, Transport, TransportOptions
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.media import NullSink, SilenceSource

#: Takes the JSON text of a message of the client's; returns those of the bot's answers. Several threads may call it.
Bot: TypeAlias = Callable[[str], list[str]]

# No call of a test waits longer, in seconds.
LIMIT: Final = 30.0


class FarEnd(abc.ABC):
    """A transport under test, and what is at its other end.

    Attributes:
        transport: a new one.
        auth_bundle: what `connect()` has to be given to reach the bot.
        hanging_bundle: what it has to be given to wait for a server that does not answer; None: it never waits.
    """

    transport: Transport
    auth_bundle: Any = {}  # noqa: RUF012 - nobody writes to it
    hanging_bundle: Any = None

    @abc.abstractmethod
    def send(self, text: str) -> None:
        """Let the bot send `text`, which need not be a message, over the connection there is. Any thread calls it."""

    @abc.abstractmethod
    def end(self) -> None:
        """Let the bot end the connection that there is, as is proper."""

    @abc.abstractmethod
    def cut(self) -> None:
        """Break the connection that there is, in the midst of a message of the bot's if that can be."""


class ContractBot:
    """The bot of the tests: answers requests "echo" and "refuse", and tells "repeat" as a message of its own."""

    def __init__(self) -> None:
        self.is_ready = True
        # Guards `_heard`, and wakes who waits for more. Held for a moment by whoever calls the bot.
        self._changed = threading.Condition()
        self._heard: list[dict[str, Any]] = []

    def __call__(self, text: str) -> list[str]:
        message = json.loads(text)
        with self._changed:
            self._heard.append(message)
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
        """The JSON text of a message of the bot's."""
        return json.dumps({"label": "rtvi-ai", "type": type, "data": data, "id": id}, ensure_ascii=False)

    def wait_for_messages(self, type: str, count: int = 1) -> list[dict[str, Any]]:
        """The messages of a type, once there are so many."""

        def matching() -> list[dict[str, Any]]:
            return [message for message in self._heard if message["type"] == type]

        with self._changed:
            assert self._changed.wait_for(lambda: len(matching()) >= count, LIMIT), f"the bot heard {self._heard}"
            return matching()


class SessionLog:
    """What a transport tells the client in one session. Made by `Rig`, which puts it between the two."""

    def __init__(self, options: TransportOptions, on_message: Callable[[Any], None]) -> None:
        self.options: TransportOptions = attrs.evolve(options, on_closed=self._closed, on_messages=self._messages)
        self._forward_message, self._forward_closed = on_message, options.on_closed
        # Guards nothing: who delivers has it, so that another who comes meanwhile is noticed.
        self._delivering = threading.Lock()
        self.messages: int = 0
        self.ends: list[CloseInfo] = []
        self.overlapped: bool = False
        self.after_message: Callable[[], object] = lambda: None

    def message(self, message: Any) -> None:
        if not self._delivering.acquire(blocking=False):
            self.overlapped = True
            return
        try:
            self.messages += 1
            self._forward_message(message)
            self.after_message()
        finally:
            self._delivering.release()

    def _messages(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self.message(message)

    def _closed(self, info: CloseInfo) -> None:
        self.ends.append(info)
        self._forward_closed(info)


class Rig:
    """A transport between a client and the contract's bot.

    Attributes:
        far: its far end.
        bot: what is there.
        told: what the transport told in each session.
    """

    def __init__(self, far: FarEnd, bot: ContractBot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.far: FarEnd = far
        self.bot: ContractBot = bot
        self.session_logs: list[SessionLog] = []
        self._monkeypatch = monkeypatch
        initialize = far.transport.initialize

        def between(options: TransportOptions, on_message: Callable[[Any], None]) -> None:
            session_log = SessionLog(options, on_message)
            self.session_logs.append(session_log)
            initialize(session_log.options, session_log.message)

        monkeypatch.setattr(far.transport, "initialize", between)

    def client(self, **options: Any) -> RTVIClient:
        """A client over the transport."""
        limits = {"connect_timeout": LIMIT, "request_timeout": LIMIT, **options}
        return RTVIClient(
            transport=self.far.transport, enable_mic=False, mic=SilenceSource(), speaker=NullSink(), **limits
        )

    @contextmanager
    def session(self, **options: Any) -> Iterator[RTVIClient]:
        """A client that is connected to the bot, and works."""
        client = self.client(**options)
        client.connect(self.far.auth_bundle)
        try:
            assert client.send_client_request("echo", 1) == 1
            yield client
        finally:
            client.disconnect()

    def check_works(self) -> None:
        """The transport carries a session, whatever it went through before."""
        with self.session():
            pass

    def hold(self, method: str, *, after: bool) -> tuple[threading.Event, threading.Event]:
        """Hold the transport up, once, before or after a method: events for "it is there" and "it may go on"."""
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
    """What a call on another thread comes to."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = start_thread("contract", self._run)

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised to who asks
            self._error = error

    def get(self) -> None:
        """Wait for it; raises what it raised."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "the call does not return"
        if self._error is not None:
            raise self._error


def descriptors() -> set[str]:
    """The open sockets and pipes of the process, where the system tells."""
    found = set()
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:  # it was that of the listing
            continue
    return {name for name in found if any(kind in name for kind in ("socket:", "pipe:", "anon_inode:"))}
