"""Which lost sessions are replaced, and which policies make sense."""

from __future__ import annotations

import random
import ssl
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    BotError,
    BotNotReadyError,
    ConnectError,
    ConnectionTimeoutError,
    DisconnectedError,
    ForkedProcessError,
    ProtocolError,
    ReconnectPolicy,
    RTVIError,
    StartBotError,
    TransportStartError,
    UsageError,
    is_transient,
)
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.session.reconnect_policy import PolicyChanges, Retries, limit_attempt
from tests.support.clients import memory_client

pytestmark = pytest.mark.inside


def tried(*errors: RTVIError) -> ConnectError:
    """Return the error of a call that has tried several ways."""
    error = ConnectError("No bot was reached, by any transport")
    error.attempts = tuple(("websocket", each) for each in errors)
    return error


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (DisconnectedError("", initiator="network"), True),
        (DisconnectedError("", initiator="client"), False),
        (DisconnectedError("", initiator="server", code=1000), False),
        (DisconnectedError("", initiator="server"), False),
        *((DisconnectedError("", initiator="server", code=n), True) for n in (1001, 1006, 1011, 1012, 1013, 1014)),
        *((DisconnectedError("", initiator="server", code=n), False) for n in (1002, 1005, 1008, 1009, 3000, 4999)),
        *((StartBotError("", status=status), True) for status in (None, 408, 425, 429, 500, 503)),
        *((StartBotError("", status=status), False) for status in (301, 400, 401, 403, 404, 422)),
        (TransportStartError(""), True),
        (TransportStartError("", status=403), False),
        (ConnectionTimeoutError("", phase="http", elapsed=1.0), True),
        (tried(TransportStartError("", status=403), DisconnectedError("", initiator="network")), True),
        (tried(TransportStartError("", status=403), TransportStartError("", status=404)), False),
        (tried(DisconnectedError("", initiator="network"), StartBotError("", status=404)), True),
        (tried(TransportStartError("", status=502), StartBotError("", status=401)), False),
        (BotError("", fatal=True), False),
        (ProtocolError(""), False),
        (BotNotReadyError(""), False),
        (ValueError(), False),
    ],
    ids=lambda value: value if isinstance(value, bool) else f"{type(value).__name__} {vars(value) or ''}",
)
def test_what_is_transient(error: BaseException, transient: bool) -> None:
    """Only errors that may disappear by themselves are tried again."""
    assert is_transient(error) is transient


@pytest.mark.parametrize("error", [StartBotError(""), TransportStartError("")], ids=["start", "transport"])
@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_certificate_that_is_refused_is_not_transient(error: BaseException, link: str) -> None:
    """A certificate does not get better by itself, wherever among the causes its refusal is."""
    between = OSError("broken")
    setattr(between, link, ssl.SSLCertVerificationError("self-signed certificate"))
    error.__cause__ = between
    assert not is_transient(error)
    error.__cause__ = ssl.SSLEOFError("the connection broke in the handshake")
    assert is_transient(error)


@pytest.mark.parametrize(
    ("limit", "left", "expected"),
    [(None, None, None), (None, 9.0, 9.0), (5.0, None, 5.0), (5.0, 9.0, 5.0), (9.0, 5.0, 5.0)],
)
def test_an_attempt_has_the_shorter_limit(limit: float | None, left: float | None, expected: float | None) -> None:
    """An attempt ends at the limit of the policy, or at the limit of the call if that is earlier."""
    policy = ReconnectPolicy(attempt_timeout=limit)
    assert limit_attempt(policy, Deadline(left)).timeout == expected
    assert limit_attempt(None, Deadline(left)).timeout == left


@pytest.mark.parametrize(
    "options",
    [{"max_attempts": 0}, {"initial_delay": 0}, {"max_delay": -1}, {"stable_after": float("inf")}, {"max_elapsed": 0}],
)
def test_a_policy_makes_sense(options: dict[str, Any]) -> None:
    """A policy that cannot be followed is refused where it is made."""
    with pytest.raises(ValueError, match=next(iter(options))):
        ReconnectPolicy(**options)


def test_reconnect_is_a_policy() -> None:
    """True is no policy; the message names a valid value."""
    with pytest.raises(TypeError, match=r"ReconnectPolicy\(\)"):
        memory_client(reconnect=True)


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        (DisconnectedError("", initiator="network"), True),
        (DisconnectedError("", initiator="server", code=1000), True),
        (StartBotError("", status=404), True),
        (BotError("", fatal=True), True),
        (UsageError(""), False),
        (ForkedProcessError(""), False),
        (ValueError(), False),
    ],
)
def test_forever_ends_only_by_the_application(error: BaseException, repeated: bool) -> None:
    """Whatever bot, server and network do is followed by another attempt; mistakes of the application are not."""
    policy = ReconnectPolicy.forever(max_delay=5)
    assert policy.retry_on is not None
    assert policy.retry_on(error) is repeated
    assert (policy.max_attempts, policy.max_delay, policy.first_connect) == (None, 5, True)


def test_the_delays_double_up_to_their_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest random delay doubles from `initial_delay` with each attempt, and stays at `max_delay`."""
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    retries = Retries(ReconnectPolicy(max_attempts=5, initial_delay=1.0, max_delay=6.0), first=1)
    planned = [retries.after(DisconnectedError("lost")) for _ in range(6)]
    assert [data and data.delay for data in planned] == [1.0, 2.0, 4.0, 6.0, 6.0, None]


def test_changes_are_the_attributes() -> None:
    """The names and types that type checkers know of `forever()` are the attributes'."""
    changes = {name: reference.__forward_arg__ for name, reference in PolicyChanges.__annotations__.items()}
    assert changes == {field.name: field.type for field in attrs.fields(ReconnectPolicy)}
