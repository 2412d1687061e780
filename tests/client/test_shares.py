"""The time of each candidate of a `connect()`."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import ConnectError, MemoryTransport, RTVIClient, TransportStartError
from tests.support.moments import at
from tests.support.probes import use_ways
from tests.support.slowness import GUARD


class Refusing(MemoryTransport):
    """A transport whose server refuses the client."""

    def connect(self, auth_bundle: Any, abort: Any) -> None:
        raise TransportStartError("refused")


def test_each_candidate_has_its_own_time() -> None:
    """The first candidate gets most of the time, for a bot that loads its models. Later ones get even parts of the
    rest, and their errors report that.
    """
    given: list[tuple[float | None, float | None]] = []

    def note(go_on: Any, limits: Any) -> Any:
        given.append(limits)
        return go_on()

    client = RTVIClient(transport=MemoryTransport(), connect_timeout=9 * GUARD)
    use_ways(client, "ws://127.0.0.1:9/ws", *(Refusing() for _ in range(3)))
    with at("an attempt gets its time", note), pytest.raises(ConnectError, match="refused"):
        client.connect()
    (first, most), (second, half), (_, rest) = given
    assert (first, rest) == (9 * GUARD, None)
    assert most == pytest.approx(6 * GUARD, rel=0.1)
    assert second == pytest.approx(9 * GUARD, rel=0.1)
    assert second != 9 * GUARD
    assert half == pytest.approx(4.5 * GUARD, rel=0.1)
