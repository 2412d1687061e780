# pyright: reportUnnecessaryTypeIgnoreComment=true
"""A user's program whose options are checked, by mypy and pyright; it is not executed.

Each of both has to find the mistakes: a comment that ignores no error is an error.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from rtvi_sync import EvalTransport, ReconnectPolicy, RTVIClient, WebSocketTransport, connect
from rtvi_sync.testing import MeasuredClient

URL = "http://localhost:7860"


def by_url() -> None:
    """All that makes a client of a URL knows the options."""
    connect(URL, text_only=True, timeout=10_000, request_timeout=None)
    connect(URL, transport="eval", token="abc", mic=Path("question.wav"), speaker=lambda pcm, rate: None)
    RTVIClient.for_url(URL, connect_timeout=timedelta(seconds=5), reconnect=ReconnectPolicy.forever())
    MeasuredClient.for_url(URL, transport=WebSocketTransport(), enable_mic=False)


def by_hand() -> None:
    """Construct clients by hand; their arguments have the types of the options, too."""
    MeasuredClient({"enableMic": False})
    MeasuredClient(transport=EvalTransport(URL, skip_tts=True, token_in="header", ping_interval=None), text_only=True)
    MeasuredClient(reconnect=ReconnectPolicy.forever(max_delay=5, max_elapsed=None, retry_on=lambda error: True))


def misspelt() -> None:
    """So a name that is none of them is a mistake."""
    connect(URL, text_onyl=True)  # type: ignore[call-arg]
    RTVIClient.for_url(URL, microphone=None)  # type: ignore[call-arg]
    MeasuredClient.for_url(URL, enable_mick=False)  # type: ignore[call-arg]
    RTVIClient(text_onyl=True)  # type: ignore[call-overload]
    MeasuredClient(text_onyl=True)  # type: ignore[call-overload]
    EvalTransport(URL, ping_intervall=5)  # type: ignore[call-arg]
    ReconnectPolicy.forever(max_dealy=5)  # type: ignore[call-arg]


def mistyped() -> None:
    """And so is a value of another type."""
    connect(URL, mic=True)  # type: ignore[arg-type]
    connect(URL, timeout="10")  # type: ignore[arg-type]
    connect(URL, transport="webscoket")  # type: ignore[arg-type]
    RTVIClient.for_url(URL, events="later")  # type: ignore[arg-type]
    MeasuredClient(request_timeout="10")  # type: ignore[call-overload]
    EvalTransport(URL, token_in="cookie")  # type: ignore[arg-type]
    ReconnectPolicy.forever(max_delay="5")  # type: ignore[arg-type]
    RTVIClient.for_url(URL, custom_connect_handler=lambda *_: {})  # type: ignore[call-arg]
