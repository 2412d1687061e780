"""Faults as data: numbers that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rtvi_sync.testing import faults


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (faults.Delay, {"seconds": -1}),
        (faults.Delay, {"seconds": float("inf")}),
        (faults.Split, {"size_bytes": 0}),
        (faults.Coalesce, {"seconds": 1, "size_bytes": 0}),
        (faults.Coalesce, {"size_bytes": 1, "seconds": float("nan")}),
        (faults.Throttle, {"bytes_per_second": 0}),
        (faults.Throttle, {"bytes_per_second": float("inf")}),
        (faults.Drop, {"size_bytes": -1}),
        (faults.Corrupt, {"size_bytes": 0}),
        (faults.Corrupt, {"mask": 0}),
        (faults.Corrupt, {"mask": 256}),
    ],
)
def test_faults_with_invalid_numbers(kind: Callable[..., faults.ConnectionFault], arguments: dict[str, float]) -> None:
    """A fault with an invalid number raises when it is made, so that it cannot end the proxy's thread later."""
    with pytest.raises(ValueError, match=next(reversed(arguments))):
        kind(**arguments)
