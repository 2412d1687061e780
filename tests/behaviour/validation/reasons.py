"""Public parameters that applications do not give, with the reason why each has no row in the tables.

A name stands for every name that starts with it: "Row" for each parameter of its constructor, "Row.method" for a
method's.
"""

from __future__ import annotations

from typing import Final

_MADE_BY_PACKAGE: Final = "the package makes it, of what it has validated or decoded"
_CALLED_BY_SESSION: Final = "the session calls it, with what it has validated or decoded"
_CALLED_BY_TRANSPORT: Final = "the transport calls it; what the wire brings is checked where it is used"
_CALLED_BY_TOOL: Final = "the tool it belongs to calls it"
_LOOKS_UP: Final = "looks something up; what is unknown is not found"

#: Constructors and functions.
CONSTRUCTORS: Final = {
    "main": "the parser of the command line checks its words",
    **dict.fromkeys(
        (
            *("ClientStats", "TransportStats", "TransportOptions", "AbortController", "AbortSignal", "ConnectTimeout"),
            *("FunctionCall", "ReconnectFailedData", "ReconnectingData", "BotStartedData", "Event", "EventStream"),
            *("HandlerError", "Track", "AudioTrack", "VideoTrack", "TrackFrames", "Tracks", "ParticipantTracks"),
            *("AudioFrame", "MediaState", "DeviceStatus", "AudioLevel", "TrackData", "Participant", "EventSignal"),
            *(
                "BotCall",
                "BotRequest",
                "BotSession",
                "HangUp",
                "Injection",
                "Measurement",
                "Percentiles",
                "ProxyConnection",
            ),
            *("Expect", "PendingTurn", "ReportedFunctionCall", "TimelineEntry", "Turn", "TurnTimings"),
            *("Report", "Row", "RowAudio", "Latencies", "TurnAudio", "TurnPlayers", "Voices", "AudioDroppedData"),
            *(
                "Scenario",
                "ScenarioResult",
                "ScenarioTurnResult",
                "ExpectationResult",
                "MetricResult",
                "ScenarioFailure",
            ),
            *("CleanFormatter", "Recording", "RecordingSession", "Mismatch", "Talk", "Instrumentation", "Timeline"),
        ),
        _MADE_BY_PACKAGE,
    ),
}
#: Methods.
METHODS: Final = {
    **{
        f"{transport}.{method}": _CALLED_BY_SESSION
        for transport in (
            *("Transport", "EvalTransport", "MemoryTransport", "SmallWebRTCTransport", "TelephonyTransport"),
            "WebSocketTransport",
        )
        for method in (
            *("check_size", "connect", "enable_cam", "enable_mic", "enable_screen_share", "initialize", "send_message"),
            *("send_screen", "send_video", "serialize", "update_cam", "update_mic", "update_speaker"),
        )
    },
    "RowAudio.of": _MADE_BY_PACKAGE,
    **dict.fromkeys(("Transport.send_audio", "Transport.send_dtmf"), "transports implement it"),
    **{
        f"MediaPort.{method}": _CALLED_BY_TRANSPORT
        for method in (
            *("enable_cam", "enable_mic", "enable_screen_share", "prepare", "receive_audio", "receive_video", "select"),
            "start",
        )
    },
    **dict.fromkeys(
        (
            *("EventStream.end", "EventStream.next_before", "EventStream.is_stale"),
            *("EventStream.push", "EventStream.has_listener"),
            *("LLMHelper.handle_message", "RTVIClientHelper.handle_message", "AudioSource.read", "AudioSink.write"),
            *("WavSource.samples", "SilenceSource.samples", "ToneSource.samples", "CallbackSource.read"),
            "PushSource.mark_sent",
            "PushSource.take",
            *("WavSink.write", "BytesSink.write", "NullSink.write", "CallbackSink.write"),
            *("ResamplingSink.write", "FrameSink.write"),
            *("AudioTrack.publish", "VideoTrack.publish", "TrackFrames.shrink"),
        ),
        _CALLED_BY_SESSION,
    ),
    **dict.fromkeys(
        (
            *("BotSession.finish", "BotSession.keep", "BotSession.receive", "CleanFormatter.format"),
            "BotSession.before_hang_up",
            *("ProxyConnection.close", "ProxyConnection.apply_plan", "ProxyConnection.transfer"),
        ),
        _CALLED_BY_TOOL,
    ),
    **{
        f"EventSignal.{method}": _LOOKS_UP
        for method in ("disconnect", "has_receivers_for", "live_receivers", "receivers_for")
    },
}
