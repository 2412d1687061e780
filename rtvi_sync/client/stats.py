"""Counters for the application's own monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..media.slot import MediaCounters
from ..transports.base import Transport, TransportStats

if TYPE_CHECKING:
    from ..media.media import Media
    from ..session.event_bus import EventBus
    from ..session.session import Session


@attrs.frozen(kw_only=True, eq=False, repr=False)
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


def stats_of(
    transport: Transport | None,
    media: Media,
    bus: EventBus,
    session: Session | None,
    reconnects: int,
) -> ClientStats:
    """Return the counters of the parts of a client.

    Args:
        transport, media, bus: of the client.
        session: the current or last one.
        reconnects: how many sessions were replaced.
    """
    carried = transport.stats() if transport is not None else TransportStats()
    return ClientStats(
        **attrs.asdict(carried),
        **attrs.asdict(media.counters),
        sessions=bus.streams.sessions,
        reconnects=reconnects,
        messages_sent=session.messages_sent if session is not None else 0,
        messages_received=session.messages_received if session is not None else 0,
        events_queued=len(bus.queue),
        event_bytes_queued=bus.queue.bytes_queued,
    )
