"""Relay between a browser and a bot: a Flask blueprint keeps the session in the worker and streams events to the page.

    from rtvi_sync.flask import RTVIBlueprint

    def make_client(request):
        return RTVIClient.for_url("http://localhost:7860", mic=False, speaker=False, connect_timeout=15)

    def create_app():
        app = Flask(__name__)
        app.secret_key = os.environ["SECRET_KEY"]
        bot = RTVIBlueprint(make_client)
        app.register_blueprint(bot, url_prefix="/bot")

        @app.get("/")
        def page():
            bot.set_cookie()
            return render_template("page.html")

        return app

Each browser user has one session with the bot, shared by all pages of that user. A user is identified only by an
unguessable id in Flask's signed session cookie; no URL names a session. Requests from pages of other origins are
refused.

    POST /bot/session    start the session, or return the one that exists: {"state": "connecting"}
    GET  /bot/session    its state
    GET  /bot/events     its events, for an EventSource: also when it is ready, and when it could not be started
    POST /bot/text       {"text": "Hello!"}: text that the user typed; "audio_response": false for a written answer
    POST /bot/message    {"type": "...", "data": ...}: a client message of the application
    POST /bot/end        end it

The body of a POST is a JSON object, possibly empty, and its type application/json. The body of an error is
{"error": "a_word", "message": "what it means"}. docs/guides/flask.md says how to serve it, and lists the errors.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import secrets
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

import attrs

from .client.client import RTVIClient
from .client.messaging import check_bot_takes
from .concurrency.clock import monotonic
from .concurrency.lifecycle import register_for_fork, start_thread
from .concurrency.logs import package_logger
from .conversation.turn import Turn
from .errors import BotNotReadyError, MessageTooLargeError, MissingExtraError, RTVIError, UnsupportedFeatureError
from .events import RTVIEvent, event_from
from .protocol.session_payloads import BotReadyData
from .protocol.states import CloseInfo, TransportState
from .protocol.text import LONGEST_LINE, one_line
from .protocol.validation import COUNT, NAME, SECONDS, WAIT, Rule, function_taking, iterable

try:
    import flask
except ModuleNotFoundError as _error:
    if _error.name != "flask":
        raise
    raise MissingExtraError("rtvi_sync.flask", "flask") from _error

__all__ = ["DEFAULT_EVENTS", "RTVIBlueprint"]

logger: logging.Logger = package_logger(__name__)

# -- the events of a session, as JSON for the streams -----------------------------------------------------------------

_MAX_LOG_BYTES: Final = 1024 * 1024
# Escaped, so that the JSON is safe inside of a <script>, where these characters could begin or end markup.
_HTML_SAFE: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


class Position(NamedTuple):
    """Read position of a stream: the number of the last event, and of the last change of a level."""

    event: int = 0
    level: int = 0


class EventLog:
    """The last events of a session and the newest audio level of each kind, as bytes to send.

    A slow or absent browser costs no memory and delays no other. Events that were dropped before a stream read them are
    counted, and the stream gets their number.
    """

    def __init__(self, max_events: int) -> None:
        # Part of the event ids, by which those of an earlier session are recognized.
        self._name = secrets.token_hex(4)
        self._max_events = max_events
        # Guards the fields below, and wakes the streams. Any thread holds it for a few instructions.
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[bytes] = deque()
        self._bytes = 0
        # What was added since the oldest block of `after()` began, in order; empty: such a block, which has not ended.
        self._held: deque[list[str]] = deque()
        self._position = Position()
        self._levels: dict[RTVIEvent, tuple[int, bytes]] = {}
        self._wakes = 0
        self._closed = False

    def add(self, text: str) -> None:
        """Append an event, given as JSON in one line."""
        with self._changed:
            self._held.append([text])
            self._append_held()

    @contextlib.contextmanager
    def after(self, text: str) -> Iterator[None]:
        """Append an event after the block, in front of those that are added during the block; none if it raises."""
        own: list[str] = []
        with self._changed:
            self._held.append(own)
        try:
            yield
        except BaseException:
            with self._changed:
                self._held = deque(held for held in self._held if held is not own)
                self._append_held()
            raise
        with self._changed:
            own.append(text)
            self._append_held()

    def _append_held(self) -> None:
        """Append the events that wait for no block. With the lock."""
        while self._held and self._held[0]:
            (text,) = self._held.popleft()
            if self._closed:
                continue
            self._position = self._position._replace(event=self._position.event + 1)
            chunk = f"id: {self._name}.{self._position.event}\ndata: {text}\n\n".encode()
            self._events.append(chunk)
            self._bytes += len(chunk)
        # The newest event is kept, whatever its size.
        while len(self._events) > 1 and (self._bytes > _MAX_LOG_BYTES or len(self._events) > self._max_events):
            self._bytes -= len(self._events.popleft())
        self._changed.notify_all()

    def replace(self, level: RTVIEvent, text: str) -> None:
        """Replace the newest level of a kind, given as JSON in one line."""
        with self._changed:
            self._position = self._position._replace(level=self._position.level + 1)
            self._levels[level] = (self._position.level, f"data: {text}\n\n".encode())
            self._changed.notify_all()

    def wake(self) -> None:
        """Make all blocked calls of `read()` return, with or without events."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the log: no event follows. Idempotent."""
        with self._changed:
            self._held = deque(held for held in self._held if held)
            self._append_held()
            self._closed = True
            self._changed.notify_all()

    def position_after(self, last_event_id: str) -> Position:
        """Return the position after the event with this id; the beginning if it is no id of this log."""
        name, _, number = last_event_id.partition(".")
        if name != self._name or not (number.isascii() and number.isdecimal() and len(number) < 20):
            return Position()
        with self._changed:
            return Position(int(number)) if int(number) <= self._position.event else Position()

    def read(self, position: Position, timeout: float) -> tuple[Position, bytes | None]:
        """Wait for the events after `position`.

        Returns:
            The new position, and the bytes to send: none after `timeout` seconds or a call of `wake()`, and None after
            the end of the log.
        """
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self._closed or self._position != position or self._wakes != wakes, timeout)
            if self._position == position:
                return position, None if self._closed else b""
            new = self._position.event - position.event
            missed = new - len(self._events)
            chunks = [f"data: {as_json('relayGap', {'missed': missed})}\n\n".encode()] if missed > 0 else []
            chunks += itertools.islice(self._events, max(0, -missed), None)
            chunks += [chunk for change, chunk in self._levels.values() if change > position.level]
            return self._position, b"".join(chunks)


def as_json(event: str, data: Any) -> str:
    """Return an event as JSON in one line of ASCII without characters of HTML markup."""
    document = {"event": event, "data": data}
    try:
        text = json.dumps(document, default=_fields, allow_nan=False)
    except ValueError:  # some Python servers send NaN, which browsers cannot parse
        text = json.dumps(json.loads(json.dumps(document, default=_fields), parse_constant=lambda _: None))
    return text.translate(_HTML_SAFE)


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a payload that its class declares and that are not None.

    None for other objects, such as exceptions, which must not leave the process.
    """
    if not attrs.has(type(value)):
        return None
    names = [field.name for field in attrs.fields(type(value)) if field.name != "extra"]
    return {name: getattr(value, name) for name in names if getattr(value, name) is not None}


# -- the session of one browser user, while the user is present -------------------------------------------------------

_RETRY_MS: Final = 500
_HEARTBEAT: Final = b":\n\n"
# Seconds that a new stream waits for a slot, each time after a heartbeat on the open streams: if a page is gone, the
# second heartbeat cannot be written, and a proxy in between may need some more.
_SLOT_TIMEOUTS: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
# What a page gets of a turn.
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
    """Limits of a blueprint; see `RTVIBlueprint`. Times in seconds."""

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
            raise ValueError("leave_timeout must be longer than heartbeat_interval, which detects browsers that left")


class Relay:
    """Session of one user. One thread of it connects the client, another one ends the session when the user has left.

    Attributes:
        owner: the secret in the user's cookie.
        client: connected to the bot during the session.
        reason: why the session has ended: "user", "left", "idle", "failed", "bot", "network" or "shutdown"; None
            before its end.
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
        # Guards `reason`, `_streams`, `_connecting` and `_lost`, and wakes threads that wait for a slot. Any thread
        # holds it briefly.
        self._lock = threading.Condition(threading.Lock())
        self._streams = 0
        self._wakeup = threading.Event()
        self._dropped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connecting = True
        self._lost: CloseInfo | None = None  # the end of the last attempt to connect, or of what followed it
        self._started_at = self._last_contact = self._last_activity = monotonic()

    def start(self, events: Iterable[RTVIEvent], connect: Callable[[RTVIClient], object]) -> None:
        """Subscribe to the client's events, and start the threads that connect and watch it. Does not block."""
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
        """Return the client's state; `CONNECTING` until `connect()` has returned, which is after the bot is ready."""
        return TransportState.CONNECTING if self._connecting else self.client.state

    def end(self, reason: str) -> None:
        """End the session, on its own thread. Only the first reason counts."""
        with self._lock:
            self.reason = self.reason or reason
        self._wakeup.set()

    def drop(self) -> None:
        """End the session, without keeping its log for pages that reopen their stream."""
        self.end("shutdown")
        self._dropped.set()

    def join(self, timeout: float) -> None:
        """Wait until the threads of an ended session have ended."""
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))

    def record_contact(self) -> None:
        """Record that the browser made a request or read its stream."""
        self._last_contact = monotonic()

    def record_activity(self) -> None:
        """Record that the user or the bot did something."""
        self._last_activity = monotonic()

    def stream(self, last_event_id: str) -> Stream | None:
        """Return a new event stream, or None if there are too many, and all of them belong to open pages."""
        for timeout in _SLOT_TIMEOUTS:
            if self._acquire_slot(timeout):
                return Stream(self, self._log, self._limits, self._log.position_after(last_event_id))
            self._log.wake()
        return None

    def _acquire_slot(self, timeout: float) -> bool:
        with self._lock:
            free = self._lock.wait_for(lambda: self._streams < self._limits.max_streams, timeout)
            self._streams += free
            return free

    def stream_ended(self) -> None:
        """Release the slot of a stream that `stream()` returned. Called when it is closed."""
        with self._lock:
            self._streams -= 1
            self._lock.notify()

    def send_text(self, text: str, aloud: bool) -> None:
        """Send text that the user typed, and publish it to all pages, because not every bot does.

        Raises:
            RTVIError, ValueError: see `RTVIClient.send_text()`.
        """
        if self.client.state is not TransportState.READY:
            raise BotNotReadyError("The bot is not ready")
        check_bot_takes(self.client, "send-text")
        text.encode()  # raises ValueError for surrogates
        # In front of the bot's answer, which may arrive before this thread continues.
        with self._log.after(as_json("relayText", {"text": text})):
            self.client.send_text(text, audio_response=aloud)

    # -- handlers of the client ---------------------------------------------------------------------------------------

    def _on_event(self, event: RTVIEvent, data: Any) -> None:
        if isinstance(data, BotReadyData):  # of RTVI 0.3 it has the config: the prompt, and whatever keys there are
            data = attrs.evolve(data, config=None)
        if isinstance(data, Turn):  # without what the bot's functions were called with, and have returned
            data = {name: getattr(data, name) for name in _WORDS}
        if event in _LEVELS:
            self._log.replace(event, as_json(event.value, data))
        else:
            self._log.add(as_json(event.value, data))
            self.record_activity()

    def _on_disconnected(self, info: CloseInfo) -> None:
        with self._lock:
            self._lost = None if info.reconnecting else info
            if self._connecting:  # `connect()` may try again
                return
        self._end_if_lost()

    def _end_if_lost(self) -> None:
        # While it is connected, what was lost is an attempt before, told late because of a handler of the application.
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
            self._log.add(as_json("relayEnd", {"reason": self.reason}))
            self._log.close()
            # A page that is reopening its stream gets the end of the session too.
            self._dropped.wait(self._limits.leave_timeout)
        finally:
            self._forget(self)

    def _next_end(self) -> tuple[float, str]:
        """Return in how many seconds the session has to end if nothing happens until then, and the reason."""
        limits, now = self._limits, monotonic()
        left = self._last_contact + limits.leave_timeout - now
        if self._connecting:
            return min((left, "left"), (self._started_at + limits.start_timeout - now, "failed"))
        return min((left, "left"), (self._last_activity + limits.idle_timeout - now, "idle"))


class Stream:
    """Body of an event stream's response. A server requests the next chunk when it has written the last one.

    Not a generator, because `close()` of a generator that has not begun runs none of its code.
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
        self._position, chunk = self._log.read(self._position, self._heartbeat_interval)
        if chunk is None:
            raise StopIteration
        return chunk or _HEARTBEAT

    def close(self) -> None:
        """Release the stream. Called by the server when the response is complete or cannot be written."""
        if not self._closed:
            self._closed = True
            self._relay.stream_ended()


# -- the routes: access control, requests and responses ---------------------------------------------------------------

_MAX_BODY_BYTES: Final = 64 * 1024

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

`botReady` comes without the bot's config, which only the event `config` has.
"""


_SIGNAL: Final = Rule(
    "the number of a signal", lambda number: isinstance(number, int), lambda number: number in signal.valid_signals()
)


class RTVIBlueprint(flask.Blueprint):
    """Relay between browsers and a bot, for a Flask application. See the docstring of the module for its routes.

    An event stream occupies a thread of the web server while it is open: serve with more threads than
    `max_sessions * max_streams`, and with one worker process, or with sticky sessions.

    Args:
        make_client: called with the request for each new session; returns a client of its own, not connected yet. Here
            the application decides which user may talk to which bot: `flask.abort(403)`. The client's handlers must run
            on threads (`events="thread"`, the default of a client). If two requests of a user come at the same time, it
            may be called for both; then one of the clients is never connected.
        name: of the blueprint, and part of the key in Flask's session.
        connect: connects the client, such as ``lambda client: client.start_bot_and_connect(url)``. Called on a thread
            of the session, outside of any request.
        events: the events that the page gets, by any name of an event. Of audio levels only the newest is sent.
        heartbeat_interval: seconds between heartbeats on a stream without events. A browser that has left is detected
            when the second heartbeat cannot be written.
        leave_timeout: seconds without a stream and without a request after which the user counts as gone and the
            session is ended, connected or not. A page that is reloaded within that time finds the session unchanged.
        idle_timeout: seconds without activity of user and bot after which a session is ended.
        start_timeout: seconds after which the attempt to connect is aborted, whatever timeout the client has.
        stream_lifetime: seconds after which a stream ends and the browser opens the next one. By this a user whose
            network failed silently is detected.
        max_sessions: maximum number of sessions in a worker process; beyond it the response is 503.
        max_streams: maximum number of pages that show a user's session; beyond it the response is 429.
        max_events: maximum number of events, of 1 MiB together at most, that are kept for pages that open later or
            fall behind.

    Raises:
        ValueError: there is no event of that name, or a number is out of range.
    """

    def __init__(
        self,
        make_client: Callable[[flask.Request], RTVIClient],
        *,
        name: str = "rtvi",
        connect: Callable[[RTVIClient], object] = RTVIClient.connect,
        events: Iterable[str | RTVIEvent] = DEFAULT_EVENTS,
        heartbeat_interval: float = 2.0,
        leave_timeout: float = 4.0,
        idle_timeout: float = 900.0,
        start_timeout: float = 30.0,
        stream_lifetime: float = 60.0,
        max_sessions: int = 16,
        max_streams: int = 4,
        max_events: int = 1000,
    ) -> None:
        NAME.check(name=name)
        function_taking("request").check(make_client=make_client)
        function_taking("client").check(connect=connect)
        iterable("a list of events").check(events=events)
        super().__init__(name, __name__)
        self._make_client = make_client
        self._connect = connect
        self._events = tuple(event_from(event, "events") for event in events)
        self._limits = Limits(
            heartbeat_interval=heartbeat_interval,
            leave_timeout=leave_timeout,
            idle_timeout=idle_timeout,
            start_timeout=start_timeout,
            stream_lifetime=stream_lifetime,
            max_sessions=max_sessions,
            max_streams=max_streams,
            max_events=max_events,
        )
        self._key = f"_{name}_session"
        self._warned = False
        self._stopping = False
        self.after_fork_in_child()
        register_for_fork(self)
        self.before_request(_refuse_cross_origin)
        self.after_request(_add_security_headers)
        self.add_url_rule("/session", view_func=self._start, methods=["POST"], endpoint="start")
        self.add_url_rule("/session", view_func=self._state, methods=["GET"], endpoint="state")
        self.add_url_rule("/events", view_func=self._stream, methods=["GET"], endpoint="events")
        self.add_url_rule("/text", view_func=self._send_text, methods=["POST"], endpoint="text")
        self.add_url_rule("/message", view_func=self._send_message, methods=["POST"], endpoint="message")
        self.add_url_rule("/end", view_func=self._end, methods=["POST"], endpoint="end")

    def after_fork_in_child(self) -> None:
        """Set what belongs to one process: its sessions, and the name by which it recognizes its cookies."""
        self._process = secrets.token_hex(4)
        # Guards _relays. Threads of the web server and of the relays hold it for a few instructions.
        self._lock = threading.Lock()
        self._relays: list[Relay] = []

    def set_cookie(self) -> None:
        """Set the cookie that identifies the browser's session, unless the request has it.

        Call it in the view of the page. A session is started only for a browser that has returned the cookie, so that
        concurrent requests of one browser start one session.
        """
        if not self._cookie()[1]:
            flask.session[self._key] = f".{secrets.token_urlsafe(32)}"

    def close(self, timeout: float = 5.0) -> None:
        """End all sessions and streams of this process, and wait for that. For tests, and for a server's exit hook.

        Args:
            timeout: seconds after which it returns even if they have not ended.
        """
        WAIT.check(timeout=timeout)
        deadline = monotonic() + timeout
        with self._lock:
            relays = list(self._relays)
        for relay in relays:
            relay.drop()
        for relay in relays:
            relay.join(max(0.0, deadline - monotonic()))

    def end_streams_on(self, signal_number: int) -> None:
        """End all streams when a signal arrives, then run its previous handler. Call it on the worker's main thread.

        A server that shuts down waits for its requests, and a stream is a request that does not end. In gunicorn's
        configuration:

            def post_worker_init(worker):
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master, which gets Ctrl-C as well, sends SIGQUIT
                for number in (signal.SIGTERM, signal.SIGQUIT):
                    worker.wsgi.blueprints["rtvi"].end_streams_on(number)

        Without it the streams, and the sessions, are cut when gunicorn's `graceful_timeout` has passed.

        Raises:
            ValueError: this is not the main thread, or the handler of the signal was not set by Python.
        """
        _SIGNAL.check(signal_number=signal_number)
        previous = signal.getsignal(signal_number)
        if previous is None:
            raise ValueError("signal_number must be that of a signal whose handler was set by Python")

        def handle(number: int, frame: FrameType | None) -> None:
            # Only an assignment, because the interrupted thread may hold any lock.
            self._stopping = True
            if callable(previous):
                previous(number, frame)
            else:
                signal.signal(number, previous)
                signal.raise_signal(number)

        signal.signal(signal_number, handle)

    # -- routes, on threads of the web server -------------------------------------------------------------------------

    def _start(self) -> tuple[flask.Response, int]:
        _read_body()
        secret = self._cookie()[1]
        if not secret:
            self.set_cookie()
            _refuse(428, "no_cookie", "The request has no cookie. Repeat it with the one of this response.")
        relay, status = self._find_relay(), 200
        if relay is None or relay.reason is not None:
            relay, status = self._add_relay(secret, self._make_client(flask.request))
        value = f"{self._process}.{secret}"
        if flask.session.get(self._key) != value:  # else the response has no cookie, which could replace a later one
            flask.session[self._key] = value
        return _state_response(relay), status

    def _state(self) -> flask.Response:
        return _state_response(self._require_relay())

    def _stream(self) -> flask.Response:
        relay = self._require_relay(though_ended=True)
        if not (flask.request.environ["wsgi.multithread"] or flask.current_app.testing or self._warned):
            self._warned = True
            logger.warning(
                "This web server handles one request at a time, and an event stream blocks it. Serve with threads: "
                "gunicorn --worker-class gthread --workers 1 --threads 80"
            )
        stream = relay.stream(flask.request.headers.get("Last-Event-ID", ""))
        if stream is None:
            _refuse(429, "too_many_pages", "Too many pages show this session. Close some of them.")
        response = flask.Response(stream, mimetype="text/event-stream")
        response.headers["X-Accel-Buffering"] = "no"  # nginx delays events by buffering otherwise
        return response

    def _send_text(self) -> tuple[flask.Response, int]:
        body = _read_body()
        text, aloud = body.get("text"), body.get("audio_response", True)
        if not isinstance(text, str) or not text.strip() or not isinstance(aloud, bool):
            _refuse(400, "bad_request", 'The body must be {"text": "...", "audio_response": true or false}.')
        relay = self._require_relay()
        return self._send(relay, lambda: relay.send_text(text, aloud))

    def _send_message(self) -> tuple[flask.Response, int]:
        body = _read_body()
        type_, data = body.get("type"), body.get("data")
        if not isinstance(type_, str) or not type_:
            _refuse(400, "bad_request", 'The body must be {"type": "...", "data": any JSON}.')
        relay = self._require_relay()
        return self._send(relay, lambda: relay.client.send_client_message(type_, data))

    def _send(self, relay: Relay, send: Callable[[], object]) -> tuple[flask.Response, int]:
        try:
            send()
        except MessageTooLargeError:
            _refuse(413, "too_large", "The message is too large for the bot. Send less data.")
        except UnsupportedFeatureError:
            _refuse(501, "unsupported", "This bot does not support such messages.")
        except RTVIError:
            _refuse(409, "not_ready", "The bot is not ready. Wait for botReady.")
        except (ValueError, TypeError, RecursionError):
            _refuse(400, "bad_request", "The message cannot be encoded as JSON.")
        relay.record_activity()
        return flask.jsonify({}), 202

    def _end(self) -> tuple[flask.Response, int]:
        _read_body()
        self._require_relay().end("user")
        return flask.jsonify({}), 202

    # -- internal -----------------------------------------------------------------------------------------------------

    def _find_relay(self) -> Relay | None:
        """Return the requesting user's last session, or None if this process has none."""
        secret = self._cookie()[1]
        with self._lock:
            relay = next((relay for relay in reversed(self._relays) if relay.owner == secret), None)
        if relay is not None:
            relay.record_contact()
        return relay

    def _require_relay(self, *, though_ended: bool = False) -> Relay:
        """Return the requesting user's session; refuse the request if there is none."""
        relay, process = self._find_relay(), self._cookie()[0]
        if relay is None and not process:
            _refuse(404, "no_session", "There is no session. Start one.")
        if relay is None and process != self._process:
            _refuse(409, "other_worker", "The session is in another worker process, or in one that has ended.")
        if relay is None or (relay.reason is not None and not though_ended):
            _refuse(410, "ended", "The session has ended. Start another one.")
        return relay

    def _cookie(self) -> tuple[str, str]:
        """Return the name of the last session's process, and the secret, from the user's cookie; else empty."""
        value = flask.session.get(self._key)
        process, _, secret = value.partition(".") if isinstance(value, str) else ("", "", "")
        return process, secret

    def _add_relay(self, owner: str, client: RTVIClient) -> tuple[Relay, int]:
        """Add a session unless another request of the user has just added one; return it and the HTTP status."""
        if not isinstance(client, RTVIClient):
            raise TypeError(f"make_client returned {client!r}. Return an RTVIClient")
        relay = Relay(owner, client, self._limits, forget=self._forget, stopping=lambda: self._stopping)
        with self._lock:
            if any(other.client is client for other in self._relays):  # one user would get the words of another
                raise TypeError("make_client returned the client of another session. Return a new one each time")
            live = [other for other in self._relays if other.reason is None]
            for other in live:
                if other.owner == owner:
                    return other, 200
            previous = [other for other in self._relays if other.owner == owner]
            full = len(live) >= self._limits.max_sessions
            if not full:
                self._relays.append(relay)
        if full:
            _refuse(503, "busy", "Too many users are talking to the bot. Try again later.")
        for other in previous:
            other.drop()  # the pages of the ended session get the events of this one
        try:
            relay.start(self._events, self._connect)
        except BaseException:
            self._forget(relay)
            raise
        return relay, 201

    def _forget(self, relay: Relay) -> None:
        with self._lock:
            if relay in self._relays:
                self._relays.remove(relay)


def _state_response(relay: Relay) -> flask.Response:
    return flask.jsonify({"state": relay.state.value})


def _refuse(status: int, error: str, message: str) -> NoReturn:
    response = flask.jsonify({"error": error, "message": message})
    response.status_code = status
    flask.abort(response)


def _refuse_cross_origin() -> None:
    """Refuse a request that was not made by a page of the same origin. Called before each request.

    A browser states this in Sec-Fetch-Site, which no page can set. If the header is missing (plain HTTP, older
    browsers), the Origin of a POST is checked. And pages of other origins cannot send JSON without a CORS preflight.
    """
    request = flask.request
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site != "same-origin" if site is not None else origin not in (None, request.host_url.rstrip("/")):
        _refuse(403, "cross_origin", "Only pages of this site may make this request.")
    if request.method == "POST" and not request.is_json:
        _refuse(415, "not_json", "The body of a POST must be JSON, and its Content-Type application/json.")


def _add_security_headers(response: flask.Response) -> flask.Response:
    """Add headers for a response that is for one user and not a document. Called after each request."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    return response


def _read_body() -> dict[str, Any]:
    """Return the JSON object in the body of a POST; refuse the request if it is anything else."""
    # The size is not checked by Content-Length, because a chunked body has none.
    raw = flask.request.stream.read(_MAX_BODY_BYTES + 1)
    if len(raw) > _MAX_BODY_BYTES:
        _refuse(413, "too_large", f"The body of a request must not exceed {_MAX_BODY_BYTES} bytes.")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        _refuse(400, "bad_request", "The body must be a JSON object.")
    return body
