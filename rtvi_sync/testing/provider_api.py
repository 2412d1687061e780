"""An HTTP stub of the telephone providers' REST interfaces, for bots that hang up."""

from __future__ import annotations

import re
import threading
from collections import deque
from types import TracebackType
from typing import Final, Literal
from urllib.parse import parse_qs, unquote

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.errors import RequestTimeoutError
from rtvi_sync.net.urls import authority
from rtvi_sync.protocol.telephony import ProviderName
from rtvi_sync.protocol.validation import NAME, PORT, WAIT, Rule
from rtvi_sync.testing.embedded_bot.phone import HANG_UP_REQUESTS
from rtvi_sync.testing.embedded_bot.server import BotRequest, HTTPEndpoint, HTTPResponse, NoResponseError

_ANSWERS: Final = (204, 404, "never")
_ANSWER = Rule("204, 404 or 'never'", lambda answer: isinstance(answer, (int, str)), lambda answer: answer in _ANSWERS)
_ENDED: Final = {
    "twilio": HTTPResponse(200, {"status": "completed"}),
    "telnyx": HTTPResponse(200, {"data": {"result": "ok"}}),
    "plivo": HTTPResponse(204, None),
}
_NOT_FOUND: Final = HTTPResponse(404, {"code": 20404, "message": "The requested resource was not found"})
_STOP_TIMEOUT: Final = 5.0


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path with names of its parts in braces."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))


_REQUESTS: Final = {name: (method, _pattern(path)) for name, (method, path) in HANG_UP_REQUESTS.items()}

# Each line runs in the bot's process, so the hook only redirects. Python imports it before the bot's program.
_HOOK: Final = '''\
"""Take a bot's requests to Twilio, Telnyx and Plivo to a stub. Python imports this file when it starts."""
try:
    import aiohttp, yarl
except ImportError:  # another program than the bot
    pass
else:
    _request, _stub = aiohttp.ClientSession._request, yarl.URL({url!r})
    def _redirected(self, method, url, **options):
        url = yarl.URL(url)
        if url.host in ("api.twilio.com", "api.telnyx.com", "api.plivo.com"):
            url = url.with_scheme(_stub.scheme).with_host(_stub.host).with_port(_stub.port)
        return _request(self, method, url, **options)
    aiohttp.ClientSession._request = _redirected
'''


def hook(url: str) -> str:
    """Return the text of a `sitecustomize.py` that redirects a bot's provider requests to this server.

    Args:
        url: URL of this server, `http://host:port`.
    """
    return _HOOK.format(url=url)


@attrs.frozen(kw_only=True)
class HangUp:
    """A bot's request to end a telephone call.

    Attributes:
        provider: "twilio", "telnyx" or "plivo".
        call_id: Id of the call.
        account: The bot's account with the provider, without its key; None for Telnyx, whose request has no account.
        at (seconds): Time of Python's monotonic clock at the arrival.
    """

    provider: ProviderName
    call_id: str
    account: str | None = attrs.field(repr=False)
    at: float


class ProviderAPI:
    """A loopback HTTP server that receives a bot's requests to end calls of Twilio, Telnyx and Plivo.

    A Pipecat bot hangs up by a request to the call's provider. A test has no provider: with the hook in its process,
    the bot sends the request here. `EmbeddedBot(provider_api=api)` needs no hook. Use the server as a context manager,
    or call `start()` and `stop()`.

        with ProviderAPI() as api, EmbeddedBot(provider_api=api) as bot:
            ...
            bot.wait_for_session().hang_up()
            assert api.wait_for_hang_up().provider == "twilio"

    The server does not check or keep credentials.

    Args:
        answer: Answer to every request. 204: the call is ended (Twilio and Telnyx send status 200 for this). 404: no
            such call. "never": no answer, which keeps a Pipecat bot from closing the connection.
        host: Address to listen on.
        port: Port to listen on; 0 takes any free one.

    Attributes:
        url: `http://host:port` while the server runs, otherwise "".
    """

    def __init__(self, *, answer: Literal[204, 404, "never"] = 204, host: str = "127.0.0.1", port: int = 0) -> None:
        _ANSWER.check(answer=answer)
        NAME.check(host=host)
        PORT.check(port=port)
        self._answer = answer
        self.url: str = ""
        self._host, self._port = host, port
        self._endpoint: HTTPEndpoint | None = None
        # Guards _hang_ups and _new, and wakes threads that wait for them. Threads of requests and of the test hold it
        # briefly.
        self._changed = threading.Condition()
        self._hang_ups: list[HangUp] = []
        self._new: deque[HangUp] = deque()

    def start(self) -> ProviderAPI:
        """Start listening, and return this object.

        Raises:
            OSError: The port is in use.
            RuntimeError: The server is already running.
        """
        if self._endpoint is not None:
            raise RuntimeError("The server is already running. Call stop() before start()")
        self._endpoint = HTTPEndpoint(self._host, self._port, None, self._respond)
        self.url = f"http://{authority(self._host, self._endpoint.port)}"
        return self

    def stop(self) -> None:
        """Stop listening and cut all connections, including unanswered ones. Idempotent."""
        endpoint, self._endpoint, self.url = self._endpoint, None, ""
        if endpoint is not None:
            endpoint.stop(_STOP_TIMEOUT)

    @property
    def hang_ups(self) -> list[HangUp]:
        """All requests to end a call so far, oldest first."""
        with self._changed:
            return list(self._hang_ups)

    @property
    def hook(self) -> str:
        """The text of a `sitecustomize.py` that makes the bot's process send its provider requests here.

        It redirects aiohttp's requests to api.twilio.com, api.telnyx.com and api.plivo.com. Python imports the file if
        its directory is in `PYTHONPATH` when the bot starts.

        Raises:
            RuntimeError: The server is not running, so it has no URL.
        """
        if not self.url:
            raise RuntimeError("The server has no URL before start()")
        return hook(self.url)

    def wait_for_hang_up(self, timeout: float = 30.0) -> HangUp:
        """Wait for the next request that no earlier call returned, and return it.

        Raises:
            RequestTimeoutError: No bot hung up within `timeout` seconds.
        """
        WAIT.check(timeout=timeout)
        with self._changed:
            if not self._changed.wait_for(lambda: self._new, timeout):
                raise RequestTimeoutError(f"No bot asked a provider to end a call within {timeout:g} s")
            return self._new.popleft()

    def __enter__(self) -> ProviderAPI:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _respond(self, request: BotRequest) -> HTTPResponse:
        hang_up = _hang_up_in(request)
        if hang_up is None:
            return _NOT_FOUND
        with self._changed:
            self._hang_ups.append(hang_up)
            self._new.append(hang_up)
            self._changed.notify_all()
        if self._answer == "never":
            raise NoResponseError
        return _ENDED[hang_up.provider] if self._answer == 204 else _NOT_FOUND


def _hang_up_in(request: BotRequest) -> HangUp | None:
    for name, (method, pattern) in _REQUESTS.items():
        found = pattern.fullmatch(request.path.partition("?")[0])
        if found is None or request.method != method:
            continue
        if name == "twilio" and b"completed" not in parse_qs(request.content).get(b"Status", ()):
            continue  # other requests to that path change the call
        parts = found.groupdict()
        account = parts.get("account")
        return HangUp(
            provider=name,
            call_id=unquote(parts["call_id"]),
            account=None if account is None else unquote(account),
            at=monotonic(),
        )
    return None
