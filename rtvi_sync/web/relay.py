"""The session of one browser user, while the user is present, and the event streams of its pages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from ..client.client import RTVIClient
from ..client.messaging import check_bot_takes
from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import start_thread
from ..concurrency.logs import package_logger
from ..conversation.turn import Turn
from ..errors import BotNotReadyError, RTVIError
from ..events import RTVIEvent
from ..protocol.session_payloads import BotReadyData
from ..protocol.states import CloseInfo, TransportState
from ..protocol.text import LONGEST_LINE, one_line
from ..protocol.validation import COUNT, SECONDS
from .event_log import EventLog, Position, as_json
from .refusal import Refusal
from .voice import SessionVoice

logger: logging.Logger = package_logger(__name__)

DEFAULT_EVENTS: Final = (
    RTVIEvent.TRANSPORT_STATE_CHANGED,
    RTVIEvent.BOT_READY,
    RTVIEvent.RECONNECTING,
    RTVIEvent.RECONNECT_FAILED,
    RTVIEvent.ERROR,
    RTVIEvent.MESSAGE_ERROR,
    RTVIEvent.USER_STARTED_SPEAKING,
    RTVIEvent.USER_STOPPED_SPEAKING,
    RTVIEvent.USER_INPUT,
    RTVIEvent.USER_TRANSCRIPT,
    RTVIEvent.BOT_STARTED_SPEAKING,
    RTVIEvent.BOT_STOPPED_SPEAKING,
    RTVIEvent.BOT_INTERRUPTED,
    RTVIEvent.BOT_OUTPUT,
    RTVIEvent.BOT_TRANSCRIPT,
    RTVIEvent.SERVER_MESSAGE,
    RTVIEvent.SERVER_RESPONSE,
)
"""Events that a page gets by default: the words of user and bot, and no internals of the bot.

`botReady` does not contain the bot's config; only the event `config` does.
"""

_RETRY_MS: Final = 500
_HEARTBEAT: Final = b":\n\n"
# Seconds that a new stream waits for a slot, each time after a heartbeat on the open streams. If a page is gone, the
# second heartbeat fails, or a later one if there is a proxy.
_SLOT_TIMEOUTS: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
# Fields of a turn that a page gets.
_WORDS: Final = ("number", "status", "user_text", "bot_text", "spoken_text")
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
    """Limits of sessions and pages; see `RTVIBlueprint`. Times in seconds."""

    # The defaults fit servers without event streams. A page that talks records a contact four times a second.
    heartbeat_interval: float = attrs.field(default=0.25, validator=SECONDS)
    leave_timeout: float = attrs.field(validator=SECONDS)
    idle_timeout: float = attrs.field(validator=SECONDS)
    start_timeout: float = attrs.field(validator=SECONDS)
    stream_lifetime: float = attrs.field(default=60.0, validator=SECONDS)
    max_sessions: int = attrs.field(validator=COUNT)
    max_streams: int = attrs.field(validator=COUNT)
    max_events: int = attrs.field(validator=COUNT)

    def __attrs_post_init__(self) -> None:
        if self.leave_timeout <= self.heartbeat_interval:
            raise ValueError("leave_timeout must be longer than heartbeat_interval, which detects browsers that left")


class Relay:
    """Session of one user. One thread of it connects the client, another one ends the session when the user has left.

    Attributes:
        owner: the secret in the user's cookie.
        client: connected to the bot during the session.
        reason: why the session has ended: "user", "left", "idle", "failed", "bot", "network" or "shutdown"; None
            before its end.
        stopping: returns True if the process is ending, so that streams and pages must close.
        log: the events of the session.
        voice: the audio of the session; None if its pages have none.
        refused: error of the last page that was refused the voice; None if the last page was accepted.
    """

    def __init__(
        self,
        owner: str,
        client: RTVIClient,
        limits: Limits,
        *,
        forget: Callable[[Relay], None],
        stopping: Callable[[], bool],
        has_voice: bool,
    ) -> None:
        self.owner = owner
        self.client = client
        self.reason: str | None = None
        self.stopping = stopping
        self.refused: str | None = None
        self._limits = limits
        self._forget = forget
        self.log: EventLog = EventLog(limits.max_events)
        self.voice: SessionVoice | None = SessionVoice(limits.leave_timeout) if has_voice else None
        # Guards `reason`, `_streams`, `_connecting` and `_lost`, and wakes threads that wait for a slot. Any thread
        # holds it briefly.
        self._lock = threading.Condition(threading.Lock())
        self._streams = 0
        self._wakeup = threading.Event()
        self._dropped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connecting = True
        self._lost: CloseInfo | None = None  # the end of the last session, or of the last attempt to connect
        self._started_at = self._last_contact = self._last_activity = monotonic()

    def start(self, events: Iterable[RTVIEvent], connect: Callable[[RTVIClient], object]) -> None:
        """Subscribe to the client's events, and start the threads that connect and watch it. Does not block."""
        if self.voice is not None:
            self.voice.equip(self.client)
        for event in events:
            self.client.on(event, partial(self._on_event, event))
        self.client.on(RTVIEvent.DISCONNECTED, self._on_disconnected)
        self.client.on(RTVIEvent.RECONNECT_FAILED, lambda: self.end("network"))
        self._threads.append(start_thread("relay", self._watch))
        try:
            self._threads.append(start_thread("relay-connect", self._connect, connect))
        except RuntimeError:
            self.drop()
            raise

    @property
    def state(self) -> TransportState:
        """The client's state; `CONNECTING` until `connect()` has returned, which is after the bot is ready."""
        return TransportState.CONNECTING if self._connecting else self.client.state

    @property
    def description(self) -> dict[str, str]:
        """The session's state for a page, as JSON."""
        refused = {} if self.refused is None else {"refused": self.refused}
        return {"state": self.state.value, **refused}

    def end(self, reason: str) -> None:
        """End the session, on its own thread. Only the first reason counts."""
        with self._lock:
            self.reason = self.reason or reason
        if self.voice is not None:
            self.voice.end()
        self._wakeup.set()

    def drop(self) -> None:
        """End the session, without keeping its log for pages that reopen their stream."""
        self.end("shutdown")
        self._dropped.set()

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until the threads of an ended session, and its pages that talk, have ended."""
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        if self.voice is not None:
            self.voice.join(max(0.0, deadline - monotonic()))

    def record_contact(self) -> None:
        """Record that the browser made a request or read its stream."""
        self._last_contact = monotonic()

    def record_activity(self) -> None:
        """Record that the user or the bot did something."""
        self._last_activity = monotonic()

    def stream(self, last_event_id: str) -> Stream:
        """Return a new event stream.

        Raises:
            Refusal: there are too many pages.
        """
        self.acquire_slot()
        return Stream(self, self.log, self._limits, self.log.position_after(last_event_id))

    def acquire_slot(self) -> None:
        """Wait up to about 1 s for the slot of a page.

        Raises:
            Refusal: too many pages are open.
        """
        for timeout in _SLOT_TIMEOUTS:
            with self._lock:
                if self._lock.wait_for(lambda: self._streams < self._limits.max_streams, timeout):
                    self._streams += 1
                    return
            self.log.wake()
        raise Refusal(429, "too_many_pages", "Too many pages show this session. Close some of them.")

    def release_slot(self) -> None:
        """Release the slot of a page that has closed."""
        with self._lock:
            self._streams -= 1
            self._lock.notify()

    def send_text(self, text: str, aloud: bool) -> None:
        """Send text that the user typed, and publish it to all pages, because not every bot echoes it.

        Raises:
            RTVIError, ValueError: see `RTVIClient.send_text()`.
        """
        if self.client.state is not TransportState.READY:
            raise BotNotReadyError("The bot is not ready")
        check_bot_takes(self.client, "send-text")
        text.encode()  # raises ValueError for surrogates
        # The text precedes the bot's answer in the log, even if the answer arrives first.
        with self.log.after(as_json("relayText", {"text": text})):
            self.client.send_text(text, audio_response=aloud)

    # -- handlers of the client ---------------------------------------------------------------------------------------

    def _on_event(self, event: RTVIEvent, data: Any) -> None:
        if isinstance(data, BotReadyData):  # in RTVI 0.3 it contains the config: the prompt, and perhaps keys
            data = attrs.evolve(data, config=None)
        if isinstance(data, Turn):  # without the arguments and results of the bot's functions
            data = {name: getattr(data, name) for name in _WORDS}
        if event in _LEVELS:
            self.log.replace(event, as_json(event.value, data))
        else:
            self.log.add(as_json(event.value, data))
            self.record_activity()

    def _on_disconnected(self, info: CloseInfo) -> None:
        with self._lock:
            self._lost = None if info.reconnecting else info
            if self._connecting:  # `connect()` may try again
                return
        self._end_if_lost()

    def _end_if_lost(self) -> None:
        # If the client is connected, an earlier attempt was lost, and a slow handler delayed this event.
        if (lost := self._lost) is not None and not self.client.connected:
            self.end("network" if lost.initiator == "network" else "bot")

    # -- threads of the session ---------------------------------------------------------------------------------------

    def _connect(self, connect: Callable[[RTVIClient], object]) -> None:
        try:
            connect(self.client)
        except RTVIError as error:
            if self.reason is None:  # otherwise the attempt was aborted
                logger.warning("A session with the bot could not be started: %s", one_line(str(error), LONGEST_LINE))
            self.end("failed")
        except Exception:
            logger.exception("A session with the bot could not be started")
            self.end("failed")
        with self._lock:
            self._connecting = False
        self._end_if_lost()
        self.record_activity()
        self._wakeup.set()

    def _watch(self) -> None:
        try:
            while self.reason is None:
                seconds, reason = self._next_end()
                if seconds <= 0:
                    if reason == "failed":
                        limit = self._limits.start_timeout
                        logger.warning("A session with the bot could not be started: not within %g s", limit)
                    self.end(reason)
                elif self._wakeup.wait(seconds):
                    self._wakeup.clear()
            self.client.close()
            self.log.add(as_json("relayEnd", {"reason": self.reason}))
            self.log.close()
            # A page that is reopening its stream gets the end of the session too.
            self._dropped.wait(self._limits.leave_timeout)
        finally:
            self._forget(self)

    def _next_end(self) -> tuple[float, str]:
        """Return the seconds until the session ends if nothing else happens, and the reason."""
        limits, now = self._limits, monotonic()
        left = self._last_contact + limits.leave_timeout - now
        if self._connecting:
            return min((left, "left"), (self._started_at + limits.start_timeout - now, "failed"))
        return min((left, "left"), (self._last_activity + limits.idle_timeout - now, "idle"))


class Stream:
    """Body of an event stream's response. A server requests the next chunk when it has written the last one.

    Not a generator, because `close()` on a generator that was never advanced runs none of its code.
    """

    def __init__(self, relay: Relay, log: EventLog, limits: Limits, position: Position) -> None:
        self._relay = relay
        self._log = log
        self._heartbeat_interval = limits.heartbeat_interval
        self._until = monotonic() + limits.stream_lifetime
        self._position = position
        self._started = False
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self._relay.record_contact()
        if not self._started:
            self._started = True
            return b"retry: %d\n\n" % _RETRY_MS  # sent immediately, so that the browser knows that the stream is open
        if monotonic() > self._until or self._relay.stopping():
            raise StopIteration
        self._position, events = self._log.read(self._position, self._heartbeat_interval)
        if events is None:
            raise StopIteration
        return b"".join(event.as_chunk() for event in events) or _HEARTBEAT

    def close(self) -> None:
        """Release the stream. Called by the server when the response is complete or cannot be written."""
        if not self._closed:
            self._closed = True
            self._relay.release_slot()
