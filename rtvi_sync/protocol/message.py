"""The message that client and bot exchange."""

from __future__ import annotations

import os
from typing import Any

import attrs

from .record import Record
from .validation import STRING


def _new_id() -> str:
    # Not `random`, because a forked child must not repeat its parent's ids.
    return os.urandom(4).hex()


@attrs.frozen(eq=False, repr=False)
class RTVIMessage(Record):
    """One RTVI message.

    Attributes:
        type: The wire type, such as "client-message".
        data: Plain JSON, as `json.loads` returns it. None for a message without data.
        id: Matches an answer to its request. A new message gets 8 random hex digits. None: the message has no id, as
            usual for messages of the bot. Bots refuse a message without one.
        label: "rtvi-ai". Bots silently ignore a message with another label.
    """

    type: str
    data: Any = None
    id: str | None = attrs.field(factory=_new_id)
    label: str = "rtvi-ai"

    def __attrs_post_init__(self) -> None:
        # Not a validator for each field, because those take as long as parsing a short message.
        if not (type(self.type) is type(self.label) is str and (self.id is None or type(self.id) is str)):
            STRING.check(type=self.type, label=self.label)
            STRING.or_none.check(id=self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the message as a JSON object, without an `id` or `data` that is None."""
        document: dict[str, Any] = {"label": self.label, "type": self.type}
        if self.id is not None:
            document["id"] = self.id
        if self.data is not None:
            document["data"] = self.data
        return document
