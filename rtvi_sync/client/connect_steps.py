"""The whole of `connect()`: its attempts, the candidates of each, and the steps of one, under one deadline."""

from __future__ import annotations

import functools
import importlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sized
from functools import partial
from typing import TYPE_CHECKING, Any

from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import NoThreadError, system_failures_as
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..errors import (
    BotAlreadyStartedError,
    BotNotReadyError,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    RTVIError,
    TransportStartError,
    fresh_copy,
)
from ..events import RTVIEvent
from ..messages import BotReadyData
from ..protocol.dialects import load_payload
from ..protocol.states import BY_CLIENT, CloseInfo, TransportState
from ..protocol.text import LONGEST_LINE, one_line, raised
from ..session.connect_request import BotStartedData, ConnectRequest
from ..session.params import APIRequest
from ..session.reconnect_policy import Retries, limit_attempt, should_retry
from ..session.session import EndLimits, Session
from ..transports.base import TransportOptions
from .candidates import Candidate, concerns_candidate, failure_of
from .operation import Operation, Progress
from .options import TOO_LITTLE

if TYPE_CHECKING:
    from .life import Life
    from .reconnect import Reconnect

logger: logging.Logger = package_logger(__name__)

# Without a limit, the log reports at this interval, in seconds, why the call still waits.
_REMINDER_INTERVAL = 10.0

# A client without limits waits forever for its bot, but not for a config that the bot may not have.
_CONFIG_TIMEOUT = 10.0

# The seconds that a silent bot gets while other candidates remain, if there is no limit.
_PATIENCE_WITHOUT_LIMIT = 10.0

_DOING = {
    "begin": "waiting until its thread runs",
    "devices": "opening the devices",
    "http": "the connect request",
    "transport": "opening the transport",
    "bot-ready": "waiting for the bot to be ready",
}

_NOT_BEGUN = "The session could not start"

RAISE = (
    "raise the limit (connect_timeout= of the client, or attempt_timeout= of its reconnect policy, in seconds, or "
    "timeout= of start_bot())"
)
_ADVICE = {
    "begin": "Give the machine less to do",
    "devices": "See which device, source or sink does not answer",
    "http": "Check that the server answers",
    "transport": "Check that the bot's address can be reached",
    "bot-ready": "A bot without RTVI (in Pipecat: enable_rtvi=False) is never ready, and neither is one of RTVI 0.3 "
    "that does not know its config. See the bot's log",
}


@functools.cache
@system_failures_as(TransportStartError, "The code that a session needs could not be imported")
def import_for_session(*, reconnects: bool) -> None:
    """Import the modules that a session needs for its calls and turns. Later the process may have no descriptor left.

    The payloads of other events are imported by the call that adds the first listener.
    """
    # By name, because these modules import this one.
    for module in (
        "client.stats",
        "conversation.ask",
        "conversation.expect",
        *(["client.reconnect"] if reconnects else ()),
    ):
        importlib.import_module(f"rtvi_sync.{module}")
    if reconnects:
        import tenacity  # noqa: F401
    for event in RTVIEvent:
        if event.in_turns:
            load_payload(event)


class Connect(Operation[BotReadyData]):
    """One call of `connect()`, with all its attempts.

    Args:
        life: As for `Operation`.
        given: The transport's parameters from the application. None: from the client's parameters.
        start: A request that starts the bot instead of the default one.
        deadline: Limit of the call.
    """

    def __init__(self, life: Life, given: Any, start: APIRequest | None, deadline: Deadline) -> None:
        super().__init__(life)
        self._given = given
        self._start = start
        self._deadline = deadline
        self._policy = life.policy
        self._candidate: Candidate | None = None  # the last one tried
        self._has_next = False  # another candidate may follow the current one
        self._limit = deadline  # of the current attempt

    def _perform(self, life: Life) -> BotReadyData:
        """Make one attempt, or several if the policy includes the first connect, until one leads to a bot."""
        policy = self._policy
        try:
            life.check_usable()
            repeats = policy is not None and policy.first_connect
            retries = Retries(policy, first=2, left=self._deadline.remaining()) if policy and repeats else None
            while True:
                try:
                    return self._attempt(life)
                except BotAlreadyStartedError:
                    raise
                except Exception as error:
                    life.release(self)
                    if policy is None or retries is None:
                        raise
                    is_retried = self.abandoned or should_retry(policy, error)
                    self.check_wanted()  # `disconnect()` ends the call, whatever this attempt failed with
                    if not is_retried:
                        raise
                    self.pending = retries.after(error)
                    if self.pending is None:
                        raise
                    logger.warning(
                        "Attempt %d to connect failed: %s. The client makes %s",
                        self.pending.attempt - 1,
                        one_line(str(error), LONGEST_LINE).rstrip("."),
                        self.pending.describe_attempt(),
                    )
                life.publish(RTVIEvent.RECONNECTING, self.pending)
                self.pause(self.pending.delay)
        except BaseException as error:
            if (session := self.session) is not None:
                session.explain_end(error)
                life.end_streams_after(session)
            raise
        finally:
            self.pending = None

    def _attempt(self, life: Life) -> BotReadyData:
        """Try the candidates, one after the other, until one leads to a bot.

        A silent candidate is left early while others remain. If none of them leads to a bot, it is tried again with the
        rest of the time.

        Raises:
            ConnectionTimeoutError: The deadline has passed.
            ConnectError: Several candidates failed.
            RTVIError: The only candidate failed, or the error applies to all candidates.
        """
        if not life.candidates:
            raise InvalidTransportParamsError(
                "This client has no transport: pass RTVIClient(transport=WebSocketTransport())"
            )
        self.check_wanted()
        import_for_session(reconnects=self._policy is not None)
        self._limit = limit = limit_attempt(self._policy, self._deadline)
        untried, left_early, turn = deque(life.candidates), deque[Candidate](), 0
        failures: list[tuple[str, RTVIError]] = []
        has_followed = False
        try:
            while True:
                # 1. Take the next candidate. Its errors report its own time.
                candidate = self._candidate = untried.popleft()
                self._has_next = bool(untried or left_early)
                deadline = Deadline(limit.remaining()) if failures else limit
                before = self.session
                try:
                    # 2. Run its session until the bot is ready.
                    others = len(untried) + len(left_early)
                    patience = self._patience(candidate, deadline, failures, others, turn) if others else None
                    return self.connect_session(self, life, candidate, deadline, patience)
                except RTVIError as error:
                    failures.append((candidate.transport.name, fresh_copy(error)))
                    # 3. The end of its session has decided whether another candidate follows.
                    session = self.session
                    if session is None or session is before or not session.follows:
                        failure = failure_of(failures, error, candidate, limit, is_last=not self._has_next)
                        if failure is error:
                            raise
                        raise failure from error
                    has_followed = True
                    if isinstance(error, ConnectionTimeoutError):
                        left_early.append(candidate)
                    if not untried:
                        untried, left_early, turn = left_early, untried, turn + 1
        except BaseException:
            if has_followed:  # a session left its devices to one that may not have followed
                life.media.let_go()
            raise

    def _patience(
        self, candidate: Candidate, deadline: Deadline, failures: Sized, others: int, turn: int
    ) -> float | None:
        """Return the seconds for which `candidate` may stay silent. None: until the deadline.

        The first candidate gets most of the time, because a bot whose transport is open is probably loading its models.
        """
        remaining = deadline.remaining()
        if turn and remaining is not None:
            return None
        own = math.inf if candidate.patience is None else candidate.patience
        if remaining is None:  # each turn is longer, because a bot may take its time to load
            return min(_PATIENCE_WITHOUT_LIMIT, own) * float(3**turn)
        return min(remaining * (1 / (1 + others) if failures else 2 / 3), own)

    def connect_session(
        self,
        operation: Operation[Any],
        life: Life,
        candidate: Candidate,
        deadline: Deadline,
        patience: float | None = None,
    ) -> BotReadyData:
        """Make a session of `operation` on `candidate`, and connect it with the arguments of this call."""
        request = life.request_for(candidate, given=self._given, start=self._start)
        operation.check_wanted()
        repeats = self._policy is not None and self._policy.first_connect
        with system_failures_as(TransportStartError, _NOT_BEGUN):
            session = life.make_session(
                operation,
                candidate.transport,
                deadline,
                in_connect=operation is self,
                is_one_of_several=self._has_next,
                needs_devices=operation is self and not repeats,
            )
        if operation.abandoned:  # before it had this session
            session.end(BY_CLIENT)
        return Attempt(session, request, deadline, life.request_timeout, patience).run(life.transport_options(session))

    def connect_again(self, reconnect: Reconnect) -> Session:
        """Connect for `reconnect` as this call did last, with a new request. Return the session, whose bot is ready."""
        life, candidate = reconnect.life, self._candidate
        assert candidate is not None, "there was a session"
        limit = limit_attempt(self._policy, Deadline(life.limit_of(self._start)))
        self._has_next = False
        self.connect_session(reconnect, life, candidate, limit)
        life.reconnects += 1
        assert reconnect.session is not None, "it is connected"
        return reconnect.session

    def _undo(self, deadline: Deadline) -> None:
        life = self._life()
        if life is not None:
            life.undo(self, deadline)

    # -- the end of its session: on the close thread -------------------------------------------------------------------

    def after(self, session: Session) -> bool:
        """Decide as in the base class. The next candidate gets the devices of one that has not used them."""
        follows = super().after(session)
        if follows and session.may_leave_devices:
            life = self._life()
            if life is not None:
                life.media.take_back()
        return follows

    def _wants_next(self, session: Session) -> bool:
        error = session.close_info.failure()
        if session.was_ready:
            return self._policy is not None and should_retry(self._policy, error)
        if self.progress is not Progress.RUNNING or not self._has_next or self._limit.expired:
            return False
        return concerns_candidate(error)

    def next_after(self, life: Life, session: Session) -> Operation[Any]:
        """Return this call, which tries another candidate, or the replacement of a session that was ready."""
        if not session.was_ready:
            return self
        from .reconnect import Reconnect

        assert self._policy is not None, "it has decided"
        return Reconnect(life, session, self._policy, self)


class Attempt:
    """The steps from a new session to a ready bot, or to the session's end.

    Args:
        session: The session, which has not started.
        request: Returns the transport's parameters.
        deadline: Limit of the attempt.
        config_timeout: Seconds to wait for the config of a bot that has not sent it with `bot-ready`. None: 10.
        patience: Seconds from the opening of the transport until the bot must be ready. None: until the deadline.
    """

    def __init__(
        self,
        session: Session,
        request: ConnectRequest,
        deadline: Deadline,
        config_timeout: float | None,
        patience: float | None,
    ) -> None:
        self._session = session
        self._request = request
        self._deadline = deadline
        self._config_timeout = _CONFIG_TIMEOUT if config_timeout is None else config_timeout
        self._patience = patience
        self._phase = "begin"
        self._until = deadline  # the deadline, or the end of the patience
        self._error: BaseException | None = None  # the connect thread's, if it has ended the session

    # -- on the calling thread ----------------------------------------------------------------------------------------

    def run(self, options: TransportOptions) -> BotReadyData:
        """Connect the session, whose transport gets `options`. Blocks until the bot is ready.

        Raises:
            ConnectionTimeoutError: The deadline passed first.
            RTVIError: Another failure. The session has ended.
            KeyboardInterrupt: Ctrl-C. The attempt is abandoned.
        """
        session = self._session
        try:
            session.check_wanted()
            # Before the thread starts, because the limit may pass before it runs. An attempt fails from `initializing`.
            session.move(TransportState.INITIALIZING)
            task = session.connecting = PoolTask("connect", self._work, options)
            with system_failures_as(TransportStartError, _NOT_BEGUN):
                task.start()
            self._wait()
            task.done.wait(Deadline(EndLimits.LINGER))
            if session.bot is None:
                raise self._error if self._error is not None else self._explained()
            self._fetch_config()
            return session.bot
        except BaseException as error:
            session.end_and_wait(_end_by(error), linger=EndLimits.LINGER)
            raise

    def _wait(self) -> None:
        """Wait until the bot is ready or the session has ended, up to the deadline or the end of the patience."""
        session, until = self._session, None
        while until is not self._until:  # the connect thread sets the end of the patience during the wait
            until = self._until
            settled = session.wait_settled
            if self._patience is not None:
                settled = partial(session.wait_settled, or_when=partial(self._has_less_time, until))
            if not wait_for(settled, until, "connect()", self._doing):
                raise self._timeout_error()

    def _has_less_time(self, than: Deadline) -> bool:
        return self._until is not than

    def _timeout_error(self) -> ConnectionTimeoutError:
        elapsed = self._deadline.elapsed()
        if self._until is self._deadline:
            seconds, otherwise = round(self._deadline.timeout or 0.0, 3), f", or {RAISE}"
        else:  # the times of all candidates add up to the limit
            seconds, otherwise = round(elapsed, 2), ""
        is_too_little = self._deadline.timeout is not None and self._deadline.timeout < TOO_LITTLE
        unit = " (timeout= is in milliseconds, connect_timeout= in seconds)" if is_too_little else ""
        return ConnectionTimeoutError(
            f"The bot was not ready within {seconds:g} s{unit}; the time was spent on {self._doing()}. "
            f"{_diagnosis(self._session) or f'{_ADVICE[self._phase]}{otherwise}.'}",
            phase=self._phase,
            elapsed=elapsed,
        )

    def _doing(self) -> str:
        step = _told(self._session, self._session.transport.waiting_for) if self._phase == "transport" else None
        return _DOING[self._phase] + (f": waiting for {step}" if step else "")

    def _explained(self) -> RTVIError:
        """Return the error of a session that has ended before its bot was ready."""
        info = self._session.close_info
        error = info.failure()
        if not isinstance(error, DisconnectedError) or self._phase not in ("transport", "bot-ready"):
            return error
        advice = None if error.reason else _diagnosis(self._session)
        if advice is None:
            if info.initiator == "client" or isinstance(info.error, RTVIError):
                return error  # the error has its advice
            advice = "See the bot's log"
        text = f"{info.describe()} before the bot was ready. {advice}"
        return DisconnectedError(text, code=info.code, reason=info.reason, initiator=info.initiator)

    def _fetch_config(self) -> None:
        session = self._session
        if not session.wants_config:
            return
        try:
            session.fetch_config(Deadline(self._deadline.at_most(self._config_timeout)))
        except (BotNotReadyError, DisconnectedError):  # the bot was ready, so the session has ended since
            session.end_and_wait(session.close_info, linger=EndLimits.LINGER)
            # The bot was ready, so a reconnect may follow its loss, just as it would a moment later.
            if not session.follows:
                raise session.close_info.as_error() from None

    # -- on the connect thread ----------------------------------------------------------------------------------------

    def _work(self, options: TransportOptions) -> None:
        try:
            self._steps(options)
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller of connect()
            if self._session.end(_end_by(error)):
                self._error = error

    @system_failures_as(TransportStartError, "The session could not be established")
    def _steps(self, options: TransportOptions) -> None:
        session = self._session
        transport, signal = session.transport, session.abort.signal
        step: str | None = None  # the transport's current step; the transport may be the application's
        try:
            # 1. The transport and its devices.
            self._phase, step = "devices", "could not be prepared"
            session.initialize_transport(options)
            session.check_wanted()
            transport.init_devices()
            session.check_wanted()
            step = None
            session.move(TransportState.INITIALIZED)
            # 2. The transport's parameters: given, or the answer to a request.
            bundle = self._request.bundle()
            if bundle is None:
                self._phase = "http"
                session.move(TransportState.AUTHENTICATING)
                bundle = self._request.send(self._deadline, session.abort)
                session.check_wanted()
            if bundle.started:
                session.move(TransportState.AUTHENTICATED)
                session.publisher.event(RTVIEvent.BOT_STARTED, BotStartedData(bundle.content))
            # 3. The connection.
            self._phase = "transport"
            if self._patience is not None:
                self._until = Deadline(self._patience)
                session.wake()
            session.move(TransportState.CONNECTING)
            transport.secure_bundle = bundle.secure
            transport.bundle_source = bundle.source
            transport.start_request = bundle.request
            step = "failed to connect"
            transport.connect(bundle.content, signal)
            session.check_wanted()
            step = None
            # 4. The bot. The thread that delivers its messages continues with `bot-ready`.
            self._phase = "bot-ready"
            session.opened()
            session.check_wanted()  # `opened()` may have called a `start_media()` of the application, which may hang
            step = "could not send client-ready"
            session.send_ready_message()
        except Exception as error:
            session.check_wanted()
            if step is None or (isinstance(error, RTVIError) and not isinstance(error, NoThreadError)):
                raise
            text = str(error) if isinstance(error, RTVIError) else raised(error)
            raise TransportStartError(f"The {transport.name} transport {step}: {text}") from error
        session.check_wanted()


def time_was_spent(phase: str) -> str:
    """Return how a call spent its time, and the advice for it, without its full stop."""
    return f"the time was spent on {_DOING[phase]}. {_ADVICE[phase]}"


def wait_for(wait: Callable[[Deadline], bool], deadline: Deadline, call: str, doing: Callable[[], str]) -> bool:
    """Return whether `wait()` returned True before `deadline`. Without a limit, log why the call still waits."""
    while not wait(Deadline(deadline.at_most(_REMINDER_INTERVAL))):
        if deadline.expired:
            return False
        if deadline.timeout is None:
            logger.warning(
                "%s has taken %.0f s so far (now: %s). Set connect_timeout for a limit",
                call,
                deadline.elapsed(),
                doing(),
            )
    return True


def _diagnosis(session: Session) -> str | None:
    """Ask the transport why the bot is not ready."""
    return _told(session, session.transport.diagnosis)


def _told(session: Session, ask: Callable[[], str | None]) -> str | None:
    """Return the transport's description of its state. The transport may be the application's."""
    try:
        return ask()
    except Exception:
        logger.exception("The diagnosis of the %s transport failed", session.transport.name)
        return None


def _end_by(error: BaseException) -> CloseInfo:
    """Return how a session ends if its attempt raised `error`."""
    if isinstance(error, KeyboardInterrupt):
        return BY_CLIENT  # the application interrupts its own call, which is not a failure
    # A copy, because the error gets a traceback on its way to the caller, which would keep the client alive.
    kept = fresh_copy(error)
    if isinstance(error, DisconnectedError):
        return CloseInfo(code=error.code, reason=error.reason, initiator=error.initiator, error=kept)
    return CloseInfo(initiator="client", error=kept)
