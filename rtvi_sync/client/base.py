"""The base that the parts of the client's interface share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from ..concurrency.deadline import Deadline
from ..errors import ProtocolError
from ..messages import RTVIMessage
from ..protocol.dialects import INBOUND, decode_payload
from ..protocol.validation import WAIT, Rule
from ..session.dispatcher import Dispatcher
from ..session.params import Seconds
from .lazy_conversation import LazyConversation
from .session_manager import SessionManager

T = TypeVar("T")


class DefaultTimeout:
    """The default of `timeout=` in calls that wait for the bot: the client's `request_timeout`, since None means no
    limit.
    """

    def __repr__(self) -> str:
        return "request_timeout"


DEFAULT_TIMEOUT: Final = DefaultTimeout()
"""The client's `request_timeout`: the `timeout` of every call that waits for an answer, unless it is given another."""

Timeout: TypeAlias = Seconds | DefaultTimeout | None
"""Seconds, `DEFAULT_TIMEOUT`, or None for no limit."""

TIMEOUT: Final = Rule(
    WAIT.or_none.what,
    lambda timeout: isinstance(timeout, DefaultTimeout) or WAIT.has_type(timeout),
    lambda timeout: isinstance(timeout, DefaultTimeout) or WAIT.has_value(timeout),
    optional=True,
)


class ClientBase:
    """Base of the classes that `RTVIClient` inherits. None of them has logic."""

    _manager: SessionManager
    _dispatcher: Dispatcher
    _conversation: LazyConversation
    _request_timeout: Seconds | None

    def _deadline(self, timeout: Timeout) -> Deadline:
        TIMEOUT.check(timeout=timeout)
        return Deadline(self._request_timeout if isinstance(timeout, DefaultTimeout) else timeout)

    def _observe(self, subject: str | RTVIMessage, call: Callable[[], T]) -> T:  # noqa: ARG002 - for subclasses
        """Run `call` and return what it returns; subclasses override it to measure calls.

        Args:
            subject: the name of a call that connects, or the request of a call that waits for the bot's answer.
            call: does what the method is for; called once.
        """
        return call()

    def _ask(self, message: RTVIMessage, timeout: Timeout) -> RTVIMessage:
        deadline = self._deadline(timeout)
        return self._observe(message, lambda: self._manager.session().request(message, deadline))


def payload_of(answer: RTVIMessage) -> Any:
    """Decode the data of a bot's answer.

    Raises:
        ProtocolError: it does not have the shape of its type.
    """
    try:
        return decode_payload(INBOUND[answer.type], answer.data)
    except ProtocolError as error:
        raise ProtocolError(
            f"The bot's answer cannot be decoded: {error}. Check the code of the bot that sends it"
        ) from None
