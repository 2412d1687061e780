"""Counters for the program's own monitoring."""

from __future__ import annotations

import attrs

from ..media.device_slots import MediaCounters
from ..transports.base import TransportStats


@attrs.frozen(kw_only=True)
class ClientStats(TransportStats, MediaCounters):
    """What `client.stats()` returns: counters of the session that is, or of the last one, and of the client.

    Nothing but audio and video is ever dropped, the oldest first: `audio_unsent`, `mic_dropped`,
    `speaker_dropped_seconds` and `video_dropped` count it. Messages that cannot be sent, and events that find the queue
    full, end the session with an error instead.

    Attributes:
        sessions: how many this client has begun, failed attempts included.
        reconnects: how many of them replaced a lost one by themselves.
        messages_sent, messages_received: RTVI messages of the session.
        events_queued, event_bytes_queued: what waits for its handlers now.
    """

    sessions: int = 0
    reconnects: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    events_queued: int = 0
    event_bytes_queued: int = 0
