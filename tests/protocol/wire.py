"""Messages of every kind, as bots send them and take them: the lines of wire.jsonl.

Each line has the release of Pipecat that it belongs to, who sends it, whether it was seen on the wire of a running bot
(or else read in the sources), and the message itself. Messages without a class in Pipecat are "read", though an
application can send them by hand: their form would be the application's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from rtvi_sync.protocol.dialects import VERSIONS, Version


@attrs.frozen
class Example:
    """One line of the file; the fields are the line's."""

    pipecat: str
    sender: str
    seen: bool
    message: dict[str, Any]

    @property
    def type(self) -> str:
        """The wire type."""
        return str(self.message["type"])

    @property
    def version(self) -> Version:
        """The protocol version that this release of Pipecat announces."""
        (version,) = (
            version
            for version, (first, last) in VERSIONS.items()
            if _numbers(first) <= _numbers(self.pipecat) <= _numbers(last)
        )
        return version

    def __str__(self) -> str:
        return f"{self.pipecat}-{self.type}"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def examples(sender: str) -> list[Example]:
    """Return all messages that "bot" or "client" sends."""
    lines = Path(__file__).with_name("wire.jsonl").read_text(encoding="utf-8").splitlines()
    found = [Example(line["pipecat"], line["from"], line["seen"], line["message"]) for line in map(json.loads, lines)]
    return [example for example in found if example.sender == sender]
