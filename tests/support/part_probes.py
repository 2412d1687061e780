"""Questions about single parts of the package (media, devices, connections) that have no answer of their own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.lifecycle import NoThreadError
from rtvi_sync.concurrency.pool_task import PoolTask
from rtvi_sync.protocol.states import BY_CLIENT
from tests.support.clients import manager_of, session_of, transport_of


def thread_sleeps(thread: threading.Thread | None = None) -> Callable[[], bool]:
    """Return a function to be called again and again; it says whether the thread (the main one) waits in the package,
    and has done so for ten calls."""
    ident = (thread or threading.main_thread()).ident
    assert ident is not None
    seen: list[tuple[int, int]] = []

    def sleeps() -> bool:
        frame = sys._current_frames().get(ident)
        asleep = frame is not None and frame.f_code is Notifier.wait_for.__code__
        seen.append((id(frame), frame.f_lasti) if frame is not None and asleep else (0, len(seen)))
        return len(set(seen[-10:])) == 1 and len(seen) >= 10

    return sleeps


def lock_of(part: Any) -> Any:
    """Return the lock that guards the fields of a client's media, a microphone or a transport."""
    return part.lock if hasattr(part, "lock") else part._lock


def idle_threads(workers: Any) -> set[threading.Thread]:
    """Return the threads of a pool that have no work."""
    return {worker.thread for worker in workers._idle}


def forget_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that OpenCV could not be imported, so that the next use of a camera tries again."""
    monkeypatch.setattr("rtvi_sync.media.devices.opencv_backend._failure", None)


def is_sent(source: Any, size: int) -> bool:
    """Return whether the first `size` bytes that were pushed to a source have been sent."""
    return bool(source._is_sent(size))


def has_listed(watch: Any) -> bool:
    """Return whether a watch of devices knows which there are at first."""
    return watch._known is not None


def listing_process(watch: Any) -> Any:
    """Return the process that lists the devices for a watch."""
    return watch.list_devices._process


# -- connections ------------------------------------------------------------------------------------------------------


def peer_of(transport: Any) -> Any:
    """Return the connection of a WebRTC transport in aiortc's terms, as long as its session lives."""
    return transport._opened().peer


def rtc_of(peer: Any) -> Any:
    """Return the `RTCPeerConnection` of a peer; None before its first offer."""
    return peer._connection


def own_tracks_of(peer: Any) -> list[Any]:
    """Return the tracks of a peer's microphone, camera and screen."""
    return [peer._mic, peer._cam, peer._screen]


@contextlib.contextmanager
def held_loop() -> Iterator[Any]:
    """Keep the asyncio loop of the package in the block: without a session it would end, and its leftovers with it."""
    loop = importlib.import_module("rtvi_sync.concurrency.loop_thread").acquire_loop()
    try:
        yield loop
    finally:
        loop.release()


def left_on_loop(loop: Any) -> tuple[int, int]:
    """Return how many tasks and sockets an asyncio loop of the package has, without its own."""
    return len(asyncio.all_tasks(loop._loop)), len(loop._selector.get_map()) - 1


def set_connect_limit(client: RTVIClient, seconds: float) -> None:
    """Give the next attempts of a client this long."""
    manager_of(client)._limit = seconds


def parts_of(client: RTVIClient) -> list[Any]:
    """Return the private parts that a debugger shows of a client with a WebRTC transport."""
    manager, transport = manager_of(client), transport_of(client)
    found = [manager._options, manager._network, transport._last]
    if transport._last is not None:
        found += [transport._last.peer, transport._last.stats, *transport._last.peer._servers]
    return found


def end_at_exit(client: RTVIClient, seconds: float) -> None:
    """End the session as the exit of the interpreter does, which leaves it this long."""
    session_of(client).at_exit(Deadline(seconds))


def run_on_io_thread(client: RTVIClient, command: Callable[[], object]) -> None:
    """Run a function on the thread that reads the network."""
    session_of(client).runtime.io.call(command)


def after_handshake(monkeypatch: pytest.MonkeyPatch, action: Callable[[Any], object]) -> None:
    """Call a function with the socket of each WebSocket, between its handshake and its session."""
    opening = importlib.import_module("rtvi_sync.transports.websocket_base")
    open_websocket = opening.open_websocket

    def open_and_act(*given: Any) -> Any:
        opened = open_websocket(*given)
        action(opened[0])
        return opened

    monkeypatch.setattr(opening, "open_websocket", open_and_act)


def refuse_renegotiation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have no thread for another negotiation of a WebRTC connection."""

    class Refused(PoolTask):
        def start(self) -> None:
            raise NoThreadError("can't start new thread")

    monkeypatch.setattr("rtvi_sync.transports.small_webrtc.PoolTask", Refused)


def warn_again() -> None:
    """Forget the warnings of WebRTC that are given once in a process."""
    importlib.import_module("rtvi_sync.transports.webrtc.aiortc_audio")._warn_of_aiortc.cache_clear()
    importlib.import_module("rtvi_sync.transports.webrtc.aiortc_consent")._warn_of_aioice.cache_clear()


def convert_pictures_with(monkeypatch: pytest.MonkeyPatch, convert: Callable[[Any], Any]) -> None:
    """Let a function make the images that an application gets of the bot's pictures."""
    monkeypatch.setattr("rtvi_sync.transports.webrtc.aiortc_video._frame_of", convert)


def libopus_at(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """Let libopus be looked for at these paths alone."""
    monkeypatch.setattr("rtvi_sync.transports.webrtc.opus._paths", lambda: iter(paths))


def replace_held_bytes(monkeypatch: pytest.MonkeyPatch, held: Callable[[Any, Callable[[Any], int]], int]) -> None:
    """Let `held(sock, unacknowledged)` return how many bytes the system holds that the peer has not acknowledged."""
    writer = importlib.import_module("rtvi_sync.transports.websocket_writer")
    unacknowledged = writer._unacknowledged
    monkeypatch.setattr(writer, "_unacknowledged", lambda sock: held(sock, unacknowledged))


def close_during_send(writer: Any, close: Any, send: Callable[[], object]) -> None:
    """Send a frame that has passed the check when the close frame is sent, while the I/O thread writes."""

    def close_meanwhile(item: Any) -> bool:
        writer.send_close(close, BY_CLIENT)
        writer.lock.acquire()
        return False

    writer._write_directly = close_meanwhile
    send()
    writer.lock.release()


def portaudio_is_begun(library: str) -> bool:
    """Return whether PortAudio is initialized in this process, by "pyaudio" or "sounddevice"."""
    backend = importlib.import_module("rtvi_sync.media.devices.portaudio_backend").backend
    return backend(library)._portaudio._audio is not None


def wrap_echo_cancellation(monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any]) -> None:
    """Replace the functions that remove the echo from a chunk and that take the played audio by wrappers from
    `wrap`.
    """
    canceller = importlib.import_module("rtvi_sync.media.devices.echo_canceller").EchoCanceller
    for name in ("cancel", "play"):
        monkeypatch.setattr(canceller, name, wrap(getattr(canceller, name)))


def utterances_of(path: Path) -> Any:
    """Return the utterances of a recording, as the command `talk` cuts it: `utterances` and `sample_rate_hz`."""
    return importlib.import_module("rtvi_sync.cli.scripted_speech").load_script(path)


def forget_lags() -> None:
    """Forget by how much resamplers were measured to delay audio."""
    importlib.import_module("rtvi_sync.media.resample").longest_lag.cache_clear()


def socket_of(connection: Any) -> Any:
    """Return the socket of a WebSocket connection."""
    return connection._sock


@contextlib.contextmanager
def replaced_socket(connection: Any, wrap: Callable[[Any], Any]) -> Iterator[Any]:
    """Let a connection use, in the block, the result of `wrap` for its socket."""
    sock = connection._sock
    connection._sock = wrap(sock)
    try:
        yield connection._sock
    finally:
        connection._sock = sock


def before_next_take(queue: Any, action: Callable[[], object]) -> None:
    """Call a function when an audio queue takes a frame the next time, just before it does."""

    class Frames(deque):
        is_struck = False

        def popleft(self) -> Any:
            if not self.is_struck:
                self.is_struck = True
                action()
            return super().popleft()

    queue._frames = Frames(queue._frames)


def has_compiled_mask() -> bool:
    """Return whether the frames of WebSockets are masked by compiled code."""
    frames: Any = importlib.import_module("rtvi_sync.transports.websocket_frames")
    return frames._mask is not frames._mask_by_number


def ice_connection_of(transport: Any) -> Any:
    """Return the connection of aioice that one of aiortc's ICE transports has."""
    return transport._connection


def replace_conversation(monkeypatch: pytest.MonkeyPatch, command: str, run: Callable[..., object]) -> None:
    """Replace the conversation of a command, `demo` or `talk`."""
    monkeypatch.setattr(f"rtvi_sync.cli.{command}_session.{command.title()}Session.run", run)


def replace_runtime(monkeypatch: pytest.MonkeyPatch, acquire: Callable[[], Any]) -> None:
    """Replace how a client without a session gets the threads that it shares with others."""
    monkeypatch.setattr("rtvi_sync.client.life.acquire_runtime", acquire)


def replace_peer(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any]) -> None:
    """Replace how a WebRTC transport makes its connection in aiortc's terms."""
    monkeypatch.setattr("rtvi_sync.transports.webrtc.aiortc_peer.AiortcPeer", make)


def lease(source: Any, device: str) -> Any:
    """Return the lease that keeps a source from use by another session."""
    return importlib.import_module("rtvi_sync.media.leases").Lease(source, device)
