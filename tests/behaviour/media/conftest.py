"""Fixtures of this folder."""

from __future__ import annotations

from tests.media.conftest import opencv_was_not_tried  # noqa: F401 - a fixture
from tests.support.client_fixtures import no_threads_before  # noqa: F401 - a fixture
from tests.support.real_video import screen  # noqa: F401 - a fixture
