"""Text streams."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A stream whose `isatty()` is true."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True
