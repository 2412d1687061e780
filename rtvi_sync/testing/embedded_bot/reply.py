"""Replies of the embedded bot, and the patterns that choose them. Plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.protocol.eval_messages import LEVELS, ReportLevel
from rtvi_sync.protocol.validation import (
    FUNCTION,
    MAPPING,
    NAME,
    STRING,
    WAIT,
    Rule,
    function_taking,
    instance_of,
    list_of,
    one_of,
)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


JSON: Final = Rule("JSON data", _is_json)
PATTERN: Final = Rule("a regular expression (a str)", lambda value: isinstance(value, str), _compiles)
_CALL: Final = Rule(
    "the name of a function, or a tuple of its name and its arguments",
    lambda call: isinstance(call, (str, tuple)),
    lambda call: bool(call) if isinstance(call, str) else len(call) == 2 and NAME.has_type(call[0]),
).or_none


def matches(pattern: str, said: str) -> bool:
    """Return whether a pattern is found in what a user said, in any case of letters."""
    return re.search(pattern, said, re.IGNORECASE) is not None


def _as_call(call: Any) -> Any:
    if isinstance(call, str) and call:
        return call, {}
    if isinstance(call, tuple) and len(call) == 2:
        NAME.check_one("the function's name in call", call[0])
        MAPPING.check_one("the function's arguments in call", call[1])
        JSON.check_one("the function's arguments in call", call[1])
    return call


@attrs.frozen
class Reply:
    """What a bot does when the user has said something: its model runs, calls a function, runs again, and it speaks.

        Reply("It is twelve degrees.", call=("get_weather", {"city": "Oslo"}), result={"temperature": 12}, seconds=0.4,
              filler="One moment please.")

    A string in the place of a reply is `Reply(text)`.

    Attributes:
        text: what the model writes; "": nothing, though it runs; None: it does not run.
        after: seconds that the model takes until it writes or calls.
        filler: what the bot says meanwhile, or while the function runs, and the model has not written.
        call: a function that the model calls first, by its name, or its name and arguments. `text` is of the run after
            it. The call is reported as bots of this version do; those before RTVI 1.2 report no function of their own.
        result: what the function returns, as JSON; None: the function is the client's, and its result is waited for
            until the user interrupts.
        seconds: how long the bot's own function takes.
        report_level: how much of the call is reported, as in `BotSession.call_function()`. From RTVI 1.2 on a function
            of the client runs by this report alone: not without the name, and without the arguments with none.
            Over the eval route the level that the client has asked for holds instead, as with Pipecat.
        say: what is spoken in place of `text`; "": nothing, as by a bot without a voice.
    """

    text: str | None = attrs.field(default=None, validator=STRING.or_none)
    after: float = attrs.field(default=0.0, kw_only=True, validator=WAIT)
    filler: str = attrs.field(default="", kw_only=True, validator=STRING)
    call: str | tuple[str, Mapping[str, Any]] | None = attrs.field(
        default=None, kw_only=True, converter=_as_call, validator=_CALL
    )
    result: Any = attrs.field(default=None, kw_only=True, validator=JSON)
    seconds: float = attrs.field(default=0.0, kw_only=True, validator=WAIT)
    report_level: ReportLevel = attrs.field(default="full", kw_only=True, validator=one_of(*LEVELS))
    say: str | None = attrs.field(default=None, kw_only=True, validator=STRING.or_none)

    def __attrs_post_init__(self) -> None:
        if self.call is not None and self.text is None:
            raise ValueError('call needs text: what the model writes after the function; "" for nothing')

    @property
    def spoken(self) -> str:
        """Return what the voice says of the answer."""
        return (self.text or "") if self.say is None else self.say


AnyReply: TypeAlias = str | Reply
Replies: TypeAlias = Callable[[str], AnyReply] | Mapping[str, AnyReply] | Sequence[AnyReply]

REPLY: Final = instance_of("a string or a Reply", str, Reply)
_LIST: Final = list_of(REPLY, "a list of replies")
REPLIES: Final = Rule(
    "a function, a mapping of patterns to replies, a reply or a list of replies",
    lambda replies: FUNCTION.has_type(replies) or isinstance(replies, (str, Reply, Mapping)) or _LIST.has_type(replies),
)


def as_replies(replies: Replies | AnyReply) -> Replies:
    """Return replies in one of the forms of `Replies`, or the value as it is if it is none.

    Raises:
        TypeError, ValueError: a pattern or a reply is none.
    """
    if isinstance(replies, Mapping):
        for pattern, reply in replies.items():
            PATTERN.check_one("each key of replies", pattern)
            REPLY.check_one(f"replies[{pattern!r}]", reply)
        return dict(replies)
    if isinstance(replies, (str, Reply)):
        return (replies,)
    if isinstance(replies, Sequence) and _LIST.has_type(replies):
        _LIST.check_one("replies", replies)
        return tuple(replies)
    if FUNCTION.has_type(replies):
        function_taking("said").check(replies=replies)
    return replies


def choose_reply(replies: Replies, said: str, run: int) -> Reply:
    """Return the reply to what a user said in this run of the model, counted from 0.

    Raises:
        TypeError: a function returned neither a string nor a reply.
    """
    reply: Any = None
    if isinstance(replies, Mapping):
        reply = next((reply for pattern, reply in replies.items() if matches(pattern, said)), None)
    elif callable(replies):
        reply = replies(said)
        REPLY.check_one("what the function of replies returns", reply)
    elif replies:
        reply = replies[run % len(replies)]
    if reply is None:
        reply = f"You said: {said}"
    return Reply(reply) if isinstance(reply, str) else reply
