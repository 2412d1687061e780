"""The policy of automatic reconnection: when to replace a lost session, how often to try, and its events' payloads."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.logs import package_logger
from ..errors import (
    BotNotReadyError,
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    ForkedProcessError,
    RTVIError,
    StartBotError,
    TransportStartError,
    UsageError,
    fresh_copy,
)
from ..protocol.record import Record
from ..protocol.validation import (
    BOOL,
    COUNT,
    SECONDS,
    function_taking,
    instance_of,
)
from .params import Seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger: logging.Logger = package_logger(__name__)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReconnectingData(Record):
    """The payload of `reconnecting`: a session was lost, or an attempt to replace it failed, and another one follows.

    Attributes:
        attempt: Number of the next attempt, from 1.
        max_attempts: The policy's limit. None: no limit.
        delay (seconds): Time until the attempt starts.
        error: The loss of the session, or the failure of the last attempt.
    """

    attempt: int
    max_attempts: int | None
    delay: float
    error: BaseException

    def describe(self) -> str:
        """Return a sentence without its full stop."""
        return f"the client reconnects by itself, {self.describe_attempt()}"

    def describe_attempt(self) -> str:
        """Return the number and time of the next attempt, in words."""
        of = f" of {self.max_attempts}" if self.max_attempts is not None else ""
        return f"attempt {self.attempt}{of} within {self.delay:.1f} s"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReconnectFailedData(Record):
    """The payload of `reconnect_failed`: the client makes no further attempt.

    Attributes:
        attempts: The number of attempts.
        error: The failure of the last attempt.
    """

    attempts: int
    error: BaseException

    def describe(self) -> str:
        """Return a sentence without its full stop."""
        plural = "" if self.attempts == 1 else "s"
        return f"the session was lost and not replaced, after {self.attempts} attempt{plural}: {self.error}"


def is_transient(error: BaseException) -> bool:
    """Whether the same attempt may succeed a little later.

    True for a connection that broke, a server that closes or restarts (close codes 1001, 1006 and 1011 to 1014, HTTP
    408, 425, 429 and 5xx), a connection that was not made in time, and a `BotNotReadyError` that follows such a loss.
    False for a bot that ended the session (Pipecat always closes with 1000), a fatal error of the bot, a server that
    refuses (401, 404 and so on), a refused certificate, a broken protocol, a bot that does not answer in time, and
    errors or calls of the application. An error of several attempts is transient if one of them is, unless the server
    refused the last.
    """
    instance_of("an exception", BaseException).check(error=error)
    if isinstance(error, ConnectError) and error.attempts:
        last = error.attempts[-1][1]
        if isinstance(last, StartBotError) and last.status in _REFUSALS:
            return False  # the application has ended the call
        return any(is_transient(attempt) for _, attempt in error.attempts)
    if isinstance(error, DisconnectedError):
        return error.initiator == "network" or (error.initiator == "server" and error.code in _PASSING_CODES)
    if isinstance(error, (StartBotError, TransportStartError)):
        if _is_caused_by(error, ssl.SSLCertVerificationError):
            return False
        return error.status is None or error.status in _PASSING_STATUSES or error.status >= 500
    if isinstance(error, BotNotReadyError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    return isinstance(error, ConnectionTimeoutError)


def _is_worth_waiting(error: BaseException) -> bool:
    """Whether the same attempt may ever succeed. False if the application, which gets the error, is wrong."""
    if isinstance(error, ConnectError) and error.attempts:
        return any(_is_worth_waiting(attempt) for _, attempt in error.attempts)
    return isinstance(error, RTVIError) and not isinstance(error, (UsageError, ForkedProcessError))


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


_PASSING_CODES = (1001, 1006, 1011, 1012, 1013, 1014)

_PASSING_STATUSES = (408, 425, 429)
# By these statuses a server refuses the client, over any transport.
_REFUSALS = (401, 403, 407)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReconnectPolicy(Record):
    """When to replace a lost session, and how often to try.

    Only sessions whose bot was ready are replaced. The delay before attempt n is chosen at random between 0 and
    ``min(max_delay, initial_delay * 2 ** (n - 1))`` seconds ("full jitter"), so that the clients of a restarting server
    don't all reconnect at once.

    Attributes:
        max_attempts: Limit of the attempts to replace one lost session. None: no limit.
        max_elapsed (seconds): Time after which no further attempt starts. None: no limit.
        initial_delay (seconds): The longest delay before the first attempt; see above.
        max_delay (seconds): The longest delay before any attempt.
        stable_after (seconds): Time after which a new session counts as good. A session that is lost earlier counts as
            one more failed attempt. This protects a server that accepts each session and ends it at once.
        retry_on: A function that is called with the error of a lost session (`DisconnectedError`) or of a failed
            attempt, and returns whether to make another attempt. None: `is_transient`. Called once for each error, on a
            thread of the package. The `disconnected` of a lost session waits for the result.
        attempt_timeout (seconds): Limit of one attempt, including the first `connect()`, if the client's
            `connect_timeout` allows more. None: no limit of its own.
        first_connect: True: also repeat `connect()`, until a bot is ready. The client's `connect_timeout` then limits
            all attempts of this call together.
    """

    max_attempts: int | None = attrs.field(
        default=10, validator=COUNT.or_none.but("to make no attempt leave reconnect= out")
    )
    max_elapsed: Seconds | None = attrs.field(default=None, validator=SECONDS.or_none)
    initial_delay: Seconds = attrs.field(default=0.5, validator=SECONDS)
    max_delay: Seconds = attrs.field(default=30.0, validator=SECONDS)
    stable_after: Seconds = attrs.field(default=30.0, validator=SECONDS)
    retry_on: Callable[[BaseException], bool] | None = attrs.field(
        default=None, validator=function_taking("error").or_none
    )
    attempt_timeout: Seconds | None = attrs.field(default=None, validator=SECONDS.or_none)
    first_connect: bool = attrs.field(default=False, validator=BOOL)

    @classmethod
    def forever(cls, **changes: Unpack[PolicyChanges]) -> ReconnectPolicy:
        """Return a policy for an application that runs unattended, such as a kiosk.

        The client replaces each session, however it ended, until the application calls `disconnect()`,
        `disconnect_bot()` or `close()`. This includes sessions that the bot ends, as Pipecat's bots do after a time
        without speech. The client also repeats the first `connect()`, so the server may start later. Only errors of the
        application itself (`UsageError`) are raised. An attempt may take 60 s.

        Args:
            changes: Attributes with other values, such as ``max_delay=5``.
        """
        policy = cls(max_attempts=None, retry_on=_is_worth_waiting, attempt_timeout=60.0, first_connect=True)
        return attrs.evolve(policy, **changes)


class PolicyChanges(TypedDict, total=False):
    """Names and types of a policy's attributes, for type checkers."""

    max_attempts: int | None
    max_elapsed: Seconds | None
    initial_delay: Seconds
    max_delay: Seconds
    stable_after: Seconds
    retry_on: Callable[[BaseException], bool] | None
    attempt_timeout: Seconds | None
    first_connect: bool


def limit_attempt(policy: ReconnectPolicy | None, deadline: Deadline) -> Deadline:
    """Return the deadline of one attempt: `deadline`, or the limit of the policy if it is shorter."""
    limit = None if policy is None else policy.attempt_timeout
    return deadline if limit is None or deadline.at_most(limit) != limit else Deadline(limit)


class Retries:
    """The attempts that a policy allows after a first failure.

    Args:
        policy: The client's policy.
        first: Number of the attempt after the first failure: 1 after a lost session, 2 after a first attempt.
        left: Seconds after which no further attempt starts, apart from the policy's own limit. None: no other limit.
    """

    def __init__(self, policy: ReconnectPolicy, *, first: int, left: float | None = None) -> None:
        import tenacity  # imports asyncio, and most applications never reconnect

        self._policy = policy
        self._next = first
        limits = [limit for limit in (policy.max_elapsed, left) if limit is not None]
        self._deadline = Deadline(min(limits, default=None))
        self._wait = tenacity.wait_random_exponential(multiplier=policy.initial_delay, max=policy.max_delay)
        self._state = tenacity.RetryCallState(None, None, (), {})  # type: ignore[arg-type]  # only its number is read

    def after(self, error: BaseException) -> ReconnectingData | None:
        """Return the attempt after a failure by `error`, which the policy retries. None: no attempt is left."""
        attempt, most = self._next, self._policy.max_attempts
        if most is not None and attempt > most:
            return None
        delay, remaining = self._wait(self._state), self._deadline.remaining()
        if remaining is not None and delay >= remaining:
            return None
        self._next += 1
        self._state.attempt_number += 1
        # A copy, because the error's frames keep the client alive, which must be collected if it is dropped.
        return ReconnectingData(attempt=attempt, max_attempts=most, delay=delay, error=fresh_copy(error))


def should_retry(policy: ReconnectPolicy, error: BaseException) -> bool:
    """Whether the policy retries after `error`. Calls the application's rule."""
    try:
        return bool((policy.retry_on or is_transient)(error))
    except BaseException:
        logger.exception("retry_on of the reconnect policy raised; no further attempt is made")
        return False
