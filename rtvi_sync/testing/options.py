"""How the embedded bot behaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync.testing.script import Message
from rtvi_sync.testing.session import BotSession


def _as_tuple(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _as_replies(replies: Callable[[str], str] | str | Sequence[str]) -> Callable[[str], str] | tuple[str, ...]:
    return replies if callable(replies) else _as_tuple(replies)


@attrs.define(kw_only=True, eq=False)
class BotOptions:
    """The options of `EmbeddedBot`; see there."""

    transcripts: Sequence[str] = attrs.field(default=(), converter=_as_tuple)
    replies: Callable[[str], str] | Sequence[str] = attrs.field(default=(), converter=_as_replies)
    on_request: Mapping[str, Any] = attrs.field(factory=dict)
    handler: Callable[[BotSession, Message], bool | None] | None = None
    echo: bool = True
    audio_out_sample_rate_hz: int | None = None
    ready: bool = True
    version: str = "2.2.0"
    metrics: bool = False
    speech_threshold: float = 500.0
    hang_over: float = 0.6
