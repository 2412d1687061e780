"""What the parts of the client's interface share."""

from __future__ import annotations

from .concurrency.deadline import Deadline
from .connect import Connector
from .dispatch import Dispatcher
from .messages import RTVIMessage
from .options import Seconds


class Default:
    """Stands for the client's own `request_timeout`, since None means: no limit."""

    def __repr__(self) -> str:
        return "request_timeout"


DEFAULT = Default()


class ClientPart:
    """Base of the classes that `RTVIClient` is made of. None of them has logic."""

    _connector: Connector
    _dispatcher: Dispatcher
    _request_timeout: Seconds | None

    def _deadline(self, timeout: Seconds | Default | None) -> Deadline:
        return Deadline(self._request_timeout if isinstance(timeout, Default) else timeout)

    def _ask(self, message: RTVIMessage, timeout: Seconds | Default | None) -> RTVIMessage:
        return self._connector.session().request(message, self._deadline(timeout))
