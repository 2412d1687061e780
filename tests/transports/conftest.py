"""Fixtures of the tests of transports."""

from __future__ import annotations

from tests.support.abandoning import attempt  # noqa: F401 - a fixture
from tests.support.chromium import chromium, launch_chromium  # noqa: F401 - fixtures
from tests.support.environment import no_environment  # noqa: F401 - a fixture
from tests.support.fake_peer import fake_call  # noqa: F401 - a fixture
from tests.support.io_threads import io  # noqa: F401 - a fixture
from tests.support.webrtc import far_loop  # noqa: F401 - a fixture
from tests.support.websocket_bots import kind, opened, plain, runtime, server  # noqa: F401 - the same
from tests.support.websocket_client import link  # noqa: F401 - the same
