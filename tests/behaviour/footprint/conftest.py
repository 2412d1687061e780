"""Fixtures of this folder."""

from __future__ import annotations

from tests.benchmarks.conftest import url  # noqa: F401 - a fixture
