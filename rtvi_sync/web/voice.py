"""The audio of one session with a bot, between the client and the page that has the voice."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from ..client.client import RTVIClient
from ..concurrency.clock import monotonic
from ..concurrency.lock import new_lock
from ..events import RTVIEvent
from ..media.pcm import rms
from ..media.push_source import PushSource
from ..media.sinks import CallbackSink
from ..protocol.states import TransportState

#: Rate of the microphone's audio that pages send.
MIC_RATE_HZ: Final = 16_000
#: Closing code for a page that lost the voice to another page of its user.
TAKEN: Final = 4001

# Seconds of audio that a page may hold unplayed, and in one message.
_MAX_AHEAD, _MESSAGE_SECONDS = 1.0, 0.1
# Seconds of the user's audio that may wait at any moment, and that may wait permanently.
_MAX_MIC_DELAY, _MIC_DELAY = 0.3, 0.03
# Waiting audio that is never needed within this many seconds is only delay.
_MIC_WINDOW: Final = 1.0
# Frames below this RMS are a pause.
_QUIET: Final = 300.0
# Maximum number of messages waiting for a page, without the events.
_MAX_MESSAGES: Final = 100


class Outbox:
    """Audio and messages waiting to be sent to one page that talks.

    Guarded by the condition `SessionVoice.changed`.

    Attributes:
        close_code: WebSocket code to close the page with; None while it stays open.
        is_cleared: True if the page must empty its player.
        messages: JSON texts, oldest first.
        has_events: True if there may be events that the page has not received.
    """

    def __init__(self) -> None:
        self.close_code: int | None = None
        self.is_cleared: bool = False
        self.messages: deque[str] = deque()
        self.has_events: bool = True
        self._audio: deque[tuple[bytes, int]] = deque()
        # Seconds of audio since the page opened: put in and not cleared, taken out to be sent, and played.
        self._put = self._taken = self._played = 0.0

    @property
    def seconds_ahead(self) -> float:
        """Seconds of audio that the page has not played: waiting here, in transit, or in its player."""
        return self._put - self._played

    @property
    def has_audio(self) -> bool:
        """True if audio waits."""
        return bool(self._audio)

    @property
    def is_filled(self) -> bool:
        """True if anything waits."""
        return (
            self.close_code is not None or self.is_cleared or self.has_audio or bool(self.messages) or self.has_events
        )

    def put_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append signed 16-bit little endian mono audio."""
        self._audio.append((pcm, sample_rate_hz))
        self._put += _seconds_of(pcm, sample_rate_hz)

    def take_audio(self) -> tuple[bytes, int]:
        """Remove the oldest audio; return it and its rate."""
        pcm, rate = self._audio.popleft()
        self._taken += _seconds_of(pcm, rate)
        return pcm, rate

    def clear_audio(self) -> None:
        """Remove all audio, and tell the page to empty its player."""
        self._put -= sum(_seconds_of(*audio) for audio in self._audio)
        self._audio.clear()
        self.is_cleared = True

    def set_played(self, seconds: float) -> None:
        """Record the seconds that the page reports as played. They never decrease, and never exceed the audio sent."""
        self._played = max(self._played, min(seconds, self._taken))

    def put_message(self, message: str) -> bool:
        """Append a message. Return False if too many wait, because the page does not read them."""
        if len(self.messages) >= _MAX_MESSAGES:
            return False
        self.messages.append(message)
        return True


class PageMicrophone:
    """The microphone of a page, without a growing delay. Use it from one thread at a time.

    Audio that the network delayed arrives in a burst, and all later audio would stay late. Therefore frames are dropped
    in the user's pauses until the delay is gone. Audio that would wait longer than 0.3 s is dropped at once.

    Attributes:
        source: the source for the client.
    """

    def __init__(self) -> None:
        self.source: PushSource = PushSource(MIC_RATE_HZ, _MAX_MIC_DELAY)
        self._least_waiting = _MAX_MIC_DELAY  # in the current window
        self._window_end = 0.0
        self._excess = 0.0  # seconds to catch up

    def push(self, pcm: bytes) -> None:
        """Queue audio for the bot."""
        seconds, waiting, now = _seconds_of(pcm, MIC_RATE_HZ), self.source.waiting_seconds, monotonic()
        self._least_waiting = min(self._least_waiting, waiting)
        if now >= self._window_end:
            self._excess = self._least_waiting - _MIC_DELAY
            self._least_waiting, self._window_end = _MAX_MIC_DELAY, now + _MIC_WINDOW
        if self._excess >= seconds and rms(pcm) < _QUIET:
            self._excess -= seconds
            return
        if waiting + seconds > _MAX_MIC_DELAY:  # here, because the source logs a loss, and a page could flood the log
            self.source.clear()
        self.source.push(pcm)


class SessionVoice:
    """Microphone and speaker of one session's client. They belong to the page that was opened last.

    While no page is open, the bot's audio is discarded in real time, so that a returning page hears the bot's current
    words. Only the first page is waited for, up to `hold` seconds.

    Args:
        hold: seconds for which the bot's first audio waits for a page.

    Attributes:
        changed: guards the fields and the outboxes, and is notified when one changes. Held for a few instructions.
    """

    def __init__(self, hold: float) -> None:
        # Guards the fields below and the outboxes. Any thread holds it for a few instructions.
        self.changed: threading.Condition = threading.Condition(threading.Lock())
        self._mic = PageMicrophone()
        self._hold = hold
        self._client: RTVIClient | None = None
        # Held while audio is pushed, because the thread of a page that lost the voice may still push.
        self._pushing = new_lock()
        self._outbox: Outbox | None = None  # of the page that has the voice
        self._pages = 0
        self._interruptions = 0
        self._is_over = False
        # Monotonic time up to which the bot's audio counts as heard without a page; None before the first page.
        self._unheard_until: float | None = None

    # -- the client's side --------------------------------------------------------------------------------------------

    def equip(self, client: RTVIClient) -> None:
        """Give a client that is not connected yet the microphone and the speaker of the page.

        Raises:
            TypeError: the client was made with `text_only=True`.
        """
        if client._life.is_text_only:
            raise TypeError(
                "make_client returned a client with text_only=True, which has no voice. Leave out text_only, or "
                "relay text alone with RTVIBlueprint(voice=False)"
            )
        client.update_mic(self._mic.source)
        client.enable_mic(True)
        client.update_speaker(CallbackSink(self._play, self._drop))
        # The sink's `on_drop` follows only when `_play()` has returned, which may be waiting for the page.
        client.on(RTVIEvent.BOT_INTERRUPTED, lambda _: self._release())
        self._client = client

    def end(self) -> None:
        """Stop waiting for the page, because the session ends: the bot's further audio is discarded."""
        with self.changed:
            self._is_over = True
            self.changed.notify_all()

    def _play(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send audio to the page; wait while it is 1 s ahead. Called on a thread that writes to sinks."""
        interruptions = self._interruptions
        size = 2 * max(1, round(_MESSAGE_SECONDS * sample_rate_hz))
        for begin in range(0, len(pcm), size):
            self._play_part(pcm[begin : begin + size], sample_rate_hz, interruptions)

    def _play_part(self, pcm: bytes, sample_rate_hz: int, interruptions: int) -> None:
        with self.changed:
            discard_at: float | None = None
            while not self._is_over:
                outbox, timeout = self._outbox, None
                if self._interruptions != interruptions or (outbox and outbox.seconds_ahead < _MAX_AHEAD):
                    break
                if outbox is None:
                    if discard_at is None:
                        discard_at = self._discard_at(_seconds_of(pcm, sample_rate_hz))
                    timeout = discard_at - monotonic()
                    if timeout <= 0:
                        break
                self.changed.wait(timeout)
            if self._outbox is not None and not self._is_over:
                self._outbox.put_audio(pcm, sample_rate_hz)
                self.changed.notify_all()

    def _discard_at(self, seconds: float) -> float:
        """Return the monotonic time at which the next `seconds` of audio count as heard, without a page."""
        now = monotonic()
        if self._unheard_until is None:
            self._unheard_until = now + self._hold
        else:
            # A thread that wakes late must not stretch the bot's speech.
            self._unheard_until = max(self._unheard_until, now - _MESSAGE_SECONDS) + seconds
        return self._unheard_until

    def _drop(self) -> None:
        with self.changed:
            if self._outbox is not None:
                self._outbox.clear_audio()
                self.changed.notify_all()

    def _release(self) -> None:
        """Let audio that waits for the page pass. `_drop()` follows, and clears it."""
        with self.changed:
            self._interruptions += 1
            self.changed.notify_all()

    # -- the page's side ----------------------------------------------------------------------------------------------

    def open(self, outbox: Outbox) -> None:
        """Give the voice to a page, and close the page that had it."""
        with self.changed:
            if self._outbox is not None:
                self._outbox.close_code = self._outbox.close_code or TAKEN
            self._outbox = outbox
            self._unheard_until = 0.0
            self._pages += 1
            self.changed.notify_all()

    def close(self, outbox: Outbox) -> None:
        """Remove a page that has closed. If another page has the voice, that page keeps it."""
        with self.changed:
            if self._outbox is outbox:
                self._outbox = None
            self._pages -= 1
            self.changed.notify_all()

    def push(self, outbox: Outbox, pcm: bytes) -> None:
        """Send audio of a page's microphone to the bot, if the page has the voice and the bot is ready."""
        client = self._client
        # Audio from before the bot is ready would delay the first words.
        if client is not None and client.state is TransportState.READY:
            with self._pushing:
                if self._outbox is outbox:
                    self._mic.push(pcm)

    def join(self, timeout: float) -> None:
        """Wait until all pages have closed, at most `timeout` seconds."""
        with self.changed:
            self.changed.wait_for(lambda: not self._pages, timeout)


def _seconds_of(pcm: bytes, sample_rate_hz: int) -> float:
    return len(pcm) / (2 * sample_rate_hz)
