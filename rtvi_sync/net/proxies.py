"""HTTP proxies: the one for a URL, from the option or the environment, and the errors that name it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import sys
from urllib.parse import SplitResult, urlsplit

import attrs

from ..errors import InvalidTransportParamsError, RTVIError
from ..protocol.record import Record
from .advice import ProxyError, refusal
from .urls import authority, parse_url, port_of

PROXY_OPTION = "proxy= option"
# In NO_PROXY: a name, an address or a block, and a port; an address of IPv6 has a port only behind brackets.
_NO_PROXY_ENTRY = (
    r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^\[\]/:]*|[^\[\]/]*:[^\[\]/]*:[^\[\]/]*))"
    r"(?P<bits>/\d+)?(?::(?P<port>\d+))?"
)
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]{0,19})://"


@attrs.frozen(eq=False, repr=False)
class Proxy(Record):
    """An HTTP proxy.

    Attributes:
        url: Its URL, which may hold a user and password.
        origin: Where it is set, for error texts: the option, a variable, or the settings of the system.
    """

    url: SplitResult = attrs.field(repr=False)
    origin: str

    @property
    def address(self) -> tuple[str, int]:
        """The proxy's host and port."""
        return self.url.hostname or "", port_of(self.url)

    def __str__(self) -> str:
        return f"proxy {authority(*self.address)} ({self.origin})"

    @property
    def alternative(self) -> str:
        """The advice how to connect without the proxy."""
        no_proxy = "" if self.origin == PROXY_OPTION else "add the host to NO_PROXY or "
        return f"{no_proxy}pass proxy=False to reach the server directly"

    @property
    def doubt(self) -> str:
        """The advice for a refusal by the server, or by this proxy, which has forwarded the request."""
        return f"If the {self} has refused it, {self.alternative}"

    def refusal(self, what: str, status: int, phrase: str) -> str:
        """Return the text of the error for the proxy's refusal to do `what`."""
        login = f"Put user and password into its URL, http://user:password@{authority(*self.address)}, or "
        advice = (login if status == 407 else "See the proxy's log, or ") + self.alternative
        return refusal(f"the {self} refused to {what} with", status, phrase=phrase, advice=advice)


class naming:  # noqa: N801 - a clause of `with`
    """Turn the errors of a socket that is connected to `proxy` into ones that name the proxy."""

    def __init__(self, proxy: Proxy | None) -> None:
        self._proxy = proxy

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        proxy = self._proxy
        # An RTVIError is the reason of an abandoned attempt, and may be an OSError by its second base class.
        if proxy is None or not isinstance(error, OSError) or isinstance(error, (RTVIError, ProxyError)):
            return
        text = f"the {proxy} cannot be used: {error}. Check that it is running, or {proxy.alternative}"
        raise ProxyError(text) from error


def proxy_for(url: str, option: str | bool | None) -> Proxy | None:
    """Return the proxy for `url`, or None.

    Args:
        url: The URL of a server.
        option: The URL of a proxy; None: the proxy of the environment; False: no proxy.

    Raises:
        InvalidTransportParamsError: the proxy is not an HTTP proxy.
    """
    if option is False:
        return None
    proxy, origin = (option, PROXY_OPTION) if isinstance(option, str) else _proxy_of_environment(urlsplit(url))
    if not proxy:
        return None
    parts = parse_url(proxy if "://" in proxy else f"http://{proxy}", "http")
    # A password with one of /?# in it, not escaped, makes the text before that character look like a port.
    if parts is not None and "@" not in parts.path + parts.query + parts.fragment:
        return Proxy(parts, origin)
    # Only a scheme is shown, because the rest may hold a password.
    scheme = re.match(_SCHEME, proxy)
    if scheme is not None and scheme[1].lower() != "http":
        fault = f"has the scheme {scheme[1]!r}"
    else:
        fault = "is not a valid URL (in a password special characters are escaped, such as # as %23)"
    raise InvalidTransportParamsError(
        f"The proxy ({origin}) {fault}; only HTTP proxies are supported. Pass proxy='http://host:port', or "
        "proxy=False to use none."
    )


def _proxy_of_environment(url: SplitResult) -> tuple[str | None, str]:
    """Return the URL of the proxy for `url`, or None, and the setting that has it."""
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    # On these two platforms a proxy may be in the settings of the system. On others, without a variable, the look-up
    # below would find nothing and go through the environment three times.
    wanted = (f"{scheme}_proxy", "all_proxy")
    names = (*wanted, *map(str.upper, wanted))
    if sys.platform not in ("darwin", "win32") and not any(map(os.environ.get, names)):
        return None, ""
    import urllib.request  # imported on demand, because it imports all of HTTP

    proxies = urllib.request.getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    host = url.hostname or ""
    if proxy is None or needs_no_proxy(host, port_of(url), proxies.get("no", "")):
        return None, ""
    if "no" not in proxies and sys.platform in ("darwin", "win32") and urllib.request.proxy_bypass(host):
        return None, ""  # by the exceptions in the settings of the system
    variable = next((name for name, value in os.environ.items() if value == proxy and name.lower() in wanted), None)
    return proxy, f"{variable} in the environment" if variable is not None else "settings of the system"


def needs_no_proxy(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY exempts a server, by the rules of curl.

    The list is `*`, or its entries are separated by commas or blanks: a name, which also stands for all names below it,
    an address, or a block of addresses such as 127.0.0.0/8. Beyond curl's rules an entry may have a port, as in
    Python's urllib and in Go.

    Args:
        host: Name or address of the server, without brackets.
        port: The server's port.
        no_proxy: The value of the variable.
    """
    if no_proxy.strip() == "*":
        return True
    name = host.lower().removesuffix(".")
    address = _address(name)
    for entry in no_proxy.lower().replace(",", " ").split():
        found = re.fullmatch(_NO_PROXY_ENTRY, entry)
        if found is None or (found["port"] or str(port)) != str(port):
            continue
        exempt = (found["bracketed"] or found["plain"]) + (found["bits"] or "")
        if address is None:
            exempt = exempt.removesuffix(".").removeprefix(".")
            if exempt and (name == exempt or name.endswith(f".{exempt}")):
                return True
        else:
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(exempt, strict=False):
                    return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
