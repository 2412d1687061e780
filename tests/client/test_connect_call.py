"""One call of `connect()` with several ways to the bot: the time of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rtvi_sync import ConnectError, MemoryTransport, TransportStartError
from rtvi_sync.client.connect_call import ConnectCall
from rtvi_sync.client.ways import Way
from rtvi_sync.concurrency.deadline import Deadline

pytestmark = pytest.mark.inside


def test_each_way_has_its_own_time() -> None:
    """The first one most of it, for a bot that loads its models; later ones an even part of what is left, and their
    errors tell that.
    """
    given: list[tuple[Deadline, float | None]] = []

    def make_attempt(_way: Way, deadline: Deadline, patience: float | None) -> Any:
        given.append((deadline, patience))
        return SimpleNamespace(session=SimpleNamespace(is_replaced=len(given) < 3))

    def connect(_attempt: Any, _way: Way) -> Any:
        raise TransportStartError("refused")

    call = ConnectCall([Way(MemoryTransport()) for _ in range(3)], Deadline(900.0))
    with pytest.raises(ConnectError, match="refused"):
        call.run(make_attempt, connect)
    (first, most), (second, half), (_, rest) = given
    assert (first, rest) == (call.deadline, None)
    assert most == pytest.approx(600.0, rel=0.1)
    assert second.timeout == pytest.approx(900.0, rel=0.1)
    assert second.timeout != 900.0
    assert half == pytest.approx(450.0, rel=0.1)
