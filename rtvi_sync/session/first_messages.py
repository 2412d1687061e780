"""The first messages and the first audio of a session, for a conversation that is followed only later.

A bot greets at once, and an application that calls `listen()` after `connect()` is to get the greeting. A session whose
conversation is not followed forgets them soon.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..concurrency.clock import monotonic
from ..concurrency.io_thread import IOThread
from ..concurrency.logs import package_logger
from ..events import RTVIEvent
from ..media.base import AudioFrame
from ..media.tracks import AudioTrack, TrackFrames
from ..messages import BotReadyData, RTVIMessage
from ..protocol import engine as protocol
from ..protocol.states import CloseInfo

if TYPE_CHECKING:
    from .session import Session

logger: logging.Logger = package_logger(__name__)

# Seconds that they are kept, from the first one on, and the limits of what is kept.
_KEPT_SECONDS = 5.0
# Seconds of the bot's audio that are kept before its first message about itself: it may come a little later than its
# first audio, if the bot plays a recording.
_LEAD_SECONDS = 0.2
# Seconds of audio that are kept if they come at once: some bots send their greeting faster than they speak it.
_BURST_SECONDS = 30.0
_MAX_BYTES = 64 * 1024
_MAX_MESSAGES = 1000
# Seconds that the reader of the bot's audio can hold for a conversation; `shrink()` sets how many it does hold.
_READER_SECONDS = 3600.0
# The types of messages that may say something in a conversation.
SAYING = frozenset({"send-text", "send-file", "append-to-context", "action", "llm-function-call-result"})
# The events that the tracker of turns takes.
TAKEN = frozenset(event for event in RTVIEvent if event.in_turns)


class Follower(Protocol):
    """Is told of what a session sends, on the thread that sends it. Neither method blocks or raises."""

    def sent(self, message: RTVIMessage) -> None:
        """Note a message that is about to be sent."""

    def unsent(self, message: RTVIMessage) -> None:
        """Note that a message could not be sent."""


class ConversationPort(Protocol):
    """Follows what is said in the sessions of a client."""

    def follow(self, session: Session) -> None:
        """Follow a session that is about to be ready, or is."""

    def session_over(self, number: int, at: float, info: CloseInfo) -> None:
        """End the turns of a session, by its number. On the event queue, before its last event."""


Entry: TypeAlias = tuple[float, protocol.Deliver | RTVIMessage]
"""The time, in monotonic seconds, with what the engine made of a message of the bot, or with one that was sent."""


class FirstMessages:
    """The first messages of a session in both directions, and the bot's audio beside them.

    Args:
        io: its timer makes the messages be forgotten.
        track: returns the track of the bot's audio.
        bot: what the bot said about itself.
        user_is_muted: the bot does not hear the user at first.
    """

    def __init__(
        self,
        io: IOThread,
        track: Callable[[], AudioTrack | None],
        bot: BotReadyData,
        *,
        user_is_muted: bool = False,
    ) -> None:
        self.bot = bot
        self.user_is_muted = user_is_muted
        self._io = io
        self._track = track
        # Guards `_entries` and `_follower`: each message is kept, or is passed to the follower. Held by any thread for
        # a few assignments. Re-entrant, because a finalizer may send.
        self._lock = threading.RLock()
        self._entries: list[Entry] | None = []  # None: nothing is kept any more
        #: Whether `received()` is needed: most messages of a session come later, thousands a second.
        self.keeps: bool = True
        self._follower: Follower | None = None
        self._bytes = 0
        # Opened with the bot's first message, because most sessions of a load test have none. What is sent before wakes
        # no thread: a session that has lost its descriptors is to find that by its own means.
        self._audio: TrackFrames[AudioFrame] | None = None
        self._begun = False
        # Whether a message was about the bot. Until then little audio is kept: a thousand sessions would keep 160 MB.
        self._is_about_bot = False

    def received(self, effect: protocol.Deliver, at: float, size: int) -> None:
        """Keep a message of the bot, of `size` bytes, if it may be of a turn. On the thread that delivers messages."""
        if not self._begun:
            self._begin()
        if not self._is_about_bot and effect.type.startswith("bot-"):
            self._is_about_bot = True
            if (audio := self._audio) is not None:
                audio.shrink(_KEPT_SECONDS, _BURST_SECONDS)
        if effect.event not in TAKEN:
            return
        with self._lock:
            entries = self._entries
            if entries is not None:
                self._bytes += size
                entries.append((at, effect))
        if self._bytes > _MAX_BYTES or (entries is not None and len(entries) > _MAX_MESSAGES):
            self._give_up()

    def sent(self, message: RTVIMessage) -> None:
        """See `Follower.sent()`."""
        with self._lock:
            entries, follower = self._entries, self._follower
            if entries is not None and message.type in SAYING:
                self._bytes += len(repr(message.data))
                entries.append((monotonic(), message))
        if self._bytes > _MAX_BYTES:
            self._give_up()
        if follower is not None:
            follower.sent(message)

    def unsent(self, message: RTVIMessage) -> None:
        """See `Follower.unsent()`."""
        with self._lock:
            follower = self._follower
            if self._entries is not None:
                self._entries = [entry for entry in self._entries if entry[1] is not message]
        if follower is not None:
            follower.unsent(message)

    def _begin(self) -> None:
        self._begun = True
        track = self._track()
        self._audio = track.frames(buffer=_READER_SECONDS) if track is not None else None
        if self._audio is not None:
            self._audio.shrink(_LEAD_SECONDS, _BURST_SECONDS)
        self._io.call(lambda: self._io.call_later(_KEPT_SECONDS, self.forget))

    def _give_up(self) -> None:
        if self._entries is not None:
            logger.debug("The session begins with too much to be kept: turns that are followed later do not have it")
        self.forget()

    def forget(self) -> None:
        """Forget what was kept, and keep no more."""
        with self._lock:
            self._entries = None
        self.keeps = False
        audio, self._audio = self._audio, None
        if audio is not None:
            audio.close()

    def forward_to(self, follower: Follower) -> tuple[list[Entry], TrackFrames[AudioFrame] | None]:
        """Keep no more, and pass on to `follower` what is sent from now on.

        Returns:
            What was kept, oldest first, and the reader of the bot's audio; None: it was not opened.
        """
        with self._lock:
            entries, self._entries, self._follower = self._entries, None, follower
        self.keeps, self._begun = False, True
        audio, self._audio = self._audio, None
        return entries or [], audio
