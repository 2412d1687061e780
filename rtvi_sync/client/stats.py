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

    Only audio and video are ever dropped, the oldest first. `audio_unsent`, `mic_dropped`, `speaker_dropped_seconds`
    and `video_dropped` count them. Messages that cannot be sent, and events that find the queue full, end the session
    with an error instead.

    Attributes:
        sessions: The number of this client's sessions, including failed attempts.
        reconnects: The number of lost sessions that were replaced automatically.
        messages_sent: RTVI messages sent in the session.
        messages_received: RTVI messages received in the session.
        events_queued: The events that wait for their handlers now.
        event_bytes_queued: The size of these events, in bytes.
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
        transport: The client's transport.
        media: The client's devices.
        bus: The client's event bus.
        session: The current or last session.
        reconnects: The number of replaced sessions.
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
