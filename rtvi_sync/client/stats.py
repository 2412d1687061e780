"""Counters for the application's own monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs

from ..media.slot import MediaCounters
from ..transports.base import Transport, TransportStats

if TYPE_CHECKING:
    from ..media.media import Media
    from ..session.event_bus import EventBus
    from ..session.reconnect import Reconnector
    from ..session.session import Session


@attrs.frozen(kw_only=True)
class ClientStats(TransportStats, MediaCounters):
    """Counters of the current or last session, and of the client, from `client.stats()`.

    Only audio and video are ever dropped, the oldest first: `audio_unsent`, `mic_dropped`, `speaker_dropped_seconds`
    and `video_dropped` count it. Messages that cannot be sent, and events that find the queue full, end the session
    with an error instead.

    Attributes:
        sessions: how many this client has begun, failed attempts included.
        reconnects: how many of them replaced a lost one automatically.
        messages_sent, messages_received: RTVI messages of the session.
        events_queued, event_bytes_queued: what waits for its handlers now.
    """

    sessions: int = 0
    reconnects: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    events_queued: int = 0
    event_bytes_queued: int = 0


class AudioAccount(NamedTuple):
    """What became of the user's audio, in seconds.

    Attributes:
        sent: what the system took from this process. 0: the transport does not count it.
        not_taken: dropped because the server read too slowly; over WebRTC because this process was too busy.
        late: what this process, or the source, did not have ready in time: replaced by silence, dropped, or delayed.
    """

    sent: float
    not_taken: float
    late: float

    def since(self, before: AudioAccount) -> AudioAccount:
        """Return the account of the time after `before`."""
        return AudioAccount(
            sent=self.sent - before.sent, not_taken=self.not_taken - before.not_taken, late=self.late - before.late
        )

    @property
    def has_losses(self) -> bool:
        """Whether a frame was lost, or was late."""
        return self.not_taken >= _FRAME or self.late >= _FRAME

    def describe(self) -> str:
        """Return sentences that say on which side audio was lost; "" if the transport does not count it."""
        found = []
        if self.not_taken >= _FRAME:
            found.append(
                f"{self.not_taken:.1f} s of audio were dropped because the server read too slowly (over WebRTC: this "
                "process was too busy)"
            )
        if self.late >= _FRAME:
            found.append(f"{self.late:.1f} s of audio were late in this process or in its source")
        if self.sent and not found:
            found.append(f"{self.sent:.1f} s of audio were sent in time, and the server took all of it")
        return "".join(f"{each}. " for each in found)


# Seconds of one frame.
_FRAME = 0.02


def account_of(carried: TransportStats, media: MediaCounters) -> AudioAccount:
    """Return what became of the user's audio in a session."""
    late = _FRAME * (media.mic_underruns + media.mic_dropped) + media.mic_delayed
    return AudioAccount(sent=carried.audio_sent, not_taken=carried.audio_unsent, late=late)


def stats_of(
    transport: Transport | None,
    media: Media,
    bus: EventBus,
    session: Session | None,
    reconnector: Reconnector | None,
) -> ClientStats:
    """Return the counters of the parts of a client; `session` is the current or last one."""
    carried = transport.stats() if transport is not None else TransportStats()
    return ClientStats(
        **attrs.asdict(carried),
        **attrs.asdict(media.counters),
        sessions=bus.streams.sessions,
        reconnects=reconnector.count if reconnector is not None else 0,
        messages_sent=session.messages_sent if session is not None else 0,
        messages_received=session.messages_received if session is not None else 0,
        events_queued=len(bus.queue),
        event_bytes_queued=bus.queue.bytes_queued,
    )
