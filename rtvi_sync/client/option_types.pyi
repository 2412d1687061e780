"""The keyword arguments of all that makes a client. Written by `python -m tools.option_types`."""

from typing import TypedDict
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal
from ..media.devices.backend import AudioBackend
from ..media.kinds import CamChoice, MicChoice, SpeakerChoice
from ..session.params import ConnectHandler, RTVIClientParams, Seconds
from ..session.reconnect_policy import ReconnectPolicy
from ..transports.base import Transport
from ..net.http import HTTPClient
from .options import Milliseconds, RTVIEventCallbacks

class KeywordOptions(TypedDict, total=False):
    """The options that `RTVIClient.for_url()` and `connect()` take."""

    params: RTVIClientParams | Mapping[str, Any] | None
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None
    timeout: Milliseconds | timedelta | None
    enable_mic: bool
    enable_cam: bool | None
    enable_camera: bool | None
    connect_timeout: Seconds | timedelta | None
    request_timeout: Seconds | None
    mic: MicChoice
    speaker: SpeakerChoice
    cam: CamChoice
    text_only: bool
    echo_cancellation: bool
    audio_backend: AudioBackend | Literal['pyaudio', 'sounddevice'] | None
    http_client: HTTPClient | None
    events: Literal['thread', 'manual']
    ssl_context: ssl.SSLContext | None
    proxy: str | bool | None
    max_queued_events: int
    max_queued_bytes: int
    max_queued_audio_bytes: int
    track_turns: bool
    max_turn_audio: Seconds
    reconnect: ReconnectPolicy | None

class ConstructorOptions(KeywordOptions, total=False):
    """The options of the constructor."""

    transport: Transport | None
    custom_connect_handler: ConnectHandler | None
