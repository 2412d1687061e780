"""What the `data` of an inbound message holds when it is for the program around the talk: function calls, commands.

Import them from `rtvi_sync.messages`. The rules by which they are decoded are those of `Payload`.
"""

# No `from __future__ import annotations` here: the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import Payload, sent_as, variant_of

# Function calls


@attrs.frozen(kw_only=True)
class LLMFunctionCallStartedData(Payload):
    """The language model begins to call a function; its name is None where the bot withholds it."""

    function_name: str | None = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallInProgressData(Payload):
    """A function is running; name and arguments are None where the bot withholds them."""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallStoppedData(Payload):
    """A function has ended. `result` is None where the bot withholds it, and where it is empty, 0 or False."""

    tool_call_id: str
    cancelled: bool = False
    function_name: str | None = None
    result: Any = None


@attrs.frozen(kw_only=True)
class LLMFunctionCallData(Payload):
    """The bot asks the client to run a function. (The wire calls the arguments "args" here.)"""

    tool_call_id: str
    function_name: str | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict, metadata=sent_as("args", "arguments"))


# Messages of the application


@attrs.frozen(kw_only=True)
class AppendToContextResultData(Payload):
    """The answer to `append-to-context`: any JSON."""

    result: Any = None


@attrs.frozen(kw_only=True)
class StorageItemStoredData(Payload):
    """The bot has stored something: what it did ("append"), and with what (any JSON)."""

    action: str
    items: Any = None


@attrs.frozen(kw_only=True)
class UICommandData(Payload):
    """The bot wants the user interface to do something: a command of the application, with any JSON."""

    command: str
    payload: Any = None


# What protocol 1.3 called the jobs of a group.
_KINDS = {"task_update": "job_update", "task_completed": "job_completed"}


def _kind(kind: str) -> str:
    return _KINDS.get(kind, kind)


@attrs.frozen(kw_only=True)
class UIJobGroupData(Payload):
    """A step in the life of a group of jobs. A known `kind` comes as one of the subclasses.

    Bots of protocol 1.3 send the same as `ui-task`, of a task's agents; it is given here by its later names.

    Attributes:
        kind: "group_started", "job_update", "job_completed", "group_completed".
        job_id: the group; what `cancel_ui_job_group` takes.
        at: milliseconds since the epoch, by the bot's clock; 0 if not told.
    """

    kind: str = attrs.field(converter=_kind)
    job_id: str = attrs.field(metadata=sent_as("job_id", "task_id"))
    at: int = 0


@variant_of(UIJobGroupData, "kind", "group_started")
@attrs.frozen(kw_only=True)
class UIJobGroupStartedEnvelope(UIJobGroupData):
    """A group has begun: its workers, a label for people (or None), and whether the client may cancel it."""

    workers: tuple[str, ...] = attrs.field(default=(), metadata=sent_as("workers", "agents"))
    label: str | None = None
    cancellable: bool = True


@variant_of(UIJobGroupData, "kind", "job_update")
@variant_of(UIJobGroupData, "kind", "task_update")
@attrs.frozen(kw_only=True)
class UIJobUpdateEnvelope(UIJobGroupData):
    """A worker has got further; `data` is any JSON of its own."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    data: Any = None


@variant_of(UIJobGroupData, "kind", "job_completed")
@variant_of(UIJobGroupData, "kind", "task_completed")
@attrs.frozen(kw_only=True)
class UIJobCompletedEnvelope(UIJobGroupData):
    """A worker has ended: status ("completed", "cancelled", "failed", "error"), and any JSON as its response."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    status: str
    response: Any = None


@variant_of(UIJobGroupData, "kind", "group_completed")
@attrs.frozen(kw_only=True)
class UIJobGroupCompletedEnvelope(UIJobGroupData):
    """Every worker of the group has ended."""
