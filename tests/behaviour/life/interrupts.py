"""Interrupts a call of a client at each moment at which Python may do so, and checks the client afterwards.

These moments are the entry of a frame, and behind each instruction of the calling thread that calls or jumps: there
Python runs the handlers of signals, and raises the exceptions that another thread has set for this one.

Run as a script: ``python -m tests.behaviour.life.interrupts CALL STRIDE`` prints the result as JSON. With a stride
above 1, the call is interrupted only at every STRIDE-th moment, and at each of the last ones.

After an interrupt the client is whole or ended, and usable: a session is live and answers, or there is none and the
next `connect()` opens one. A call that connects leaves a session only if the interrupt arrives after it has returned,
and a call that ends a session leaves one only if it has not started.
"""

from __future__ import annotations

import dis
import faulthandler
import functools
import gc
import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import attrs

import rtvi_sync
from rtvi_sync import ReconnectPolicy, RTVIClient, TransportState
from rtvi_sync.testing import EmbeddedBot
from tests.behaviour.life.blocking import tell
from tests.support.slowness import GUARD
from tests.support.threads import own_threads, tracing
from tests.support.waiting import until

#: The end of a call is struck at each of its last moments.
LAST = 25

# `CALL_INTRINSIC_1`, which ends a generator of Python 3.12 and later, is no call.
_CHECKED = ("CALL", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "RESUME")


class InterruptError(Exception):
    """The exception of a signal handler. Like Celery's soft limit, it could be taken for an error of the call."""


def instruction_at(code: CodeType, offset: int) -> str:
    return dis.opname[code.co_code[offset]]


@functools.cache
def handlers_of(code: CodeType) -> tuple[Any, ...]:
    """Return the table of the `try` and `with` blocks, which Python 3.10 does not have."""
    parse = getattr(dis, "_parse_exception_table", None)
    return tuple(parse(code)) if parse is not None else ()


def handler_of(code: CodeType, offset: int) -> int | None:
    """Return where an exception of the instruction is handled; None: nowhere in this function."""
    return next((entry.target for entry in handlers_of(code) if entry.start <= offset < entry.end), None)


class Striker:
    """Traces the calling thread during calls of one function, and raises at the moment with a number."""

    def __init__(self, target: CodeType, error: type[BaseException] = InterruptError) -> None:
        self._target = target
        self._error = error
        self._outermost: FrameType | None = None
        self._left = 0
        self._over = False
        self._before: dict[FrameType, int] = {}  # where the last instruction of each frame is
        #: How many moments the call had.
        self.count = 0
        #: Where it has struck, from the function that was called inwards.
        self.functions: list[str] = []
        self.event = ""
        #: Nothing was left but the `return`: Python has left the `try` around it.
        self.returns = False

    def call(self, function: Callable[[], Any], number: int) -> bool:
        """Make the call; return whether it was interrupted, at the moment `number`."""
        self._left, self._over, self.count, self._outermost = number, False, 0, None
        try:
            with tracing(self._trace):
                function()
        except self._error:
            return True
        finally:
            self._outermost = None
            self._before.clear()
        return False

    @property
    def place(self) -> str:
        return " > ".join(self.functions) + f" ({self.event})"

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if self._over or (self._outermost is None and frame.f_code is not self._target):
            return None
        self._outermost = self._outermost or frame
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "return":
            self._over = frame is self._outermost
            self._before.pop(frame, None)
            return self._trace
        # A resumed generator starts in a block of its own, where a trace function cannot raise.
        enters = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if enters or self._is_moment(frame):
            self.count += 1
            self._left -= 1
            if not self._left:
                self._note(frame, event)
                raise self._error
        if event == "opcode":
            self._before[frame] = frame.f_lasti
        return self._trace

    def _is_moment(self, frame: FrameType) -> bool:
        """Return whether Python could raise in the instruction before the one that `frame` is about to run."""
        before, code = self._before.get(frame), frame.f_code
        if before is None:
            return False
        name = instruction_at(code, before)
        if not name.startswith(_CHECKED) or name.startswith("CALL_INTRINSIC"):
            return False
        # It would raise inside the former, which may be in a `try` or `with` that the latter is no longer in.
        return handler_of(code, before) == handler_of(code, frame.f_lasti)

    def _note(self, frame: FrameType, event: str) -> None:
        self.functions, self.event, each = [], event, frame
        self.returns = instruction_at(frame.f_code, frame.f_lasti) == "RETURN_VALUE"
        while each is not self._outermost and each.f_back is not None:
            self.functions.insert(0, each.f_code.co_name)
            each = each.f_back


@attrs.define(kw_only=True)
class Call:
    """A call that is interrupted.

    Attributes:
        target: The function whose frames count.
        make: Function that makes the call.
        connected: True if the client is connected before.
        leaves: Function that returns whether an interrupt there may leave a live session.
        closes: True if the client may be closed for good afterwards.
        options: Options of the client.
    """

    target: Callable[..., Any]
    make: Callable[[RTVIClient, EmbeddedBot], Any]
    connected: bool = False
    leaves: Callable[[Striker], bool]
    closes: bool = False
    options: dict[str, Any] = attrs.Factory(dict)


def has_returned(striker: Striker) -> bool:
    return not striker.functions and striker.returns


def is_outermost(striker: Striker) -> bool:
    return not striker.functions


def enter(client: RTVIClient, _: EmbeddedBot) -> None:
    client.__enter__()


def leave(client: RTVIClient, _: EmbeddedBot) -> None:
    client.__exit__(None, None, None)


CALLS = {
    "connect": Call(target=RTVIClient.connect, make=lambda client, _: client.connect(), leaves=has_returned),
    "connect, repeated": Call(
        target=RTVIClient.connect,
        make=lambda client, _: client.connect(),
        leaves=has_returned,
        options={"reconnect": ReconnectPolicy(first_connect=True, retry_on=lambda _: True, initial_delay=0.01)},
    ),
    "start_bot": Call(
        target=RTVIClient.start_bot,
        make=lambda client, bot: client.start_bot(bot.base_url + "/start"),
        leaves=has_returned,
    ),
    "start_bot_and_connect": Call(
        target=RTVIClient.start_bot_and_connect,
        make=lambda client, bot: client.start_bot_and_connect(bot.base_url + "/start"),
        leaves=has_returned,
    ),
    "connect()": Call(
        target=rtvi_sync.connect,
        make=lambda _, bot: rtvi_sync.connect(bot.ws_url, text_only=True).close(),
        leaves=has_returned,
    ),
    "enter": Call(target=RTVIClient.__enter__, make=enter, leaves=has_returned),
    "enter, connected": Call(target=RTVIClient.__enter__, make=enter, leaves=is_outermost, connected=True),
    "leave": Call(target=RTVIClient.__exit__, make=leave, leaves=is_outermost, connected=True),
    "disconnect": Call(
        target=RTVIClient.disconnect,
        make=lambda client, _: client.disconnect(),
        leaves=is_outermost,
        connected=True,
    ),
    "close": Call(
        target=RTVIClient.close,
        make=lambda client, _: client.close(),
        leaves=is_outermost,
        connected=True,
        closes=True,
    ),
}


def closed_for_good(client: RTVIClient) -> bool:
    try:
        client.connect()
    except rtvi_sync.RTVIError as error:
        if "closed for good" in str(error):
            return True
        raise
    return False


def check(client: RTVIClient, call: Call, striker: Striker) -> bool:
    """Use the client after an interrupt; return whether it had a session. It has none afterwards."""
    whole = client.connected
    if whole:
        assert call.leaves(striker), "it has left a session"
    elif client.state is not TransportState.DISCONNECTED:
        # The end continues in the background, and a call that has returned has started a bot.
        started = client.state is TransportState.AUTHENTICATED and call.leaves(striker)
        assert started or client.state is TransportState.DISCONNECTING, f"it has left the state {client.state.value}"
    if call.closes and not whole:
        assert closed_for_good(client), "it is not closed"
        return whole
    if not client.connected:
        client.connect()
    answer = client.ask("Are you there?", GUARD, audio_response=False)
    assert answer.bot_text == "Yes.", answer
    client.disconnect()
    assert client.state is TransportState.DISCONNECTED, f"disconnect() has left the state {client.state.value}"
    return whole


class Trial:
    """A call that is interrupted again and again."""

    def __init__(self, call: Call, bot: EmbeddedBot) -> None:
        self._call = call
        self._bot = bot
        self._client = self._new_client()
        self.striker = Striker(call.target.__code__)

    def _new_client(self) -> RTVIClient:
        return RTVIClient.for_url(self._bot.ws_url, text_only=True, connect_timeout=GUARD, **self._call.options)

    def begin_anew(self) -> None:
        self._client.close()
        self._client = self._new_client()

    def strike(self, number: int) -> bool:
        """Interrupt the call at a moment; return False if it has fewer."""
        client = self._client
        if self._call.connected:
            client.connect()
        if self.striker.call(lambda: self._call.make(client, self._bot), number):
            return True
        client.disconnect()
        return False

    def check(self) -> bool:
        """As `check()`."""
        try:
            return check(self._client, self._call, self.striker)
        finally:
            if self._call.closes:
                self.begin_anew()

    def moments(self) -> int:
        """Return how many the call has. The first calls import and fill caches, and so have more."""
        counts = []
        for _ in range(5):
            self.strike(sys.maxsize)
            counts.append(self.striker.count)
            if self._call.closes:
                self.begin_anew()
        return min(counts)

    def close(self) -> None:
        self._client.close()


def interrupt(name: str, stride: int) -> dict[str, Any]:
    """Interrupt a call at one in `stride` of its moments; return the counts, and the failures with their moments."""
    problems: list[str] = []
    strikes = wholes = number = 0
    with EmbeddedBot(replies="Yes.") as bot:
        trial = Trial(CALLS[name], bot)
        count = trial.moments()
        while len(problems) < 5:
            number += 1 if number < 5 else max(1, min(stride, count - LAST - number))
            if not trial.strike(number):
                break
            strikes += 1
            try:
                wholes += trial.check()
            except Exception:
                problems.append(f"{number}: {trial.striker.place}: {traceback.format_exc()}")
                trial.begin_anew()
        trial.close()
        del trial
        gc.collect()
        try:
            until(lambda: not (own_threads() or bot.sessions))
        except AssertionError:
            problems.append(f"left behind: {own_threads()}, {len(bot.sessions)} sessions of the bot")
    return {"moments": count, "strikes": strikes, "wholes": wholes, "problems": problems}


def main(name: str, stride: int) -> None:
    """Interrupt a call, and print the result."""
    faulthandler.dump_traceback_later(5 * GUARD, exit=True)
    logging.disable(logging.CRITICAL)
    tell(json.dumps(interrupt(name, stride)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
