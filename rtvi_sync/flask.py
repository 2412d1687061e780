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

With `voice=True` pages talk, too:

    GET  /bot/voice                    a WebSocket for the audio of both sides, and the events
    GET  /bot/rtvi-voice.js            the script of a page that talks: <rtvi-voice></rtvi-voice>
    GET  /bot/rtvi-voice-worklet.js    its audio thread

The body of a POST is a JSON object, possibly empty, and its type application/json. The body of an error is
{"error": "a_word", "message": "the explanation"}. docs/guides/flask.md explains how to serve it, and lists the errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .client.client import RTVIClient
from .concurrency.logs import package_logger
from .errors import MissingExtraError
from .events import RTVIEvent
from .protocol.validation import BOOL, NAME, WAIT, function_taking
from .web.files import FILE_HEADERS, PAGE_FILES, page_file
from .web.refusal import (
    ANSWER_HEADERS,
    MAX_BODY_BYTES,
    Refusal,
    check_origin,
    check_type,
    object_in,
    refusing_what_fails,
    text_in,
)
from .web.relay import DEFAULT_EVENTS, Limits, Relay
from .web.sessions import SIGNAL, Sessions, has_secret

try:
    import flask
except ModuleNotFoundError as _error:
    if _error.name != "flask":
        raise
    raise MissingExtraError("rtvi_sync.flask", "flask") from _error

__all__ = ["DEFAULT_EVENTS", "RTVIBlueprint"]

logger: logging.Logger = package_logger(__name__)


class RTVIBlueprint(flask.Blueprint):
    """Relay between browsers and a bot, for a Flask application. docs/guides/flask.md lists its routes.

    An event stream occupies a thread of the web server while it is open: serve with more threads than
    `max_sessions * max_streams`, and with one worker process, or with sticky sessions.

    Args:
        make_client: Called with the request, once for each new session; returns a client of its own, not connected yet.
            Here the application decides which user may talk to which bot: `flask.abort(403)`. It is not called again
            for the session's other requests, and an open page is not checked again. So call `end_session()` at logout,
            and guard the routes:

                @bot.before_request
                def check_user():
                    if "user" not in flask.session:
                        flask.abort(403)

            The client's handlers must run on threads (`events="thread"`, the default of a client). For two concurrent
            requests of one user it may be called twice; then one of the clients is never connected.
        voice: True if pages talk with the bot. Each session's client then uses the page's microphone and loudspeaker
            in place of its own. Each talking page occupies a thread of the web server, and counts in `max_streams`.
        name: Name of the blueprint, and part of the key in Flask's session.
        connect: Connects the client, such as ``lambda client: client.start_bot_and_connect(url)``. Called on a thread
            of the session, outside of any request.
        events: Events the page receives, in any spelling of their names. Of audio levels only the newest is sent.
        heartbeat_interval (seconds): Time between heartbeats on a stream without events. A browser that has left is
            detected when the second heartbeat cannot be written.
        leave_timeout (seconds): Time without a stream and without a request after which the user counts as gone. The
            session then ends, connected or not. A page that is reloaded in time finds the session unchanged.
        idle_timeout (seconds): Time without activity of user and bot after which a session ends.
        start_timeout (seconds): Limit of the attempt to connect, whatever timeout the client has.
        stream_lifetime (seconds): Time after which a stream ends and the browser opens the next one. This detects a
            user whose network failed silently.
        max_sessions: Maximum number of sessions in a worker process; beyond it the response is 503.
        max_streams: Maximum number of pages that show a user's session; beyond it the response is 429.
        max_events: Maximum number of events, of 1 MiB together at most, that are kept for pages that open later or
            fall behind.

    Raises:
        ValueError: An event does not exist, or a number is out of range.
        MissingExtraError: `voice` is True, and simple-websocket is not installed.
    """

    def __init__(
        self,
        make_client: Callable[[flask.Request], RTVIClient],
        *,
        voice: bool = False,
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
        BOOL.check(voice=voice)
        NAME.check(name=name)
        function_taking("request").check(make_client=make_client)
        super().__init__(name, __name__)
        self._make_client = make_client
        limits = Limits(
            heartbeat_interval=heartbeat_interval,
            leave_timeout=leave_timeout,
            idle_timeout=idle_timeout,
            start_timeout=start_timeout,
            stream_lifetime=stream_lifetime,
            max_sessions=max_sessions,
            max_streams=max_streams,
            max_events=max_events,
        )
        self._sessions = Sessions(connect, events, limits, has_voice=voice)
        self._key = f"_{name}_session"
        self._warned = False
        self.before_request(_check_request)
        self.after_request(_add_security_headers)
        self.register_error_handler(Refusal, _refuse)
        self.add_url_rule("/session", view_func=self._start, methods=["POST"], endpoint="start")
        self.add_url_rule("/session", view_func=self._state, methods=["GET"], endpoint="state")
        self.add_url_rule("/events", view_func=self._stream, methods=["GET"], endpoint="events")
        self.add_url_rule("/text", view_func=self._send_text, methods=["POST"], endpoint="text")
        self.add_url_rule("/message", view_func=self._send_message, methods=["POST"], endpoint="message")
        self.add_url_rule("/end", view_func=self._end, methods=["POST"], endpoint="end")
        if voice:
            from .web import voice_page  # needs simple-websocket

            talk = partial(self._talk, voice_page)
            for is_handshake in (True, False):  # a Werkzeug rule matches either handshakes or other requests
                self.add_url_rule("/voice", view_func=talk, methods=["GET"], endpoint="voice", websocket=is_handshake)
            for file in PAGE_FILES:
                self.add_url_rule(
                    f"/{file}", view_func=partial(_send_file, file), methods=["GET"], endpoint=file.replace(".", "_")
                )

    def set_cookie(self) -> None:
        """Set the cookie that identifies the browser's session, unless the request has it.

        Call it in the view of the page. A session is started only for a browser that has returned the cookie, so that
        concurrent requests of one browser start one session.
        """
        if not has_secret(flask.session.get(self._key)):
            flask.session[self._key] = self._sessions.new_cookie()

    def end_session(self) -> None:
        """End the session of the browser that made the request. Call it in a view, such as the logout's.

        Its pages close after a `relayEnd` with the reason "user". The browser's next session is a new one, for which
        `make_client` is called. Without this call a session outlives the logout, and the browser's next user
        continues it. It does not block, and does nothing without a session. A session in another worker process goes
        on, but no new page finds it.
        """
        # Read from the request, because the view may have called `flask.session.clear()` before.
        app, request = flask.current_app, flask.request
        sent = app.session_interface.open_session(app, request)
        if sent is not None:
            self._sessions.end(sent.get(self._key))
        flask.session.pop(self._key, None)

    def close(self, timeout: float = 5.0) -> None:
        """End all sessions and streams of this process, and wait for that. For tests, and for a server's exit hook.

        Args:
            timeout (seconds): Limit of the call, which returns even if they have not ended.
        """
        WAIT.check(timeout=timeout)
        self._sessions.close(timeout)

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
            ValueError: This is not the main thread, or the handler of the signal was not set by Python.
        """
        SIGNAL.check(signal_number=signal_number)
        self._sessions.end_pages_on(signal_number)

    # -- routes, on threads of the web server -------------------------------------------------------------------------

    def _start(self) -> tuple[flask.Response, int]:
        body, cookie = _read_body(), flask.session.get(self._key)
        self.set_cookie()
        relay, status, value = self._sessions.start(cookie, body, lambda: self._make_client(flask.request))
        if cookie != value:  # else the response has no cookie, which could replace a later one
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
        response = flask.Response(stream, mimetype="text/event-stream")
        response.headers["X-Accel-Buffering"] = "no"  # nginx delays events by buffering otherwise
        return response

    def _talk(self, voice_page: Any) -> flask.Response:
        relay = self._require_relay(though_ended=True)
        voice_page.serve_page(relay, flask.request.environ)
        return flask.Response()  # never written, because the connection is shut down

    def _send_text(self) -> tuple[flask.Response, int]:
        text, aloud = text_in(_read_body())
        relay = self._require_relay()
        return _send(relay, lambda: relay.send_text(text, aloud))

    def _send_message(self) -> tuple[flask.Response, int]:
        body = _read_body()
        type_, data = body.get("type"), body.get("data")
        if not isinstance(type_, str) or not type_:
            raise Refusal(400, "bad_request", 'The body must be {"type": "...", "data": any JSON}.')
        relay = self._require_relay()
        return _send(relay, lambda: relay.client.send_client_message(type_, data))

    def _end(self) -> tuple[flask.Response, int]:
        _read_body()
        self._require_relay().end("user")
        return flask.jsonify({}), 202

    def _require_relay(self, *, though_ended: bool = False) -> Relay:
        return self._sessions.require(flask.session.get(self._key), though_ended=though_ended)


def _send(relay: Relay, send: Callable[[], object]) -> tuple[flask.Response, int]:
    with refusing_what_fails():
        send()
    relay.record_activity()
    return flask.jsonify({}), 202


def _state_response(relay: Relay) -> flask.Response:
    return flask.jsonify(relay.description)


def _send_file(name: str) -> flask.Response:
    file = page_file(name)
    response = flask.Response(file.content, content_type=file.type, headers=FILE_HEADERS)
    response.set_etag(file.etag)
    response.make_conditional(flask.request)
    return response


def _refuse(refusal: Refusal) -> tuple[flask.Response, int]:
    return flask.jsonify(refusal.body), refusal.status


def _check_request() -> None:
    """Refuse a request that was not made by a page of the same origin. Called before each request."""
    request = flask.request
    name = request.path.rpartition("/")[2]
    if name in PAGE_FILES:  # the same for everyone
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    is_handshake = name == "voice"
    check_origin(site, origin, request.host_url.rstrip("/"), is_handshake=is_handshake)
    if request.method == "POST":
        check_type(request.is_json)


def _add_security_headers(response: flask.Response) -> flask.Response:
    """Add headers for a response that is for one user and not a document. Called after each request."""
    for name, value in ANSWER_HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _read_body() -> dict[str, Any]:
    """Return the JSON object in the body of a POST; refuse the request if it is anything else."""
    # The size is not checked by Content-Length, because a chunked body has none.
    return object_in(flask.request.stream.read(MAX_BODY_BYTES + 1))
