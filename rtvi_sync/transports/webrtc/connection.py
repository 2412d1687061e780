"""An open WebRTC connection with a bot: messages, signalling, keep-alive, and its one end."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

from ...concurrency.clock import wall_time
from ...concurrency.deadline import Deadline
from ...concurrency.lock import new_lock
from ...concurrency.logs import package_logger
from ...concurrency.loop_thread import LoopThread
from ...errors import DisconnectedError
from ...media import VideoFrame
from ...protocol.states import CloseInfo
from . import signalling
from .peer import Peer, PeerEvents, PeerStats

logger: logging.Logger = package_logger(__name__)

# Pipecat counts a client as gone that has pinged and is silent for 3 s.
_PING_INTERVAL = 1.0
# If the last ping is older than this many seconds, a message is sent behind a new one. After a stop of this process the
# bot would otherwise keep the message and never read it.
_PING_OVERDUE = 2.0
# A ping also goes first after this many characters: over a slow line they may take so long that the bot counts the
# client as gone, while the timer's pings wait behind them. One message of `_MAX_MESSAGE` needs 0.7 Mbit/s.
_PING_EVERY = 32_768
# A running bot sends about one RTCP packet a second. A bot that was stopped for 6 s has recovered unharmed.
SILENCE_LIMIT = 10.0
# Bytes of messages that may wait: for a bot that takes none, or in memory until the client is connected.
_MAX_WAITING = 16 * 1024 * 1024
# The largest message that a bot may send, in bytes: the size in aiortc's offer (versions before 1.16 offer less).
_MAX_MESSAGE = 262_144
# Seconds after which a closing connection is left to its loop: in all, and beyond the polite ones.
_CLOSE_TIMEOUT = 1.5
_IMPOLITE_TIMEOUT = 0.3


class WebRTCConnection:
    """A connection to one bot.

    Any thread may call its methods. It calls its callbacks on the loop's thread.

    Args:
        loop: the loop of the process; the connection is one of its users.
        make_peer: makes the connection of a library, with its events.
        on_message: takes a message of the bot.
        on_audio, on_video, wants_video: as in `PeerEvents`.
        tracks_on: returns which of microphone, camera and screen are on.
        on_closed: called once with the end of the connection, unless `close()` has ended it.
        on_renegotiate: called when the bot asks for another offer.
    """

    def __init__(
        self,
        loop: LoopThread,
        make_peer: Callable[[PeerEvents], Peer],
        *,
        on_message: Callable[[str | bytes], None],
        on_audio: Callable[[bytes, int, int], None],
        on_video: Callable[[VideoFrame], None],
        wants_video: Callable[[], bool],
        tracks_on: Callable[[], tuple[bool, ...]],
        on_closed: Callable[[CloseInfo], None],
        on_renegotiate: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_renegotiate = on_renegotiate
        self._tracks_on = tracks_on
        self._is_open = False
        self._info: CloseInfo | None = None
        # A race on these two costs one more ping, or leaves one message uncounted.
        self._pinged = 0.0  # by the clock that also counts while the machine sleeps
        self._sent_since = 0  # characters
        # Guards the change of these two from None or False. Any thread may hold it, for an assignment; re-entrant,
        # because a finalizer may end a session during one.
        self._lock = new_lock()
        self._closing = False
        # Used on the loop's thread only.
        self._held: list[str | bytes] | None = []
        self._held_bytes = 0
        self._bot_left = False
        self._cancel_timer: Callable[[], None] | None = None
        self._silent_for = 0.0
        self._status: dict[int, bool] = {}
        #: The server's name for the connection.
        self.pc_id: str | None = None
        #: The counters, a second old at most.
        self.stats: PeerStats = PeerStats()
        events = PeerEvents(
            on_text=self._receive,
            on_audio=self._until_closing(on_audio),
            on_video=self._until_closing(on_video),
            wants_video=wants_video,
            on_closed=self._lost,
        )
        #: The connection of the library.
        self.peer: Peer = make_peer(events)

    @property
    def info(self) -> CloseInfo | None:
        """The end of the connection; None while it is open."""
        return self._info

    # -- sending: any thread ------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """Start sending: the data channel is open."""
        self._is_open = True
        self._loop.call(self._tick)

    def send(self, text: str) -> None:
        """Send a message.

        Raises:
            DisconnectedError: the connection is not open, or it has ended.
        """
        self.check_open()
        if self.peer.bytes_waiting > _MAX_WAITING:
            self._end("the bot takes no messages, and too many wait. Send less, or see the bot's log")
            self.check_open()
        is_much = self._sent_since > 0 and self._sent_since + len(text) > _PING_EVERY
        if is_much or not 0 <= wall_time() - self._pinged < _PING_OVERDUE:
            self._ping()
        self._sent_since += len(text)
        self.peer.send_text(text)

    def _ping(self) -> None:
        self._pinged, self._sent_since = wall_time(), 0
        self.peer.send_text(f"ping: {round(1000 * self._pinged)}")

    def check_open(self) -> None:
        """Raise `DisconnectedError` if the connection is not open, or has ended."""
        if self._info is not None:
            raise self._info.as_error()
        if self._closing or not self._is_open:
            raise DisconnectedError("The WebRTC connection is not open; call connect() first", initiator="client")

    def tell_tracks(self) -> None:
        """Tell the bot which tracks are on, if that has changed."""
        if self._is_open and self._info is None:
            self._loop.call(self._tell_tracks)

    def _tell_tracks(self) -> None:
        for receiver, enabled in enumerate(self._tracks_on()):
            if self._status.get(receiver) is not enabled:
                self._status[receiver] = enabled
                self.peer.send_text(signalling.track_status(receiver, enabled=enabled))

    # -- receiving: on the loop's thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start passing messages on, first those that have arrived already. Any thread."""
        self._loop.call(self._start)

    def _start(self) -> None:
        held, self._held = self._held or [], None
        for text in held:
            self._receive(text)

    def _receive(self, text: str | bytes) -> None:
        """Take a message of the data channel."""
        if self._closing or self._info is not None:
            return
        size = len(text if isinstance(text, bytes) else text.encode())
        if size > _MAX_MESSAGE:
            self._end(
                f"the bot has sent a message of {size} bytes; WebRTC carries at most {_MAX_MESSAGE}. Let it send less, "
                "or in parts"
            )
            return
        kind = _signalled(text)
        if kind is None:
            if self._held is None:
                self._on_message(text)
                return
            self._held_bytes += sys.getsizeof(text)
            if self._held_bytes > _MAX_WAITING:
                self._end("the bot has sent more messages than are kept for a client that connects; see its log")
            else:
                self._held.append(text)
        elif kind == "peerLeft":
            self._bot_left = True
        elif kind == "renegotiate":
            self._on_renegotiate()

    def _until_closing(self, take: Callable[..., None]) -> Callable[..., None]:
        """Return a function that calls `take` until the connection is closed: the next session may use its receiver."""

        def take_if_wanted(*args: Any) -> None:
            if not self._closing:
                take(*args)

        return take_if_wanted

    def _lost(self, reason: str) -> None:
        """Take the end of the connection. A bot that ends it properly has announced that it leaves."""
        self._end("" if self._bot_left else reason)

    def _end(self, reason: str) -> None:
        error = DisconnectedError(reason) if reason else None
        info = CloseInfo(initiator="network" if reason else "server", error=error)
        with self._lock:
            if self._info is not None or self._closing:
                return
            self._info = info
        self._on_closed(info)

    # -- once a second: on the loop's thread --------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._closing or self._info is not None:
            return
        self._cancel_timer = self._loop.call_later(_PING_INTERVAL, self._tick)
        self._ping()
        self._tell_tracks()
        self.peer.measure(self._measured)

    def _measured(self, stats: PeerStats) -> None:
        # Counted by the ticks, not by a clock: if this process was stopped, the bot may be fine.
        is_silent = stats.packets_received == self.stats.packets_received
        self._silent_for = self._silent_for + _PING_INTERVAL if is_silent else 0.0
        self.stats = stats
        if self._silent_for >= SILENCE_LIMIT:
            self._lost(
                f"no packet has come for {SILENCE_LIMIT:.0f} s: the bot's process has died, or the network is gone, or "
                "the address of this machine has changed"
            )

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, polite: float) -> int:
        """End the connection. No callback is called after the return.

        Args:
            polite: seconds in which the queued messages may be sent.

        Returns:
            The bytes of the messages that were not sent.
        """
        with self._lock:
            first, self._closing = not self._closing, True
        if not first:
            return 0
        if self._info is not None:
            polite = 0.0  # no bot is there
        unsent = 0
        if self._cancel_timer is not None:
            self._loop.call(self._cancel_timer)
        try:
            closed = self.peer.close(polite if self._is_open else 0.0)
            if not self._loop.is_current:
                is_done = closed.wait(Deadline(max(_CLOSE_TIMEOUT, polite + _IMPOLITE_TIMEOUT)))
                unsent = closed.result() if is_done else self.peer.bytes_waiting
        except DisconnectedError:
            pass  # the loop is lost, which is how the connection has ended
        except Exception:
            logger.exception("The WebRTC library has failed to close a connection; please report it")
            unsent = self.peer.bytes_waiting
        finally:
            self._loop.release()
        if self.stats.audio_unsent:
            # Audio is dropped instead of delayed, and the application must be able to see that.
            logger.warning(
                "Audio was lost in this session: at least %.2f s were not sent because this process was too busy",
                self.stats.audio_unsent,
            )
        return unsent


def _signalled(text: str | bytes) -> str | None:
    """Return the type of a signalling message; None if `text` is none."""
    marker = "signalling" if isinstance(text, str) else b"signalling"
    if marker not in text[:64]:  # type: ignore[operator]
        return None
    document: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(text)
    return signalling.signalled(document)
