"""A level as something to look at. Pure."""

from __future__ import annotations

# Where the bar begins, in dBFS: quiet speech at some distance is above, a quiet room is not.
_LOWEST = -60.0


def bar(dbfs: float, width: int, encoding: str = "utf-8") -> str:
    """A bar of `width` characters, empty from -60 dBFS down and full at 0.

    Args:
        dbfs: the level.
        width: of the bar.
        encoding: of the terminal: what cannot show blocks gets signs of ASCII.
    """
    filled = max(0, min(width, round(width * (1 - dbfs / _LOWEST))))
    full, empty = _signs(encoding)
    return full * filled + empty * (width - filled)


def _signs(encoding: str) -> tuple[str, str]:
    signs = "█", "·"
    try:
        "".join(signs).encode(encoding)
    except (UnicodeError, LookupError):
        return "#", "."
    return signs
