"""Views of a page that talks with a bot, for Django: the session is kept in the worker, and no database is needed.

    from rtvi_sync.django import RTVIVoice

    def make_client(request):
        return RTVIClient.for_url("http://localhost:7860", connect_timeout=15)

    voice = RTVIVoice(make_client)

    urlpatterns = [path("bot/", include(voice.urls)), ...]

and in the page's template, which needs nothing else:

    <script type="module" src="/bot/rtvi-voice.js"></script>
    <rtvi-voice></rtvi-voice>

Each browser user has one session with the bot, shared by all pages of that user. A user is identified only by an
unguessable id in a signed cookie; no URL names a session. Requests from pages of other origins are refused, so that
the views need no CSRF token.

    POST /bot/session    start the session, or return the one that exists: {"state": "connecting"}
    GET  /bot/session    its state
    GET  /bot/voice      a WebSocket for the audio of both sides, the events, and text
    POST /bot/end        end it
    GET  /bot/rtvi-voice.js, /bot/rtvi-voice-worklet.js

A page occupies a thread of the web server while it is open. Serve with threads, in one process:
``gunicorn --worker-class gthread --workers 1 --threads 80``. Django's own server opens no WebSocket.
docs/guides/flask.md has the errors, and docs/background/talking-pages.md the messages. Both hold for Django, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from .client.client import RTVIClient
from .errors import MissingExtraError
from .events import RTVIEvent
from .protocol.validation import COUNT, NAME, WAIT, Rule, function_taking, has_method, instance_of
from .web.files import FILE_HEADERS, PAGE_FILES, page_file
from .web.refusal import ANSWER_HEADERS, MAX_BODY_BYTES, NO_COOKIE, Refusal, check_origin, check_type, object_in
from .web.relay import DEFAULT_EVENTS, Limits, Relay
from .web.sessions import SIGNAL, Sessions

try:
    import simple_websocket  # noqa: F401 - so that its absence is reported here
    from django.db.transaction import non_atomic_requests
    from django.http import HttpRequest, HttpResponse, JsonResponse
    from django.http.response import HttpResponseBase
    from django.urls import path
    from django.utils.cache import get_conditional_response
    from django.views.decorators.csrf import csrf_exempt

    from .web.voice_page import serve_page
except ModuleNotFoundError as _error:
    if _error.name not in ("django", "simple_websocket"):
        raise
    raise MissingExtraError("rtvi_sync.django", "django") from _error

__all__ = ["DEFAULT_EVENTS", "RTVIVoice"]

_SALT: Final = "rtvi_sync.django"
# Not by its class: the request of Django REST framework wraps Django's.
_REQUEST: Final = Rule("a request of Django", lambda request: has_method(request, "get_signed_cookie"))
_RESPONSE: Final = instance_of("a response of Django", HttpResponseBase)


class RTVIVoice:
    """Views of a page that talks with a bot. See the docstring of the module for the routes.

    Args:
        make_client: Called with the request, once for each new session; returns a client of its own, not connected yet.
            It gets the page's microphone and loudspeaker in place of its own. Here the application decides which user
            may talk to which bot: ``raise PermissionDenied``. It is not called again for the session's other requests,
            and an open page is not checked again: call `end_session()` at logout. The client's handlers must run on
            threads (`events="thread"`, the default of a client). For two concurrent requests of one user it
            may be called twice; then one of the clients is never connected.
        name: Part of the cookie's name.
        connect: Connects the client, such as ``lambda client: client.start_bot_and_connect(url)``. Called on a thread
            of the session, outside of any request.
        events: Events the page receives, in any spelling of their names. Of audio levels only the newest is sent.
        leave_timeout (seconds): Time without a page and without a request after which the user counts as gone. The
            session then ends, connected or not. A page that is reloaded in time finds the session unchanged.
        idle_timeout (seconds): Time without activity of user and bot after which a session ends.
        start_timeout (seconds): Limit of the attempt to connect, whatever timeout the client has.
        max_sessions: Maximum number of sessions in a worker process; beyond it the response is 503.
        max_pages: Maximum number of pages that show a user's session; beyond it the response is 429. One of them has
            the voice.
        max_events: Maximum number of events, of 1 MiB together at most, that are kept for pages that open later or
            fall behind.

    Raises:
        ValueError: An event does not exist, or a number is out of range.
    """

    def __init__(
        self,
        make_client: Callable[[HttpRequest], RTVIClient],
        *,
        name: str = "rtvi",
        connect: Callable[[RTVIClient], object] = RTVIClient.connect,
        events: Iterable[str | RTVIEvent] = DEFAULT_EVENTS,
        leave_timeout: float = 4.0,
        idle_timeout: float = 900.0,
        start_timeout: float = 30.0,
        max_sessions: int = 16,
        max_pages: int = 4,
        max_events: int = 1000,
    ) -> None:
        NAME.check(name=name)
        function_taking("request").check(make_client=make_client)
        COUNT.check(max_pages=max_pages)
        self._make_client = make_client
        limits = Limits(
            leave_timeout=leave_timeout,
            idle_timeout=idle_timeout,
            start_timeout=start_timeout,
            max_sessions=max_sessions,
            max_streams=max_pages,
            max_events=max_events,
        )
        self._sessions = Sessions(connect, events, limits, has_voice=True)
        self._cookie = f"{name}_session"

    @property
    def urls(self) -> list[Any]:
        """The routes, for ``path("bot/", include(voice.urls))``."""
        routes = {
            "session": (self._session, ("GET", "POST")),
            "voice": (self._talk, ("GET",)),
            "end": (self._end, ("POST",)),
        }
        patterns = [path(route, self._view(route, view, methods)) for route, (view, methods) in routes.items()]
        return patterns + [path(file, partial(_send_file, file)) for file in PAGE_FILES]

    def end_session(self, request: HttpRequest, response: HttpResponseBase) -> None:
        """End the session of the browser that made a request. Call it in a view, such as the logout's:

            def log_out(request):
                logout(request)
                response = redirect("/")
                voice.end_session(request, response)
                return response

        Its pages close after a `relayEnd` with the reason "user". The browser's next session is a new one, for which
        `make_client` is called. Without this call a session outlives the logout, and the browser's next user
        continues it. It does not block, and does nothing without a session. A session in another worker process goes
        on, but no new page finds it.

        Args:
            request: The browser's request, whose cookie names the session.
            response: The view's response, which gets a header that deletes the cookie.
        """
        _REQUEST.check(request=request)
        _RESPONSE.check(response=response)
        self._sessions.end(self._cookie_of(request))
        response.delete_cookie(self._cookie, samesite="Strict")

    def close(self, timeout: float = 5.0) -> None:
        """End all sessions and pages of this process, and wait for that. For tests, and for a server's exit hook.

        Args:
            timeout (seconds): Limit of the call, which returns even if they have not ended.
        """
        WAIT.check(timeout=timeout)
        self._sessions.close(timeout)

    def end_pages_on(self, signal_number: int) -> None:
        """End all pages when a signal arrives, then run its previous handler. Call it on the worker's main thread.

        A server that shuts down waits for its requests, and a page that talks is a request that does not end. In
        gunicorn's configuration:

            def post_worker_init(worker):
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master, which gets Ctrl-C as well, sends SIGQUIT
                for number in (signal.SIGTERM, signal.SIGQUIT):
                    urls.voice.end_pages_on(number)  # where it is made

        Without it the pages, and the sessions, are cut when gunicorn's `graceful_timeout` has passed.

        Raises:
            ValueError: This is not the main thread, or the handler of the signal was not set by Python.
        """
        SIGNAL.check(signal_number=signal_number)
        self._sessions.end_pages_on(signal_number)

    # -- views, on threads of the web server --------------------------------------------------------------------------

    def _view(
        self, route: str, answer: Callable[[HttpRequest], HttpResponse], methods: tuple[str, ...]
    ) -> Callable[[HttpRequest], HttpResponse]:
        """Return the view of a route."""

        def view(request: HttpRequest) -> HttpResponse:
            try:
                if request.method not in methods:
                    raise Refusal(405, "bad_method", f"This route takes {' and '.join(methods)}.")
                site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
                own = f"{request.scheme}://{request.get_host()}"
                check_origin(site, origin, own, is_handshake=route == "voice")
                response = answer(request)
            except Refusal as refusal:
                response = JsonResponse(refusal.body, status=refusal.status)
                if refusal.error == NO_COOKIE:
                    self._set_cookie(request, response, self._sessions.new_cookie())
            for name, value in ANSWER_HEADERS.items():
                response[name] = value
            return response

        # A page may stay open for an hour, and a transaction around its request would last as long.
        exempt: Callable[[HttpRequest], HttpResponse] = non_atomic_requests(csrf_exempt(view))
        return exempt

    def _session(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return _state_response(self._require_relay(request))
        body, cookie = _read_body(request), self._cookie_of(request)
        relay, status, value = self._sessions.start(cookie, body, lambda: self._make_client(request))
        response = _state_response(relay, status)
        if cookie != value:  # else the response has no cookie, which could replace a later one
            self._set_cookie(request, response, value)
        return response

    def _talk(self, request: HttpRequest) -> HttpResponse:
        serve_page(self._require_relay(request, though_ended=True), request.META)
        return HttpResponse()  # never written, because the connection is shut down

    def _end(self, request: HttpRequest) -> HttpResponse:
        _read_body(request)
        self._require_relay(request).end("user")
        return JsonResponse({}, status=202)

    def _require_relay(self, request: HttpRequest, *, though_ended: bool = False) -> Relay:
        return self._sessions.require(self._cookie_of(request), though_ended=though_ended)

    def _cookie_of(self, request: HttpRequest) -> object:
        return request.get_signed_cookie(self._cookie, default=None, salt=_SALT)

    def _set_cookie(self, request: HttpRequest, response: HttpResponse, value: str) -> None:
        response.set_signed_cookie(
            self._cookie, value, salt=_SALT, secure=request.is_secure(), httponly=True, samesite="Strict"
        )


def _read_body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object in the body of a POST; refuse the request if it is anything else."""
    check_type(request.content_type == "application/json")
    return object_in(request.read(MAX_BODY_BYTES + 1))


def _state_response(relay: Relay, status: int = 200) -> HttpResponse:
    return JsonResponse(relay.description, status=status)


def _send_file(name: str, request: HttpRequest) -> HttpResponse:
    file = page_file(name)
    response = HttpResponse(file.content, content_type=file.type, headers=FILE_HEADERS)
    response["ETag"] = etag = f'"{file.etag}"'
    return get_conditional_response(request, etag=etag, response=response)
