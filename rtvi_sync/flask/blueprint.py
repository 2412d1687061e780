"""Routes of the relay: access control, requests and responses."""

from __future__ import annotations

import json
import logging
import secrets
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, NoReturn

import flask

from ..client.client import RTVIClient
from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..errors import MessageTooLargeError, RTVIError, UnsupportedFeatureError
from ..events import RTVIEvent, event_from
from ..protocol.validation import NAME, WAIT, Rule, function_taking, iterable
from .relay import Limits, Relay

logger: logging.Logger = package_logger(__name__)

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
    """Relay between browsers and a bot, for a Flask application. See the package's docstring for its routes.

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
