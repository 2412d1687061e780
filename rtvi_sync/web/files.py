"""The files of a page that talks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "page"
#: Names of the files.
PAGE_FILES: Final = ("rtvi-voice.js", "rtvi-voice-worklet.js")
#: Headers of a file's response. The browser revalidates each time, so an upgrade needs no new file name.
FILE_HEADERS: Final = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}


class PageFile(NamedTuple):
    """Content, ETag and media type of a file."""

    content: bytes
    etag: str
    type: str = "text/javascript; charset=utf-8"


def page_file(name: str) -> PageFile:
    """Return one of `PAGE_FILES`."""
    content = (_FOLDER / name).read_bytes()
    return PageFile(content, hashlib.sha256(content).hexdigest()[:32])
