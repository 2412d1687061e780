"""The files of a page that talks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "page"
#: The files that a page may have.
PAGE_FILES: Final = ("rtvi-voice.js", "rtvi-voice-worklet.js")
#: Of a file's response: the browser asks each time whether it has changed, so that an upgrade needs no other name.
FILE_HEADERS: Final = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}


class PageFile(NamedTuple):
    """A file as the browser gets it. The type is that of a module script."""

    content: bytes
    etag: str
    type: str = "text/javascript; charset=utf-8"


def page_file(name: str) -> PageFile:
    """Return one of `PAGE_FILES`."""
    content = (_FOLDER / name).read_bytes()
    return PageFile(content, hashlib.sha256(content).hexdigest()[:32])
