"""An HTML page that shows recordings or a load test: one file that needs no other file and no server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["render"]

_FOLDER: Final = Path(__file__).parent
_SCRIPTS: Final = ("page.js", "conversation.js", "load.js", "start.js")
_PARTS: Final = re.compile(r"\[\[(policy|title|style|data|script)\]\]")
# Characters that would end the data element, cannot be encoded, or change how a reader sees the file.
_ESCAPED: Final = re.compile("[<\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def render(title: str, data: Mapping[str, Any]) -> str:
    """Return the page.

    A policy in the page lets the browser run only the page's own script, and load only the audio beside it.

    Args:
        title: Title of the page.
        data: Its content, as JSON; see `data.py`. Texts appear as they are, never as markup.
    """
    script = '\n(() => {\n"use strict";\n' + "\n".join(map(_read, _SCRIPTS)) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'",
        "img-src": "data:",
        "media-src": "data: blob: file:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    parts = {
        "policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "title": html.escape(title),
        "style": _read("page.css"),
        "data": _ESCAPED.sub(_escape, json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)),
        "script": script,
    }
    return _PARTS.sub(lambda found: parts[found[1]], _read("page.html"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
