"""Which state may follow which."""

from __future__ import annotations

import itertools
import json

import pytest

from rtvi_sync.protocol.states import ACTIVE, FOLLOWING, CloseInfo, TransportState, may_follow

S = TransportState


def test_the_way_of_a_session() -> None:
    """The documented order of states is possible, and the way back to the beginning."""
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
    assert all(may_follow(one, other) for one, other in itertools.pairwise(way))


def test_start_bot_and_then_connect() -> None:
    """`authenticated` lies between `start_bot()` and `connect()`, from wherever a client rests."""
    for rest in (S.DISCONNECTED, S.INITIALIZED, S.ERROR):
        assert may_follow(rest, S.AUTHENTICATING)
    assert may_follow(S.AUTHENTICATING, S.AUTHENTICATED)
    assert may_follow(S.AUTHENTICATED, S.INITIALIZING)
    assert may_follow(S.AUTHENTICATED, S.DISCONNECTED)


def test_every_state_has_a_way_out() -> None:
    """From every state a client can get back to `disconnected` and to `ready`."""
    for state in S:
        reached, frontier = {state}, {state}
        while frontier:
            frontier = {n for s in frontier for n in FOLLOWING[s]} - reached
            reached |= frontier
        assert reached >= set(S)


def test_an_attempt_may_fail_anywhere() -> None:
    """Rule 2: `error` may follow every state but itself, `disconnecting` every state but those at rest."""
    assert [s for s in S if not may_follow(s, S.ERROR)] == [S.ERROR]
    assert {s for s in S if not may_follow(s, S.DISCONNECTING)} == {S.DISCONNECTED, S.DISCONNECTING, S.ERROR}


@pytest.mark.parametrize(
    ("state", "next_"),
    [
        (S.DISCONNECTED, S.READY),
        (S.DISCONNECTED, S.CONNECTED),
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
    assert not may_follow(state, next_)


def test_states_are_strings() -> None:
    """A state is its name: it compares with it, prints as it, and can be written as JSON."""
    assert S.READY == "ready"
    assert str(S.READY) == f"{S.READY}" == "ready"
    assert json.dumps(S.READY) == '"ready"'
    assert S("ready") is S.READY


def test_active() -> None:
    """A client is connected in two states."""
    assert {S.CONNECTED, S.READY} == ACTIVE


def test_close_info() -> None:
    """It is a value: frozen, comparable, with defaults for a normal end of the client's own."""
    info = CloseInfo()
    assert (info.code, info.reason, info.initiator, info.error) == (None, "", "client", None)
    assert info == CloseInfo()
    with pytest.raises(AttributeError):
        info.code = 1000  # type: ignore[misc]
