"""What arguments of commands may be."""

from __future__ import annotations

import argparse
import math
from urllib.parse import urlsplit


def url(text: str) -> str:
    """The type of an argument that is a URL.

    Raises:
        argparse.ArgumentTypeError: no bot can be there.
    """
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname
    except ValueError:
        fits = None
    if not fits:  # the text is not repeated: it may hold a key
        raise argparse.ArgumentTypeError("a URL is needed that begins with http://, https://, ws:// or wss://")
    return parts.geturl()


def seconds(text: str) -> float:
    """The type of an argument that is a number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def limit(text: str) -> float:
    """The type of an argument that is a number of seconds above zero. Raises as `seconds()`."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("nothing is ready within 0 s")
    return value


def header(text: str) -> tuple[str, str]:
    """The type of an argument that is a header of an HTTP request: "NAME: VALUE".

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not (name and colon and value and text.isprintable()):  # the text is not repeated: it may hold a key
        raise argparse.ArgumentTypeError("a header looks like this: 'Authorization: Bearer ...'")
    return name, value
