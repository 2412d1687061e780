"""Fixtures of this folder's tests."""

from __future__ import annotations

from tests.support.client_fixtures import no_threads_before  # noqa: F401 - a fixture
from tests.support.limits import limits  # noqa: F401 - a fixture
