"""Which state may follow which."""

from __future__ import annotations

import itertools
import json

import pytest

from rtvi_sync.errors import BotError, DisconnectedError
from rtvi_sync.protocol.states import ACTIVE, FOLLOWING, CloseInfo, TransportState, can_transition

pytestmark = pytest.mark.inside

S = TransportState


def test_the_way_of_a_session() -> None:
    """The documented order of states is possible, and so is the way back to the first one."""
    way = [
        S.DISCONNECTED,
        S.INITIALIZING,
        S.INITIALIZED,
        S.AUTHENTICATING,
        S.CONNECTING,
        S.CONNECTED,
        S.READY,
        S.DISCONNECTING,
        S.DISCONNECTED,
    ]
    assert all(can_transition(one, other) for one, other in itertools.pairwise(way))


def test_start_bot_and_then_connect() -> None:
    """`authenticated` lies between `start_bot()` and `connect()`, from wherever a client rests."""
    for rest in (S.DISCONNECTED, S.INITIALIZED, S.ERROR):
        assert can_transition(rest, S.AUTHENTICATING)
    assert can_transition(S.AUTHENTICATING, S.AUTHENTICATED)
    assert can_transition(S.AUTHENTICATED, S.INITIALIZING)
    assert can_transition(S.AUTHENTICATED, S.DISCONNECTED)


def test_every_state_has_a_way_out() -> None:
    """From every state a client can get back to `disconnected` and to `ready`."""
    for state in S:
        reached, frontier = {state}, {state}
        while frontier:
            frontier = {n for s in frontier for n in FOLLOWING[s]} - reached
            reached |= frontier
        assert reached >= set(S)


def test_an_attempt_may_fail_anywhere() -> None:
    """Rule 2: `error` may follow every state but those at rest, and `disconnecting` those but itself."""
    assert {s for s in S if not can_transition(s, S.ERROR)} == {S.DISCONNECTED, S.ERROR}
    assert {s for s in S if not can_transition(s, S.DISCONNECTING)} == {S.DISCONNECTED, S.DISCONNECTING, S.ERROR}


@pytest.mark.parametrize(
    ("state", "next_"),
    [
        (S.DISCONNECTED, S.READY),
        (S.DISCONNECTED, S.CONNECTED),
        (S.DISCONNECTED, S.CONNECTING),
        (S.INITIALIZED, S.INITIALIZING),
        (S.CONNECTING, S.READY),
        (S.READY, S.CONNECTED),
        (S.DISCONNECTING, S.READY),
        (S.ERROR, S.CONNECTED),
        (S.READY, S.READY),
        (S.DISCONNECTED, S.DISCONNECTED),
    ],
)
def test_what_cannot_follow(state: TransportState, next_: TransportState) -> None:
    """No state is skipped on the way to a ready bot, and none follows itself."""
    assert not can_transition(state, next_)


def test_states_are_strings() -> None:
    """A state is its name: it compares with it, prints as it, and can be written as JSON."""
    state = S("ready")
    assert state == "ready"
    assert str(state) == f"{state}" == "ready"
    assert json.dumps(state) == '"ready"'
    assert state is S.READY


def test_active() -> None:
    """A client is connected in two states."""
    assert {S.CONNECTED, S.READY} == ACTIVE


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (CloseInfo(), "This client ended the session"),
        (CloseInfo(initiator="server", code=1000), "The bot ended the session (code 1000)"),
        (
            CloseInfo(initiator="server", code=1013, reason="one\nclient\x1b[31m"),
            "The bot ended the session (code 1013: one client [31m)",
        ),
        (CloseInfo(initiator="network"), "The connection to the bot was lost"),
        (
            CloseInfo(initiator="network", code=1006, error=OSError("reset")),
            "The connection to the bot was lost: reset",
        ),
        (CloseInfo(initiator="unknown"), "The session has ended"),
    ],
)
def test_an_end_in_words(info: CloseInfo, text: str) -> None:
    """describe() says in one printable line who ended the session and why."""
    assert info.describe() == text


def test_an_end_as_an_error() -> None:
    """A call that needed the session gets an error with its end, the advice, and the cause."""
    cause = OSError("reset")
    error = CloseInfo(initiator="network", code=1006, reason="r", error=cause).as_error(before="the answer came")
    assert (
        str(error) == "The connection to the bot was lost before the answer came: reset; call connect() for a new one"
    )
    assert (error.code, error.reason, error.initiator, error.__cause__) == (1006, "r", "network", cause)
    assert str(CloseInfo().as_error()) == "This client ended the session; call connect() for a new one"
    replaced = CloseInfo(initiator="network", reconnecting=True)
    assert str(replaced.as_error()) == "The connection to the bot was lost"


def test_why_there_is_no_session() -> None:
    """An error of this package's own is told as it was, as a new object; anything else is a `DisconnectedError`."""
    cause = BotError("it broke", fatal=True)
    failure = CloseInfo(initiator="server", error=cause).failure()
    assert isinstance(failure, BotError)
    assert failure is not cause
    assert (str(failure), failure.fatal) == ("it broke", True)
    for info in (CloseInfo(code=1000), CloseInfo(error=OSError("reset"))):
        assert isinstance(info.failure(), DisconnectedError)


def test_who_wanted_the_end() -> None:
    """Only an end by the application, without an error, is its own."""
    assert CloseInfo().by_application
    assert not CloseInfo(error=OSError()).by_application
    assert not CloseInfo(initiator="server").by_application


def test_close_info() -> None:
    """`CloseInfo` is an immutable, comparable value; its defaults describe a normal end by the client."""
    info = CloseInfo()
    assert (info.code, info.reason, info.initiator, info.error) == (None, "", "client", None)
    assert info == CloseInfo()
    with pytest.raises(AttributeError):
        info.code = 1000  # type: ignore[misc]
