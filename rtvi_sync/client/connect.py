"""`connect()`: a connected client of the bot at a URL, by one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..transports.base import Transport
from .client import RTVIClient
from .ways import TransportName

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import KeywordOptions


def connect(
    url: str,
    *,
    transport: TransportName | Transport = "auto",
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Unpack[KeywordOptions],
) -> RTVIClient:
    """Connect to the bot at `url`, and return the client when the bot is ready.

    The client is a context manager: leaving it disconnects. The arguments are those of `RTVIClient.for_url()`.

    Raises:
        ConnectError: no transport reached the bot; `attempts` has what was tried.
        RTVIError: as `RTVIClient.connect()`.
        TypeError, ValueError: as `RTVIClient.for_url()`.
    """
    client = RTVIClient.for_url(url, transport=transport, token=token, headers=headers, **options)
    try:
        client.connect()
    except BaseException:
        client.close()
        raise
    return client
