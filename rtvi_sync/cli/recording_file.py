"""The recording that a command leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rtvi_sync import RTVIError
from rtvi_sync.recording.recorder import AudioSegment, write_conversation


def writable(path: Path, option: str) -> Path:
    """The absolute path of a file that is yet to be written.

    Raises:
        RTVIError: it cannot be; told beforehand, so that nobody talks for a minute and loses the recording.
    """
    path = path.absolute()
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise RTVIError(f"Cannot write {path}: give {option} a file in a directory that exists and is yours")
    return path


def keep(path: Path, user: Sequence[AudioSegment], bot: Sequence[AudioSegment], tell: Callable[[str], None]) -> None:
    """Write what both said, and tell where it is.

    Raises:
        OSError: a file cannot be written.
    """
    if write_conversation(path, user, bot):
        tell(f"The conversation is in {path} (left: you, right: the bot)")
