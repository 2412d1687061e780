"""The bot's answers: replies, the patterns that choose them, the context of its model, and scripted faults."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.protocol.eval_messages import LEVELS, ReportLevel
from rtvi_sync.protocol.validation import (
    COUNT,
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

# -- replies ----------------------------------------------------------------------------------------------------------


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
    """Return whether a pattern is found in a user's text, in any case of letters."""
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
    """The bot's answer to the user: its model runs, perhaps calls a function and runs again, and the bot speaks.

        Reply("It is twelve degrees.", call=("get_weather", {"city": "Oslo"}), result={"temperature": 12}, seconds=0.4,
              filler="One moment please.")

    A string in place of a reply means `Reply(text)`.

    Attributes:
        text: Text that the model writes; "" if it runs but writes nothing; None if it doesn't run.
        after (seconds): Time until the model writes or calls.
        filler: Text that the bot speaks before the model writes, also while the function runs.
        call: Function that the model calls first: its name, or a tuple of name and arguments. `text` belongs to the run
            after it. The call is reported as bots of this version do; before RTVI 1.2, bots don't report their own
            functions.
        result: Result of the function, as JSON. None if the client runs the function; the bot then waits for the result
            until the user interrupts.
        seconds (seconds): Duration of the bot's own function.
        report_level: Level of detail of the call's report, as in `BotSession.call_function()`. From RTVI 1.2 on, this
            report alone starts the client's function: it doesn't run without the name, and gets no arguments without
            their report. On the eval route, the level that the client asked for applies instead, as with Pipecat.
        say: Spoken text in place of `text`; "" for nothing, as from a bot without a voice.
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
            raise ValueError('call needs text: the words that the model writes after the function; "" for nothing')

    @property
    def spoken(self) -> str:
        """Spoken text of the answer."""
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
    """Return replies in one of the forms of `Replies`, or any other value unchanged.

    Raises:
        TypeError, ValueError: A pattern or a reply is invalid.
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
    """Return the reply to a user's text in this run of the model, counted from 0.

    Raises:
        TypeError: A function returned something other than a string or a reply.
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


# -- the context of the language model --------------------------------------------------------------------------------


class LLMContext:
    """Messages with `role` and `content`, and the script that replaces a language model. Any thread may use it.

    Args:
        replies: Script, as `EmbeddedBot` takes it.
        on_heard: Function called with the text of each message of a user.
    """

    def __init__(self, replies: Replies, on_heard: Callable[[str], None] | None = None) -> None:
        self._replies = replies
        self._on_heard = on_heard
        self._runs = itertools.count()
        # Guards _messages. Threads of the session, its actions and the test hold it briefly.
        self._lock = new_lock()
        self._messages: list[dict[str, Any]] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """A copy of all messages, oldest first."""
        with self._lock:
            return copy.deepcopy(self._messages)

    def extend(self, messages: Iterable[dict[str, Any]]) -> None:
        """Add messages at the end."""
        messages = list(messages)
        with self._lock:
            self._messages.extend(messages)
        for message in messages:
            if self._on_heard is not None and message.get("role") == "user":
                self._on_heard(_text(message))

    def replace(self, messages: Iterable[dict[str, Any]]) -> None:
        """Replace all messages by others."""
        with self._lock:
            self._messages = list(messages)

    def add(self, role: str, content: Any) -> None:
        """Add one message."""
        self.extend([{"role": role, "content": content}])

    @property
    def said(self) -> str:
        """Last text of the user, "" if there is none."""
        return next((_text(message) for message in reversed(self.messages) if message.get("role") == "user"), "")

    def run(self, said: str) -> Reply:
        """Return the reply to the user's text, and add it as a message of the assistant."""
        reply = choose_reply(self._replies, said, next(self._runs))
        self.add("assistant", reply.text or reply.filler)
        return reply


def _text(message: dict[str, Any]) -> str:
    """Return the text of a message: its content, or the text parts of its content."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str))


# -- faults -----------------------------------------------------------------------------------------------------------

FaultKind: TypeAlias = Literal["drop", "close", "stall", "malformed", "slow", "error", "no_ready"]


@attrs.frozen
class Fault:
    """A fault of an embedded bot. For faults of the network, use `FaultProxy`.

    All but the last three happen after the reply's first spoken word (with RTVI 0.3, its first sentence), or after its
    first written word if nothing is spoken.

    Attributes:
        kind: "drop": the connection breaks without a close frame. "close": the bot closes it (code 1000). "stall": the
            rest of the reply never arrives, but the next reply does. "malformed": a message with invalid JSON precedes
            the rest. "slow": the reply takes twice its time. "error": the model reports an error instead of the reply.
            "no_ready": `client-ready` stays unanswered.
        on: Pattern to search in the user's text, in any case of letters; or the number of a question (with "no_ready",
            of a session), counted from 1 over all sessions of the bot; None for every one.
    """

    kind: FaultKind = attrs.field(validator=one_of(*get_args(FaultKind)))
    on: str | int | None = attrs.field(default=None)

    @on.validator
    def _check_on(self, _: object, on: object) -> None:
        rule = PATTERN if isinstance(on, str) else COUNT.or_none
        rule.check_one("on", on)
        if self.kind == "no_ready" and isinstance(on, str):
            raise ValueError('on must be the number of a session for "no_ready", because no question precedes it')


class FaultPlan:
    """The faults of a bot over all its sessions. Any thread may call it.

    Args:
        faults: Faults, as `EmbeddedBot` takes them.
    """

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = faults
        self._questions = itertools.count(1)
        self._sessions = itertools.count(1)

    def begin_session(self) -> bool:
        """Count a session, and return whether its bot becomes ready."""
        number = next(self._sessions)
        return not any(fault.kind == "no_ready" and fault.on in (None, number) for fault in self._faults)

    def ask(self, said: str) -> FaultKind | None:
        """Count a question, and return the fault of its reply; None for no fault."""
        number = next(self._questions)
        for fault in self._faults:
            fits = matches(fault.on, said) if isinstance(fault.on, str) else fault.on in (None, number)
            if fits and fault.kind != "no_ready":
                return fault.kind
        return None
