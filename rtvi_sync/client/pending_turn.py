"""A question that is asked later, when the bot does something."""

from __future__ import annotations

from collections.abc import Callable

from ..concurrency.deadline import Deadline
from ..concurrency.serial_queue import SerialQueue
from ..errors import RequestTimeoutError, RTVIError, WouldDeadlockError, fresh_copy
from ..events import Event, RTVIEvent
from ..protocol.validation import WAIT
from ..session.dispatcher import Dispatcher
from ..session.params import Seconds
from ..session.session import Session
from .question import Question
from .turn import Turn

# Seconds after which the microphone speaks again if the bot has not heard what was said.
_HEARING_LIMIT = 5.0
_CANCELLED = "This question was cancelled. Call barge_in() again"


class PendingTurn:
    """A question that is asked when an event of the bot comes, and the turn that it leads to. Made by `barge_in()`.

    Its methods may be called on any thread, `result()` on one at a time.
    """

    def __init__(
        self,
        question: Question,
        dispatcher: Dispatcher,
        session: Session,
        *,
        after: RTVIEvent,
        delay: Seconds,
        where: Callable[[Event], object] | None,
    ) -> None:
        self._question = question
        self._runtime = session.runtime
        self._after = after
        self._delay = delay
        self._where = where
        self._turn: Turn | None = None
        self._error: BaseException | None = None
        # Under the key 0, "asked" or "cancelled", by what came first. Not an attribute, because `setdefault()` is one
        # step that no other thread can split.
        self._decision: dict[int, str] = {}
        self._due = False  # the event has come
        self._was_said = False
        self._silenced = False
        self._stop = dispatcher.observe({after, RTVIEvent.TURN_ENDED, RTVIEvent.DISCONNECTED}, self._came)

    def result(self, timeout: Seconds | None = 30.0) -> Turn:
        """Wait until the bot has answered.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            RequestTimeoutError: not within `timeout` seconds. A question that was not asked, or not said to its end, by
                then is cancelled; otherwise the method may be called again.
            RTVIError: it was cancelled; and what `RTVIClient.ask()` raises.
        """
        WAIT.or_none.check(timeout=timeout)
        if self._turn is not None:
            return self._turn
        if self._error is not None:
            raise fresh_copy(self._error)
        if self._cancelled:
            raise RTVIError(_CANCELLED)
        try:
            self._turn = self._question.answer(Deadline(timeout))
        except WouldDeadlockError:
            raise
        except RequestTimeoutError as error:
            why = f"no {self._after.value} event came" if not self._due else f"the delay of {self._delay} s goes on"
            if self._decision.setdefault(0, "cancelled") == "asked":
                if not self._question.has_more_to_say:
                    raise
                # It must not go on to interrupt the questions to come: _end() lets the microphone speak again.
                text = f"The question was still being said after {timeout} s; it is cancelled. Call barge_in() again, "
                self._error = RequestTimeoutError(f"{text}and pass a larger timeout.")
                self._error.turn = error.turn
            else:
                self._error = RequestTimeoutError(
                    f"The question was not asked within {timeout} s, because {why}; it is cancelled. Call barge_in() "
                    "again, and pass a larger timeout, or another event as after=."
                )
            self._end()
            raise fresh_copy(self._error) from None
        except Exception as error:
            if self._cancelled:
                raise RTVIError(_CANCELLED) from None
            self._error = error
            self._end()
            raise
        self._end()
        return self._turn

    def done(self) -> bool:
        """Tell whether `result()` would return or raise at once."""
        if self._turn is not None or self._error is not None or self._cancelled or self._question.has_ended:
            return True
        turn = self._question.turn_so_far()
        return turn is not None and not turn.is_open

    def cancel(self) -> bool:
        """Ask nothing. If the question was asked already, say nothing more of it, and return False.

        `result()` then raises, unless all of it was said or typed.
        """
        self._silenced = True  # first, because it may be about to be asked
        if self._decision.setdefault(0, "cancelled") == "asked":
            self._rest_if_speaking()
            return False
        self._end()
        return True

    @property
    def _asked(self) -> bool:
        return self._decision.get(0) == "asked"

    @property
    def _cancelled(self) -> bool:
        return self._decision.get(0) == "cancelled"

    def _end(self) -> None:
        self._stop()
        self._question.close()

    # -- on the event queue -------------------------------------------------------------------------------------------

    def _came(self, event: Event) -> None:
        """Ask if it is the event that was waited for; clean up after the answer, which may never be asked for."""
        is_end = event.type is RTVIEvent.DISCONNECTED
        if is_end or (event.type is RTVIEvent.TURN_ENDED and self._asked and self._question.may_rest(event.data)):
            self._stop()
            self._later(self._question.rest)
            return
        if event.type is RTVIEvent.TURN_ENDED and not self._asked:
            self._question.forget()
        if event.type is self._after and not self._due and self._is_meant(event):
            self._due = True
            self._call_later(self._delay, self._ask)

    def _is_meant(self, event: Event) -> bool:
        try:
            return self._where is None or bool(self._where(event))
        except Exception as error:  # noqa: BLE001 - result() raises it
            self._stop()
            self._question.fail(error)
            return False

    def _call_later(self, seconds: Seconds, call: Callable[[], None]) -> None:
        io = self._runtime.io
        io.call(lambda: io.call_later(seconds, lambda: self._later(call)))

    def _later(self, call: Callable[[], None]) -> None:
        """Call something on a worker, because a source may block when it is opened and closed."""
        SerialQueue().post(call, self._runtime.workers)

    def _ask(self) -> None:
        if self._decision.setdefault(0, "asked") == "cancelled":
            return
        try:
            self._question.ask(Deadline(None))
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._question.fail(error)
            self._question.rest()
        self._watch()

    def _watch(self) -> None:
        """Let the microphone speak again if the bot does not hear what was said, or it was cancelled meanwhile."""
        was_said, self._was_said = self._was_said, self._question.is_said
        if self._silenced or (was_said and self._was_said):
            self._rest_if_speaking()
        elif self._question.is_speaking:
            self._call_later(_HEARING_LIMIT, self._watch)

    def _rest_if_speaking(self) -> None:
        if self._question.is_speaking:
            self._question.rest()
            if self._question.was_cut:
                self._question.fail(RTVIError(_CANCELLED))
