"""Blocking, thread-based Python client for RTVI voice bots.

from rtvi_sync import RTVIClient, WebSocketTransport

with RTVIClient(transport=WebSocketTransport("ws://localhost:7860/ws-client")) as client:
    with client.events("bot-transcription", timeout=10) as events:
        client.send_text("Hello!")
        print(next(events).data.text)
"""

import importlib
import typing

from . import messages, signals
from ._version import __version__
from .client.actions import ActionArgument, RTVIActionRequestData, RTVIActionResponse
from .client.base import DEFAULT_TIMEOUT, Timeout
from .client.client import RTVIClient
from .client.connect import connect
from .client.helpers import RTVIClientHelper
from .client.llm_helper import LLMHelper
from .client.options import RTVIClientOptions, RTVIEventCallbacks
from .concurrency.abort import AbortController, AbortSignal
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
    ForkedProcessError,
    InvalidTransportParamsError,
    MessageTooLargeError,
    MissingExtraError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    SessionError,
    StartBotError,
    TransportStartError,
    UnsupportedFeatureError,
    UsageError,
    WouldDeadlockError,
)
from .events import Event, RTVIEvent
from .protocol.states import CloseInfo, TransportState
from .session.connect_request import BotStartedData
from .session.dispatcher import HandlerError
from .session.event_stream import EventStream
from .session.function_calls import FunctionCall
from .session.params import APIRequest, ConnectTimeout, Endpoints, RTVIClientParams
from .session.reconnect_policy import ReconnectPolicy, is_transient
from .transports.base import Transport, TransportOptions, TransportStats
from .transports.memory import MemoryTransport
from .transports.websocket import WebSocketTransport

if typing.TYPE_CHECKING:
    from .client.stats import ClientStats
    from .messages import *  # noqa: F403 - the payload classes; their list is `messages.__all__`
    from .session.reconnect import ReconnectFailedData, ReconnectingData
    from .transports.eval import EvalTransport

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
    "ForkedProcessError",
    "InvalidTransportParamsError",
    "MessageTooLargeError",
    "MissingExtraError",
    "ProtocolError",
    "RTVIError",
    "RequestRejectedError",
    "RequestTimeoutError",
    "SessionError",
    "StartBotError",
    "TransportStartError",
    "UnsupportedFeatureError",
    "UsageError",
    "WouldDeadlockError",
    # messages
    *messages.__all__,
    "__version__",
]

# Names that few applications need are imported on first use.
_LATER = {
    "ClientStats": "client.stats",
    "ReconnectFailedData": "session.reconnect",
    "ReconnectingData": "session.reconnect",
    "EvalTransport": "transports.eval",
}

if not typing.TYPE_CHECKING:  # hidden, because a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        module = _LATER.get(name, "messages" if name in messages.__all__ else None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(f".{module}", __name__), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
