"""What the tests of security share."""

from __future__ import annotations

from tests.support.environment import no_environment  # noqa: F401 - a fixture
