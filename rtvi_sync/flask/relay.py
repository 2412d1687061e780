"""The session of one browser user: it lives as long as he is there, and its events wait in a log for his pages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from ..client.client import RTVIClient
from ..concurrency.lifecycle import start_thread
from ..errors import BotNotReadyError, RTVIError
from ..events import RTVIEvent
from ..protocol.states import CloseInfo, TransportState
from ..protocol.validation import COUNT, SECONDS
from .event_log import EventLog, Place, as_json

logger: logging.Logger = logging.getLogger(__name__)

_RETRY_MS: Final = 500
_HEARTBEAT: Final = b":\n\n"
# How long a new stream waits for a place, each time after a heartbeat to those that are open: if the page is gone, the
# second one cannot be written, and a proxy in between may need a moment more.
_MAKE_ROOM: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
_LEVELS: Final = frozenset(
    {
        RTVIEvent.USER_AUDIO_LEVEL,
        RTVIEvent.BOT_AUDIO_LEVEL,
        RTVIEvent.LOCAL_AUDIO_LEVEL,
        RTVIEvent.REMOTE_AUDIO_LEVEL,
    }
)


@attrs.frozen(kw_only=True)
class Limits:
    """The numbers of a blueprint; see `RTVIBlueprint`. Times in seconds."""

    heartbeat_interval: float = attrs.field(validator=SECONDS)
    leave_timeout: float = attrs.field(validator=SECONDS)
    idle_timeout: float = attrs.field(validator=SECONDS)
    start_timeout: float = attrs.field(validator=SECONDS)
    stream_lifetime: float = attrs.field(validator=SECONDS)
    max_sessions: int = attrs.field(validator=COUNT)
    max_streams: int = attrs.field(validator=COUNT)
    max_events: int = attrs.field(validator=COUNT)

    def __attrs_post_init__(self) -> None:
        if self.leave_timeout <= self.heartbeat_interval:
            raise ValueError("leave_timeout must be longer than heartbeat_interval: heartbeats find who has left")


class Relay:
    """The session of one user. A thread of its own ends it when the user has left, another one connects it.

    Attributes:
        owner: the secret in the cookie of the user.
        client: connected to the bot while the session lasts.
        reason: why the session is over: "user", "left", "idle", "failed", "bot", "network" or "shutdown"; None while
            it is not.
        stopping: tells whether the process is about to end, and streams with it.
    """

    def __init__(
        self,
        owner: str,
        client: RTVIClient,
        limits: Limits,
        *,
        forget: Callable[[Relay], None],
        stopping: Callable[[], bool],
    ) -> None:
        self.owner = owner
        self.client = client
        self.reason: str | None = None
        self.stopping = stopping
        self._limits = limits
        self._forget = forget
        self._log = EventLog(limits.max_events)
        # Guards `reason` and `_streams`, and wakes who waits for a place. Held for a moment by any thread.
        self._lock = threading.Condition(threading.Lock())
        self._streams = 0
        self._woken = threading.Event()
        self._dropped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._opening = True
        self._began = self._seen = self._used = time.monotonic()

    def start(self, events: Iterable[RTVIEvent], connect: Callable[[RTVIClient], object]) -> None:
        """Listen to the client, watch over the session, and have `connect(client)` called; wait for nothing."""
        for event in events:
            self.client.on(event, partial(self._relay, event))
        self.client.on(RTVIEvent.DISCONNECTED, self._has_ended)
        self.client.on(RTVIEvent.RECONNECT_FAILED, lambda: self.end("network"))
        self._threads.append(start_thread("relay", self._watch))
        try:
            self._threads.append(start_thread("relay-connect", self._connect, connect))
        except RuntimeError:
            self.drop()
            raise

    @property
    def state(self) -> TransportState:
        """That of the client; `CONNECTING` until the attempt has succeeded, which is later than the bot is ready."""
        return TransportState.CONNECTING if self._opening else self.client.state

    def end(self, reason: str) -> None:
        """End the session; its thread does the work. The first reason counts."""
        with self._lock:
            self.reason = self.reason or reason
        self._woken.set()

    def drop(self) -> None:
        """End the session, and do not keep its end for pages that reopen their stream."""
        self.end("shutdown")
        self._dropped.set()

    def join(self, timeout: float) -> None:
        """Wait until an ended session is gone."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def was_seen(self) -> None:
        """A sign of life of the browser."""
        self._seen = time.monotonic()

    def was_used(self) -> None:
        """A sign of life of the user, or of the bot."""
        self._used = time.monotonic()

    def stream(self, last_event_id: str) -> Stream | None:
        """A new event stream, or None if there are too many, and none of them is of a page that is gone."""
        for pause in _MAKE_ROOM:
            if self._take_place(pause):
                return Stream(self, self._log, self._limits, self._log.place_of(last_event_id))
            self._log.wake()
        return None

    def _take_place(self, timeout: float) -> bool:
        with self._lock:
            free = self._lock.wait_for(lambda: self._streams < self._limits.max_streams, timeout)
            self._streams += free
            return free

    def stream_ended(self) -> None:
        """A stream that `stream()` returned was closed."""
        with self._lock:
            self._streams -= 1
            self._lock.notify()

    def send_text(self, text: str, aloud: bool) -> None:
        """Send what the user typed, and tell all pages: not every bot does. Raises as `RTVIClient.send_text()`."""
        if self.client.state is not TransportState.READY:
            raise BotNotReadyError("The bot is not ready")
        text.encode()  # raises ValueError for halves of characters
        # First tell it, because the bot's answer may be here before this thread goes on.
        self._log.add(as_json("relayText", {"text": text}))
        self.client.send_text(text, audio_response=aloud)

    # -- on the client's queue -----------------------------------------------------------------------------------------

    def _relay(self, event: RTVIEvent, data: Any) -> None:
        if event in _LEVELS:
            self._log.replace(event, as_json(event.value, data))
        else:
            self._log.add(as_json(event.value, data))
            self.was_used()

    def _has_ended(self, info: CloseInfo) -> None:
        if not info.reconnecting:
            self.end("failed" if self._opening else "network" if info.initiator == "network" else "bot")

    # -- on threads of the session ------------------------------------------------------------------------------------

    def _connect(self, connect: Callable[[RTVIClient], object]) -> None:
        try:
            connect(self.client)
        except RTVIError as error:
            if self.reason in (None, "failed"):  # else it was to be broken off
                logger.warning("A session with the bot could not be started: %s", error)
            self.end("failed")
        except Exception:
            logger.exception("A session with the bot could not be started")
            self.end("failed")
        self._opening = False
        self.was_used()
        self._woken.set()

    def _watch(self) -> None:
        try:
            while self.reason is None:
                seconds, reason = self._outlook()
                if seconds <= 0:
                    self.end(reason)
                elif self._woken.wait(seconds):
                    self._woken.clear()
            self.client.close()
            self._log.add(as_json("relayEnd", {"reason": self.reason}))
            self._log.close()
            # A page that is just reopening its stream is to be told of the end too.
            self._dropped.wait(self._limits.leave_timeout)
        finally:
            self._forget(self)

    def _outlook(self) -> tuple[float, str]:
        """In how many seconds the session is to be ended if nothing happens until then, and why."""
        limits, now = self._limits, time.monotonic()
        left = self._seen + limits.leave_timeout - now
        if self._opening:
            return min((left, "left"), (self._began + limits.start_timeout - now, "failed"))
        return min((left, "left"), (self._used + limits.idle_timeout - now, "idle"))


class Stream:
    """The body of an event stream's response. A server asks for the next part when it has written the last one.

    Not a generator: one that was closed before it began would not notice.
    """

    def __init__(self, relay: Relay, log: EventLog, limits: Limits, place: Place) -> None:
        self._relay = relay
        self._log = log
        self._heartbeat_interval = limits.heartbeat_interval
        self._until = time.monotonic() + limits.stream_lifetime
        self._place = place
        self._begun = False
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self._relay.was_seen()
        if not self._begun:
            self._begun = True
            return b"retry: %d\n\n" % _RETRY_MS  # at once, so that the browser knows that the stream is open
        if time.monotonic() > self._until or self._relay.stopping():
            raise StopIteration
        self._place, chunk = self._log.read(self._place, self._heartbeat_interval)
        if chunk is None:
            raise StopIteration
        return chunk or _HEARTBEAT

    def close(self) -> None:
        """Called by the server when the response is over, or cannot be written."""
        if not self._closed:
            self._closed = True
            self._relay.stream_ended()
