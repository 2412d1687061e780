"""The wait for a bot that is ready."""

from __future__ import annotations

from ..concurrency.deadline import Deadline
from ..errors import BotNotReadyError, RequestTimeoutError
from ..events import RTVIEvent
from ..session.dispatcher import Dispatcher
from .session_manager import SessionManager

# All of them are events with which a session begins, so that the stream goes on in the one that replaces a lost one.
# `bot_ready` is queued after the state has changed, so a stream that was opened before the change misses not both.
_STEPS = (
    RTVIEvent.TRANSPORT_STATE_CHANGED,
    RTVIEvent.BOT_READY,
    RTVIEvent.RECONNECTING,
    RTVIEvent.RECONNECT_FAILED,
)


def wait_until_ready(manager: SessionManager, dispatcher: Dispatcher, timeout: float | None) -> None:
    """Wait until messages can be exchanged with the bot. See `RTVIClient.wait_until_ready()`."""
    deadline = Deadline(timeout)
    with dispatcher.open_stream(_STEPS, None) as stream:
        ended = stream.after is not None and not stream.after.reconnecting
        while True:
            try:
                return manager.session().check_ready()
            except BotNotReadyError as error:
                if ended:
                    raise
                lack = error
            try:
                ended = stream.next_before(deadline) is None
            except RequestTimeoutError:
                raise RequestTimeoutError(
                    f"The bot was not ready within {timeout} s; the client's state is {manager.state.value}. Pass a "
                    "larger timeout, or look why there is no session: see the cause of this error, and the log"
                ) from lack
