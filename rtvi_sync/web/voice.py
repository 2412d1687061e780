"""The audio of one session with a bot, between the client and the page that has the voice."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from ..client.client import RTVIClient
from ..concurrency.clock import monotonic
from ..events import RTVIEvent
from ..media.pcm import rms
from ..media.push_source import PushSource
from ..media.sinks import CallbackSink
from ..protocol.states import TransportState

#: Rate of the microphone's audio that pages send.
MIC_RATE_HZ: Final = 16_000
#: Closing code of a page whose voice another page of the user has taken.
TAKEN: Final = 4001

# Seconds: what a page may hold at most that it has not played yet, and the longest audio of one message.
_MAX_AHEAD, _MESSAGE_SECONDS = 1.0, 0.1
# Seconds of the user's audio that wait at most, and that may wait for good.
_MAX_MIC_DELAY, _MIC_DELAY = 0.3, 0.03
# Seconds in which some of what waits is needed at least once, or else is too much.
_MIC_WINDOW: Final = 1.0
# Frames of a lower RMS are a pause.
_QUIET: Final = 300.0
# Messages that wait at most for a page, beside the events.
_MAX_MESSAGES: Final = 100


class Outbox:
    """What waits to be sent to one page that talks.

    The condition `SessionVoice.changed` guards it.

    Attributes:
        close_code: with which the page is to be closed; None: it stays open.
        is_cleared: the page must empty its player.
        messages: JSON.
        has_events: there may be events that the page does not have.
    """

    def __init__(self) -> None:
        self.close_code: int | None = None
        self.is_cleared: bool = False
        self.messages: deque[str] = deque()
        self.has_events: bool = True
        self._audio: deque[tuple[bytes, int]] = deque()
        # Seconds of audio since the page was opened: put in and not cleared, taken out, and played.
        self._put = self._taken = self._played = 0.0

    @property
    def seconds_ahead(self) -> float:
        """Return the seconds of audio that the page has not played, here, on the way and in its player."""
        return self._put - self._played

    @property
    def has_audio(self) -> bool:
        """Return whether audio waits."""
        return bool(self._audio)

    @property
    def is_filled(self) -> bool:
        """Return whether anything waits."""
        return (
            self.close_code is not None or self.is_cleared or self.has_audio or bool(self.messages) or self.has_events
        )

    def put_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append audio."""
        self._audio.append((pcm, sample_rate_hz))
        self._put += _seconds_of(pcm, sample_rate_hz)

    def take_audio(self) -> tuple[bytes, int]:
        """Remove the oldest audio; return it and its rate."""
        pcm, rate = self._audio.popleft()
        self._taken += _seconds_of(pcm, rate)
        return pcm, rate

    def clear_audio(self) -> None:
        """Remove all audio, and have the page do so too."""
        self._put -= sum(_seconds_of(*audio) for audio in self._audio)
        self._audio.clear()
        self.is_cleared = True

    def set_played(self, seconds: float) -> None:
        """Note how much the page says that it has played: never less than before, nor more than it was sent."""
        self._played = max(self._played, min(seconds, self._taken))

    def put_message(self, message: str) -> bool:
        """Append a message; return False if the page does not read them."""
        if len(self.messages) >= _MAX_MESSAGES:
            return False
        self.messages.append(message)
        return True


class PageMicrophone:
    """The microphone of a page, which stays in time. One thread at a time uses it.

    What the network has held up arrives at once, and would make all that follows late. So what always waits is caught
    up in the user's pauses; what is later than 0.3 s is lost.

    Attributes:
        source: for the client.
    """

    def __init__(self) -> None:
        self.source: PushSource = PushSource(MIC_RATE_HZ, _MAX_MIC_DELAY)
        self._least_waiting = _MAX_MIC_DELAY  # in the current window
        self._window_end = 0.0
        self._excess = 0.0  # seconds to catch up

    def push(self, pcm: bytes) -> None:
        """Send audio to the bot after what waits."""
        seconds, waiting, now = _seconds_of(pcm, MIC_RATE_HZ), self.source.waiting_seconds, monotonic()
        self._least_waiting = min(self._least_waiting, waiting)
        if now >= self._window_end:
            self._excess = self._least_waiting - _MIC_DELAY
            self._least_waiting, self._window_end = _MAX_MIC_DELAY, now + _MIC_WINDOW
        if self._excess >= seconds and rms(pcm) < _QUIET:
            self._excess -= seconds
            return
        if waiting + seconds > _MAX_MIC_DELAY:  # not left to the source, whose log would be the page's to fill
            self.source.clear()
        self.source.push(pcm)


class SessionVoice:
    """The microphone and the speaker of one session's client, which are those of the page that was opened last.

    The bot's audio that no page is there for is discarded as fast as it would be played, so that a page that returns
    hears what the bot says then. Only for the first page it waits, up to `hold` seconds.

    Args:
        hold: seconds.

    Attributes:
        changed: guards the fields and the outboxes, and wakes who waits for them. Any thread holds it for a few
            instructions.
    """

    def __init__(self, hold: float) -> None:
        # Guards the fields below and the outboxes, and wakes who waits for them.
        self.changed: threading.Condition = threading.Condition(threading.Lock())
        self._mic = PageMicrophone()
        self._hold = hold
        self._client: RTVIClient | None = None
        # Held while audio is pushed: the thread of a page that loses the voice may be late.
        self._pushing = threading.Lock()
        self._outbox: Outbox | None = None  # of the page that has the voice
        self._pages = 0
        self._interruptions = 0
        self._is_over = False
        # Monotonic time up to which the bot's audio counts as heard though there is no page; None: no page was there.
        self._unheard_until: float | None = None

    # -- the client's side --------------------------------------------------------------------------------------------

    def equip(self, client: RTVIClient) -> None:
        """Give a client, which is not connected yet, the microphone and the speaker of the page.

        Raises:
            TypeError: the client is for text only.
        """
        if client._life.is_text_only:
            raise TypeError(
                "make_client returned a client with text_only=True, which has no voice. Leave the option out, or leave "
                "out voice=True"
            )
        client.update_mic(self._mic.source)
        client.enable_mic(True)
        client.update_speaker(CallbackSink(self._play, self._drop))
        # The sink learns of an interruption when the call has returned that waits for the page.
        client.on(RTVIEvent.BOT_INTERRUPTED, lambda _: self._release())
        self._client = client

    def end(self) -> None:
        """Take the bot's audio without waiting from now on, because the session ends."""
        with self.changed:
            self._is_over = True
            self.changed.notify_all()

    def _play(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Give audio to the page, once it has played enough of what it has. On a thread that writes to sinks."""
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
        """Return when the next audio, which is so long, has been heard though there is no page."""
        now = monotonic()
        if self._unheard_until is None:
            self._unheard_until = now + self._hold
        else:
            # A thread that wakes late must not make the bot's speech longer.
            self._unheard_until = max(self._unheard_until, now - _MESSAGE_SECONDS) + seconds
        return self._unheard_until

    def _drop(self) -> None:
        with self.changed:
            if self._outbox is not None:
                self._outbox.clear_audio()
                self.changed.notify_all()

    def _release(self) -> None:
        """Let the audio through that waits for the page: it is cleared in a moment."""
        with self.changed:
            self._interruptions += 1
            self.changed.notify_all()

    # -- the page's side ----------------------------------------------------------------------------------------------

    def open(self, outbox: Outbox) -> None:
        """Give the voice to a page; the page that had it is closed."""
        with self.changed:
            if self._outbox is not None:
                self._outbox.close_code = self._outbox.close_code or TAKEN
            self._outbox = outbox
            self._unheard_until = 0.0
            self._pages += 1
            self.changed.notify_all()

    def close(self, outbox: Outbox) -> None:
        """Take the voice from a page that has ended, unless another one has it by now."""
        with self.changed:
            if self._outbox is outbox:
                self._outbox = None
            self._pages -= 1
            self.changed.notify_all()

    def push(self, outbox: Outbox, pcm: bytes) -> None:
        """Send what the microphone of a page has recorded, if the page has the voice, and the bot is ready."""
        client = self._client
        # Before the bot is ready it would wait, and the first words would come late.
        if client is not None and client.state is TransportState.READY:
            with self._pushing:
                if self._outbox is outbox:
                    self._mic.push(pcm)

    def join(self, timeout: float) -> None:
        """Wait until all pages have ended."""
        with self.changed:
            self.changed.wait_for(lambda: not self._pages, timeout)


def _seconds_of(pcm: bytes, sample_rate_hz: int) -> float:
    return len(pcm) / (2 * sample_rate_hz)
