"""Transports with one mistake each, for `test_the_contract.py`, which runs this file and sees it fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest

from rtvi_sync import CloseInfo, MemoryTransport, RTVIMessage, Transport
from rtvi_sync.testing.transport_contract import Bot, FarEnd, TransportContract
from samples.line_transport.transport import LineTransport
from tests.support import limits

from .far_ends import lines, memory


class TellsTheEndTwice(MemoryTransport):
    def end(self, info: CloseInfo | None = None) -> None:
        super().end(info)
        self.options.on_closed(CloseInfo(initiator="network"))


class KeepsTheEndToItself(MemoryTransport):
    def end(self, info: CloseInfo | None = None) -> None:
        self._open = False


class TellsOurOwnEnd(MemoryTransport):
    def disconnect(self) -> None:
        was_open = self._open
        super().disconnect()
        if was_open:
            self.options.on_closed(CloseInfo(initiator="client"))


class TellsOnAfterTheEnd(MemoryTransport):
    def disconnect(self) -> None:
        was_open = self._open
        super().disconnect()
        if was_open:
            threading.Timer(0.01, self.on_message, ["{}"]).start()


class TurnsMessagesAround(MemoryTransport):
    held: RTVIMessage | None = None

    def send_message(self, message: RTVIMessage) -> None:
        if (message.data or {}).get("d") == 100:
            self.held = message
            return
        super().send_message(message)
        if self.held is not None:
            held, self.held = self.held, None
            super().send_message(held)


class ChecksNoSize(MemoryTransport):
    def check_size(self, size_bytes: int, message: RTVIMessage) -> None:
        pass


class CountsCharacters(MemoryTransport):
    def send_message(self, message: RTVIMessage) -> None:
        limit, self.max_message_size = self.max_message_size, 10**9
        text = self.serialize(message)
        self.max_message_size = limit
        self.check_size(len(text), message)
        limit, self.max_message_size = self.max_message_size, 10**9
        super().send_message(message)
        self.max_message_size = limit


class SpeaksASCII(MemoryTransport):
    def on_message(self, message: Any) -> None:
        self.tell(message.encode("ascii", "replace"))

    def initialize(self, options: Any, on_message: Any) -> None:
        self.tell = on_message
        self.options = options


class SendsIntoTheVoid(MemoryTransport):
    def send_message(self, message: RTVIMessage) -> None:
        if self._open:
            super().send_message(message)


class TakesOffenceAtJunk(MemoryTransport):
    def receive(self, message: Any) -> None:
        if message == "no JSON":
            self.end()
        super().receive(message)


class PromisesEverything(MemoryTransport):
    def enable_cam(self, enable: bool) -> None:
        pass


class DisconnectsOnce(MemoryTransport):
    def disconnect(self) -> None:
        if not self._open:
            raise RuntimeError("It is not connected")
        super().disconnect()


class ConnectsOnce(MemoryTransport):
    sessions = 0

    def connect(self, auth_bundle: Any, abort: Any) -> None:
        self.sessions += 1
        if self.sessions > 1:
            raise RuntimeError("It was used before")
        super().connect(auth_bundle, abort)


class HoldsALockWhileItTells(LineTransport):
    _sock: Any

    def initialize(self, options: Any, on_message: Any) -> None:
        def tell(message: Any) -> None:
            sock, self._sock = self._sock, None
            on_message(message)
            self._sock = sock

        super().initialize(options, tell)


class Deaf:
    """A signal that never fires."""

    def attach(self, _: Any) -> Any:
        return lambda: None

    def raise_if_aborted(self) -> None:
        pass


class ConnectsTooLate(LineTransport):
    def connect(self, auth_bundle: Any, abort: Any) -> None:
        super().connect(auth_bundle, Deaf())


class WaitsOn(LineTransport):
    def connect(self, auth_bundle: Any, abort: Any) -> None:
        deaf = Deaf()
        deaf.raise_if_aborted = abort.raise_if_aborted  # type: ignore[method-assign]
        super().connect(auth_bundle, deaf)


class MixesLines(LineTransport):
    in_the_middle: ClassVar[threading.Barrier] = threading.Barrier(2, timeout=5.0)

    def send_message(self, message: RTVIMessage) -> None:
        line, sock = self.serialize(message).encode() + b"\n", self._sock
        assert sock is not None
        half = len(line) // 2
        sock.send(line[:half])
        if message.type == "client-message":
            with contextlib.suppress(threading.BrokenBarrierError):
                self.in_the_middle.wait()  # for another thread that sends, so that it is no matter of chance
        sock.send(line[half:])


class DropsTheRest(LineTransport):
    def __init__(self) -> None:
        super().__init__()
        self.rest: list[RTVIMessage] = []

    def send_message(self, message: RTVIMessage) -> None:
        if (message.data or {}).get("d") == 49:
            self.rest.append(message)  # it means to send it with the next one
        else:
            super().send_message(message)


class LeavesAThread(LineTransport):
    def disconnect(self) -> None:
        threading.Thread(target=threading.Event().wait, args=(0.5,), daemon=True).start()
        super().disconnect()


class LeavesASocket(LineTransport):
    left: ClassVar[list[Any]] = []

    def disconnect(self) -> None:
        if self._sock is not None:
            self.left.append(self._sock.dup())
        super().disconnect()


# Each broken transport, and the test that finds its mistake.
MISTAKES: list[tuple[type[Transport], str]] = [
    (TellsTheEndTwice, "test_the_other_side_ends[end]"),
    (KeepsTheEndToItself, "test_the_other_side_ends[cut]"),
    (TellsOurOwnEnd, "test_our_own_end"),
    (TellsOnAfterTheEnd, "test_our_own_end"),
    (DropsTheRest, "test_our_own_end"),
    (TurnsMessagesAround, "test_the_order_is_kept"),
    (ChecksNoSize, "test_sizes"),
    (CountsCharacters, "test_sizes"),
    (SpeaksASCII, "test_any_json_goes_both_ways"),
    (SendsIntoTheVoid, "test_without_a_connection"),
    (TakesOffenceAtJunk, "test_junk[0]"),
    (PromisesEverything, "test_what_media_it_lacks"),
    (DisconnectsOnce, "test_disconnect_at_any_time"),
    (ConnectsOnce, "test_one_session_after_the_other"),
    (HoldsALockWhileItTells, "test_a_callback_may_send"),
    (ConnectsTooLate, "test_given_up[before connect]"),
    (WaitsOn, "test_given_up_while_connect_waits[disconnect]"),
    (MixesLines, "test_many_threads_send"),
    (LeavesAThread, "test_the_bot_is_never_ready"),
    (LeavesASocket, "test_the_bot_is_never_ready"),
]


class Broken(TransportContract):
    """Runs the contract on a broken transport, with short waits for messages that never arrive."""

    kind: type[Any]

    @pytest.fixture(autouse=True)
    def nothing_left_behind(self) -> None:
        """Replace the contract's own check, which is under test here."""

    @pytest.fixture(autouse=True)
    def _set_up(self, hanging_port: int) -> Iterator[None]:
        self.hanging_port = hanging_port
        with limits.changed(contract=0.5, contract_rig=0.5, contract_settle=0.2):
            yield

    def far_end(self, bot: Bot) -> AbstractContextManager[FarEnd]:
        return (memory if issubclass(self.kind, MemoryTransport) else lines)(bot, self.hanging_port, self.kind)


for kind, _ in MISTAKES:
    globals()[f"Test{kind.__name__}"] = type(f"Test{kind.__name__}", (Broken,), {"kind": kind, "__module__": __name__})
