"""The payloads of inbound messages for the application: results, UI commands and jobs.

Import the classes from `rtvi_sync.messages`. `Payload` has the rules by which they are decoded.
"""

# No `from __future__ import annotations`, because the decoder needs the annotations as types, not as strings.

from typing import Any

import attrs

from .decoding import Payload, sent_as, variant_of

# Messages of the application


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AppendToContextResultData(Payload):
    """The answer to `append-to-context`: any JSON."""

    result: Any = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StorageItemStoredData(Payload):
    """The bot has stored items (any JSON): the `action` is its operation ("append")."""

    action: str
    items: Any = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UICommandData(Payload):
    """A command of the bot to the user interface. The application defines its name and its payload (any JSON)."""

    command: str
    payload: Any = None


# The kinds of protocol 1.3, and their later names.
_KINDS = {"task_update": "job_update", "task_completed": "job_completed"}


def _kind(kind: str) -> str:
    return _KINDS.get(kind, kind)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UIJobGroupData(Payload):
    """A change of a group of jobs. A known `kind` is decoded into one of the subclasses.

    Bots of protocol 1.3 send it as `ui-task`, about the agents of a task. Here the fields have their later names.

    Attributes:
        kind: "group_started", "job_update", "job_completed", "group_completed".
        job_id: The id of the group, an argument of `cancel_ui_job_group`.
        at: Milliseconds since the epoch, by the bot's clock. 0 if not sent.
    """

    kind: str = attrs.field(converter=_kind)
    job_id: str = attrs.field(metadata=sent_as("job_id", "task_id"))
    at: int = 0


@variant_of(UIJobGroupData, "kind", "group_started")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UIJobGroupStartedEnvelope(UIJobGroupData):
    """A group has started: its workers, a label to show (or None), and whether the client may cancel it."""

    workers: tuple[str, ...] = attrs.field(default=(), metadata=sent_as("workers", "agents"))
    label: str | None = None
    cancellable: bool = True


@variant_of(UIJobGroupData, "kind", "job_update")
@variant_of(UIJobGroupData, "kind", "task_update")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UIJobUpdateEnvelope(UIJobGroupData):
    """A worker reports progress; `data` is any JSON."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    data: Any = None


@variant_of(UIJobGroupData, "kind", "job_completed")
@variant_of(UIJobGroupData, "kind", "task_completed")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UIJobCompletedEnvelope(UIJobGroupData):
    """A worker has ended: status ("completed", "cancelled", "failed", "error"), and any JSON as its response."""

    worker_name: str = attrs.field(metadata=sent_as("worker_name", "agent_name"))
    status: str
    response: Any = None


@variant_of(UIJobGroupData, "kind", "group_completed")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UIJobGroupCompletedEnvelope(UIJobGroupData):
    """Every worker of the group has ended."""
