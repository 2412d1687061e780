"""The request that starts a bot, or whatever the caller has in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ._version import __version__
from .concurrency.cancel import AbortController, AbortSignal
from .concurrency.deadline import Deadline
from .errors import RTVIError, StartBotError
from .options import APIRequest, ConnectHandler, ConnectTimeout, RTVIClientParams
from .transports.net import Network

if TYPE_CHECKING:
    import httpx


@attrs.frozen
class BotStartedData:
    """The payload of `bot_started`: a server has started a bot.

    Attributes:
        response: what it answered, plain JSON. It may hold a token, so it is not in the repr.
    """

    response: Any = attrs.field(repr=False)


@attrs.frozen
class Bundle:
    """What a transport is to be given.

    Attributes:
        content: that.
        secure: an https endpoint answered it.
    """

    content: Any = attrs.field(repr=False)
    secure: bool = False


@attrs.frozen(kw_only=True)
class ConnectRequest:
    """Where the transport's parameters come from.

    Attributes:
        params: the client's, read when the request is made.
        given: parameters that the caller of `connect()` has already; then no request is made.
        started: what `start_bot()` has brought last. Given back, it is a server's answer still, not the caller's word.
        start: a request that starts the bot instead of the default one.
        handler: the caller's own way to make the request.
        transport_name: for servers that start more than one kind.
        network: TLS and proxy.
        http_client: the caller's own, or None.
    """

    params: Callable[[], RTVIClientParams]
    given: Any = attrs.field(default=None, repr=False)
    started: Bundle | None = None
    start: APIRequest | None = None
    handler: ConnectHandler | None = None
    transport_name: str = "custom"
    network: Network = attrs.field(factory=Network)
    http_client: httpx.Client | None = None

    @property
    def needed(self) -> bool:
        """True if a request, or the caller's handler, is to be called."""
        if self.given is not None:
            return False
        if self.start is not None or self.handler is not None:
            return True
        params = self.params()
        return bool(params.base_url) and params.endpoints.connect is not None

    def send(self, deadline: Deadline, abort: AbortController) -> Bundle:
        """Make the request and return what the transport is to be given.

        Raises:
            StartBotError: it failed.
            BaseException: the reason for which the attempt was abandoned.
        """
        if not self.needed:
            started = self.started
            return started if started is not None and self.given is started.content else Bundle(self.given)
        abort.signal.raise_if_aborted()
        params = self.params()
        if self.start is not None:
            return self._start(self.start, params, abort.signal)
        if self.handler is not None:
            return Bundle(self._call_handler(self.handler, params, deadline, abort))
        return self._post(params.construct_url("connect"), _default_body(params), params.headers or {}, abort.signal)

    def _call_handler(
        self, handler: ConnectHandler, params: RTVIClientParams, deadline: Deadline, abort: AbortController
    ) -> Any:
        timeout = ConnectTimeout(deadline)
        abort.signal.on_abort(timeout.clear)
        try:
            bundle = handler(params, timeout, abort)
        except RTVIError:
            raise
        except Exception as error:
            abort.signal.raise_if_aborted()
            raise StartBotError(f"The custom connect handler raised {type(error).__name__}: {error}") from error
        abort.signal.raise_if_aborted()
        return bundle

    def _start(self, request: APIRequest, params: RTVIClientParams, signal: AbortSignal) -> Bundle:
        # Credentials for one server are not for another.
        trusted = params.base_url is not None and _same_origin(params.base_url, request.endpoint)
        body: dict[str, Any] = {"transport": self.transport_name}
        body.update((params.request_data or {}) if trusted else {})
        body.update(request.request_data or {})
        headers = {**((params.headers or {}) if trusted else {}), **(request.headers or {})}
        return self._post(request.endpoint, body, headers, signal)

    def _post(self, url: str, body: Any, headers: Mapping[str, str], signal: AbortSignal) -> Bundle:
        from .transports.http import (  # httpx, which takes longer to import than all of this package
            origin_of,
            post_json,
        )

        secure = origin_of(url)[0] == "https"  # redirects do not leave the origin
        answer = post_json(url, body, headers=headers, network=self.network, signal=signal, client=self.http_client)
        return Bundle(answer, secure)


def _default_body(params: RTVIClientParams) -> dict[str, Any]:
    body: dict[str, Any] = {"config": params.config_as_json()}
    if params.services:
        body["services"] = params.services
    return {**body, **(params.request_data or {}), "rtvi_client_version": __version__}


def _same_origin(one: str, other: str) -> bool:
    from .transports.http import origin_of

    try:
        return origin_of(one) == origin_of(other)
    except StartBotError:  # one of them is no URL; the request will say so
        return False
