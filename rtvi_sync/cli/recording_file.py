"""The recording that a command writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rtvi_sync import RTVIError
from rtvi_sync.recording.recorder import AudioSegment, write_conversation


def writable_path(path: Path, option: str) -> Path:
    """Return the absolute path of a file that will be written.

    Raises:
        RTVIError: The file cannot be written. This is checked before the conversation, so that no recording is lost.
    """
    path = path.absolute()
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise RTVIError(f"Cannot write {path}: pass {option} a file in an existing directory that you may write to")
    return path


def save_recording(
    path: Path, user: Sequence[AudioSegment], bot: Sequence[AudioSegment], print_line: Callable[[str], None]
) -> None:
    """Write both voices, and print where the recording is.

    Raises:
        OSError: A file cannot be written.
    """
    if write_conversation(path, user, bot):
        print_line(f"The conversation is in {path} (left: you, right: the bot)")
