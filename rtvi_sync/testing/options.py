"""How the embedded bot behaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync.testing.actions import Action, ActionName
from rtvi_sync.testing.config import Config, OnConfig, OptionTypes, read_config
from rtvi_sync.testing.modes import NEWEST, Mode
from rtvi_sync.testing.script import Message
from rtvi_sync.testing.session import BotSession


def _as_tuple(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _as_replies(replies: Callable[[str], str] | str | Sequence[str]) -> Callable[[str], str] | tuple[str, ...]:
    return replies if callable(replies) else _as_tuple(replies)


def _as_actions(actions: Mapping[ActionName, Action] | None) -> dict[str, Action] | None:
    if actions is None:
        return None
    named = {name if isinstance(name, str) else ":".join(name): function for name, function in actions.items()}
    for name, function in named.items():
        if not all(name.partition(":")):
            raise ValueError(f"an action is named 'service:action', not {name!r}")
        if not callable(function):
            raise TypeError(f"the action {name!r} is a function, not {type(function).__name__}")
    return named


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
    version: str = attrs.field(default=NEWEST, validator=attrs.validators.instance_of(str))
    metrics: bool = False
    speech_threshold: float = 500.0
    hang_over: float = 0.6
    # Tests may hold real keys: neither the config nor the headers are shown.
    config: Config = attrs.field(factory=list, converter=read_config, repr=False)
    config_types: OptionTypes = attrs.field(factory=dict)
    on_config: OnConfig | None = None
    actions: Mapping[str, Action] | None = attrs.field(default=None, converter=_as_actions)
    action_stream: bool = True
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    quirks: bool = False

    @property
    def has_config(self) -> bool:
        """The bot has a config, if its version can; all bots of 0.3 have, maybe with nothing in it."""
        return bool(self.config or self.config_types) or Mode(self.version).generation == 0

    @property
    def has_actions(self) -> bool:
        """The bot has actions, if its version can; all bots of 0.3 have."""
        return self.actions is not None or Mode(self.version).generation == 0
