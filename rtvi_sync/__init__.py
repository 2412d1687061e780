"""Blocking, thread-based Python client for RTVI voice bots.

from rtvi_sync import connect

with connect("http://localhost:7860") as client:
    print(client.ask("What time is it?").bot_text)
"""

import importlib
import typing

from ._version import __version__

if typing.TYPE_CHECKING:
    from . import signals
    from .client.actions import ActionArgument, RTVIActionRequestData, RTVIActionResponse
    from .client.base import DEFAULT_TIMEOUT, Timeout
    from .client.client import RTVIClient, connect
    from .client.helpers import RTVIClientHelper
    from .client.llm_helper import LLMHelper
    from .client.options import RTVIClientOptions, RTVIEventCallbacks
    from .client.recorder import RecordingSession
    from .client.stats import ClientStats
    from .concurrency.abort import AbortController, AbortSignal
    from .conversation.ask import PendingTurn
    from .conversation.expect import Expect
    from .conversation.record import ReportedFunctionCall, TimelineEntry, TurnTimings
    from .conversation.turn import Turn
    from .errors import (
        ActionEndpointNotSetError,
        BotAlreadyStartedError,
        BotError,
        BotNotReadyError,
        ConfigUpdateError,
        ConnectError,
        ConnectionTimeoutError,
        DeviceError,
        DisconnectedError,
        ExpectationError,
        ForkedProcessError,
        InvalidTransportParamsError,
        MessageTooLargeError,
        MissingExtraError,
        ProtocolError,
        RequestRejectedError,
        RequestTimeoutError,
        RTVIError,
        ScenarioFileError,
        SessionError,
        StartBotError,
        TransportStartError,
        UnsupportedFeatureError,
        UsageError,
        WouldDeadlockError,
    )
    from .events import Event, RTVIEvent
    from .media.turn_audio import TurnAudio
    from .messages import (
        AboutBotData,
        ActionDescription,
        ActionResponseData,
        ActionsAvailableData,
        AppendToContextResultData,
        AudioLevelData,
        BotCapabilities,
        BotLLMMarkerData,
        BotLLMSearchResponseData,
        BotLLMTextData,
        BotOutputData,
        BotReadyData,
        BotTTSAudioData,
        BotTTSTextData,
        ConfigAvailableData,
        ConfigData,
        ConfigDescription,
        ConfigOption,
        ErrorData,
        LLMFunctionCallData,
        LLMFunctionCallInProgressData,
        LLMFunctionCallStartedData,
        LLMFunctionCallStoppedData,
        LLMSearchOrigin,
        LLMSearchResult,
        LLMTokenUsageData,
        OptionDescription,
        Payload,
        PipecatMetricData,
        PipecatMetricsData,
        RTVIClientConfigOption,
        RTVIMessage,
        ServerResponseData,
        SpokenProgressData,
        StorageItemStoredData,
        STTUsageData,
        STTUsageMetricData,
        SystemLogData,
        TranscriptData,
        TTFAMetricData,
        TTFATMetricData,
        UICommandData,
        UIJobCompletedEnvelope,
        UIJobGroupCompletedEnvelope,
        UIJobGroupData,
        UIJobGroupStartedEnvelope,
        UIJobUpdateEnvelope,
        UserInputData,
        UserLLMTextData,
        UserTranscriptionData,
    )
    from .protocol.states import CloseInfo, TransportState
    from .recording.recording import Recording
    from .session.connect_request import BotStartedData
    from .session.event_bus import HandlerError
    from .session.event_stream import EventStream
    from .session.function_calls import FunctionCall
    from .session.params import APIRequest, ConnectTimeout, Endpoints, RTVIClientParams
    from .session.reconnect_policy import ReconnectFailedData, ReconnectingData, ReconnectPolicy, is_transient
    from .transports.base import Transport, TransportOptions, TransportStats
    from .transports.eval import EvalTransport
    from .transports.memory import MemoryTransport
    from .transports.small_webrtc import SmallWebRTCTransport
    from .transports.telephony import TelephonyTransport
    from .transports.websocket import WebSocketTransport

__all__ = [
    "connect",
    "RTVIClient",
    "ClientStats",
    "DEFAULT_TIMEOUT",
    "Timeout",
    "RTVIClientOptions",
    "RTVIClientParams",
    "RTVIEventCallbacks",
    "Endpoints",
    "APIRequest",
    "AbortController",
    "AbortSignal",
    "ConnectTimeout",
    # actions, helpers and functions
    "ActionArgument",
    "FunctionCall",
    "LLMHelper",
    "RTVIActionRequestData",
    "RTVIActionResponse",
    "RTVIClientHelper",
    # conversations
    "Expect",
    "PendingTurn",
    "ReportedFunctionCall",
    "TimelineEntry",
    "Turn",
    "TurnAudio",
    "TurnTimings",
    # recordings
    "Recording",
    "RecordingSession",
    # reconnecting
    "ReconnectPolicy",
    "ReconnectFailedData",
    "ReconnectingData",
    "is_transient",
    # transports
    "Transport",
    "TransportOptions",
    "TransportStats",
    "TransportState",
    "CloseInfo",
    "EvalTransport",
    "MemoryTransport",
    "SmallWebRTCTransport",
    "TelephonyTransport",
    "WebSocketTransport",
    # events
    "BotStartedData",
    "Event",
    "EventStream",
    "HandlerError",
    "RTVIEvent",
    "signals",
    # errors
    "ActionEndpointNotSetError",
    "BotAlreadyStartedError",
    "BotError",
    "BotNotReadyError",
    "ConfigUpdateError",
    "ConnectError",
    "ConnectionTimeoutError",
    "DeviceError",
    "DisconnectedError",
    "ExpectationError",
    "ForkedProcessError",
    "InvalidTransportParamsError",
    "MessageTooLargeError",
    "MissingExtraError",
    "ProtocolError",
    "RTVIError",
    "RequestRejectedError",
    "RequestTimeoutError",
    "ScenarioFileError",
    "SessionError",
    "StartBotError",
    "TransportStartError",
    "UnsupportedFeatureError",
    "UsageError",
    "WouldDeadlockError",
    # messages
    "RTVIMessage",
    "Payload",
    "AboutBotData",
    "BotCapabilities",
    "BotReadyData",
    "ErrorData",
    "AudioLevelData",
    "BotLLMMarkerData",
    "BotLLMSearchResponseData",
    "BotLLMTextData",
    "BotOutputData",
    "BotTTSAudioData",
    "BotTTSTextData",
    "LLMSearchOrigin",
    "LLMSearchResult",
    "SpokenProgressData",
    "SystemLogData",
    "TranscriptData",
    "UserInputData",
    "UserLLMTextData",
    "UserTranscriptionData",
    "LLMFunctionCallData",
    "LLMFunctionCallInProgressData",
    "LLMFunctionCallStartedData",
    "LLMFunctionCallStoppedData",
    "LLMTokenUsageData",
    "PipecatMetricData",
    "PipecatMetricsData",
    "STTUsageData",
    "STTUsageMetricData",
    "TTFAMetricData",
    "TTFATMetricData",
    "AppendToContextResultData",
    "ServerResponseData",
    "StorageItemStoredData",
    "UICommandData",
    "UIJobCompletedEnvelope",
    "UIJobGroupCompletedEnvelope",
    "UIJobGroupData",
    "UIJobGroupStartedEnvelope",
    "UIJobUpdateEnvelope",
    "ActionDescription",
    "ActionResponseData",
    "ActionsAvailableData",
    "ConfigAvailableData",
    "ConfigData",
    "ConfigDescription",
    "ConfigOption",
    "OptionDescription",
    "RTVIClientConfigOption",
    "__version__",
]

# Each name is imported on first use, so that unused names take no time or memory. By module.
_NAMES = {
    "client.actions": "ActionArgument RTVIActionRequestData RTVIActionResponse",
    "conversation.ask": "PendingTurn",
    "client.base": "DEFAULT_TIMEOUT Timeout",
    "client.client": "RTVIClient connect",
    "conversation.expect": "Expect",
    "client.helpers": "RTVIClientHelper",
    "client.llm_helper": "LLMHelper",
    "client.options": "RTVIClientOptions RTVIEventCallbacks",
    "client.recorder": "RecordingSession",
    "client.stats": "ClientStats",
    "conversation.turn": "Turn",
    "concurrency.abort": "AbortController AbortSignal",
    "errors": (
        "ActionEndpointNotSetError BotAlreadyStartedError BotError BotNotReadyError ConfigUpdateError "
        "ConnectError ConnectionTimeoutError DeviceError DisconnectedError ExpectationError "
        "ForkedProcessError InvalidTransportParamsError MessageTooLargeError MissingExtraError ProtocolError "
        "RTVIError RequestRejectedError RequestTimeoutError ScenarioFileError SessionError StartBotError "
        "TransportStartError UnsupportedFeatureError UsageError WouldDeadlockError"
    ),
    "events": "Event RTVIEvent",
    "media.turn_audio": "TurnAudio",
    "protocol.states": "CloseInfo TransportState",
    "recording.recording": "Recording",
    "conversation.record": "ReportedFunctionCall TimelineEntry TurnTimings",
    "session.connect_request": "BotStartedData",
    "session.event_bus": "HandlerError",
    "session.event_stream": "EventStream",
    "session.function_calls": "FunctionCall",
    "session.params": "APIRequest ConnectTimeout Endpoints RTVIClientParams",
    "session.reconnect_policy": "ReconnectFailedData ReconnectPolicy ReconnectingData is_transient",
    "transports.base": "Transport TransportOptions TransportStats",
    "transports.eval": "EvalTransport",
    "transports.memory": "MemoryTransport",
    "transports.small_webrtc": "SmallWebRTCTransport",
    "transports.telephony": "TelephonyTransport",
    "transports.websocket": "WebSocketTransport",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not typing.TYPE_CHECKING:  # hidden, because a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        if name in ("messages", "signals"):
            return importlib.import_module(f".{name}", __name__)
        module = _MODULE_OF.get(name, "messages")  # the payload classes
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(f".{module}", __name__), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
