"""Fixtures of this folder."""

from __future__ import annotations

from tests.support.client_fixtures import no_threads_before  # noqa: F401 - a fixture
