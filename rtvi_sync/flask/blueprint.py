"""The routes: who may do what with which session, and how that is told."""

from __future__ import annotations

import json
import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, NoReturn

import flask

from ..client.client import RTVIClient
from ..concurrency.lifecycle import register_for_fork
from ..errors import MessageTooLargeError, RTVIError, UnsupportedFeatureError
from ..events import RTVIEvent, event_from
from ..protocol.validation import FUNCTION, NAME, WAIT, Rule, iterable
from .relay import Limits, Relay

logger: logging.Logger = logging.getLogger(__name__)

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
"""What a page is told unless `events` says otherwise: what people say, and nothing of the bot's inside."""


_SIGNAL: Final = Rule(
    "the number of a signal", lambda number: isinstance(number, int), lambda number: number in signal.valid_signals()
)


class RTVIBlueprint(flask.Blueprint):
    """Gives a Flask application a relay between browsers and a bot. See the module for its routes.

    An event stream occupies a thread of the web server as long as it is open: serve with more threads than
    `max_sessions * max_streams`, and with one worker process, or with one that each user sticks to.

    Args:
        make_client: called with the request for each session that is to be started; returns a client of its own, not
            connected yet. Here the application decides who may talk to which bot: `flask.abort(403)`. Its handlers must
            run on threads (`events="thread"`, the default of a client). If a user asks twice at the same moment, it may
            be called for both requests; then one of the clients is never connected.
        name: of the blueprint, and part of the key in Flask's session.
        connect: connects the client, such as ``lambda client: client.start_bot_and_connect(url)``. Called on a thread
            of the session, outside of any request.
        events: what the page is told, by any name of an event. Of audio levels only the newest is sent.
        heartbeat_interval: seconds between signs of life on a stream where nothing happens. A browser that has left is
            found when the second one cannot be written.
        leave_timeout: seconds without a stream and without a request after which the user has left and the session is
            ended, connected or not. A page that is loaded again within that time finds the session as it was.
        idle_timeout: seconds after which a session is ended in which neither user nor bot does anything.
        start_timeout: seconds after which the attempt to connect is broken off, whatever limit the client has.
        stream_lifetime: seconds after which a stream ends and the browser opens the next one. It is how a user whose
            network has died without a word is found.
        max_sessions: how many there may be in a worker process; more are answered with 503.
        max_streams: how many pages of one user may show his session; more are answered with 429.
        max_events: how many events, of one MiB together at most, are kept for pages that come later or fall behind.

    Raises:
        ValueError: no event is named so, or a number makes no sense.
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
        FUNCTION.check(make_client=make_client, connect=connect)
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
        self.before_request(_refuse_strangers)
        self.after_request(_protect)
        self.add_url_rule("/session", view_func=self._start, methods=["POST"], endpoint="start")
        self.add_url_rule("/session", view_func=self._state, methods=["GET"], endpoint="state")
        self.add_url_rule("/events", view_func=self._stream, methods=["GET"], endpoint="events")
        self.add_url_rule("/text", view_func=self._send_text, methods=["POST"], endpoint="text")
        self.add_url_rule("/message", view_func=self._send_message, methods=["POST"], endpoint="message")
        self.add_url_rule("/end", view_func=self._end, methods=["POST"], endpoint="end")

    def after_fork_in_child(self) -> None:
        """A process has its own sessions, and a name by which it knows a cookie of its own."""
        self._process = secrets.token_hex(4)
        # Guards _relays. Held for a moment by threads of the web server and of the relays.
        self._lock = threading.Lock()
        self._relays: list[Relay] = []

    def set_cookie(self) -> None:
        """Give the browser that makes this request the cookie by which its session will be known, unless it has one.

        Call it in the view of the page. A session is started only for a browser that has brought the cookie back: so it
        gets one, however often and however fast it asks.
        """
        if not self._cookie()[1]:
            flask.session[self._key] = f".{secrets.token_urlsafe(32)}"

    def close(self, timeout: float = 5.0) -> None:
        """End all sessions and streams of this process, and wait for that. For tests, and for a server's exit hook.

        Args:
            timeout: seconds after which it returns in any case.
        """
        WAIT.check(timeout=timeout)
        deadline = time.monotonic() + timeout
        with self._lock:
            relays = list(self._relays)
        for relay in relays:
            relay.drop()
        for relay in relays:
            relay.join(max(0.0, deadline - time.monotonic()))

    def end_streams_on(self, signal_number: int) -> None:
        """Let a signal end all streams, besides what it does already; call it on the main thread of the worker.

        A server that is told to end waits for its requests, and a stream is one that does not end. In gunicorn's
        configuration:

            def post_worker_init(worker):
                worker.wsgi.blueprints["rtvi"].end_streams_on(signal.SIGTERM)

        Without it the streams, and the sessions, are cut when gunicorn's `graceful_timeout` has passed.

        Raises:
            ValueError: this is not the main thread, or the signal's handler is not Python's.
        """
        _SIGNAL.check(signal_number=signal_number)
        before = signal.getsignal(signal_number)
        if before is None:
            raise ValueError("signal_number must be of a signal whose handler Python has set, so that it can be kept")

        def handle(number: int, frame: FrameType | None) -> None:
            # Nothing but this: whoever holds a lock may be the thread that was interrupted.
            self._stopping = True
            if callable(before):
                before(number, frame)
            else:
                signal.signal(number, before)
                signal.raise_signal(number)

        signal.signal(signal_number, handle)

    # -- routes: threads of the web server ----------------------------------------------------------------------------

    def _start(self) -> tuple[flask.Response, int]:
        _body()
        secret = self._cookie()[1]
        if not secret:
            self.set_cookie()
            _refuse(428, "no_cookie", "Try again with the cookie that comes with this answer.")
        relay, status = self._find(), 200
        if relay is None or relay.reason is not None:
            relay, status = self._add(secret, self._make_client(flask.request))
        flask.session[self._key] = f"{self._process}.{secret}"
        return _state_of(relay), status

    def _state(self) -> flask.Response:
        return _state_of(self._own())

    def _stream(self) -> flask.Response:
        relay = self._own(though_ended=True)
        if not (flask.request.environ["wsgi.multithread"] or flask.current_app.testing or self._warned):
            self._warned = True
            logger.warning(
                "This web server does one thing at a time, and an event stream blocks it. Serve with threads: "
                "gunicorn --worker-class gthread --workers 1 --threads 80"
            )
        stream = relay.stream(flask.request.headers.get("Last-Event-ID", ""))
        if stream is None:
            _refuse(429, "too_many_pages", "Too many pages show this session. Close some of them.")
        response = flask.Response(stream, mimetype="text/event-stream")
        response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events back until it has some KB
        return response

    def _send_text(self) -> tuple[flask.Response, int]:
        body = _body()
        text, aloud = body.get("text"), body.get("audio_response", True)
        if not isinstance(text, str) or not text.strip() or not isinstance(aloud, bool):
            _refuse(400, "bad_request", 'The body is {"text": "...", "audio_response": true or false}.')
        relay = self._own()
        return self._send(relay, lambda: relay.send_text(text, aloud))

    def _send_message(self) -> tuple[flask.Response, int]:
        body = _body()
        type_, data = body.get("type"), body.get("data")
        if not isinstance(type_, str) or not type_:
            _refuse(400, "bad_request", 'The body is {"type": "...", "data": any JSON}.')
        relay = self._own()
        return self._send(relay, lambda: relay.client.send_client_message(type_, data))

    def _send(self, relay: Relay, send: Callable[[], object]) -> tuple[flask.Response, int]:
        try:
            send()
        except MessageTooLargeError:
            _refuse(413, "too_large", "This is more than the bot takes.")
        except UnsupportedFeatureError:
            _refuse(501, "unsupported", "This bot does not know such messages.")
        except RTVIError:
            _refuse(409, "not_ready", "The bot is not ready.")
        except (ValueError, TypeError, RecursionError):
            _refuse(400, "bad_request", "This cannot be written as JSON.")
        relay.was_used()
        return flask.jsonify({}), 202

    def _end(self) -> tuple[flask.Response, int]:
        _body()
        self._own().end("user")
        return flask.jsonify({}), 202

    # -- inside -------------------------------------------------------------------------------------------------------

    def _find(self) -> Relay | None:
        """The last session of the user who asks, if it is in this process and not forgotten."""
        secret = self._cookie()[1]
        with self._lock:
            relay = next((relay for relay in reversed(self._relays) if relay.owner == secret), None)
        if relay is not None:
            relay.was_seen()
        return relay

    def _own(self, *, though_ended: bool = False) -> Relay:
        """The session of the user who asks; refuses the request if there is none."""
        relay, process = self._find(), self._cookie()[0]
        if relay is None and not process:
            _refuse(404, "no_session", "There is no session. Start one.")
        if relay is None and process != self._process:
            _refuse(409, "other_worker", "The session is in another worker process, or in one that has ended.")
        if relay is None or (relay.reason is not None and not though_ended):
            _refuse(410, "ended", "The session has ended. Start another one.")
        return relay

    def _cookie(self) -> tuple[str, str]:
        """The process of the user's last session, and the secret, in his cookie; empty if there is none."""
        value = flask.session.get(self._key)
        process, _, secret = value.partition(".") if isinstance(value, str) else ("", "", "")
        return process, secret

    def _add(self, owner: str, client: RTVIClient) -> tuple[Relay, int]:
        """A session for a user with this client, or the one that another request of his has just added; the status."""
        if not isinstance(client, RTVIClient):
            raise TypeError(f"make_client returns an RTVIClient, not {client!r}")
        relay = Relay(owner, client, self._limits, forget=self._forget, stopping=lambda: self._stopping)
        with self._lock:
            if any(other.client is client for other in self._relays):  # or one user would be told what another says
                raise TypeError("make_client returned a client that serves another session; each has one of its own")
            live = [other for other in self._relays if other.reason is None]
            for other in live:
                if other.owner == owner:
                    return other, 200
            before = [other for other in self._relays if other.owner == owner]
            full = len(live) >= self._limits.max_sessions
            if not full:
                self._relays.append(relay)
        if full:
            _refuse(503, "busy", "Too many people are talking to the bot. Try again later.")
        for other in before:
            other.drop()  # its pages are told of this one
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


def _state_of(relay: Relay) -> flask.Response:
    return flask.jsonify({"state": relay.state.value})


def _refuse(status: int, error: str, message: str) -> NoReturn:
    response = flask.jsonify({"error": error, "message": message})
    response.status_code = status
    flask.abort(response)


def _refuse_strangers() -> None:
    """Before each request: only a page of this very origin may make it.

    A browser says so itself in Sec-Fetch-Site, which no page can write. Where it does not (over plain HTTP, and older
    ones), it tells the origin of a POST. And no page of another origin may send JSON without being allowed first.
    """
    request = flask.request
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site != "same-origin" if site is not None else origin not in (None, request.host_url.rstrip("/")):
        _refuse(403, "cross_origin", "Only pages of this site may do that.")
    if request.method == "POST" and not request.is_json:
        _refuse(415, "not_json", "The body of a POST is JSON, and its Content-Type application/json.")


def _protect(response: flask.Response) -> flask.Response:
    """After each request: what is told here is for one user, and no document."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    return response


def _body() -> dict[str, Any]:
    """The JSON object that a POST brings; refuses anything else."""
    # Not by Content-Length: a body that comes in chunks has none.
    raw = flask.request.stream.read(_MAX_BODY_BYTES + 1)
    if len(raw) > _MAX_BODY_BYTES:
        _refuse(413, "too_large", f"The body of a request has {_MAX_BODY_BYTES} bytes at most.")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        _refuse(400, "bad_request", "The body is a JSON object.")
    return body
