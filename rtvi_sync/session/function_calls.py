"""The application's functions that the bot's language model may call.

A bot announces a call with `llm-function-call-in-progress` (RTVI 1.2 and later) or `llm-function-call` (before, and
deprecated since). The function runs, and its return value is sent as `llm-function-call-result`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.logs import package_logger
from ..concurrency.serial_queue import SerialQueue
from ..concurrency.worker_pool import WorkerPool
from ..errors import BotNotReadyError, DisconnectedError, ForkedProcessError, ProtocolError, RTVIError
from ..events import Event, RTVIEvent
from ..messages import RTVIMessage
from ..protocol import engine as protocol
from ..protocol.record import Record
from ..protocol.text import quoted, raised
from .event_bus import EventPublisher, HandlerError

logger: logging.Logger = package_logger(__name__)

# Each running call has a thread. A bot runs a few at once; more than this is a fault of the bot, or an attack.
MAX_RUNNING = 64
# Some bots announce a call in both ways. This many ids are kept, so that no call runs twice.
_MAX_ANNOUNCED = 1000

CALL_EVENTS = frozenset({RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, RTVIEvent.LLM_FUNCTION_CALL})
"""The events of messages that call a function."""


@attrs.frozen(eq=False, repr=False)
class FunctionCall(Record):
    """One call of a function by the bot's language model.

    Attributes:
        function_name: The function's name.
        tool_call_id: Relates the result to the call.
        arguments: The arguments by name, plain JSON. Also empty if the bot withholds them.
    """

    function_name: str
    tool_call_id: str
    arguments: dict[str, Any] = attrs.field(factory=dict)


FunctionCallHandler: TypeAlias = Callable[[FunctionCall], Any]


class FunctionCalls:
    """Runs the functions that the bot of one session calls. They run outside the event queue, so a slow function delays
    no event.

    Each call has a thread of its own. In manual mode calls run like handlers, one after the other.

    Args:
        publisher: The session's publisher.
        workers: The threads that run the calls.
        send: The session's function that sends a message.
    """

    def __init__(self, publisher: EventPublisher, workers: WorkerPool, send: Callable[[RTVIMessage], None]) -> None:
        self._publisher = publisher
        self._workers = workers
        self._send = send
        # By the number of a call, the thread that runs it, or None before it starts. Changed in single steps, by the
        # thread that delivers messages and the threads of the functions.
        self._running: dict[int, threading.Thread | None] = {}
        self._numbers = itertools.count(1)
        self._ended = Notifier()  # notified when a call leaves `_running`
        # Hash of the id, and the message that announced it first. Made when needed: an empty deque is not small, and
        # most bots call no function.
        self._announced: deque[tuple[int, RTVIEvent]] | None = None
        self._warned: set[str] = set()  # the faults that were logged

    def called(self, effect: protocol.Deliver, size: int) -> None:
        """Run the application's function for a call, if it has one. On the thread that delivers messages.

        Args:
            effect: The message that announces the call.
            size: The message's size in bytes, for the limit of the queue.
        """
        bus = self._publisher.bus
        if bus is None or not (functions := bus.functions):
            return
        try:
            data = effect.decode()
        except ProtocolError:
            return  # the event `unknown_message` reports it
        if data.function_name is None:
            self._warn_of_missing("name")
            return
        function = functions.get(data.function_name)
        if function is None and effect.event is RTVIEvent.LLM_FUNCTION_CALL:
            # Only this message means the client: `in progress` is also sent for the bot's own functions.
            function = functions.get(None)
        if function is None or self._was_announced(data.tool_call_id, effect.event):
            return
        if data.arguments is None:
            self._warn_of_missing("arguments")
        call = FunctionCall(data.function_name, data.tool_call_id, data.arguments or {})
        event = Event(type=effect.event, data=data, received_at=monotonic(), message=effect.message)
        if self._publisher.queue.manual:
            self._publisher.call(partial(self._run, function, call, event), size)
        elif len(self._running) < MAX_RUNNING:
            number = next(self._numbers)
            self._running[number] = None
            SerialQueue().post(partial(self._run, function, call, event, number), self._workers)
        else:
            error = RTVIError(f"The bot calls a function while {MAX_RUNNING} of its calls are still running")
            if self._is_new("room"):
                logger.error("%s. It is told so each time; see that functions return.", error)
            self._fail(function, call, event, error, size)

    def _was_announced(self, tool_call_id: str, event: RTVIEvent) -> bool:
        """Whether the other message has announced the call before. A bot may reuse an id for a later call."""
        if self._announced is None:
            self._announced = deque(maxlen=_MAX_ANNOUNCED)
        key = hash(tool_call_id)  # an id may have any length
        if any(known == key and by is not event for known, by in self._announced):
            return True
        self._announced.append((key, event))
        return False

    def _warn_of_missing(self, what: str) -> None:
        if self._is_new(what):
            logger.warning(
                "The bot calls a function of this application and withholds its %s. Set function_call_report_level to "
                "ARGUMENTS in the parameters of the bot's RTVI observer (Pipecat has NONE by default).",
                what,
            )

    def _is_new(self, what: str) -> bool:
        """Return True the first time: a fault of a bot recurs in each call."""
        new = what not in self._warned
        self._warned.add(what)
        return new

    @property
    def is_current(self) -> bool:
        """True if the calling thread runs a function of this session."""
        return threading.current_thread() in self._running.copy().values()

    def join(self, deadline: Deadline) -> list[threading.Thread]:
        """Wait until no function runs. Return the threads whose functions are still running at `deadline`."""
        self._ended.wait_for(lambda: not self._running, deadline)
        return [thread for thread in self._running.copy().values() if thread is not None]

    # -- on the thread of the function --------------------------------------------------------------------------------

    def _run(self, function: FunctionCallHandler, call: FunctionCall, event: Event, number: int = 0) -> None:
        if number:
            self._running[number] = threading.current_thread()
        else:
            if (bus := self._publisher.bus) is not None:
                bus.count()  # for `process_events()`
        try:
            self._answer(call, _as_result(function(call)))
        except BaseException as error:
            logger.error("The function %s, which the bot called, failed", quoted(call.function_name), exc_info=error)
            self._fail(function, call, event, error)
            # In manual mode functions run on an application thread, where an exit or Ctrl-C has to get through.
            if self._publisher.queue.manual and not isinstance(error, Exception):
                raise
        finally:
            self._running.pop(number, None)
            self._ended.notify_all()

    def _fail(
        self, function: FunctionCallHandler, call: FunctionCall, event: Event, error: BaseException, size: int = 0
    ) -> None:
        """Report to the bot and the application that there is no result. Raises nothing. `size`: see `called()`."""
        failed = HandlerError(error=error, event=event, handler=function)
        self._publisher.event(RTVIEvent.HANDLER_ERROR, failed, size=size)
        result = {"error": raised(error)}
        try:
            self._answer(call, result)
        except Exception:  # noqa: BLE001 - the next attempt logs its own failure
            try:
                # The arguments are the bot's: they may be too large to send, or not JSON (NaN).
                self._answer(attrs.evolve(call, arguments={}), result)
            except Exception:
                logger.debug("The bot could not be told that %s failed", quoted(call.function_name), exc_info=True)

    def _answer(self, call: FunctionCall, result: dict[str, Any] | str) -> None:
        """Send the result.

        Raises:
            TypeError, ValueError: it is not JSON.
            MessageTooLargeError: the transport cannot carry it.
        """
        data = {
            "function_name": call.function_name,
            "tool_call_id": call.tool_call_id,
            "arguments": call.arguments,
            "result": result,
        }
        try:
            self._send(RTVIMessage("llm-function-call-result", data))
        except (BotNotReadyError, DisconnectedError, ForkedProcessError):
            logger.debug("The session ended before the result of %s could be sent", quoted(call.function_name))


def _as_result(value: Any) -> dict[str, Any] | str:
    """Return a result in a form that bots take. Pipecat refuses a result that is not an object or a string, and runs
    the model only for a true one.
    """
    return value if isinstance(value, (dict, str)) and value else {"result": value}
