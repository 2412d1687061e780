"""rtvi_sync without the extra `speed`, and where websockets has no extension module for the platform."""

from __future__ import annotations

import sys

for module in ("orjson", "websockets"):  # the latter masks sent frames
    sys.modules[module] = None  # type: ignore[assignment] # the mark of a module that cannot be imported

from .ours import Ours  # noqa: E402 - after that


class OursDefault(Ours):
    """Events through `client.on`, with the JSON of the standard library, and masks made in Python."""
