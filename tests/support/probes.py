"""Questions about the inside of the package that have no public answer: the one place that knows private names."""

from __future__ import annotations

import contextlib
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import RecordingSession, RTVIClient, RTVIError, Transport
from rtvi_sync.client.candidates import Candidate
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.runtime import acquire_runtime
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.net.tls import default_context
from rtvi_sync.protocol import envelope
from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.session.connect_request import BotURL
from tests.support.clients import manager_of, session_of, transport_of
from tests.support.slowness import GUARD
from tests.support.threads import holding


def waiting_calls(client: RTVIClient) -> int:
    """Return how many streams are open, including the ones of waiting calls."""
    return len(client._bus.streams.live())


def listeners(client: RTVIClient) -> tuple[int, int, int]:
    """Return how many streams, handlers and observers of events there are, handlers of the application among them."""
    handlers, observers = client._bus._handlers.values(), client._bus._observers.values()
    return waiting_calls(client), sum(map(len, handlers)), sum(map(len, observers))


def queued_events(client: RTVIClient) -> int:
    """Return how many events wait for their handlers."""
    return len(client._bus.queue)


def in_handler(client: RTVIClient) -> bool:
    """Return whether a thread delivers events of the client now."""
    return client._bus.queue.runs_on is not None


def is_retrying(client: RTVIClient) -> bool:
    """Return whether an attempt to replace a lost session is under way, or planned."""
    holder = holder_of(client)
    return holder is not None and holder.lost is not None and holder.pending is not None


def holder_of(client: RTVIClient) -> Any:
    """Return the operation that holds the client; None: nothing does."""
    return manager_of(client)._holder


def refuse_further_sessions(client: RTVIClient) -> None:
    """Do the first step of `close()`, and no other."""
    manager_of(client)._closed = True


def replaces_microphone(client: RTVIClient) -> bool:
    """Return whether a spoken question is in the place of the microphone."""
    return bool(session_of(client).media.mic._inserted)


def follows_turns(client: RTVIClient) -> bool:
    """Return whether the client has started to follow the turns of its sessions."""
    return manager_of(client)._conversation is not None


def questions_under_way(client: RTVIClient) -> int:
    """Return how many questions have turns that no other call may return."""
    conversation = manager_of(client).conversation
    assert conversation is not None
    return len(conversation.asked) + len(conversation.speaking)


def requests_under_way(client: RTVIClient) -> int:
    """Return how many requests of the session wait for their answer."""
    return len(session_of(client).engine.pending._awaited)


def set_bot(client: RTVIClient, bot: Any) -> None:
    """Let another function be the bot of a client with a memory transport."""
    transport_of(client)._bot = bot


def session_has_ended(client: RTVIClient) -> bool:
    """Return whether everything of the last session is closed."""
    session = manager_of(client).last_session
    return session is not None and session.is_closed


def forget_what_follows(client: RTVIClient) -> None:
    """Leave the last session as Ctrl-C leaves it between the attempts on two transports: nothing follows it."""
    manager_of(client).last_session.follows = True


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


def is_asking(client: RTVIClient) -> bool:
    """Return whether a spoken question is in the place of the microphone, or a call of `ask()` still holds it."""
    conversation = manager_of(client).conversation
    return replaces_microphone(client) or bool(conversation is not None and conversation.speaking)


#: The locks of a client, and of its session over WebSocket, by name.
LOCKS: dict[str, Callable[[RTVIClient], Any]] = {
    "manager": lambda client: manager_of(client)._lock,
    "queue": lambda client: client._bus.queue._lock,
    "session": lambda client: session_of(client)._lock,
    "abort": lambda client: session_of(client).abort.signal._lock,
    "transport": lambda client: transport_of(client)._lock,
    "connection": lambda client: transport_of(client)._connection._writer.lock,
    "media": lambda client: manager_of(client).media.lock,
    "workers": lambda client: session_of(client).runtime.workers._lock,
}


def collect_without_collector(client: RTVIClient) -> None:
    """Close the session as the collection of its client would."""
    manager_of(client).watch.collected()


def process_events(client: RTVIClient) -> bool:
    """Deliver the queued events in manual mode; return False in the other mode, where the package does so itself."""
    try:
        client.process_events(GUARD)
    except RTVIError as error:
        if "events='manual'" not in str(error):
            raise
        return False
    return True


def behind(client: RTVIClient) -> list[object]:
    """Return the objects that a debugger shows behind a client: its transport, its options, its request for a bot."""
    manager = manager_of(client)
    options = getattr(manager.transport, "options", None)
    return [manager.transport, manager._network, manager._options, manager.request_for(None), options]


def default_tls_context() -> ssl.SSLContext:
    """Return a new context of the kind that is used where the application gives none."""
    return default_context.__wrapped__()


def forget_default_tls_context() -> None:
    """Let the next session make a new one."""
    default_context.cache_clear()


@contextlib.contextmanager
def standard_json() -> Iterator[None]:
    """Read and write JSON by the standard library in the block, as where orjson is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "_loads_fast", envelope._loads_bare)
        patch.setattr(envelope, "_dumps_fast", envelope._dumps_bare)
        yield


def waiters(lock: Any) -> int:
    """Return how many threads hold the lock of `ask()`, or wait for it."""
    return len(lock._waiting)


def connect_limit(client: RTVIClient) -> float | None:
    """Return the seconds that `connect()` may take."""
    limit: float | None = manager_of(client)._limit
    return limit


def use_ways(client: RTVIClient, url: str, *transports: Transport, patience: float | None = None) -> None:
    """Let a client connect on several transports, all to the bot at one URL, as `for_url()` does.

    Args:
        client: that is not connected.
        url: of the bot.
        transports: in the order in which they are tried.
        patience: seconds that a silent bot has while other transports remain; None: a share of the time.
    """
    bot_url = BotURL.parse(url)
    manager_of(client).use(tuple(Candidate(transport, bot_url, patience) for transport in transports), None)


def calls_under_way(client: RTVIClient) -> int:
    """Return how many functions that the bot has called have not ended."""
    return len(session_of(client).functions._running)


def bytes_of_calls(client: RTVIClient) -> int:
    """Return how many bytes the session keeps to know the calls of functions that it has had."""
    return sum(sys.getsizeof(item) for item in session_of(client).functions._announced)


def queued_bytes(client: RTVIClient) -> int:
    """Return how many bytes the events hold that wait for their handlers."""
    return session_of(client).publisher.queue.bytes_queued


def look_for_devices(client: RTVIClient) -> None:
    """Let the session check whether anything listens to changes of the devices."""
    media = session_of(client).media
    media._hotplug.look(media.publisher)


def run_on_io_thread(command: Callable[[], object]) -> None:
    """Call something on the thread that reads the network, whether there is a session or not."""
    runtime = acquire_runtime()

    def run() -> None:
        try:
            command()
        finally:
            runtime.release()

    runtime.io.call(run)


class _Saying:
    """A question to which any turn may belong."""

    def may_be(self, turn: TurnRecord) -> bool:
        return True


@contextlib.contextmanager
def asking_on_another_thread(client: RTVIClient) -> Iterator[None]:
    """Let another thread hold, in the block, all that one holds which asks, if the client follows its turns already."""
    with contextlib.ExitStack() as stack:
        if (conversation := manager_of(client)._conversation) is not None:
            stack.enter_context(holding(conversation.ask_lock.hold(Deadline(GUARD))))
            conversation.speaking.add(_Saying())
            stack.enter_context(conversation.patience(GUARD))
            stack.enter_context(holding(conversation._lock))
        yield


def is_answered(session: Any) -> bool:
    """Return whether the bot has answered the last line of a `rtvi-sync talk`."""
    return bool(session._answered)


def process_of(blueprint: Any) -> str:
    """Return by which name the cookies of a Flask relay tell its process from others."""
    return str(blueprint._sessions._process)


def interrupt_and_play(client: RTVIClient, pcm: bytes, sample_rate_hz: int) -> None:
    """Interrupt the bot and play audio, as on the thread that reads the network."""
    media = manager_of(client).media
    media.interrupt()
    media.receive_audio(pcm, sample_rate_hz, 1)


def audio_frame(pcm: bytes, sample_rate_hz: int) -> AudioRawFrame:
    """Return a frame of audio that an embedded bot can send."""
    return AudioRawFrame(audio=pcm, sample_rate=sample_rate_hz, num_channels=1)


def readers_of_microphone(client: RTVIClient) -> int:
    """Return the number of readers of the microphone's audio."""
    sent = session_of(client).media.sent()
    return 0 if sent is None else len(sent.readers)


def last_session(client: RTVIClient) -> Any:
    """Return the client's last session."""
    return manager_of(client).last_session


def listen_again(recording: RecordingSession, client: RTVIClient) -> None:
    """Let a recording listen to the client's session, as it does when it starts while the bot becomes ready."""
    recording._listen(last_session(client))


def note_late(recording: RecordingSession, session: Any, message: str) -> None:
    """Note a message of a session, as a thread does that was held up until the next session."""
    recording._recorder.note(session, "in", message)
