"""Parameters of the requests to the server, and of the connect handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import attrs

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..errors import RTVIError
from ..messages import RTVIClientConfigOption
from ..net.urls import printable
from ..protocol.config import as_json
from ..protocol.record import MutableRecord, Record
from ..protocol.validation import (
    HEADERS,
    MAPPING,
    SECONDS,
    STRING,
    STRINGS,
    URL,
    check_fields,
    check_together,
    from_mapping,
    instance_of,
    list_of,
)

Seconds = float


def _names_only(value: Mapping[str, Any] | None) -> str:
    """Return a repr with the keys and without the values, because headers and request data contain credentials."""
    return "None" if value is None else "{" + ", ".join(f"{key!r}: ..." for key in value) + "}"


def _url_shown(url: str | None) -> str:
    """Return a repr without possible credentials: user, password, query and fragment."""
    return "None" if url is None else repr(printable(url) + ("?..." if "?" in url else ""))


def _dict_or_none(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else value


def _list_if_sequence(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value


@attrs.define(kw_only=True, field_transformer=check_together, eq=False, repr=False)
class Endpoints(MutableRecord):
    """Paths below `base_url`. None: there is no such endpoint, and no request is made."""

    connect: str | None = attrs.field(default="connect/", repr=_url_shown, validator=STRING.or_none)
    action: str | None = attrs.field(default="action/", repr=_url_shown, validator=STRING.or_none)
    __attrs_post_init__ = check_fields


def _endpoints(value: Endpoints | Mapping[str, Any] | None) -> Endpoints:
    if value is None:
        return Endpoints()
    return from_mapping(Endpoints, value, "endpoints") if isinstance(value, Mapping) else value


_SERVICE = instance_of("a RTVIClientConfigOption or a mapping", RTVIClientConfigOption, Mapping)


@attrs.define(kw_only=True, field_transformer=check_together, eq=False, repr=False)
class RTVIClientParams(MutableRecord):
    """Parameters of the requests to the server. May be changed at any time; each request reads them again.

    Attributes:
        base_url: URL of the developer's API, or None.
        endpoints: Paths below `base_url`.
        request_data: Fields of the JSON body of every request.
        headers: Headers of every request to `base_url`. Never sent to the WebSocket.
        config: The pipeline configuration, for bots that take one: a list of services. Their order matters.
        services: Service key to provider, for servers that choose by it.
    """

    base_url: str | None = attrs.field(default=None, repr=_url_shown, validator=URL.or_none)
    endpoints: Endpoints = attrs.field(
        factory=Endpoints,
        converter=_endpoints,
        validator=instance_of("Endpoints or a mapping", Endpoints, Mapping).or_none,
    )
    request_data: dict[str, Any] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=MAPPING.or_none
    )
    headers: dict[str, str] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=HEADERS.or_none
    )
    config: list[Any] | None = attrs.field(
        default=None, converter=_list_if_sequence, repr=False, validator=list_of(_SERVICE, "a list of services").or_none
    )
    services: dict[str, str] | None = attrs.field(default=None, converter=_dict_or_none, validator=STRINGS.or_none)
    __attrs_post_init__ = check_fields

    def config_as_json(self) -> list[Any]:
        """Return `config` as JSON. Entries may be `RTVIClientConfigOption` objects or mappings of that shape.

        Raises:
            TypeError: It is not a config. The message names the wrong place.
        """
        return as_json(self.config or [])

    def construct_url(self, endpoint: str) -> str:
        """Join `base_url` and an endpoint with exactly one slash. A query of the base is kept.

        Args:
            endpoint: "connect", "action", or a path.

        Raises:
            RTVIError: `base_url` is missing, or the endpoint is None.
        """
        STRING.check(endpoint=endpoint)
        if not self.base_url:
            raise RTVIError(
                "There is no base_url to make a URL with: set client.params.base_url to your server, "
                "such as 'https://api.example/v1'"
            )
        path = getattr(self.endpoints, endpoint) if endpoint in ("connect", "action") else endpoint
        if path is None:
            raise RTVIError(f"params.endpoints.{endpoint} is None: there is no such endpoint")
        parts = urlsplit(self.base_url)
        path, _, query = path.partition("?")
        return parts._replace(
            path=f"{parts.path.rstrip('/')}/{path.lstrip('/')}",
            query="&".join(part for part in (parts.query, query) if part),
            fragment="",
        ).geturl()


@attrs.frozen(eq=False, repr=False)
class APIRequest(Record):
    """A request that starts a bot, for `start_bot()`.

    Attributes:
        endpoint: The URL of the request.
        headers: Further headers. They override the headers in the client's parameters.
        request_data: Fields of the JSON body. They replace fields of the same names in the client's parameters.
        timeout (seconds): Limit of the request. None: the client's connect timeout.
    """

    endpoint: str = attrs.field(repr=_url_shown, validator=URL)
    headers: Mapping[str, str] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=HEADERS.or_none
    )
    request_data: Mapping[str, Any] | None = attrs.field(
        default=None, converter=_dict_or_none, repr=_names_only, validator=MAPPING.or_none
    )
    timeout: Seconds | None = attrs.field(default=None, validator=SECONDS.or_none)


class ConnectTimeout:
    """The timeout that a custom connect handler gets, as the interface defines it. Made by `RTVIClient.connect()`.

    `clear()` ends only the handler's own limit. The limit of `connect()` runs until the bot is ready, so a handler
    cannot block the call forever.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline: Deadline | None = deadline

    def clear(self) -> None:
        """End the limit: the handler's request has ended."""
        self._deadline = None

    def remaining(self) -> float | None:
        """Return the seconds left. None without a limit, or after `clear()`."""
        deadline = self._deadline
        return deadline.remaining() if deadline is not None else None


ConnectHandler: TypeAlias = Callable[[RTVIClientParams, ConnectTimeout, AbortController], Any]
