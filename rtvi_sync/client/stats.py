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

    `sessions` and `reconnects` count since the client was made. The others belong to one session, and start again with
    the next, or with an attempt to get it: log them in a handler of `disconnected`.
    Only audio and video are ever dropped, the oldest first. `audio_unsent`, `mic_dropped`, `speaker_dropped_seconds`
    and `video_dropped` count them. Messages that cannot be sent, and events that find the queue full, end the session
    with an error instead.

    Attributes:
        mic_underruns: Chunks of 20 ms of silence that were sent because the source was late.
        mic_delayed: Seconds by which the source's audio was delayed by this process; only pauses over 1 s count.
        mic_max_delay: Longest delay of a chunk in seconds: how late the sending thread was.
        mic_dropped: Chunks of 20 ms that were not sent, because they were read too late, or a `PushSource` was full.
        speaker_underruns: How often the speaker had nothing to play during the bot's speech.
        speaker_dropped_seconds: Seconds of the bot's audio that the sink or speaker did not take.
        speaker_waiting: Seconds of the bot's audio that a speaker of this machine has not played yet, without the sound
            server's delay. 0.0 for a sink, and while the speaker fails or hangs.
        video_dropped: Images that were dropped because the transport was too slow.
        bot_frames_ignored: Audio frames of the bot with an unsupported sample rate or number of channels.
        bytes_sent, bytes_received: Bytes on the wire, without TLS.
        bytes_waiting: Bytes that are queued because the server reads too slowly.
        audio_sent, audio_received: Seconds of audio.
        audio_unsent: Seconds of the user's audio that were dropped because the server read too slowly.
        audio_lost: Packets of the bot's audio that the network has lost (WebRTC).
        audio_concealed: Seconds of the bot's audio that were lost or late, and replaced by an estimate (WebRTC).
        audio_jitter: Variation of the network's delay in seconds (WebRTC); None if unknown.
        round_trip: Seconds from the last ping to its pong; None if there was none.
        text_frames_ignored: Text frames that `WebSocketTransport` got, as from a bot with a JSON serializer.
        binary_frames_ignored: Binary frames that `EvalTransport` or `TelephonyTransport` got.
        sessions: Sessions of this client so far, with each failed attempt, and each transport that `connect()` tried.
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
