"""The sessions of one process, found by the cookies of their users."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from ..client.client import RTVIClient
from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.lock import new_lock
from ..events import RTVIEvent, event_from
from ..protocol.validation import Rule, function_taking, iterable
from .refusal import NO_COOKIE, Refusal
from .relay import Limits, Relay

SIGNAL: Final = Rule(
    "the number of a signal", lambda number: isinstance(number, int), lambda number: number in signal.valid_signals()
)


class Sessions:
    """The sessions of one process. Any thread may call any method.

    A cookie's value is the name of the process that has the user's last session, a dot, and the user's secret.

    Args:
        connect: connects a client.
        events: the events that pages get.
        limits: the limits of sessions and pages.
        has_voice: True if pages talk with the bot.
    """

    def __init__(
        self,
        connect: Callable[[RTVIClient], object],
        events: Iterable[str | RTVIEvent],
        limits: Limits,
        *,
        has_voice: bool,
    ) -> None:
        function_taking("client").check(connect=connect)
        iterable("a list of events").check(events=events)
        chosen = [event_from(event, "events") for event in events]
        self._connect = connect
        # A page that talks greys the unheard part of an interrupted answer, which `turn-ended` reports.
        self._events = tuple(dict.fromkeys([*chosen, *([RTVIEvent.TURN_ENDED] if has_voice else [])]))
        self._limits = limits
        self._has_voice = has_voice
        self._stopping = False
        self.after_fork_in_child()
        register_for_fork(self)

    def after_fork_in_child(self) -> None:
        """Give the process its own sessions, and its own name, which marks its cookies."""
        self._process = secrets.token_hex(4)
        # Guards the fields below. Threads of the web server and of the relays hold it for a few instructions.
        self._lock = new_lock()
        self._relays: list[Relay] = []
        self._starts: dict[object, str] = {}  # the owners of the sessions that are being started, by request

    def new_cookie(self) -> str:
        """Return the value of a new user's cookie."""
        return f".{secrets.token_urlsafe(32)}"

    def start(
        self, cookie: object, body: dict[str, Any], make_client: Callable[[], RTVIClient]
    ) -> tuple[Relay, int, str]:
        """Start the session of a user, or find the one that exists.

        Args:
            cookie: its value, from the request.
            body: the request's JSON.
            make_client: makes the client of a new session; not called if the session exists.

        Returns:
            The session, the HTTP status, and the value that the cookie must have from now on.

        Raises:
            Refusal: the request has no cookie, there are too many sessions, or the session was ended during the call
                of `make_client`.
            TypeError: `make_client` did not return a new client, or returned one without audio.
        """
        secret, is_first = _parts_of(cookie)[1], body.get("first", False)
        if not isinstance(is_first, bool):
            raise Refusal(400, "bad_request", 'The body must be {} or {"first": true}.')
        if not secret:
            # A page's first request usually has no cookie, and browsers log a status of 400 or above as an error.
            status = 202 if is_first else 428
            raise Refusal(status, NO_COOKIE, "The request has no cookie. Repeat it with the one of this response.")
        start = object()
        with self._lock:
            self._starts[start] = secret
        try:
            relay, status = self._find(cookie), 200
            if relay is None or relay.reason is not None:
                relay, status = self._add(secret, make_client(), start)
        finally:
            with self._lock:
                self._starts.pop(start, None)
        return relay, status, f"{self._process}.{secret}"

    def require(self, cookie: object, *, though_ended: bool = False) -> Relay:
        """Return the session of a user.

        Raises:
            Refusal: there is none.
        """
        relay, process = self._find(cookie), _parts_of(cookie)[0]
        if relay is None and not process:
            raise Refusal(404, "no_session", "There is no session. Start one.")
        if relay is None and process != self._process:
            raise Refusal(409, "other_worker", "The session is in another worker process, or in one that has ended.")
        if relay is None or (relay.reason is not None and not though_ended):
            raise Refusal(410, "ended", "The session has ended. Start another one.")
        return relay

    def end(self, cookie: object) -> None:
        """End the session of a user, if this process has it or is about to start it."""
        secret = _parts_of(cookie)[1]
        with self._lock:
            self._starts = {start: owner for start, owner in self._starts.items() if owner != secret}
        if (relay := self._find(cookie)) is not None:
            relay.end("user")

    def close(self, timeout: float) -> None:
        """End all sessions and pages, and wait up to `timeout` seconds for that."""
        deadline = monotonic() + timeout
        with self._lock:
            relays = list(self._relays)
        for relay in relays:
            relay.drop()
        for relay in relays:
            relay.join(max(0.0, deadline - monotonic()))

    def end_pages_on(self, signal_number: int) -> None:
        """End all pages when a signal arrives, then run its previous handler. On the main thread.

        Raises:
            ValueError: this is not the main thread, or the handler of the signal was not set by Python.
        """
        previous = signal.getsignal(signal_number)
        if previous is None:
            raise ValueError("signal_number must name a signal whose handler was set by Python")

        def handle(number: int, frame: FrameType | None) -> None:
            # Only an assignment, because the interrupted thread may hold any lock.
            self._stopping = True
            if callable(previous):
                previous(number, frame)
            else:
                signal.signal(number, previous)
                signal.raise_signal(number)

        signal.signal(signal_number, handle)

    # -- internal -----------------------------------------------------------------------------------------------------

    def _find(self, cookie: object) -> Relay | None:
        """Return a user's last session, or None if this process has none."""
        secret = _parts_of(cookie)[1]
        with self._lock:
            relay = next((relay for relay in reversed(self._relays) if relay.owner == secret), None)
        if relay is not None:
            relay.record_contact()
        return relay

    def _add(self, owner: str, client: RTVIClient, start: object) -> tuple[Relay, int]:
        """Add a session unless another request of the user has just added one; return it and the HTTP status."""
        if not isinstance(client, RTVIClient):
            raise TypeError(f"make_client returned {client!r}. Return an RTVIClient")
        relay = Relay(
            owner,
            client,
            self._limits,
            forget=self._forget,
            stopping=lambda: self._stopping,
            has_voice=self._has_voice,
        )
        with self._lock:
            if start not in self._starts:  # else the browser's next user would have this session, as after a logout
                raise Refusal(410, "ended", "The session was ended before it started. Start another one.")
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
            raise Refusal(503, "busy", "Too many users are talking to the bot. Try again later.")
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


def has_secret(cookie: object) -> bool:
    """Return whether the value of a cookie identifies a user."""
    return bool(_parts_of(cookie)[1])


def _parts_of(cookie: object) -> tuple[str, str]:
    """Return the name of the last session's process, and the secret. Each is "" if the cookie does not have it."""
    process, _, secret = cookie.partition(".") if isinstance(cookie, str) else ("", "", "")
    return process, secret
