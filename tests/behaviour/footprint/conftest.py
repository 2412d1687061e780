"""What the tests of this folder share."""

from __future__ import annotations

from tests.benchmarks.conftest import url  # noqa: F401 - a fixture
