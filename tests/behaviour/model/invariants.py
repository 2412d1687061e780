"""Invariants under any calls: sentences of docs/background/threads.md, each with the function that checks it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from rtvi_sync import RTVIEvent, TransportState, errors

from .ears import Ears
from .world import GRACE, Call, Party

NAMED: Final = tuple(error for error in vars(errors).values() if isinstance(error, type))

_S = TransportState
_ENDS: Final = {_S.DISCONNECTING, _S.DISCONNECTED, _S.ERROR}
#: Written down separately, not taken from the package, whose own table refuses all other transitions.
AFTER: Final = {
    _S.DISCONNECTED: {_S.INITIALIZING, _S.AUTHENTICATING},
    _S.INITIALIZING: {_S.INITIALIZED, *_ENDS},
    _S.INITIALIZED: {_S.AUTHENTICATING, _S.CONNECTING, *_ENDS},
    _S.AUTHENTICATING: {_S.AUTHENTICATED, _S.CONNECTING, *_ENDS},
    _S.AUTHENTICATED: {_S.INITIALIZING, _S.AUTHENTICATING, _S.CONNECTING, *_ENDS},
    _S.CONNECTING: {_S.CONNECTED, *_ENDS},
    _S.CONNECTED: {_S.READY, *_ENDS},
    _S.READY: _ENDS,
    _S.DISCONNECTING: {_S.DISCONNECTED, _S.ERROR},
    _S.ERROR: {_S.INITIALIZING, _S.AUTHENTICATING, _S.DISCONNECTED},
}
_BETWEEN_SESSIONS: Final = {
    RTVIEvent.TRANSPORT_STATE_CHANGED,
    RTVIEvent.BOT_STARTED,
    RTVIEvent.RECONNECTING,
    RTVIEvent.RECONNECT_FAILED,
    # Devices open before the transport does, and stay after it.
    RTVIEvent.DEVICE_ERROR,
    RTVIEvent.MEDIA_STATE_UPDATED,
    RTVIEvent.MIC_UPDATED,
    RTVIEvent.SPEAKER_UPDATED,
    RTVIEvent.CAM_UPDATED,
    RTVIEvent.AVAILABLE_MICS_UPDATED,
    RTVIEvent.AVAILABLE_SPEAKERS_UPDATED,
    RTVIEvent.AVAILABLE_CAMS_UPDATED,
    RTVIEvent.TRACK_STARTED,
    RTVIEvent.TRACK_STOPPED,
    RTVIEvent.LOCAL_AUDIO_LEVEL,
    RTVIEvent.UNSUPPORTED_FEATURE,
}


# -- of each call ----------------------------------------------------------------------------------------------------


def any_thread_may_call(call: Call) -> None:
    """Every method of `RTVIClient` may be called on any thread, by several at once."""
    if call.error is not None:
        assert call.error in NAMED, f"{call}: the error has no public name"
        allowed = (*call.operation.errors, errors.WouldDeadlockError) if call.inside else call.operation.errors
        assert issubclass(call.error, allowed), call
        assert call.text, f"{call}: an error that says nothing"


def calls_are_bounded(call: Call) -> None:
    """`connect()` does its work on a thread that the caller joins with one deadline over all phases."""
    assert call.took < call.operation.limit + GRACE, f"{call.name} took {call.took:.1f} s"


def disconnect_is_bounded(call: Call) -> None:
    """`disconnect()` returns within 5 seconds, except in a signal handler that has interrupted the holder of a lock"""
    if call.name in ("disconnect", "close"):
        assert call.took < 5.0 + GRACE, f"{call.name} took {call.took:.1f} s"
        assert call.error is None, call


def no_waiting_inside_a_handler(call: Call) -> None:
    """Waiting inside a handler for a later event of the same client can never end, so it raises `WouldDeadlockError`
    at once.
    """
    if call.inside and call.operation.waits:
        # If the session has ended already, the call does not wait.
        ended = call.error is None and call.handed_out == 0
        assert ended or call.error in (errors.WouldDeadlockError, errors.DisconnectedError), call
        assert call.took < GRACE


def earlier_handlers_have_returned(call: Call) -> None:
    """When `wait_for()` or `events()` hands out an event, every handler of *earlier* events has returned."""
    assert call.unfinished == (), f"{call.name}: {call.unfinished}"


# -- of each client --------------------------------------------------------------------------------------------------


def one_handler_at_a_time(ears: Ears) -> None:
    """Handlers (callbacks, `client.on()`, signal receivers) of one client run one at a time"""
    assert ears.together == 0


def handlers_have_their_thread(ears: Ears) -> None:
    """on a thread of the package — never on the thread that reads the network."""
    if not ears.manual:
        assert [(one.type, one.thread) for one in ears.heard.copy() if not one.allowed] == []


def manual_handlers_run_inside_calls(ears: Ears) -> None:
    """With `events="manual"` they run inside `process_events()` and the calls that wait for events, on the thread that
    calls these, and nowhere else.
    """
    if ears.manual:
        assert [(one.type, one.thread) for one in ears.heard.copy() if not one.allowed] == []


def states_follow_each_other(ears: Ears) -> None:
    """One attempt, one session: late results of an abandoned attempt change nothing."""
    states = [TransportState.DISCONNECTED, *ears.states()]
    for before, after in itertools.pairwise(states):
        assert after in AFTER[before], f"{before} -> {after} in {[str(state) for state in states]}"


def attempts_to_reconnect_end_in_disconnected(ears: Ears) -> None:
    """An attempt to replace a lost session that fails ends in the state `disconnected`, as the loss did."""
    state = None
    for event in ears.sequence():
        state = event.state or state
        if event.type in (RTVIEvent.RECONNECTING, RTVIEvent.RECONNECT_FAILED):
            assert state is not TransportState.ERROR, event.type


def events_come_in_order(ears: Ears) -> None:
    """in the order of the events"""
    times = [event.received_at for event in ears.sequence() if event.from_bot]
    assert times == sorted(times)


def sessions_end_once(ears: Ears) -> None:
    """A session ends once, however many ask for it"""
    open_ = False
    for event in ears.sequence():
        if event.type is RTVIEvent.CONNECTED:
            assert not open_, "a second session in the midst of the first"
            open_ = True
        elif event.type is RTVIEvent.DISCONNECTED:
            assert open_, "the end of a session that never began, or has ended"
            open_ = False
        elif event.type not in _BETWEEN_SESSIONS:
            assert open_, f"{event.type} outside of a session"


def disconnected_is_last(ears: Ears) -> None:
    """`bot_disconnected`, the state `disconnected`, and last `disconnected` are published."""
    events = ears.sequence()
    for index, event in enumerate(events):
        if event.type is RTVIEvent.DISCONNECTED:
            state, bot = events[index - 1], events[index - 2]
            assert (bot.type, state.type) == (RTVIEvent.BOT_DISCONNECTED, RTVIEvent.TRANSPORT_STATE_CHANGED)
            assert state.state in (TransportState.DISCONNECTED, TransportState.ERROR)


def a_handler_that_raises_hurts_nobody(ears: Ears) -> None:
    """A handler that raises is logged and reported as `handler_error`; the other handlers and the session are not
    affected.
    """
    heard = [one.type for one in ears.heard.copy()]
    assert heard.count(RTVIEvent.HANDLER_ERROR) <= ears.raised
    others = [[type_ for type_ in door if type_ is not RTVIEvent.HANDLER_ERROR] for door in (heard, ears.by_handlers)]
    assert others[0] == others[1][: len(others[0])]


# -- of a client that nothing else goes on with ----------------------------------------------------------------------


def disconnect_returns_when_all_is_over(party: Party) -> None:
    """Normally it returns when the threads of the session are gone and `disconnected` was delivered."""
    # ERROR: the last connect() has failed
    states = [str(state) for state in party.ears.states()[-9:]]
    assert party.client.state in (TransportState.DISCONNECTED, TransportState.ERROR), f"{party.client} after {states}"
    if not party.ears.manual:
        opened = [event.type for event in party.ears.sequence() if event.type not in _BETWEEN_SESSIONS]
        assert not opened or opened[-1] is RTVIEvent.DISCONNECTED, opened[-5:]


def after_the_end_there_is_no_bot(party: Party) -> None:
    """After the end, calls that need a bot raise `BotNotReadyError`"""
    try:
        party.client.send_text("Is anybody there?")
    except errors.BotNotReadyError:
        return
    raise AssertionError("a text was sent after the end")


def a_blocked_handler_holds_up_nothing_else(calls: list[Call]) -> None:
    """A handler that blocks holds up the later events of its own client and nothing else: answers to requests still
    arrive, audio still flows, other clients are not affected.
    """
    assert [(call.error, call.result) for call in calls] == [(None, "still there?")] * len(calls), calls


def connect_works_in_the_last_handler(call: Call) -> None:
    """You may call `connect()` as soon as `disconnected` is delivered, inside its handler too."""
    # On a busy machine its limit may be too little.
    assert call.error in (None, errors.ConnectionTimeoutError), call


OF_CALLS: Final[tuple[Callable[[Call], None], ...]] = (
    any_thread_may_call,
    calls_are_bounded,
    disconnect_is_bounded,
    no_waiting_inside_a_handler,
    earlier_handlers_have_returned,
)
OF_CLIENTS: Final[tuple[Callable[[Ears], None], ...]] = (
    one_handler_at_a_time,
    handlers_have_their_thread,
    manual_handlers_run_inside_calls,
    states_follow_each_other,
    attempts_to_reconnect_end_in_disconnected,
    events_come_in_order,
    sessions_end_once,
    disconnected_is_last,
    a_handler_that_raises_hurts_nobody,
)
AT_REST: Final[tuple[Callable[[Party], None], ...]] = (
    disconnect_returns_when_all_is_over,
    after_the_end_there_is_no_bot,
)
