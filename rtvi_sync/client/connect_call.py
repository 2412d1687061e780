"""The calls of `connect()` and `start_bot()`: what the calling thread owns while it waits, and the ways to the bot."""

from __future__ import annotations

import contextlib
import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

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
from ..protocol.states import CloseInfo
from ..protocol.text import one_line
from ..session.attempt import ConnectAttempt, was_disconnected
from ..session.session import EndLimits, Session
from .ways import Way

T = TypeVar("T")

_SENTENCE_END = re.compile(r"\. (?=[A-Z])")

# The seconds that a silent bot gets while other ways remain, if there is no limit.
_PATIENCE_WITHOUT_LIMIT = 10.0
# Characters of each way's error in the error that has them all.
_SHORT = 280
# By these statuses a server refuses the client, on whatever way it comes.
_REFUSED_CLIENT = (401, 403, 407, 429)


class Operation(Generic[T]):
    """One call of `connect()` or `start_bot()`, as an object that exists before anything of it is done.

    The public method makes it, and whatever is raised in that method cancels it, in its outermost `try`. A signal
    handler may raise between any two instructions of the main thread, also when all is done and only the `return` is
    left. So `cancel()` is right at every instant: work that has not begun is refused, work that is under way is cut
    short, and what it has led to when it is done is ended.

    Args:
        under_way: the operations of the client that have not ended; this one while it runs.
    """

    def __init__(self, under_way: list[Operation[Any]]) -> None:
        self._under_way = under_way
        #: The application has ended the call: by `disconnect()`, or by an interrupt.
        self.stopped: Latch = Latch()
        self.begun: bool = False
        #: Nothing of the call runs any more.
        self.over: Latch = Latch()
        self._succeeded = False

    @property
    def session(self) -> Session | None:
        """Return the session of the current attempt, live or not; None if there is none."""
        return None

    def run(self) -> T:
        """Return the result of the work. The main thread only waits for it."""
        self._under_way.append(self)  # first of all, because `disconnect()` must find it
        return shielded(self._run)

    def _run(self) -> T:
        self.begun = True
        try:
            for other in [*self._under_way]:
                if other is not self and other.stopped.is_set() and other.begun:
                    other.over.wait(Deadline(EndLimits.STOP))
            if self.stopped.is_set():
                raise was_disconnected()
            result = self._perform()
            self._succeeded = True
            return result
        finally:
            self._remove()
            self.over.set()

    def _perform(self) -> T:
        """Do what the call is for."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Let `run()` return soon. Any thread, at any time."""
        self.stopped.set()

    def cancel(self) -> None:
        """Undo the call, which raises. On its thread."""
        if self.over.is_set() and not self._succeeded:
            return  # it has raised the error itself, and left nothing
        deadline = Deadline(EndLimits.TEARDOWN)
        self.abandon()
        if not self.begun:  # if it begins all the same, it ends at once
            self._remove()
            return
        self.over.wait(deadline)
        if self._succeeded:
            shielded(lambda: self._undo(deadline))

    def _undo(self, deadline: Deadline) -> None:
        """End what the work has led to, until `deadline`."""
        raise NotImplementedError

    def _remove(self) -> None:
        with contextlib.suppress(ValueError):
            self._under_way.remove(self)


class Connecting(Operation[BotReadyData]):
    """One call of `connect()`, with all attempts that are made if it is repeated.

    Args:
        under_way: as of `Operation`.
        connect: does what the call is for.
    """

    def __init__(self, under_way: list[Operation[Any]], connect: Callable[[Connecting], BotReadyData]) -> None:
        super().__init__(under_way)
        self._connect = connect
        self._call: ConnectCall | None = None
        #: The session that was begun last, by the current attempt or an earlier one.
        self.last: Session | None = None

    @property
    def session(self) -> Session | None:
        """Return the session of the current attempt, live or not; None if there is none."""
        call = self._call
        return call.session if call is not None else None

    def _perform(self) -> BotReadyData:
        return self._connect(self)

    def follow(self, call: ConnectCall) -> None:
        """Let `call` be what is under way now."""
        self._call = call
        if self.stopped.is_set():  # before it was there to be abandoned
            call.abandon()

    def abandon(self) -> None:
        """Let `run()` return soon; the session that it has led to, if it is done, ends. Any thread, at any time."""
        super().abandon()
        call = self._call
        if call is not None:
            call.abandon()

    def _undo(self, deadline: Deadline) -> None:
        session = self.session
        if session is not None:
            session.end(CloseInfo(initiator="client"))
            session.wait_closed(deadline)
            session.wait_drained(Deadline(deadline.at_most(EndLimits.LINGER)))


class ConnectCall:
    """One try of `connect()`.

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
        #: An attempt has failed, and another followed or was to follow.
        self.was_followed: bool = False

    @property
    def session(self) -> Session | None:
        """Return the session of the last attempt, if there is one."""
        attempt = self._attempt
        return attempt.session if attempt is not None else None

    @property
    def has_other_ways(self) -> bool:
        """True if another attempt may follow the current one."""
        return bool(self._untried or self._left_early)

    def abandon(self) -> None:
        """Let `run()` return soon, and end the session to which it has led. Any thread, also before `run()`."""
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
        while True:
            way = self._untried.popleft()
            # Errors of a later attempt tell its own time.
            deadline = Deadline(self.deadline.remaining()) if self._failures else self.deadline
            attempt = self._attempt = make_attempt(way, deadline, self._patience(way))
            if self.abandoned:  # before it was there to be abandoned
                attempt.abandon()
            try:
                return connect(attempt, way)
            except RTVIError as error:
                self._fail(way, attempt, error)

    def _fail(self, way: Way, attempt: ConnectAttempt, error: RTVIError) -> None:
        """Record that `attempt` has failed; raise the error of the call if no other follows."""
        self._failures.append((way.transport.name, fresh_copy(error)))
        if attempt.session is None or not attempt.session.is_replaced:
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
        """Whether another attempt follows one that failed by `error`. Any thread."""
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
        last: dict[str, str] = {}  # of each transport its last error, or the first one if it was silent again
        again: dict[str, str] = {}
        for name, failure in self._failures:
            if isinstance(failure, ConnectionTimeoutError) and name in last:
                again[name] = f"{again.get(name, '')} It was tried again for {round(failure.elapsed, 2):g} s."
            else:
                last[name] = str(failure)
        if len(set(last.values())) == 1:
            text = str(error)
        else:
            from ..transports.small_webrtc import is_installed  # it was imported when the ways were found

            if "webrtc" not in last and way.bot_url is not None and way.bot_url.endpoints and not is_installed():
                last["webrtc"] = str(MissingExtraError("SmallWebRTCTransport", "webrtc"))
            tried = "".join(f"\n  {name}: {_in_short(failure)}{again.get(name, '')}" for name, failure in last.items())
            tried += "\n  (error.attempts has them in full)"
            limit = self.deadline.timeout if isinstance(error, ConnectionTimeoutError) else None
            within = f" within {round(limit, 3):g} s" if limit is not None else ""
            text = f"No bot was reached{within}{'' if self.has_other_ways else ', by any transport'}:{tried}"
        result: ConnectError
        if isinstance(error, ConnectionTimeoutError):
            result = ConnectionTimeoutError(text, phase=error.phase, elapsed=self.deadline.elapsed())
        else:
            result = ConnectError(text, status=error.status)
        result.attempts = (*self._failures,)
        return result


def _in_short(text: str) -> str:
    """Return the first sentences of an error, with its advice if that is short."""
    first, *others = _SENTENCE_END.split(text.rstrip("."))
    for sentence in others:
        if len(first) + len(sentence) > _SHORT:
            break
        first = f"{first}. {sentence}"
    return one_line(f"{first}.", 2 * _SHORT)


def _concerns_way(error: BaseException) -> bool:
    """Whether another transport may reach the bot in spite of `error`."""
    if isinstance(error, StartBotError):
        return error.status is not None and error.status not in _REFUSED_CLIENT
    if isinstance(error, ConnectionTimeoutError):
        return error.phase in ("transport", "bot-ready")
    if isinstance(error, DisconnectedError):
        return error.initiator != "client"
    return isinstance(error, (TransportStartError, ProtocolError, InvalidTransportParamsError))
