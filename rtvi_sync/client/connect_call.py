"""One call of `connect()`: the ways to the bot are tried in order, under one deadline, until a bot is ready."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.shield import shielded
from ..errors import (
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    MissingExtraError,
    ProtocolError,
    RTVIError,
    StartBotError,
    TransportStartError,
    fresh_copy,
)
from ..messages import BotReadyData
from ..session import limits
from ..session.attempt import ConnectAttempt
from ..session.session import Session
from .sessionless import BotStart
from .ways import Way

T = TypeVar("T")

# The seconds that a silent bot gets while other ways remain, if there is no limit.
_PATIENCE_WITHOUT_LIMIT = 10.0
# By these statuses a server refuses the client, on whatever way it comes.
_REFUSED_CLIENT = (401, 403, 407, 429)


class ConnectCall:
    """One call of `connect()`.

    A silent way is left early while others remain, and gets the rest of the time if none of them leads to a bot.

    Args:
        ways: to the bot, in the order in which they are tried.
        deadline: limit of the call.
    """

    def __init__(self, ways: Sequence[Way], deadline: Deadline) -> None:
        self._untried = deque(ways)
        self._left_early: deque[Way] = deque()
        self._round = 0
        self._attempt: ConnectAttempt | None = None
        self._failures: list[tuple[str, RTVIError]] = []
        self.deadline: Deadline = deadline
        self.abandoned: bool = False
        #: The call is under way, or was.
        self.begun: bool = False
        #: An attempt has failed, and another followed or was to follow.
        self.was_followed: bool = False
        #: Set when nothing of the call is left.
        self.over: Latch = Latch()

    @property
    def session(self) -> Session | None:
        """Return the session of the current attempt, if there is one."""
        attempt = self._attempt  # read once: the thread of `run()` forgets it
        return attempt.session if attempt is not None else None

    @property
    def has_other_ways(self) -> bool:
        """Tell whether another attempt may follow the current one."""
        return bool(self._untried or self._left_early)

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, also before `run()`."""
        self.abandoned = True
        attempt = self._attempt
        if attempt is not None:
            attempt.abandon()

    def run(
        self,
        make_attempt: Callable[[Way, Deadline, float | None], ConnectAttempt],
        connect: Callable[[ConnectAttempt, Way], BotReadyData],
    ) -> BotReadyData:
        """Return what the first `connect(attempt, way)` returns that reaches a bot.

        Args:
            make_attempt: makes the attempt on a way, with its limit, and the seconds that its transport and bot may be
                silent, or None.
            connect: makes the attempt's session, and connects it.

        Raises:
            ConnectionTimeoutError: the deadline has passed.
            ConnectError: several ways failed.
            RTVIError: the only way failed, or the error is that of all ways.
        """
        self.begun = True
        try:
            while True:
                way = self._untried.popleft()
                # Errors of a later attempt tell its own time.
                deadline = Deadline(self.deadline.remaining()) if self._failures else self.deadline
                attempt = self._attempt = make_attempt(way, deadline, self._patience(way))
                attempt.abandoned = self.abandoned
                try:
                    return connect(attempt, way)
                except RTVIError as error:
                    self._fail(way, attempt, error)
        finally:
            self._attempt = None  # it refers to the client's parts, and the session to this call

    def _fail(self, way: Way, attempt: ConnectAttempt, error: RTVIError) -> None:
        """Record that `attempt` has failed; raise the error of the call if no other follows."""
        self._failures.append((way.transport.name, fresh_copy(error)))
        if attempt.session is None or not attempt.session.ending.is_replaced:
            failure = self._failure(error, way)
            if failure is error:
                raise error
            raise failure from error
        self.was_followed = True
        if isinstance(error, ConnectionTimeoutError):
            self._left_early.append(way)
        if not self._untried:
            self._untried, self._left_early = self._left_early, deque()
            self._round += 1

    def is_followed(self, error: BaseException) -> bool:
        """Tell whether another attempt follows one that failed by `error`. Any thread."""
        if self.abandoned or self.deadline.expired or not _concerns_way(error):
            return False
        return self.has_other_ways

    def _patience(self, way: Way) -> float | None:
        """Return how many seconds `way`, the next one, may be silent; None: until the deadline."""
        remaining = self.deadline.remaining()
        if not self.has_other_ways or (self._round and remaining is not None):
            return None
        # Without a limit each round is longer, because a bot may take its time to load.
        own = math.inf if way.patience is None else way.patience
        if remaining is not None:
            return min(remaining * self._share(), own)
        return min(_PATIENCE_WITHOUT_LIMIT, own) * float(3**self._round)

    def _share(self) -> float:
        """Return the part of the time left that a silent bot gets on the next way while others remain.

        Most of it on the first one, because a bot whose transport has opened probably loads its models.
        """
        return 1 / (1 + len(self._untried) + len(self._left_early)) if self._failures else 2 / 3

    def _failure(self, error: RTVIError, way: Way) -> RTVIError:
        """Return the error of the call, whose last attempt, on `way`, has failed by `error`."""
        if len(self._failures) == 1 or not (isinstance(error, ConnectError) or _concerns_way(error)):
            return error
        last: dict[str, str] = {}  # of each transport its last error, or the first one if it was silent twice
        for name, failure in self._failures:
            if not isinstance(failure, ConnectionTimeoutError) or name not in last:
                last[name] = str(failure)
        if len(set(last.values())) == 1:
            text = str(error)
        else:
            from ..transports.small_webrtc import is_installed  # it was imported when the ways were found

            if "webrtc" not in last and way.bot_url is not None and way.bot_url.endpoints and not is_installed():
                last["webrtc"] = str(MissingExtraError("SmallWebRTCTransport", "webrtc"))
            tried = " ".join(f"{name}: {failure.rstrip('.')}." for name, failure in last.items())
            limit = self.deadline.timeout if isinstance(error, ConnectionTimeoutError) else None
            within = f" within {round(limit, 3):g} s" if limit is not None else ""
            text = f"No bot was reached{within}{'' if self.has_other_ways else ', by any transport'}. {tried}"
        result: ConnectError
        if isinstance(error, ConnectionTimeoutError):
            result = ConnectionTimeoutError(text, phase=error.phase, elapsed=self.deadline.elapsed())
        else:
            result = ConnectError(text, status=error.status)
        result.attempts = (*self._failures,)
        return result


class CallsUnderWay:
    """The calls of one client that connect or start a bot, and have not returned."""

    def __init__(self) -> None:
        self._calls: list[ConnectCall | BotStart] = []

    def calls(self) -> list[ConnectCall | BotStart]:
        """Return the calls."""
        return [*self._calls]

    def make(self, call: ConnectCall | BotStart, work: Callable[[], T]) -> T:
        """Return what `work()` returns; Ctrl-C and `disconnect()` abandon `call`."""

        def run() -> T:
            try:
                for other in self.calls():
                    if other is not call and other.abandoned and other.begun:
                        other.over.wait(Deadline(limits.STOP_TIMEOUT))
                return work()
            finally:
                self._remove(call)
                call.over.set()

        # First of all, because `disconnect()` must find a call that Ctrl-C interrupts twice.
        self._calls.append(call)
        try:
            return shielded(run, call.abandon)
        finally:
            if not call.begun:
                call.abandoned = True  # if it begins all the same, it ends at once
                self._remove(call)

    def _remove(self, call: ConnectCall | BotStart) -> None:
        with contextlib.suppress(ValueError):
            self._calls.remove(call)

    def clear(self) -> None:
        """Forget the calls, which are those of the parent process."""
        self._calls.clear()


def _concerns_way(error: BaseException) -> bool:
    """Tell whether another transport may reach the bot in spite of `error`."""
    if isinstance(error, StartBotError):
        return error.status is not None and error.status not in _REFUSED_CLIENT
    if isinstance(error, ConnectionTimeoutError):
        return error.phase in ("transport", "bot-ready")
    if isinstance(error, DisconnectedError):
        return error.initiator != "client"
    return isinstance(error, (TransportStartError, ProtocolError, InvalidTransportParamsError))
