"""The base class of the parts of the client's interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ..concurrency.deadline import Deadline
from ..errors import ProtocolError, UnsupportedFeatureError
from ..events import RTVIEvent
from ..messages import RTVIMessage
from ..protocol.dialects import INBOUND, decode_payload
from ..protocol.validation import WAIT, Rule
from ..session.event_bus import EventBus
from ..session.params import Seconds
from .life import Life

if TYPE_CHECKING:
    from ..conversation.follow import ConversationTracker

T = TypeVar("T")

TURN_EVENTS: Final = (RTVIEvent.TURN_STARTED, RTVIEvent.TURN_ENDED)


class DefaultTimeout:
    """The type of the default of `timeout=` in calls that wait for the bot. It means the client's `request_timeout`;
    None means no limit.
    """

    def __repr__(self) -> str:
        return "request_timeout"


DEFAULT_TIMEOUT: Final = DefaultTimeout()
"""The client's `request_timeout`: the default `timeout` of every call that waits for an answer."""

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

    _life: Life
    _bus: EventBus
    _request_timeout: Seconds | None

    def _deadline(self, timeout: Timeout) -> Deadline:
        TIMEOUT.check(timeout=timeout)
        return Deadline(self._request_timeout if isinstance(timeout, DefaultTimeout) else timeout)

    def _observe(self, subject: str | RTVIMessage, call: Callable[[], T]) -> T:  # noqa: ARG002 - for subclasses
        """Run `call` and return its result. Subclasses override this to measure calls.

        Args:
            subject: The name of a call that connects, or the request of a call that waits for the bot's answer.
            call: Does the work of the method. Called once.
        """
        return call()

    def _turns(self) -> ConversationTracker:
        """Return the tracker of turns, for a call that uses turns.

        Raises:
            ForkedProcessError: The session is the parent's.
            UnsupportedFeatureError: The client follows no turns.
        """
        self._bus.streams.check_process()
        conversation = self._life.conversation
        if conversation is None:
            raise UnsupportedFeatureError(
                "This client follows no turns: it was made with track_turns=False. Make it without that option for "
                "ask(), barge_in(), listen(), turns(), expect(), and the events of turns",
                feature="track_turns",
            )
        return conversation.use()

    def _use_turns(self, *events: RTVIEvent) -> None:
        """Call `_turns()` if one of `events` reports turns."""
        if any(event in TURN_EVENTS for event in events):
            self._turns()

    def _ask(self, message: RTVIMessage, timeout: Timeout) -> RTVIMessage:
        deadline = self._deadline(timeout)
        return self._observe(message, lambda: self._life.session().request(message, deadline))


def payload_of(answer: RTVIMessage) -> Any:
    """Decode the data of a bot's answer.

    Raises:
        ProtocolError: The data does not have the shape of its type.
    """
    try:
        return decode_payload(INBOUND[answer.type], answer.data)
    except ProtocolError as error:
        raise ProtocolError(
            f"The bot's answer cannot be decoded: {error}. Check the code of the bot that sends it"
        ) from None
