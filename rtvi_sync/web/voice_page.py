"""A page that talks: the audio of both sides, events and text over one WebSocket.

docs/background/talking-pages.md describes the messages.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import start_thread
from ..concurrency.logs import package_logger
from .event_log import Position, as_json
from .refusal import Refusal, object_in, refusing_what_fails, text_in
from .relay import Relay
from .voice import MIC_RATE_HZ, Outbox, SessionVoice
from .websocket import CLOSED, NO_WEBSOCKET, PageSocket

logger: logging.Logger = package_logger(__name__)

# WebSocket codes that close a page.
_OVER, _WORKER_ENDS, _BAD_AUDIO, _VIOLATION, _TOO_LARGE, _FAILED, _TOO_SLOW = 1000, 1001, 1007, 1008, 1009, 1011, 1013
# Seconds: after which a silent page counts as gone; after which a silent server sends `voiceAlive`; that a page has to
# answer a close; and between two checks of the reading thread.
_SILENCE, _ALIVE_INTERVAL, _CLOSE_TIMEOUT, _LOOK_INTERVAL = 5.0, 1.0, 0.5, 0.25
_ALIVE, _CLEAR = as_json("voiceAlive", {}), as_json("voiceClear", {})
_MAX_AUDIO_BYTES: Final = 2 * MIC_RATE_HZ // 5  # 200 ms


def serve_page(relay: Relay, environ: Mapping[str, Any]) -> None:
    """Answer a handshake, and serve the page until it has closed. Called on a thread of the web server.

    Args:
        relay: a session with a voice.
        environ: the WSGI environment of the request.

    Raises:
        Refusal: the user has too many pages, or the request or the server does not allow a WebSocket.
    """
    voice = relay.voice
    assert voice is not None
    # A page cannot read the response that refuses its handshake; it asks for the session to learn the reason.
    with _noting_refusals(relay):
        if environ.get("HTTP_UPGRADE", "").lower() != "websocket":
            raise Refusal(426, "not_websocket", "This route is for a WebSocket.")
        if not environ["wsgi.multithread"]:
            raise Refusal(501, "no_websocket", NO_WEBSOCKET)
        relay.acquire_slot()
    try:
        try:
            with _noting_refusals(relay):
                connection = PageSocket(environ)
        except CLOSED:
            return  # the page has left
        relay.refused = None
        try:
            VoicePage(relay, voice, connection).serve()
        finally:
            connection.shut()
    finally:
        relay.release_slot()


@contextlib.contextmanager
def _noting_refusals(relay: Relay) -> Iterator[None]:
    try:
        yield
    except Refusal as refusal:
        relay.refused = refusal.error
        raise


class _Violation(Exception):  # noqa: N818 - the page is wrong, not this program
    """The page broke the protocol, or the server ends; `code` closes the page."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class VoicePage:
    """One page that talks. A thread of the web server reads from it, another one writes to it.

    Args:
        relay: the session that the page shows.
        voice: the audio of that session.
        connection: the WebSocket of the page.
    """

    def __init__(self, relay: Relay, voice: SessionVoice, connection: PageSocket) -> None:
        self._relay = relay
        self._voice = voice
        self._connection = connection
        self._outbox = Outbox()
        # Used by the writing thread: the position after the last event read, events to send, and the announced rate.
        self._position = Position()
        self._unsent: deque[str] = deque()
        self._rate: int | None = None

    def serve(self) -> None:
        """Serve the page until it has closed."""
        try:
            self._start()
        except CLOSED:
            return
        except _Violation as violation:
            self._close(violation.code)
            self._connection.wait(_CLOSE_TIMEOUT)
            return
        self._voice.open(self._outbox)
        try:
            with self._relay.log.followed_by(self._note_events):
                writer = start_thread("voice", self._write)
                try:
                    self._read()
                finally:
                    self._close_soon(_OVER)
                    writer.join(_CLOSE_TIMEOUT)
                    self._connection.wait(_CLOSE_TIMEOUT)
                    self._connection.shut()  # unblocks the writer if the page reads nothing
                    writer.join()
        finally:
            self._voice.close(self._outbox)

    def _close_soon(self, code: int) -> None:
        """Make both threads end. Only the first code counts."""
        with self._voice.changed:
            if self._outbox.close_code is None:
                self._outbox.close_code = code
            self._voice.changed.notify_all()

    def _close(self, code: int) -> None:
        with contextlib.suppress(*CLOSED):
            self._connection.close(code)

    # -- reading, on a thread of the web server -----------------------------------------------------------------------

    def _start(self) -> None:
        """Wait for the page's first message."""
        give_up = monotonic() + _SILENCE
        while (message := self._connection.receive(_LOOK_INTERVAL)) is None:
            if self._relay.stopping():
                raise _Violation(_WORKER_ENDS)
            if monotonic() > give_up:
                raise _Violation(_TOO_SLOW)
        if not isinstance(message, str):
            raise _Violation(_VIOLATION)
        start = _object_in(message)
        after = start.get("after", "")
        if start.get("type") != "start" or not isinstance(after, str):
            raise _Violation(_VIOLATION)
        if start.get("sample_rate_hz") != MIC_RATE_HZ:
            raise _Violation(_BAD_AUDIO)
        self._position = self._relay.log.position_after(after)

    def _read(self) -> None:
        """Handle the page's messages until the page closes or must be closed."""
        heard_at = monotonic()
        while self._outbox.close_code is None:
            try:
                message = self._connection.receive(_LOOK_INTERVAL)
            except CLOSED:
                return
            self._relay.record_contact()
            if self._relay.stopping():
                self._close_soon(_WORKER_ENDS)
            elif message is not None:
                heard_at = monotonic()
                try:
                    self._take(message)
                except _Violation as violation:
                    self._close_soon(violation.code)
                except Exception:
                    logger.exception("A message of a page could not be handled")
                    self._close_soon(_FAILED)
            elif monotonic() - heard_at > _SILENCE:
                self._close_soon(_TOO_SLOW)

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            if len(message) > _MAX_AUDIO_BYTES:
                raise _Violation(_TOO_LARGE)
            if not message or len(message) % 2:
                raise _Violation(_BAD_AUDIO)
            self._voice.push(self._outbox, message)
            return
        body = _object_in(message)
        type_ = body.get("type")
        if type_ == "played":
            self._set_played(body.get("seconds"))
        elif type_ == "text":
            self._send_text(body)
        elif type_ == "end":
            self._relay.end("user")
        else:
            raise _Violation(_VIOLATION)

    def _set_played(self, seconds: object) -> None:
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds < math.inf:  # type: ignore[operator]
            raise _Violation(_VIOLATION)
        with self._voice.changed:
            self._outbox.set_played(seconds)  # type: ignore[arg-type]
            self._voice.changed.notify_all()

    def _send_text(self, body: dict[str, Any]) -> None:
        try:
            text, aloud = text_in(body)
            with refusing_what_fails():
                self._relay.send_text(text, aloud)
        except Refusal as refusal:
            with self._voice.changed:
                is_put = self._outbox.put_message(as_json("voiceRefused", refusal.body))
                self._voice.changed.notify_all()
            if not is_put:
                raise _Violation(_TOO_SLOW) from refusal
        else:
            self._relay.record_activity()

    # -- writing, on a thread of its own ------------------------------------------------------------------------------

    def _note_events(self) -> None:
        with self._voice.changed:
            self._outbox.has_events = True
            self._voice.changed.notify_all()

    def _write(self) -> None:
        code = _FAILED
        try:
            code = self._write_until_over()
        except CLOSED:
            pass  # the page left, or does not read
        except Exception:
            logger.exception("A page that talks could not be served")
        finally:
            self._close(code)
            self._close_soon(code)

    def _write_until_over(self) -> int:
        """Send audio, messages and events until the page must be closed. Return the closing code."""
        changed, outbox, log = self._voice.changed, self._outbox, self._relay.log
        while True:
            with changed:
                changed.wait_for(lambda: self._unsent or outbox.is_filled, _ALIVE_INTERVAL)
                if outbox.close_code is not None:
                    return outbox.close_code
                messages = self._take_messages()
                may_read = not messages and outbox.has_events
                outbox.has_events = outbox.has_events and not may_read
            if may_read:  # without this lock, because the log calls `_note_events` while it holds its own
                self._position, events = log.read(self._position, 0.0)
                if events is None:
                    return _OVER
                if events:
                    self._unsent.extend(event.as_message() for event in events)
                    self._note_events()  # so that the end of the log is noticed after them
                continue
            for message in messages or [_ALIVE]:
                self._connection.send(message)

    def _take_messages(self) -> list[str | bytes]:
        """Remove and return the next one or two messages. Call it with the lock held.

        Few at a time, so that an interruption, and then audio, overtake the rest.
        """
        outbox = self._outbox
        if outbox.is_cleared:
            outbox.is_cleared = False
            return [_CLEAR]
        if outbox.has_audio:
            pcm, rate = outbox.take_audio()
            if rate == self._rate:
                return [pcm]
            self._rate = rate
            return [as_json("voiceFormat", {"sample_rate_hz": rate}), pcm]
        for waiting in (outbox.messages, self._unsent):
            if waiting:
                return [waiting.popleft()]
        return []


def _object_in(message: str) -> dict[str, Any]:
    try:
        return object_in(message)
    except Refusal as refusal:
        raise _Violation(_VIOLATION) from refusal
