"""The export formats of a recording, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ..media.audio_files import write_file
from ..protocol.text import encodable
from .export_chrome import chrome_trace
from .export_conversation import conversation
from .export_otlp import otlp
from .export_webvtt import webvtt
from .page import render
from .page.data import recordings_data

if TYPE_CHECKING:
    from .recording import Recording

Format: TypeAlias = Literal["html", "vtt", "otlp", "chrome", "conversation"]

FORMATS: Final = get_args(Format)

SUFFIXES: Final[dict[str, Format]] = {
    ".html": "html",
    ".vtt": "vtt",
    ".otlp.json": "otlp",
    ".trace.json": "chrome",
    ".conversation.json": "conversation",
}

_EXPORTERS: Final[dict[str, Callable[[Recording], str]]] = {
    "vtt": lambda recording: webvtt(recording.turns(), recording.path.stem),
    "otlp": lambda recording: otlp(recording, recording.turns()),
    "chrome": lambda recording: chrome_trace(recording, recording.turns(), recording.path.stem),
    "conversation": lambda recording: conversation(recording.turns()),
}


def format_of(path: Path) -> Format | None:
    """Return the export format of a file name, by its suffix; None if no format has that suffix."""
    return next((format_ for suffix, format_ in SUFFIXES.items() if path.name.endswith(suffix)), None)


def exported(recording: Recording, format_: Format, path: Path | None, *, embed_audio: bool = False) -> str:
    """Return a recording in a format.

    Args:
        recording: Recording to export.
        format_: One of `FORMATS`.
        path: Future path of the file, from which a page finds the audio; None for the recording's folder.
        embed_audio: True to put the audio into the page.
    """
    if format_ == "html":
        folder = None if path is None else path.parent
        data = recordings_data([recording], folder=folder, embed_audio=embed_audio)
        return render(recording.path.stem, data)
    return encodable(_EXPORTERS[format_](recording))


def write_words(path: Path, text: str) -> None:
    """Write a page or another format of recordings: a new file, like the recording, only this user may read.

    Raises:
        OSError: not all could be written; the error names the file.
    """
    write_file(path, text.encode(), mode=0o600)
