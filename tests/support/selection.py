"""Which of many alike cases run each time, and which with `run.py test --matrix` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return parameters for `parametrize`: those in `kept` run each time, the others with the matrix.

    A tuple has the values of several arguments.
    """
    found = list(values)
    missing = [value for value in kept if value not in found]
    assert not missing, f"no such value: {missing}"
    return [value if value in kept else _of_the_matrix(value) for value in found]


def _of_the_matrix(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.matrix)
