"""One call of `connect()`: the ways to the bot are tried in order, under one deadline, until a bot is ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..errors import (
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    ProtocolError,
    RTVIError,
    StartBotError,
    TransportStartError,
    fresh_copy,
)
from ..messages import BotReadyData
from ..session.attempt import ConnectAttempt
from ..session.session import Session
from .ways import Way

# The part of the time left that a silent bot gets while other ways remain, and the seconds if there is no limit.
_SHARE = 1 / 3
_SHARE_WITHOUT_LIMIT = 10.0
# By these statuses a server refuses the client, on whatever way it comes.
_REFUSED_CLIENT = (401, 403, 407, 429)


class ConnectCall:
    """One call of `connect()`.

    A silent way is left early while others remain, and gets the rest of the time if none of them leads to a bot.

    Args:
        ways: to the bot, in the order in which they are tried.
        deadline: limit of the call.
        attempt: makes the attempt on a way, with the seconds that its transport and bot may be silent, or None.
    """

    def __init__(
        self, ways: Sequence[Way], deadline: Deadline, attempt: Callable[[Way, float | None], ConnectAttempt]
    ) -> None:
        self._untried = deque(ways)
        self._left_early: deque[Way] = deque()
        self._make_attempt = attempt
        self._attempt: ConnectAttempt | None = None
        self._failures: list[tuple[str, RTVIError]] = []
        self.deadline: Deadline = deadline
        self.abandoned: bool = False
        #: The call is under way, or was.
        self.begun: bool = False
        #: Set when nothing of the call is left.
        self.over: Latch = Latch()

    @property
    def session(self) -> Session | None:
        """Return the session of the current attempt, if there is one."""
        return self._attempt.session if self._attempt is not None else None

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, also before `run()`."""
        self.abandoned = True
        if self._attempt is not None:
            self._attempt.abandon()

    def run(self, connect: Callable[[ConnectAttempt, Way], BotReadyData]) -> BotReadyData:
        """Return what the first `connect(attempt, way)` returns that reaches a bot.

        Raises:
            ConnectionTimeoutError: the deadline has passed.
            ConnectError: several ways failed.
            RTVIError: the only way failed, or the error is that of all ways.
        """
        self.begun = True
        while True:
            way = self._untried.popleft()
            attempt = self._attempt = self._make_attempt(way, self._patience())
            attempt.abandoned = self.abandoned
            try:
                return connect(attempt, way)
            except RTVIError as error:
                self._failures.append((way.transport.name, fresh_copy(error)))
                if attempt.session is None or not attempt.session.ending.is_replaced:
                    failure = self._failure(error)
                    if failure is error:
                        raise
                    raise failure from error
                if isinstance(error, ConnectionTimeoutError):
                    self._left_early.append(way)
                if not self._untried:
                    self._untried, self._left_early = self._left_early, deque()

    def is_followed(self, error: BaseException) -> bool:
        """Tell whether another attempt follows one that failed by `error`. Any thread."""
        if self.abandoned or self.deadline.expired or not _concerns_way(error):
            return False
        return bool(self._untried or self._left_early)

    def _patience(self) -> float | None:
        if not self._untried:
            return None
        remaining = self.deadline.remaining()
        return _SHARE_WITHOUT_LIMIT if remaining is None else remaining * _SHARE

    def _failure(self, error: RTVIError) -> RTVIError:
        """Return the error of the call, whose last attempt has failed by `error`."""
        if len(self._failures) == 1 or not (isinstance(error, ConnectionTimeoutError) or _concerns_way(error)):
            return error
        texts = {str(failure) for _, failure in self._failures}
        if len(texts) == 1:
            text = str(error)
        else:
            tried = " ".join(f"{name}: {str(failure).rstrip('.')}." for name, failure in self._failures)
            text = f"No bot was reached, by any transport. {tried}"
        result: ConnectError
        if isinstance(error, ConnectionTimeoutError):
            result = ConnectionTimeoutError(text, phase=error.phase, elapsed=self.deadline.elapsed())
        else:
            result = ConnectError(text, status=error.status)
        result.attempts = tuple(self._failures)
        return result


def _concerns_way(error: BaseException) -> bool:
    """Tell whether another transport may reach the bot in spite of `error`."""
    if isinstance(error, StartBotError):
        return error.status is not None and error.status not in _REFUSED_CLIENT
    if isinstance(error, ConnectionTimeoutError):
        return error.phase in ("transport", "bot-ready")
    if isinstance(error, DisconnectedError):
        return error.initiator != "client"
    return isinstance(error, (TransportStartError, ProtocolError, InvalidTransportParamsError))
