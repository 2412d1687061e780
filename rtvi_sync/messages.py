"""The message that both sides exchange, and the classes that an inbound message's `data` is decoded into."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from .protocol.decoding import Payload
from .protocol.session_payloads import (
    AboutBotData,
    BotCapabilities,
    BotReadyData,
    ConfigOption,
    ErrorData,
    RTVIClientConfigOption,
    ServerResponseData,
)
from .protocol.validation import STRING

if TYPE_CHECKING:
    from .protocol.program_payloads import (
        AppendToContextResultData,
        LLMFunctionCallData,
        LLMFunctionCallInProgressData,
        LLMFunctionCallStartedData,
        LLMFunctionCallStoppedData,
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
        ConfigAvailableData,
        ConfigData,
        ConfigDescription,
        LLMTokenUsageData,
        OptionDescription,
        PipecatMetricData,
        PipecatMetricsData,
        STTUsageData,
        STTUsageMetricData,
        TTFAMetricData,
        TTFATMetricData,
    )
    from .protocol.speech_payloads import (
        AudioLevelData,
        BotLLMMarkerData,
        BotLLMSearchResponseData,
        BotLLMTextData,
        BotOutputData,
        BotTTSAudioData,
        BotTTSTextData,
        LLMSearchOrigin,
        LLMSearchResult,
        SpokenProgressData,
        SystemLogData,
        TranscriptData,
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

if not TYPE_CHECKING:  # to a type checker it would mean that there is any name

    def __getattr__(name: str) -> Any:
        # To make these classes takes as long as ten sessions take to begin: they wait for the first session, or for a
        # program that names one.
        if name in __all__:
            for kind in ("speech", "program", "service"):
                module = import_module(f".protocol.{kind}_payloads", __package__)
                if hasattr(module, name):
                    return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _new_id() -> str:
    # The system's randomness, not `random`: a forked child must not repeat its parent's ids.
    return os.urandom(4).hex()


@attrs.frozen
class RTVIMessage:
    """One RTVI message.

    Attributes:
        type: the wire type, such as "client-message".
        data: plain JSON (what `json.loads` returns), or None for a message without data.
        id: relates an answer to its request. A new message gets 8 random hex digits; None: the message has no id,
            which is usual for messages of the bot. Bots refuse a message without one.
        label: "rtvi-ai"; bots silently ignore a message with another one.
    """

    type: str
    data: Any = None
    id: str | None = attrs.field(factory=_new_id)
    label: str = "rtvi-ai"

    def __attrs_post_init__(self) -> None:
        # Validators of each field would take as long as parsing a short message.
        if not (type(self.type) is type(self.label) is str and (self.id is None or type(self.id) is str)):
            STRING.check(type=self.type, label=self.label)
            STRING.or_none.check(id=self.id)

    def to_dict(self) -> dict[str, Any]:
        """Returns the message as JSON would hold it, without an `id` or `data` that is None."""
        document: dict[str, Any] = {"label": self.label, "type": self.type}
        if self.id is not None:
            document["id"] = self.id
        if self.data is not None:
            document["data"] = self.data
        return document
