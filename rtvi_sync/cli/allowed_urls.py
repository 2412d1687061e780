"""The URLs that a coding agent may connect to: this machine, or the prefixes that the user allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, unquote

import attrs

from rtvi_sync import InvalidTransportParamsError
from rtvi_sync.net.urls import parse_url, port_of, printable, url_fault

_SCHEMES: Final = ("http", "https", "ws", "wss")
# A WebSocket has the port and the security of the HTTP server behind it.
_SERVERS: Final = {"ws": "http", "wss": "https"}


@attrs.frozen
class AllowedURLs:
    """The URLs of the bots that may be reached.

    Attributes:
        prefixes: Allowed URL prefixes, compared by whole segments of the path; empty to allow this machine only.
    """

    prefixes: Sequence[SplitResult] = ()

    @classmethod
    def of(cls, *prefixes: str) -> AllowedURLs:
        """Return the URLs with one of these prefixes.

        Raises:
            ValueError: A prefix is not a URL, or has more than scheme, host, port and path.
        """
        return cls([_prefix(text) for text in prefixes])

    def check(self, url: str) -> None:
        """Check the URL of a bot. Only the dialled URL is checked, not the addresses in the server's answer.

        Raises:
            InvalidTransportParamsError: The URL is not allowed.
        """
        parts = parse_url(url, *_SCHEMES)
        if parts is None:
            raise InvalidTransportParamsError(f"This is not the URL of a bot: {url_fault(url, *_SCHEMES)}")
        if self.prefixes:
            is_allowed = any(_begins(parts, prefix) for prefix in self.prefixes)
            allowed = " or ".join(prefix.geturl() for prefix in self.prefixes)
        else:
            is_allowed, allowed = _is_of_this_machine(parts.hostname or ""), "localhost, 127.0.0.1 and ::1"
        if not is_allowed:
            raise InvalidTransportParamsError(
                f"{printable(url)} may not be reached: this server was started for {allowed}"
            )


def _prefix(text: str) -> SplitResult:
    parts = parse_url(text, *_SCHEMES)
    if parts is None:
        raise ValueError(f"it is not a URL prefix: {url_fault(text, *_SCHEMES)}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("it has a user, a query or a fragment: scheme, host, port and path are compared")
    return parts


def _begins(url: SplitResult, prefix: SplitResult) -> bool:
    if _server(url) != _server(prefix):
        return False
    path, beginning = unquote(url.path), unquote(prefix.path).rstrip("/")
    return ".." not in path.split("/") and (path == beginning or path.startswith(f"{beginning}/") or not beginning)


def _server(url: SplitResult) -> tuple[str, str, int]:
    return _SERVERS.get(url.scheme, url.scheme), url.hostname or "", port_of(url)


def _is_of_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
