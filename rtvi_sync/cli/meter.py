"""An audio level as a bar of characters. Pure."""

from __future__ import annotations

# The level of an empty bar: quiet speech at some distance is above it, a quiet room is not.
_MIN_DBFS = -60.0


def level_bar(dbfs: float, width: int, encoding: str = "utf-8") -> str:
    """Return a bar of `width` characters, empty at -60 dBFS and below, full at 0 dBFS.

    Args:
        dbfs: the level.
        width: the number of characters.
        encoding: the terminal's; if it has no block characters, the bar is made of ASCII characters.
    """
    filled = max(0, min(width, round(width * (1 - dbfs / _MIN_DBFS))))
    full, empty = _characters(encoding)
    return full * filled + empty * (width - filled)


def _characters(encoding: str) -> tuple[str, str]:
    characters = "█", "·"
    try:
        "".join(characters).encode(encoding)
    except (UnicodeError, LookupError):
        return "#", "."
    return characters
