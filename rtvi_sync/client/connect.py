"""`connect()`: a connected client of the bot at a URL, by one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..session.reconnect_policy import ReconnectPolicy
from ..transports.base import Transport
from .client import RTVIClient
from .options import check_option_names
from .ways import TransportName

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import KeywordOptions

# In seconds. A bot that loads its models may need 20; one without RTVI would be waited for without end.
_CONNECT_TIMEOUT = 30.0


def connect(
    url: str,
    *,
    transport: TransportName | Transport = "auto",
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Unpack[KeywordOptions],
) -> RTVIClient:
    """Connect to the bot at `url`, and return the client when the bot is ready.

    The client is a context manager: leaving it disconnects. The arguments are those of `RTVIClient.for_url()`, but for
    `connect_timeout`, which is 30 s by default. None: no limit, which is also the default with a policy that repeats
    the first `connect()`, as `ReconnectPolicy.forever()` does.

    Raises:
        ConnectError: no transport reached the bot; `attempts` has what was tried.
        RTVIError: as `RTVIClient.connect()`.
        TypeError, ValueError: as `RTVIClient.for_url()`.
    """
    check_option_names("connect()", options, by_url=True)
    policy = options.get("reconnect")
    unlimited = isinstance(policy, ReconnectPolicy) and policy.first_connect
    if not unlimited and not options.keys() & {"timeout", "connect_timeout", "connectTimeout"}:
        options["connect_timeout"] = _CONNECT_TIMEOUT
    client = RTVIClient.for_url(url, transport=transport, token=token, headers=headers, **options)
    try:
        client.connect()
        return client
    except BaseException:
        client.close()
        raise
