"""The message that client and bot exchange, and the classes of inbound messages' `data`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .protocol.decoding import Payload
from .protocol.message import RTVIMessage
from .protocol.session_payloads import (
    AboutBotData,
    BotCapabilities,
    BotReadyData,
    ConfigData,
    ConfigOption,
    ErrorData,
    RTVIClientConfigOption,
    ServerResponseData,
)

if TYPE_CHECKING:
    from .protocol.application_payloads import (
        AppendToContextResultData,
        StorageItemStoredData,
        UICommandData,
        UIJobCompletedEnvelope,
        UIJobGroupCompletedEnvelope,
        UIJobGroupData,
        UIJobGroupStartedEnvelope,
        UIJobUpdateEnvelope,
    )
    from .protocol.service_payloads import (
        ActionDescription,
        ActionResponseData,
        ActionsAvailableData,
        AudioLevelData,
        BotLLMMarkerData,
        BotLLMSearchResponseData,
        BotTTSAudioData,
        ConfigAvailableData,
        ConfigDescription,
        LLMSearchOrigin,
        LLMSearchResult,
        OptionDescription,
        SystemLogData,
    )
    from .protocol.turn_payloads import (
        BotLLMTextData,
        BotOutputData,
        BotTTSTextData,
        LLMFunctionCallData,
        LLMFunctionCallInProgressData,
        LLMFunctionCallStartedData,
        LLMFunctionCallStoppedData,
        LLMTokenUsageData,
        PipecatMetricData,
        PipecatMetricsData,
        SpokenProgressData,
        STTUsageData,
        STTUsageMetricData,
        TranscriptData,
        TTFAMetricData,
        TTFATMetricData,
        UserInputData,
        UserLLMTextData,
        UserTranscriptionData,
    )

__all__ = [
    "RTVIMessage",
    "Payload",
    # the bot
    "AboutBotData",
    "BotCapabilities",
    "BotReadyData",
    "ErrorData",
    # speech and text
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
    # function calls
    "LLMFunctionCallData",
    "LLMFunctionCallInProgressData",
    "LLMFunctionCallStartedData",
    "LLMFunctionCallStoppedData",
    # metrics
    "LLMTokenUsageData",
    "PipecatMetricData",
    "PipecatMetricsData",
    "STTUsageData",
    "STTUsageMetricData",
    "TTFAMetricData",
    "TTFATMetricData",
    # messages of the application
    "AppendToContextResultData",
    "ServerResponseData",
    "StorageItemStoredData",
    "UICommandData",
    "UIJobCompletedEnvelope",
    "UIJobGroupCompletedEnvelope",
    "UIJobGroupData",
    "UIJobGroupStartedEnvelope",
    "UIJobUpdateEnvelope",
    # config and actions
    "ActionDescription",
    "ActionResponseData",
    "ActionsAvailableData",
    "ConfigAvailableData",
    "ConfigData",
    "ConfigDescription",
    "ConfigOption",
    "OptionDescription",
    "RTVIClientConfigOption",
]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # Making these classes takes as long as connecting ten sessions, so it waits for a listener, or for an
        # application that uses one of the names.
        if name in __all__:
            for kind in ("turn", "application", "service"):
                module = import_module(f".protocol.{kind}_payloads", __package__)
                if hasattr(module, name):
                    return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
