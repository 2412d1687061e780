"""The level meter."""

from __future__ import annotations

import pytest

from rtvi_sync.cli.meter import level_bar

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("dbfs", "shown"), [(-100, "····"), (-60, "····"), (-45, "█···"), (-30, "██··"), (0, "████"), (3, "████")]
)
def test_a_bar_is_as_long_as_it_is_loud(dbfs: float, shown: str) -> None:
    """The bar is empty at -60 dBFS and below, full at 0 dBFS."""
    assert level_bar(dbfs, 4) == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_bar_needs_no_blocks(encoding: str) -> None:
    """Without block characters the bar is made of ASCII characters."""
    assert level_bar(-30, 4, encoding) == "##.."
