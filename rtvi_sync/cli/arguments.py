"""The types of the commands' arguments."""

from __future__ import annotations

import argparse
import math

from rtvi_sync import InvalidTransportParamsError
from rtvi_sync.protocol.validation import OWN_HEADERS, headers_fault
from rtvi_sync.session.connect_request import BotURL


def url(text: str) -> str:
    """Return an argument that is a bot's URL, as `RTVIClient.for_url()` takes it.

    Raises:
        argparse.ArgumentTypeError: The text is no URL at which a bot can be reached.
    """
    try:
        BotURL.parse(text)
    except InvalidTransportParamsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def seconds(text: str) -> float:
    """Parse an argument that is a number of seconds.

    Raises:
        argparse.ArgumentTypeError: The text is no finite number, or a negative one.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def limit(text: str) -> float:
    """Parse an argument that is a number of seconds above zero; raise as `seconds()` does."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError("nothing happens within 0 s")
    return value


def header(text: str) -> tuple[str, str]:
    """Parse an argument that is a header of an HTTP request: "NAME: VALUE".

    Raises:
        argparse.ArgumentTypeError: The text is no header.
    """
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not (colon and value) or headers_fault({name: value}, OWN_HEADERS):  # not shown: the text may hold a key
        raise argparse.ArgumentTypeError("a header looks like this: 'Authorization: Bearer ...', in ASCII")
    return name, value
