"""The WAV files that a command writes: checked before the conversation, written after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rtvi_sync import RTVIError
from rtvi_sync.media.audio_files import check_wav_name
from rtvi_sync.recording.recorder import AudioSegment, write_conversation


def writable_path(path: Path, option: str) -> Path:
    """Return the absolute path of a WAV file that will be written.

    Raises:
        RTVIError: The file cannot be written. This is checked before the conversation, so that no recording is lost.
    """
    path = path.absolute()
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise RTVIError(f"Cannot write {path}: pass {option} a file in an existing directory that you may write to")
    try:
        check_wav_name(path)
    except ValueError as error:
        raise RTVIError(f"{option}: {error}") from None
    return path


def check_different(files: Mapping[str, Path | None]) -> None:
    """Check that the files of a command, by option, are different ones, before one of them is written.

    Raises:
        RTVIError: Two are the same: one would be lost.
    """
    options: dict[str, str] = {}
    for option, path in files.items():
        if path is not None and (other := options.setdefault(os.path.realpath(path), option)) != option:
            raise RTVIError(f"{other} and {option} are the same file, {path}, which would be overwritten: pass two")


def save_recording(
    path: Path, user: Sequence[AudioSegment], bot: Sequence[AudioSegment], print_line: Callable[[str], None]
) -> None:
    """Write both voices, and print where the recording is.

    Raises:
        OSError: A file cannot be written.
    """
    if write_conversation(path, user, bot):
        print_line(f"The conversation is in {path} (left: you, right: the bot)")
