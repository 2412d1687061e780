"""Fixtures of the tests of security."""

from __future__ import annotations

from tests.support.environment import no_environment  # noqa: F401 - a fixture
