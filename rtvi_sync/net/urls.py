"""URLs and headers: the form in which they are sent, and the form in which they may be shown."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ..errors import InvalidTransportParamsError
from ..protocol.validation import headers_fault

#: The scheme, host and port of a server.
Origin: TypeAlias = tuple[str, str, int]

_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_MAX_LENGTH = 65536
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_IPV4 = re.compile(r"\d+\.\d+\.\d+\.\d+")
# A host name in its ASCII form, or an IPv6 address.
_HOST = re.compile(r"[0-9a-z._-]+|[0-9a-f]*:[0-9a-f:.]+(%[0-9a-z._-]+)?")
_LETS_IN = r"/(sessions|ws-client|ws)/[^/]+"  # in a path, the part after one of these


def _all_but(escaped: str) -> str:
    return "".join(character for character in map(chr, range(0x21, 0x7F)) if character not in escaped)


# The characters that the WHATWG's URL standard leaves as they are, by part of the URL; "%", so that escapes stay.
_IN_FRAGMENT = _all_but('"<>`')
_IN_QUERY = _all_but('"#<>')
_IN_PATH = _all_but('"#<>?`{}')
_IN_LOGIN = _all_but('"#<>?`{}/;=@[\\]^|')


# -- the form that is sent --------------------------------------------------------------------------------------------


def parse_url(text: str, *schemes: str) -> SplitResult | None:
    """Return the parts of a URL of one of `schemes`, in their ASCII form; None if the URL is not valid.

    The result is the URL that httpx would make of it, without the import of httpx, which takes longer than many
    sessions take to start.
    """
    # A blank at the end, where one was pasted, would become a part of the path.
    if text != text.strip() or len(text) > _MAX_LENGTH or _CONTROL.search(text):
        return None
    try:
        parts = urlsplit(text)
        host, port = _ascii_host(parts.hostname or ""), parts.port
        if parts.scheme not in schemes or not _HOST.fullmatch(host) or port == 0:
            return None
        login, at, server = parts.netloc.rpartition("@")
        if server.partition("]")[2].partition(":")[0]:  # which Python ignores behind an IPv6 address
            return None
        server = f"[{host}]" if ":" in host else host
        if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
            server = f"{server}:{port}"
        return SplitResult(
            parts.scheme,
            f"{quote(login, _IN_LOGIN)}{at if login else ''}{server}",
            quote(_without_dots(parts.path), _IN_PATH),
            quote(parts.query, _IN_QUERY),
            quote(parts.fragment, _IN_FRAGMENT),
        )
    except ValueError:
        return None


def _ascii_host(host: str) -> str:
    """Return a host in the form of the domain name system.

    Raises:
        ValueError: the host cannot be one.
    """
    if ":" in host:
        ipaddress.IPv6Address(host)
    elif _IPV4.fullmatch(host):
        ipaddress.IPv4Address(host)
    elif not host.isascii() or host.startswith("xn--"):
        import idna  # imported on demand, because it loads large tables

        if host.isascii():
            idna.decode(host)
        else:
            return idna.encode(host).decode("ascii")
    return host


def _without_dots(path: str) -> str:
    """Resolve the segments "." and ".." of a path."""
    if "/." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if segments not in ([], [""]):
                segments.pop()
        elif segment != ".":
            segments.append(segment)
    return "/".join(segments)


def url_fault(text: str, *schemes: str) -> str:
    """Return the fault of a URL that `parse_url()` refuses, without any part of the URL, which may hold a key."""
    if text != text.strip() or not text.isprintable():
        return "it has a space or a line break at one end, or a control character in it"
    scheme, separator, _ = text.partition("://")
    allowed = " or ".join(f"{name}://" for name in schemes)
    if not separator:
        return f"it has no scheme; put {allowed} before it"
    if scheme.lower() not in schemes:
        return f"it must start with {allowed}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "its host is not valid"
    try:
        port_is_valid = parts.port != 0
    except ValueError:
        port_is_valid = False
    if not port_is_valid:
        return "its port is not a number from 1 to 65535"
    return "its host is not valid" if parts.hostname else "it names no host"


def origin(url: str) -> Origin | None:
    """Return the origin of an ``http`` or ``https`` URL, with the default port filled in; None if it is no such URL."""
    parts = parse_url(url, "http", "https")
    return (parts.scheme, parts.hostname or "", port_of(parts)) if parts else None


def port_of(url: SplitResult) -> int:
    """Return the port of a valid URL, or the default one of its scheme."""
    return url.port or _DEFAULT_PORTS[url.scheme]


def authority(host: str, port: int) -> str:
    """Return host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_of(url: SplitResult) -> str:
    """Return the host, and the port if the URL has one, without user and password."""
    return url.netloc.rpartition("@")[2]


def is_private_host(host: str) -> bool:
    """Return whether `host` is known, without a name look-up, to be this machine or a private address."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def basic_authorization(url: SplitResult) -> str | None:
    """Return the value of (Proxy-)Authorization for the user and password in a URL; None if it has none."""
    if url.username is None:
        return None
    credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return "Basic " + base64.b64encode(credentials.encode()).decode()


def check_headers(headers: Mapping[str, str], own: Collection[str] = ()) -> None:
    """Refuse headers that could inject others. The libraries would show the value, which may be secret.

    Args:
        headers: The headers, by name.
        own: The names, in lower case, that the request has already.

    Raises:
        InvalidTransportParamsError: A name or value is not valid, the name is one of `own`, or there are too many.
    """
    if fault := headers_fault(headers, own):
        raise InvalidTransportParamsError(f"The request cannot be sent: {fault}")


def merged_headers(*headers: Mapping[str, str]) -> dict[str, str]:
    """Return all headers. If several have the same name, in any case, the last one counts."""
    merged = {name.lower(): (name, value) for each in headers for name, value in each.items()}
    return dict(merged.values())


# -- the form that is shown -------------------------------------------------------------------------------------------


def printable(url: str) -> str:
    """Return `url` without its user, password, query and fragment, which may be secret; a placeholder for a non-URL.

    Two parts of Pipecat's paths are left out, too, because they let their holder in: the name of a session, as in
    ``/sessions/NAME/api/offer``, and the token in ``/ws-client/TOKEN`` and ``/ws/TOKEN``.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a number, which may be a part of a password
    except ValueError:
        return "(not a URL)"
    netloc, path = server_of(parts), parts.path
    if not netloc:
        path = path.rpartition("@")[2]  # without a valid scheme, the path has the user and password
    elif ":" in parts.netloc:  # the port may be the start of a password that has one of /?# in it
        if "@" in f"{parts.query}#{parts.fragment}".partition("=")[0]:
            return "(not a URL)"
        if re.search("[^/]@", path):  # but /@name is a path
            host, slash, path = path.rpartition("@")[2].partition("/")
            netloc, path = f"...@{host}", slash + path
    path = re.sub(_LETS_IN, r"/\1/...", path)
    shown = parts._replace(netloc=netloc, path=path, query="", fragment="").geturl()[:200]
    return "".join(c if c.isprintable() else "?" for c in shown)
