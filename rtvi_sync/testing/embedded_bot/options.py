"""Options of the embedded bot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rtvi_sync.media.pcm import RATE
from rtvi_sync.protocol.config import as_json
from rtvi_sync.protocol.validation import (
    BOOL,
    FUNCTION,
    MAPPING,
    NUMBER,
    STRING,
    STRINGS,
    WAIT,
    Rule,
    function_taking,
    instance_of,
    list_of,
    mapping_of,
)
from rtvi_sync.testing.embedded_bot.messages import NEWEST, BotVersion, Message
from rtvi_sync.testing.embedded_bot.reply import REPLIES, REPLY, AnyReply, Fault, Replies, as_replies
from rtvi_sync.testing.embedded_bot.services import Action, ActionName, Config, OnConfig, OptionTypes
from rtvi_sync.testing.embedded_bot.session import BotSession

_STRINGS = list_of(STRING, "a string or a list of them")


def _as_tuple(texts: str | Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        return (texts,)
    return tuple(texts) if _STRINGS.has_type(texts) else texts


_FAULTS = list_of(instance_of("a Fault", Fault), "a list of faults")
_THRESHOLD = Rule("a number of 0 or more, or math.inf", NUMBER.has_type, lambda threshold: threshold >= 0)
_ACTION_NAME = Rule(
    "'service:action' or ('service', 'action')",
    lambda name: isinstance(name, (str, tuple)),
    lambda name: all(isinstance(part, str) for part in name) and all(_joined(name).partition(":")),
)


def _as_actions(actions: Mapping[ActionName, Action] | None) -> dict[str, Action] | None:
    if not isinstance(actions, Mapping):
        return actions
    for name in actions:
        _ACTION_NAME.check_one("each key of actions", name)
    return {_joined(name): function for name, function in actions.items()}


def _joined(name: ActionName) -> str:
    return name if isinstance(name, str) else ":".join(name)


@attrs.define(kw_only=True, eq=False)
class BotOptions:
    """The options of `EmbeddedBot`; see there."""

    transcripts: Sequence[str] = attrs.field(default=(), converter=_as_tuple, validator=_STRINGS)
    replies: Replies = attrs.field(default=(), converter=as_replies, validator=REPLIES)
    greeting: AnyReply | None = attrs.field(default=None, validator=REPLY.or_none)
    faults: Sequence[Fault] = attrs.field(default=(), validator=_FAULTS)
    on_request: Mapping[str, Any] = attrs.field(factory=dict, validator=MAPPING)
    handler: Callable[[BotSession, Message], bool | None] | None = attrs.field(
        default=None, validator=function_taking("session", "message").or_none
    )
    echo: bool = attrs.field(default=True, validator=BOOL)
    audio_out_sample_rate_hz: int | None = attrs.field(default=None, validator=RATE.or_none)
    ready: bool = attrs.field(default=True, validator=BOOL)
    version: str = attrs.field(default=NEWEST, validator=STRING)
    metrics: bool = attrs.field(default=False, validator=BOOL)
    speech_threshold: float = attrs.field(default=500.0, validator=_THRESHOLD)
    hangover: float = attrs.field(default=0.6, validator=WAIT)
    # Tests may use real keys, so the repr hides the config and the headers.
    config: Config = attrs.field(factory=list, converter=as_json, repr=False)
    config_types: OptionTypes = attrs.field(factory=dict, validator=mapping_of(STRINGS))
    on_config: OnConfig | None = attrs.field(
        default=None, validator=function_taking("service", "option", "value").or_none
    )
    actions: Mapping[str, Action] | None = attrs.field(
        default=None, converter=_as_actions, validator=mapping_of(FUNCTION).or_none
    )
    action_stream: bool = attrs.field(default=True, validator=BOOL)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False, validator=STRINGS)
    quirks: bool = attrs.field(default=False, validator=BOOL)
    # Why the bot refuses telephone calls; "" if it accepts them.
    _refuses_calls: str = attrs.field(init=False, default="", repr=False)

    @property
    def has_config(self) -> bool:
        """True if the bot has a config and its version supports one. All bots of 0.3 do, perhaps an empty one."""
        return bool(self.config or self.config_types) or BotVersion(self.version).generation == 0

    @property
    def has_actions(self) -> bool:
        """True if the bot offers actions and its version supports them. All bots of 0.3 do."""
        return self.actions is not None or BotVersion(self.version).generation == 0
